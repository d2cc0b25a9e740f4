"""From a reference to a program: trace, lower, print."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import torch
import triton

from curate.generator import library
from curate.generator import torch_private as private
from curate.generator.absent_gpu import absent_gpu
from curate.generator.loops import Loops
from curate.generator.operators.parts import (
    PART,
    Arguments,
    Join,
    Parts,
    RepeatedPart,
    tensors_of,
)
from curate.generator.program import DROPPING, Program
from curate.generator.promises import ranks, result_types
from curate.generator.schedules import attention_loops
from curate.generator.schedules.products import Product
from curate.generator.text.alike import unite
from curate.generator.text.check import check
from curate.generator.text.container import (
    Container,
    check_lines,
    slice_reference,
    with_checks,
    without_modules,
)
from curate.generator.text.expressions import unused
from curate.generator.text.layout import body as print_body
from curate.generator.text.operations import HELPERS
from curate.generator.text.tidy import (
    printed,
    said_once,
    tidy,
    without_unread,
    without_unread_sizes,
)
from curate.generator.trace import (
    Symbolic,
    Traced,
    differs_in_training,
    find_parts,
    trace,
    trace_part,
)
from curate.generator.unprintable import Unprintable
from curate.problem import problem

T = TypeVar("T")


@dataclass(frozen=True)
class Printed:
    """A program and what is known of it.

    Attributes:
        text: the Python file.
        kernels: number of Triton kernels.
        operators: the ATen operators of the reference's graph.
        dynamic_dims: sizes read from the inputs.
        specialised: arguments that it is written for, and checks, as ``name=value``.
        any_float: whether it takes floating inputs of any type up to float32.
        tools: what made it.
    """

    text: str
    kernels: int
    operators: list[str]
    dynamic_dims: int
    specialised: list[str]
    any_float: bool
    tools: list[str]


def generate(reference: str, entry_point: str = "Model", variant: int = 0) -> Printed:
    """Return the program for a file in KernelBench's form.

    Args:
        reference: the file.
        entry_point: its module's name.
        variant: 0 for the best schedule of each kernel, 1 for the one that comes next: the same
            loops, as another person might have written them.

    Raises:
        Unprintable: the generator has no way to print it; the message says why.
    """
    private.forbid_tf32()
    try:
        task = problem.load(problem.REFERENCE, reference)
        container = slice_reference(reference, entry_point)
    except problem.ProgramError as error:
        raise Unprintable(str(error)[:200]) from error
    with absent_gpu(), warnings.catch_warnings(action="ignore"):
        functions = _Functions(task, variant)
        parts = find_parts(task, functions.part)
        try:
            traced = trace(task, parts=parts)
        except Unprintable:
            if not parts.calls:
                raise
            parts = Parts()
            traced = trace(task)
        operators = sorted({*_operators(traced), *(o for p in parts.all for o in p.operators)})
        printing = _Printing(container, variant, functions.taken if parts.calls else set())

        def printed(graph: Any) -> tuple[Program, Program | None]:
            fixed = printing.print(traced, graph)
            may_vary = fixed.has_rank and not parts.calls
            return fixed, printing.free(traced, graph) if may_vary else None

        try:
            with parts.known():
                written, free = printing.lower(traced, printed)
        except Exception as error:  # Inductor's: it may raise anything
            inner = getattr(error, "inner_exception", error)
            if isinstance(inner, Unprintable):
                raise Unprintable(str(inner)) from inner
            lines = str(error).strip().splitlines() or [""]
            raise Unprintable(f"not lowered: {type(error).__name__}: {lines[0][:160]}") from error
        if 0 < variant >= written.variants:
            raise Unprintable("only one schedule")
        if free is not None and printing.takes_any_rank(traced, free):
            written = free
    called = _merge(parts, written)
    if not written.kernels:
        raise Unprintable("no kernels")
    fixed = _fixed(traced)
    expected = _expected(traced, container)
    if idle := _idle(traced.model, "\n".join([*written.head, *written.lines, *called])):
        shorter = without_modules(reference, entry_point, idle)
        container = slice_reference(shorter, entry_point)
    if not [*traced.model.parameters(), *traced.model.buffers()]:
        container = replace(container, class_text=_CONVERSION.sub("", container.class_text))
    kinds = _kinds(traced)
    text = _assemble(container, written, fixed, [*kinds, *written.promised], expected, called)
    check(text)
    specialised = [f"{name}={value!r}" for name, value in fixed.items()]
    specialised += [*kinds, *written.promised]
    specialised += [f"{name}={value}" for name, value in expected.items()]
    tools = [f"torch {torch.__version__}", f"triton {triton.__version__}"]
    return Printed(
        text=text,
        kernels=len(written.kernels),
        operators=operators,
        dynamic_dims=len(written.sizes.defined),
        specialised=specialised,
        any_float=printing.types.any_float,
        tools=tools,
    )


_CONVERSION = re.compile(r"\n +self\.to\(torch\.\w+\)$", re.MULTILINE)
"""Where a constructor gives its tensors a type."""

_NO_LOOPS = re.compile(r"aten\.(_sdpa|_scaled_dot)")


def _operators(traced: Traced) -> list[str]:
    """Return a graph's operators, and refuse those that have no loops."""
    found, original = set(), set()
    for node in traced.graph.graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload):
            if node.target is PART:
                continue
            found.add(str(node.target))
            original.add(str(node.meta.get("original_aten", node.target)))
            if torch.Tag.nondeterministic_seeded in node.target.tags:
                raise Unprintable("random numbers")
    for name in sorted(found):
        if _NO_LOOPS.match(name):
            raise Unprintable(f"the operator {name}")
    return sorted(original)


@dataclass
class _Functions:
    """Prints functions for what a network repeats.

    Attributes:
        task: the network's file.
        variant: which schedules are printed.
        taken: names of functions and their kernels.
    """

    task: Any
    variant: int
    taken: set[str] = field(default_factory=set)

    def part(self, form: Any, path: str, module: Any, arguments: Arguments) -> RepeatedPart:
        """Return the function for a module, printed."""
        names = arguments.names
        traced = trace_part(self.task, module, arguments)
        operators = _operators(traced)
        made: Any = traced.graph.graph.output_node().args[0]
        results: list[Any] = [getattr(node, "meta", {}).get("val") for node in made]
        if not results or not all(isinstance(value, torch.Tensor) for value in results):
            raise Unprintable("a part that returns other than tensors")
        shapes = [(list(x.shape), list(x.stride()), x.dtype) for x in results]
        printing = _Printing(Container([], [], "", "", names, "", {}), self.variant, self.taken)
        written = printing.lower(traced, partial(printing.print, traced))
        if not written.kernels:
            raise Unprintable("no kernels")
        name = self._name(path, module)
        self.taken |= {name, *map(_kernel_name, written.kernels)}
        known = traced.expression
        held = tensors_of(traced.model)
        return RepeatedPart(
            form=form,
            names=names,
            inputs=[list(map(known, leaf.shape)) for leaf in traced.leaves],
            held={path: list(map(known, x.shape)) for path, x in held.items()},
            outputs=[(list(map(known, a)), list(map(known, b)), c) for a, b, c in shapes],
            result=traced.form,
            guards=list(dict.fromkeys(traced.env.replace(g.expr) for g in traced.env.guards)),
            types=printing.types,
            evaluate=private.recompute,
            operators=operators,
            written=written,
            name=name,
            text=_function(name, module, names, written),
            typed=next((path for path, x in held.items() if x.is_floating_point()), ""),
        )

    def _name(self, path: str, module: Any) -> str:
        """Return a name for a module's function."""
        word = type(module).__name__
        if type(module).__module__.startswith("torch.nn.modules.container"):
            word = next((p for p in reversed(path.split(".")) if not p.isdigit()), "") + "_block"
        word = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", word).lower()
        return unused(word, self.taken | set(vars(self.task)))


def _merge(parts: Parts, written: Program) -> list[str]:
    """Add what functions need to a program, tidy its kernels, of which no two are alike."""
    functions = [part.text for part in parts.all]
    of_parts = [kernel for part in parts.all for kernel in part.written.kernels]
    for part in parts.all:
        written.helpers |= part.written.helpers
        written.variants = max(written.variants, part.written.variants)
    taken = written.sizes.taken.union(*(part.written.sizes.taken for part in parts.all))
    tidied = list(map(tidy, written.kernels))
    drop = {kernel.name: gone for kernel in tidied if (gone := without_unread(kernel))}
    others = {k: v for part in parts.all for k, v in part.written.other_names.items()}
    others |= written.other_names
    kernels, names = unite([*map(tidy, of_parts), *tidied], taken, others)
    written.kernels = list(map(printed, kernels))

    def called(text: str) -> str:
        for name, gone in drop.items():
            text = _without_arguments(text, name, gone)
        return re.sub(r"\b\w+(?=\[grid\])", lambda found: names.get(found[0], found[0]), text)

    written.lines = list(map(called, written.lines))
    return list(map(called, functions))


def _without_arguments(text: str, kernel: str, gone: set[int]) -> str:
    """Return host statements whose launches of a kernel have no arguments at some places."""

    def shorter(launch: re.Match[str]) -> str:
        call = ast.parse(launch[2], mode="eval").body
        assert isinstance(call, ast.Call)
        call.args = [one for at, one in enumerate(call.args) if at not in gone]
        return launch[1] + ast.unparse(call)

    return re.sub(rf"^( *)({kernel}\[grid\]\(.*\))$", shorter, text, flags=re.MULTILINE)


def _kernel_name(kernel: str) -> str:
    return kernel.partition("\ndef ")[2].partition("(")[0]


def _function(name: str, module: Any, names: list[str], written: Program) -> str:
    """Return the text of the function for a module."""
    body = "\n".join([*written.head, *written.lines])
    own = next(w for w in ("block", "layer", "module") if not re.search(rf"\b{w}\b", body))
    body = re.sub(r"\bself\b", own, body)
    lines = print_body(said_once(ast.parse(body).body), 4)
    head = f"def {name}({', '.join([own, *names])}):"
    kind = type(module).__name__
    doc = f"What a {kind} of this form does."
    if isinstance(module, Join):
        doc = f"Join two tensors along dimension {module.dim}."
        head = head.replace(f"{own}, ", "")
    return "\n".join([head, f'    """{doc}"""', *lines])


@dataclass
class _Printing:
    """Prints the loops of graphs.

    Attributes:
        container: what the program keeps of the reference.
        variant: which schedules are printed.
        taken: names of functions and their kernels.
        types: what is known of the types of results, once a graph is lowered.
    """

    container: Container
    variant: int
    taken: set[str] = field(default_factory=set)
    types: result_types.ResultTypes = field(init=False)

    def lower(self, traced: Traced, then: Callable[[Any], T]) -> T:
        """Return what is made of a graph's loops."""

        def typed(graph: Any) -> T:
            self.types = result_types.find(traced, graph.graph_input_names)
            return then(graph)

        return private.lower(traced.graph, traced.mode, typed, self.variant == 0)

    def free(self, traced: Traced, graph: Any) -> Program | None:
        """Print a graph's loops for inputs of any rank, if they can be."""
        lead = ranks.find(traced)
        try:
            return self.print(traced, graph, lead) if lead else None
        except Unprintable:
            return None

    def takes_any_rank(self, traced: Traced, free: Program) -> bool:
        """Whether the same program is printed for inputs with one more dimension."""
        assert free.lead is not None
        try:
            other = trace(traced.task, free.lead.leaves)
            lead = ranks.longer(other, free.lead)
            if lead is None:
                return False
            then = partial(self.print, other, lead=lead)
            written = private.lower(other.graph, other.mode, then, self.variant == 0)
            return _form(free) == _form(written)
        except Exception:  # the module's own code: it may refuse
            return False

    def print(self, traced: Traced, graph: Any, lead: ranks.Lead | None = None) -> Program:
        """Print a graph's loops; runs where Inductor would write its own code."""
        own = self.container
        program = Program(traced, graph, own.inputs, self.types, lead, self.variant)
        program.sizes.taken |= self.taken
        groups = [
            n for n in graph.scheduler.nodes if not isinstance(n, private.NopKernelSchedulerNode)
        ]
        groups = groups if lead else library.fuse(program, attention_loops.fuse(program, groups))
        kernels: list[Loops] = []
        while groups:
            group = groups.pop(0)
            if isinstance(group, private.ExternKernelSchedulerNode | library.Joined):
                if lead:
                    raise Unprintable("a rank")
                loops: Loops = library.take(program, group, groups)
            elif isinstance(group, private.LOOPS):
                loops = Loops(program, group)
                loops.merge()
                while groups and loops.absorb(groups[0]):
                    groups.pop(0)
            else:
                raise Unprintable(f"a {type(group).__name__}")
            gone = program.known(loops.extent(loops.reduced))
            if lead and loops.kept and ranks.LEAD in gone.free_symbols:
                raise Unprintable("a rank")
            program.hide(loops.nodes)
            kernels.append(loops)
        program.is_alone = len(kernels) == 1
        program.has_one_product = sum(isinstance(loops, Product) for loops in kernels) == 1
        program.summary = own.summary if program.is_alone else ""
        for loops in kernels:
            library.schedule(loops, program)
        return program.finish()


def _form(written: Program) -> list[str]:
    """Return a program's kernels and statements without the words that hang on its graph."""
    forms = ["\n".join([*written.head, *written.lines])]
    for i, kernel in enumerate(written.kernels):
        name = _kernel_name(kernel)
        forms[0] = forms[0].replace(f"{name}[", f"kernel_{i}[")
        code = re.sub(r'""".*?"""', "", kernel, flags=re.DOTALL).replace(name, "kernel")
        for j, own in enumerate(dict.fromkeys(re.findall(r"(?m)^ +(\w+) \W?= ", code))):
            code = re.sub(rf"\b{own}\b", f"v{j}", code)
        forms.append(code)
    return forms


# A little of everything common: what is imported and cached on first use is then in the parent.
_WARM_UP = """
import torch

class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, x):
        y = torch.softmax(self.norm(x).transpose(1, 2), 1)
        return y, torch.cat([x, x[:, :1]], 1).mean(), x[0] @ y[0]

def get_inputs():
    return [torch.randn(2, 4, 16)]

def get_init_inputs():
    return [16]
"""


def warm() -> None:
    """Print one program, so that children forked from here find everything imported."""
    generate(_WARM_UP)


# --- what the program takes for granted -----------------------------------------------------------


def _fixed(traced: Traced) -> dict[str, Any]:
    """Return the constructor's arguments that the program is written for, with their values."""
    found = {}
    for name, value in traced.arguments.items():
        if name in traced.idle:
            continue
        if isinstance(value, Symbolic):
            e = traced.expression(value)
            if e.is_number:
                plain = int(e) if isinstance(value, torch.SymInt) else float(e)
                found[name] = plain
        elif _is_literal(value):
            found[name] = value
    return found


def _kinds(traced: Traced) -> list[str]:
    """Return which classes and functions the constructor is given, as conditions.

    Those of PyTorch have names, and others are known as the constructor's own defaults.
    """
    spaces = {"nn": torch.nn, "F": torch.nn.functional, "torch": torch}
    spec = inspect.getfullargspec(traced.task.Model.__init__)
    defaults = spec.defaults or ()
    own = {name: at for at, name in enumerate(spec.args[len(spec.args) - len(defaults) :])}
    found = []
    for name, value in traced.arguments.items():
        if name in traced.idle or not (inspect.isclass(value) or inspect.isroutine(value)):
            continue
        word = getattr(value, "__name__", "")
        space = [w for w, s in spaces.items() if getattr(s, word, None) is value]
        if space:
            found.append(f"{name} is {space[0]}.{word}")
        elif name in own and defaults[own[name]] is value:
            found.append(f"{name} is ModelNew.__init__.__defaults__[{own[name]}]")
    return found


def _is_literal(value: Any) -> bool:
    try:
        return len(repr(value)) <= 80 and bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError):
        return False


def _expected(traced: Traced, container: Container) -> dict[str, str]:
    """Return the values of ``forward``'s arguments that the program takes for granted."""
    given = container.inputs[: len(traced.inputs)]
    known = {name: text for name, text in container.optional.items() if name not in given}
    for name, value in zip(given, traced.inputs, strict=False):
        if value is None or isinstance(value, bool | str):
            known[name] = repr(value)
    leaves = iter(traced.leaves)
    for name, value in zip(given, traced.inputs, strict=False):
        if type(value) in (int, float):
            leaf = next((x for x in leaves if not isinstance(x, torch.Tensor)), None)
            e = traced.expression(leaf)
            if e.is_number:
                known[name] = repr(value)
    if _depends_on_mode(traced):
        known["self.training"] = "False"
    return known


def _depends_on_mode(traced: Traced) -> bool:
    """Whether a module does something else in training."""
    says = "self.training" in traced.source
    for module in traced.model.modules():
        if isinstance(module, torch.nn.modules.batchnorm._NormBase) and module.track_running_stats:
            return True
        share = getattr(module, "p", 0) if isinstance(module, DROPPING) else 0
        says |= (share.node.hint if isinstance(share, Symbolic) else share) > 0
    return says and differs_in_training(traced)


def _idle(model: torch.nn.Module, text: str) -> set[str]:
    """Return the modules of a model that hold nothing, and that a program's text does not read."""
    return {
        name
        for name, module in model.named_children()
        if not [*module.parameters(), *module.buffers()]
        and not re.search(rf"\bself\.{name}\b", text)
    }


# --- the file ------------------------------------------------------------------------------------


_WIDE = re.compile(
    r"^( +)(outer|(?:a_)?rows?|(?:b_)?cols|offsets) = .*\.to\(tl\.int64\)", re.MULTILINE
)
"""Where a kernel says which elements a program has, in 64 bits."""


def _assemble(
    container: Container,
    written: Program,
    fixed: dict[str, Any],
    promised: list[str],
    expected: dict[str, str],
    functions: list[str],
) -> str:
    class_text = with_checks(container.class_text, fixed, promised, written.sizes.kept)
    container = replace(container, class_text=class_text)
    lines = container.forward.splitlines()
    if expected:
        lines += check_lines(expected, 8)
    body = "\n".join([*written.head, *written.lines])
    for name in {"max", "min"} & set(container.inputs):
        body = re.sub(rf"(?<![.\w]){name}\(", f"builtins.{name}(", body)
    lines += print_body(without_unread_sizes(said_once(ast.parse(body).body)), 8)
    helpers = [HELPERS[name].strip() for name in sorted(written.helpers)]
    kernels = "\n\n\n".join(written.kernels)
    kernels = _WIDE.sub(r"\1# 64 bits: an offset may pass 2**31.\n\g<0>", kernels, count=1)
    parts = [*container.preamble, *helpers, kernels, *functions]
    forward = "\n".join(lines)
    parts.append(f"{container.class_text}\n\n{forward}".replace("\n    pass\n\n", "\n"))
    text = "\n\n\n".join(parts)
    return f"{imports(container.imports, text)}\n\n\n{text}\n"


def imports(given: list[str], text: str) -> str:
    """Return the import statements of a file: those given, and what its text needs."""
    lines = {*given, "import triton", "import triton.language as tl"}
    code = re.sub(r'""".*?"""|#[^\n]*', "", text, flags=re.DOTALL)
    wanted = {
        r"\btorch\.": "import torch",
        r"(?<![.\w])nn\.": "import torch.nn as nn",
        r"(?<![.\w])F\.": "import torch.nn.functional as F",
        r"(?<![.\w])math\.": "import math",
        r"(?<![.\w])builtins\.": "import builtins",
        r"(?<![.\w])functools\.": "import functools",
        r"(?<![.\w])libdevice\.": "from triton.language.extra import libdevice",
    }
    for pattern, line in wanted.items():
        name = line.split()[-1].rpartition(".")[2]
        if re.search(pattern, code):
            lines.add(line)
        elif not re.search(rf"(?<![.\w]){name}\b", code):
            lines.discard(line)
    if "from torch import nn" in lines:
        lines.discard("import torch.nn as nn")

    def order(line: str) -> tuple[bool, str, bool, str]:
        module = line.split()[1]
        return module.split(".")[0] in ("torch", "triton"), module, line.startswith("from"), line

    groups = itertools.groupby(sorted(lines, key=order), key=lambda line: order(line)[0])
    return "\n\n".join("\n".join(group) for _, group in groups)
