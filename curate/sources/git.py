"""The `git` source: repositories, each at one commit.

Files are read from git's object store as they were committed: no checkout, so no hook, filter,
attribute, submodule or large-file server of the repository ever comes into play.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit, urlunsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from curate.cache.artifact import Artifact, Info, is_stored, open_artifact, store, wanted
from curate.cache.unpack import ArchiveError, ArchiveLimits, File, Links, Names
from curate.files import Damaged, temporary_name, writing
from curate.rows import Row
from curate.sources.files import FileSource, cache_of, without_credentials
from curate.step import Context, Drop, Place, SourceError, Unit

_ATTEMPTS = 3
_CHUNK = 1 << 16
_CONFIG = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "gc.auto": "0",
    "fetch.unpackLimit": "1",  # packs alone: they can be checked as a whole
    "maintenance.auto": "false",
    "submodule.recurse": "false",
    "http.lowSpeedLimit": "1000",  # bytes per second; with the line below, a stalled fetch ends
    "http.lowSpeedTime": "60",
}


def _check_url(url: str) -> str:
    remote = re.match(r"(https|ssh|file)://[^/]*/|[\w.-]+@[\w.-]+:", url)
    if not remote and (":" in url or url.startswith("-")):
        raise ValueError("must be an https, ssh or file address, user@host:path or a local folder")
    parts = urlsplit(url)
    if parts.scheme == "https" and ("@" in parts.netloc or parts.query):
        raise ValueError(
            "holds a user, token or query, and a recipe is published with its data set; leave it "
            "out and let git find it: by a credential helper, ~/.netrc or ssh"
        )
    return url


def _check_commit(commit: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{40}", commit):
        raise ValueError(
            "must be a full commit of 40 lower-case hex digits, since branches and tags move; "
            "`git rev-parse NAME` prints it"
        )
    return commit


class _GitError(SourceError):
    """Git ran and failed; the message is its last line."""


class Repository(BaseModel):
    """A repository at one commit."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: Annotated[
        str,
        AfterValidator(_check_url),
        Field(description="https, ssh or file address, or a local folder."),
    ]
    commit: Annotated[
        str,
        AfterValidator(_check_commit),
        Field(description="The full commit: 40 hex digits, never a branch or tag."),
    ]


class Git(FileSource):
    """Files of git repositories, each at one commit.

    A link stands for the file that it leads to, and must not leave the repository. Submodules are
    left out.
    """

    source: Literal["git"]
    repositories: Annotated[
        tuple[Repository, ...],
        Field(min_length=1, description="The repositories, each with a full commit."),
    ]

    def pins(self) -> dict[Place, str]:
        return {("repositories", i): pin.commit for i, pin in enumerate(self.repositories)}

    def units(self, context: Context) -> list[Unit]:
        return [
            Unit(f"{_name(pin.url)}@{pin.commit[:12]}", self._key(pin.commit), pin.model_dump())
            for pin in self.repositories
        ]

    def read(self, unit: Unit, context: Context) -> Iterator[Row | tuple[Row, Drop]]:
        pin = Repository(**unit.spec)
        artifact = fetch(pin, cache_of(context))
        yield from self._rows(unit.label, artifact, repo=public_url(pin.url), commit=pin.commit)


def fetch(pin: Repository, cache: Path) -> Artifact:
    """Return the commit's files as an artifact, from the cache where it is there.

    The artifact is named by the sha256 of the commit's listing, as printed by
    ``git ls-tree -r -z --full-tree COMMIT``: modes, blob hashes and paths.

    Raises:
        SourceError: the repository or the commit cannot be had, or its tree is unsafe.
        Damaged: the clone in the cache is not as it was fetched.
    """
    bare = _bare_clone(pin, cache)
    listing = _git("ls-tree", "-r", "-z", "--full-tree", pin.commit, folder=bare)
    sha256 = hashlib.sha256(listing).hexdigest()
    if not is_stored(cache, sha256):
        url = public_url(pin.url)
        info = Info(source="git", repo=url, commit=pin.commit, url=url)
        store(cache, sha256, info, _files(_name(pin.url), bare, listing))
    return open_artifact(cache, sha256)


def newest(pin: Repository, cache: Path) -> Repository:
    """Return the same repository at the newest commit of its default branch.

    Raises:
        SourceError: the repository cannot be read, or has no default branch.
    """
    listed = _git("ls-remote", "--quiet", _remote(pin.url), "HEAD", folder=_bare_clone(pin, cache))
    if not listed:
        raise SourceError(f"{_name(pin.url)}: the repository has no default branch")
    return Repository(url=pin.url, commit=listed.split()[0].decode())


def public_url(url: str) -> str:
    """Return an address without user and password, or a local folder's name without its path.

    Rows carry it, and must be the same bytes on every machine.
    """
    parts = urlsplit(url)
    if parts.scheme in ("https", "ssh"):
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
    if re.match(r"[\w.-]+@[\w.-]+:", url):
        return url
    return Path(parts.path).name


def _name(url: str) -> str:
    """Return a short name: the last two parts of a remote address, one of a local one."""
    path = public_url(url).removesuffix("/").removesuffix(".git")
    return "/".join(re.split(r"[/:]", path)[-2:])


def _bare_clone(pin: Repository, cache: Path) -> Path:
    """Return a bare repository that has the commit; it is complete when it exists.

    Raises:
        Damaged: it was fetched before, and is not as it was then.
    """
    key = hashlib.sha256(f"{pin.url} {pin.commit}".encode()).hexdigest()[:32]
    final = cache / "git" / f"{key}.git"
    if final.exists():
        _check_clone(final, pin)
        return final
    with writing(final):
        final.parent.mkdir(parents=True, exist_ok=True)
        prefix = f".{temporary_name(key[:12])}."
        work = Path(tempfile.mkdtemp(prefix=prefix, dir=final.parent))
    try:
        _git("init", "--bare", "--quiet", folder=work)
        _fetch_commit(pin, work)
        try:
            work.rename(final)
        except OSError:
            if not final.is_dir():  # else another process fetched it first
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return final


def _check_clone(bare: Path, pin: Repository) -> None:
    """Hash all objects of a clone, and follow the commit to each of its files.

    Git names an object by the hash of its content, but does not compare them when it reads.
    """
    packs = [str(path.resolve()) for path in sorted(bare.glob("objects/pack/*.idx"))]
    try:
        if not packs:
            raise _GitError("it holds no objects")
        _git("verify-pack", *packs, folder=bare)
        _git("rev-list", "--objects", "--no-walk", pin.commit, folder=bare)
    except (_GitError, NotADirectoryError) as error:
        why = f"the cached clone of {_name(pin.url)} is damaged ({error})"
        raise Damaged(bare, why) from None


def _fetch_commit(pin: Repository, bare: Path) -> None:
    """Fetch the commit alone, or, from servers that do not give single commits, everything."""
    url, local = _remote(pin.url), _is_local(pin.url)
    fetch = ("fetch", "--no-tags", "--quiet")
    one = (*fetch, "--depth=1", url, f"{pin.commit}:refs/curate/pin")
    everything = (*fetch, url, "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
    problem: SourceError | None = None
    for attempt in range(1 if local else _ATTEMPTS):
        if attempt:
            time.sleep(2.0**attempt)
        try:
            _git(*one, folder=bare)
            return
        except SourceError as error:
            problem = error
        if "not our ref" in str(problem):  # the server knows the commit for sure, and lacks it
            break
        try:
            _git(*everything, folder=bare)
            _git("cat-file", "-e", f"{pin.commit}^{{commit}}", folder=bare)
            return
        except SourceError as error:
            problem = error
    raise SourceError(
        f"{_name(pin.url)}: commit {pin.commit} cannot be had: {problem}. Check the address, and "
        "that a branch or tag leads to the commit"
    )


def _is_local(url: str) -> bool:
    return "://" not in url and "@" not in url


def _remote(url: str) -> str:
    """Return the address as git is to have it, whatever folder git runs in."""
    return str(Path(url).resolve()) if _is_local(url) else url


def _files(name: str, bare: Path, listing: bytes) -> Iterator[File]:
    """Yield the files of a listing; a link stands for the file that it leads to."""
    names, limits, total = Names(name), ArchiveLimits(), 0
    links, blobs = Links(name, wanted), dict[str, bytes]()
    with _process("cat-file", "--batch", folder=bare) as process:
        assert process.stdin
        for line in listing.split(b"\0")[:-1]:
            head, _, raw_path = line.partition(b"\t")
            mode, _, blob = head.split(b" ")
            path = names.file(raw_path.decode("utf-8", "surrogateescape"))
            if mode == b"120000":
                link = _blob(process, blob, name, path, limits) or b""
                links.add(path, link.decode("utf-8", "surrogateescape"))
                continue
            if mode not in (b"100644", b"100755"):  # a submodule
                yield path, None
                continue
            blobs[path] = blob
            keep = partial(wanted, path)
            content = _blob(process, blob, name, path, limits, keep) if wanted(path) else None
            total = _added(total, content, name, path, limits)
            yield path, content
        for path, target in links.resolve(blobs):
            content = _blob(process, blobs[target], name, path, limits) if target else None
            total = _added(total, content, name, path, limits)
            yield path, content
        process.stdin.close()


def _added(total: int, content: bytes | None, name: str, path: str, limits: ArchiveLimits) -> int:
    """Return how many bytes there are with those of a file.

    Raises:
        ArchiveError: there are too many.
    """
    total += len(content or b"")
    if total > limits.total_bytes:
        raise ArchiveError(name, path, f"more than {limits.total_bytes >> 20} MiB in all")
    return total


def _blob(
    process: subprocess.Popen[bytes],
    blob: bytes,
    name: str,
    path: str,
    limits: ArchiveLimits,
    keep: Callable[[int], bool] | None = None,
) -> bytes | None:
    """Ask ``git cat-file --batch`` for a blob; None where it is not to be kept at its size.

    An answer is ``<hash> blob <size>``, the content and a newline.
    """
    assert process.stdin and process.stdout
    process.stdin.write(blob + b"\n")
    process.stdin.flush()
    header = process.stdout.readline().split()
    if len(header) != 3:
        raise ArchiveError(name, path, "is missing from the repository")
    size = int(header[2])
    if keep is not None and not keep(size):
        while size > 0:
            size -= len(process.stdout.read(min(size, _CHUNK)))
        process.stdout.read(1)
        return None
    if size > limits.file_bytes:
        raise ArchiveError(name, path, f"is larger than {limits.file_bytes >> 20} MiB")
    content = process.stdout.read(size)
    process.stdout.read(1)
    return content


def _git(*arguments: str, folder: Path) -> bytes:
    """Run git and return its output.

    Raises:
        SourceError: git fails, or is not installed.
    """
    with _process(*arguments, folder=folder) as process:
        output, errors = process.communicate()
    if process.returncode:
        message = errors.decode("utf-8", "replace").strip().splitlines() or ["no message"]
        raise _GitError(f"git {arguments[0]}: {without_credentials(message[-1])}")
    return output


def _process(*arguments: str, folder: Path) -> subprocess.Popen[bytes]:
    settings = [part for key, value in _CONFIG.items() for part in ("-c", f"{key}={value}")]
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    safe = {
        "GIT_ALLOW_PROTOCOL": "https:ssh:file",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_SSH_COMMAND": "ssh -o BatchMode=yes -o ConnectTimeout=30 -o ServerAliveInterval=15",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "LC_ALL": "C",
    }
    if "GIT_SSL_CAINFO" in os.environ:
        safe["GIT_SSL_CAINFO"] = os.environ["GIT_SSL_CAINFO"]
    try:
        return subprocess.Popen(
            ["git", f"--git-dir={folder.resolve()}", *settings, *arguments],
            cwd=folder,
            env=inherited | safe,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except FileNotFoundError:
        raise SourceError("git is not installed: the `git` source needs it") from None
