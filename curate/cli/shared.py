"""Arguments and options that several commands have, and how a shell completes them."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from curate.engine.records import read_records, run_names
from curate.files import Damaged
from curate.shipped.find import recipe_names
from curate.terminal.shown import say


def complete_recipe(ctx: click.Context, param: click.Parameter, word: str) -> list[CompletionItem]:
    """Return the recipes that come with curate; the shell adds files."""
    return [CompletionItem(word, type="file"), *_starting(word, recipe_names())]


def complete_shipped(ctx: click.Context, param: click.Parameter, word: str) -> list[CompletionItem]:
    """Return the recipes that come with curate."""
    return _starting(word, recipe_names())


def complete_run(ctx: click.Context, param: click.Parameter, word: str) -> list[CompletionItem]:
    """Return the names of the runs in the output folder."""
    return _starting(word, run_names(_output(ctx)))


def complete_step(ctx: click.Context, param: click.Parameter, word: str) -> list[CompletionItem]:
    """Return the labels of the steps of a run in the output folder."""
    output = _output(ctx)
    name = ctx.params.get("run_name") or next(iter(reversed(run_names(output))), "")
    try:
        return _starting(word, [record.label for record in read_records(output, name)])
    except Damaged:
        return []


def echo_list(lines: dict[str, str]) -> None:
    """Print names, each with what is said of it, as help lists commands."""
    page = click.HelpFormatter(width=shutil.get_terminal_size().columns)
    page.write_dl(list(lines.items()))
    say(page.getvalue(), end="")


def _output(ctx: click.Context) -> Path:
    return ctx.params.get("output") or Path("output")


def _starting(word: str, names: list[str]) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(word)]


RECIPE = click.argument("recipe", type=click.Path(path_type=Path), shell_complete=complete_recipe)
OUTPUT = click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("output"),
    show_default=True,
    help="Folder for data and cache.",
)
SETTINGS = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="PATH=VALUE",
    help="Set a value of the recipe, such as steps.inputs.max_ops=10 or seed=1.",
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")
RUN = click.option(
    "--run",
    "run_name",
    metavar="NAME",
    shell_complete=complete_run,
    help="Name of the run: the recipe's, or RECIPE.trial; by default that of the last run.",
)
FULL_RUN = click.option(
    "--run",
    "run_name",
    metavar="NAME",
    shell_complete=complete_run,
    help="Name of the run; by default that of the last one that is no trial.",
)
run_argument = partial(click.argument, shell_complete=complete_run)
step_argument = partial(click.argument, shell_complete=complete_step)
