"""Whether a data set may be published: it is as the run wrote it, and every row may be shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.files import file_sha256
from curate.formats.dataset.index import INDEX_FILE
from curate.formats.dataset.provenance import PROVENANCE_FILE
from curate.licenses.optout import OptOutError, load_lists
from curate.licenses.policy import Policy, UnknownLicense, default_policy, evaluate, make_policy
from curate.publish.removal import covered, optout_lists

if TYPE_CHECKING:
    import polars as pl

UNPUBLISHED = "lost/"
"""Lost rows stay at home: many are lost because they may not be shown, or are a benchmark's."""


def publishable(run: dict[str, Any]) -> list[str]:
    """Return the paths of a data set that are published, in order."""
    return sorted(
        [*(path for path in run["files"] if not path.startswith(UNPUBLISHED)), "run.json"]
    )


def problems(folder: Path, run: dict[str, Any]) -> list[str]:
    """Return why a data set may not be published, one line each; empty if it may."""
    found = list(_changed_files(folder, run["files"]))
    if found:
        return found  # what the files say proves nothing then
    import polars as pl

    index = pl.read_parquet(folder / INDEX_FILE)
    if index.is_empty():
        return ["it has no rows"]
    return [
        *_without(index),
        *_denied(index, policies(run)),
        *_leaks(index),
        *_opted_out(folder, run),
    ]


def _changed_files(folder: Path, files: dict[str, str]) -> Iterator[str]:
    again = f"delete {folder} and run the recipe again, which makes it anew from the cache"
    for path in (INDEX_FILE, PROVENANCE_FILE):
        if path not in files:
            yield f"{path} is missing: an older version of curate wrote the data set; {again}"
    for path, sha in sorted(files.items()):
        if not (folder / path).is_file():
            yield f"{path} is gone since the run; {again}"
        elif file_sha256(folder / path) != sha:
            yield f"{path} was changed after the run; {again}"


def policies(run: dict[str, Any]) -> list[Policy]:
    """Return the lists of allowed licenses that a run was made with; ours if it had none."""
    lists = [step["options"]["allow"] for step in run["steps"] if step["name"] == "licenses"]
    return [make_policy(allow) if allow else default_policy() for allow in lists or [None]]


def _without(index: pl.DataFrame) -> Iterator[str]:
    import polars as pl

    for column, what in (("license", "license"), ("source", "origin")):
        lacking = index.filter(pl.col(column).fill_null("").str.strip_chars() == "")
        if len(lacking):
            yield f"{some_rows(lacking['id'])} without {what}"


def _denied(index: pl.DataFrame, allowed: list[Policy]) -> Iterator[str]:
    import polars as pl

    for license in index["license"].drop_nulls().unique().sort():
        for policy in allowed if license.strip() else []:
            try:
                decision = evaluate(license, policy)
                reason = "" if decision.allowed else decision.reason
            except UnknownLicense as error:
                reason = str(error)
            if reason:
                ids = index.filter(pl.col("license") == license)["id"]
                yield f"{some_rows(ids)} under {license}: {reason}"
                break


def _opted_out(folder: Path, run: dict[str, Any]) -> Iterator[str]:
    """Compare rows with the opt-out list as it is now, not as it was when they were made."""
    import polars as pl

    try:
        entries = load_lists(optout_lists(run))
    except OptOutError as error:
        yield f"the opt-out list that the recipe names cannot be read: {error}"
        return
    ids: dict[str, list[str]] = {}
    for entry, line in covered(folder, entries):
        ids.setdefault(entry.text(), []).append(line["id"])
    for pattern, those in ids.items():
        named = some_rows(pl.Series(those))
        yield f"{named} opted out by `{pattern}`; run the recipe again, which leaves them out"


def _leaks(index: pl.DataFrame) -> Iterator[str]:
    import polars as pl

    by_cluster = index.drop_nulls("cluster").group_by("cluster")
    torn = by_cluster.agg("id", pl.col("split").unique().sort()).sort("cluster")
    for cluster, ids, splits in torn.filter(pl.col("split").list.len() > 1).iter_rows():
        named = some_rows(pl.Series(sorted(ids)))
        yield f"splits leak: {named} of cluster {cluster} are in {' and '.join(splits)}"


def some_rows(ids: pl.Series) -> str:
    """Return how many rows these are and which is the first."""
    return f"{len(ids)} row{'s' * (len(ids) > 1)} (such as {ids[0]})"
