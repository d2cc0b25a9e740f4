"""Which edited copies of evaluation items `decontaminate` finds, and which other rows it drops.

    python benchmarks/contamination.py RESULT.json --rows CACHE/steps/dedupe/*[0-9a-f].parquet \\
        --benchmark kernelbench=KernelBench/KernelBench \\
            tritonbench-g=TritonBench/data/TritonBench_G_v1 \\
            tritonbench-t=TritonBench/data/TritonBench_T_v1

Recall: the items of benchmarks whose fingerprints the package ships, read from checkouts at the
commits that the fingerprint files name, are edited in the ways of `EDITS` and put to the step. A
copy counts by the first tier that finds it at the default thresholds: ``structure``, ``overlap`` or
``resemblance``. ``named`` are copies for which the step names the edited item; ``too small`` are
missed copies without a part of the least size that is compared. The table also gives what is found
at other thresholds of overlap. Where an edit finds no place, there is no copy. The tests in
TritonBench's files are left out of the copies, since who copies a problem leaves them behind; most
problems of its second set are one call of torch then.

Rows: how many rows of Parquet files, which a run wrote without this step, reach a score. Nothing
was planted in them: what they match is in the packages, as a copy or by chance, which only reading
tells. RESULT.json names the rows from 0.5 and the item of each.
"""

from __future__ import annotations

import argparse
import ast
import importlib.metadata
import json
import os
import platform
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeGuard

import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from curate.clean.decontaminate import Decontaminate
from curate.clean.forms.parts import INPUT_FUNCTIONS, PlainProgram
from curate.clean.nearest import Evaluation, find_match, load_evaluation
from curate.clean.normalize import COLUMNS

SEED = 5
TIERS = ("structure", "overlap", "resemblance")
LEVELS = (0.5, 0.6, 0.65, 0.7, 0.8)
"""Scores that rows are counted from, and thresholds of overlap that recall is measured at."""

TESTS = "#" * 60
"""What TritonBench's programs have between the kernels and their tests."""

# --- edits ------------------------------------------------------------------------------------

Edit = Callable[[ast.Module, random.Random], None]


class NoPlace(Exception):
    """A program has no place where an edit can be made."""


class Renamer(ast.NodeTransformer):
    """Gives every name that is a program's own another, and docstrings other words.

    Names that are passed as keywords stay, but for those of a launch, and so do methods.
    """

    def __init__(self, tree: ast.Module) -> None:
        nodes = list(ast.walk(tree))
        imports = (n for n in nodes if isinstance(n, ast.Import | ast.ImportFrom))
        kept = {a.asname or a.name.split(".")[0] for node in imports for a in node.names}
        calls = (n for n in nodes if isinstance(n, ast.Call) and not _is_launch(n))
        kept |= {keyword.arg for call in calls for keyword in call.keywords if keyword.arg}
        classes = [n for n in nodes if isinstance(n, ast.ClassDef)]
        methods = {f.name for c in classes for f in c.body if isinstance(f, ast.FunctionDef)}
        names = [name for node in nodes if (name := _bound_name(node))]
        own = [n for n in names if n not in kept | methods | INPUT_FUNCTIONS | {"self"}]
        own = list(dict.fromkeys(name for name in own if not name.startswith("__")))
        self._names = {name: f"z{number}_{name[::-1]}" for number, name in enumerate(own)}
        self._attributes = {
            node.attr: f"q_{node.attr[::-1]}"
            for node in nodes
            if _is_of_self(node) and isinstance(node.ctx, ast.Store) and node.attr not in methods
        }

    def visit(self, node: ast.AST) -> ast.AST:
        """Rename within a node, then the node."""
        self.generic_visit(node)
        if isinstance(node, ast.Name):
            node.id = self._new(node.id)
        elif isinstance(node, ast.arg):
            node.arg, node.annotation = self._new(node.arg), None
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            node.name = self._new(node.name)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            node.names = [self._new(name) for name in node.names]
        elif isinstance(node, ast.Call) and _is_launch(node):
            for keyword in node.keywords:
                keyword.arg = keyword.arg and self._new(keyword.arg)
        elif _is_of_self(node):
            node.attr = self._attributes.get(node.attr, node.attr)
        elif isinstance(node, ast.Expr) and _is_text(node):
            node.value = ast.Constant("Other words.")
        return node

    def _new(self, name: str) -> str:
        return self._names.get(name, name)


def _bound_name(node: ast.AST) -> str | None:
    """Return the name that a node binds."""
    if isinstance(node, ast.arg):
        return node.arg
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    return node.name if isinstance(node, ast.FunctionDef | ast.ClassDef) else None


def _is_launch(call: ast.Call) -> bool:
    """Say whether a call is ``kernel[grid](…)``."""
    return isinstance(call.func, ast.Subscript)


def _is_of_self(node: ast.AST) -> TypeGuard[ast.Attribute]:
    """Say whether a node is ``self.name``."""
    base = node.value if isinstance(node, ast.Attribute) else None
    return isinstance(base, ast.Name) and base.id == "self"


def _is_text(statement: ast.stmt) -> bool:
    """Say whether a statement is a string alone, such as a docstring."""
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def rename(tree: ast.Module, rng: random.Random) -> None:
    """Rename everything that the program names."""
    Renamer(tree).visit(tree)


def change_constants(tree: ast.Module, rng: random.Random) -> None:
    """Change two numbers."""
    constants = (n for n in ast.walk(tree) if isinstance(n, ast.Constant))
    numbers = [n for n in constants if type(n.value) in (int, float)]
    if not numbers:
        raise NoPlace
    for number in rng.sample(numbers, min(2, len(numbers))):
        number.value += 1  # type: ignore[operator]


def insert_line(tree: ast.Module, rng: random.Random) -> None:
    """Put an assignment that nothing uses into the main function."""
    main = _main(tree)
    block = rng.choice(_blocks(main, 1))
    value = main.args.args[-1].arg if main.args.args else "3"
    place = rng.randint(int(_is_text(block[0])), max(1, len(block) - 1))
    block.insert(place, ast.parse(f"extra = {value}").body[0])


def remove_line(tree: ast.Module, rng: random.Random) -> None:
    """Take a statement out of the main function."""
    block = rng.choice(_blocks(_main(tree), 2))
    del block[rng.randrange(int(_is_text(block[0])), len(block))]


def swap_lines(tree: ast.Module, rng: random.Random) -> None:
    """Exchange two statements of the main function that follow each other."""
    block = rng.choice(_blocks(_main(tree), 3))
    first = rng.randrange(int(_is_text(block[0])), len(block) - 1)
    block[first : first + 2] = block[first : first + 2][::-1]


def _main(tree: ast.Module) -> ast.FunctionDef:
    """Return the longest kernel; without kernels the longest method, and else function."""
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    kernels = [f for f in functions if any("jit" in ast.unparse(d) for d in f.decorator_list)]
    bodies = (c.body for c in tree.body if isinstance(c, ast.ClassDef))
    methods = [f for body in bodies for f in body if isinstance(f, ast.FunctionDef)]
    methods = [f for f in methods if f.name != "__init__"]
    candidates = kernels or methods or [f for f in functions if f.name not in INPUT_FUNCTIONS]
    if not candidates:
        raise NoPlace
    return max(candidates, key=lambda f: sum(1 for _ in ast.walk(f)))


def _blocks(function: ast.FunctionDef, least: int) -> list[list[ast.stmt]]:
    """Return the function's blocks that have so many statements, docstrings not counted."""
    inner = (n for n in ast.walk(function) if isinstance(n, ast.For | ast.If | ast.While))
    blocks = [function.body, *(node.body for node in inner)]
    blocks = [b for b in blocks if sum(not _is_text(statement) for statement in b) >= least]
    if not blocks:
        raise NoPlace
    return blocks


ONE: dict[str, tuple[Edit, ...]] = {
    "constants": (change_constants,),
    "inserted": (insert_line,),
    "removed": (remove_line,),
    "swapped": (swap_lines,),
}
EDITS: dict[str, tuple[Edit, ...]] = {
    "copy": (),
    "renamed": (rename,),
    **ONE,
    **{f"renamed, {name}": (*edits, rename) for name, edits in ONE.items()},
    "renamed, three edits": (insert_line, change_constants, swap_lines, rename),
}
"""What is done to an item, in order."""


def edited(code: str, edits: tuple[Edit, ...], seed: str) -> str:
    """Return a program after edits; the program's own text where there are none.

    Raises:
        NoPlace: one of them cannot be made.
    """
    if not edits:
        return code
    tree, rng = ast.parse(code), random.Random(f"{SEED} {seed}")
    for edit in edits:
        edit(tree, rng)
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


# --- recall -----------------------------------------------------------------------------------


def read_items(folder: Path, evaluation: Evaluation, benchmark: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the code of each item that has fingerprints.

    Raises:
        SystemExit: no such fingerprints are shipped, or the folder is not the one they are of.
    """
    names = [item for name, item in evaluation.items if name == benchmark]
    if not names:
        raise SystemExit(f"{benchmark}: no such benchmark is shipped")
    for name in names:
        if not (folder / name).is_file():
            raise SystemExit(f"{folder}: has no {name}, which {benchmark} has")
        yield name, (folder / name).read_text().split(TESTS)[0]


def measure_recall(
    folders: dict[str, Path], evaluation: Evaluation, step: Decontaminate, every: int
) -> list[dict[str, Any]]:
    """Return, for each benchmark and edit, how many copies there are and which tier found them."""
    results = []
    for benchmark, folder in folders.items():
        items = list(read_items(folder, evaluation, benchmark))[::every]
        for kind, edits in EDITS.items():
            counts: Counter[str] = Counter()
            for name, code in items:
                try:
                    copy = edited(code, edits, f"{name} {kind}")
                except NoPlace:
                    continue
                counts.update(_judge_copy(copy, (benchmark, name), evaluation, step))
            if counts:
                keys = ("copies", *TIERS, "missed", "too small", "named")
                shares = {str(level): counts[f"at {level}"] / counts["copies"] for level in LEVELS}
                found = {key: counts[key] for key in keys}
                results.append({"benchmark": benchmark, "edit": kind, **found, "recall": shares})
    return results


def _judge_copy(
    copy: str, item: tuple[str, str], evaluation: Evaluation, step: Decontaminate
) -> Iterator[str]:
    """Yield what a copy of an item counts as."""
    yield "copies"
    comparison = evaluation.compare(copy)
    for level in LEVELS:
        if find_match(comparison, level, step.resemblance):
            yield f"at {level}"
    if match := find_match(comparison, step.overlap, step.resemblance):
        yield match.tier
        if evaluation.items[match.item] == item:
            yield "named"
    else:
        yield "missed"
        if not any(PlainProgram(copy).parts()):
            yield "too small"


# --- rows -------------------------------------------------------------------------------------


def read_rows(files: list[Path], sample: int) -> dict[str, list[dict[str, Any]]]:
    """Return rows by kind, each code once, with a sample of at most so many per kind."""
    kinds: dict[str, dict[tuple[str, ...], dict[str, Any]]] = defaultdict(dict)
    for file in files:
        for row in pl.read_parquet(file).iter_rows(named=True):
            if row["kind"] in Decontaminate.takes:
                codes = tuple(code for column in COLUMNS if (code := row.get(column)) is not None)
                kinds[row["kind"]].setdefault(codes, {"id": row["id"], "codes": codes})
    rng = random.Random(SEED)
    ordered = {kind: [rows[key] for key in sorted(rows)] for kind, rows in sorted(kinds.items())}
    return {kind: rng.sample(r, min(sample, len(r))) for kind, r in ordered.items()}


def score_row(row: dict[str, Any], evaluation: Evaluation, step: Decontaminate) -> dict[str, Any]:
    """Return a row's highest scores, the item with the highest overlap, and the tier that drops."""
    comparisons = [evaluation.compare(code) for code in row["codes"]]
    matches = (find_match(c, step.overlap, step.resemblance) for c in comparisons)
    match = next(filter(None, matches), None)
    nearest = max(comparisons, key=lambda c: c.overlap.max())
    item = int(nearest.overlap.argmax())
    return {
        "id": row["id"],
        "dropped_by": match.tier if match else None,
        "structure": any(c.copied for c in comparisons),
        "overlap": round(float(nearest.overlap[item]), 4),
        "resemblance": round(max(float(c.resemblance.max()) for c in comparisons), 4),
        "item": [*evaluation.items[item], nearest.part[item]],
    }


def measure_rows(
    rows: dict[str, list[dict[str, Any]]], evaluation: Evaluation, step: Decontaminate
) -> list[dict[str, Any]]:
    """Return, for each kind of row, how many reach which score, and those that reach the lowest."""
    results = []
    for kind, of_kind in rows.items():
        started = time.process_time()
        scores = [score_row(row, evaluation, step) for row in of_kind]
        seconds = time.process_time() - started
        near = [s for s in scores if max(s["overlap"], s["resemblance"]) >= LEVELS[0]]
        counts = Counter(s["dropped_by"] for s in scores)
        results.append(
            {
                "kind": kind,
                "rows": len(scores),
                "structure": sum(s["structure"] for s in scores),
                **{
                    name: {str(level): sum(s[name] >= level for s in scores) for level in LEVELS}
                    for name in ("overlap", "resemblance")
                },
                "dropped_by": {tier: counts[tier] for tier in TIERS},
                "ms_per_row": round(1000 * seconds / len(scores), 1),
                "near": sorted(near, key=lambda s: (-s["overlap"], s["id"])),
            }
        )
    return results


# --- report -----------------------------------------------------------------------------------


def table(header: list[str], rows: list[list[Any]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["-"] * len(header), *rows]
    return "\n".join(f"|{'|'.join(map(str, line))}|" for line in lines) + "\n"


def markdown(facts: dict[str, Any]) -> str:
    """Return the facts as tables."""
    columns = ["benchmark", "edit", "copies", *TIERS, "missed", "too small", "named"]
    recall = [
        [*(r[c] for c in columns), *(f"{100 * share:.1f} %" for share in r["recall"].values())]
        for r in facts["recall"]
    ]
    rows = [
        [
            *(r[name] for name in ("kind", "rows", "structure")),
            *(count for name in ("overlap", "resemblance") for count in r[name].values()),
            *r["dropped_by"].values(),
            r["ms_per_row"],
        ]
        for r in facts["rows"]
    ]
    levels = [f"{name} {level}" for name in ("overlap", "resemblance") for level in LEVELS]
    at = [f"recall at {level}" for level in LEVELS]
    dropped = [f"dropped by {tier}" for tier in TIERS]
    header = ["rows of kind", "all", "structure", *levels, *dropped, "ms per row"]
    head = {key: value for key, value in facts.items() if key not in ("recall", "rows")}
    return "\n".join([table([*columns, *at], recall), table(header, rows), json.dumps(head)])


def named_folder(text: str) -> tuple[str, Path]:
    """Return the two halves of ``name=folder``."""
    name, _, folder = text.partition("=")
    if not Path(folder).is_dir():
        raise argparse.ArgumentTypeError(f"{folder}: is no folder")
    return name, Path(folder)


def parse() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("result", type=Path)
    parser.add_argument(
        "--benchmark",
        type=named_folder,
        nargs="+",
        default=[],
        metavar="NAME=FOLDER",
        help="the items of a benchmark whose fingerprints are shipped",
    )
    parser.add_argument("--every", type=int, default=3, help="edit every such item")
    parser.add_argument("--rows", type=Path, nargs="*", default=[], help="Parquet files of a run")
    parser.add_argument("--sample", type=int, default=1500, help="rows of each kind")
    return parser.parse_args()


def main() -> None:
    """Measure, print the tables, write them to the result."""
    given = parse()
    started = time.monotonic()
    step = Decontaminate(step="decontaminate")
    evaluation = load_evaluation(step.against)
    facts = {
        "recall": measure_recall(dict(given.benchmark), evaluation, step, given.every),
        "rows": measure_rows(read_rows(given.rows, given.sample), evaluation, step),
        "thresholds": {"overlap": step.overlap, "resemblance": step.resemblance},
        "every": given.every,
        "sample": given.sample,
        "seconds": round(time.monotonic() - started, 1),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, one used",
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in ("numpy", "polars")},
    }
    print(markdown(facts))
    given.result.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
