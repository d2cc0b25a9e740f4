"""Artifacts: unpacked source trees, kept in the cache under the hash of what they came from.

An artifact lies at ``<cache>/artifacts/<sha256>/``: its files under ``files/``, and ``index.json``
with the files' hashes, what was left out, and where the artifact came from. The folder is made
under a temporary name and renamed, so that one that exists is complete. The index carries a hash of
itself, and every file is compared with the index when it is read.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from curate.cache.unpack import File
from curate.files import (
    Damaged,
    check_file,
    read_checked,
    read_sealed,
    sealed,
    temporary_name,
    writing,
)

SUFFIXES = frozenset({".py", ".pyi", ".cu", ".cuh", ".h", ".hpp", ".cpp"})
_METADATA_FILES = frozenset(
    {"CITATION.cff", "Cargo.toml", "METADATA", "PKG-INFO", "codemeta.json", "package.json"}
    | {"pyproject.toml", "setup.cfg", "REUSE.toml", "dep5"}
)
# Words in the names of files that speak of terms; `licenses` decides what each of them counts for.
_LEGAL_NAME = re.compile(
    r"(?i)licen[cs]|copying|notice|copyright|eula|legal|third.?part|3rd.?part|proprietary|commercial"
    r"|patent|disclaim|restrict|agreement|royalt|confidential|attribution|acknowledg|permission"
    r"|(?:^|[^a-z])(?:terms?|tos|clauses?|(?:open)?rail\w*|conditions|additional|addend\w*|riders?|rights"
    r"|credits|no-?ai|(?:ai|data|use|usage)[-_ ]?(?:policy|training))(?![a-z])"
)
# How other languages begin the names of such files; accents are folded away.
_FOREIGN_NAME = re.compile(
    r"(?i)lizen|licen(?:ci|z|ca|tie|s(?!e)|c[^e])|lisens|lisans|liiken|litsen|leyfi|nutzung|rechtlich|recht|urheber"
    r"|termos|terminos|condi[cz]|mentions|droits|diritti|direitos|derechos|aviso|avviso|vilkar|villkor"
    r"|ehdot|voorwaarden|warunki|podmink|felhasznal|sartlar|kosul"
    r"|лиценз|ліценз|услови|许可|許可|授权|授權|条款|條款|版权|版權|利用規約|規約|ライセンス|使用条件"
    r"|라이선스|이용약관|약관|\u03b1\u03b4\u03b5\u03b9\u03b1|\u03bf\u03c1\u03bf\u03b9|ترخيص|شروط|רישיון|लाइसेंस|ใบอนุญาต"
)
_README = re.compile(
    r"(?i)(?:liesmich|lisezmoi|leame|leggimi)(?:\.\w+)?"
    r"|read[-_. ]?me(?:[-_. ][\w-]{2,7})?(?:\.\w+)?"
)
_LICENSE_DATA = frozenset({"license", "licence", "licensing"})
_SHOUTED_NAME = re.compile(r"[A-Z][A-Z0-9_-]{2,}(?:\.(?:txt|md|rst|TXT|MD))?")
_DATA_SUFFIXES = frozenset(
    {".json", ".csv", ".yaml", ".yml", ".png", ".svg", ".jpg", ".so", ".pyc"}
)
PAPER_SUFFIXES = frozenset(
    {
        "",
        ".adoc",
        ".asciidoc",
        ".first",
        ".htm",
        ".html",
        ".markdown",
        ".md",
        ".mdx",
        ".mkd",
        ".org",
    }
    | {".pod", ".rdoc", ".rst", ".rtf", ".tex", ".text", ".textile", ".txt", ".1st"}
)
_PAPER_FOLDERS = frozenset({"license", "licence", "legal", "terms", "licensing", "rights"})
_PAPER_BYTES = 1 << 20
_KEPT = 2
"""Which files artifacts keep, as a number: those that were stored by another rule are made anew."""


def wanted(path: str, size: int = 0) -> bool:
    """Return whether artifacts keep this file: code, package metadata and what may hold terms.

    Args:
        path: in the source, its top folder included.
        size: bytes, as declared. It only decides on files of which nothing but their place says
            that they may hold terms: a table of words in the top folder is none.
    """
    parts = PurePosixPath(path)
    if parts.suffix.lower() in SUFFIXES or parts.name in _METADATA_FILES or may_hold_terms(path):
        return True
    on_top = len(parts.parts) <= 2 and parts.suffix.lower() in PAPER_SUFFIXES
    return on_top and size <= _PAPER_BYTES


def may_hold_terms(path: str) -> bool:
    """Return whether a file's name or folder says that it may speak of terms."""
    parts = PurePosixPath(path)
    if any(folder.lower() in ("licenses", "licences") for folder in parts.parts[:-1]):
        return True
    paper = parts.suffix.lower() in PAPER_SUFFIXES
    if paper and (parts.parent.name.lower() in _PAPER_FOLDERS or is_readme(path)):
        return True
    if _LEGAL_NAME.search(parts.name) or is_foreign_name(parts.name):
        return parts.suffix.lower() not in _DATA_SUFFIXES or parts.stem.lower() in _LICENSE_DATA
    return bool(_SHOUTED_NAME.fullmatch(parts.name))


def is_readme(path: str) -> bool:
    """Return whether a file is one that a reader of its folder is to read first."""
    parts = PurePosixPath(path)
    return bool(_README.fullmatch(parts.name)) and parts.suffix.lower() in PAPER_SUFFIXES


def is_foreign_name(name: str) -> bool:
    """Return whether a file's name says in another language that it holds terms."""
    plain = unicodedata.normalize("NFKD", name)
    plain = "".join(letter for letter in plain if not unicodedata.combining(letter))
    return bool(_FOREIGN_NAME.match(plain) or (not name.isascii() and _FOREIGN_NAME.search(name)))


@dataclass(frozen=True)
class Info:
    """Where an artifact came from; what is unknown is None, never invented.

    Attributes:
        source: pypi, git or local.
        purl: such as ``pkg:pypi/timm@1.0.31``.
        repo: the repository's address, without credentials.
        version: the package's version.
        commit: 40 hex digits.
        url: where the bytes were fetched, without credentials.
        retrieved_at: UTC, ISO 8601. It stands here and not in rows, which must be the same bytes
            in every run.
    """

    source: str
    purl: str | None = None
    repo: str | None = None
    version: str | None = None
    commit: str | None = None
    url: str | None = None
    retrieved_at: str | None = None


@dataclass(frozen=True)
class Artifact:
    """An unpacked source tree, named by the sha256 of what it came from.

    Attributes:
        root: the folder with the files.
        sha256: of the archive (pypi), of the commit's listing (git) or of the snapshot (local).
    """

    root: Path
    sha256: str

    def paths(self) -> tuple[str, ...]:
        """Return every file's path, relative and with forward slashes, sorted."""
        return self._paths

    def read(self, path: str) -> str:
        """Return a file's text as it stands, line ends included.

        Raises:
            FileNotFoundError: the artifact has no such file.
            UnicodeDecodeError: the file is not UTF-8.
        """
        return self.read_bytes(path).decode("utf-8")

    def read_bytes(self, path: str) -> bytes:
        """Return a file's bytes.

        Raises:
            FileNotFoundError: the artifact has no such file.
            Damaged: the file is not as it was stored.
        """
        return read_checked(self.root / path, self._sha256_of(path))

    def checked_file(self, path: str) -> Path:
        """Return where a file lies that is too large to hold.

        Raises:
            FileNotFoundError: the artifact has no such file.
            Damaged: the file is not as it was stored.
        """
        check_file(self.root / path, self._sha256_of(path))
        return self.root / path

    def _sha256_of(self, path: str) -> str:
        sha256: str | None = self._index["files"].get(path)
        if sha256 is None:
            raise FileNotFoundError(f"artifact {self.sha256[:12]} has no file {path!r}")
        return sha256

    @property
    def info(self) -> Info:
        """Where the artifact came from, and when."""
        return Info(**self._index["info"])

    @property
    def skipped(self) -> dict[str, int]:
        """How many files were left out, links among them, by suffix ('' for none)."""
        return dict(self._index["skipped"])

    @cached_property
    def _index(self) -> dict[str, Any]:
        path = self.root.parent / "index.json"
        index = read_sealed(path)
        if index["sha256"] != self.sha256:
            raise Damaged(path, "is of another artifact")
        return index

    @cached_property
    def _paths(self) -> tuple[str, ...]:
        return tuple(self._index["files"])


@lru_cache(maxsize=256)
def open_artifact(cache: Path, sha256: str) -> Artifact:
    """Return an artifact that the cache holds.

    Raises:
        Damaged: the cache does not hold it, or only in part.
    """
    if not is_stored(cache, sha256):
        raise Damaged(_folder(cache, sha256), "is gone, or lacks its index.json")
    return Artifact(_folder(cache, sha256) / "files", sha256)


def is_stored(cache: Path, sha256: str) -> bool:
    """Return whether the cache holds the artifact, complete and as today's rule keeps it.

    Raises:
        Damaged: its index is not as it was written.
    """
    index = _folder(cache, sha256) / "index.json"
    return index.is_file() and read_sealed(index).get("kept") == _KEPT


def store(
    cache: Path, sha256: str, info: Info, files: Iterable[File], *, strip_top: bool = False
) -> Artifact:
    """Write files into the cache as one artifact, whole or not at all, and return it.

    Args:
        cache: the cache folder.
        sha256: the artifact's name.
        info: where it came from; the time is added here.
        files: paths that `Names` has checked, and contents; None counts a file that is left out.
        strip_top: take away the one folder that holds everything, as in source archives.

    Raises:
        ArchiveError: from ``files``; nothing is kept then.
        CannotWrite: the operating system refused; nothing is kept then.
    """
    parent = cache / "artifacts"
    with writing(parent):
        parent.mkdir(parents=True, exist_ok=True)
        prefix = f".{temporary_name(sha256[:12])}."
        work = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        try:
            top, hashes, skipped = _write(work / "files", files)
            if strip_top and top:
                (work / "files").rename(work / "packed")
                (work / "packed" / top).rename(work / "files")
                hashes = {path.removeprefix(f"{top}/"): sha for path, sha in hashes.items()}
            now = datetime.now(UTC).isoformat(timespec="seconds")
            stamped = {**asdict(info), "retrieved_at": now}
            index = {"sha256": sha256, "kept": _KEPT, "info": stamped}
            index |= {"files": hashes, "skipped": skipped}
            (work / "index.json").write_bytes(sealed(index, indent=1))
            final = _folder(cache, sha256)
            if (final / "index.json").is_file() and not is_stored(cache, sha256):
                shutil.rmtree(final)  # stored by another rule
            _publish(work, final)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return open_artifact(cache, sha256)


def _write(root: Path, files: Iterable[File]) -> tuple[str | None, dict[str, str], dict[str, int]]:
    """Write files; return the only top folder, if so, hashes by path, and what was left out."""
    root.mkdir()
    tops: set[str] = set()
    hashes: dict[str, str] = {}
    skipped: Counter[str] = Counter()
    for path, content in files:
        head, slash, _ = path.partition("/")
        tops.add(head if slash else "")
        if content is None:
            skipped[PurePosixPath(path).suffix.lower()] += 1
            continue
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        hashes[path] = hashlib.sha256(content).hexdigest()
    top = tops.pop() if len(tops) == 1 else ""
    strips = hashes and top and not top.endswith(".dist-info")
    return top if strips else None, dict(sorted(hashes.items())), dict(sorted(skipped.items()))


def _publish(work: Path, final: Path) -> None:
    try:
        work.rename(final)
    except OSError:
        # Another process may have stored the same artifact first; its bytes are the same.
        if not (final / "index.json").is_file():
            raise Damaged(final, "stands in the way and is no artifact") from None


def _folder(cache: Path, sha256: str) -> Path:
    return cache / "artifacts" / sha256
