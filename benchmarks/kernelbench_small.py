"""KernelBench's problems at sizes that a judge can draw many times: batches of 4, small inputs.

    python benchmarks/kernelbench_small.py CHECKOUT OUT.jsonl

KernelBench's sizes suit timing: many inputs take gigabytes, and a verdict takes several draws of
them and a result in float64. Here ``batch_size`` is at most 4, and problems whose inputs have more
than 2**22 elements even so are left out. Nothing is run: sizes are read from the syntax tree, and a
problem whose sizes cannot be read is left out as well. Writes id and reference of the problems of
levels 1 and 2, and prints how many there are.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import operator
import re
from pathlib import Path

BATCH, MOST = 4, 2**22

DRAWS = {"rand", "randn", "randint", "empty", "ones", "zeros"}
OPERATORS = {ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv, ast.Add: operator.add}


def small(text: str) -> str:
    """Return a problem with a batch of at most `BATCH`."""
    return re.sub(
        r"^(batch_size\s*=\s*)(\d+)",
        lambda found: found[1] + str(min(BATCH, int(found[2]))),
        text,
        flags=re.MULTILINE,
    )


def elements(text: str) -> int | None:
    """Return how many numbers the inputs of a problem have; None if that cannot be read."""
    tree = ast.parse(text)
    known: dict[str, object] = {}
    total = 0
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            known[node.targets[0].id] = value(node.value, known)
        if isinstance(node, ast.FunctionDef) and node.name == "get_inputs":
            for call in (n for n in ast.walk(node) if isinstance(n, ast.Call)):
                if isinstance(call.func, ast.Attribute) and call.func.attr in DRAWS:
                    sizes = [flat for arg in call.args for flat in flatten(value(arg, known))]
                    if not all(isinstance(size, int) for size in sizes):
                        return None
                    total += math.prod(sizes)  # type: ignore[arg-type]
    return total or None


def value(node: ast.expr, known: dict[str, object]) -> object:
    """Return what an expression of numbers and names comes to; None if it is another."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Starred):
        return value(node.value, known)
    if isinstance(node, ast.Tuple | ast.List):
        return [value(item, known) for item in node.elts]
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        left, right = value(node.left, known), value(node.right, known)
        if isinstance(left, int) and isinstance(right, int):
            return OPERATORS[type(node.op)](left, right)
    return None


def flatten(found: object) -> list[object]:
    return found if isinstance(found, list) else [found]


def main() -> None:
    """Write the problems that are small enough."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    files = [f for n in (1, 2) for f in sorted(given.checkout.glob(f"KernelBench/level{n}/*.py"))]
    kept = []
    for file in files:
        text = small(file.read_text(encoding="utf-8"))
        if (elements(text) or MOST + 1) <= MOST:
            kept.append({"id": f"{file.parent.name}/{file.stem}", "reference": text})
    given.out.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
    levels = {n: sum(row["id"].startswith(f"level{n}/") for row in kept) for n in (1, 2)}
    print(f"{len(kept)} of {len(files)} problems; by level: {levels}")


if __name__ == "__main__":
    main()
