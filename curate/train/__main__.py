"""Training, evaluation and generation where nothing of `curate` is installed but its files.

``python -m curate.train train|eval|generate …``; the commands are those of ``curate``.
"""

from __future__ import annotations

import sys

import click

from curate.cli import model_commands as commands
from curate.cli.group import Commands
from curate.terminal.shown import show_uncaught


@click.group(
    cls=Commands,
    errors=lambda: (commands.USER_ERRORS, ()),
    help="Train a model on a data set, evaluate it, and use it.",
)
def main() -> None:
    """Hold the commands together."""


main.add_command(commands.train)
main.add_command(commands.evaluate)
main.add_command(commands.generate)

if __name__ == "__main__":
    sys.excepthook = show_uncaught
    main(prog_name="python -m curate.train")
