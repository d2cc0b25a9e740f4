"""`curate push`: a finished data set into a repository of the Hugging Face Hub, in one commit.

Files are uploaded first; then one commit names them all, guarded by the commit that was there when
the push began, so that readers see the old version or the new one and nothing in between. What a
push that was interrupted has uploaded is not uploaded again, and a version that is there already
makes no commit. The token is that of `huggingface_hub` (``HF_TOKEN``, ``hf auth login``), and so is
the address of the Hub (``HF_ENDPOINT``).
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
from huggingface_hub import (
    CommitInfo,
    CommitOperationAdd,
    CommitOperationDelete,
    HfApi,
    get_token,
)
from huggingface_hub.errors import HfHubHTTPError, HFValidationError

from curate import __version__
from curate.formats.dataset.write import data_sha256, row_counts, trial_options
from curate.publish.analysis.errors import PushFailed, PushRefused
from curate.publish.check import problems, publishable
from curate.publish.pushed import Pushed
from curate.publish.remote import (
    KIND,
    HubTarget,
    Remote,
    differences,
    edited,
    is_same,
    list_files,
    look,
    row_changes,
)
from curate.publish.replacing import why_not
from curate.registry import kinds_by_name

REPO = re.compile(r"[\w.-]+/[\w.-]+")
RESUMES = "; the same command goes on where it stopped: what was uploaded is not uploaded again"


def push(folder: Path, run: dict[str, Any], target: HubTarget) -> Pushed:
    """Push a data set.

    Args:
        folder: of the data set.
        run: what its ``run.json`` holds.
        target: where it goes.

    Raises:
        PushRefused: the data may not be published, would take the place of other data, or the
            token or the repository do not fit.
        PushFailed: the Hub cannot be reached, failed, or was changed by somebody else meanwhile.
    """
    _check(folder, run, target)
    token = _find_token()
    if token is None:
        raise PushRefused("there is no token: type `hf auth login`, or set HF_TOKEN")
    api = _api(token)
    with _told_plainly(target.repo, token, RESUMES):
        user = _check_rights(api, target)
        remote, planned = _compare(api, folder, run, target)
        if planned.refusal:
            raise PushRefused(planned.refusal)
        return _carry_out(api, folder, run, target, remote, planned, user)


def rehearse(folder: Path, run: dict[str, Any], target: HubTarget) -> Pushed:
    """Return what a push would do, and write nothing, here or there.

    This needs no token and no network; what the Hub can be asked, it is asked.

    Raises:
        PushRefused: the data may not be published, or the target is malformed.
    """
    _check(folder, run, target)
    token = _find_token()
    api = _api(token)
    refusal = None
    try:
        with _told_plainly(target.repo, token):
            if token:
                _check_rights(api, target)
            remote, planned = _compare(api, folder, run, target)
            if token or remote.exists:
                return planned
            unreached = "there is no such repository, or it is private and there is no token"
    except PushRefused as refused:
        refusal, unreached = str(refused), "the push would be refused, as the end says"
    except PushFailed as failed:
        unreached = str(failed)
    planned = _plan(api, folder, run, target, Remote())
    return replace(planned, refusal=refusal, not_compared=unreached)


def _api(token: str | None) -> HfApi:
    return HfApi(token=token or False, library_name="curate", library_version=__version__)


def _compare(
    api: HfApi, folder: Path, run: dict[str, Any], target: HubTarget
) -> tuple[Remote, Pushed]:
    """Return what the repository is like and what is to be done.

    Raises:
        PushRefused: the repository does not fit.
    """
    remote = look(api, target)
    _check_remote(remote, target, run)
    planned = _plan(api, folder, run, target, remote)
    _check_tag(remote, target, is_new=planned.commit is None)
    return remote, planned


def _plan(
    api: HfApi, folder: Path, run: dict[str, Any], target: HubTarget, remote: Remote
) -> Pushed:
    """Return what is to be done; nothing has been written then."""
    adds, deletes = differences(folder, run, remote)
    is_new = bool(adds or deletes)
    changes = row_changes(api, folder, target.repo, remote, adds)
    blocked = is_new and not target.replace
    trial = " ".join(trial_options(run))
    title = f"{target.tag or run['recipe']['name']}: {'trial, ' if trial else ''}{changes.title()}"
    return Pushed(
        run=folder.name,
        trial=trial,
        rows=list(row_counts(run)),
        outdated=list(_outdated(run)),
        url=f"{api.endpoint}/datasets/{target.repo}",
        branch=target.branch,
        private=remote.private if remote.exists else target.private,
        is_new=not remote.exists,
        head=remote.head,
        not_compared="",
        title=title,
        commit=None if is_new else remote.head,
        pull_request=None,
        tag=target.tag,
        changes=changes,
        adds={path: (folder / path).stat().st_size for path in adds},
        deletes=deletes,
        edited=edited(api, target.repo, remote, adds),
        same=len(publishable(run)) - len(adds),
        refusal=why_not(folder, run, target, remote, changes) if blocked else None,
        dry_run=True,
    )


def _outdated(run: dict[str, Any]) -> Iterator[str]:
    """Yield the steps of a run that have a newer version now, with both."""
    kinds = kinds_by_name()
    newest = {
        name: getattr(kind, "version", 0)
        for name, kind in (kinds["sources"] | kinds["steps"]).items()
    }
    for name, version in {one["name"]: one["version"] for one in run["steps"]}.items():
        if newest.get(name, version) > version:
            yield f"{name} {version} (now {newest[name]})"


def _carry_out(
    api: HfApi,
    folder: Path,
    run: dict[str, Any],
    target: HubTarget,
    remote: Remote,
    planned: Pushed,
    user: str,
) -> Pushed:
    """Do what is planned; return what was done."""
    commit, pull_request = planned.commit, None
    if commit is None and target.pr:
        pull_request = _same_proposal(api, folder, run, target, user)
        commit = remote.head if pull_request else None
    if commit is None:
        files = [CommitOperationAdd(path, folder / path) for path in planned.adds]
        gone = [CommitOperationDelete(path) for path in planned.deletes]
        made = _commit(api, target, remote, [*files, *gone], planned.title, data_sha256(run))
        commit, pull_request = made.oid, made.pr_url
    if target.tag and target.tag not in remote.tags:
        api.create_tag(target.repo, tag=target.tag, revision=commit, repo_type=KIND)
    return replace(planned, commit=commit, pull_request=pull_request, dry_run=False)


# --- what must hold -------------------------------------------------------------------------


def _check(folder: Path, run: dict[str, Any], target: HubTarget) -> None:
    """Raise `PushRefused` for what can be known without the Hub."""
    if not REPO.fullmatch(target.repo):
        raise PushRefused(f"--repo {target.repo}: write it as user/dataset")
    if target.tag and not re.fullmatch(r"\w[\w.+-]*", target.tag):
        raise PushRefused(f"{target.tag!r} is no name of a tag: letters, digits and . _ + - only")
    if target.pr and target.tag:
        raise PushRefused("a pull request has no tag: push --tag once it is merged")
    if found := problems(folder, run):
        raise PushRefused("\n".join([f"{folder} is not pushed:", *found]))


def _find_token() -> str | None:
    token = get_token()
    if token and not (token.isascii() and token.isprintable()):
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


def _same_proposal(
    api: HfApi, folder: Path, run: dict[str, Any], target: HubTarget, user: str
) -> str | None:
    """Return the url of an open pull request of this user that has the very same files."""
    found = api.get_repo_discussions(
        target.repo, author=user, discussion_type="pull_request", repo_type=KIND
    )
    for request in (r for r in found if r.status in ("open", "draft")):
        revision = f"refs/pr/{request.num}"
        there = list_files(api, target.repo, revision)
        if all(is_same(folder / path, there.get(path)) for path in publishable(run)):
            return request.url
    return None


# --- errors -------------------------------------------------------------------------------------


@contextmanager
def _told_plainly(repo: str, token: str | None, advice: str = "") -> Iterator[None]:
    """Turn what goes wrong with the Hub into one message, from which the token is taken out.

    Args:
        repo: that is spoken to.
        token: of the user.
        advice: added where the Hub or the network is at fault.
    """
    try:
        yield
    except (httpx2.HTTPError, RuntimeError, ValueError, OSError) as error:
        told = _explain(error, repo, advice)
        raise type(told)(str(told).replace(token or "\0", "hf_…")) from None


def _explain(error: Exception, repo: str, advice: str) -> PushRefused | PushFailed:
    cause = error.__cause__ if isinstance(error.__cause__, HfHubHTTPError) else error
    if not isinstance(cause, HfHubHTTPError):
        if isinstance(error, HFValidationError) or "Invalid metadata in README.md" in str(error):
            return PushRefused(f"{repo}: {error}")
        return PushFailed(f"{repo}: {error or type(error).__name__}{advice}")
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
    return PushFailed(f"{repo}: the Hub answered {status}: {said}{advice}")
