"""The command line: one short function a command; what they do is in `curate.api`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import click

from curate import api

RECIPE = click.argument("recipe", type=click.Path(path_type=Path))
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
    help="Replace a value of the recipe, such as steps.inductor.target=cuda:80 or seed=1.",
)
LIMIT = click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help="Read at most N rows of every package, repository or range of operators.",
)
SANDBOX = click.option(
    "--sandbox",
    type=click.Choice(["bubblewrap", "none"]),
    default="bubblewrap",
    show_default=True,
    help="Where other people's code runs; 'none' gives it all your own rights.",
)
RUN = click.option(
    "--run", "run_name", metavar="NAME", help="Recipe name; by default the last run."
)


class Commands(click.Group):
    """Turns the errors that a user can mend into one message and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except api.USER_ERRORS as error:
            click.echo(f"curate: {error}", err=True)
            sys.exit(2)
        except api.STOPPED as error:
            click.echo(f"curate: {error}", err=True)
            sys.exit(1)
        except KeyboardInterrupt:
            click.echo("curate: interrupted; the same command goes on where it stopped", err=True)
            sys.exit(130)


@click.group(cls=Commands)
@click.version_option(package_name="kernel-curate")
def main() -> None:
    """Build training data for models that write Triton GPU kernels.

    A recipe in YAML says what a data set is made of. `curate run RECIPE` makes it; every row that
    is kept has an origin, a license and proof, and every row that is not has a reason.
    """


@main.command()
@RECIPE
@SETTINGS
@LIMIT
@OUTPUT
@SANDBOX
@click.option("--until", metavar="STEP", help="Stop after this step.")
@click.option("--only", metavar="STEP", help="Run this step only; those before it must be done.")
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=os.cpu_count(),
    show_default="one a core",
    help="Processes that work at the same time; the data does not depend on it.",
)
def run(
    recipe: Path,
    settings: tuple[str, ...],
    limit: int | None,
    output: Path,
    sandbox: str,
    until: str | None,
    only: str | None,
    workers: int,
) -> None:
    """Make the data set that RECIPE describes.

    What is done already is not done again: stop it whenever you like, and run it again.
    """
    from curate import console

    if only and until:
        raise click.UsageError("--only and --until exclude each other")
    live = console.Live()
    with live.bars:
        done = api.run(
            recipe,
            settings=settings,
            limit=limit,
            output=output,
            sandbox=sandbox == "bubblewrap",
            until=until,
            only=only,
            workers=workers,
            progress=live,
        )
    console.console.print(console.ledger_table(done.stages, live.seconds))
    for line in done.summary():
        click.echo(line)


@main.command()
@RECIPE
@SETTINGS
@LIMIT
@OUTPUT
def plan(recipe: Path, settings: tuple[str, ...], limit: int | None, output: Path) -> None:
    """Say what `curate run RECIPE` would do: what is done, what is to run, and why."""
    from curate import console

    lines = api.plan(recipe, settings=settings, limit=limit, output=output)
    console.console.print(console.plan_table(lines))


@main.command()
@RECIPE
@SETTINGS
def check(recipe: Path, settings: tuple[str, ...]) -> None:
    """Read RECIPE and report every mistake with its line; exit code 2 if there is one."""
    read = api.check(recipe, settings=settings)
    steps = ", ".join(step.name for step in read.steps)
    click.echo(f"{recipe}: good. {len(read.sources)} sources; steps: {steps}")


@main.command()
@click.argument("row_id", metavar="ID")
@OUTPUT
@RUN
def why(row_id: str, output: Path, run_name: str | None) -> None:
    """Tell the whole history of the row ID (or its first digits), lost or kept."""
    from curate import console

    full_id, events = api.why(row_id, output=output, run=run_name)
    console.console.print(console.history_table(events, full_id))


@main.command()
@click.argument("step")
@OUTPUT
@RUN
@click.option("--reason", help="Only rows lost for this reason.")
@click.option("-n", "count", default=10, show_default=True, help="Rows to print.")
def lost(step: str, output: Path, run_name: str | None, reason: str | None, count: int) -> None:
    """Print rows that STEP dropped or failed on, with the reason and its evidence."""
    from curate import console

    rows = api.lost(step, output=output, run=run_name, reason=reason)
    console.console.print(console.lost_list(rows[:count]))
    click.echo(f"{len(rows)} rows in all")


@main.command()
@click.argument("row_id", metavar="[ID]", required=False)
@OUTPUT
@RUN
@click.option(
    "-n", "count", default=1, show_default=True, help="Rows to print when no ID is given."
)
def show(row_id: str | None, output: Path, run_name: str | None, count: int) -> None:
    """Print a finished pair: PyTorch and Triton side by side, and its proof."""
    from curate import console

    for row in api.show(row_id, output=output, run=run_name, count=count):
        console.console.print(console.side_by_side(row))


@main.command()
def schema() -> None:
    """Print the JSON Schema of recipes (schemas/recipe.schema.json is a copy)."""
    click.echo(json.dumps(api.schema(), indent=2))
