from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from curate.clean.normalize import Normalize, normalize
from curate.rows import make_origin, make_row
from curate.step import Context, Drop, Keep


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = 1\r\ny = 2\r\n", "x = 1\ny = 2\n"),
        ("x = 1\ry = 2", "x = 1\ny = 2\n"),
        ("\ufeffx = 1\n", "x = 1\n"),
        ("x = 1  \t\n\n\n", "x = 1\n"),
        ("def f():\n    return 1   \n", "def f():\n    return 1\n"),
        ("if x:\n\ty = 1\t\n", "if x:\n\ty = 1\n"),
    ],
)
def test_normal_form(before: str, after: str) -> None:
    assert normalize(before) == after


def test_runs_of_spaces_survive() -> None:
    # A published recipe collapses runs of spaces, and so breaks every indented line.
    code = "def f(x):\n    if x:\n        y   =  [1,   2]\n        return y\n"
    assert normalize(code) == code


def test_spaces_inside_strings_are_values() -> None:
    code = 's = """a   \n  b\t\n"""   \nt = f"""{x}  \n"""\n'
    expected = 's = """a   \n  b\t\n"""\nt = f"""{x}  \n"""\n'
    assert normalize(code) == expected


def test_unicode_in_strings_stays() -> None:
    code = 's = "e\u0301"\n'  # NFC would make one letter of the two
    assert normalize(code) == code


@pytest.mark.parametrize("broken", ["def f(:\n   x  \n", "'''open  \n  \n", "print 'x'  \n", ""])
def test_text_that_is_no_python_is_no_error(broken: str) -> None:
    assert normalize(normalize(broken)) == normalize(broken)


@pytest.mark.parametrize(
    ("code", "expected"),
    [("\\\r ", "\n"), ("x = 1 \\\n  \n", "x = 1\n"), ("x = 1  # \\\n  \n", "x = 1  # \\\n")],
)
def test_a_continuation_is_not_left_without_its_line(code: str, expected: str) -> None:
    assert normalize(code) == expected
    assert ast.dump(ast.parse(expected)) == ast.dump(ast.parse(code))


@given(st.text(alphabet="ab=+'\"\\#( )\n\r\t:", max_size=40))
def test_idempotent_and_same_meaning(code: str) -> None:
    try:
        tree = ast.dump(ast.parse(code))
    except (SyntaxError, ValueError):
        return
    normal = normalize(code)
    assert normalize(normal) == normal
    assert ast.dump(ast.parse(normal)) == tree


def test_step_normalises_every_code_column_and_nothing_else() -> None:
    row = make_row("pair", "x", make_origin("local"), reference="x = 1 \n", triton="y = 2\r\n")
    outcome = Normalize(step="normalize").apply(row, Context())
    assert isinstance(outcome, Keep)
    (kept,) = outcome.rows
    assert kept == row | {"reference": "x = 1\n", "triton": "y = 2\n"}


@pytest.mark.parametrize(
    "line",
    [
        'if access != "user\u202e \u2066# check if admin\u2069 \u2066":',  # the string seems to end
        '"""Admins only:\u202e \u2066""" ;return',  # code seems to be the docstring's
        "x = 1  # fine \u2067 x = 2 \u2069",
    ],
)
def test_code_that_reads_otherwise_than_it_runs_is_dropped(line: str) -> None:
    code = "def f(access):\n    " + line + "\n        pass\n"
    row = make_row("pair", "x", make_origin("local"), reference="x = 1\n", triton=code)
    control = next(char for char in line if ord(char) > 0x2000)
    assert Normalize(step="normalize").apply(row, Context()) == Drop(
        "bidi_controls", {"column": "triton", "line": 2, "character": f"U+{ord(control):04X}"}
    )


def test_escapes_and_marks_of_direction_are_no_bidi_controls() -> None:
    code = "strip = '\\u202e\\u2066'\nprint('\u05e9\u05dc\u05d5\u05dd\u200f!')\n"
    row = make_row("file", "x", make_origin("local"), text=code)
    assert Normalize(step="normalize").apply(row, Context()) == Keep((row,))
