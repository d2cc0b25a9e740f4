from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from similar_pairs import confirmed_pairs

from curate.clean.groups import SplitsCross
from curate.clean.similar.minhash import sketch
from curate.clean.split import Split, repository
from curate.rows import make_origin
from curate.step import Context

KERNEL = """\
@triton.jit
def {name}_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    {body}
    tl.store(out_ptr + offsets, x, mask=mask)
"""


def different(i: int, lines: int = 30) -> str:
    return f"def kernel_{i}():\n" + "".join(
        f"    v{i}_{j} = f{i * 31 + j}(w{j})\n" for j in range(lines)
    )


def wiring(graph: str | None, ops: int = 3) -> dict[str, Any]:
    return {"exact": graph, "graph": graph, "hops": None, "ops": ops, "values": None}


def row(
    name: str, program: str, path: str | None = None, package: str = "", symbol: str | None = None
) -> dict[str, Any]:
    purl = f"pkg:pypi/{package}@1" if package else None
    artifact = "a" + package
    origin = make_origin("pypi", artifact_sha256=artifact, path=path, purl=purl, symbol=symbol)
    known = {"kind": "kernel", "triton": program, "origin": origin, "wiring": wiring(None)}
    return {"id": name, "parent_ids": [f"file of {name}"], **known}


def judge(rows: list[dict[str, Any]], shard: int = 7, seed: int = 0, **options: Any) -> dict:
    step = Split(step="split", **options)
    parts = [pl.DataFrame(rows[i : i + shard]) for i in range(0, len(rows), shard)]
    table = pl.concat([step.summarize(p, Context()) for p in parts], rechunk=False)
    frame = step.judge(table, Context(seed=seed))
    assert frame["id"].to_list() == [r["id"] for r in rows]
    return {r["id"]: r for r in frame.to_dicts()}


def judge_programs(programs: dict[str, str], **options: Any) -> dict:
    return judge([row(name, program) for name, program in programs.items()], **options)


def test_answers_to_one_task_stay_together_with_its_pair() -> None:
    rows = [row(name, different(i)) for i, name in enumerate("abcd")]
    for answer in rows[:2]:
        answer |= {"kind": "sample", "parent_ids": ["task", "prompt"]}
    rows[2] |= {"kind": "pair", "parent_ids": ["task"]}
    rows[3] |= {"kind": "pair", "parent_ids": ["another task"]}
    own = {**rows[3], "id": "task", "parent_ids": [], "triton": different(9)}
    clusters = {name: verdict["cluster"] for name, verdict in judge([*rows, own]).items()}
    assert clusters == {"a": "a", "b": "a", "c": "a", "d": "d", "task": "a"}


def test_near_duplicates_are_one_cluster() -> None:
    one = KERNEL.format(name="add", body="x = x + 1.0")
    two = KERNEL.format(name="add", body="x = x + 2.0")
    verdicts = judge_programs({"a": one, "b": two, "c": different(1)}, threshold=0.7)
    assert verdicts["a"]["cluster"] == verdicts["b"]["cluster"] != verdicts["c"]["cluster"]


def test_rows_of_one_file_are_one_cluster() -> None:
    paths = {"a": "x.py", "b": None, "c": "x.py", "d": "y.py"}
    rows = [row(name, different(i), path) for i, (name, path) in enumerate(paths.items())]
    verdicts = judge(rows)
    assert verdicts["a"]["cluster"] == verdicts["c"]["cluster"]
    assert len({v["cluster"] for v in verdicts.values()}) == 3


def test_rows_of_one_package_are_one_cluster_where_asked() -> None:
    packages = ["p", "", "p", "q", ""]
    rows = [row(f"{i}", different(i), f"{i}.py", package) for i, package in enumerate(packages)]
    assert len({v["cluster"] for v in judge(rows).values()}) == 5
    verdicts = judge(rows, repositories=True)
    assert verdicts["0"]["cluster"] == verdicts["2"]["cluster"] == "0"
    assert len({v["cluster"] for v in verdicts.values()}) == 4


def test_compositions_of_one_family_are_one_cluster() -> None:
    symbols = ["rotary#1", "rotary#12", "scan#1", "rotary", None]
    rows = [row(f"{i}", different(i), symbol=symbol) for i, symbol in enumerate(symbols)]
    rows.append(row("5", different(5), "x.py", symbol="rotary#1"))
    clusters = {name: verdict["cluster"] for name, verdict in judge(rows).items()}
    assert clusters == {"0": "0", "1": "0", "2": "2", "3": "3", "4": "4", "5": "5"}


@pytest.mark.parametrize(
    ("repo", "purl", "expected"),
    [
        ("https://x.org/a/b.git", None, "https://x.org/a/b"),
        ("https://x.org/a/b/", "pkg:pypi/b@2", "https://x.org/a/b"),
        (None, "pkg:pypi/b@2", "pkg:pypi/b"),
        (None, None, None),
    ],
)
def test_repository(repo: str | None, purl: str | None, expected: str | None) -> None:
    assert repository(repo, purl) == expected


def test_rows_without_code_or_origin() -> None:
    rows = [row("a", different(0)), row("b", different(1))]
    rows[0]["triton"] = rows[1]["origin"] = None
    assert {v["cluster"] for v in judge(rows, shard=2).values()} == {"a", "b"}


# copies

PROGRAM = """\
import triton
import triton.language as tl
from torch import nn

@triton.jit
def scale_kernel(x_ptr, out_ptr, count, factor: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    out = tl.exp(x) * factor + 0.5
    tl.store(out_ptr + offsets, out, mask=mask)

class ModelNew(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        out = x.new_empty(x.shape)
        count = x.numel()
        scale_kernel[(triton.cdiv(count, 256),)](x, out, count, self.factor, BLOCK=256)
        return out
"""

RENAMED = (
    PROGRAM.replace("x_ptr", "source")
    .replace("out_ptr", "target")
    .replace("offsets", "lanes")
    .replace("mask = ", "inside = ")
    .replace("=mask", "=inside")
    .replace("count", "size")
    .replace("BLOCK", "TILE")
    .replace("scale_kernel", "multiply")
    .replace("factor", "by")
)

COPIES = {
    "names": RENAMED,
    "a constant": RENAMED.replace("0.5", "0.25"),
    "a size": RENAMED.replace("256", "1024"),
    "a line that logs": RENAMED.replace("        return", "        print('done')\n        return"),
    "a line that nothing reads": RENAMED.replace("    out = tl", "    twice = x * 2\n    out = tl"),
    "three lines": RENAMED.replace(
        "    out = x", "    a = 1\n        b = 2\n        c = 3\n        out = x"
    ),
    "hints": RENAMED.replace("self, x)", "self, x: Tensor) -> Tensor").replace(
        "size =", "size: int ="
    ),
    "order": RENAMED.replace(
        "    out = x.new_empty(x.shape)\n        size = x.numel()",
        "    size = x.numel()\n        out = x.new_empty(x.shape)",
    ),
    "layout": RENAMED.replace("tl.load(", "(tl.load(\n            ").replace(
        "other=0.0)", "other=0.0,))"
    ),
    "imports": RENAMED.replace(
        "import triton.language as tl", "from triton import language as L"
    ).replace("tl.", "L."),
    "docstrings": RENAMED.replace(
        "    lanes =", '    """It scales."""\n    # a comment\n    lanes ='
    ),
}


@pytest.mark.parametrize("edit", COPIES)
def test_a_renamed_copy_is_in_the_cluster_of_its_original(edit: str) -> None:
    assert edit == "names" or COPIES[edit] != RENAMED
    rows = [
        row("a", PROGRAM, "a.py"),
        row("b", COPIES[edit], "b.py"),
        row("c", different(1), "c.py"),
    ]
    verdicts = judge(rows)
    assert verdicts["a"]["cluster"] == verdicts["b"]["cluster"] != verdicts["c"]["cluster"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tl.exp", "tl.log"),
        ("tl.exp(x) * by", "tl.exp(x) - by"),
        ("tl.exp(x) * by", "tl.exp(tl.exp(x)) * by"),
        ("    out = tl", "    x = tl.log(x)\n    out = tl"),
    ],
)
def test_a_program_that_computes_something_else_is_no_copy(old: str, new: str) -> None:
    assert old in RENAMED
    verdicts = judge([row("a", PROGRAM, "a.py"), row("b", RENAMED.replace(old, new), "b.py")])
    assert verdicts["a"]["cluster"] != verdicts["b"]["cluster"]


def test_the_same_kernel_in_another_wrapper_is_no_other_program() -> None:
    begin = RENAMED.index("class ModelNew")
    wrapper = "def run(x, by):\n    multiply[(4,)](x, x, 1024, by, 256)\n    return x\n"
    rows = [row("a", PROGRAM, "a.py"), row("b", RENAMED[:begin] + wrapper, "b.py")]
    assert {verdict["cluster"] for verdict in judge(rows).values()} == {"a"}


def test_rows_of_one_wiring_are_one_cluster() -> None:
    graphs = {"a": wiring("1"), "b": wiring("2"), "c": wiring("1"), "d": None, "e": None}
    graphs |= {"f": wiring("3", ops=0), "g": wiring("3", ops=0)}
    rows = [
        {**row(name, different(i), f"{name}.py"), "wiring": graph}
        for i, (name, graph) in enumerate(graphs.items())
    ]
    clusters = {name: verdict["cluster"] for name, verdict in judge(rows, shard=2).items()}
    assert clusters == {"a": "a", "b": "b", "c": "a", "d": "d", "e": "e", "f": "f", "g": "g"}


def test_a_twin_by_wiring_of_two_splits_is_dropped(tmp_path: Path) -> None:
    folder = write_splits(tmp_path, {"a": {"split": "test"}, "b": {"split": "train"}})
    rows = [row(name, different(i), f"{min(i, 1)}.py") for i, name in enumerate("abc")]
    rows[0]["wiring"] = rows[2]["wiring"] = wiring("1")
    verdicts = judge(rows, previous=folder)
    assert verdicts["c"]["reason"] == "joins_splits"
    assert json.loads(verdicts["c"]["evidence"]) == {"test": "a", "train": "b"}


# shares


def test_every_source_of_three_files_is_in_every_split() -> None:
    counts = {"large": 300, "small": 6, "three": 3, "two": 2}
    rows = [
        row(f"{package}{i}", different(100 * k + i), f"{i}.py", package)
        for k, (package, count) in enumerate(counts.items())
        for i in range(count)
    ]
    for seed in range(10):
        found: dict[str, set[str]] = {}
        for name, verdict in judge(rows, 100, seed).items():
            found.setdefault(name.rstrip("0123456789"), set()).add(verdict["split"])
        for package in ("large", "small", "three"):
            assert found[package] == {"train", "validation", "test"}


def test_most_of_a_source_is_never_moved() -> None:
    paths = ["a.py"] * 12 + ["b.py", "c.py"]
    rows = [row(f"p{i}", different(i), path, "p") for i, path in enumerate(paths)]
    rows += [row(f"q{i}", different(50 + i), f"{i}.py", "q") for i in range(90)]
    for seed in range(10):
        step = Split(step="split", test=0.2, validation=0.2)
        verdicts = judge(rows, 100, seed, test=0.2, validation=0.2)
        by_hash = step.side(verdicts["p0"]["cluster"], 12 / 104, seed)
        assert verdicts["p0"]["split"] == by_hash


@pytest.mark.parametrize("seed", range(5))
def test_each_source_has_its_share_in_each_split(seed: int) -> None:
    counts = {"a": 20, "b": 40, "c": 140}
    rows = [
        row(f"{package}{i}", different(100 * k + i), f"{i}.py", package)
        for k, (package, count) in enumerate(counts.items())
        for i in range(count)
    ]
    verdicts = judge(rows, 200, seed, test=0.1, validation=0.15)
    for package, count in counts.items():
        own = [v["split"] for name, v in verdicts.items() if name[0] == package]
        assert own.count("test") >= 0.1 * count
        assert own.count("validation") >= 0.15 * count
        assert own.count("train") > 0.5 * count


@pytest.mark.parametrize("held_out", [0, 1, 2])
def test_the_largest_packages_that_fit_are_held_out(held_out: int) -> None:
    counts = {"large": 60, "fits": 9, "small": 6, "tiny": 1}
    rows = [
        row(f"{package}{i}", different(100 * k + i), f"{i}.py", package)
        for k, (package, count) in enumerate(counts.items())
        for i in range(count)
    ]
    rows.append(row("copy", different(100), "copy.py", "large"))
    verdicts = judge(rows, 200, test=0.14, held_out=held_out)
    whole = [
        package
        for package, count in counts.items()
        if count > 1 and {verdicts[f"{package}{i}"]["split"] for i in range(count)} == {"test"}
    ]
    assert whole == ["fits", "small"][:held_out]
    assert not held_out or verdicts["copy"]["split"] == "test"


def test_a_split_that_is_not_asked_for_stays_empty() -> None:
    rows = [row(f"{i}", different(i), f"{i}.py", "p") for i in range(30)]
    splits = {verdict["split"] for verdict in judge(rows, 30, test=0).values()}
    assert splits == {"train", "validation"}


def test_a_cluster_above_the_share_of_a_split_is_in_train() -> None:
    for seed in range(30):
        rows = [row(f"{i:03}", different(i, 8), "x.py" if i < 21 else None) for i in range(200)]
        sides = {v["split"] for v in list(judge(rows, 50, seed, test=0.1).values())[:21]}
        assert sides == {"train"}
    assert any(
        judge(rows, 50, seed, validation=0, test=0.11)["000"]["split"] == "test"
        for seed in range(60)
    )


def test_shares_hold_for_every_kind_and_source() -> None:
    step = Split(step="split", validation=0.1, test=0.2)
    strata = {"kernel": 12_000, "pair": 5_000, "rare": 3_000}
    rng = random.Random(0)
    for stratum, count in strata.items():
        ids = [hashlib.sha256(f"{stratum}{i}".encode()).hexdigest()[:20] for i in range(count)]
        sides = [step.side(name, 1e-4, rng.randrange(2)) for name in ids]
        for split, share in (("train", 0.7), ("validation", 0.1), ("test", 0.2)):
            noise = (count * share * (1 - share)) ** 0.5
            assert abs(sides.count(split) - count * share) < 4 * noise


def test_clusters_fall_into_splits_as_asked() -> None:
    programs = {f"{i:03}": different(i) for i in range(400)}
    verdicts = judge_programs(programs, validation=0.2, test=0.3)
    splits = [v["split"] for v in verdicts.values()]
    assert 0.2 < splits.count("test") / 400 < 0.4
    assert 0.1 < splits.count("validation") / 400 < 0.3
    assert verdicts != judge_programs(programs, validation=0.2, test=0.3, seed=1)


# whole clusters


def world(rng: random.Random, count: int = 60, prefix: str = "") -> list[dict[str, Any]]:
    """Rows of families that drift, in files of packages."""
    rows = []
    for i in range(count):
        lines = different(rng.randrange(12)).splitlines()
        for _ in range(rng.randrange(3)):
            lines[rng.randrange(len(lines))] = f"    x{rng.randrange(10**6)} = 1"
        if rng.random() < 0.6:
            lines = different(100 + rng.randrange(10**6)).splitlines()
        path = rng.choice([None, f"{rng.randrange(12)}.py"])
        name = hashlib.sha256(f"{prefix}{rng.random()}{i}".encode()).hexdigest()[:20]
        rows.append(row(name, "\n".join(lines), path, rng.choice(["", *map(str, range(8))])))
    return rows


def ties(rows: list[dict[str, Any]], repositories: bool) -> set[tuple[str, str]]:
    """All pairs that must not cross, found one by one."""
    found = confirmed_pairs(sketch(r["triton"] for r in rows), 0.8)
    pairs = {(rows[i]["id"], rows[j]["id"]) for i, j, _ in found}
    for i, one in enumerate(rows):
        for two in rows[:i]:
            a, b = one["origin"], two["origin"]
            places = [(o["artifact_sha256"], o["path"]) for o in (a, b)]
            same = places[0] == places[1] and a["path"]
            if same or (repositories and a["purl"] and a["purl"] == b["purl"]):
                pairs.add((one["id"], two["id"]))
    return pairs


def check_whole(rows: list[dict[str, Any]], verdicts: dict, repositories: bool) -> None:
    for a, b in ties(rows, repositories):
        if verdicts[a]["reason"] is None is verdicts[b]["reason"]:
            assert verdicts[a]["cluster"] == verdicts[b]["cluster"]
    splits: dict[str, set[str]] = {}
    for verdict in verdicts.values():
        splits.setdefault(verdict["cluster"], set()).add(verdict["split"])
    assert all(len(found) == 1 for found in splits.values())


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.booleans())
def test_nothing_crosses(seed: int, repositories: bool) -> None:
    rng = random.Random(seed)
    rows = world(rng)
    options: dict[str, Any] = {"repositories": repositories, "test": 0.3, "validation": 0.2}
    verdicts = judge(rows, **options)
    check_whole(rows, verdicts, repositories)
    rng.shuffle(rows)
    assert judge(rows, shard=13, **options) == {r["id"]: verdicts[r["id"]] for r in rows}


# rows that are added


def write_splits(folder: Path, verdicts: dict, suffix: str = "") -> str:
    for split in ("train", "validation", "test"):
        ids = [name + suffix for name, v in verdicts.items() if v["split"] == split]
        (folder / "kernels").mkdir(parents=True, exist_ok=True)
        frame = pl.DataFrame({"id": ids}, schema={"id": pl.String})
        frame.write_parquet(folder / "kernels" / f"{split}-00000-of-00001.parquet")
    return str(folder)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6), repositories=st.booleans())
def test_rows_that_are_added_move_none(
    tmp_path_factory: pytest.TempPathFactory, seed: int, repositories: bool
) -> None:
    rng = random.Random(seed)
    rows = world(rng, 66)
    options: dict[str, Any] = {"repositories": repositories, "test": 0.3, "validation": 0.2}
    before = judge(rows[:60], **options)
    folder = write_splits(tmp_path_factory.mktemp("data"), before)
    rng.shuffle(rows)
    after = judge(rows, previous=folder, **options)
    for name, verdict in before.items():
        assert after[name]["split"] == verdict["split"]
        assert after[name]["reason"] is None
    check_whole(rows, after, repositories)
    for name in after.keys() - before.keys():
        if after[name]["reason"] is None:
            continue
        assert after[name]["reason"] == "joins_splits"
        named = json.loads(after[name]["evidence"])
        assert len(named) == 2
        assert all(before[old]["split"] == split for split, old in named.items())
    rng.shuffle(rows)
    assert judge(rows, 31, previous=folder, **options) == {r["id"]: after[r["id"]] for r in rows}


def test_a_row_that_ties_two_splits_is_dropped(tmp_path: Path) -> None:
    one, two = different(1), different(2)
    folder = write_splits(tmp_path, {"a": {"split": "test"}, "b": {"split": "train"}}, "-3")
    rows = [row("a", one), row("b", two, "b.py"), row("c", one, "b.py"), row("d", two)]
    verdicts = judge(rows, previous=folder)
    assert verdicts["c"]["reason"] == "joins_splits"
    assert json.loads(verdicts["c"]["evidence"]) == {"test": "a", "train": "b"}
    assert [verdicts[name]["split"] for name in "abcd"] == ["test", "train", None, "train"]


def test_earlier_splits_that_cross_are_an_error(tmp_path: Path) -> None:
    folder = write_splits(tmp_path, {"a": {"split": "test"}, "b": {"split": "train"}})
    for paths in (("x.py", "x.py"), (None, None)):
        same = different(1)
        rows = [row(name, same, path) for name, path in zip("ab", paths, strict=True)]
        with pytest.raises(SplitsCross, match=r"a \(test\) and b \(train\)"):
            judge(rows, previous=folder)


def test_an_earlier_data_set_counts_by_its_splits(tmp_path: Path) -> None:
    splits = {"a": {"split": "test"}, "b": {"split": "train"}}
    one, two = write_splits(tmp_path / "1", splits), write_splits(tmp_path / "2", splits, "-7")
    plain = Split(step="split").options()
    options = [Split(step="split", previous=folder).options() for folder in (one, two)]
    assert options[0] == options[1] != plain
    write_splits(tmp_path / "2", {**splits, "c": {"split": "test"}})
    assert Split(step="split", previous=two).options() != options[0]


def test_an_earlier_data_set_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="holds no data set"):
        Split(step="split", previous=str(tmp_path))
    folder = write_splits(tmp_path, {"a": {"split": "test"}})
    (tmp_path / "fim").mkdir()
    pl.DataFrame({"id": ["a-0"]}).write_parquet(tmp_path / "fim" / "train-00000-of-00001.parquet")
    with pytest.raises(ValidationError, match="row a in train and in test"):
        Split(step="split", previous=folder)
    (tmp_path / "fim" / "train-00000-of-00001.parquet").write_bytes(b"no parquet")
    with pytest.raises(ValidationError, match="cannot be read"):
        Split(step="split", previous=folder)
