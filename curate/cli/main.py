"""The command line: one short function per command; `curate.api` does the work.

Commands import it when they run: help and completion start without torch, Polars or pydantic.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import click

from curate.cli import cache_command, recipe_commands, step_commands
from curate.cli import model_commands as commands
from curate.cli.group import Commands, Errors
from curate.cli.options import judge_options, make_options
from curate.cli.shared import (
    FULL_RUN,
    JSON,
    OUTPUT,
    RECIPE,
    RUN,
    SETTINGS,
    complete_recipe,
    run_argument,
    step_argument,
)
from curate.files import strict_json
from curate.terminal.progress import ProgressLine
from curate.terminal.shown import say, say_json
from curate.verify import SHARD_HELP, Options, exit_status, parse_shard, summary

LIMIT = click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help="Go on with at most N problems or kernels of each source, spread over its packages, "
    "repositories or operators.",
)
SANDBOX = click.option(
    "--sandbox",
    type=click.Choice(["bubblewrap", "none"]),
    default="bubblewrap",
    show_default=True,
    help="Sandbox for other people's code; none runs it with all of your own rights.",
)


def parse_part(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, int]:
    """Return i and n of ``i/n``, given with an option."""
    try:
        return parse_shard(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def expected_errors() -> tuple[Errors, Errors]:
    """Return the errors that a user can mend, and the others that are expected."""
    from curate import api

    return api.USER_ERRORS, api.STOPPED


@click.group(cls=Commands, errors=expected_errors)
@click.version_option(package_name="kernel-curate")
def main() -> None:
    """Build training data for models that write Triton GPU kernels.

    A recipe in YAML says what a data set is made of, and `curate run RECIPE` makes it. Every row
    that is kept has an origin, a license and proof; every row that is not has a reason.

    \b
    Start with:  curate recipes, curate run RECIPE, curate show
    """


@main.command()
@RECIPE
@SETTINGS
@LIMIT
@OUTPUT
@SANDBOX
@click.option("--until", metavar="STEP", help="Stop after this step.")
@click.option("--only", metavar="STEP", help="Run only this step; those before it must be done.")
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    show_default="one per core",
    help="Number of worker processes; the data does not depend on it.",
)
@click.option(
    "--executor",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help="Where to work: on this machine, or on a Ray cluster that shares the output folder.",
)
@click.option(
    "--address",
    help="Address of the Ray cluster; by default RAY_ADDRESS, or a new cluster on this machine.",
)
@click.option(
    "--shard",
    metavar="I/N",
    callback=parse_part,
    default="1/1",
    show_default=True,
    help="Do only the share of the i-th of n processes that share the output folder, such as the "
    "tasks of a Slurm array; see docs/cluster.md.",
)
@click.option(
    "--known",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    multiple=True,
    metavar="FOLDER",
    help="A data set that a run wrote. What its steps made and found (`inductor`, `compile`, "
    "`verify`) is taken over where the row and the step's version, options and tools are the same.",
)
def run(
    recipe: Path,
    settings: tuple[str, ...],
    limit: int | None,
    output: Path,
    sandbox: str,
    until: str | None,
    only: str | None,
    workers: int | None,
    executor: str,
    address: str | None,
    shard: tuple[int, int],
    known: tuple[Path, ...],
) -> None:
    """Make the data set that RECIPE describes.

    You can stop a run at any time: the same command goes on where it stopped. Files that have
    been damaged are made again. Only one run at a time can write to an output folder.

    The data is in OUTPUT/NAME, where NAME is the recipe's. With --limit or --set the run is a
    trial, not the recipe as written: its data is in OUTPUT/NAME.trial.

    In a terminal, bars show the progress. Elsewhere stderr gets a line per finished step, and a
    line every half minute while a step is slow.
    """
    from curate import api
    from curate.cli import console

    if only and until:
        raise click.UsageError("--only and --until exclude each other")
    if address and executor != "ray":
        raise click.UsageError("--address is for --executor ray")
    live = console.Live()
    place = api.make_executor(executor, workers, sandbox == "bubblewrap", address)
    with place as does, live.bars:
        done = api.run(
            recipe,
            settings=settings,
            limit=limit,
            output=output,
            until=until,
            only=only,
            executor=does,
            share=shard,
            known=known,
            progress=live,
        )
    if done.stages:
        console.console.print(console.ledger_table(done.stages, live.seconds))
    for line in done.summary():
        say(line)


@main.command()
@RECIPE
@SETTINGS
@LIMIT
@OUTPUT
@JSON
def plan(
    recipe: Path, settings: tuple[str, ...], limit: int | None, output: Path, as_json: bool
) -> None:
    """Show what `curate run RECIPE` would do: what is done, what is left to run, and why."""
    from curate import api
    from curate.cli import console

    lines = api.plan(recipe, settings=settings, limit=limit, output=output)
    if as_json:
        say_json([line.to_json() for line in lines])
    else:
        console.console.print(console.plan_table(lines))


@main.command()
@click.argument(
    "recipes",
    nargs=-1,
    required=True,
    metavar="RECIPE...",
    type=click.Path(path_type=Path),
    shell_complete=complete_recipe,
)
@SETTINGS
@JSON
def check(recipes: tuple[Path, ...], settings: tuple[str, ...], as_json: bool) -> None:
    """Report every mistake in each RECIPE with its line.

    Exit status: 2 if there is a mistake, otherwise 0.
    """
    from curate import api
    from curate.recipe import RecipeError

    found: list[dict[str, Any]] = []
    for recipe in recipes:
        try:
            names = api.check(recipe, settings=settings).names()
        except RecipeError as error:
            say(f"curate: {error}", err=True)
            found.append({"recipe": str(recipe), "mistakes": str(error).splitlines()})
            continue
        found.append({"recipe": str(recipe), "mistakes": [], **names})
        if not as_json:
            parts = [f"{part}: {', '.join(those)}" for part, those in names.items()]
            say(f"{recipe}: good. {'; '.join(parts)}")
    if as_json:
        say_json(found)
    if any(one["mistakes"] for one in found):
        sys.exit(2)


@main.command()
@RECIPE
@click.argument("packages", nargs=-1, required=True, metavar="NAME[==VERSION]...")
def pin(recipe: Path, packages: tuple[str, ...]) -> None:
    """Pin packages in RECIPE by version and hash; by default the newest version.

    The package's line in RECIPE is replaced, or a new one is added after the other packages. The
    pinned file is a wheel for any machine if there is one, and otherwise the source archive.

    If one of the indexes that pip is configured for cannot be read, the newest version is not
    known: nothing is written, and the exit status is 2. A version that you name is taken from the
    others, with a warning.
    """
    from curate import api

    for pinned in api.pin(recipe, packages):
        for problem in pinned.unread:
            say(f"curate: warning: {problem}", err=True)
        was = (
            "as it was" if pinned.before == pinned.text else f"was: {pinned.before or 'not there'}"
        )
        say(f"{recipe}: {pinned.text} ({was})")


@main.command()
@click.argument("row_id", metavar="ID")
@OUTPUT
@RUN
@JSON
def why(row_id: str, output: Path, run_name: str | None, as_json: bool) -> None:
    """Show the whole history of the row ID (its first digits will do), kept or lost."""
    from curate import api
    from curate.cli import console

    full_id, events = api.why(row_id, output=output, run=run_name)
    if as_json:
        found = [dataclasses.asdict(event) for event in events]
        say_json(strict_json({"id": full_id, "events": found}))
    else:
        console.print_history(events, full_id)


@main.command()
@step_argument("step", required=False)
@OUTPUT
@RUN
@click.option("--reason", help="Print only rows lost for this reason.")
@click.option(
    "-n",
    "count",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="Rows to print.",
)
@JSON
def lost(
    step: str | None,
    output: Path,
    run_name: str | None,
    reason: str | None,
    count: int,
    as_json: bool,
) -> None:
    """Print the rows that STEP dropped or failed on, with reason and evidence.

    Without STEP, print how many rows each step lost, and for which reasons.
    """
    from curate import api
    from curate.cli import console

    if step is None:
        if reason is not None:
            raise click.UsageError("--reason is for one STEP: name it")
        steps = api.losses(output=output, run=run_name)
        if as_json:
            say_json([found.to_json() for found in steps])
        else:
            console.console.print(console.losses_table(steps))
        return
    rows = api.lost(step, output=output, run=run_name, reason=reason)
    if as_json:
        first = [{**row, "evidence": json.loads(row["evidence"])} for row in rows[:count]]
        say_json(strict_json({"rows": len(rows), "lost": first}))
        return
    console.print_lost(rows[:count])
    say(f"{len(rows)} row{'' if len(rows) == 1 else 's'} in all")


@main.command()
@click.argument("row_id", metavar="[ID]", required=False)
@OUTPUT
@RUN
@click.option(
    "-n",
    "count",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Rows to print when no ID is given.",
)
@JSON
def show(row_id: str | None, output: Path, run_name: str | None, count: int, as_json: bool) -> None:
    """Print a finished row with its proof.

    A row is a pair of PyTorch and Triton, a teacher's answer, or a kernel with the function that
    launches it. On a wide terminal, PyTorch and Triton stand side by side. Data sets that came
    without their cache, as with a clone, are read as well.
    """
    from curate import api
    from curate.cli import console

    rows = api.show(row_id, output=output, run=run_name, count=count)
    if as_json:
        say_json(strict_json(rows))
        return
    for row in rows:
        console.console.print(console.side_by_side(row))


@main.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--reference",
    type=click.Path(path_type=Path),
    metavar="FILE.py",
    help="File of the PyTorch module that PATHS answer, if PATHS are .py files.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.jsonl",
    help="File to append verdicts to as they come; candidates that it holds are not judged again.",
)
@click.option(
    "--shard", metavar="I/N", callback=parse_part, default="1/1", show_default=True, help=SHARD_HELP
)
@JSON
@judge_options
def verify(
    paths: tuple[Path, ...],
    reference: Path | None,
    output: Path | None,
    shard: tuple[int, int],
    as_json: bool,
    **given: Any,
) -> None:
    """Judge kernels: does each candidate in PATHS compute what its reference computes?

    PATHS is one .jsonl or .parquet file with id, reference and triton; or one folder that
    `curate run` wrote with the format pairs; or .py files that define ModelNew.

    Exit status: 0 if every candidate is correct, 1 if one is not, 2 if the input is wrong or the
    judge cannot work on this machine.
    """
    from curate import api
    from curate.cli import console

    programs = all(path.suffix == ".py" for path in paths)
    if not (output or programs):
        api.read_candidates(paths, reference)  # what is wrong with them comes first
        raise click.UsageError("say where the verdicts go: --output verdicts.jsonl")
    options = make_options(Options, given)
    with ProgressLine() as progress:
        verdicts = api.verify(
            paths,
            reference=reference,
            output=output,
            shard=shard,
            options=options,
            report=progress.show_tally,
        )
    if as_json:
        found = summary(verdicts)
        if programs:  # otherwise they are in the file
            found["verdicts"] = [verdict.to_json() for verdict in verdicts]
        say_json(strict_json(found))
    else:
        show = console.verdict_panels if programs else console.status_table
        console.console.print(show(verdicts))
    sys.exit(exit_status(verdicts))


@main.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.argument("verdicts", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.jsonl",
    required=True,
    help="Where to write the verdicts: one per candidate, in the order of PATH.",
)
def merge(path: Path, verdicts: tuple[Path, ...], output: Path) -> None:
    """Merge the files of VERDICTS that `curate verify --shard` wrote.

    Every candidate in PATH must have a verdict: those without one are listed. Files that disagree
    are refused.
    """
    from curate import api
    from curate.cli import console

    console.console.print(console.status_table(api.merge(path, verdicts, output=output)))


@main.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--name", required=True, help="Name of the benchmark, for the evidence of drops.")
@click.option("--version", metavar="REV", help="Commit or release of the benchmark.")
@click.option("--url", help="Address of the benchmark.")
@click.option("--license", metavar="SPDX", help="License of the benchmark.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.json",
    help="Where to write the fingerprints; by default NAME.json.",
)
def fingerprint(
    paths: tuple[Path, ...],
    name: str,
    version: str | None,
    url: str | None,
    license: str | None,
    output: Path | None,
) -> None:
    """Write the hashes of a benchmark, without its code, for the step `decontaminate`.

    PATHS are .py files, tables (.json, .jsonl, .parquet) with programs in their text fields, or
    folders of these.
    """
    from curate import api

    file = output or Path(f"{name}.json")
    made = api.fingerprint(paths, name=name, version=version, url=url, license=license, output=file)
    for item, reason in made.passed_over.items():
        say(f"not in it: {item}: {reason}")
    parts = sum(len(found.parts) for found in made.benchmark.items.values())
    say(f"{file}: {len(made.benchmark.items)} items, {parts} parts")
    if small := sum(not found.parts for found in made.benchmark.items.values()):
        say(
            f"{small} of them have no part that is large enough to be compared: `decontaminate` "
            "finds them by what they compute, where the step `wiring` comes before it"
        )


@main.command()
def schema() -> None:
    """Print the JSON Schema of recipes (schemas/recipe.schema.json is a copy)."""
    from curate import api

    say_json(api.schema())


@main.command()
def prompts() -> None:
    """Print an example of what the step `prompts` asks a teacher.

    docs/prompts.md is a copy.
    """
    from curate import api

    say(api.prompts(), end="")


@main.command()
@click.option("--repo", required=True, metavar="USER/DATASET", help="Repository on the Hub.")
@OUTPUT
@FULL_RUN
@click.option("--branch", help="Branch to commit to, made if it does not exist; by default main.")
@click.option("--pr", is_flag=True, help="Open a pull request instead of committing.")
@click.option("--private", is_flag=True, help="Make a new repository private.")
@click.option("--tag", metavar="VERSION", help="Tag for the commit, such as v1.")
@click.option(
    "--replace",
    is_flag=True,
    help="Replace what is there by a trial, by the run of another recipe, or by other rows.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Show what would be pushed, and write nothing; needs no token and no network.",
)
def push(
    repo: str,
    output: Path,
    run_name: str | None,
    branch: str | None,
    pr: bool,
    private: bool,
    tag: str | None,
    replace: bool,
    dry_run: bool,
) -> None:
    """Publish a finished data set on the Hugging Face Hub, in one commit.

    The push is refused if a row has no license or origin, a license is not allowed, a cluster is
    in two splits, the opt-out list covers a row, or a file has changed since the run. A trial, the
    run of another recipe, and a run that keeps no published row do not take the place of a data set
    that is published, unless you say --replace. Pushing the same data again makes no commit. The
    token comes from HF_TOKEN or `hf auth login`.

    Exit status: 2 if the push is refused, or with --dry-run would be; 1 if it failed; otherwise 0.
    """
    from huggingface_hub.utils.tqdm import disable_progress_bars

    from curate import api
    from curate.publish.analysis.errors import PushRefused

    if not sys.stderr.isatty():
        disable_progress_bars()
    done = api.push(
        repo,
        output=output,
        run=run_name,
        branch=branch,
        pr=pr,
        private=private,
        tag=tag,
        replace=replace,
        dry_run=dry_run,
    )
    for line in done.summary():
        say(line)
    if done.refusal:
        raise PushRefused(done.refusal)


@main.command()
@RECIPE
@SETTINGS
@OUTPUT
@JSON
def licenses(recipe: Path, settings: tuple[str, ...], output: Path, as_json: bool) -> None:
    """Check whether sources of RECIPE have changed their licenses since they were pinned.

    For each pin, the newest version is looked up: the release on the package index, the commit of
    the default branch, or the revision on the Hub. License files, package metadata and cards are
    compared; headers of single files are left to the step `licenses`. Nothing is built or run.

    \b
      denied        was allowed; now it is not, or it cannot be read
      stricter      still allowed, with more conditions
      changed       changed in another way
      same          the same terms, or no newer version
      gone          the pinned version no longer exists: nothing to compare
      unreachable   could not be looked up; the note says why
      unpinned      a folder, or PyTorch as installed

    Exit status: 1 if a source is denied or stricter, 2 if the recipe is wrong, otherwise 0, even
    if a source could not be looked up.
    """
    from curate import api
    from curate.cli import console
    from curate.licenses.relicensing import WORSE

    with console.errors.status("looking up the newest versions"):
        found = api.licenses(recipe, settings=settings, output=output)
    if as_json:
        say_json([checked.to_json() for checked in found])
    else:
        console.console.print(console.terms_table(found))
    if any(checked.outcome in WORSE for checked in found):
        sys.exit(1)


@main.command()
@click.argument("patterns", nargs=-1, required=True, metavar="PATTERN...")
@OUTPUT
@FULL_RUN
@click.option(
    "--write",
    is_flag=True,
    help="Add PATTERN for good to the opt-out list of the run's recipe: the file that `optout` of "
    "its step `licenses` names, or optout.yaml in the current folder.",
)
@JSON
def optout(
    patterns: tuple[str, ...], output: Path, run_name: str | None, write: bool, as_json: bool
) -> None:
    """Show which rows of a finished run would go if their authors opted out.

    PATTERN is written as in the opt-out list. In braces, everything must match:

    \b
      'owner: some-user'              every repository of an owner
      'repo: some-user/some-repo'     one repository
      'purl: pkg:pypi/some-package'   a package, in every version
      'path: "*/kernels/*.py"'        files, by a glob
      'symbol: FusedMLP*'             classes and kernels, by a glob
      'copyright: "*Ada Lovelace*"'   copyright lines, by a glob
      'sha256: 9f86d081…'             a file with this content
      '{purl: pkg:pypi/x, path: "x/a/*", why: asked by mail on 2026-11-02}'

    A row counts even if it holds only part of a file. With --write, the next `curate run` drops
    these rows as `opted_out`, whatever version of the source it reads, and `curate push` refuses a
    data set that still has them.
    """
    from curate import api
    from curate.cli import console

    found = api.optout(patterns, output=output, run=run_name, write=write)
    if as_json:
        say_json(found.to_json())
    else:
        console.console.print(console.removal_table(found))


@main.command()
@OUTPUT
@RUN
def report(output: Path, run_name: str | None) -> None:
    """Write report.html, ANALYSIS.md, ANALYSIS.json and figs/ of a finished run again.

    `curate run` writes them too. The report is one page that needs no network: what the rows are,
    which were lost where and why, and examples to read. Open it in a browser.
    """
    from curate import api

    say(api.report(output=output, run=run_name))


@main.command()
@run_argument("old", metavar="RUN_A")
@run_argument("new", metavar="RUN_B")
@OUTPUT
@click.option("--json", "as_json", is_flag=True, help="Print JSON, including the ids of all rows.")
def diff(old: str, new: str, output: Path, as_json: bool) -> None:
    """Show what changed from RUN_A to RUN_B: steps, options, versions and rows.

    Each is the name of a run in --output, such as RECIPE or RECIPE.trial, or the folder of a data
    set.
    """
    from curate import api
    from curate.cli import console

    found = api.diff(old, new, output=output)
    if as_json:
        say_json(found.to_json())
    else:
        console.console.print(console.diff_tables(found))


main.add_command(recipe_commands.recipes)
main.add_command(recipe_commands.init)
main.add_command(step_commands.steps)
main.add_command(cache_command.cache)
main.add_command(commands.train)
main.add_command(commands.evaluate)
main.add_command(commands.generate)
