"""The host function: what it reads and checks, allocates, launches and returns."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import sympy
import torch
import torch.utils._pytree as pytree

from curate.generator import docstrings
from curate.generator import torch_private as private
from curate.generator.body import Kernel, identifier
from curate.generator.loops import Loops, equal, in_terms_of, product
from curate.generator.promises import guards
from curate.generator.promises.ranks import LEAD, Lead
from curate.generator.promises.result_types import ResultTypes
from curate.generator.sizes import Fact, Sizes, attributes
from curate.generator.text.expressions import Printer
from curate.generator.trace import Symbolic, Traced
from curate.generator.unprintable import Unprintable
from curate.generator.values import StoredValue, unconverted
from curate.generator.views import Elements, contiguous_strides, is_contiguous, view_text
from curate.generator.words import operation, words_of
from curate.problem.problem import attribute_path

ir = private.ir

_REDUCED = {"sum": "total", "prod": "product", "max": "peak", "min": "lowest", "any": "found"}
_REDUCED |= {"online_softmax_reduce": "peak exp_sum", "welford_reduce": "mean squares count"}


@dataclass
class Tensor:
    """A tensor that the program is given.

    Attributes:
        name: its variable.
        text: how forward finds it.
        sizes: what its sizes are in symbols.
        is_input: whether it is forward's, not the module's own.
        leads: whether its first size stands for any number of dimensions.
        dense: whether it surely lies as one in memory.
    """

    name: str
    text: str
    sizes: list[sympy.Expr]
    dtype: torch.dtype
    is_input: bool
    leads: bool = False
    dense: bool = False


OF_A_PART = re.compile(r"self\.\w+[.\[].+")
"""Where a number of a part of the module is: ``self.net[1].out_features``."""


class Program:
    """Collects a program while its loops are printed.

    Attributes:
        kernels: their texts, in order of launch; ``helpers`` are functions that they call.
        other_names: by a kernel's name what it may be called where another has its name, or "".
        head: statements of forward that read and check, once all is printed.
        lines: statements of forward behind its checks.
        tensors: what the program is given, by the graph's names; ``used`` has those that it needs.
        inner: buffers that only the kernel that makes them reads.
        accumulated: buffers in which kernels add up with atomic operations, in full precision;
            ``zeroed`` has those that begin with zeros.
        changed: buffers that some kernel changes in place.
        scratch: variables of temporary tensors.
        copies: variables of copies in another layout, by what makes them.
        pointed: buffers that kernels are given, or that are returned.
        summary: what the reference says of itself, if one kernel does it all.
        is_alone: whether one does.
        has_one_product: whether it has one product of matrices, or one convolution.
        has_rank: whether an input of another rank is refused.
        promised: conditions on the constructor's arguments that no attribute tells.
        starts: buffers that a loop of the host begins with.
        variant: which of a kernel's schedules is printed, from 0; the last if it has fewer.
        variants: how many the kernel with the most has, of those that are printed.
    """

    def __init__(
        self,
        traced: Traced,
        graph: Any,
        inputs: list[str],
        types: ResultTypes,
        lead: Lead | None = None,
        variant: int = 0,
    ) -> None:
        self.variant = variant
        self.variants = 0
        self.traced = traced
        self.lead = lead
        self.graph = graph
        self.types = types
        self.head: list[str] = []
        self.lines: list[str] = []
        self.kernels: list[str] = []
        self.other_names: dict[str, str] = {}
        self.helpers: set[str] = set()
        self.depth = 0
        self.tensors: dict[str, Tensor] = {}
        self.used: dict[str, None] = {}
        self.allocated: dict[str, None] = {}
        self.inner: set[str] = set()
        self.accumulated: set[str] = set()
        self.zeroed: set[str] = set()
        self.changed: set[str] = set()
        self.aliases: dict[str, tuple[str, sympy.Expr]] = {}
        self.words: dict[str, str] = {}
        self.inputs = inputs
        names = {n for n, v in vars(traced.task).items() if callable(v) or inspect.ismodule(v)}
        taken = {"self", "grid", "min", "max", "torch", "triton", "tl", *names, *inputs}
        self.sizes = Sizes(traced, taken, lead)
        self.scratch: dict[str, str] = {}
        self.starts: set[str] = set()
        self.copies: dict[str, str] = {}
        self.pointed: set[str] = set()
        self.summary = ""
        self.is_alone = False
        self.has_one_product = False
        self.has_rank = False
        self.promised: list[str] = []
        self._given(inputs)
        self._outputs()
        self._aliases()

    # -- what there is ----------------------------------------------------------------------------

    def _given(self, inputs: list[str]) -> None:
        """Name the graph's inputs and note what their sizes tell."""
        traced = self.traced
        paths = [path for path, _ in pytree.tree_flatten_with_path(traced.inputs)[0]]
        numbers: list[Fact] = []
        for given, name in zip(traced.origins, self.graph.graph_input_names, strict=True):
            box = self.graph.graph_inputs[name]
            if given.kind == "argument":
                continue
            is_input = given.kind == "input"
            if is_input:
                own, text = self._input_names(paths[given.leaf], inputs)
            else:
                own, text = self._state_names(given.name)
            if isinstance(box, ir.TensorBox):
                own = own if own == text else self.sizes.fresh(own)
                leads = self.lead is not None and is_input and given.leaf in self.lead.leaves
                shape = self._sizes(box.get_size())
                dense = not is_input and len(shape) < 2 and given.name not in traced.strided
                self.tensors[name] = Tensor(
                    own, text, shape, box.get_dtype(), is_input, leads, dense
                )
            elif isinstance(traced.leaves[given.leaf], Symbolic):
                numbers.append(Fact(traced.expression(traced.leaves[given.leaf]), text))
        order = sorted(self.tensors.values(), key=lambda t: not t.is_input)
        own_sizes: list[Fact] = []
        for tensor in order:
            rank = len(tensor.sizes)
            for dim, size in enumerate(tensor.sizes):
                at = dim - rank if tensor.leads else dim
                fact = Fact(size, f"{tensor.name}.shape[{at}]", tensor.name, at)
                if not tensor.leads or dim:
                    (numbers if tensor.is_input else own_sizes).append(fact)
        owner = self._owner()
        if owner is not None:
            rank = len(owner.sizes)
            for dim in range(1, rank):
                text = f"{owner.name}.shape[:{dim - rank}].numel()"
                numbers.append(Fact(product(owner.sizes[:dim]), text))
            numbers.append(Fact(product(owner.sizes), f"{owner.name}.numel()"))
        self.sizes.learn([*numbers, *attributes(traced), *own_sizes])
        for tensor in order:
            tensor.sizes = [self.sizes.known(size) for size in tensor.sizes]

    def _owner(self) -> Tensor | None:
        """Return the input that tells how many elements the dimensions in front have."""
        for tensor in self.tensors.values():
            if tensor.leads:
                if tensor.name != tensor.text:
                    raise Unprintable("a rank")
                return tensor
        return None

    def _sizes(self, sizes: Iterable[Any]) -> list[sympy.Expr]:
        """Return a shape in known sizes, with one dimension in place of those in front."""
        found = [self.sizes.known(size) for size in sizes]
        return self.lead.joined(found) if self.lead else found

    def _input_names(self, path: Any, inputs: list[str]) -> tuple[str, str]:
        """Return a variable for one of forward's inputs, and how forward finds it."""
        parameters = list(inspect.signature(self.traced.task.Model.forward).parameters.values())
        position = min(path[0].idx, len(inputs) - 1)
        word, steps = inputs[position], path[1:]
        if parameters[1 + position].kind is inspect.Parameter.VAR_POSITIONAL:
            text = f"{word}[{path[0].idx - position}]"
            word = f"{word}_{path[0].idx - position}"
        elif path[0].idx > position:
            raise Unprintable("more inputs than forward names")
        else:
            text = word
        for step in steps:
            word += f"_{step.idx if hasattr(step, 'idx') else step.key}"
        return identifier(word) if text != word else word, text + pytree.keystr(steps)

    def _state_names(self, path: str) -> tuple[str, str]:
        """Return a variable for a parameter or buffer, and how forward finds it."""
        parts = [part for part in path.split(".") if not part.isdigit()]
        word = identifier(parts[-1])
        if word in self.sizes.taken and len(parts) > 1:
            word = identifier("_".join(parts[-2:]))
        text = attribute_path(path)
        if path in self.traced.plain:
            text += f".to({self._first_input()}.device)"
        return word, text

    def _first_input(self) -> str:
        """Return the text for the first of forward's inputs that is a tensor."""
        paths = [path for path, _ in pytree.tree_flatten_with_path(self.traced.inputs)[0]]
        for path, leaf in zip(paths, self.traced.leaves, strict=True):
            if isinstance(leaf, torch.Tensor):
                return self._input_names(path, self.inputs)[1]
        raise Unprintable("no tensor says on which device it works")

    def _outputs(self) -> None:
        """Name the buffers that are returned."""
        self.results = list(self.graph.graph_outputs)
        told = words_of(self.traced.task).results(self.traced.model)
        count = len(self.results) - len(self.traced.assigned)
        told = told if len(told) == count else [""] * count
        told = [*told, *(path.rpartition(".")[2] for path in self.traced.assigned)]
        words: dict[str, str] = {}
        for i, result in enumerate(self.results):
            if not isinstance(result, ir.ShapeAsConstantBuffer | ir.NoneAsConstantBuffer):
                own = told[i]
                own = f"out_{own}" if own in self.sizes.taken else own or f"out{i}"
                words.setdefault(result.get_name(), own)
        made = [n for n in words if n not in self.graph.graph_inputs]
        for name in made:
            is_only = len(made) == 1 and not words[name].endswith("_grad")
            self.words[name] = self.sizes.fresh("out" if is_only else words[name])
        self.returned = set(made)

    def _aliases(self) -> None:
        """Note which buffers are parts of others."""
        for group in self.graph.scheduler.nodes:
            for node in group.get_nodes():
                layout = getattr(node.node, "layout", None)
                if isinstance(layout, ir.MutationLayoutSHOULDREMOVE):
                    changed = layout.get_buffer().get_name()
                    self.changed.add(changed)
                    self.aliases[node.node.get_name()] = changed, sympy.S.Zero
                    if getattr(node.node.data, "scatter_mode", None) is not None:
                        self.accumulated.add(changed)
                elif isinstance(layout, ir.NonOwningLayout):
                    view = layout.view
                    offset = sympy.sympify(view.get_layout().offset)
                    self.aliases[node.node.get_name()] = view.get_name(), offset

    def place(self, name: str, index: sympy.Expr) -> tuple[str, sympy.Expr]:
        """Return the buffer that a name stands for, and an index in it."""
        name = self.graph.scheduler.mutation_real_name.get(name, name)
        while name in self.aliases:
            name, offset = self.aliases[name]
            index = index + offset
            name = self.graph.scheduler.mutation_real_name.get(name, name)
        return name, index

    def real(self, name: str) -> str:
        return self.place(name, sympy.S.Zero)[0]

    def reads(self, nodes: Iterable[Any]) -> set[str]:
        """Return the buffers that some nodes read."""
        return {self.real(read.name) for node in nodes for read in node.read_writes.reads}

    def writes(self, nodes: Iterable[Any]) -> dict[str, Any]:
        """Return the buffers that some nodes make, each with its node."""
        return {self.real(b.get_name()): node for node in nodes for b in node.get_outputs()}

    def hide(self, nodes: list[Any]) -> None:
        """Note the buffers that only some nodes of one kernel read: they are never written."""
        own = {node.get_name() for node in nodes}
        for node in nodes:
            for buffer in node.get_outputs():
                name = buffer.get_name()
                inside = buffer.users and all(user.node.get_name() in own for user in buffer.users)
                if inside and name not in self.aliases and name not in self.returned:
                    self.inner.add(name)

    # -- what kernels ask -------------------------------------------------------------------------

    def known(self, expression: sympy.Expr) -> sympy.Expr:
        return self.sizes.known(expression)

    def name_of(self, symbol: sympy.Symbol) -> str:
        return self.sizes.name_of(symbol)

    def is_inner(self, buffer: str) -> bool:
        return buffer in self.inner

    def word(self, buffer: str) -> str:
        """Return a buffer's variable."""
        if buffer in self.tensors:
            self.used.setdefault(buffer)
            return self.tensors[buffer].name
        if buffer not in self.words:
            self.words[buffer] = self.sizes.fresh(self._buffer_word(buffer))
        return self.words[buffer]

    def touch(self, loops: Loops) -> None:
        """Note the tensors that a kernel reads, and make those that it writes."""
        for value in loops.recorder.made.values():
            if value.op == "load" and value.name in self.tensors:
                self.used.setdefault(value.name)
        for store in loops.stores:
            if not self.is_inner(store.buffer):
                self.allocate(store.buffer)

    def _buffer_word(self, buffer: str) -> str:
        word = private.buffer_word(buffer)
        kind, at = private.reduction_of(buffer)
        if word or kind in _REDUCED:
            return identifier(word or _REDUCED[kind].split()[at])
        return identifier(private.buffer_function(buffer) or "values")

    def dtype(self, buffer: str) -> torch.dtype:
        """Return the type of what a buffer held as it was traced."""
        buffer = self.real(buffer)
        given = self.tensors.get(buffer)
        return given.dtype if given else private.buffer_dtype(buffer)

    def is_float_input(self, buffer: str) -> bool:
        """Whether a buffer may hold numbers of a shorter type than is computed in."""
        given, dtype = self.tensors.get(buffer), self.dtype(buffer)
        if dtype in (torch.float16, torch.bfloat16):
            return True
        follows = given is not None or buffer in self.returned
        return follows and self.types.any_float and dtype == torch.float32

    def scalar(self, expression: sympy.Expr) -> tuple[str, str]:
        """Return a word and the host's text for a number that kernels get as an argument."""
        e = self.known(expression)
        for known, variable in self.sizes.variables.items():
            if e.is_integer and equal(known, e):
                return variable, variable
        text = self.sizes.text(e)
        last = re.sub(r"\[\d+\]$", "", text).rpartition(".")[2]
        if e.is_Symbol or last.isidentifier():
            return identifier(last if last.isidentifier() else "number"), text
        for pattern, word in _NUMBERS.items():
            if found := re.fullmatch(pattern, text.strip("()")):
                return found.expand(word), text
        floating = bool(e.atoms(sympy.Float)) or not e.is_integer
        return ("scale" if floating else "number"), text

    def size(self, name: str, expression: sympy.Expr) -> str:
        """Return the host's text for a size: a name, or a number."""
        e = self.known(expression)
        whole = self.counts(e) if name == "n_elements" else None
        if e.is_number or (e.is_Symbol and not whole):
            return self.sizes.text(e)
        for known, variable in self.sizes.variables.items():
            if equal(known, e):
                return variable
        text = f"{whole}.numel()" if whole else self._text(e)
        variable = self.sizes.variables[e] = self.let(name, text)
        return variable

    def _text(self, expression: Any) -> str:
        """Return a size's text; what the host has worked out before is a variable."""
        e = self.known(expression)
        if sympy.count_ops(e) < _LONG_SIZE:
            return self.sizes.text(e)
        if e in self.sizes.variables:
            return self.sizes.variables[e]
        known = {size: sympy.Symbol(name) for size, name in self.sizes.variables.items()}
        self.sizes.names |= {symbol: symbol.name for symbol in known.values()}
        return self.sizes.text(in_terms_of(sympy.expand(e), known) if known else e)

    def hint(self, expression: sympy.Expr) -> int:
        """Return the size that an expression has in the file."""
        parts = sympy.Mul(*self.lead.parts) if self.lead else LEAD
        return private.hint(expression.subs(LEAD, parts))

    def is_own(self, expression: sympy.Expr) -> bool:
        """Whether a size is that of one of the module's own tensors, which nobody makes huge."""
        e = self.known(expression)
        return any(e in t.sizes for t in self.tensors.values() if not t.is_input)

    def counts(self, expression: sympy.Expr) -> str | None:
        """Return a tensor with as many elements, if there is one."""
        e = self.known(expression)
        for name, tensor in self.tensors.items():
            likely = tensor.is_input and tensor.sizes and name in self.used
            if likely and equal(product(tensor.sizes), e):
                return tensor.name
        for name in self.allocated:
            if equal(product(self.graph.try_get_buffer(name).get_size()), e):
                return self.word(name)
        return None

    # -- statements -------------------------------------------------------------------------------

    def say(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def let(self, word: str, text: str) -> str:
        """Give what a text stands for a variable, and return its name."""
        name = self.sizes.fresh(word)
        self.say(f"{name} = {text}")
        return name

    def say_short(self, count: str) -> None:
        """Have the host assert that 32 bits hold the numbers of so many elements."""
        if not count.isdigit():
            self.say(f'assert {count} < 2**31, "offsets have 32 bits"')

    @contextmanager
    def branch(self, head: str) -> Iterator[None]:
        """Indent the statements inside."""
        self.say(head)
        known = dict(self.sizes.variables)
        self.depth += 1
        yield
        self.depth -= 1
        self.sizes.taken -= {v for v in self.sizes.variables.values() if v not in known.values()}
        self.sizes.variables = known

    def allocate(self, buffer: str) -> None:
        """Make a buffer, unless it is there."""
        if buffer in self.allocated or buffer in self.tensors:
            return
        self.allocated[buffer] = None
        node = self.graph.try_get_buffer(buffer)
        size, stride = self._layout(node.get_size(), node.get_stride())
        dtype = self._dtype_text(buffer, node.get_dtype())
        tail = f"device={self.device()}, dtype={dtype}"
        name = self.word(buffer)
        if is_contiguous(size, stride):
            made = "zeros" if buffer in self.zeroed else "empty"
            self.say(f"{name} = torch.{made}({self.shape(size)}, {tail})")
        else:
            shape, strides = self._tuple(size, late=True), self._tuple(stride, late=True)
            zero = ".zero_()" if buffer in self.zeroed else ""
            self.say(f"{name} = torch.empty_strided({shape}, {strides}, {tail}){zero}")

    def _layout(self, size: Any, stride: Any) -> tuple[list[sympy.Expr], list[sympy.Expr]]:
        """Return known sizes and strides, with one dimension in place of those in front.

        Raises:
            Unprintable: those in front do not lie as one.
        """
        known = list(map(self.known, size)), list(map(self.known, stride))
        if self.lead is None:
            return known
        if not is_contiguous(*known):
            raise Unprintable("a rank")
        joined = self._sizes(size)
        return joined, contiguous_strides(joined)

    def operand(self, given: private.CallOperand) -> str:
        """Return the text for an operand of a call."""
        buffer, offset = self.place(given.buffer, given.offset)
        self.pointed.add(buffer)
        return self.view(buffer, given.sizes, given.strides, offset)

    def made(self, buffer: str, word: str) -> str:
        """Return the variable for a buffer that a call makes; without a name it has ``word``."""
        buffer = self.real(buffer)
        if buffer not in self.words:
            own = private.buffer_word(buffer)
            self.words[buffer] = self.sizes.fresh(identifier(own or f"{word}_out"))
        self.allocated[buffer] = None
        return self.words[buffer]

    def temporary(self, word: str, sizes: list[str], dtype: torch.dtype) -> str:
        """Make a tensor for partial results and return its variable."""
        made = f"torch.empty({tupled(sizes)}, device={self.device()}, dtype={dtype})"
        name = self.let(identifier(word), made)
        self.scratch[name] = name
        return name

    def copied(self, word: str, text: str) -> str:
        """Return the variable of a copy that kernels read; it is made once."""
        if text not in self.copies:
            name = self.let(word, text)
            self.copies[text] = self.scratch[name] = name
        return self.copies[text]

    def _dtype_text(self, buffer: str, dtype: torch.dtype) -> str:
        if buffer in self.returned - self.accumulated and dtype == torch.float32:
            for i, r in enumerate(self.results):
                is_number = isinstance(r, ir.ShapeAsConstantBuffer | ir.NoneAsConstantBuffer)
                if not is_number and self.real(r.get_name()) == buffer:
                    return self.types.text(i, self._type_text)
        return str(dtype)

    def _type_text(self, source: str) -> str:
        """Return the text for the type of an input or a parameter, by the graph's name for it."""
        return f"{self.word(source)}.dtype"

    def device(self) -> str:
        inputs = [n for n, t in self.tensors.items() if t.is_input and n in self.used]
        inputs += [n for n, t in self.tensors.items() if t.is_input]
        for name in [*inputs, *self.tensors]:
            return f"{self.word(name)}.device"
        raise Unprintable("no tensor says on which device it works")

    def shape(self, sizes: list[Any]) -> str:
        """Return a shape's text: an input's where it is the same."""
        known = self._sizes(sizes)
        for name, tensor in self.tensors.items():
            same = tensor.is_input and len(known) == len(tensor.sizes) and known
            if same and all(map(equal, known, tensor.sizes)) and name in self.used:
                return f"{tensor.name}.shape"
        return self._spliced(known) if LEAD in known else self._tuple(known, late=True)

    def _spliced(self, sizes: list[sympy.Expr]) -> str:
        """Return a shape's text, with the dimensions in front as the input has them."""
        owner = self._owner()
        if owner is None or LEAD not in sizes:
            return self._tuple(sizes)
        at, rank = sizes.index(LEAD), len(owner.sizes)
        pairs = zip(sizes[at:], owner.sizes, strict=False)
        shared = sum(1 for _ in itertools.takewhile(lambda pair: equal(*pair), pairs))
        front = f"{owner.name}.shape" + (f"[:{shared - rank}]" if shared < rank else "")
        rest = [list(map(self.sizes.text, part)) for part in (sizes[:at], sizes[at + shared :])]
        return f"({', '.join([*rest[0], f'*{front}', *rest[1]])})" if any(rest) else front

    def _tuple(self, sizes: list[Any], late: bool = False) -> str:
        """Return sizes' text; ``late`` ones may be variables behind the checks."""
        return tupled([(self._text if late else self.sizes.text)(size) for size in sizes])

    # -- kernels ----------------------------------------------------------------------------------

    def launch(self, kernel: Kernel) -> None:
        """Print a kernel and launch it."""
        body = kernel.body
        for buffer in body.pointers:
            self.allocate(buffer) if buffer not in self.scratch else None
            self.pointed.add(buffer)
        stem, doc = self._told(kernel)
        ending = f"_{kernel.part}_kernel".replace("__", "_")
        name = self.sizes.fresh(identifier(stem + ending))
        self.other_names[name] = self._other_name(kernel, stem, ending)
        written = {store.buffer for store in body.stores()}
        pointers = sorted(body.pointers, key=lambda b: (b in written, *self._place(b)))
        names = [body.pointers[b] for b in pointers]
        given = [self.scratch.get(b) or self.word(b) for b in pointers]
        arguments = [
            *names,
            *body.arguments,
            *(f"{block}: tl.constexpr" for block in kernel.blocks),
        ]
        values = [*given, *body.arguments.values()]
        values += [f"{block}={value}" for block, value in kernel.blocks.items() if value]
        values += [f"num_warps={kernel.warps}"] if kernel.warps else []
        values += ["enable_fp_fusion=False"] if body.rounds_products else []
        text = "\n".join(body.lines)
        tuned, grid = "", f"({', '.join(kernel.grid)},)"
        if kernel.tuned_by is not None:
            self.helpers.add(kernel.tiles)
            tuned = f"configs={kernel.tiles}, key={list(kernel.tuned_by)}"
            if kernel.pruned_by:
                self.helpers.add(kernel.pruned_by)
                tuned += f", prune_configs_by={{'early_config_prune': {kernel.pruned_by}}}"
            tuned = f"@triton.autotune({tuned})\n"
            grid = f"lambda meta: {grid}"
        text = f'({", ".join(arguments)}):\n    """{doc}"""\n{text}\n'
        self.kernels.append(f"{tuned}@triton.jit\ndef {name}{_unnumbered(text)}")
        self.helpers |= body.helpers
        for line in kernel.setup:
            self.say(line)
        if any(not re.search(r"^\d+$|cdiv|n_splits|n_phases", size) for size in kernel.grid[1:]):
            self.say(repr("# Only the first axis of a grid may have more than 65,535 programs."))
        self.say(f"grid = {grid}")
        if body.rounds_products:
            self.say(repr("# No FMA: x * scale - peak is to be zero where the peak was found."))
        with self.branch(kernel.loop) if kernel.loop else nullcontext():
            self.say(f"{name}[grid]({', '.join(values)})")
            if kernel.after:
                self.say(kernel.after)

    def _place(self, name: str) -> tuple[int, int]:
        """Return what sorts tensors as people do: inputs, what is made of them, parameters."""
        order = list(self.tensors)
        if name not in self.tensors:
            return 1, 0
        return 0 if self.tensors[name].is_input else 2, order.index(name)

    def _other_name(self, kernel: Kernel, stem: str, ending: str) -> str:
        """Return a kernel's name with the reference's word for what it makes, or ""."""
        for store in kernel.body.stores():
            word = private.assigned_word(store.buffer)
            if store.buffer in self.returned:
                word = re.sub(r"_\d+$", "", self.words.get(store.buffer, ""))
            if docstrings.tells(word) and word not in stem:
                is_alike = {*word.split("_")} & {*stem.split("_")}
                return identifier((word if is_alike else f"{word}_{stem}") + ending)
        return ""

    def _told(self, kernel: Kernel) -> tuple[str, str]:
        """Return what a kernel is called, and its docstring."""
        loops = kernel.body.loops
        own = _of_stage(kernel)
        nodes = private.in_order({origin for node in own for origin in private.own_origins(node)})
        if all(unconverted(store.value).op == "load" for store in kernel.body.stores()):
            nodes = [node for node in nodes if docstrings.moves(node)] or nodes
        pieces, verb = docstrings.pieces(nodes), operation(nodes)
        stem = docstrings.title(pieces, self.inputs, verb) or verb
        ends = docstrings.pieces(private.last_origins(own)) if kernel.stage else pieces[-1:]
        told = docstrings.parts(ends) or stem.replace("_", " ")
        later = self.accumulated | self.changed
        starts = [store for store in kernel.body.stores() if store.buffer in later]
        if starts and all(store.mode is None and store.value.op == "load" for store in starts):
            return "copy", docstrings.wrapped("Copy what later kernels change.", kernel.doc)
        if private.is_operand(loops.nodes) and all(map(_is_moved, kernel.body.stores())):
            stem, first = (
                f"{stem}_operand",
                f"Copy an operand of {stem} in the order it is read in.",
            )
        elif kernel.part.endswith("image"):
            copied = next(self.word(name) for name in kernel.body.pointers)
            zeros = " and with zeros around it" if kernel.part == "padded_image" else ""
            first = f"Copy {copied}, channels last{zeros}."
        elif kernel.part == "partial":
            first = f"First stage of {told}: partial results."
        elif kernel.part == "combine":
            scans = any(value.op == "scan" for value in loops.recorder.made.values())
            found = "what comes before each part" if scans else "partial results become one"
            first = f"Second stage of {told}: {found}."
        elif kernel.stage is not None:
            first = f"Last stage of {told}: what needs the results of the others."
        else:
            results: list[str] = []
            if self.is_alone and nodes:  # it computes all of the graph
                pieces = docstrings.pieces(list(nodes[0].graph.nodes))
                results = words_of(self.traced.task).results(self.traced.model)
            first = self.summary or docstrings.sentence(pieces, results if all(results) else [])
        return stem, docstrings.wrapped(first, kernel.doc)

    # -- all of it --------------------------------------------------------------------------------

    def finish(self) -> Program:
        """Return the program, now that all of its loops are printed."""
        flat = []
        for i, result in enumerate(self.results):
            if isinstance(result, ir.NoneAsConstantBuffer):
                flat.append("None")
            elif isinstance(result, ir.ShapeAsConstantBuffer):
                flat.append(self.sizes.text(result.expr))
            else:
                flat.append(self._view(result) + self._conversion(i, result))
        for path in reversed(self.traced.assigned):
            self.say(f"{attribute_path(path)} = {flat.pop()}")
        tree = pytree.tree_unflatten([_Text(text) for text in flat], self.traced.form)
        self.say(f"return {structure(tree)}")
        self.head = self._head()
        return self

    def _conversion(self, i: int, result: Any) -> str:
        """Return what turns an input, or what was added up, into the result's type."""
        name = self.real(result.get_name())
        given = self.tensors.get(name)
        if given is None and name not in self.accumulated:
            return ""
        if result.get_dtype() != torch.float32 or not self.types.any_float:
            return ""
        text = self.types.text(i, self._type_text)
        own = f"{given.name}.dtype" if given else "torch.float32"
        return "" if text == own else f".to({text})"

    def _view(self, result: Any) -> str:
        """Return a result's text: a buffer, or a view of it."""
        name, offset = self.place(result.get_name(), sympy.S.Zero)
        layout = result.get_layout()
        size, stride = self._layout(layout.size, layout.stride)
        inner = result
        while isinstance(inner, ir.MutableBox):
            inner = inner.data
        if isinstance(inner, ir.ReinterpretView):
            offset += layout.offset
        self.pointed.add(name)
        return self.view(name, size, stride, offset)

    def view(
        self, name: str, size: list[sympy.Expr], stride: list[sympy.Expr], offset: sympy.Expr
    ) -> str:
        """Return the text for some of a buffer's elements."""
        size, stride, offset = self._sizes(size), list(map(self.known, stride)), self.known(offset)
        if name in self.tensors:
            own = list(map(self.known, self.tensors[name].sizes))
            strides = contiguous_strides(own)
        else:
            self.allocate(name)
            made = self.graph.try_get_buffer(name)
            own, strides = self._layout(made.get_size(), made.get_stride())
        base = self.word(name)
        if offset == 0 and _same(size, own) and all(map(equal, stride, strides)):
            return base
        in_order = is_contiguous(size, stride) and is_contiguous(own, strides)
        if offset == 0 and in_order and equal(product(size), product(own)):
            return f"{base}.view({self.shape(size)})"
        if self.lead:
            raise Unprintable("a rank")
        found = view_text(base, Elements(size, stride, offset), own, strides, self.sizes.text)
        if found is not None:
            return found
        at = "" if offset == 0 else f", {self.sizes.text(offset)}"
        return f"torch.as_strided({base}, {self._tuple(size)}, {self._tuple(stride)}{at})"

    def _head(self) -> list[str]:
        """Return the statements that read sizes and check what the kernels take for granted."""
        tensors = [self.tensors[name] for name in sorted(self.used, key=self._place)]
        for tensor in tensors:
            tensor.sizes = list(map(self.known, tensor.sizes))
        guards, shapes = self._guards(), self._shape_checks(tensors)
        guards += [*self._attribute_checks(), *self._dropout_checks()]
        by_name = {t.name: t for t in self.tensors.values()}
        read: dict[str, list[tuple[int, str]]] = {}
        derived: list[str] = []
        for name, fact in self.sizes.defined.values():
            if fact.tensor is None:
                derived.append(f"{name} = {fact.text}")
            else:
                read.setdefault(fact.tensor, []).append((fact.dim, name))
        present = list(dict.fromkeys([*(t.name for t in tensors), *read]))
        lines = [f"{n} = {by_name[n].text}" for n in present if by_name[n].text != n]
        reads = [
            f"{', '.join(n for _, n in sorted(found))} = {self._dims(by_name[owner], found)}"
            for owner, found in read.items()
        ]
        ranks = self._rank_checks([by_name[n] for n in present], read, [*reads, *derived, *shapes])
        pointed = {self.tensors[name].name for name in self.pointed & self.tensors.keys()}
        loose = [t.name for t in tensors if not t.dense and t.name in pointed]
        dense = [f"{name} = {name}.contiguous()" for name in loose]
        rest = [*derived, *shapes, *guards, *dense]
        told = self._name_numbers(rest)
        return [*lines, *self.types.checks(tensors), *ranks, *reads, *told, *rest]

    def _name_numbers(self, rest: list[str]) -> list[str]:
        """Return what gives a variable to each number of the module's parts that is read twice.

        All that was said has the variables then, and so has ``rest``, which follows.
        """
        told = []
        parts = {
            f.text: f for f in self.sizes.facts if not f.tensor and OF_A_PART.fullmatch(f.text)
        }
        for text, fact in parts.items():
            own = re.compile(rf"(?<![\w.]){re.escape(text)}(?![\w.\[])")
            if sum(len(own.findall(line)) for line in [*rest, *self.lines]) < 2:
                continue
            *_, part, last = text.split(".")
            word = self.sizes.argument(fact.expression) or identifier(last)
            if word in self.sizes.taken and part != "self":
                word = f"{re.sub(r'[[].*', '', part)}_{word}"
            name = self.sizes.fresh(word)
            told.append(f"{name} = {text}")
            rest[:] = [own.sub(name, line) for line in rest]
            self.lines = [own.sub(name, line) for line in self.lines]
            self._drop_other_names(name)
        return told

    def _drop_other_names(self, name: str) -> None:
        """Have no variable that is only another variable."""
        for line in [line for line in self.lines if re.fullmatch(rf"\w+ = {name}", line)]:
            other = line.split()[0]
            if sum(bool(re.match(rf"\s*{other} = ", line)) for line in self.lines) == 1:
                self.lines.remove(line)
                self.lines = [re.sub(rf"\b{other}\b", name, line) for line in self.lines]

    def _dims(self, tensor: Tensor, found: list[tuple[int, str]]) -> str:
        """Return what gives some dimensions of a tensor, in order."""
        dims, rank = sorted(dim for dim, _ in found), len(tensor.sizes)
        shape = f"{tensor.name}.shape"
        if len(dims) == 1:
            return f"{shape}[{dims[0]}]"
        if dims == list(range(rank)):
            return shape
        if dims in (list(range(-len(dims), 0)), list(range(dims[0], rank))):
            return f"{shape}[{dims[0]}:]"
        return ", ".join(f"{shape}[{dim}]" for dim in dims)

    def _rank_checks(
        self, tensors: list[Tensor], read: Iterable[str], head: list[str]
    ) -> list[str]:
        """Return assertions about the ranks of inputs whose sizes are read or named."""
        named = names_dims(self.traced)
        text = "\n".join([*head, *self.lines])
        lines = []
        for tensor in tensors:
            name, rank = tensor.name, len(tensor.sizes)
            if tensor.leads:
                least = max(map(int, re.findall(rf"\b{name}\.shape\[:?-(\d+)", text)), default=0)
                others = [other for other in tensors if not other.leads and other.sizes]
                broadcast = [len(other.sizes) for other in others if other.sizes[0] == 1]
                least = max([least, *broadcast])  # with fewer it is the input that is broadcast
                if least:
                    lines.append(f"assert {name}.dim() >= {least}, '{name} has too few dimensions'")
            elif tensor.is_input and rank and (named or name in read):
                self.has_rank = True
                if name in read or f"assert {name}.shape" not in text:
                    lines.append(f"assert {name}.dim() == {rank}, '{name} must have rank {rank}'")
        return lines

    def _shape_checks(self, tensors: list[Tensor]) -> list[str]:
        """Return assertions about shapes that are not free."""
        lines: list[str] = []
        seen: list[Tensor] = []
        for tensor in tensors:
            name, sizes = tensor.name, tensor.sizes
            twin = next((s for s in seen if _same(s.sizes, sizes)), None)
            if twin is not None:
                lines.append(f"assert {name}.shape == {twin.name}.shape")
            elif not sizes:
                lines.append(f"assert {name}.dim() == 0")
            elif not self._is_free(tensor):
                self.has_rank |= tensor.is_input and not tensor.leads
                if tensor is self._owner() and len(sizes) == 2:
                    lines.append(f"assert {name}.shape[-1] == {self.sizes.text(sizes[1])}")
                elif tensor is self._owner():
                    lines.append(
                        f"assert {name}.shape[{1 - len(sizes)}:] == {self._tuple(sizes[1:])}"
                    )
                else:
                    lines.append(f"assert {name}.shape == {self._spliced(sizes)}")
            if tensor.is_input and sizes:
                seen.append(tensor)
        return lines

    def _is_free(self, tensor: Tensor) -> bool:
        """Whether any sizes of a tensor are right."""
        symbols = [size for size in tensor.sizes if size.is_Symbol]
        if len(symbols) < len(tensor.sizes) or len(set(symbols)) < len(symbols):
            return False
        if tensor.leads and tensor is not self._owner():
            return False
        for dim, symbol in enumerate(symbols):
            if tensor.leads and not dim:
                continue
            if symbol in self.sizes.defined:
                fact = self.sizes.defined[symbol][1]
                at = dim - len(symbols) if tensor.leads else dim
                if (fact.tensor, fact.dim) != (tensor.name, at):
                    return False
            elif symbol in self.sizes.names:
                return False
            elif self._shared(symbol, tensor):
                self.sizes.name_of(symbol)
                return self._is_free(tensor)
        return True

    def _shared(self, symbol: sympy.Symbol, tensor: Tensor) -> bool:
        """Whether another tensor that is used, or the constructor, has a size as well."""
        others = (self.tensors[name] for name in self.used)
        return any(
            symbol in size.free_symbols
            for other in others
            if other is not tensor and not _same(other.sizes, tensor.sizes)
            for size in other.sizes
        )

    def _guards(self) -> list[str]:
        """Return assertions for what tracing and lowering took for granted."""
        self.sizes.may_keep = False  # what only guards need, the constructor has seen to
        sizes = {s for t in self.tensors.values() for e in t.sizes for s in e.free_symbols}
        sizes |= set(self.lead.parts) if self.lead else set()
        values = [v for v in self.traced.arguments.values() if isinstance(v, Symbolic)]
        free = sizes.difference(*(self.traced.expression(v).free_symbols for v in values))
        found = guards.of_trace(self.traced, self.known, sizes, free, self.lead)
        found += [tie for tie in self.sizes.ties() if tie != sympy.true]
        told = [guard for guard in found if self.sizes.tells(guard)]
        self.promised = self._of_arguments([guard for guard in found if guard not in told], free)
        return [f"assert {self.sizes.text(guard)}" for guard in guards.needed(told, free)]

    def _of_arguments(self, untold: list[Any], free: set[sympy.Symbol]) -> list[str]:
        """Return what guards ask of the constructor's arguments that no attribute tells."""
        names = {
            e: name
            for name, value in self.traced.arguments.items()
            if isinstance(value, Symbolic) and (e := self.traced.expression(value)).is_Symbol
        }
        guards_left = guards.needed((g for g in untold if g.free_symbols <= names.keys()), free)
        supposed = [names[e] + asked for e, asked in self.traced.supposed.items() if e in names]
        return [
            *(ast.unparse(ast.parse(Printer(names).text(guard))) for guard in guards_left),
            *supposed,
        ]

    def _dropout_checks(self) -> list[str]:
        """Return assertions that nothing is dropped whose share is an argument."""
        if not inspect.isclass(self.traced.task.Model):  # a part of the program
            return []
        fixed = [v for name, v in self.traced.arguments.items() if name not in self.traced.idle]
        known = {v.node._expr for v in fixed if isinstance(v, Symbolic)}
        shares: dict[sympy.Expr, str] = {}
        for path, module in self.traced.model.named_modules():
            share = getattr(module, "p", None) if isinstance(module, DROPPING) else None
            if isinstance(share, Symbolic) and share.node._expr not in known:
                shares.setdefault(share.node._expr, f"{attribute_path(path)}.p")
        told = " == ".join([*shares.values(), "0"])
        check = f"assert not self.training or {told}, 'dropout is not supported'"
        return [check] if shares else []

    def _attribute_checks(self) -> list[str]:
        """Return assertions that inputs have sizes which the module keeps as numbers.

        A branch of forward may have made them equal, as of a window that is all of an image. Where
        one of the module's tensors has the size as well, its shape is checked.
        """
        lines: dict[str, str] = {}
        for fact in self.sizes.facts:
            of_input = self.sizes.defined.get(fact.expression)
            kept = fact.text.startswith("self.")
            if not kept or of_input is None or self.is_own(fact.expression):
                continue
            name, read = of_input
            if read.tensor is not None:
                lines.setdefault(name, f"assert {name} == {fact.text}")
        return list(lines.values())


_NUMBERS = {r"(?:self\.)?(\w+) - 1": r"last_\1", r"(?:self\.)?(\w+) // 2": r"half_\1"}
_NUMBERS |= {r"(?:self\.)?(\w+) \* (\d+)": r"\1_times_\2"}
"""What kernels call numbers, by the host's texts for them."""

DROPPING = torch.nn.modules.dropout._DropoutNd

_LONG_SIZE = 4
"""Operations in a size from which on it is not written twice."""


def names_dims(traced: Traced) -> bool:
    """Whether a module names dimensions or asks for the rank: with another it may do otherwise."""
    if re.search(r"\.(ndim\b|dim\(\))", traced.source):
        return True
    for node in traced.graph.graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload):
            names = [argument.name for argument in node.target._schema.arguments]
            given = dict(zip(names, node.args, strict=False)) | node.kwargs
            if any(given.get(name) not in (None, []) for name in ("dim", "dims")):
                return True
    return False


def _of_stage(kernel: Kernel) -> list[Any]:
    """Return the scheduler's nodes whose results a kernel finds: of several stages, its own."""
    loops, stage = kernel.body.loops, kernel.stage
    if stage is None:
        return loops.nodes
    found = []
    for node in loops.nodes:
        names = [made.get_name() for made in node.get_outputs()]
        values = [unconverted(loops.stored[name][1]) for name in names if name in loops.stored]
        values = [value.args[0] if value.op == "part" else value for value in values]
        later = not any(value.op in ("reduce", "scan") for value in values)
        if any(value in stage for value in values) if stage else later:
            found.append(node)
    return found or loops.nodes


def _is_moved(store: StoredValue) -> bool:
    """Whether a result is numbers of a tensor, in another order."""
    value = unconverted(store.value)
    is_load = value.op == "load" and not value.args
    return is_load and not sympy.sympify(value.index).atoms(sympy.Function)


def _unnumbered(kernel: str) -> str:
    """Return a kernel with names that fit each layer: ``weight``, not ``weight_2``."""
    names = re.findall(r"\w+_ptr", kernel.partition(")")[0])
    short = [re.sub(r"(_l\d+(_reverse)?|_\d+)_ptr$", "_ptr", name) for name in names]
    own = {name: s for name, s in zip(names, short, strict=True) if short.count(s) == 1}
    own |= {n[:-4]: s[:-4] for n, s in own.items() if re.search(r"_l\d", n)}  # what is loaded
    return re.sub(r"\w+", lambda found: own.get(found[0], found[0]), kernel)


class _Text(str):
    """An expression's text, as a leaf of a result."""


def tupled(texts: list[str]) -> str:
    """Return the text of a tuple of things with these texts."""
    return f"({', '.join(texts)}{',' * (len(texts) == 1)})"


def structure(tree: Any) -> str:
    """Return the text of a result's structure."""
    if isinstance(tree, _Text):
        return str(tree)
    if isinstance(tree, dict) and all(isinstance(key, str) for key in tree):
        return "{" + ", ".join(f"{key!r}: {structure(v)}" for key, v in tree.items()) + "}"
    if type(tree) is list:
        return "[" + ", ".join(map(structure, tree)) + "]"
    if isinstance(tree, tuple):  # one with names too, as torch.max returns it
        return tupled(list(map(structure, tree)))
    raise Unprintable(f"a result of type {type(tree).__name__}")


def _same(a: list[sympy.Expr], b: list[sympy.Expr]) -> bool:
    return len(a) == len(b) and all(map(equal, a, b))
