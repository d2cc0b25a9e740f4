"""Other people's text does not steer the terminal: commands run under a pseudo terminal."""

from __future__ import annotations

import ast
import json
import os
import pty
import re
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from recipe_for_tests import KERNEL, curate, make_recipe

from curate.engine.identity import PACKAGE
from curate.terminal.shown import HIDDEN, say_json, visible

CLIPBOARD = "\x1b]52;c;cHduZWQ=\x1b\\"
TITLE = "\x1b]0;owned\x07"
ASIDE = "\x9b31m\u202e\u2066\u200b\x7f."
PAYLOAD = CLIPBOARD + TITLE + ASIDE
STYLE = re.compile(r"\x1b\[[0-9;]*m|\r\x1b\[K|\r?\n")
"""What our own output steers a terminal with."""

PROBLEM = """\
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1


def get_inputs():
    return [torch.rand(16)]


def get_init_inputs():
    return []
"""


def on_a_terminal(*arguments: object, folder: Path) -> str:
    """Return what a command of `curate` writes to a terminal."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "curate", *map(str, arguments)]
    wide = {"COLUMNS": "200", "TERM": "xterm-256color", "PYTHONPATH": str(PACKAGE.parent)}
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env={**os.environ, **wide}
    ):
        os.close(theirs)
        data = b""
        while part := _read(ours):
            data += part
    os.close(ours)
    return data.decode()


def _read(handle: int) -> bytes:
    try:
        return os.read(handle, 1 << 16)
    except OSError:  # EIO: the other end is closed
        return b""


def hidden(printed: str) -> set[str]:
    """Return the hidden characters in a text other than those that we steer a terminal with."""
    rest = STYLE.sub("", printed).replace("\t", "")
    return {char for char in rest if unicodedata.category(char) in HIDDEN}


def test_an_exception_of_a_candidate_does_not_reach_the_clipboard(tmp_path: Path) -> None:
    (tmp_path / "problem.py").write_text(PROBLEM)
    name = f"mine{PAYLOAD}.py".replace("/", "")
    (tmp_path / name).write_text(
        f"import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n"
        f"        raise ValueError({PAYLOAD!r})\n"
    )
    printed = on_a_terminal("verify", name, "--reference", "problem.py", folder=tmp_path)
    assert "runtime_error" in printed, printed
    assert printed.count(r"\x1b]52;c;cHduZWQ=\x1b") >= 2, printed  # in the file's name as well
    assert r"\x9b31m\u202e\u2066\u200b\x7f." in printed
    assert not hidden(printed)


def test_rows_are_shown_without_obeying_them(tmp_path: Path) -> None:
    recipe, output = make_recipe(tmp_path), tmp_path / "output"
    kernel = KERNEL.format(name="odd", formula="x - 1").replace(
        "    at = ", f'    """{PAYLOAD}"""\n    at = ', 1
    )
    (tmp_path / "sources/odd\u202e\u200b.py").write_text(kernel)
    ran = curate("run", recipe, "--output", output)
    assert ran.exit_code == 0, ran.output
    printed = on_a_terminal("show", "-n", "9", folder=tmp_path)
    assert r"\x1b]0;owned\x07" in printed and r"odd\u202e\u200b.py" in printed
    assert not hidden(printed)
    for document in ("README.md", "ANALYSIS.md", "PROVENANCE.md", "report.html"):
        assert not hidden((output / "small" / document).read_text()), document
    assert r"\x1b]0;owned\x07" in (output / "small/report.html").read_text()
    lost = on_a_terminal("lost", "licenses", folder=tmp_path)
    assert not hidden(lost)


def test_what_is_hidden_is_escaped_as_python_writes_it() -> None:
    assert visible("a\tb\nZoë ∞ 訓練") == "a\tb\nZoë ∞ 訓練"
    assert visible(PAYLOAD) == (
        r"\x1b]52;c;cHduZWQ=\x1b" "\\" r"\x1b]0;owned\x07\x9b31m\u202e\u2066\u200b\x7f."
    )
    assert visible("\r\u2028\U000e0041\udcff\ufeff\xad") == r"\r\u2028\U000e0041\udcff\ufeff\xad"
    assert visible(visible(PAYLOAD)) == visible(PAYLOAD)


def test_json_stays_json(capsys: pytest.CaptureFixture[str]) -> None:
    say_json({"name": PAYLOAD})
    printed = capsys.readouterr().out
    assert printed.isascii() and not hidden(printed)
    assert json.loads(printed) == {"name": PAYLOAD}


WHERE = {"terminal/shown.py", "terminal/safe_console.py"}
"""Modules that may print: all others do it through them."""


def test_all_output_goes_one_way() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in PACKAGE.rglob("*.py")
        if str(path.relative_to(PACKAGE)) not in WHERE
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and _prints(node)
    ]
    assert not found, "print with curate.terminal.shown.say, or a SafeConsole"


def _prints(call: ast.Call) -> bool:
    """Whether a call prints, or makes a console that does, other than words of our own."""
    name = ast.unparse(call.func)
    words = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "end")]
    if name in ("print", "click.echo", "click.secho", "sys.stdout.write", "sys.stderr.write"):
        return not all(isinstance(word, ast.Constant) for word in words)
    return name == "Console"
