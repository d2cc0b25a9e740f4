"""Turn Inductor's ``call(args)`` into the body of ``forward``.

Bookkeeping (asserts, streams, device guards, deletions, reuse) goes; allocations become
`torch.empty`, reinterpreted buffers become views, extern calls become torch calls, and launches
become ``kernel[grid](…)`` with the grid in plain sight.
"""

from __future__ import annotations

import ast
import collections
import copy
import json
import keyword
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from curate.generator.text.container import CannotRewrite
from curate.generator.text.layout import text
from curate.inductor.helpers import ELEMENT_CONFIGS
from curate.inductor.kernel_simplify import KernelDraft, simplify
from curate.inductor.kernel_text import dimension_names, stored_values
from curate.inductor.products import tiles
from curate.inductor.shapes import Layout, at_points, elements, view
from curate.inductor.source import Comment, InductorSource
from curate.inductor.unify import DTYPE
from curate.syntax import expression, free_name, loads_in, names_in, replace_names, words

_ALLOCATE = "empty_strided_cuda"
_NO_EFFECT = words(
    "args.clear assert_size_stride assert_size_stride_grouped assert_alignment "
    "assert_tensor_metadata torch.cuda.set_device"
)
_EXTERN = words("mm bmm addmm baddbmm bias_addmm convolution _mm_plus_mm addmv mv")
_NO_COMPUTE = words(
    "empty empty_strided empty_like as_strided view reshape expand t transpose permute narrow "
    "select slice contiguous"
)
_VIEW_NODES = words(
    "view reshape permute transpose t expand clone contiguous unsqueeze squeeze select slice "
    "getitem detach alias flatten unsafe_view to to_copy copy arange empty_like"
)
_FEW = 2
"""Operations after which a kernel may be called; of more the module's name says more."""

_MODULES = words("torch math triton tl F nn libdevice")
_MAX_GRID_Y = 65535

TUNED = 4
"""One kernel of elements in so many has an autotuner: by chance, but always the same ones."""
_IMAGES = ("batch", "channels", "height", "width")


@dataclass
class WrapperLaunch:
    """A kernel as the wrapper launches it.

    Attributes:
        draft: its simplified body.
        config: block sizes, ``num_warps``, ``num_stages``.
        names: new names of its parameters and axes.
        loaded: names of the values loaded from pointers that are also stored to.
        name: its new name.
        operations: what it computes.
    """

    draft: KernelDraft
    config: dict[str, Any]
    name: str
    operations: list[str]
    names: dict[str, str] = field(default_factory=dict)
    loaded: dict[str, str] = field(default_factory=dict)


@dataclass
class Forward:
    """The rewritten wrapper.

    Attributes:
        body: the statements of ``forward``; an `ast.Expr` of a string is a comment line.
        launches: every kernel launched, by Inductor's name, in order of the first launch.
        extern_calls: torch functions that compute something, sorted.
        sizes: size variables read from inputs.
    """

    body: list[ast.stmt]
    launches: dict[str, WrapperLaunch]
    extern_calls: list[str]
    sizes: list[str]


def _assign(name: str, value: ast.expr) -> ast.stmt:
    return ast.Assign([ast.Name(name, ast.Store())], value, lineno=0)


class Wrapper:
    """Walks ``call`` once and collects the statements of ``forward``."""

    def __init__(
        self,
        source: InductorSource,
        spec: dict[str, Any],
        inputs: list[str],
        two_dimensional: bool,
        subject: str = "",
    ) -> None:
        assert source.call is not None
        self.source = source
        self.call = source.call
        self.spec = spec
        self.images = two_dimensional
        self.subject = subject if len(source.kernels) == 1 else ""
        self.body: list[ast.stmt] = []
        self.names: dict[str, ast.expr] = {}
        self.layouts: dict[str, Layout] = {}
        self.launches: dict[str, WrapperLaunch] = {}
        self.extern_calls: set[str] = set()
        self.sizes: dict[str, str] = {}
        self.inputs = inputs
        self.taken = {*inputs, "self", "torch", "nn", "F", "triton", "tl", "math", "grid"}
        self.kernel_names: set[str] = set()
        self.line = self.call.lineno
        self.device_source: ast.expr | None = None
        self.fresh: set[str] = set()  # buffers that start at their storage's first element
        self.earlier: dict[str, str] = {}  # a buffer used in place, and its name before
        self.numels: dict[str, ast.expr] = {}  # numbers of elements, as Inductor writes them
        self.numbers: set[str] = set()  # variables that hold numbers of the module
        self.preparing = 0  # statements before the first that computes
        self.dense: dict[str, list[str]] = {}  # inputs that lie densely, and their sizes

    def run(self) -> Forward:
        """Return the rewritten function.

        Raises:
            CannotRewrite: a statement has a form that is not known.
        """
        self._layouts_of_inputs()
        self._plan_buffers()
        self._block(self.call.body)
        self.body[self.preparing : self.preparing] = self._shape_checks()
        unread = self.numbers - set(loads_in(*self.body))
        self.body = [
            node
            for node in self.body
            if not (isinstance(node, ast.Assign) and text(node.targets[0]) in unread)
        ]
        sizes = sorted(set(self.sizes.values()))
        return Forward(self.body, self.launches, sorted(self.extern_calls), sizes)

    # --- names ---------------------------------------------------------------------------------

    def _free(self, base: str) -> str:
        base = re.sub(r"\W|^buf\d+$", "_", base).strip("_") or "buffer"
        if base[0].isdigit():
            base = f"t{base}"
        name = free_name(base, self.taken)
        self.taken.add(name)
        return name

    def _statements(self, block: list[ast.stmt]) -> Iterator[ast.stmt]:
        for node in block:
            if isinstance(node, ast.With):
                yield from self._statements(node.body)
            else:
                yield node

    def _layouts_of_inputs(self) -> None:
        """Read how inputs lie in memory: from the spec, Inductor's comments or its asserts."""
        for entry in self.spec["inputs"]:
            known = self.source.layouts.get(entry["name"], (None, None))
            size, stride = entry.get("size", known[0]), entry.get("stride", known[1])
            if size is not None and stride is not None:
                self.layouts[entry["name"]] = Layout(
                    tuple(expression(item) for item in size),
                    tuple(expression(item) for item in stride),
                )
        for node in self._statements(self.call.body):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                call = node.value
                if text(call.func) == "assert_size_stride" and isinstance(call.args[0], ast.Name):
                    size, stride = (_items(argument) for argument in call.args[1:3])
                    self.layouts.setdefault(call.args[0].id, Layout(size, stride))

    def linear_weight(self, name: str, want: Layout) -> Layout | None:
        """Return the layout of a linear layer's weight, of which Inductor takes the transpose."""
        target = next((e["target"] for e in self.spec["inputs"] if e["name"] == name), None)
        nodes = self.source.comment_above(self.line, self.call.lineno).nodes
        linear = bool(nodes) and nodes[-1].startswith("linear") and str(target).endswith("weight")
        if not linear or len(want.size) != 2:
            return None
        layout = Layout(want.size[::-1], want.stride[::-1])
        return layout if layout.is_contiguous else None

    def _plan_buffers(self) -> None:
        """Name every buffer after the operation that first fills it."""
        self.planned: dict[str, str] = {}
        returned = self._returned_users()
        for node in self._statements(self.call.body):
            comment = self.source.comment_above(node.lineno, self.call.lineno)
            for name, base in self._filled(node, comment):
                self.planned.setdefault(name, base)
        if len(returned) == 1 and re.match(r"buf\d+$", returned[0]):
            self.planned[returned[0]] = "out"
        for node in reversed(list(self._statements(self.call.body))):
            # a buffer that nothing fills under its first name goes by the next one
            if not isinstance(node, ast.Assign):
                continue
            target, source = text(node.targets[0]), node.value
            if isinstance(source, ast.Call) and text(source.func) == _ALLOCATE:
                continue
            if self._same_size(source):
                source = source.args[0]  # type: ignore[attr-defined]
            if isinstance(source, ast.Name) and source.id not in self.planned:
                if target in self.planned:
                    self.planned[source.id] = self.planned.pop(target)
            elif isinstance(source, ast.Call) and text(source.func) == "reinterpret_tensor":
                self.planned.setdefault(text(source.args[0]), "workspace")

    def _same_size(self, source: ast.expr) -> bool:
        """Whether a reinterpretation leaves the sizes of a buffer as they were allocated."""
        if not (isinstance(source, ast.Call) and text(source.func) == "reinterpret_tensor"):
            return False
        allocated = {
            text(node.targets[0]): text(node.value.args[0])
            for node in self._statements(self.call.body)
            if isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call)
            and text(node.value.func) == _ALLOCATE
        }
        return allocated.get(text(source.args[0])) == text(source.args[1])

    def _returned_users(self) -> list[str]:
        final = self.call.body[-1]
        values = (
            final.value.elts
            if isinstance(final, ast.Return) and isinstance(final.value, ast.Tuple)
            else []
        )
        kinds = [output["kind"] for output in self.spec["outputs"]]
        if len(values) != len(kinds):
            raise CannotRewrite("return does not match the outputs", final.lineno)
        users = []
        for value, kind in zip(values, kinds, strict=True):
            if kind == "user":
                users += [name for name in names_in(value) if name.startswith("buf")]
        return users

    def _filled(self, node: ast.stmt, comment: Comment) -> Iterator[tuple[str, str]]:
        """Yield (buffer, name) for the buffers that a statement is the first to write."""
        nodes = [name for name in comment.nodes if _word(name) not in _VIEW_NODES]
        last = _word((nodes or comment.nodes or ("buffer",))[-1])
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            function = text(node.value).split("(")[0]
            if function.startswith(("extern_kernels.", "torch.ops.", "aten.")):
                yield node.targets[0].id, last
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
            return
        call = node.value
        if text(call.func).startswith("extern_kernels."):
            for item in call.keywords:
                if item.arg == "out" and isinstance(item.value, ast.Name):
                    yield item.value.id, last
        kernel_name = text(call.func).removesuffix(".run")
        if text(call.func).endswith(".run") and kernel_name in self.source.kernels:
            yield from self._filled_by_kernel(kernel_name, call, last)

    def _filled_by_kernel(
        self, kernel_name: str, call: ast.Call, last: str
    ) -> Iterator[tuple[str, str]]:
        launch = self._launch(kernel_name, call.lineno)
        pairs = self._pairs(kernel_name, call)
        outputs = [
            (parameter, argument.id)
            for parameter, argument in pairs
            if "out_ptr" in parameter and isinstance(argument, ast.Name)
        ]
        statistics = stored_values(launch.draft)
        for parameter, name in outputs:
            kind = statistics.get(parameter, "")
            yield name, kind if kind and len(outputs) > 1 else last

    # --- launches ------------------------------------------------------------------------------

    def _launch(self, kernel_name: str, line: int) -> WrapperLaunch:
        if kernel_name not in self.launches:
            kernel = self.source.kernels[kernel_name]
            chosen = self.spec["kernels"].get(kernel_name)
            if not chosen:
                raise CannotRewrite(f"no configuration of {kernel_name}", line)
            config = {**chosen["kwargs"]}
            draft = simplify(kernel, config)
            config |= draft.block_sizes
            config |= self.spec.get("blocks", {}).get(kernel_name, {})
            config |= {k: chosen[k] for k in ("num_warps", "num_stages") if chosen[k]}
            if isinstance(config.get("R0_BLOCK"), str) and "XBLOCK" in config:
                config |= {"XBLOCK": 1, "num_warps": 4}  # a row of any length
            computed = operations(kernel.comment, draft)
            name = self._kernel_name(computed)
            self.launches[kernel_name] = WrapperLaunch(draft, config, name, computed)
        return self.launches[kernel_name]

    def _kernel_name(self, parts: list[str]) -> str:
        base = "_".join(parts if len(parts) <= 4 else [*parts[:2], *parts[-2:]]) or "layout"
        if self.subject and len(parts) > _FEW:
            base = self.subject
        candidate, number = f"{base}_kernel", 1
        while candidate in self.kernel_names:
            candidate, number = f"{base}_kernel_{number}", number + 1
        self.kernel_names.add(candidate)
        return candidate

    def _pairs(self, kernel_name: str, call: ast.Call) -> list[tuple[str, ast.expr]]:
        """Pair a kernel's parameters with the arguments of one launch."""
        kernel = self.source.kernels[kernel_name]
        parameters = [
            a.arg for a in kernel.function.args.args if not a.arg.endswith(("BLOCK", "RSPLIT"))
        ]
        if len(parameters) != len(call.args):
            raise CannotRewrite(f"arguments of {kernel_name}", call.lineno)
        return list(zip(parameters, call.args, strict=True))

    def _emit_launch(self, kernel_name: str, call: ast.Call) -> None:
        launch = self._launch(kernel_name, call.lineno)
        pairs = self._pairs(kernel_name, call)
        arguments = {name: self._rewrite(argument) for name, argument in pairs}
        if not launch.names:
            if self._may_be_tuned(kernel_name, launch, arguments):
                launch.draft.tuner = ELEMENT_CONFIGS
            launch.names = self._parameter_names(launch.draft, arguments)
            launch.loaded = {
                parameter: self.earlier[text(argument)]
                for parameter, argument in arguments.items()
                if "out_ptr" in parameter and text(argument) in self.earlier
            }
        product = launch.draft.product
        for size in tiles.SIZES if product else ():
            local = self._free(size) if size in self.inputs else size
            if text(arguments[size]) != local:
                self.body.append(_assign(local, arguments[size]))
            arguments[size] = ast.Name(local, ast.Load())
        axes = [name for name in arguments if name.endswith("numel")]
        for axis in axes:
            local = launch.names.get(axis, axis)
            if axis in launch.draft.parameters or axis[0] in "xyz":
                if text(arguments[axis]) != local:
                    value = self._numel(dict(pairs)[axis], pairs) if len(axes) == 1 else None
                    self.body.append(_assign(local, value or arguments[axis]))
                arguments[axis] = ast.Name(local, ast.Load())
        self._emit_grid(self.source.kernels[kernel_name].grid, launch, arguments)
        passed = [arguments[n] for n in launch.draft.parameters if not n.endswith("BLOCK")]
        blocks = [n for n in launch.draft.parameters if n in launch.config]
        if launch.draft.tuner:  # its blocks are the autotuner's choice
            given = [n for n in launch.draft.parameters if not n.endswith("BLOCK")]
            image = {*tiles.IMAGE, *tiles.CONSTANTS} if product else set()
            first = next((i for i, n in enumerate(given) if n in image), len(given))
            by_name = [ast.keyword(launch.names.get(n, n), arguments[n]) for n in given[first:]]
            passed = passed[:first]
            target = expression(f"{launch.name}[grid]")
            self.body.append(ast.Expr(ast.Call(target, passed, by_name)))
            return
        keywords = [
            ast.keyword(launch.names.get(n, n), self._block_size(launch.config[n]))
            for n in [*blocks, *(n for n in launch.config if n.startswith("num_"))]
        ]
        missing = {n for n in launch.draft.parameters if n.endswith("BLOCK")} - set(launch.config)
        if missing:
            raise CannotRewrite(f"no value of {sorted(missing)[0]}", call.lineno)
        target = expression(f"{launch.name}[grid]")
        self.body.append(ast.Expr(ast.Call(target, passed, keywords)))

    def _may_be_tuned(
        self, kernel_name: str, launch: WrapperLaunch, arguments: dict[str, ast.expr]
    ) -> bool:
        """Say whether an autotuner is to choose the blocks of a kernel of elements.

        So it is for one in `TUNED`, by its text. Tuning launches a kernel many times: what it
        writes it must not read, nor add to.
        """
        draft = launch.draft
        pointers = [text(arguments[name]) for name in draft.parameters if "ptr" in name]
        plain = list(launch.config.keys() - {"num_warps", "num_stages"}) == ["XBLOCK"]
        named = dimension_names(draft).get("xnumel") == "n_elements"
        return (
            plain
            and named
            and {"xnumel", "XBLOCK"} <= set(draft.parameters)
            and len(pointers) == len(set(pointers))
            and not any("in_out" in name for name in draft.parameters)
            and not any("atomic" in text(node) for node in draft.body)
            and text(self.call).count(f"{kernel_name}.run(") == 1
            and zlib.crc32("".join(map(text, draft.body)).encode()) % TUNED == 0
        )

    def _block_size(self, value: int | str) -> ast.expr:
        return self._rewrite(expression(value)) if isinstance(value, str) else ast.Constant(value)

    def _numel(self, size: ast.expr, pairs: list[tuple[str, ast.expr]]) -> ast.expr | None:
        """Return ``out.numel()`` for a computed size, if that is what it is."""
        if isinstance(self._rewrite(size), ast.Constant | ast.Name):
            return None
        raw = self.numels.get(size.id, size) if isinstance(size, ast.Name) else size
        for parameter, argument in pairs:
            layout = self.layouts.get(argument.id) if isinstance(argument, ast.Name) else None
            stored = "out_ptr" in parameter and layout is not None
            if layout is not None and stored and elements(layout.size) == at_points([raw])[0]:
                return expression(f"{text(self._rewrite(argument))}.numel()")
        return None

    def _emit_grid(self, kind: str, launch: WrapperLaunch, arguments: dict[str, ast.expr]) -> None:
        def blocks(axis: str) -> str:
            count, size = text(arguments[f"{axis}numel"]), launch.config.get(f"{axis.upper()}BLOCK")
            if launch.draft.tuner:
                return f'triton.cdiv({count}, meta["BLOCK_SIZE"])'
            return count if size in (None, 1) else f"triton.cdiv({count}, {size})"

        if kind in tiles.KINDS:
            rows, cols = (
                f'triton.cdiv({text(arguments[size])}, meta["BLOCK_{size}"])' for size in "MN"
            )
            others = [text(arguments[n]) for n in (tiles.BATCHES, tiles.GROUPS) if n in arguments]
            grid = f"lambda meta: ({rows} * {cols}, {''.join(others)})"
        elif kind == "Grid1D":
            grid = f"({blocks('x')},)"
            grid = f"lambda meta: {grid}" if launch.draft.tuner else grid
        elif kind == "Grid2D":
            grid = f"({blocks('x')}, {blocks('y')})"
        elif kind == "Grid3D":
            grid = f"({blocks('x')}, {blocks('y')}, {blocks('z')})"
        elif kind == "Grid2DWithYZOverflow":
            self.body.append(_assign("y_blocks", expression(blocks("y"))))
            z_blocks = expression(f"triton.cdiv(y_blocks, {_MAX_GRID_Y})")
            self.body.append(_assign("z_blocks", z_blocks))
            grid = f"({blocks('x')}, triton.cdiv(y_blocks, z_blocks), z_blocks)"
        else:
            raise CannotRewrite(f"grid {kind}", self.line)
        self.body.append(_assign("grid", expression(grid)))

    def _parameter_names(
        self, draft: KernelDraft, arguments: dict[str, ast.expr]
    ) -> dict[str, str]:
        """Name a kernel's parameters after what the first launch passes."""
        names = dimension_names(draft)
        if draft.product:
            names = {**tiles.BLOCKS, "xindex": "offsets"}
        used = {*names.values(), *(arguments if draft.product else ())}
        for parameter, argument in arguments.items():
            if parameter.endswith("numel"):
                continue
            if draft.product and parameter == tiles.BATCHES:
                continue  # the grid tells
            if draft.product and parameter in tiles.NAMES:
                names[parameter] = parameter
                used.add(parameter)
                continue
            parts = _path(argument)
            suffix = "_ptr" if "ptr" in parameter else ""
            choices = ["_".join(parts[-n:]) + suffix for n in range(1, len(parts) + 1)]
            choices = [n for n in choices if n.isidentifier() and n not in _MODULES]
            plain = re.sub(r"^ks(\d+)$", r"size_\1", parameter)
            fallback = choices[-1] if choices else _size_name(argument) or plain
            wish = next((name for name in choices if name not in used), fallback)
            name = free_name(wish, used)
            used.add(name)
            names[parameter] = name
        return names

    # --- statements ----------------------------------------------------------------------------

    def _block(self, block: list[ast.stmt]) -> None:
        for node in block:
            self.line = node.lineno
            self._statement(node)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.With(items=[ast.withitem(context_expr=guard)]) if "DeviceGuard" in text(guard):
                self.preparing = self.preparing or len(self.body)
                self._block(node.body)
            case ast.Delete():
                pass
            case ast.Expr(value=ast.Call() as call):
                self._expression_statement(call)
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Name(id="args")):
                self._bind_inputs([text(name) for name in names])
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self._assignment(name, value)
            case ast.Return(value=ast.Tuple(elts=values)):
                self._return([self._rewrite(value) for value in values])
            case ast.Assert() | ast.Pass():
                pass
            case _:
                raise CannotRewrite(text(node), node.lineno)

    def _expression_statement(self, call: ast.Call) -> None:
        function = text(call.func)
        if function in _NO_EFFECT:
            return
        if function.endswith(".run") and function.removesuffix(".run") in self.source.kernels:
            self._emit_launch(function.removesuffix(".run"), call)
        elif function.startswith(("extern_kernels.", "torch.ops.", "aten.")):
            self._extern(None, call)
        elif function.endswith((".zero_", ".fill_", ".copy_")):
            self.body.append(ast.Expr(self._rewrite(call)))
        else:
            raise CannotRewrite(text(call), call.lineno)

    def _assignment(self, name: str, value: ast.expr) -> None:
        function = text(value.func) if isinstance(value, ast.Call) else ""
        if function in ("get_raw_stream", "copy_if_misaligned"):
            return
        if function == _ALLOCATE:
            assert isinstance(value, ast.Call)
            self._allocate(name, value)
        elif function.startswith(("empty_strided", "alloc_from_pool")):
            raise CannotRewrite(function, self.line)
        elif function.endswith((".size", ".stride")):
            self.names[name] = self._rewrite(value)
        elif re.match(r"s\d+$", name):
            self._size(name, value)
        elif function.startswith(("extern_kernels.", "torch.ops.", "aten.")):
            assert isinstance(value, ast.Call)
            self._extern(name, value)
        elif isinstance(value, ast.Name) and name.startswith("buf"):
            self._reuse(name, self._rewrite(value), self.layouts.get(value.id))
        elif function == "reinterpret_tensor":
            assert isinstance(value, ast.Call)
            size, stride = (_items(argument) for argument in value.args[1:3])
            self._reuse(name, self._rewrite(value), Layout(size, stride))
        elif name.endswith("numel") or re.match(r"ps\d+$", name):
            self.names[name] = self._rewrite(value)
            self.numels[name] = value
        else:
            rewritten = self._rewrite(value)
            item = isinstance(rewritten, ast.Subscript) and isinstance(rewritten.value, ast.Name)
            base = rewritten.value.id if item else name  # type: ignore[attr-defined]
            new = self._free(self.planned.get(name, base))
            self.body.append(_assign(new, rewritten))
            self.names[name] = ast.Name(new, ast.Load())

    def _bind_inputs(self, names: list[str]) -> None:
        inputs = self.spec["inputs"]
        if len(names) != len(inputs):
            raise CannotRewrite("call takes other inputs than the graph", self.line)
        constants: list[tuple[str, dict[str, Any]]] = []
        for name, entry in zip(names, inputs, strict=True):
            target = entry["target"]
            match entry["kind"]:
                case "parameter" | "buffer":
                    self.names[name] = expression(attribute_path(target))
                case "input":
                    self.names[name] = self._input(target)
                case "constant":
                    constants.append((name, entry))
                case kind:
                    raise CannotRewrite(f"input of kind {kind}", self.line)
        self.device_source = self._device_source(inputs)
        self._bind_symbols()
        for name, entry in constants:
            self._constant(name, entry)
        self._need_contiguous(names, inputs)

    def _bind_symbols(self) -> None:
        """Give the module's own numbers names; those that are attributes are read in place."""
        used = Counter(names_in(self.call))
        for symbol, found in self.spec.get("symbols", {}).items():
            value = expression(found)
            plain = re.fullmatch(r"self(\.\w+)+|\w+", found)
            if not plain and used[symbol] > 1:
                new = self._free(self.spec["names"][symbol] or _name_of(found))
                self.body.append(_assign(new, value))
                self.numbers.add(new)
                value = ast.Name(new, ast.Load())
            self.names[symbol] = value
        if floating := self.spec.get("any_float"):
            source = self._input(floating["target"])
            self.names[DTYPE] = ast.Attribute(source, "dtype", ast.Load())

    def _input(self, target: Any) -> ast.expr:
        """Return the variable of an argument of ``forward``, or of a tensor inside one."""
        if isinstance(target, int):
            return ast.Name(self.inputs[target], ast.Load())
        first, *path = target
        inside = self.inputs[first] + "".join(f"[{json.dumps(key)}]" for key in path)
        name = self._free("_".join(str(part) for part in (self.inputs[first], *path)))
        self.body.append(_assign(name, expression(inside)))
        return ast.Name(name, ast.Load())

    def _device_source(self, inputs: list[dict[str, Any]]) -> ast.expr | None:
        """Return a tensor whose device new buffers share: an input if there is one."""
        ranked = sorted(inputs, key=lambda entry: entry["kind"] != "input")
        first = ranked[0] if ranked and ranked[0]["kind"] != "constant" else None
        return self.names[first["name"]] if first else None

    def _constant(self, name: str, entry: dict[str, Any]) -> None:
        """Emit a tensor that the model holds outside its state_dict."""
        if self.device_source is None:
            raise CannotRewrite("no input to take the device from", self.line)
        device = f"{text(self.device_source)}.device"
        if entry["target"] is not None:
            value = f"{attribute_path(entry['target'])}.to({device})"
            new = self._free(entry["target"].rsplit(".", 1)[-1])
        else:
            known = self.spec["constants"][entry["name"]]
            if known["values"] is None:
                raise CannotRewrite(f"constant of shape {known['shape']}", self.line)
            numbers = repr(known["values"]).replace("inf", 'float("inf")')
            dtype = f"torch.{known['dtype']}"
            value = f"torch.tensor({numbers}, device={device}, dtype={dtype})"
            new = self._free("constant")
        self.body.append(_assign(new, expression(value)))
        self.names[name] = ast.Name(new, ast.Load())

    def _need_contiguous(self, names: list[str], inputs: list[dict[str, Any]]) -> None:
        """Kernels address inputs by fixed strides, so other layouts are copied first."""
        calls = [n for n in ast.walk(self.call) if isinstance(n, ast.Call)]
        reinterpreted = {text(c.args[0]) for c in calls if text(c.func) == "reinterpret_tensor"}
        read = {text(a) for c in calls if text(c.func).endswith(".run") for a in c.args}
        written = {str(o["target"]) for o in self.spec["outputs"] if o["kind"] == "mutated_input"}
        for name, entry in zip(names, inputs, strict=True):
            layout = self.layouts.get(name)
            copied = entry["kind"] == "input" and str(entry["target"]) not in written
            dense = layout.is_contiguous if layout else name in reinterpreted
            dense = dense or (entry.get("dense", False) and name in read)
            if copied and dense and not (layout and not layout.size):
                argument = text(self.names[name])
                self.body.append(_assign(argument, expression(f"{argument}.contiguous()")))
                self.dense[argument] = entry.get("shape", [])

    def _size(self, name: str, value: ast.expr) -> None:
        """Handle ``s0 = x_size[1]`` and ``s1 = s0``."""
        rewritten = self._rewrite(value)
        if isinstance(rewritten, ast.Name):
            self.names[name] = rewritten
            return
        found = re.match(r"(\w+)\.(size|stride)\(\)\[(\d+)\]$", text(rewritten))
        if not found:
            raise CannotRewrite(text(value), self.line)
        self._new_size(name, found[1], int(found[3]), found[2])

    def _new_size(self, name: str, source: str, dim: int, what: str = "size") -> None:
        count = next(
            (
                len(self.layouts[n].size)
                for n, e in self.names.items()
                if text(e) == source and n in self.layouts
            ),
            0,
        )
        if what == "size" and count == 4 and self.images:
            base = _IMAGES[dim]
        else:
            leading = dim == 0 and count > 1 and what == "size"
            base = "batch" if leading else f"{source}_{what}_{dim}"
        new = self._free(base.replace("_size_", "_dim"))
        method = "shape" if what == "size" else "stride()"
        self.body.append(_assign(new, expression(f"{source}.{method}[{dim}]")))
        self.names[name] = ast.Name(new, ast.Load())
        self.sizes[name] = new

    def _allocate(self, name: str, call: ast.Call) -> None:
        size, stride = (_items(argument) for argument in call.args[:2])
        layout = Layout(size, stride, text(call.args[2]))
        self.layouts[name] = layout
        self.fresh.add(name)
        new = self._free(self.planned.get(name, name))
        self.names[name] = ast.Name(new, ast.Load())
        arguments = [self._rewrite(ast.Tuple(list(size), ast.Load()))]
        function = "torch.empty"
        if not layout.is_contiguous:
            function = "torch.empty_strided"
            arguments.append(self._rewrite(ast.Tuple(list(stride), ast.Load())))
        if self.device_source is None:
            raise CannotRewrite("no input to take the device from", self.line)
        like = self._like(layout)
        if like is not None:
            self.body.append(_assign(new, like))
            return
        keywords = [
            ast.keyword("device", ast.Attribute(self.device_source, "device", ast.Load())),
            ast.keyword("dtype", self._rewrite(call.args[2])),
        ]
        self.body.append(_assign(new, ast.Call(expression(function), arguments, keywords)))

    def _like(self, layout: Layout) -> ast.expr | None:
        """Return ``torch.empty_like(x)`` for a buffer with the sizes of an input."""
        sizes = [text(size) for size in layout.size]
        same = [name for name, shape in self.dense.items() if sizes and shape == sizes]
        if not same or not layout.is_contiguous:
            return None
        if layout.dtype == DTYPE:
            typed = text(self.names[DTYPE]).removesuffix(".dtype")
            if typed in same:
                return expression(f"torch.empty_like({typed})")
        dtype = text(self._rewrite(expression(layout.dtype)))
        return expression(f"torch.empty_like({same[0]}, dtype={dtype})")

    def _shape_checks(self) -> list[ast.stmt]:
        """Return assertions that inputs have the dimensions which the code takes for granted.

        A program that reads no size of its first input works on any shape of it.
        """
        used = set(loads_in(*self.body))
        checks: list[ast.stmt] = []
        seen: dict[tuple[str, ...], str] = {}
        for entry in self.spec["inputs"]:
            shape = entry.get("shape")
            if entry["kind"] != "input" or not shape or isinstance(entry["target"], list):
                continue
            name = self.inputs[entry["target"]]
            own = {
                symbol
                for symbol, place in self.spec["sizes"].items()
                if place["input"] == entry["target"] and shape[place["dim"]] == symbol
            }
            condition = self._shape_condition(name, shape, own, used)
            if tuple(shape) in seen:
                condition = f"{name}.shape == {seen[tuple(shape)]}.shape"
            seen.setdefault(tuple(shape), name)
            if condition:
                shape_there = ast.FormattedValue(expression(f"tuple({name}.shape)"), -1)
                told = ast.JoinedStr([ast.Constant(f"{name} has shape "), shape_there])
                checks.append(ast.Assert(expression(condition), told))
        return checks

    def _shape_condition(self, name: str, shape: list[str], own: set[str], used: set[str]) -> str:
        """Return what must hold of an input's shape, or ""."""
        sizes = []
        for size in shape:
            value = self._rewrite(expression(size))
            unread = [n for n in names_in(value) if n in self.spec["sizes"]]
            for symbol in unread:  # a size that the code does not read
                place = self.spec["sizes"][symbol]
                if not isinstance(place["input"], int):
                    return ""
                found = f"{self.inputs[place['input']]}.shape[{place['dim']}]"
                value = replace_names(value, {symbol: expression(found)})
            sizes.append(text(value))
        if not own:
            return f"{name}.shape == ({', '.join(sizes)}{',' * (len(sizes) == 1)})"
        fixed = [(dim, size) for dim, size in enumerate(shape) if size not in own]
        fixed = [  # but for those that are read from this input
            (dim, size)
            for dim, size in fixed
            if self.spec.get("symbols", {}).get(size) != f"{name}.shape[{dim}]"
        ]
        if not fixed and not used & {self.sizes.get(symbol, "") for symbol in own}:
            return ""
        first = fixed[0][0] if fixed else 0
        if len(fixed) > 1 and [dim for dim, _ in fixed] == list(range(first, len(shape))):
            return f"{name}.shape[{first}:] == ({', '.join(sizes[first:])})"
        conditions = [f"{name}.dim() == {len(shape)}"]
        conditions += [f"{name}.shape[{dim}] == {sizes[dim]}" for dim, _ in fixed]
        return " and ".join(conditions)

    def _reuse(self, name: str, value: ast.expr, layout: Layout | None) -> None:
        """Give a buffer, or a view of it, its next name."""
        if layout:
            self.layouts[name] = layout
        planned = self.planned.get(name)
        if planned is None and isinstance(value, ast.Name):
            self.names[name] = value
            return
        new = self._free(planned or name)
        self.body.append(_assign(new, value))
        self.names[name] = ast.Name(new, ast.Load())
        before = value.func.value if _is_view(value) else value  # type: ignore[attr-defined]
        if isinstance(before, ast.Name):
            self.earlier[new] = before.id

    # --- torch calls ---------------------------------------------------------------------------

    def _extern(self, name: str | None, call: ast.Call) -> None:
        """Emit a torch call; merge it with the allocation of its ``out=`` buffer."""
        value = self._rewrite(call)
        assert isinstance(value, ast.Call)
        self._record(value)
        out = next((k.value for k in value.keywords if k.arg == "out"), None)
        if isinstance(out, ast.Name):
            last = self.body[-1] if self.body else None
            fresh = isinstance(last, ast.Assign) and text(last.targets[0]) == out.id
            if fresh and text(last.value).startswith(("torch.empty(", "torch.empty_like(")):  # type: ignore[union-attr]
                self.body.pop()
                value.keywords = [k for k in value.keywords if k.arg != "out"]
                self.body.append(_assign(out.id, value))
                return
        if name is None:
            self.body.append(ast.Expr(value))
            return
        new = self._free(self.planned.get(name, name))
        self.body.append(_assign(new, value))
        self.names[name] = ast.Name(new, ast.Load())

    def _record(self, value: ast.expr) -> None:
        for call in ast.walk(value):
            if isinstance(call, ast.Call):
                function = text(call.func)
                short = function.removeprefix("torch.ops.")
                plain = function.removesuffix(".default").rsplit(".", 1)[-1] in _NO_COMPUTE
                if function.startswith(("torch.", "F.")) and not plain:
                    self.extern_calls.add(short)

    def _rewrite(self, node: ast.expr) -> ast.expr:
        return _Rewrite(self).visit(copy.deepcopy(node))  # type: ignore[no-any-return]

    # --- results -------------------------------------------------------------------------------

    def _return(self, values: list[ast.expr]) -> None:
        outputs = self.spec["outputs"]
        users = []
        for value, output in zip(values, outputs, strict=True):
            if output["kind"] == "user":
                users.append(value)
                continue
            if output["kind"] == "mutated_buffer":
                target = attribute_path(output["target"])
            else:
                target = text(self._input(output["target"]))
            self.body.append(ast.Expr(expression(f"{target}.copy_({text(value)})")))
        self.body.append(ast.Return(self._tree(self.spec["out_tree"], users)))

    def _tree(self, tree: Any, users: list[ast.expr]) -> ast.expr:
        """Build the structure that ``forward`` returns."""
        if isinstance(tree, int):
            return users[tree]
        (kind, content), *_ = tree.items()
        if kind == "none":
            return ast.Constant(None)
        if kind == "const":
            return ast.Constant(content)
        if kind == "dict":
            return ast.Dict(
                [ast.Constant(key) for key in content],
                [self._tree(item, users) for item in content.values()],
            )
        items = [self._tree(item, users) for item in content]
        if kind == "list":
            return ast.List(items, ast.Load())
        if kind == "tuple":
            return ast.Tuple(items, ast.Load())
        raise CannotRewrite(f"output of kind {kind}", self.line)


class _Rewrite(ast.NodeTransformer):
    """Rewrite an expression of the wrapper."""

    def __init__(self, wrapper: Wrapper) -> None:
        self.wrapper = wrapper

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id == "aten":
            return expression("torch.ops.aten")
        if node.id in self.wrapper.names:
            return copy.deepcopy(self.wrapper.names[node.id])
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        function = text(node.func)
        if function == "reinterpret_tensor":
            return self._reinterpret(node)
        if function == "device":
            assert self.wrapper.device_source is not None
            return ast.Attribute(self.wrapper.device_source, "device", ast.Load())
        self.generic_visit(node)
        library, _, name = function.rpartition(".")
        if library == "extern_kernels":
            return self._extern(name, node)
        return node

    def _reinterpret(self, node: ast.Call) -> ast.AST:
        base, size, stride, offset = node.args
        have = self.wrapper.layouts.get(base.id) if isinstance(base, ast.Name) else None
        want = Layout(_items(size), _items(stride))
        marker = ast.Name("_base_", ast.Load())
        fresh = isinstance(base, ast.Name) and base.id in self.wrapper.fresh
        if have is None and isinstance(base, ast.Name):
            have = self.wrapper.linear_weight(base.id, want)
        viewed = view(marker, have, want, offset, fresh)
        self.wrapper.names["_base_"] = self.visit(base)
        return self.visit(viewed)  # type: ignore[no-any-return]

    def _extern(self, name: str, node: ast.Call) -> ast.AST:
        if name not in _EXTERN:
            raise CannotRewrite(f"extern_kernels.{name}", self.wrapper.line)
        if name == "convolution":
            return _convolution(node)
        if name == "_mm_plus_mm":
            first = ast.Call(expression("torch.mm"), node.args[:2], [])
            return ast.Call(expression("torch.addmm"), [first, *node.args[2:4]], node.keywords)
        node.func = expression(f"torch.{name.removeprefix('bias_')}")
        node.keywords = [
            k for k in node.keywords if not (k.arg in ("alpha", "beta") and text(k.value) == "1")
        ]
        return node


def _convolution(node: ast.Call) -> ast.expr:
    """Return the `torch.nn.functional` call for ``extern_kernels.convolution``."""
    options = {k.arg: k.value for k in node.keywords}
    dims = len(options["stride"].elts)  # type: ignore[attr-defined]
    transposed = text(options["transposed"]) == "True"
    function = f"F.conv{'_transpose' if transposed else ''}{dims}d"
    defaults = {"stride": 1, "padding": 0, "output_padding": 0, "dilation": 1, "groups": 1}
    arguments = list(node.args)
    if text(options["bias"]) != "None":
        arguments.append(options["bias"])
    keywords = []
    for name, default in defaults.items():
        value = options[name]
        items = value.elts if isinstance(value, ast.Tuple) else [value]
        numbers = [text(item) for item in items]
        if set(numbers) == {str(default)} or (name == "output_padding" and not transposed):
            continue
        single = len(set(numbers)) == 1
        keywords.append(ast.keyword(name, expression(numbers[0]) if single else value))
    called = ast.Call(expression(function), arguments, keywords)
    # Kernels take its rows to lie in order; it may follow the layout of its weight.
    return ast.Call(ast.Attribute(called, "contiguous", ast.Load()), [], [])


def _name_of(found: str) -> str:
    """Return a name for what an expression over attributes and sizes stands for."""
    path = re.sub(r"\bself\.|\.shape\b|\btriton\.", "", found)
    words = re.sub(r"\[(\d+)\]", r"_dim\1", path).replace("//", "per").replace("*", "times")
    return re.sub(r"\W+", "_", words).strip("_").lower() or "size"


_MOST_NAMES = 3


def _size_name(node: ast.expr) -> str:
    """Return a name for a computed size: ``height_width``, or ``height_out`` of a window's."""
    used = [name for name in dict.fromkeys(names_in(node)) if name not in (*_MODULES, "self")]
    operators = {type(n.op) for n in ast.walk(node) if isinstance(n, ast.BinOp)}
    plain = not any(isinstance(n, ast.Call | ast.Attribute | ast.Subscript) for n in ast.walk(node))
    if not plain or not operators:
        return ""
    if operators == {ast.Mult} and 1 < len(used) <= _MOST_NAMES:
        return "_".join(sorted(used, key=lambda n: (n in _IMAGES and _IMAGES.index(n), n)))
    if operators <= {ast.Mult, ast.FloorDiv} and len(used) == 1:
        return _name_of(text(node))
    return f"{used[0]}_out" if len(used) == 1 else ""


def _items(node: ast.expr) -> tuple[ast.expr, ...]:
    if not isinstance(node, ast.Tuple | ast.List):
        raise CannotRewrite(f"size {text(node)}", getattr(node, "lineno", None))
    return tuple(node.elts)


def _is_view(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "view"
    )


def _word(name: str) -> str:
    """Return a traced call's name without its counter: ``add_3`` is ``add``."""
    word = re.sub(r"_\d+$", "", name).strip("_")
    return _FRIENDLY.get(word, word)


def _path(node: ast.expr) -> list[str]:
    """Return the words of ``self.block[0].weight``: block, 0, weight."""
    if isinstance(node, ast.Name):
        return [node.id]
    parts = re.findall(r"\w+", text(node).removeprefix("self."))
    if isinstance(node, ast.Attribute | ast.Subscript):
        return parts
    return parts[:1] if isinstance(node, ast.Call) else []


def attribute_path(target: str) -> str:
    """Return the expression that reads a parameter: ``net.0.weight`` is ``self.net[0].weight``."""
    path = "self"
    for part in target.split("."):
        if part.isdigit():
            path += f"[{part}]"
        elif part.isidentifier() and not keyword.iskeyword(part):
            path += f".{part}"
        else:
            path = f'getattr({path}, "{part}")'
    return path


_FRIENDLY = {
    "native_layer_norm": "layer_norm",
    "native_group_norm": "group_norm",
    "nll_loss_forward": "nll_loss",
    "nll_loss2d_forward": "nll_loss2d",
    "native_batch_norm_legit": "batch_norm",
    "native_batch_norm_legit_functional": "batch_norm",
    "native_batch_norm_legit_no_training": "batch_norm",
    "safe_softmax": "softmax",
    "prepare_softmax_online": "softmax",
    "max_pool2d_with_indices": "max_pool2d",
    "scaled_dot_product_attention": "attention",
    "contiguous": "copy",
    "clone": "copy",
    "convolution": "bias",  # the convolution itself is an extern call
}
_PRODUCTS = frozenset({"mm", "bmm", "addmm", "baddbmm", "matmul"})


def _sums_terms(draft: KernelDraft) -> bool:
    """Say whether a kernel reads as many places of one tensor as of another, as filters do."""
    read = collections.Counter(
        next((name for name in loads_in(call.args[0]) if "ptr" in name), "")
        for node in draft.body
        for call in ast.walk(node)
        if isinstance(call, ast.Call) and text(call.func) == "tl.load"
    )
    counts = [count for count in read.values() if count > 1]
    return len(counts) > len(set(counts))


def operations(comment: Comment, draft: KernelDraft) -> list[str]:
    """Return the operations that a kernel computes, by their usual names, views left out."""
    product = draft.product.removeprefix("batched_") or "bias"  # an extern product leaves its bias
    names = [_word(name) for name in comment.aten]
    if draft.product:  # what made its factors is named as well
        made_by = {"bias"} if draft.product in tiles.CONVOLUTIONS else _PRODUCTS
        last = max((i for i, name in enumerate(names) if name in made_by), default=0)
        names = [product, *names[last + 1 :]]
    elif _sums_terms(draft):
        names = ["depthwise_conv" if name == "bias" else name for name in names]
    names = [product if name in _PRODUCTS else name for name in names]
    kept = [name for name in names if name not in _VIEW_NODES]
    return list(dict.fromkeys(kept))
