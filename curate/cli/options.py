"""Options of a click command from the fields of a dataclass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from curate.flags import Flag, flags, parse
from curate.verify import Options

Command = TypeVar("Command", bound=Callable[..., Any])
Made = TypeVar("Made")


def options_of(kind: type[Any]) -> Callable[[Command], Command]:
    """Return a decorator that gives a command the flags of a dataclass."""

    def add(command: Command) -> Command:
        for flag in reversed(list(flags(kind))):
            command = _option(flag)(command)
        return command

    return add


judge_options = options_of(Options)
"""Give a command the options of the judge, as ``python -m curate.verify`` has them."""


def make_options(kind: type[Made], given: dict[str, Any]) -> Made:
    """Return the dataclass whose flags a command was given.

    Raises:
        click.UsageError: a value is not allowed; the message says which are.
    """
    try:
        return kind(**parse(kind, given))
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _option(flag: Flag) -> Callable[[Command], Command]:
    form: dict[str, Any] = {"type": flag.type, "metavar": flag.metavar}
    spelling = flag.spelling
    if flag.type is bool:
        form, spelling = {}, f"{spelling}/--no-{spelling.removeprefix('--')}"
    elif flag.choices:
        form = {"type": click.Choice(flag.choices)}
    shown = flag.shown or bool(flag.note)
    return click.option(
        *(spelling, flag.name), default=flag.default, show_default=shown, help=flag.help, **form
    )
