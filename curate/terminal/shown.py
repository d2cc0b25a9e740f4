"""Text as people see it: what would steer a terminal or hide in a line stands there as an escape.

Names, code, messages and evidence come from files that other people wrote. Whatever goes to a
terminal, a log or a document passes through `visible`: `say` and `say_json` print, the console of
`curate.cli.console` shows tables, and those who write Markdown or HTML call it on the whole text.
"""

from __future__ import annotations

import json
import sys
import traceback
import unicodedata
from types import TracebackType
from typing import Any

HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Categories of Unicode without a glyph of their own: controls, among them ESC and C1; formats,
among them bidi controls, zero-width characters and tags; surrogates; line separators."""


def visible(text: str) -> str:
    r"""Return a text with `HIDDEN` characters as Python writes them: ``\x1b``, ``\r``, ``\u202e``.

    Newlines and tabs stay. Doing it twice changes nothing more.
    """
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(map(_visible, text))


def _visible(char: str) -> str:
    if char in "\n\t" or char.isprintable() or unicodedata.category(char) not in HIDDEN:
        return char
    return char.encode("unicode_escape").decode()


COLOURS = {"red": 31, "green": 32, "yellow": 33}
"""Numbers of colours in ANSI sequences."""


def say(text: object = "", *, err: bool = False, end: str = "\n", colour: str = "") -> None:
    """Print a text that may hold other people's words.

    Args:
        text: what to print.
        err: whether on stderr; otherwise on stdout.
        end: what follows it, as it is.
        colour: one of `COLOURS`, for a terminal.

    Raises:
        OSError: the stream takes nothing.
    """
    stream = sys.stderr if err else sys.stdout
    shown, encoding = visible(str(text)), getattr(stream, "encoding", None) or "utf-8"
    shown = shown.encode(encoding, "backslashreplace").decode(encoding)
    if colour and stream.isatty():
        shown = f"\x1b[{COLOURS[colour]}m{shown}\x1b[0m"
    print(shown, end=end, file=stream, flush=True)


def say_program(text: str) -> None:
    """Print a program on stdout: on a terminal to be read, elsewhere as it is, to be kept.

    Raises:
        OSError: stdout takes nothing.
    """
    if sys.stdout.isatty():
        say(text, end="")
    else:
        print(text, end="", flush=True)


def say_json(value: Any) -> None:
    """Print JSON on stdout, in ASCII; what `visible` would escape is escaped as JSON does it.

    Raises:
        OSError: stdout takes nothing.
    """
    text = json.dumps(value, indent=2, ensure_ascii=True)
    say(text.replace("\x7f", "\\u007f"))  # the one control character that json leaves as it is


def show_uncaught(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Print the traceback of an exception that nobody caught: a ``sys.excepthook``."""
    say("".join(traceback.format_exception(kind, error, trace)), err=True, end="")
