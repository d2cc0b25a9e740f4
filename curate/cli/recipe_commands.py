"""The commands ``curate recipes`` and ``curate init``: the recipes that come with curate."""

from __future__ import annotations

from pathlib import Path

import click

from curate.cli.shared import complete_shipped, echo_list
from curate.shipped.copy import copy_recipe
from curate.shipped.find import descriptions
from curate.terminal.shown import say


@click.command()
def recipes() -> None:
    """List the recipes that come with curate.

    Commands take their names in place of a file: `curate run NAME`.
    """
    echo_list(descriptions())


@click.command()
@click.argument("name", shell_complete=complete_shipped)
@click.argument("file", required=False, type=click.Path(path_type=Path, dir_okay=False))
def init(name: str, file: Path | None) -> None:
    """Copy the recipe NAME that comes with curate to FILE, to be changed.

    By default FILE is NAME.yaml in the current folder. Files that the recipe needs are copied next
    to it. Nothing is overwritten.
    """
    target = file or Path(f"{name}.yaml")
    for path in copy_recipe(name, target):
        say(f"{path}: written")
    say(f"next: curate plan {target}")
