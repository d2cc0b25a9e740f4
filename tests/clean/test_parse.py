from __future__ import annotations

import pytest

from curate.clean.parse import Parse, find_syntax_error
from curate.rows import make_origin, make_row
from curate.step import Context, Drop, Keep


@pytest.mark.parametrize(
    ("code", "line", "message"),
    [
        ("x = 1\nprint 'x'\n", 2, "print"),
        ("def f():\nreturn 1\n", 2, "indented"),
        ("return 1\n", 1, "outside function"),
        ("x = (1,\n", 1, "never closed"),
        ("x = 1\0\n", None, "null bytes"),
    ],
)
def test_errors(code: str, line: int | None, message: str) -> None:
    error = find_syntax_error(code)
    assert error is not None
    assert error["line"] == line
    assert message in error["message"]


def test_deep_nesting_is_an_error_not_a_crash() -> None:
    error = find_syntax_error("x = " + "(" * 5000 + "1" + ")" * 5000)
    assert error is not None


def test_new_syntax_and_odd_escapes_are_fine() -> None:
    code = "match x:\n    case [1, *rest]:\n        print(f'{rest!r}', '\\d')\n"
    assert find_syntax_error(code) is None


def test_step_names_the_column() -> None:
    row = make_row("pair", "x", make_origin("local"), reference="x = 1\n", triton="x = \n")
    outcome = Parse(step="parse").apply(row, Context())
    assert outcome == Drop(
        "syntax_error", {"column": "triton", "line": 1, "message": "invalid syntax"}
    )
    good = Parse(step="parse").apply(row | {"triton": None}, Context())
    assert isinstance(good, Keep)
