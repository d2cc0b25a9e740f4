import polars as pl

from curate.formats.dataset.index import INDEX
from curate.publish.changes import LABELS, compare

NAMES = INDEX.names


def index(**rows: dict[str, object]) -> pl.DataFrame:
    """Return an index with these rows; what is not told is null."""
    lines = [{**dict.fromkeys(NAMES), "targets": [], **row, "id": id} for id, row in rows.items()]
    return pl.DataFrame(lines, schema_overrides={"targets": pl.List(pl.String)}, strict=False)


def test_the_first_version_is_all_new() -> None:
    changes = compare(None, index(b={}, a={}))
    assert list(changes.lines()) == ["rows: 2 added"]
    assert changes.added == ["a", "b"]


def test_nothing_changed() -> None:
    one = index(a={"verdict": "correct"}, b={})
    assert list(compare(one, one).lines()) == ["rows: no change"]


def test_labels_that_changed_or_came_or_went() -> None:
    old = index(
        a={"verdict": "correct"},
        b={"targets": ["cuda:80"], "license": "MIT"},
        c={},
        d={"split": "train"},
        gone={},
    )
    new = index(
        a={"verdict": None},
        b={"targets": ["cuda:80", "cuda:90"], "license": "ISC"},
        c={"verdict": "correct"},
        d={"split": "train"},
    )
    changes = compare(old, new)
    assert changes.relabelled == {"verdict": ["a", "c"], "targets": ["b"], "license": ["b"]}
    assert list(changes.lines()) == [
        "rows: 1 removed, 3 relabelled",
        "  verdict of 2: a, c",
        "  targets of 1: b",
        "  license of 1: b",
        "  removed: gone",
    ]


def test_an_index_of_an_older_form_is_compared_by_what_it_has() -> None:
    old = index(a={"verdict": "correct"}).select("id", "license")
    assert compare(old, index(a={"verdict": "correct"})).relabelled == {}
    assert set(LABELS) <= set(NAMES)
