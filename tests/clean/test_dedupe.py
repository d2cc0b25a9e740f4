from __future__ import annotations

import json
from typing import Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from curate.clean.dedupe import Dedupe, find_duplicates
from curate.rows import make_origin, make_row
from curate.step import Context


def row(text: str | None, path: str, license: str | None = "MIT", kind: str = "file") -> dict:
    origin = make_origin("local", path=path)
    made = make_row(kind, text or path, origin, text=text)
    made["license"] = {"expression": license} if license else None
    return made


ROWS = [
    row("def f(x):\n    return x\n", "pkg/vendor/a.py"),
    row("def f(x):\n    return x\n", "pkg/a.py"),
    row("def g(y):\n    return y  # the same\n", "pkg/b.py"),
    row("def f(x):\n    return -x\n", "pkg/c.py"),
    row("def f(x):\n    return -x\n", "c.py", license=None),
    row("def f(x):\n    return -x\n", "d.py", kind="module"),
    row("def f(x):\n    return +x\n", "h.py"),
    row("def f(x):\n    return +x\n", "vendor/deep/h.py", license="Apache-2.0"),
    row("not python", "e.py"),
    row("not python", "ee.py"),
    row(None, "f.py"),
    row(None, "g.py"),
]


def by_path(lost: dict[str, tuple[str, str]]) -> dict[str, tuple[str, str]]:
    paths = {r["id"]: r["origin"]["path"] for r in ROWS}
    return {paths[lost_id]: (reason, paths[kept]) for lost_id, (reason, kept) in lost.items()}


def test_which_row_stays() -> None:
    assert by_path(find_duplicates(ROWS, "text")) == {
        "pkg/vendor/a.py": ("exact_duplicate", "pkg/a.py"),
        "pkg/b.py": ("renamed_duplicate", "pkg/a.py"),
        "c.py": ("exact_duplicate", "pkg/c.py"),
        "ee.py": ("exact_duplicate", "e.py"),
        "h.py": ("exact_duplicate", "vendor/deep/h.py"),
    }


@given(st.permutations(ROWS))
def test_order_does_not_matter(rows: list[dict[str, Any]]) -> None:
    assert find_duplicates(rows, "text") == find_duplicates(ROWS, "text")


def test_verdict_frame() -> None:
    step = Dedupe(step="dedupe", column="text")
    columns = ["id", "kind", *step.columns]
    table = pl.DataFrame([{name: r[name] for name in columns} for r in ROWS])
    verdicts = step.judge(table, Context())
    assert verdicts["id"].to_list() == table["id"].to_list()
    assert verdicts["reason"].drop_nulls().len() == 5
    for verdict in verdicts.drop_nulls("reason").to_dicts():
        evidence = json.loads(verdict["evidence"])
        assert evidence["similarity"] == 1.0
        assert evidence["of"] in set(table["id"])
