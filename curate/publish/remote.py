"""A repository of the Hub as it is before a push, and how a data set differs from it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from huggingface_hub import HfApi
from huggingface_hub.errors import RepositoryNotFoundError
from huggingface_hub.hf_api import RepoFile

from curate.files import file_sha256, git_blob_id
from curate.formats.dataset.index import INDEX_FILE
from curate.publish.changes import Changes, compare
from curate.publish.check import publishable

if TYPE_CHECKING:
    import polars as pl

KIND = "dataset"  # of repository


@dataclass(frozen=True)
class HubTarget:
    """Where a data set goes.

    Attributes:
        repo: ``user/dataset``.
        branch: to commit to; it is made from ``main`` if it is not there.
        pr: open a pull request in place of a commit to the branch.
        private: make a repository that only its owner sees, if it is not there.
        tag: to give to the commit.
        replace: take the place of what is there, even of another data set.
    """

    repo: str
    branch: str = "main"
    pr: bool = False
    private: bool = False
    tag: str | None = None
    replace: bool = False


@dataclass(frozen=True)
class Remote:
    """A repository as it is before the push.

    Attributes:
        exists: it is there.
        private: only its owner sees it.
        head: commit that the branch names, or will; None if there is no repository.
        has_branch: the branch is there.
        tags: the commit of each.
        files: those of ``head`` by path.
        run: ``run.json`` of the version there; None if there is none.
    """

    exists: bool = False
    private: bool = False
    head: str | None = None
    has_branch: bool = False
    tags: dict[str, str] = field(default_factory=dict)
    files: dict[str, RepoFile] = field(default_factory=dict)
    run: dict[str, Any] | None = None


def look(api: HfApi, target: HubTarget) -> Remote:
    """Return the repository and the branch that a data set goes to."""
    try:
        info = api.repo_info(target.repo, repo_type=KIND)
    except RepositoryNotFoundError:
        return Remote()
    refs = api.list_repo_refs(target.repo, repo_type=KIND)
    branches = {branch.name: branch.target_commit for branch in refs.branches}
    head = branches.get(target.branch, info.sha)
    assert head is not None
    files = list_files(api, target.repo, head)
    return Remote(
        exists=True,
        private=bool(info.private),
        head=head,
        has_branch=target.branch in branches,
        tags={tag.name: tag.target_commit for tag in refs.tags},
        files=files,
        run=_former_run(api, target.repo, head) if "run.json" in files else None,
    )


def _former_run(api: HfApi, repo: str, head: str) -> dict[str, Any] | None:
    """Return what ``run.json`` there holds, if curate wrote it."""
    run = json.loads(_read(api, repo, head, "run.json"))
    ours = isinstance(run, dict) and all(
        isinstance(run.get(name), dict) for name in ("recipe", "configs", "files")
    )
    return run if ours else None


def list_files(api: HfApi, repo: str, revision: str) -> dict[str, RepoFile]:
    """Return the files of a revision by path."""
    entries = api.list_repo_tree(repo, recursive=True, revision=revision, repo_type=KIND)
    return {entry.path: entry for entry in entries if isinstance(entry, RepoFile)}


def _read(api: HfApi, repo: str, revision: str, path: str) -> bytes:
    return Path(api.hf_hub_download(repo, path, revision=revision, repo_type=KIND)).read_bytes()


def differences(folder: Path, run: dict[str, Any], remote: Remote) -> tuple[list[str], list[str]]:
    """Return the paths that are new or changed, and those of the version there that are gone."""
    paths = publishable(run)
    adds = [path for path in paths if not is_same(folder / path, remote.files.get(path))]
    former = publishable(remote.run) if remote.run else []
    return adds, [path for path in former if path in remote.files and path not in paths]


def is_same(path: Path, there: RepoFile | None) -> bool:
    """Say whether a file of the repository has the content of one here."""
    if there is None or there.size != path.stat().st_size:
        return False
    if there.lfs:
        return file_sha256(path) == there.lfs.sha256
    return git_blob_id(path.read_bytes()) == there.blob_id


def row_changes(api: HfApi, folder: Path, repo: str, remote: Remote, adds: list[str]) -> Changes:
    """Return which rows are new, gone or labelled in another way."""
    import polars as pl

    if INDEX_FILE not in adds:
        return Changes()
    old: pl.DataFrame | None = None
    if remote.run and INDEX_FILE in remote.files:
        assert remote.head is not None
        old = pl.read_parquet(_read(api, repo, remote.head, INDEX_FILE))
    return compare(old, pl.read_parquet(folder / INDEX_FILE))


def edited(api: HfApi, repo: str, remote: Remote, adds: list[str]) -> list[str]:
    """Return the texts, such as the card, that are not what the version there was pushed with."""
    pushed = remote.run["files"] if remote.run else {}
    return [
        path
        for path in adds
        if path in pushed and path in remote.files and not remote.files[path].lfs
        if hashlib.sha256(_read(api, repo, str(remote.head), path)).hexdigest() != pushed[path]
    ]
