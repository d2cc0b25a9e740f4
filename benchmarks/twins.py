"""Which copies `dedupe` and `split` find, which other rows they drop, and what crosses splits.

    python benchmarks/twins.py RESULT.json --rows CACHE/steps/verify/*[0-9a-f].parquet \\
        --programs PACKAGES/liger_kernel PACKAGES/networkx

Rows are those that came to `split` in a finished run; their column ``wiring`` is used where a step
has set it, or is taken from --wirings, a JSON file that maps ids to its values.

- ``seeds``: the rows are split with each of `SEEDS` seeds. Rows of validation and test count that
  have a twin in train: one of the same graph (``graph``, ``exact``), or with an equal kernel, but
  for names and numbers (``kernel``). ``sources`` counts in how many seeds each split has rows of a
  source, for sources with three files or tasks.
- ``copies``: some rows are copied into another file, edited in the ways of `COPIES`, without a
  wiring, as a kernel that was found alone has none. A copy counts if it is in the cluster of its
  original; ``straddle`` are the pairs, times ten seeds, in two splits.
- ``dedupe``: functions and kernels of the programs are edited in the ways of `COPIES`, and in those
  of `OTHERS` that make another program of them. The counts are of edits that the step drops,
  without and with a similarity of 0.8.

An edit that changes nothing in a program counts nowhere. Run it on another checkout by PYTHONPATH.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import copy
import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl

from curate.clean.dedupe import Dedupe
from curate.clean.forms.parts import PlainProgram
from curate.clean.split import Split, repository
from curate.rows import ROW, make_origin, make_row
from curate.step import Context

SEEDS = 30
COPIED = 100
BASES = 40
WIRING = pl.Struct(
    {
        "exact": pl.String,
        "graph": pl.String,
        "hops": pl.List(pl.UInt32),
        "ops": pl.Int32,
        "values": pl.List(pl.String),
    }
)
EVALUATION = ("validation", "test")

Edit = Callable[[ast.Module, random.Random], None]


# --- edits ------------------------------------------------------------------------------------


def own_names(tree: ast.Module) -> set[str]:
    """Return the names that a program binds and that nobody outside it knows."""
    found: set[str] = set()
    methods = {id(n) for c in ast.walk(tree) if isinstance(c, ast.ClassDef) for n in c.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.FunctionDef) and id(node) not in methods:
            found.add(node.name)
    return {n for n in found if not hasattr(builtins, n) and n != "self" and n[:2] != "__"}


def rename(tree: ast.Module, rng: random.Random) -> None:
    """Rename all own names, keywords of calls of own functions and strings that name arguments."""
    names = sorted(own_names(tree))
    others = [f"name_{i}" for i in range(len(names))]
    rng.shuffle(others)
    new = dict(zip(names, others, strict=True))
    functions = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func.value if isinstance(node.func, ast.Subscript) else node.func
            if isinstance(called, ast.Name) and called.id in functions:
                for keyword in node.keywords:
                    keyword.arg = new.get(keyword.arg or "", keyword.arg)
    strings: list[ast.AST] = [n.slice for n in ast.walk(tree) if isinstance(n, ast.Subscript)]
    for node in ast.walk(tree):
        decorators = getattr(node, "decorator_list", [])
        if any("jit" in ast.unparse(decorator) for decorator in decorators):
            strings += [n for decorator in decorators for n in ast.walk(decorator)]
    for string in strings:
        if isinstance(string, ast.Constant):
            string.value = new.get(str(string.value), string.value)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = new.get(node.id, node.id)
        elif isinstance(node, ast.arg):
            node.arg = new.get(node.arg, node.arg)
        elif isinstance(node, ast.FunctionDef):
            node.name = new.get(node.name, node.name)


def blocks(tree: ast.Module) -> list[list[ast.stmt]]:
    """Return the bodies of the functions of a program."""
    return [n.body for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]


def change_constants(count: int) -> Edit:
    """Return an edit that changes some numbers."""

    def edit(tree: ast.Module, rng: random.Random) -> None:
        inside = [n for body in blocks(tree) for s in body for n in ast.walk(s)]
        numbers = [
            n for n in inside if isinstance(n, ast.Constant) and type(n.value) in (int, float)
        ]
        for node in rng.sample(numbers, min(count, len(numbers))):
            assert isinstance(node.value, int | float)
            node.value += 3

    return edit


def add_lines(count: int) -> Edit:
    """Return an edit that adds lines which change no result."""

    def edit(tree: ast.Module, rng: random.Random) -> None:
        for i in range(count):
            body = rng.choice(blocks(tree))
            lines = [f"print('step {i}')", f"unused_{i} = {i} + 1", f"assert {i} >= 0"]
            body.insert(rng.randrange(len(body)), ast.parse(rng.choice(lines)).body[0])

    return edit


def add_hints(tree: ast.Module, rng: random.Random) -> None:
    """Annotate every argument that has no hint, and what functions return."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = node.returns or ast.Name("object", ast.Load())
            for argument in node.args.args:
                argument.annotation = argument.annotation or ast.Constant("torch.Tensor")


def reorder(tree: ast.Module, rng: random.Random) -> None:
    """Exchange two neighbouring assignments of which neither reads the other."""
    for body in rng.sample(blocks(tree), len(blocks(tree))):
        for i in range(len(body) - 1):
            pair = body[i : i + 2]
            if all(isinstance(s, ast.Assign) for s in pair):
                names = [{n.id for n in ast.walk(s) if isinstance(n, ast.Name)} for s in pair]
                stored = [
                    {
                        n.id
                        for n in ast.walk(s)
                        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
                    }
                    for s in pair
                ]
                if not (stored[0] & names[1] or stored[1] & names[0]):
                    body[i : i + 2] = pair[::-1]
                    return


def document(tree: ast.Module, rng: random.Random) -> None:
    """Give functions a docstring, or take it away."""
    for body in blocks(tree):
        if (
            isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
            and len(body) > 1
        ):
            body.pop(0)
        else:
            body.insert(0, ast.Expr(ast.Constant("It does what it says.")))


def together(*edits: Edit) -> Edit:
    """Return an edit that does several, or nothing where one of them finds no place."""

    def edit(tree: ast.Module, rng: random.Random) -> None:
        changed = copy.deepcopy(tree)
        for one in edits:
            before = ast.dump(changed)
            one(changed, rng)
            if ast.dump(changed) == before:
                return
        tree.body = changed.body

    return edit


def swap(change: Callable[[ast.AST, random.Random], bool]) -> Edit:
    """Return an edit that changes one node: the first, in random order, that can be."""

    def edit(tree: ast.Module, rng: random.Random) -> None:
        nodes = [n for body in blocks(tree) for s in body for n in ast.walk(s)]
        rng.shuffle(nodes)
        for node in nodes:
            if change(node, rng):
                return

    return edit


_OPERATORS = (ast.Add, ast.Mult, ast.Sub)
_CALLS = {
    "exp": "log",
    "log": "exp",
    "sum": "max",
    "max": "min",
    "min": "max",
    "len": "id",
    "sqrt": "abs",
}
_COMPARED = {ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq}


def _operator(node: ast.AST, rng: random.Random) -> bool:
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, _OPERATORS)):
        return False
    node.op = rng.choice([kind for kind in _OPERATORS if not isinstance(node.op, kind)])()
    return True


def _operands(node: ast.AST, rng: random.Random) -> bool:
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub | ast.Div)):
        return False
    node.left, node.right = node.right, node.left
    return True


def _call(node: ast.AST, rng: random.Random) -> bool:
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _CALLS
    ):
        node.func.attr = _CALLS[node.func.attr]
        return True
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLS:
        node.func.id = _CALLS[node.func.id]
        return True
    return False


def _comparison(node: ast.AST, rng: random.Random) -> bool:
    if not (isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARED):
        return False
    node.ops[0] = _COMPARED[type(node.ops[0])]()
    return True


def _condition(node: ast.AST, rng: random.Random) -> bool:
    if not isinstance(node, ast.If | ast.While | ast.IfExp):
        return False
    node.test = ast.UnaryOp(ast.Not(), node.test)
    return True


COPIES: dict[str, Edit] = {
    "renamed": rename,
    "docstrings": document,
    "hints": add_hints,
    "hints, renamed": together(add_hints, rename),
    "one constant": change_constants(1),
    "one constant, renamed": together(change_constants(1), rename),
    "two constants, renamed": together(change_constants(2), rename),
    "one line": add_lines(1),
    "one line, renamed": together(add_lines(1), rename),
    "three lines, renamed": together(add_lines(3), rename),
    "one constant and one line, renamed": together(change_constants(1), add_lines(1), rename),
    "two lines exchanged, renamed": together(reorder, rename),
}
"""Edits that leave a program what it was, but for a constant."""

OTHERS: dict[str, Edit] = {
    "another operator": swap(_operator),
    "operands exchanged": swap(_operands),
    "another function": swap(_call),
    "comparison turned": swap(_comparison),
    "condition negated": swap(_condition),
}
"""Edits that make another program, which looks like the first."""


def edited(code: str, edit: Edit, seed: int) -> str | None:
    """Return a program after an edit; None if it is the same, written anew."""
    tree = ast.parse(code)
    before = ast.unparse(tree)
    edit(tree, random.Random(seed))
    after = ast.unparse(ast.fix_missing_locations(tree))
    return after if after != before else None


# --- split ------------------------------------------------------------------------------------


def split(rows: pl.DataFrame, seeds: int) -> list[dict[str, dict[str, Any]]]:
    """Return the verdicts of the step on rows by id, for each seed."""
    step = Split(step="split")
    summary = step.summarize(rows.select("id", "kind", *step.columns), Context())
    return [
        {v["id"]: v for v in step.judge(summary, Context(seed=seed)).to_dicts()}
        for seed in range(seeds)
    ]


class NoNumbers(ast.NodeTransformer):
    """Writes one number for all."""

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        return ast.Constant(0) if type(node.value) in (int, float) else node


def kernels(code: str) -> set[str]:
    """Return one hash of all kernels of a program, names and numbers left out."""
    program = PlainProgram(ast.unparse(NoNumbers().visit(ast.parse(code))))
    found = sorted(part.ast for part in program.parts(1) if part.kind == "kernel")
    return {" ".join(found)} if found else set()


def twins_by_seed(rows: pl.DataFrame) -> dict[str, Any]:
    """Return how many evaluation rows have a twin in train, over all seeds."""
    ids = rows["id"].to_list()
    looks: dict[str, list[set[str]]] = {"kernel": [kernels(code) for code in rows["triton"]]}
    for field in ("graph", "exact"):
        computes = rows["wiring"].struct.field("ops").fill_null(0) > 0
        hashes = rows["wiring"].struct.field(field).set(~computes, None)
        looks[field] = [{h} if h else set() for h in hashes]
    origins = rows["origin"].to_list()
    sources = [repository(o["repo"], o["purl"]) or o["source"] for o in origins]
    files: dict[str, set[str]] = defaultdict(set)
    for source, origin, row in zip(sources, origins, ids, strict=True):
        files[source].add(origin["path"] or row)
    found: dict[str, list[int]] = {name: [] for name in looks}
    held: Counter[str] = Counter()
    sizes: list[dict[str, int]] = []
    for verdicts in split(rows, SEEDS):
        sides = [verdict["split"] for verdict in verdicts.values()]
        sizes.append(dict(Counter(sides)))
        held.update({f"{source} in {side}" for source, side in zip(sources, sides, strict=True)})
        for name, marks in looks.items():
            train = set().union(*(m for m, s in zip(marks, sides, strict=True) if s == "train"))
            crossing = [m for m, s in zip(marks, sides, strict=True) if s != "train" and m & train]
            found[name].append(len(crossing))
    names = sorted(name for name, of in files.items() if len(of) >= 3)
    return {
        "twins": {
            name: {"seeds": sum(map(bool, n)), "rows": sum(n) / SEEDS, "most": max(n)}
            for name, n in found.items()
        },
        "sources": {f"{n} in {s}": held[f"{n} in {s}"] for n in names for s in EVALUATION},
        "sizes": {
            side: sum(size.get(side, 0) for size in sizes) / SEEDS
            for side in ("train", *EVALUATION)
        },
    }


def copies_in_clusters(rows: pl.DataFrame) -> dict[str, Any]:
    """Return how many copies of rows are in the cluster of their original, by kind of edit."""
    chosen = rows.sample(min(COPIED, len(rows)), seed=1)
    found = {}
    for name, edit in COPIES.items():
        made = []
        for i, row in enumerate(chosen.to_dicts()):
            if code := edited(row["triton"], edit, i):
                origin = {**row["origin"], "path": f"copies/{i}.py", "artifact_sha256": "copies"}
                new: dict[str, Any] = {"id": f"copy {row['id']}", "parent_ids": [], "wiring": None}
                made.append({**row, **new, "triton": code, "origin": origin})
        table = pl.concat([rows, pl.DataFrame(made, schema=rows.schema)])
        verdicts = split(table, 10)
        pairs = [(r["id"], r["id"].removeprefix("copy ")) for r in made]
        found[name] = {
            "copies": len(pairs),
            "clustered": sum(
                verdicts[0][a]["cluster"] == verdicts[0][b]["cluster"] for a, b in pairs
            ),
            "straddle": sum(v[a]["split"] != v[b]["split"] for v in verdicts for a, b in pairs),
        }
    return found


# --- dedupe -----------------------------------------------------------------------------------


def programs(paths: list[Path]) -> dict[str, list[str]]:
    """Return some kernels and some functions of Python files, chosen by chance."""
    kinds: dict[str, set[str]] = {"kernels": set(), "functions": set()}
    for path in sorted(file for folder in paths for file in folder.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and 8 <= sum(1 for _ in statements(node)) <= 60:
                jitted = any("jit" in ast.unparse(d) for d in node.decorator_list)
                kinds["kernels" if jitted else "functions"].add(ast.unparse(node))
    rng = random.Random(2)
    return {
        kind: rng.sample(sorted(found), min(BASES, len(found))) for kind, found in kinds.items()
    }


def statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements in a function."""
    return (n for n in ast.walk(node) if isinstance(n, ast.stmt))


def dropped(base: str, other: str, similarity: float | None) -> bool:
    """Say whether `dedupe` drops one of two programs."""
    step = Dedupe(step="dedupe", column="triton", similarity=similarity)
    rows = [
        make_row("kernel", code, make_origin("local", path=f"{i}.py"), triton=code)
        for i, code in enumerate((base, other))
    ]
    empty = pl.from_arrow(ROW.empty_table())
    assert isinstance(empty, pl.DataFrame)
    table = pl.DataFrame(rows, schema=empty.schema).select("id", "kind", *step.columns)
    verdicts = step.judge(step.summarize(table, Context()), Context())
    return verdicts["reason"].null_count() < len(rows)


def drops(paths: list[Path]) -> dict[str, Any]:
    """Return how many edited programs `dedupe` drops, by kind of program and edit."""
    found: dict[str, Any] = {}
    for kind, bases in programs(paths).items():
        for name, edit in {**COPIES, **OTHERS}.items():
            made = [(b, e) for i, b in enumerate(bases) if (e := edited(b, edit, i))]
            found[f"{kind}: {name}"] = {
                "edits": len(made),
                **{str(s): sum(dropped(b, e, s) for b, e in made) for s in (None, 0.8)},
            }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("result", type=Path)
    parser.add_argument("--rows", type=Path, nargs="+", required=True)
    parser.add_argument("--wirings", type=Path)
    parser.add_argument("--programs", type=Path, nargs="*", default=[])
    options = parser.parse_args()
    rows = pl.concat([pl.read_parquet(path) for path in options.rows])
    rows = rows.filter(pl.col("triton").is_not_null())
    if options.wirings:
        known = json.loads(options.wirings.read_text())
        wirings = [known.get(row) for row in rows["id"]]
        rows = rows.with_columns(pl.Series("wiring", wirings, dtype=WIRING))
    result = {"rows": len(rows), "seeds": twins_by_seed(rows), "copies": copies_in_clusters(rows)}
    if options.programs:
        result["dedupe"] = drops(options.programs)
    text = json.dumps(result, indent=1)
    options.result.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
