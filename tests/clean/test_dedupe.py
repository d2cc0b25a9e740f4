from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.clean.dedupe import Dedupe, find_duplicates, preference
from curate.clean.minhash import sketch
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
    made = make_row(kind, text or path, make_origin("local", path=path, **origin), text=text)
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


def by_path(
    rows: list[dict[str, Any]], similarity: float | None = None
) -> dict[str, tuple[str, str]]:
    paths = {r["id"]: r["origin"]["path"] for r in rows}
    lost = find_duplicates(frame(rows), "text", similarity)
    return {paths[name]: (found.reason, paths[found.of]) for name, found in lost.items()}


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
    assert preference(better, "text") < preference(worse, "text")


@given(st.permutations(ROWS))
def test_order_does_not_matter(rows: list[dict[str, Any]]) -> None:
    expected = find_duplicates(frame(ROWS), "text", 0.7)
    assert find_duplicates(frame(rows), "text", 0.7) == expected


def test_verdict_frame() -> None:
    table = frame(ROWS)
    verdicts = Dedupe(step="dedupe", column="text").judge(table, Context())
    assert verdicts["id"].to_list() == table["id"].to_list()
    assert verdicts["reason"].drop_nulls().len() == 6
    for verdict in verdicts.drop_nulls("reason").to_dicts():
        evidence = json.loads(verdict["evidence"])
        assert evidence["similarity"] == 1.0
        assert evidence["of"] in set(table["id"])


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
    (verdict,) = step.judge(frame(rows), Context()).drop_nulls("reason").to_dicts()
    evidence = json.loads(verdict["evidence"])
    assert verdict["reason"] == "near_duplicate"
    assert evidence["of"] == rows[1]["id"]
    assert 0.9 < evidence["similarity"] < 1


@pytest.mark.parametrize("similarity", [0.7, 0.8])
def test_every_dropped_row_has_a_twin_that_stays(similarity: float) -> None:
    rows = grown(random.Random(1))
    rows += [{**r, "id": r["id"] + "copy"} for r in rows[::3]]
    texts = {r["id"]: r["text"] for r in rows}
    lost = find_duplicates(frame(rows), "text", similarity)
    reasons = {found.reason for found in lost.values()}
    assert reasons == {"exact_duplicate", "near_duplicate"}
    for name, found in lost.items():
        assert found.of not in lost
        exact = float(sketch([texts[name], texts[found.of]]).similarity(0, np.array([1]))[0])
        assert found.similarity == exact >= (1 if found.reason == "exact_duplicate" else similarity)


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
    expected = find_duplicates(frame(rows), "text", 0.75)
    assert expected
    for _ in range(5):
        rng.shuffle(rows)
        assert find_duplicates(frame(rows), "text", 0.75) == expected
