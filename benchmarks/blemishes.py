"""Count what a reader would criticise in programs, by their text.

    python benchmarks/blemishes.py PAIRS.jsonl [OTHER.jsonl]

Each file has a JSON object per line, with ``reference`` and ``triton``. Prints a table: for each
blemish the number of programs that have it, in one file or in both. What is counted is plain to see
in the text; nothing runs.
"""

from __future__ import annotations

import ast
import builtins
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

SMALLEST = 8
"""Below, a number in a kernel need not be the constructor's."""


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
}


def main() -> None:
    files = [Path(name) for name in sys.argv[1:]]
    if not files:
        sys.exit(__doc__)
    tables = [[json.loads(line) for line in file.read_text().splitlines()] for file in files]
    print(f"{'programs':42}", *(f"{len(rows):6}" for rows in tables))
    for name, test in BLEMISHES.items():
        counts = [sum(test(row["reference"], row["triton"]) for row in rows) for rows in tables]
        print(f"{name:42}", *(f"{count:6}" for count in counts))


if __name__ == "__main__":
    main()
