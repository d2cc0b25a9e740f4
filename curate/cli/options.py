"""The judge's options on a command of click's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from curate.verify.flags import flags


def judge_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of the judge, as ``python -m curate.verify`` has them."""
    for flag in reversed(list(flags())):
        form: dict[str, Any] = {"type": flag.kind, "metavar": flag.metavar}
        spelling = flag.spelling
        if isinstance(flag.default, bool):
            form, spelling = {}, f"{spelling}/--no-{spelling.removeprefix('--')}"
        elif flag.choices:
            form = {"type": click.Choice(flag.choices)}
        add = click.option(
            spelling,
            flag.name,
            default=flag.default,
            show_default=bool(flag.default),
            help=flag.help,
            **form,
        )
        command = add(command)
    return command
