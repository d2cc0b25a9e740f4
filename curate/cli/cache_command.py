"""The command ``curate cache``: what the cache of an output folder holds, and what can go."""

from __future__ import annotations

from pathlib import Path

import click

from curate.cli.shared import OUTPUT
from curate.terminal.shown import say
from curate.wording import human_size


@click.command()
@OUTPUT
@click.option("--prune", is_flag=True, help="Remove what no finished run needs, after a question.")
@click.option("-y", "--yes", is_flag=True, help="With --prune: remove it without a question.")
def cache(output: Path, prune: bool, yes: bool) -> None:
    """Show what the cache of an output folder holds and how large it is, by kind.

    With --prune, results, sources and texts are removed that no recorded run needs, such as those
    of options that have changed since. Data sets stay as they are, and so do clones and a teacher's
    answers. A recipe whose last run has not finished keeps everything; finish a run that several
    processes share (--shard) first.
    """
    from curate import api

    if yes and not prune:
        raise click.UsageError("--yes is for --prune")
    if not prune:
        parts = api.cache_parts(output)
        for part in parts:
            say(f"{part.kind:10} {part.files:>8,} files  {human_size(part.size):>9}")
        say(f"{'all':10} {sum(p.files for p in parts):>8,} files  ", end="")
        say(f"{human_size(sum(p.size for p in parts)):>9}")
        return

    def agree(found: dict[str, list[Path]]) -> bool:
        for kind, paths in found.items():
            size = human_size(api.total_size(paths))
            say(f"{kind:10} {len(paths):>8,} entries that no run needs  {size:>9}")
        return yes or click.confirm("Remove them?")

    removed = api.prune(output=output, agree=agree)
    say("removed" if removed else "nothing is removed")
