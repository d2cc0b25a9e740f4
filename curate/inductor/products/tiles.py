"""Products of matrices in the form of Inductor's other kernels, whatever follows them fused.

`curate.inductor.products.template` has Inductor write such a kernel. Here its sizes and strides
become arguments of the launch, and its blocks parameters, which an autotuner chooses.
"""

from __future__ import annotations

import ast
import re

from curate.inductor.layout import body
from curate.syntax import expression, names_in, replace_names

GRIDS = GRID, BATCHED_GRID = "ProductGrid", "BatchedProductGrid"
"""Grids: a program for each tile, along x; and y for each product of a batch."""

SIZES = ("M", "N", "K")
BATCHES = "batches"
STRIDES = ("stride_am", "stride_ak", "stride_bk", "stride_bn", "stride_ab", "stride_bb")
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
        kernel, values = _plain_kernel(name, source)
        code = code.replace(source, kernel)
        code = _with_arguments(code, name, values)
    return code


def is_product(source: str) -> bool:
    """Whether a kernel's source is one that `plain` has written."""
    return any(f"{grid!r}" in source for grid in GRIDS)


def _plain_kernel(name: str, source: str) -> tuple[str, tuple[list[str], dict[str, ast.expr]]]:
    """Return a kernel's new source; its old parameters, and what the new ones are in their terms.

    New parameters are sizes and strides, which the template's first lines give.
    """
    function = next(n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef))
    old = [argument.arg for argument in function.args.args]
    kinds = ast.literal_eval(re.search(r"'signature': (\{.*?\})", source)[1])  # type: ignore[index]
    given: dict[str, ast.expr] = {}
    fixed: dict[str, ast.expr] = {}
    kept: list[ast.stmt] = []
    for node in function.body:
        target = ast.unparse(node.targets[0]) if isinstance(node, ast.Assign) else ""
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            fixed[ast.unparse(node.target)] = node.value  # blocks, which become parameters
            continue
        if isinstance(node, ast.Assign) and target in (*SIZES, *STRIDES, BATCHES):
            given[target] = _number(node.value)
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
    kept = [_WithoutOnes().visit(_Named(given).visit(node)) for node in kept]
    used = set(names_in(*kept))
    always = (*SIZES, BATCHES)  # the grid and the autotuner ask for them
    given = {new: value for new, value in given.items() if new in used or new in always}
    pointers = [p for p in old if kinds[p].startswith("*")]
    others = [p for p in old if p not in pointers and p in used]
    renamed = {"arg_A": "a_ptr", "arg_B": "b_ptr"}
    parameters = [*(renamed.get(p, p) for p in pointers), *others, *given, *BLOCKS]
    signature = {
        **{renamed.get(p, p): kinds[p] for p in (*pointers, *others)},
        **dict.fromkeys(given, "i32"),
        **dict.fromkeys(BLOCKS, "constexpr"),
    }
    grid = BATCHED_GRID if BATCHES in given else GRID
    lines = [
        "import triton",
        "import triton.language as tl",
        "@triton_heuristics.template(",
        f"triton_meta={{'signature': {signature!r}}},",
        f"inductor_meta={{'grid_type': {grid!r}}},",
        ")",
        "@triton.jit",
        f"def {name}({', '.join(parameters)}):",
        *("    " + line for node in kept for line in ast.unparse(node).splitlines()),
    ]
    same = {p: expression(p) for p in (*pointers, *others)}
    return "\n".join(lines) + "\n", (old, same | given)


def _number(node: ast.expr) -> ast.expr:
    """Return what a block of one element is filled with, as Inductor has sizes in 64 bits."""
    is_filled = isinstance(node, ast.Call) and ast.unparse(node).startswith("tl.full([], ")
    return node.args[1] if is_filled else node  # type: ignore[attr-defined]


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
