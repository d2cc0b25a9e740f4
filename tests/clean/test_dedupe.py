from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from similar_pairs import confirmed_pairs

from curate.clean.dedupe import PREFERENCE, Dedupe, find_duplicates, preference
from curate.clean.similar import minhash
from curate.clean.similar.minhash import sketch
from curate.rows import ROW, make_origin, make_row
from curate.step import Context

BODY = """
    total = x * 2 + 1
    for item in range(10):
        total = total + item
    return total
"""


def code(name: str, body: str = BODY, comment: str = "") -> str:
    return f"def {name}(x):{body}{comment}"


def row(
    text: str | None,
    path: str,
    license: str | None = "MIT",
    kind: str = "file",
    status: str | None = None,
    **origin: Any,
) -> dict[str, Any]:
    made = make_row(kind, text or path, make_origin("local", path=path, **origin))
    made = {**made, "text": text}
    made["license"] = {"expression": license, "choice": None} if license else None
    made["verdict"] = {"status": status} if status else None
    return made


ROWS = [
    row(code("f"), "pkg/vendor/a.py"),
    row(code("f"), "pkg/a.py"),
    row(code("g"), "pkg/bbb.py"),
    row(code("g").replace("total", "t"), "pkg/b.py"),
    row("def f(x):\n    return -x\n", "pkg/c.py"),
    row("def f(x):\n    return -x\n", "c.py", license=None),
    row("def f(x):\n    return -x\n", "d.py", kind="module"),
    row("def g(y):\n    return -y\n", "short.py"),
    row("def f(x):\n    return +x\n", "h.py"),
    row("def f(x):\n    return +x\n", "vendor/deep/h.py", license="Apache-2.0"),
    row("not python", "e.py"),
    row("not python", "ee.py"),
    row(None, "f.py"),
    row(None, "g.py"),
]


def frame(rows: list[dict[str, Any]]) -> pl.DataFrame:
    columns = ["id", "kind", *Dedupe.columns]
    table = pa.Table.from_pylist(rows, schema=ROW).select(columns)
    made = pl.from_arrow(table)
    assert isinstance(made, pl.DataFrame)
    return made


def summaries(
    rows: list[dict[str, Any]], similarity: float | None = None, shard: int = 5
) -> pl.DataFrame:
    """The table that `judge` is given: a chunk for each shard."""
    step = Dedupe(step="dedupe", column="text", similarity=similarity)
    parts = [rows[i : i + shard] for i in range(0, len(rows), shard)]
    return pl.concat([step.summarize(frame(part), Context()) for part in parts], rechunk=False)


def found(rows: list[dict[str, Any]], similarity: float | None = None) -> dict[str, Any]:
    """Why rows are dropped, by id, whatever the order of rows and the size of shards."""
    lost = find_duplicates(summaries(rows, similarity), similarity)
    return {row.pop("id"): row for row in lost.to_dicts()}


def by_path(
    rows: list[dict[str, Any]], similarity: float | None = None
) -> dict[str, tuple[str, str]]:
    paths = {r["id"]: r["origin"]["path"] for r in rows}
    lost = found(rows, similarity)
    return {paths[name]: (twin["reason"], paths[twin["of"]]) for name, twin in lost.items()}


def test_which_row_stays() -> None:
    assert by_path(ROWS) == {
        "pkg/vendor/a.py": ("exact_duplicate", "pkg/a.py"),
        "pkg/bbb.py": ("renamed_duplicate", "pkg/a.py"),
        "pkg/b.py": ("renamed_duplicate", "pkg/a.py"),
        "c.py": ("exact_duplicate", "pkg/c.py"),
        "ee.py": ("exact_duplicate", "e.py"),
        "h.py": ("exact_duplicate", "vendor/deep/h.py"),
    }


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (row("x", "a/b.py", None, status="correct"), row("x", "a.py")),
        (row("x", "a.py", status="unsupported"), row("x", "b.py")),
        (row("x", "a/b.py"), row("x", "a.py", status="incorrect")),
        (row("x", "a/b.py"), row("x", "a.py", None)),
        (row("x", "a/b.py", "Apache-2.0"), row("x", "a.py", "MIT")),
        (row("x", "a/b.py"), row("x", "a.py", derived_from=["https://example.org/x.py"])),
        (row("x", "a.py", derived_from=["pkg/y.py:1-2"]), row("x", "b.py")),
        (row("x", "a/b.py", purl="pkg:pypi/x@1"), row("x", "a.py")),
        (row("x", "a/b.py"), row("x", "a.py", generator={"name": "inductor", "tools": []})),
        (row("x", "a_long_name.py"), row("x", "a/b.py")),
        (row("x + 1", "bb.py"), row("x", "a.py")),
        (row("x", "b.py"), row("x", "aa.py")),
        (row("x", "a.py"), row("x", "b.py")),
    ],
)
def test_preference(better: dict[str, Any], worse: dict[str, Any]) -> None:
    better, worse = {**better, "id": "b"}, {**worse, "id": "a"}
    keys = preference(rows := frame([worse, better]), rows["text"])
    assert keys.sort(PREFERENCE)["id"].to_list() == ["b", "a"]
    assert keys.sort(PREFERENCE[:-1], maintain_order=True)["id"].to_list() == ["b", "a"]


@settings(max_examples=30, deadline=None)
@given(st.permutations(ROWS), st.integers(1, 14))
def test_order_and_shards_do_not_matter(rows: list[dict[str, Any]], shard: int) -> None:
    expected = found(ROWS, 0.7)
    lost = find_duplicates(summaries(rows, 0.7, shard), 0.7)
    assert {row.pop("id"): row for row in lost.to_dicts()} == expected


def test_verdict_frame() -> None:
    table = summaries(ROWS)
    verdicts = Dedupe(step="dedupe", column="text").judge(table, Context())
    assert verdicts["id"].to_list() == table["id"].to_list() == [r["id"] for r in ROWS]
    assert verdicts["reason"].drop_nulls().len() == 6
    for verdict in verdicts.drop_nulls("reason").to_dicts():
        evidence = json.loads(verdict["evidence"])
        assert evidence["similarity"] == 1.0
        assert evidence["of"] in set(table["id"])


@pytest.mark.parametrize("similarity", [None, 0.8])
def test_nothing_to_compare(similarity: float | None) -> None:
    step = Dedupe(step="dedupe", column="text", similarity=similarity)
    for rows in ([], ROWS[-2:]):
        verdicts = step.judge(step.summarize(frame(rows), Context()), Context())
        assert verdicts["id"].to_list() == [r["id"] for r in rows]
        assert verdicts["reason"].null_count() == len(rows)


# wirings


def pair(path: str, exact: str | None, ops: int = 2, **columns: Any) -> dict[str, Any]:
    made = row(None, path, kind=columns.pop("kind", "pair"))
    graph = {"exact": exact, "graph": "g", "hops": [], "ops": ops, "values": []}
    return {**made, "reference": code(path[0]), "wiring": graph if exact else None, **columns}


def lost_by_wiring(rows: list[dict[str, Any]], shard: int = 2) -> dict[str, tuple[str, str]]:
    step = Dedupe(step="dedupe", column="wiring")
    parts = [rows[i : i + shard] for i in range(0, len(rows), shard)]
    table = pl.concat([step.summarize(frame(part), Context()) for part in parts])
    verdicts = step.judge(table, Context()).drop_nulls("reason")
    paths = {r["id"]: r["origin"]["path"] for r in rows}
    return {
        paths[v["id"]]: (v["reason"], paths[json.loads(v["evidence"])["of"]])
        for v in verdicts.to_dicts()
    }


def test_of_rows_with_one_wiring_one_stays() -> None:
    rows = [
        *(pair("b.py", "1"), pair("a.py", "1"), pair("c.py", "2"), pair("d/e.py", "1")),
        *(pair("f.py", None), pair("g.py", None)),
    ]
    twins = {"b.py": ("wiring_duplicate", "a.py"), "d/e.py": ("wiring_duplicate", "a.py")}
    assert lost_by_wiring(rows) == lost_by_wiring(rows[::-1], 3) == twins


def test_only_what_computes_something_has_a_twin_by_wiring() -> None:
    answers = {"kind": "sample", "triton": code("f")}
    rows = [
        *(pair("a.py", "1", ops=0), pair("b.py", "1", ops=0)),
        *(pair("c.py", "2", **answers), pair("d.py", "2", **answers)),
        *(pair("e.py", "3"), pair("f.py", "3", kind="task")),
        *(pair("g.py", "4", reference=None), pair("h.py", "4")),
    ]
    assert lost_by_wiring(rows) == {}


def test_a_wiring_is_not_nearly_the_same() -> None:
    with pytest.raises(ValidationError, match="similarity compares texts"):
        Dedupe(step="dedupe", column="wiring", similarity=0.8)
    with pytest.raises(ValidationError, match="twins compares texts"):
        Dedupe(step="dedupe", column="wiring", twins=True)


# structural twins


@pytest.mark.parametrize("twins", [False, True])
def test_structural_twins_are_an_option(twins: bool) -> None:
    rows = [
        row(code("f"), "a.py"),
        row(code("g", BODY.replace("x * 2", "x - 7")), "b.py"),
        row(code("h", BODY.replace("x * 2", "x * x")), "c.py"),
    ]
    step = Dedupe(step="dedupe", column="text", twins=twins)
    verdicts = step.judge(step.summarize(frame(rows), Context()), Context())
    assert verdicts["reason"].to_list() == [None, "structural_twin" if twins else None, None]


# near duplicates


def family(rng: random.Random, lines: int = 30) -> list[str]:
    return [f"v{rng.randrange(10**6)} = f{rng.randrange(10**6)}(x, {i})" for i in range(lines)]


def grown(rng: random.Random, families: int = 8, members: int = 12) -> list[dict[str, Any]]:
    """Rows in families that drift: each member is an edit of the one before it."""
    rows = []
    for number in range(families):
        lines = family(rng)
        for member in range(members):
            rows.append(row("\n".join(lines), f"{number}/{member:02}.py"))
            lines = list(lines)
            lines[rng.randrange(len(lines))] = family(rng, 1)[0]
    return rows


def test_near_duplicates_are_an_option() -> None:
    rng = random.Random(0)
    lines = family(rng)
    rows = [
        row("\n".join(lines), "a.py"),
        row("\n".join([*lines, "y = 1"]), "b.py"),
        row("\n".join(family(rng)), "c.py"),
        row("\n".join(lines), "d.py", kind="module"),
    ]
    assert by_path(rows) == {}
    assert by_path(rows, 0.8) == {"a.py": ("near_duplicate", "b.py")}
    assert by_path(rows, 1.0) == {}
    step = Dedupe(step="dedupe", column="text", similarity=0.8)
    table = summaries(rows, 0.8)
    (verdict,) = step.judge(table, Context()).drop_nulls("reason").to_dicts()
    evidence = json.loads(verdict["evidence"])
    assert verdict["reason"] == "near_duplicate"
    assert evidence["of"] == rows[1]["id"]
    assert 0.9 < evidence["similarity"] < 1


@pytest.mark.parametrize("similarity", [0.7, 0.8])
def test_every_dropped_row_has_a_twin_that_stays(similarity: float) -> None:
    rows = grown(random.Random(1))
    rows += [{**r, "id": r["id"] + "copy"} for r in rows[::3]]
    texts = {r["id"]: r["text"] for r in rows}
    lost = found(rows, similarity)
    reasons = {twin["reason"] for twin in lost.values()}
    assert reasons == {"exact_duplicate", "near_duplicate"}
    for name, twin in lost.items():
        assert twin["of"] not in lost
        pair = sketch([texts[name], texts[twin["of"]]])
        exact = float(pair.similarities(np.array([0]), np.array([1]))[0])
        least = 1 if twin["reason"] == "exact_duplicate" else similarity
        assert twin["similarity"] == exact >= least


def test_a_chain_keeps_its_far_end() -> None:
    lost = by_path(grown(random.Random(2), families=1), 0.8)
    assert 0 < len(lost) < 11


def test_what_is_like_a_dropped_row_only_stays() -> None:
    rng = random.Random(3)
    lines = family(rng, 20)
    best = row("\n".join([*lines, "y = 1", "z = 2"]), "a.py", "Apache-2.0")
    middle = row("\n".join(lines), "b.py")
    renamed = row("\n".join(lines).replace("v", "w"), "c.py", None)
    assert by_path([middle, renamed]) == {"c.py": ("renamed_duplicate", "b.py")}
    assert by_path([best, middle, renamed], 0.8) == {"b.py": ("near_duplicate", "a.py")}


def test_order_does_not_matter_for_near_duplicates() -> None:
    rng = random.Random(4)
    rows = grown(rng, families=3)
    expected = found(rows, 0.75)
    assert expected
    for shard in (1, 7, 20, 36, 1):
        rng.shuffle(rows)
        lost = find_duplicates(summaries(rows, 0.75, shard), 0.75)
        assert {row.pop("id"): row for row in lost.to_dicts()} == expected


def one_by_one(rows: list[dict[str, Any]], similarity: float) -> dict[str, Any]:
    """What the step's docstring says, row by row; candidates are those of `confirmed_pairs`."""
    table = summaries(rows, similarity).sort(PREFERENCE)
    texts = {r["id"]: r["text"] for r in rows}
    ids = table["id"].to_list()
    alike: dict[str, list[tuple[float, int, str]]] = {}
    for i, j, s in confirmed_pairs(sketch(texts[name] for name in ids), similarity):
        alike.setdefault(ids[j], []).append((-s, i, ids[i]))
    first: dict[str, str] = {}
    canonical: dict[bytes, str] = {}
    lost: dict[str, Any] = {}
    for name, code in table.select("id", "canonical").iter_rows():
        twins = [twin for twin in alike.get(name, ()) if twin[2] not in lost]
        of, s = "", 1.0
        if original := first.get(texts[name]):
            known = {"reason": "exact_duplicate", "of": original, "similarity": 1.0}
            lost[name] = lost.get(original, known)
            continue
        first[texts[name]] = name
        if code in canonical:
            reason, of = "renamed_duplicate", canonical[code]
        elif twins:
            reason, (s, _, of) = "near_duplicate", min(twins)
        else:
            if code:
                canonical[code] = name
            continue
        lost[name] = {"reason": reason, "of": of, "similarity": abs(s)}
    return lost


@pytest.mark.parametrize("pairs", [1, 40, minhash.PAIRS])
@pytest.mark.parametrize("block", [3, minhash.BLOCK])
def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch, pairs: int, block: int) -> None:
    rng = random.Random(5)
    rows = grown(rng, families=6)
    rows += [row(r["text"], "copy/" + r["origin"]["path"]) for r in rows[::5]]
    rows += [row(r["text"].replace("v", "w"), r["origin"]["path"], None) for r in rows[::4]]
    rng.shuffle(rows)
    expected = one_by_one(rows, 0.8)
    assert len({twin["reason"] for twin in expected.values()}) == 3
    monkeypatch.setattr(minhash, "PAIRS", pairs)
    monkeypatch.setattr(minhash, "BLOCK", block)
    assert found(rows, 0.8) == expected


def test_sketches_in_files_give_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rows = grown(random.Random(6))
    expected = found(rows, 0.8)
    monkeypatch.setattr(minhash, "IN_MEMORY", 0)
    table = summaries(rows, 0.8)
    lost = find_duplicates(table, 0.8, tmp_path / "cache")
    assert {row.pop("id"): row for row in lost.to_dicts()} == expected
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize(("column", "lost"), [("reference", 0), ("triton", 1)])
def test_answers_to_one_task_are_compared_by_their_programs_only(column: str, lost: int) -> None:
    rows = [
        {**row(None, f"{i}.py", kind="sample"), "reference": code("f"), "triton": code(name)}
        for i, name in enumerate(("g", "h", "g"))
    ]
    rows[1]["triton"] = "def h(x):\n    return -x\n"
    step = Dedupe.model_validate({"step": "dedupe", "column": column})
    verdicts = step.judge(step.summarize(frame(rows), Context()), Context())
    assert len(rows) - verdicts["reason"].null_count() == lost
