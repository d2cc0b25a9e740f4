"""Which files become rows, and that useless ones are named and not lost."""

from pathlib import Path

import pytest

from curate.cache.artifact import Info, store
from curate.rows import Row
from curate.sources.files import NOT_LIBRARY, select
from curate.sources.local import Local
from curate.step import Drop, SourceError

PATHS = [
    "setup.py",
    "pkg/__init__.py",
    "pkg/layers/attention.py",
    "pkg/tests/test_x.py",
    "tests/helper.py",
    "pkg/test_x.py",
    "pkg/latest.py",
    "pkg/ops.cu",
    "docs/conf.py",
]


@pytest.mark.parametrize(
    ("include", "exclude", "expected"),
    [
        (["**/*.py"], NOT_LIBRARY, ["__init__.py", "latest.py", "attention.py"]),
        (["pkg/*.py"], [], ["__init__.py", "latest.py", "test_x.py"]),
        (["**/*.cu"], [], ["ops.cu"]),
        (["pkg/layers/**"], [], ["attention.py"]),
        (["pkg/?atest.py"], [], ["latest.py"]),
        (["*.py"], [], ["setup.py"]),
        (["pkg/l[ae]test.py"], [], []),
    ],
)
def test_globs(include: list[str], exclude: list[str], expected: list[str]) -> None:
    assert [path.rsplit("/", 1)[-1] for path in select(PATHS, include, exclude)] == expected


def rows_of(tmp_path: Path, **options: object) -> list[Row | tuple[Row, Drop]]:
    files = [
        ("a.py", b"x = 1\r\n"),
        ("b.py", b"  \n"),
        ("c.py", b"x = '\xe9'\n"),
        ("d.py", b"#" * 2000),
    ]
    artifact = store(tmp_path, "a" * 64, Info(source="local"), files)
    step = Local.model_validate({"source": "local", "path": ".", **options})
    return list(step._rows("demo", artifact))


def test_rows_and_drops(tmp_path: Path) -> None:
    kept, empty, latin, large = rows_of(tmp_path, max_file_kb=1)
    assert isinstance(kept, dict)
    assert (kept["kind"], kept["text"]) == ("file", "x = 1\r\n")
    assert kept["origin"]["path"] == "a.py"
    assert kept["origin"]["source"] == "local"
    assert isinstance(empty, tuple) and isinstance(latin, tuple) and isinstance(large, tuple)
    assert empty[1] == Drop("empty_file", {"bytes": 3})
    assert latin[1] == Drop("not_utf8", {"offset": 5, "bytes": "e9270a"})
    assert large[1] == Drop("file_too_large", {"bytes": 2000, "allowed": 1024})
    assert {row[0]["text"] for row in (empty, latin, large)} == {None}
    assert len({kept["id"], empty[0]["id"], latin[0]["id"], large[0]["id"]}) == 4


def test_globs_that_match_nothing_are_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="demo: none of its 4 files matches `include`"):
        rows_of(tmp_path, include=["src/**/*.py"])
