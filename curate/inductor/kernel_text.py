"""Give a simplified kernel the names that a person would use, and print it."""

from __future__ import annotations

import ast
import builtins
import copy
import re
from collections import Counter
from collections.abc import Iterator

from curate.generator.text.layout import body as print_body
from curate.generator.text.layout import text
from curate.inductor.kernel_simplify import KernelDraft
from curate.inductor.kernel_types import is_number
from curate.inductor.products.tiles import CONSTANTS, CONVOLUTIONS
from curate.syntax import free_name, names_in

_ARGUMENTS_WIDTH = 88

# name of a value by the function that made it
_BY_FUNCTION = {
    "sum": "total",
    "exp": "exps",
    "exp2": "powers",
    "log": "logs",
    "sqrt": "root",
    "sqrt_rn": "root",
    "rsqrt": "inv_root",
    "sigmoid": "gate",
    "where": "selected",
    "maximum": "larger",
    "minimum": "smaller",
    "abs": "magnitude",
    "dot": "product",
    "associative_scan": "prefix",
    "cumsum": "prefix",
    "cumprod": "prefix",
    "broadcast_to": "block",
    "floor_div": "quotient",
    "floor_mod": "remainder",
    "full": "fill",
    "zeros": "fill",
    "last_of_scan": "block_total",
    "div_rn": "ratio",
}
_BY_COMBINE = {"maximum": "peak", "minimum": "lowest", "multiply": "product", "logical_or": "found"}
_BY_OPERATOR: dict[type[ast.operator], str] = {
    ast.Add: "shifted",
    ast.Sub: "delta",
    ast.Mult: "scaled",
    ast.Div: "ratio",
    ast.FloorDiv: "quotient",
    ast.Mod: "remainder",
    ast.BitAnd: "both",
    ast.BitOr: "either",
}
_BY_SUFFIX = {
    "mean": "mean_acc",
    "m2": "m2_acc",
    "weight": "count_acc",
    "max": "peak_acc",
    "sum": "total_acc",
    "index": "index_acc",
    "val": "value",
    "idx": "index",
}
_TEMPORARY = re.compile(r"_?tmp\d+(?:_(\w+?))?(?:_next)?$")


def dimension_names(draft: KernelDraft) -> dict[str, str]:
    """Return new names for the index variables of the kernel's axes, sizes and block sizes."""
    used = {*draft.parameters, *names_in(*draft.body)}
    present = [axis for axis in ("z", "y", "x", "r0_") if _axis_variables(axis) & used]
    if present in ([], ["x"]):
        flat = {"xnumel": "n_elements", "xindex": "offsets", "xmask": "mask"}
        return {**flat, "XBLOCK": "BLOCK_SIZE", "xoffset": "block_start"}
    if present[-1] != "r0_" or len(present) == 2:
        words = ["slice", "row", "col"][-len(present) :]
    else:  # a reduction over tiles
        words = ["batch", "row", "col", "inner"][-len(present) :]
    found = {}
    for axis, word in zip(present, words, strict=True):
        plural = word if word in ("batch", "inner") else f"{word}s"
        found[f"{axis}numel"] = f"n_{plural}"
        found[f"{axis}index"] = plural
        found[f"{axis}mask"] = f"{word}_mask"
        found[f"{axis}offset"] = f"{word}_start"
        found[f"{axis}base"] = f"{word}_lanes"
        found[f"{axis.upper()}BLOCK"] = f"BLOCK_{plural.upper()}"
    return found


def _axis_variables(axis: str) -> set[str]:
    words = ("numel", "index", "mask", "offset", "base")
    return {f"{axis}{word}" for word in words} | {f"{axis.upper()}BLOCK"}


def stored_values(draft: KernelDraft) -> dict[str, str]:
    """Return, for every pointer stored to, what kind of value goes there (mean, total …) or ''."""
    definitions = _definitions(draft.body)
    kinds = {}
    for call in _stores(draft.body):
        pointer = _pointer(call.args[0])
        value = call.args[1]
        if pointer and isinstance(value, ast.Name) and value.id in definitions:
            kinds[pointer] = _statistic(definitions[value.id], definitions)
    return kinds


def _stores(body: list[ast.stmt]) -> Iterator[ast.Call]:
    for stmt in body:
        for node in ast.walk(stmt):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "tl.store":
                yield node


def _pointer(node: ast.expr) -> str:
    """Return the pointer parameter at the left of ``pointer + offsets``."""
    while isinstance(node, ast.BinOp):
        node = node.left
    return node.id if isinstance(node, ast.Name) else ""


def _definitions(body: list[ast.stmt]) -> dict[str, ast.expr]:
    """Return what every name assigned exactly once stands for."""
    found: dict[str, ast.expr] = {}
    again: set[str] = set()
    for name, value in _all_pairs(body):
        again |= {name} & found.keys()
        found[name] = value
    return {name: value for name, value in found.items() if name not in again}


def _all_pairs(body: list[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    for stmt in body:
        for node in ast.walk(stmt):
            if isinstance(node, ast.Assign):
                yield from _pairs(node)


def _pairs(node: ast.Assign) -> Iterator[tuple[str, ast.expr]]:
    target = node.targets[0]
    if isinstance(target, ast.Name):
        yield target.id, node.value
    elif isinstance(target, ast.Tuple):
        for position, item in enumerate(target.elts):
            if isinstance(item, ast.Name):
                index = ast.Constant(position)
                yield item.id, ast.Subscript(node.value, index, ast.Load())


def _statistic(value: ast.expr, definitions: dict[str, ast.expr], depth: int = 0) -> str:
    """Recognise sums, means, variances, reciprocal roots, extrema; '' for anything else."""
    if depth > 8:
        return ""
    if isinstance(value, ast.Name) and value.id in definitions:
        return _statistic(definitions[value.id], definitions, depth + 1)
    if isinstance(value, ast.Subscript):
        index = value.slice
        if isinstance(index, ast.Constant) and "welford" in text(value.value):
            return ("mean", "m2", "count")[index.value]  # type: ignore[index]
        if isinstance(index, ast.Constant) and "with_index" in text(value.value):
            return ("peak", "index")[index.value]  # type: ignore[index]
        return _statistic(value.value, definitions, depth + 1)
    if isinstance(value, ast.Call):
        function = text(value.func)
        if function.endswith(".to"):
            assert isinstance(value.func, ast.Attribute)
            return _statistic(value.func.value, definitions, depth + 1)
        if function == "tl.sum":
            return "sq_sum" if _is_square(value.args[0], definitions) else "total"
        if function == "tl.reduce" and isinstance(value.args[-1], ast.Name):
            return _BY_COMBINE.get(value.args[-1].id, "")
        if function == "tl.rsqrt":
            return "rstd" if "var" in _within(value.args[0], definitions, depth) else ""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div):
        kind = _statistic(value.left, definitions, depth + 1)
        divisor = value.right
        plain = is_number(divisor) or isinstance(divisor, ast.Name)
        if plain and kind in ("total", "sq_sum", "m2"):
            return "mean" if kind == "total" else "var"
    return ""


def _within(value: ast.expr, definitions: dict[str, ast.expr], depth: int) -> set[str]:
    """Return the statistics among the terms of a sum."""
    terms = [value]
    while isinstance(terms[-1], ast.BinOp) and isinstance(terms[-1].op, ast.Add):
        terms[-1:] = [terms[-1].right, terms[-1].left]
    if len(terms) == 1 and isinstance(value, ast.Name) and value.id in definitions:
        inner = definitions[value.id]
        if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Add):
            return _within(inner, definitions, depth + 1)
    return {_statistic(term, definitions, depth + 1) for term in terms}


def _is_square(value: ast.expr, definitions: dict[str, ast.expr]) -> bool:
    for _ in range(8):
        if isinstance(value, ast.Name) and value.id in definitions:
            value = definitions[value.id]
        elif isinstance(value, ast.Call) and text(value.func) in ("tl.where", "tl.broadcast_to"):
            value = value.args[1 if text(value.func) == "tl.where" else 0]
    square = isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult)
    return square and text(value.left) == text(value.right)  # type: ignore[attr-defined]


class _Namer:
    """Chooses a new name for every name in a kernel."""

    def __init__(self, draft: KernelDraft, names: dict[str, str], loaded: dict[str, str]) -> None:
        self.names = dict(names)
        self.loaded = loaded
        self.body = draft.body
        self.definitions = _definitions(draft.body)
        assigned = {name for name, _ in _all_pairs(draft.body)}
        self.carried = assigned - self.definitions.keys()
        self.taken = {*names.values(), *draft.helpers, "libdevice", "tl", *dir(builtins)}
        self.stored = {
            call.args[1].id: self.names.get(_pointer(call.args[0]), "").removesuffix("_ptr")
            for call in _stores(draft.body)
            if isinstance(call.args[1], ast.Name)
        }
        self.pointers = set(draft.parameters)
        self.homes: dict[str, set[int]] = {}  # loops that hold a name of their own called so
        uses = Counter(names_in(*draft.body))
        self.reshaped = {  # mean = mean[:, None] keeps its name
            name: value.value.id
            for name, value in self.definitions.items()
            if isinstance(value, ast.Subscript)
            and isinstance(value.value, ast.Name)
            and uses[value.value.id] == 2
        }
        self.outside = self._used_outside(draft.body)

    def _used_outside(self, body: list[ast.stmt]) -> set[str]:
        """Names that are used in another loop than the one that sets them."""
        homes: dict[str, set[int]] = {}
        for position, stmt in enumerate(body):
            for name in names_in(stmt):
                homes.setdefault(name, set()).add(position)
        return {name for name, places in homes.items() if len(places) > 1}

    def run(self) -> dict[str, str]:
        for position, stmt in enumerate(self.body):
            for node in ast.walk(stmt):
                if isinstance(node, ast.Assign):
                    for name, value in _pairs(node):
                        self._choose(name, value, position)
                elif isinstance(node, ast.For) and isinstance(node.target, ast.Name):
                    self._take(node.target.id, "start", position)
        return self.names

    def _choose(self, name: str, value: ast.expr, position: int) -> None:
        if name in self.names:
            return
        index = re.match(r"(?:r(\d)_|([xyz]))(\d+)$", name)
        if index:
            letter = "k" if index[1] else {"x": "i", "y": "j", "z": "h"}[index[2]]
            self.names[name] = self._free(letter + index[3])
            return
        temporary = _TEMPORARY.match(name)
        if temporary:
            self._take(name, self._base(name, value, temporary[1]), position)
        else:
            self._take(name, name, position)

    def _base(self, name: str, value: ast.expr, suffix: str | None) -> str:
        if name.endswith("_next"):
            return self.names.get(name.removesuffix("_next"), "value").replace("_acc", "_next")
        if suffix:
            return _BY_SUFFIX.get(suffix, suffix)
        if name in self.carried and not name.startswith("_"):
            return "carry"
        if name.startswith("_tmp"):
            return self._accumulator(name)
        known = _statistic(value, self.definitions)
        if known:
            return known
        if _load_pointer(value) or name not in self.stored:
            return self._describe(value)
        return self.stored[name] or self._describe(value)

    def _accumulator(self, name: str) -> str:
        """Name an accumulator after the reduction that ends it."""
        for value in self.definitions.values():
            if name in names_in(value):
                kind = _statistic(value, self.definitions)
                if kind:
                    return f"{kind}_acc"
        return "acc"

    def _describe(self, value: ast.expr) -> str:
        """Return a word for the outermost operation."""
        pointer = _load_pointer(value)
        if pointer:
            known = self.names.get(pointer, pointer).removesuffix("_ptr")
            return self.loaded.get(pointer, known)
        if isinstance(value, ast.Subscript):
            return self._describe(value.value)
        if isinstance(value, ast.BinOp):
            return _BY_OPERATOR.get(type(value.op), "value")
        if isinstance(value, ast.Compare):
            return "condition"
        if isinstance(value, ast.Call):
            function = text(value.func).rsplit(".", 1)[-1]
            if function in ("reshape", "trans", "permute", "view"):
                used = [name for name in names_in(value) if name in self.names]
                words = [self.names[name] for name in used if name not in self.pointers]
                return f"{words[0]}_tile" if words and words[0].isidentifier() else "tile"
            if function == "to" and isinstance(value.func, ast.Attribute):
                inner = value.func.value
                return "cast" if isinstance(inner, ast.Name) else self._describe(inner)
            return _BY_FUNCTION.get(function, function)
        return "value"

    def _take(self, name: str, base: str, position: int) -> None:
        if name in self.names:
            return
        source = self.reshaped.get(name)
        if source in self.names and self.names[source].startswith(base):
            self.names[name] = self.names[source]
            return
        private = name not in self.outside
        if private and base in self.homes and position not in self.homes[base]:
            self.names[name] = base  # the other holders of the name live in other loops
            self.homes[base].add(position)
        else:
            self.names[name] = self._free(base)
            if self.names[name] == base and private:
                self.homes[base] = {position}

    def _free(self, base: str) -> str:
        base = re.sub(r"\W", "_", base) or "value"
        name = free_name(base, self.taken)
        self.taken.add(name)
        return name


def _load_pointer(value: ast.expr) -> str:
    """Return the pointer when ``value`` is a load, possibly converted."""
    while True:
        if isinstance(value, ast.Subscript):
            value = value.value
        elif isinstance(value, ast.Call) and text(value.func) in ("tl.broadcast_to",):
            value = value.args[0]
        elif isinstance(value, ast.Call) and text(value.func).endswith(".to"):
            assert isinstance(value.func, ast.Attribute)
            value = value.func.value
        else:
            break
    if isinstance(value, ast.Call) and text(value.func) == "tl.load":
        return _pointer(value.args[0])
    return ""


class _Rename(ast.NodeTransformer):
    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self.names.get(node.id, node.id), node.ctx)


class _TidyIndices(ast.NodeTransformer):
    """Write indices as people do: factors after names, large strides first, no zero."""

    def __init__(self, sizes: set[str]) -> None:
        self.sizes = sizes

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Add):
            for added, other in ((node.right, node.left), (node.left, node.right)):
                less = _negated(added)
                if less is not None and (is_number(less) or _negated(other) is None):
                    return ast.BinOp(other, ast.Sub(), less)
        if isinstance(node.op, ast.Mult) and not is_number(node.right):
            if _is_integer(node.left) or (self._is_size(node.left) > self._is_size(node.right)):
                node.left, node.right = node.right, node.left
        elif text(node) == "col_mask & row_mask":
            node.left, node.right = node.right, node.left
        return node

    def _is_size(self, node: ast.expr) -> bool:
        return all(name in self.sizes for name in names_in(node))

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if text(node.func) in ("tl.load", "tl.store", "tl.atomic_add"):
            pointer, *offsets = _terms(node.args[0])
            result = pointer
            for term in sorted(offsets, key=_term_order):
                if isinstance(term, ast.Constant) and term.value == 0:
                    continue
                less = _negated(term)
                if less is not None:
                    result = ast.BinOp(result, ast.Sub(), less)
                else:
                    result = ast.BinOp(result, ast.Add(), term)
            node.args[0] = result
        return node


def _negated(node: ast.expr) -> ast.expr | None:
    """Return what a term takes away: 2 for ``-2``, ``x`` for ``-1 * x``."""
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=operand) if is_number(operand):
            return operand
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            for factor, other in ((left, right), (right, left)):
                if text(factor) == "-1":
                    return other
    return None


def _is_integer(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int)


def _terms(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _terms(node.left) + _terms(node.right)
    return [node]


def _term_order(node: ast.expr) -> tuple[int, int]:
    if is_number(node):
        return 2, 0
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        factor = node.right
        if isinstance(factor, ast.Constant) and isinstance(factor.value, int):
            return 0, -factor.value
        return 0, -(1 << 40) * len(list(ast.walk(factor)))
    return 1, 0


def combine_source(function: ast.FunctionDef, name: str) -> str:
    """Return the text of a combine function; ``arg0_0, arg1_0`` become ``a, b``."""
    parameters = [argument.arg for argument in function.args.args]
    single = len(parameters) == 2
    names = {}
    for parameter in parameters:
        side, _, number = parameter.removeprefix("arg").partition("_")
        names[parameter] = ("b" if side == "1" else "a") + ("" if single else number)
    draft = KernelDraft(parameters, function.body)
    chosen = _Namer(draft, names, {}).run()
    body = [_Rename(chosen).visit(node) for node in copy.deepcopy(function.body)]
    head = f"def {name}({', '.join(names[parameter] for parameter in parameters)}):"
    return "\n".join(["@triton.jit", head, *print_body(body, 4)])


def kernel_source(
    draft: KernelDraft, name: str, names: dict[str, str], loaded: dict[str, str], docstring: str
) -> str:
    """Return the text of a ``@triton.jit`` function.

    Args:
        draft: the simplified kernel.
        name: the function's new name.
        names: new names of its parameters, its axes' variables and its combine functions.
        loaded: names for values loaded from pointers that are also stored to.
        docstring: one line that says what it computes; how work is shared goes below it.
    """
    chosen = _Namer(draft, names, loaded).run()
    sizes = {chosen.get(p, p) for p in draft.parameters if "ptr" not in p}
    renamed = [_Rename(chosen).visit(node) for node in copy.deepcopy(draft.body)]
    body = [_TidyIndices(sizes).visit(node) for node in renamed]
    if sizes and not _divides(body):
        body = [_WideOffsets().visit(node) for node in body]
    parameters = [
        f"{chosen.get(p, p)}: tl.constexpr"
        if p.endswith("BLOCK") or (draft.product and p in CONSTANTS)
        else chosen.get(p, p)
        for p in draft.parameters
    ]
    head = f"def {name}({', '.join(parameters)}):"
    if len(head) > _ARGUMENTS_WIDTH:
        head = f"def {name}(\n    " + ",\n    ".join(parameters) + ",\n):"
    told = [f'    """{docstring}', "", f"    {_sharing(draft, chosen)}", '    """']
    key = '["M", "N", "K"]' if draft.product else '["n_elements"]'
    lines = [f"@triton.autotune(configs={draft.tuner}, key={key})"] if draft.tuner else []
    return "\n".join([*lines, "@triton.jit", head, *told, *print_body(body, 4)])


def _sharing(draft: KernelDraft, names: dict[str, str]) -> str:
    """Return a sentence that says what one program of the grid does."""
    blocks = {p: names.get(p, p) for p in draft.parameters if p.endswith("BLOCK")}
    tile = " x ".join(blocks[p] for p in blocks if not p.startswith("R"))
    if draft.product in CONVOLUTIONS:
        return (
            "Each program computes BLOCK_M places of the output in BLOCK_N channels: a tile of\n"
            "    the product of what these places see and of the filters."
        )
    if draft.product:
        return (
            "Each program computes one tile of the product; those of GROUP_M rows of tiles run\n"
            "    together, so that what they read is in the L2 cache. Rows and columns beyond the\n"
            "    last wrap around, and are not stored."
        )
    if not any(p.startswith("R") for p in blocks):
        if "n_elements" in names.values() or len(blocks) < 2:
            return f"Each program handles {tile or 'one'} elements."
        return f"Each program handles a tile of {tile} elements."
    reduced = " x ".join(blocks[p] for p in blocks if p.startswith("R"))
    rows = tile or "one row"
    whole = f"{rows} rows" if tile else rows
    if any(isinstance(node, ast.For) for node in draft.body):
        return f"Each program goes through {whole}, {reduced} elements at a time."
    return f"Each program holds {whole} in one tile."


def _divides(body: list[ast.stmt]) -> bool:
    """Whether a kernel divides integers, which takes several times as long for 64 bits."""
    return any(
        isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv | ast.Mod)
        for statement in body
        for node in ast.walk(statement)
    )


class _WideOffsets(ast.NodeTransformer):
    """Count elements in 64 bits: a tensor may have more than 2**31."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if text(node.func) == "tl.program_id":
            return ast.Call(ast.Attribute(node, "to", ast.Load()), [_INT64], [])
        return self.generic_visit(node)


_INT64 = ast.parse("tl.int64", mode="eval").body
