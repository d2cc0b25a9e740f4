"""Count what a reader would criticise in programs, by their text.

    python benchmarks/blemishes.py PAIRS.jsonl [OTHER.jsonl]

Each file has a JSON object per line, with ``reference`` and ``triton`` (or ``candidate``, as
`generator_rows.py` writes it). Prints a table: for each blemish the number of programs that have
it, in one file or in both. What is counted is plain to see in the text; nothing runs.
"""

from __future__ import annotations

import ast
import builtins
import functools
import json
import re
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

SMALLEST = 8
"""Below, a number in a kernel need not be the constructor's."""


@functools.cache
def jitted(text: str) -> list[ast.FunctionDef]:
    """Return a program's kernels, helpers included."""
    return [
        node
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef) and node.decorator_list
    ]


def kernels(text: str) -> list[ast.FunctionDef]:
    """Return the kernels that are launched."""
    return [node for node in jitted(text) if f"{node.name}[" in text]


@functools.cache
def body(text: str) -> str:
    """Return the kernels and ``forward``: what the generator wrote."""
    found = [ast.unparse(node) for node in jitted(text)]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef) and node.name == "ModelNew":
            found += [ast.unparse(f) for f in node.body if getattr(f, "name", "") == "forward"]
    return "\n".join(found)


def has(pattern: str) -> Callable[[str, str], bool]:
    """Return a test of what the generator wrote for a pattern."""
    return lambda _, text: re.search(pattern, body(text)) is not None


def lacks(pattern: str) -> Callable[[str, str], bool]:
    """Return a test that no pattern is found."""
    return lambda _, text: re.search(pattern, text) is None


def bakes_arguments(reference: str, text: str) -> bool:
    """Whether an integer of ``get_init_inputs`` stands in a kernel or in ``forward``."""
    given: set[int] = set()
    for node in ast.parse(reference).body:
        if isinstance(node, ast.FunctionDef) and node.name == "get_init_inputs":
            constants = (n.value for n in ast.walk(node) if isinstance(n, ast.Constant))
            given = {value for value in constants if type(value) is int and value >= SMALLEST}
    found = {n.value for n in ast.walk(ast.parse(body(text))) if isinstance(n, ast.Constant)}
    return bool(given & {value for value in found if type(value) is int})


def ignores_arguments(reference: str, text: str) -> bool:
    """Whether ``ModelNew.forward`` never reads an argument that ``Model.forward`` reads."""
    unread = [_unread(reference, "Model"), _unread(text, "ModelNew")]
    return bool(unread[1] - unread[0])


def _unread(text: str, name: str) -> set[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef) and node.name == name:
            for function in node.body:
                if isinstance(function, ast.FunctionDef) and function.name == "forward":
                    used = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)}
                    return {a.arg for a in function.args.args} - used - {"self"}
    return set()


def dead_constants(_: str, text: str) -> bool:
    """Whether a constant at the top is never read."""
    tree = ast.parse(text)
    names = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            own = {a.arg for a in node.args.args}
            own |= {n.id for n in ast.walk(node) if _stores(n)}
            names -= {n.id for n in ast.walk(node) if _loads(n) and n.id not in own}
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            names -= {n.id for n in ast.walk(node) if _loads(n)}
    return bool(names)


def _stores(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _loads(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)


def shadows_builtins(_: str, text: str) -> bool:
    """Whether a variable is called like a builtin."""
    return any(_stores(n) and n.id in dir(builtins) for n in ast.walk(ast.parse(body(text))))


def lists_operations(_: str, text: str) -> bool:
    """Whether a kernel's name is a list of four operations or more."""
    return any(node.name.removesuffix("_kernel").count("_") >= 3 for node in kernels(text))


def bare_docstrings(_: str, text: str) -> bool:
    """Whether a kernel's docstring says nothing of how work is shared."""
    return any("\n" not in (ast.get_docstring(node) or "") for node in kernels(text))


WORDS = "shifted|selected|both|condition|cast|larger|smaller|scaled|delta|ratio|value|either"
BY_OPERATION = (
    "shifted|selected|larger|smaller|scaled|chosen|converted|padded|total|difference|quotient"
)
ATEN = (
    "linalg_vector|unsafe_index|prepare_softmax|native_|lift_fresh|scalar_tensor|rsub|_forward"
    "|_backward|squared_?error|upsample|constant_pad|unbind"
)


def unknown_words(reference: str, text: str) -> bool:
    """Whether a kernel is named by words of which none is in the reference."""
    known = re.sub(r"[^a-z]", "", reference.lower())
    for node in kernels(text):
        stem = re.sub(r"_(long|partial|combine)?_?kernel(_\d+)?$|_kernel$", "", node.name)
        if not any(word in known for word in stem.split("_") if len(word) > 1):
            return True
    return False


def _repeats(text: str, part: Callable[[ast.Call], str]) -> bool:
    """Whether a statement's kernel has a part of a load or store more than once in a block."""
    for node in jitted(text):
        blocks = [node.body, *(n.body for n in ast.walk(node) if isinstance(n, ast.For))]
        for block in blocks:
            own = [s for s in block if not isinstance(s, ast.For)]
            calls = [n for s in own for n in ast.walk(s) if isinstance(n, ast.Call)]
            found = [part(c) for c in calls if ast.unparse(c.func) in ("tl.load", "tl.store")]
            found = [one for one in found if one]
            if len(set(found)) < len(found):
                return True
    return False


def repeated_addresses(_: str, text: str) -> bool:
    """Whether an address that is computed stands more than once in a block."""

    def address(call: ast.Call) -> str:
        plus = call.args[0]
        computed = isinstance(plus, ast.BinOp) and isinstance(plus.right, ast.BinOp)
        return ast.unparse(plus.right) if computed else ""  # type: ignore[attr-defined]

    return _repeats(text, address)


def repeated_masks(_: str, text: str) -> bool:
    """Whether a mask that is computed stands more than once in a block."""

    def mask(call: ast.Call) -> str:
        given = [k.value for k in call.keywords if k.arg == "mask"]
        return ast.unparse(given[0]) if given and isinstance(given[0], ast.BinOp) else ""

    return _repeats(text, mask)


def numbered(text: str) -> set[str]:
    """Return the variables of kernels that end in a number: x_1."""
    stores = (n.id for node in jitted(text) for n in ast.walk(node) if _stores(n))
    return {name for name in stores if re.search(r"_\d+$", name)}


def shapes_twice(_: str, text: str) -> bool:
    """Whether a rank is asserted for a tensor whose whole shape is asserted as well."""
    ranks = set(re.findall(r"assert (\w+)\.dim\(\) ==", text))
    shapes = set(re.findall(r"assert (\w+)\.shape ==", text))
    return bool(ranks & shapes)


def aliases(_: str, text: str) -> bool:
    """Whether ``forward`` gives a size a second name."""
    return re.search(r"\n +n_\w+ = [a-z_0-9]+\n", text) is not None


def polynomials(_: str, text: str) -> bool:
    """Whether a size is a sum of products: ``4 * a * b - 4 * a * c``."""
    return re.search(r"= .*\w \* \w+ \* \w.* [+-] .*\w \* \w+", _forward(text)) is not None


def _forward(text: str) -> str:
    return body(text).rpartition("def forward")[2]


def helper_lines(_: str, text: str) -> bool:
    """Whether classes and functions that are no kernels take 30 lines or more."""
    tree = ast.parse(text)
    other = [
        node
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
        and node.name != "ModelNew"
        and not node.decorator_list
    ]
    return sum((n.end_lineno or 0) - n.lineno + 1 for n in other) >= 30


def vague_docstrings(_: str, text: str) -> bool:
    """Whether a docstring lists operations and breaks off, or says nothing of what is computed."""
    docs = [(ast.get_docstring(node) or "").splitlines() or [""] for node in kernels(text)]
    return any("more operations" in d[0] or d[0].startswith("Each program") for d in docs)


def no_comment(_: str, text: str) -> bool:
    """Whether no kernel has a comment."""
    head = text.partition("class ModelNew")[0]
    return not re.search(r"^    +# ", head, re.MULTILINE)


def divides(_: str, text: str) -> bool:
    """Whether a kernel has a ``//`` or ``%``."""
    nodes = (node for kernel in jitted(text) for node in ast.walk(kernel))
    return any(isinstance(getattr(node, "op", None), ast.FloorDiv | ast.Mod) for node in nodes)


BLEMISHES: dict[str, Callable[[str, str], bool]] = {
    "no offset in 64 bits": lacks(r"tl\.int64"),
    "every block size is a literal": lacks(r"next_power_of_2|autotune|heuristics"),
    "no tl.dot": lacks(r"tl\.dot\("),
    "docstring without how work is shared": bare_docstrings,
    "dtype=torch.float32 in a buffer": has(r"dtype=torch\.float32"),
    "names of several temporaries": has(rf"\b({WORDS})_[3-9]\b"),
    "kernel named by four operations": lists_operations,
    "masked twice": has(r"tl\.where\((row|col)_mask & (row|col)_mask"),
    "the constructor's numbers baked in": bakes_arguments,
    "opaque sizes": has(r"\bsize_\d"),
    "tl.cast or .to to int32": has(r"tl\.int32\)"),
    "tl.full([1], …)": has(r"tl\.full\(\[1"),
    "constants at the top that nothing reads": dead_constants,
    "an argument of forward is ignored": ignores_arguments,
    "-1 *": has(r"-1 \*"),
    "builtins shadowed": shadows_builtins,
    "(1 >= size) * 1 + …": has(r"\(1 >= "),
    "nothing is checked": lacks(r"\bassert "),
    "kernel named in no word of the problem": unknown_words,
    "kernel named by ATen's internals": has(rf"def \w*({ATEN})\w*kernel"),
    "docstring vague": vague_docstrings,
    "no comment in a kernel": no_comment,
    "variables named by operation": has(rf"\b({BY_OPERATION})(_\d+)? = "),
    "numbered variables": lambda _, text: bool(numbered(text)),
    "three numbered variables or more": lambda _, text: len(numbered(text)) > 2,
    "sizes named by tensor and dimension": has(r"\b\w+_size\d"),
    "arguments called number or scale": has(r"def \w+\([^)]*\b(number|scale)(_\d+)?[,)]"),
    "an address written twice": repeated_addresses,
    "a mask written twice": repeated_masks,
    "rank and shape asserted": shapes_twice,
    "a size with a second name": aliases,
    "a polynomial for a size": polynomials,
    "as_strided, empty_strided": has(r"as_strided|empty_strided"),
    "* 1.0, + 0": has(r"\* 1\.0\b(?!e)|\+ 0\.0\b|\+ 0\b(?!\.)"),
    "where in where by one mask": has(r"tl\.where\((\w+), tl\.where\(\1,"),
    "PropagateNan": has(r"PropagateNan"),
    "30 lines of helpers": helper_lines,
    "// or % in a kernel": divides,
    "a line over 100": lambda _, text: any(len(line) > 100 for line in text.splitlines()),
}


def program(row: dict[str, str]) -> str:
    return row.get("triton") or row.get("candidate") or ""


def main() -> None:
    files = [Path(name) for name in sys.argv[1:]]
    if not files:
        sys.exit(__doc__)
    tables = [[json.loads(line) for line in file.read_text().splitlines()] for file in files]
    tables = [[row for row in rows if program(row)] for rows in tables]
    print(f"{'programs':42}", *(f"{len(rows):6}" for rows in tables))
    for name, test in BLEMISHES.items():
        counts = [sum(test(row["reference"], program(row)) for row in rows) for rows in tables]
        print(f"{name:42}", *(f"{count:6}" for count in counts))
    lines = [[program(row).count("\n") for row in rows] for rows in tables]
    print(f"{'lines, median':42}", *(f"{statistics.median(one):6.0f}" for one in lines))
    print(f"{'lines in all':42}", *(f"{sum(one):6}" for one in lines))


if __name__ == "__main__":
    main()
