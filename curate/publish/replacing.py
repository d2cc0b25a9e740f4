"""Whether a push may take the place of what a repository holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from curate.formats.dataset.write import read_run, row_counts, trial_options
from curate.publish.changes import Changes
from curate.publish.remote import HubTarget, Remote

EMPTY = frozenset({".gitattributes", "README.md"})
"""Files of a repository that holds nothing yet: the Hub makes them."""


def why_not(
    folder: Path, run: dict[str, Any], target: HubTarget, remote: Remote, changes: Changes
) -> str | None:
    """Return why a push needs ``--replace``; None if it does not.

    A later run of the recipe that is published takes the place of the earlier one. A trial, the
    run of another recipe, and one that keeps no row do so only if the user says so. A branch that
    is not there yet has no readers who could lose anything.

    Args:
        folder: of the data set.
        run: what its ``run.json`` holds.
        target: where it goes.
        remote: what is there.
        changes: of rows.
    """
    if not remote.has_branch or not remote.files.keys() - EMPTY:
        return None
    there = remote.run["recipe"].get("name") if remote.run else None
    here = run["recipe"]["name"]
    trial = " ".join(trial_options(run))
    if there is None:
        why, remedy = "it holds files that curate did not push", "choose another --repo"
    elif there != here:
        why = f"it holds the data set of the recipe {there}, and this is a run of {here}"
        remedy = "choose another --repo"
    elif trial:
        why = f"this run is a trial ({trial}), and a data set is published there"
        remedy = _full_run(folder, here)
    elif changes.before and len(changes.removed) == changes.before:
        why = "none of the rows that are published there is in this run"
        remedy = "if it is another data set, give its recipe another name and choose another --repo"
    else:
        return None
    return "\n".join(
        [
            f"{target.repo} is not changed: {why}",
            *(f"  there:    {line}" for line in _content(remote)),
            *(f"  this run: {line}" for line in row_counts(run)),
            *(f"  {line}" for line in _lost(run, remote, changes)),
            f"{remedy}; or replace what is there: the same command with --replace. The old version "
            f"stays in the history of {target.repo}, as commit {remote.head}",
        ]
    )


def _full_run(folder: Path, name: str) -> str:
    """Return how to publish the recipe as it is written."""
    full = read_run(folder.with_name(name))
    if full and not trial_options(full):
        return f"publish the full run: the same command with --run {name}"
    return "make the full run first: `curate run RECIPE` without --limit and --set"


def _content(remote: Remote) -> Iterator[str]:
    if remote.run:
        yield from row_counts(remote.run)
    else:
        files = sorted(remote.files.keys() - EMPTY)
        yield f"{len(files):,} files, such as {files[0]}"


def _lost(run: dict[str, Any], remote: Remote, changes: Changes) -> Iterator[str]:
    if changes.removed:
        yield f"removed:  {len(changes.removed):,} of {changes.before:,} rows"
    gone = sorted(remote.run["configs"].keys() - run["configs"].keys()) if remote.run else []
    if gone:
        yield f"removed:  the configs {', '.join(gone)}"
