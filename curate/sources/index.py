"""Fetch one pinned file from the package index that pip is configured for.

unearth reads the index (https://packaging.python.org/en/latest/specifications/simple-repository-api)
and finds credentials; pip itself is only asked for its configuration.
"""

from __future__ import annotations

import ast
import fcntl
import logging
import os
import ssl
import subprocess
import sys
import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast
from urllib.parse import quote

import httpx2
from packaging.version import Version
from unearth import Link, Package, PackageFinder
from unearth.auth import MultiDomainBasicAuth
from unearth.evaluator import validate_hashes
from unearth.fetchers import Fetcher, PyPIClient

from curate.cache.artifact import Artifact, Info, store, wanted
from curate.cache.unpack import unpack
from curate.files import Damaged, file_sha256, losing, writing
from curate.sources.files import without_credentials
from curate.step import SourceError

_ATTEMPTS = 5
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})  # HTTP statuses worth another attempt


def fetch(name: str, version: str, sha256: str, cache: Path) -> Artifact:
    """Download the file with this hash, unless the cache has it, and unpack it.

    Raises:
        SourceError: the index has no such version or no file of it with this hash, cannot be
            reached, or the archive is unsafe.
        Damaged: the cache's file is not the one with this hash.
    """
    archive, url = _download(name, version, sha256, cache / "downloads")
    purl = package_url(name, version)
    info = Info(source="pypi", purl=purl, version=version, url=url)
    files = unpack(archive, f"{name} {version}", wanted)
    return store(cache, sha256, info, files, strip_top=True)


def package_url(name: str, version: str) -> str:
    """Return the package URL (https://github.com/package-url/purl-spec)."""
    return f"pkg:pypi/{name}@{quote(version, safe='')}"


def _download(name: str, version: str, sha256: str, folder: Path) -> tuple[Path, str | None]:
    """Return the verified archive, and where it was fetched; None if it was there already."""
    final = folder / sha256
    with _locked(folder / f"{sha256}.lock"):
        if final.exists():
            _check_download(final, f"{name} {version}", sha256)
            return final, None
        settings = pip_settings()
        with _client(settings) as client:
            link = _find(name, version, sha256, settings, client)
            with writing(final):
                _retrieve(client, link, sha256, final)
    return final, link.redacted


def _check_download(file: Path, package: str, sha256: str) -> None:
    with losing(file):
        found = file_sha256(file)
    if found != sha256:
        raise Damaged(file, f"the cached download of {package} is damaged: its sha256 is {found}")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a file lock: two runs that share a cache must not write one partial file."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = path.open("w")
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


# What pip is configured for


@dataclass(frozen=True)
class PipSettings:
    """The part of pip's configuration that says where packages are and how to get them."""

    indexes: tuple[str, ...] = ("https://pypi.org/simple/",)
    find_links: tuple[str, ...] = ()
    trusted_hosts: tuple[str, ...] = ()
    cert: str | None = None
    timeout_s: float = 15.0


def pip_settings() -> PipSettings:
    """Read pip's configuration files (through ``pip config list``) and ``PIP_*`` variables.

    Without pip in this environment only the variables count.
    """
    values: dict[str, str] = {}
    command = [sys.executable, "-P", "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    lines = [line.partition("=") for line in listed.splitlines()]
    for section in ("global", "download"):  # pip's order: the later overrides
        for key, _, value in lines:
            if key.startswith(f"{section}."):
                values[key.removeprefix(f"{section}.")] = str(ast.literal_eval(value))
    for key, value in os.environ.items():
        if key.startswith("PIP_") and value:
            values[key.removeprefix("PIP_").lower().replace("_", "-")] = value

    first = values.get("index-url", values.get("pypi-url", PipSettings.indexes[0]))
    indexes = (first, *values.get("extra-index-url", "").split())
    no_index = values.get("no-index", "").lower() in ("1", "true", "yes", "on")
    return PipSettings(
        indexes=() if no_index else indexes,
        find_links=tuple(values.get("find-links", "").split()),
        trusted_hosts=tuple(values.get("trusted-host", "").split()),
        cert=values.get("cert"),
        timeout_s=float(
            values.get("timeout", values.get("default-timeout", PipSettings.timeout_s))
        ),
    )


def _client(settings: PipSettings) -> PyPIClient:
    verify = ssl.create_default_context(cafile=settings.cert) if settings.cert else True
    client = PyPIClient(
        trusted_hosts=settings.trusted_hosts,
        verify=verify,
        timeout=settings.timeout_s,
        follow_redirects=True,
    )
    client.auth = MultiDomainBasicAuth(prompting=False, index_urls=settings.indexes)
    return client


# Finding the file


@dataclass
class _Seen:
    """What the search met, to explain its failure."""

    versions: dict[Version, list[Link]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def _find(name: str, version: str, sha256: str, settings: PipSettings, client: PyPIClient) -> Link:
    """Return the link of the version's file that has this hash, from the first place with it."""
    seen = _Seen()
    for place, is_index in _places(settings):
        for package in _look(name, place, is_index, client, seen.problems):
            known = Version(package.version or "0")
            seen.versions.setdefault(known, []).append(package.link)
            if known == Version(version) and _has_hash(package, sha256, client, seen.problems):
                return package.link
    raise SourceError(_why_not_found(name, Version(version), sha256, seen))


def _places(settings: PipSettings) -> list[tuple[str, bool]]:
    """Return every place to look in, local ones first, and whether it is an index."""
    places = [(place, False) for place in settings.find_links]
    places += [(place, True) for place in settings.indexes]
    return sorted(places, key=lambda place: place[0].startswith(("http:", "https:")))


def _look(
    name: str, place: str, is_index: bool, client: PyPIClient, problems: list[str]
) -> list[Package]:
    """Return the files that a place offers of a package, newest first; note what went wrong."""
    finder = PackageFinder(
        session=cast(Fetcher, client),
        index_urls=[place] if is_index else [],
        find_links=[] if is_index else [place],
        ignore_compatibility=True,  # files are read, not installed
    )
    for attempt in range(_ATTEMPTS):
        try:
            with _warnings_of_unearth(problems):
                return list(finder.find_all_packages(name, allow_yanked=True))
        except httpx2.TransportError as error:
            if attempt + 1 == _ATTEMPTS:
                problems.append(
                    f"{without_credentials(place)} cannot be reached ({_describe(error)})"
                )
            else:
                _wait(attempt)
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
            problems.append(f"{without_credentials(place)} cannot be read ({_describe(error)})")
            break
    return []


@contextmanager
def _warnings_of_unearth(problems: list[str]) -> Iterator[None]:
    """Collect unearth's warnings: a refused or failing index is only told there."""

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            message = record.getMessage()
            if "Client Error(404)" not in message:  # the usual answer of an index without it
                problems.append(without_credentials(message))

    logger, handler = logging.getLogger("unearth"), Collect(logging.WARNING)
    propagates, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates


def _has_hash(package: Package, sha256: str, client: PyPIClient, problems: list[str]) -> bool:
    """Compare hashes; where the index tells none, unearth reads the file to make it."""
    try:
        return validate_hashes(package, {"sha256": [sha256]}, cast(Fetcher, client))
    except httpx2.HTTPError as error:
        problems.append(f"{package.link.redacted} cannot be read ({_describe(error)})")
        return False


def _why_not_found(name: str, version: Version, sha256: str, seen: _Seen) -> str:
    problems = f". Problems on the way: {'; '.join(seen.problems)}" if seen.problems else ""
    links = seen.versions.get(version)
    if links:
        hashes = {link.filename: (link.hash_option or {}).get("sha256", ["?"])[0] for link in links}
        listed = "".join(f"\n  {file}  sha256:{digest}" for file, digest in sorted(hashes.items()))
        return (
            f"{name} {version}: no file on the index has the pinned sha256:{sha256}. Check where "
            f"the pin came from; the index has{listed}{problems}"
        )
    if seen.versions:
        nearest = ", ".join(map(str, _nearest(version, sorted(seen.versions))))
        return f"{name} {version}: no such version. The nearest ones: {nearest}{problems}"
    if seen.problems:
        return f"{name} {version}: not found{problems}. Check the network and `pip config list`"
    return f"{name}: no such package on the index that pip is configured for (`pip config list`)"


def _nearest(version: Version, known: list[Version], count: int = 8) -> list[Version]:
    """Return the versions next to one that is missing, nearest first, newer before older."""
    place = bisect_left(known, version)
    ranks = {v: i - place if i >= place else place - 1 - i for i, v in enumerate(known)}
    return sorted(known, key=lambda v: (ranks[v], v < version))[:count]


# What the index has now


@dataclass(frozen=True)
class Choice:
    """A file to pin.

    Attributes:
        version: of the package.
        sha256: of the file.
        unread: what kept places that pip is configured for from being read; empty if all were.
    """

    version: str
    sha256: str
    unread: tuple[str, ...]


def choose(name: str, version: str | None) -> Choice:
    """Return a version and its file to read: a wheel for any machine, or the source.

    Args:
        name: of the package.
        version: None for the newest that is final and not yanked.

    Raises:
        SourceError: the index has none such, tells no hash, or cannot be read; or the newest is
            wanted, and a place that may have a newer one cannot be read.
    """
    settings, seen = pip_settings(), _Seen()
    final, unread = set[Version](), list[str]()
    with _client(settings) as client:
        for place in _places(settings):
            problems = list[str]()
            packages = _look(name, *place, client, problems)
            seen.problems += problems
            if not packages:
                unread += problems
            for package in packages:
                known = Version(package.version or "0")
                seen.versions.setdefault(known, []).append(package.link)
                if not (package.link.is_yanked or known.is_prerelease):
                    final.add(known)
    wanted = Version(version) if version is not None else max(final, default=None)
    if wanted is None and seen.versions:
        raise SourceError(f"{name}: the index has no final version: name one, as {name}==…")
    if wanted is None or wanted not in seen.versions:
        raise SourceError(_why_not_found(name, wanted or Version("0"), "", seen))
    if unread and version is None:
        raise SourceError(
            f"{name}: the newest version is not known: {'; '.join(unread)}. Check the network and "
            f"`pip config list`. The newest that could be found is {wanted}: to pin it, name it, "
            f"as {name}=={wanted}"
        )
    link = min(seen.versions[wanted], key=lambda link: _unlike(link, "-py3-none-any.whl"))
    sha256 = _told_sha256(link)
    if sha256 is None:
        raise SourceError(f"{name} {wanted}: the index tells no sha256 of {link.filename}")
    return Choice(str(wanted), sha256, tuple(unread))


@dataclass(frozen=True)
class Release:
    """What the index has of a pinned package now.

    Attributes:
        pinned: whether the pinned file is ``there``, ``yanked`` or ``gone``.
        why: the reason for yanking, where the index gives one.
        version: the newest that is final and not yanked; None where there is none.
        sha256: of its file most like the pinned one: the same kind of wheel, or the source
            archive, or the first wheel. None where there is no version, or no hash is told.
    """

    pinned: Literal["there", "yanked", "gone"]
    why: str
    version: str | None
    sha256: str | None


def newest(name: str, version: str, sha256: str) -> Release:
    """Return what the index has of a package that is pinned by version and hash.

    Raises:
        SourceError: a place that pip is configured for could not be read, and the others do not
            have the pinned file.
    """
    settings, problems = pip_settings(), list[str]()
    with _client(settings) as client:
        looks = [_look(name, *place, client, problems) for place in _places(settings)]
    packages = [package for look in looks for package in look]
    pinned = [
        p.link
        for p in packages
        if Version(p.version or "0") == Version(version) and _told_sha256(p.link) == sha256
    ]
    if problems and not pinned:
        raise SourceError(f"{name}: {'; '.join(problems)}")
    yanked = bool(pinned) and all(link.is_yanked for link in pinned)
    state: Literal["there", "yanked", "gone"] = "yanked" if yanked else "there"
    why = (pinned[0].yank_reason or "") if yanked else ""
    final = [p for p in packages if not p.link.is_yanked and not _is_early(p)]
    if not final:
        return Release(state if pinned else "gone", why, None, None)
    last = max(Version(p.version or "0") for p in final)
    files = [p.link for p in final if Version(p.version or "0") == last]
    like = min(files, key=lambda link: _unlike(link, pinned[0].filename if pinned else ""))
    return Release(state if pinned else "gone", why, str(last), _told_sha256(like))


def _is_early(package: Package) -> bool:
    return Version(package.version or "0").is_prerelease


def _told_sha256(link: Link) -> str | None:
    """Return the hash that a place tells of a file; of a file in a folder here, its own."""
    told = (link.hash_option or {}).get("sha256", [None])[0]
    return file_sha256(link.file_path) if told is None and link.is_file else told


def _unlike(link: Link, pinned: str) -> tuple[bool, bool, str]:
    """Return a key that is least for the file most like the pinned one."""
    tags = pinned.removesuffix(".whl").split("-")[-3:]  # of Python, ABI and platform
    same = link.is_wheel and link.filename.removesuffix(".whl").split("-")[-3:] == tags
    return not same, link.is_wheel, link.filename


# Getting the file


def _retrieve(client: PyPIClient, link: Link, sha256: str, final: Path) -> None:
    """Download to ``final``, going on where an earlier attempt was cut, and check the hash."""
    part = final.with_name(f"{final.name}.part")
    resumed = part.exists()
    for attempt in range(_ATTEMPTS):
        try:
            _transfer(client, link, part)
        except httpx2.HTTPError as error:
            if attempt + 1 == _ATTEMPTS or not _passing(error):
                raise SourceError(
                    f"{link.redacted}: cannot be downloaded ({_describe(error)}). Run again to "
                    "go on where it stopped"
                ) from None
            _wait(attempt)
            continue
        found = file_sha256(part)
        if found == sha256:
            part.rename(final)
            return
        part.unlink()
        if not resumed:
            break
        resumed = False  # the old part may have been another file's: once more from the start
    raise SourceError(
        f"{link.redacted}: hash mismatch: pinned sha256:{sha256}, downloaded sha256:{found}. The "
        "index tells one hash and sends another file: do not trust it"
    )


def _transfer(client: PyPIClient, link: Link, part: Path) -> None:
    """Append what is missing to ``part``; where the server does not resume, start over."""
    have = part.stat().st_size if part.exists() else 0
    # An encoding added on the way would change the bytes that are hashed.
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    with client.stream("GET", link.url_without_fragment, headers=headers) as response:
        if response.status_code == 416:  # all is there already, or the part is not of this file
            return
        response.raise_for_status()
        goes_on = response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        with part.open("ab" if response.status_code == 206 and goes_on else "wb") as file:
            for chunk in response.iter_raw():  # as they come: a cut must not lose a buffer
                file.write(chunk)


def _passing(error: httpx2.HTTPError) -> bool:
    if isinstance(error, httpx2.HTTPStatusError):
        return error.response.status_code in _PASSING
    return isinstance(error, httpx2.TransportError)


def _wait(attempt: int) -> None:
    time.sleep(0.5 * 2.0**attempt)


def _describe(error: Exception) -> str:
    if isinstance(error, httpx2.HTTPStatusError):  # its own message shows the whole address
        return f"HTTP status {error.response.status_code}"
    return without_credentials(str(error)) or type(error).__name__
