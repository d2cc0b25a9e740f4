"""`curate push`: a finished data set into a repository of the Hugging Face Hub, in one commit.

Files are uploaded first; then one commit names them all, guarded by the commit that was there when
the push began, so that readers see the old version or the new one and nothing in between. What a
push that was interrupted has uploaded is not uploaded again, and a version that is there already
makes no commit. The token is that of `huggingface_hub` (``HF_TOKEN``, ``hf auth login``), and so is
the address of the Hub (``HF_ENDPOINT``).
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
from huggingface_hub import (
    CommitInfo,
    CommitOperationAdd,
    CommitOperationDelete,
    HfApi,
    get_token,
)
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, RepositoryNotFoundError
from huggingface_hub.hf_api import RepoFile

from curate.files import file_sha256, git_blob_id
from curate.formats.dataset.index import INDEX_FILE
from curate.formats.dataset.write import data_sha256
from curate.publish.analysis.errors import PushFailed, PushRefused
from curate.publish.changes import Changes, compare
from curate.publish.check import problems, publishable

if TYPE_CHECKING:
    import polars as pl

REPO = re.compile(r"[\w.-]+/[\w.-]+")
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
    """

    repo: str
    branch: str = "main"
    pr: bool = False
    private: bool = False
    tag: str | None = None


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


@dataclass(frozen=True)
class Pushed:
    """What a push did; a dry run's says what it would have done.

    Attributes:
        url: of the repository.
        commit: that now holds the data; None in a dry run that would make one.
        pull_request: its url, if one was opened, or one that has this data already.
        tag: the tag that the commit has.
        changes: rows, against the version before.
        adds, deletes: paths of files; both are empty if the data was there already.
        edited: those of ``adds`` that were edited on the Hub since the version there was pushed.
        same: how many files are as they were.
        dry_run: nothing was written.
    """

    url: str
    commit: str | None
    pull_request: str | None
    tag: str | None
    changes: Changes
    adds: list[str]
    deletes: list[str]
    edited: list[str]
    same: int
    dry_run: bool

    def summary(self) -> Iterator[str]:
        """Yield the lines that `curate push` prints."""
        yield from self.changes.lines()
        counts = f"{len(self.adds)} new or changed, {len(self.deletes)} gone, {self.same} the same"
        yield f"files: {counts}"
        for path in self.edited:
            yield f"  {path} was edited on the Hub: the edit stays in its history only"
        if self.dry_run:
            yield f"dry run: nothing was written to {self.url}"
        elif self.pull_request:
            yield f"pull request: {self.pull_request}"
        elif self.adds or self.deletes:
            yield f"{self.url} is at commit {self.commit}"
        else:
            yield f"no commit: {self.url} has this data already, at {self.commit}"
        if self.tag and not self.dry_run:
            yield f"tag: {self.tag}"


def push(folder: Path, run: dict[str, Any], target: HubTarget, dry_run: bool = False) -> Pushed:
    """Push a data set.

    Args:
        folder: of the data set.
        run: what its ``run.json`` holds.
        target: where it goes.
        dry_run: only say what would be done; nothing is written, here or there.

    Raises:
        PushRefused: the data may not be published, or the token or the repository do not fit.
        PushFailed: the Hub cannot be reached, failed, or was changed by somebody else meanwhile.
    """
    _check_target(target)
    if found := problems(folder, run):
        raise PushRefused("\n".join([f"{folder} is not pushed:", *found]))
    token = _find_token()
    api = HfApi(token=token, library_name="curate")
    with _told_plainly(target.repo, token):
        return _push(api, folder, run, target, dry_run)


def _push(
    api: HfApi, folder: Path, run: dict[str, Any], target: HubTarget, dry_run: bool
) -> Pushed:
    user = _check_rights(api, target)
    remote = _look(api, target)
    _check_remote(remote, target, run)
    adds, deletes = _differences(folder, run, remote)
    is_new = bool(adds or deletes)
    _check_tag(remote, target, is_new)
    changes = _changes(api, folder, target.repo, remote, adds)
    edited = _edited(api, target.repo, remote, adds)
    commit, pull_request = remote.head, None
    if is_new and target.pr:
        pull_request = _same_proposal(api, folder, run, target, user)
    if is_new and not pull_request:
        if dry_run:
            commit = None
        else:
            files = [CommitOperationAdd(path, folder / path) for path in adds]
            gone = [CommitOperationDelete(path) for path in deletes]
            title = f"{target.tag or run['recipe']['name']}: {changes.title()}"
            made = _commit(api, target, remote, [*files, *gone], title, data_sha256(run))
            commit, pull_request = made.oid, made.pr_url
    if target.tag and not dry_run and target.tag not in remote.tags:
        api.create_tag(target.repo, tag=target.tag, revision=commit, repo_type=KIND)
    return Pushed(
        url=f"{api.endpoint}/datasets/{target.repo}",
        commit=commit,
        pull_request=pull_request,
        tag=target.tag,
        changes=changes,
        adds=adds,
        deletes=deletes,
        edited=edited,
        same=len(publishable(run)) - len(adds),
        dry_run=dry_run,
    )


# --- what must hold -------------------------------------------------------------------------


def _check_target(target: HubTarget) -> None:
    if not REPO.fullmatch(target.repo):
        raise PushRefused(f"--repo {target.repo}: write it as user/dataset")
    if target.pr and target.tag:
        raise PushRefused("a pull request has no tag: push --tag once it is merged")


def _find_token() -> str:
    token = get_token()
    if token is None:
        raise PushRefused("there is no token: type `hf auth login`, or set HF_TOKEN")
    if not (token.isascii() and token.isprintable()):
        raise PushRefused("the token is malformed: it has characters that no token has")
    return token


def _check_rights(api: HfApi, target: HubTarget) -> str:
    """Return the user's name; raise `PushRefused` if the token cannot do what is asked."""
    account = api.whoami()
    user: str = account["name"]
    role = account.get("auth", {}).get("accessToken", {}).get("role")
    if role == "read":
        raise PushRefused(
            f"the token of {user} may only read: make one that may write at "
            f"{api.endpoint}/settings/tokens"
        )
    owner = target.repo.split("/")[0]
    mine = [user, *(org["name"] for org in account.get("orgs", []))]
    if owner not in mine and not target.pr:
        raise PushRefused(
            f"{target.repo} is of {owner}, and the token is of {', '.join(mine)}; "
            "--pr opens a pull request there"
        )
    return user


def _check_remote(remote: Remote, target: HubTarget, run: dict[str, Any]) -> None:
    if target.pr and not remote.exists:
        raise PushRefused(f"there is no {target.repo} to open a pull request in")
    if target.pr and not remote.has_branch:
        raise PushRefused(f"{target.repo} has no branch {target.branch}")
    if target.private and remote.exists and not remote.private:
        raise PushRefused(f"{target.repo} is public; make it private there, or leave out --private")
    ours = {*publishable(run), *publishable(remote.run or {"files": {}})}
    globs = [
        f"{config}/{split}-*.parquet"
        for config, splits in run["configs"].items()
        for split in splits
    ]
    for path in sorted(remote.files.keys() - ours):
        if any(fnmatch.fnmatchcase(path, glob) for glob in globs):
            raise PushRefused(
                f"{target.repo} has {path}, which curate did not push and which readers would "
                "take for a part of the data: delete it there first"
            )


def _check_tag(remote: Remote, target: HubTarget, is_new: bool) -> None:
    tagged = remote.tags.get(target.tag or "")
    if tagged and (is_new or tagged != remote.head):
        raise PushRefused(
            f"{target.tag} is the tag of commit {tagged} in {target.repo}, and tags do not move"
        )


# --- looking ----------------------------------------------------------------------------------


def _look(api: HfApi, target: HubTarget) -> Remote:
    try:
        info = api.repo_info(target.repo, repo_type=KIND)
    except RepositoryNotFoundError:
        return Remote()
    refs = api.list_repo_refs(target.repo, repo_type=KIND)
    branches = {branch.name: branch.target_commit for branch in refs.branches}
    head = branches.get(target.branch, info.sha)
    assert head is not None
    files = _files(api, target.repo, head)
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
    return run if isinstance(run, dict) and isinstance(run.get("files"), dict) else None


def _files(api: HfApi, repo: str, revision: str) -> dict[str, RepoFile]:
    entries = api.list_repo_tree(repo, recursive=True, revision=revision, repo_type=KIND)
    return {entry.path: entry for entry in entries if isinstance(entry, RepoFile)}


def _read(api: HfApi, repo: str, revision: str, path: str) -> bytes:
    return Path(api.hf_hub_download(repo, path, revision=revision, repo_type=KIND)).read_bytes()


def _differences(folder: Path, run: dict[str, Any], remote: Remote) -> tuple[list[str], list[str]]:
    """Return the paths that are new or changed, and those of the version there that are gone."""
    paths = publishable(run)
    adds = [path for path in paths if not _is_same(folder / path, remote.files.get(path))]
    former = publishable(remote.run) if remote.run else []
    return adds, [path for path in former if path in remote.files and path not in paths]


def _is_same(path: Path, there: RepoFile | None) -> bool:
    if there is None or there.size != path.stat().st_size:
        return False
    if there.lfs:
        return file_sha256(path) == there.lfs.sha256
    return git_blob_id(path.read_bytes()) == there.blob_id


def _changes(api: HfApi, folder: Path, repo: str, remote: Remote, adds: list[str]) -> Changes:
    import polars as pl

    if INDEX_FILE not in adds:
        return Changes()
    old: pl.DataFrame | None = None
    if INDEX_FILE in remote.files:
        assert remote.head is not None
        old = pl.read_parquet(_read(api, repo, remote.head, INDEX_FILE))
    return compare(old, pl.read_parquet(folder / INDEX_FILE))


def _edited(api: HfApi, repo: str, remote: Remote, adds: list[str]) -> list[str]:
    """Return the texts, such as the card, that are not what the version there was pushed with."""
    pushed = remote.run["files"] if remote.run else {}
    return [
        path
        for path in adds
        if path in pushed and path in remote.files and not remote.files[path].lfs
        if hashlib.sha256(_read(api, repo, str(remote.head), path)).hexdigest() != pushed[path]
    ]


def _same_proposal(
    api: HfApi, folder: Path, run: dict[str, Any], target: HubTarget, user: str
) -> str | None:
    """Return the url of an open pull request of this user that has the very same files."""
    found = api.get_repo_discussions(
        target.repo, author=user, discussion_type="pull_request", repo_type=KIND
    )
    for request in (r for r in found if r.status in ("open", "draft")):
        revision = f"refs/pr/{request.num}"
        there = _files(api, target.repo, revision)
        if all(_is_same(folder / path, there.get(path)) for path in publishable(run)):
            return request.url
    return None


# --- writing ------------------------------------------------------------------------------------


def _commit(
    api: HfApi,
    target: HubTarget,
    remote: Remote,
    operations: list[CommitOperationAdd | CommitOperationDelete],
    title: str,
    sha256: str,
) -> CommitInfo:
    """Commit on top of what was looked at, in a repository and a branch that are made if need be.

    The Hub refuses if the branch has moved on since then.
    """
    head = remote.head
    if head is None:
        api.create_repo(target.repo, private=target.private, repo_type=KIND)
        head = api.repo_info(target.repo, repo_type=KIND).sha
        assert head is not None
    if not remote.has_branch and target.branch != "main":
        api.create_branch(target.repo, branch=target.branch, revision=head, repo_type=KIND)
    return api.create_commit(
        target.repo,
        operations,
        commit_message=title,
        commit_description=f"sha256 of the data: {sha256}",
        repo_type=KIND,
        revision=target.branch,
        create_pr=target.pr,
        parent_commit=head,
    )


# --- errors -------------------------------------------------------------------------------------


@contextmanager
def _told_plainly(repo: str, token: str) -> Iterator[None]:
    """Turn what goes wrong with the Hub into one message, from which the token is taken out."""
    try:
        yield
    except (httpx2.HTTPError, RuntimeError, ValueError, OSError) as error:
        told = _explain(error, repo)
        raise type(told)(str(told).replace(token, "hf_…")) from None


def _explain(error: Exception, repo: str) -> PushRefused | PushFailed:
    cause = error.__cause__ if isinstance(error.__cause__, HfHubHTTPError) else error
    again = "the same command goes on where it stopped: what was uploaded is not uploaded again"
    if not isinstance(cause, HfHubHTTPError):
        if isinstance(error, HFValidationError) or "Invalid metadata in README.md" in str(error):
            return PushRefused(f"{repo}: {error}")
        return PushFailed(f"{repo}: {error or type(error).__name__}; {again}")
    status = cause.response.status_code
    said = cause.server_message or str(cause).splitlines()[0]
    if status == 401:
        return PushRefused(
            f"the Hub does not know the token ({said}): type `hf auth login`, or set HF_TOKEN"
        )
    if status == 403:
        return PushRefused(f"the token may not write to {repo}: {said}")
    if status == 404:
        return PushRefused(f"{repo}: the Hub did not find it: {said}")
    if status == 412:
        return PushFailed(
            f"somebody else changed {repo} during the push, and nothing was committed; the same "
            "command compares the data with what is there now"
        )
    return PushFailed(f"{repo}: the Hub answered {status}: {said}; {again}")
