"""What a data set is a mixture of: sources, families, levels, twins, products, splits.

    python benchmarks/mixture.py output/kernelbook_messages [OTHER ...]

Prints a table with a column for each folder that curate wrote. What is counted is plain to see in
the rows; nothing runs. A row is *one pointwise line* if its family is ``elementwise`` and it is one
kernel without a loop, of whose lines one at most computes something from what was loaded. *Twins*
have the same kernels but for names, numbers and operators (`curate.clean.forms.twins`). A *family*
is what a composition's symbol names before its number. A row of test has a *near twin* in train if
their programs share `NEAR` of their runs of `RUN` tokens of the syntax, names and numbers aside.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from curate.clean.forms.canonical import tokens_sha256, tree_tokens
from curate.clean.forms.syntax import is_jitted
from curate.clean.forms.twins import twin_tokens
from curate.formats.dataset.leakage import jaccard

SPLITS = ("train", "validation", "test")
NEAR, RUN = 0.8, 15
REDUCES = r"tl\.(sum|max|min|reduce|dot|argmax|argmin|associative_scan|sort|cumsum|cumprod)\b"
ODD = {
    "bessel": r"bessel",
    "masked.*": r"torch\.masked\.",
    "softmax in float64": r"softm(ax|in)\([^\n]*float64",
    "resized to at most 9": r"interpolate\(x, size=\((\d, )*\d?,?\)",
    "float64 anywhere": r"float64",
}


def read(folder: Path) -> list[dict[str, Any]]:
    """Return a data set's pairs with their split, and level and family of its messages."""
    shown: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob("messages/*.parquet")):
        for row in pl.read_parquet(path).iter_rows(named=True):
            shown[row["id"].partition("-")[0]] = row
    rows = []
    for split in SPLITS:
        for path in sorted(folder.glob(f"pairs/{split}-*.parquet")):
            for row in pl.read_parquet(path).iter_rows(named=True):
                said = shown.get(row["id"], {})
                found = {name: said.get(name) for name in ("level", "family", "dtypes")}
                rows.append({**row, **found, "split": split})
    return rows


def source(row: dict[str, Any]) -> str:
    """Return the package that a row comes from; operators and compositions are apart."""
    origin = row["origin"]
    package = (origin["purl"] or origin["repo"] or "?").partition("@")[0].removeprefix("pkg:pypi/")
    if origin["source"] != "torch_ops":
        return str(package)
    return "torch: compositions" if composition(row) else "torch: operators"


def composition(row: dict[str, Any]) -> str | None:
    """Return the family of a composition."""
    if row["origin"]["source"] != "torch_ops":
        return None
    from curate.sources.torch_ops.compositions import FAMILIES

    family = str(row["origin"]["symbol"]).partition("#")[0]
    return family if family in {write.__name__ for write in FAMILIES} else None


def is_one_line(row: dict[str, Any]) -> bool:
    """Whether a row is one kernel that computes at most one thing of each element."""
    if row["family"] != "elementwise":
        return False
    tree = ast.parse(row["triton"])
    jitted = [node for node in tree.body if isinstance(node, ast.FunctionDef) and is_jitted(node)]
    if len(jitted) != 1:
        return False
    kernel = jitted[0]
    loops = any(isinstance(node, ast.For | ast.While) for node in ast.walk(kernel))
    return not loops and not re.search(REDUCES, ast.unparse(kernel)) and _computing(kernel) <= 1


def _computing(kernel: ast.FunctionDef) -> int:
    """Return how many statements compute something of what was loaded."""
    loaded: set[str] = set()
    count = 0
    for node in kernel.body:
        if isinstance(node, ast.Assign):
            value = node.value
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and node.value.args:
            value = node.value.args[-1]  # of tl.store
        else:
            continue
        reads = {name.id for name in ast.walk(value) if isinstance(name, ast.Name)}
        load = "tl.load(" in ast.unparse(value)
        if load or reads & loaded:
            if isinstance(node, ast.Assign):
                names = ast.walk(node.targets[0])
                loaded |= {name.id for name in names if isinstance(name, ast.Name)}
            plain = re.sub(r"\.to\([\w.]+\)$", "", ast.unparse(value))
            copies = re.fullmatch(r"tl\.load\(.*\)|\w+", plain) is not None
            count += not copies
    return count


def is_backward(row: dict[str, Any]) -> bool:
    """Whether a problem asks for gradients, of a module's or by formulas."""
    asks = r"def forward\(self[^)]*\bgrad_out|torch\.autograd\.grad\("
    return re.search(asks, row["reference"]) is not None


def twins(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return the groups of rows that are twins."""
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[tokens_sha256(twin_tokens(row["triton"]))].append(row)
    return [group for group in groups.values() if len(group) > 1]


def runs(row: dict[str, Any]) -> set[tuple[str, ...]]:
    """Return the runs of tokens of a program's syntax, names and numbers aside."""
    tree = ast.parse(row["triton"])
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and not isinstance(node.value, bool | None):
            node.value = 0
    tokens = tree_tokens(tree)
    return {tuple(tokens[i : i + RUN]) for i in range(len(tokens) - RUN + 1)}


def near_twins(rows: list[dict[str, Any]]) -> int:
    """Return how many rows of test have a near twin in train.

    Of two sets that share so much, each has one of the rarest elements of the other.
    """
    train = [runs(row) for row in rows if row["split"] == "train"]
    holders = defaultdict(list)
    for i, one in enumerate(train):
        for run in one:
            holders[run].append(i)

    def has_twin(one: set[tuple[str, ...]]) -> bool:
        rarest = sorted(one, key=lambda run: len(holders.get(run, ())))
        few = rarest[: int((1 - NEAR) * len(one)) + 1]
        likely = {i for run in few for i in holders.get(run, ())}
        return any(jaccard(one, train[i]) >= NEAR for i in likely)

    return sum(has_twin(runs(row)) for row in rows if row["split"] == "test")


Counts = dict[str, str]


def count(rows: list[dict[str, Any]]) -> Counts:
    """Return what a data set is a mixture of, as lines of a table."""
    found: Counts = {}

    def add(name: str, number: int, of: int = len(rows)) -> None:
        found[name] = f"{number} ({number / max(of, 1):.0%})"

    found["rows"] = str(len(rows))
    packages = [row for row in rows if row["origin"]["source"] != "torch_ops"]
    add("modules of packages", len(packages))
    add("one pointwise line", sum(map(is_one_line, rows)))
    groups = twins(rows)
    add("twins beyond the first of each group", sum(len(group) - 1 for group in groups))
    add("`tl.dot`", sum("tl.dot(" in row["triton"] for row in rows))
    add("`tl.dot` in packages", sum("tl.dot(" in r["triton"] for r in packages), len(packages))
    add("backward passes", sum(map(is_backward, rows)))
    for name, pattern in ODD.items():
        add(f"odd: {name}", sum(bool(re.search(pattern, row["reference"])) for row in rows))
    for name, key in _KEYS.items():
        for value, number in sorted(Counter(key(row) for row in rows).items(), key=str):
            add(f"{name}: {value}", number)
    return found | _splits(rows)


_KEYS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "source": source,
    "level": lambda row: row["level"],
    "family": lambda row: row["family"],
    "type": lambda row: next((t for t in row["dtypes"] or () if "float" in t), "no float"),
}


def _splits(rows: list[dict[str, Any]]) -> Counts:
    found: Counts = {}
    for name in sorted({source(row) for row in rows}):
        own = [row["split"] for row in rows if source(row) == name]
        shares = (own.count(split) for split in ("validation", "test"))
        found[f"validation, test: {name}"] = ", ".join(f"{n / len(own):.0%}" for n in shares)
    kinds: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        kinds[composition(row) or source(row)].add(row["split"])
    both = sorted(kind for kind, splits in kinds.items() if {"train", "test"} <= splits)
    found["families and sources in train and test"] = ", ".join(both) or "none"
    held = sorted(kind for kind, splits in kinds.items() if splits == {"test"})
    found["families and sources in test only"] = ", ".join(held) or "none"
    tested = sum(row["split"] == "test" for row in rows)
    found["rows of test with a near twin in train"] = f"{near_twins(rows)} of {tested}"
    found["rows with 80 % of the words of a row of another split"] = str(
        sum(row["split_overlap_id"] is not None for row in rows)
    )
    return found


def main() -> None:
    folders = [Path(name) for name in sys.argv[1:]]
    if not folders:
        raise SystemExit(__doc__)
    columns = [count(read(folder)) for folder in folders]
    print("| |" + "".join(f" {folder.name} |" for folder in folders))
    print("|-|" + "-|" * len(folders))
    for name in dict.fromkeys(name for column in columns for name in column):
        print(f"| {name} |" + "".join(f" {column.get(name, '0')} |" for column in columns))


if __name__ == "__main__":
    main()
