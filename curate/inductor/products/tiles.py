"""Products of matrices in the form of Inductor's other kernels, whatever follows them fused.

`curate.inductor.products.template` has Inductor write such a kernel. Here its sizes and strides
become arguments of the launch, and its blocks parameters, which an autotuner chooses.
"""

from __future__ import annotations

import ast
import contextlib
import random
import re

from curate.generator.text.layout import body
from curate.syntax import expression, names_in, replace_names

AXES = {1: ("length",), 2: ("height", "width"), 3: ("depth", "height", "width")}
"""Names of an image's axes, by their number."""

MATMUL, BATCHED = "matmul", "batched_matmul"
CONVOLUTIONS = tuple(f"conv{how}{dims}d" for how in ("", "_transpose") for dims in AXES)
KINDS = (MATMUL, BATCHED, *CONVOLUTIONS)
"""What such a kernel computes, in place of Inductor's grid: a program for each tile, along x; and
along y for each product of a batch, or for each group of a convolution."""

SIZES = ("M", "N", "K")
BATCHES, GROUPS = "batches", "groups"
STRIDES = ("stride_am", "stride_ak", "stride_bk", "stride_bn", "stride_ab", "stride_bb")


def filter_names(axes: tuple[str, ...]) -> list[str]:
    """Return what says how a filter goes over an image, along each axis."""
    return [f"{what}_{x}" for what in ("kernel", "stride", "padding", "dilation") for x in axes]


CONSTANTS = frozenset(name for axes in AXES.values() for name in filter_names(axes))
"""Numbers that are compiled into a kernel: places of the output are divided by them."""

IMAGE = ("channels", GROUPS, *(f"{of}{axis}" for of in ("", "out_") for axis in AXES[3]))
IMAGE += ("length", "out_length")

NAMES = frozenset({*SIZES, *STRIDES, BATCHES, *IMAGE, *CONSTANTS})
"""What a kernel's parameters are called that are no pointers."""

BLOCKS = {
    "MBLOCK": "BLOCK_M",
    "NBLOCK": "BLOCK_N",
    "KBLOCK": "BLOCK_K",
    "GROUPBLOCK": "GROUP_M",
}
"""Block sizes as Inductor's other kernels spell theirs, and the names that people use."""

CONFIGS = (
    {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 64, "warps": 2, "stages": 4},
    {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "warps": 4, "stages": 4},
    {"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 32, "warps": 4, "stages": 4},
    {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "warps": 8, "stages": 3},
)
"""Tiles among which a program's autotuner chooses: for small and for large matrices."""

GROUP_M = 8


CONFIGS_NAME = "PRODUCT_CONFIGS"


def configs_text() -> str:
    """Return the statement by which a program names its `CONFIGS`."""
    made = [
        f"triton.Config({ {b: config.get(b, GROUP_M) for b in BLOCKS.values()} }, "
        f"num_warps={config['warps']}, num_stages={config['stages']})"
        for config in CONFIGS
    ]
    tree = ast.parse(f"{CONFIGS_NAME} = [{', '.join(made)}]")
    return "\n".join(body(tree.body, 0))


_KERNEL = re.compile(
    r"async_compile\.triton\('(triton_tem_\w+)', '''\n(.*?)''', device_str=", re.DOTALL
)


def plain(code: str) -> str:
    """Return Inductor's file with products in the form of its other kernels."""
    for name, source in _KERNEL.findall(code):
        kernel, values = _plain_kernel(name, source, _passed(code, name))
        code = code.replace(source, kernel)
        code = _with_arguments(code, name, values)
    return code


def is_product(source: str) -> bool:
    """Whether a kernel's source is one that `plain` has written."""
    return any(f"'grid_type': {kind!r}" in source for kind in KINDS)


_SIZE = re.compile(r"^ +(ps\d+) = (.+)$", re.MULTILINE)


def _passed(code: str, name: str) -> list[ast.expr]:
    """Return what a file passes to a kernel, in terms of the sizes of its inputs."""
    found = re.search(rf"^ *{name}\.run\((.*)\)$", code, re.MULTILINE)
    call = expression(f"f({found[1]})") if found else None
    computed = {size: expression(value) for size, value in _SIZE.findall(code)}
    for size, value in computed.items():
        computed[size] = replace_names(value, computed)
    return (
        [replace_names(value, computed) for value in call.args]
        if isinstance(call, ast.Call)
        else []
    )


def _plain_kernel(
    name: str, source: str, passed: list[ast.expr]
) -> tuple[str, tuple[list[str], dict[str, ast.expr]]]:
    """Return a kernel's new source; its old parameters, and what the new ones are in their terms.

    New parameters are sizes and strides, which the template's first lines give.
    """
    function = next(n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef))
    old = [argument.arg for argument in function.args.args]
    kinds = ast.literal_eval(re.search(r"'signature': (\{.*?\})", source)[1])  # type: ignore[index]
    given: dict[str, ast.expr] = {}
    fixed: dict[str, ast.expr] = {}
    kind = MATMUL
    kept: list[ast.stmt] = []
    for node in function.body:
        target = ast.unparse(node.targets[0]) if isinstance(node, ast.Assign) else ""
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            fixed[ast.unparse(node.target)] = node.value  # blocks, which become parameters
            continue
        if target == "kind":
            kind = ast.literal_eval(node.value)  # type: ignore[attr-defined]
        elif target in NAMES and isinstance(node, ast.Assign):
            given[target] = _Numbers().visit(node.value)
        elif isinstance(node, ast.Assign) and target in ("A", "B"):
            continue
        else:
            kept.append(node)
    sizes = {ast.unparse(given[name]): name for name in ("K", "M", "N")}
    dense = {  # strides that are a size
        name: expression(sizes[ast.unparse(value)])
        for name, value in given.items()
        if name in STRIDES and ast.unparse(value) in sizes and ast.unparse(value) != "1"
    }
    types = {name: value for name, value in fixed.items() if name not in BLOCKS}
    kept = [replace_names(node, _POINTERS | dense | types) for node in kept]
    named = _Named({} if kind in CONVOLUTIONS else given)
    kept = [_WithoutOnes().visit(named.visit(node)) for node in kept]
    if kind in CONVOLUTIONS:
        kept = _offsets(kept, kind, given, dict(zip(old, passed, strict=False)))
    used = set(names_in(*kept))
    always = (*SIZES, BATCHES, GROUPS)  # the grid and the autotuner ask for them
    given = {new: value for new, value in given.items() if new in used or new in always}
    pointers = [p for p in old if kinds[p].startswith("*")]
    others = [p for p in old if p not in pointers and p in used]
    renamed = {"arg_A": "a_ptr", "arg_B": "b_ptr"}
    parameters = [*(renamed.get(p, p) for p in pointers), *others, *given, *BLOCKS]
    signature = {
        **{renamed.get(p, p): kinds[p] for p in (*pointers, *others)},
        **{name: "constexpr" if name in CONSTANTS else "i32" for name in given},
        **dict.fromkeys(BLOCKS, "constexpr"),
    }
    kind = BATCHED if BATCHES in given else kind
    lines = [
        "import triton",
        "import triton.language as tl",
        "@triton_heuristics.template(",
        f"triton_meta={{'signature': {signature!r}}},",
        f"inductor_meta={{'grid_type': {kind!r}}},",
        ")",
        "@triton.jit",
        f"def {name}({', '.join(parameters)}):",
        *("    " + line for node in kept for line in ast.unparse(node).splitlines()),
    ]
    same = {p: expression(p) for p in (*pointers, *others)}
    return "\n".join(lines) + "\n", (old, same | given)


class _Numbers(ast.NodeTransformer):
    """Write sizes as numbers: Inductor fills a block of one element with what has 64 bits."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        return node.args[1] if ast.unparse(node.func) == "tl.full" else node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        parts = node.left, node.right
        if isinstance(node.op, ast.Mult) and all(isinstance(p, ast.Constant) for p in parts):
            return ast.Constant(ast.literal_eval(parts[0]) * ast.literal_eval(parts[1]))
        return node


def _offsets(
    body: list[ast.stmt], kind: str, given: dict[str, ast.expr], passed: dict[str, ast.expr]
) -> list[ast.stmt]:
    """Return a convolution's body with the places of its results by the names of the image's axes.

    Where Inductor writes the same place in another way, as it does for variable sizes, it becomes
    the same name.
    """
    where = f"(idx_image * {'(groups * N)' if GROUPS in given else 'N'} + idx_filter)"
    axes = AXES[int(kind[-2])]
    for axis in axes:
        where = f"({where} * out_{axis} + idx_{axis[0]})"
    points = [_point(axes, where, given, passed, seed) for seed in range(3)]
    for node in body:
        target = ast.unparse(node.targets[0]) if isinstance(node, ast.Assign) else ""
        if target == "xindex":
            node.value = expression(where)  # type: ignore[attr-defined]
            continue
        for point in points if target else ():
            with contextlib.suppress(NameError, TypeError):
                point[target] = _value(node.value, point)  # type: ignore[attr-defined]
        for call in ast.walk(node):
            address = call.args[0] if isinstance(call, ast.Call) and call.args else None
            if isinstance(address, ast.BinOp) and ast.unparse(call.func) in ("tl.load", "tl.store"):  # type: ignore[attr-defined]
                with contextlib.suppress(NameError, TypeError):
                    if all(_value(address.right, point) == point["xindex"] for point in points):
                        address.right = ast.Name("xindex", ast.Load())
    return body


def _point(
    axes: tuple[str, ...],
    where: str,
    given: dict[str, ast.expr],
    passed: dict[str, ast.expr],
    seed: int,
) -> dict[str, int]:
    """Return numbers that the names in a convolution's body may stand for."""
    draw = random.Random(seed)
    sizes = {name for value in passed.values() for name in names_in(value)}
    host = {name: draw.randrange(16, 99) for name in sorted(sizes)}
    numbers = {name for value in given.values() for name in names_in(value)}
    point = {name: _value(passed[name], host) for name in passed if name.startswith("ks")}
    assert numbers <= point.keys(), numbers - point.keys()
    point |= {name: _value(value, point) for name, value in given.items()}
    point |= {f"idx_{axis[0]}": draw.randrange(point[f"out_{axis}"]) for axis in axes}
    point |= {"idx_image": draw.randrange(9), "idx_filter": draw.randrange(point["N"])}
    point["xindex"] = _value(expression(where), point)
    return point


def _value(node: ast.expr, point: dict[str, int]) -> int:
    """Return what an expression of integers is where its names stand for these numbers.

    Raises:
        NameError: it has another name.
    """
    for name in names_in(node):
        if name not in point:
            raise NameError(name)
    return int(eval(ast.unparse(node), {"__builtins__": {}}, point))


_POINTERS: dict[str, ast.expr] = {
    **{side: ast.Name(f"{side.lower()}_ptr", ast.Load()) for side in "AB"},
    **{f"arg_{side}": ast.Name(f"{side.lower()}_ptr", ast.Load()) for side in "AB"},
}


class _Named(ast.NodeTransformer):
    """Write the template's names for sizes that what was fused writes as Inductor does."""

    def __init__(self, given: dict[str, ast.expr]) -> None:
        self.known = {ast.unparse(given[name]): name for name in ("K", "M", "N") if name in given}
        self.ones = {name for name in STRIDES if name in given and ast.unparse(given[name]) == "1"}

    def _name(self, node: ast.expr) -> ast.expr:
        name = self.known.get(ast.unparse(node))
        return ast.Name(name, ast.Load()) if name else node

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return self._name(node) if type(node.value) is int and node.value > 1 else node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        named = self._name(node)
        return named if named is not node else self.generic_visit(node)  # type: ignore[return-value]

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.ones and isinstance(node.ctx, ast.Load):
            return ast.Constant(1)
        return self._name(node) if isinstance(node.ctx, ast.Load) else node


class _WithoutOnes(ast.NodeTransformer):
    """Leave out factors of one, and copies of what has its shape already."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        one = isinstance(node.right, ast.Constant) and node.right.value == 1
        return node.left if isinstance(node.op, ast.Mult) and one else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        shaped = {"xindex", "idx_m"}, {"xindex", "idx_n"}
        is_whole = ast.unparse(node.func) == "tl.broadcast_to" and all(
            names.intersection(names_in(node.args[0])) for names in shaped
        )
        return node.args[0] if is_whole else node


def _with_arguments(code: str, name: str, values: tuple[list[str], dict[str, ast.expr]]) -> str:
    """Return the file with the new arguments in a kernel's launches."""
    old, new = values
    launch = re.compile(rf"^( *){name}\.run\((.*)\)$", re.MULTILINE)

    def replaced(match: re.Match[str]) -> str:
        call = expression(f"f({match[2]})")
        assert isinstance(call, ast.Call)
        given = dict(zip(old, call.args, strict=False))
        arguments = [ast.unparse(replace_names(value, given)) for value in new.values()]
        return f"{match[1]}{name}.run({', '.join([*arguments, 'stream=raw_stream0'])})"

    return launch.sub(replaced, code)
