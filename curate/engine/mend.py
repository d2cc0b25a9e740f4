"""What is damaged in the cache is made again.

Nobody who reads a file repairs it: reading raises `Damaged`, wherever it happens, and the run ends
its walk there. Here the file is named, thrown away, and what made it is taken for not done; then
the recipe is walked once more, which makes what is missing. Keys name everything that decides a
file's bytes, so that they are the same bytes again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from curate.cache.artifact import open_artifact
from curate.engine.run import RunError, Shard, Walk
from curate.files import Damaged, remove
from curate.rows import Loose

T = TypeVar("T")


def mending(walk: Walk, work: Callable[[], T]) -> T:
    """Return what ``work`` returns, once the files that it found damaged have been made again.

    Raises:
        RunError: a file that was made again is damaged again.
    """
    mended: set[str] = set()
    while True:
        try:
            return work()
        except Damaged as damage:
            if str(damage.path) in mended:
                raise RunError(
                    f"{damage.path}: {damage.what}, although it was made again: either the disk "
                    "does not keep what is written, or another program writes there"
                ) from damage
            found = damage
        mended.add(str(found.path))
        walk.progress.warn(f"{found.path}: {found.what}; it is made again")
        mend(walk, found)


def mend(walk: Walk, damage: Damaged) -> None:
    """Throw a damaged file of the cache away, and take what made it for not done."""
    cache, path = (walk.output / "cache").absolute(), damage.path.absolute()
    parts = path.relative_to(cache).parts if path.is_relative_to(cache) else ()
    if len(parts) == 3 and parts[0] == "steps":
        walk.store.forget(parts[1], parts[2].partition(".")[0])
    elif len(parts) > 1 and parts[0] == "artifacts":
        path = cache / "artifacts" / parts[1]
        open_artifact.cache_clear()
        _forget_maker(walk, lambda row: (row["origin"] or {}).get("artifact_sha256") == parts[1])
    elif len(parts) == 2 and parts[0] == "texts":
        _forget_maker(walk, lambda row: path.stem in _texts(row))
    remove(path)


def _texts(row: Loose) -> list[str]:
    known = row["license"] or {}
    return [*(known.get("text_sha256") or []), *(known.get("notice_sha256") or [])]


def _forget_maker(walk: Walk, mentions: Callable[[Loose], bool]) -> None:
    """Forget the first shard of a walk with a row that needs a file: to make it makes the file."""
    for shard in _known(walk):
        try:
            rows = walk.store.rows(shard.step, shard.key, ["origin", "license"]).to_pylist()
        except Damaged:
            walk.store.forget(shard.step, shard.key)
            continue
        if any(map(mentions, rows)):
            walk.store.forget(shard.step, shard.key)
            return


def _known(walk: Walk) -> Iterator[Shard]:
    """Yield the shards of a walk that are done, in order."""
    shards: list[Shard] = []
    for stage in walk.stages():
        shards = walk.known_shards(stage, shards)
        for shard in shards:
            if walk.store.manifest(shard.step, shard.key):
                yield shard
