"""The `hub` source: rows of a data set on the Hugging Face Hub, or of a copy of one.

Parquet files only: nothing of a data set is ever run. What is taken is the state at one commit,
and every file is checked against the hash that the Hub lists for it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from curate.cache.artifact import Artifact, Info, is_stored, may_hold_terms, open_artifact, store
from curate.cache.unpack import File
from curate.files import file_sha256, git_blob_id
from curate.rows import License, Row, make_origin, make_row
from curate.sources.files import cache_of, select
from curate.step import Context, Drop, Place, SourceError, SourceStep, Unit

if TYPE_CHECKING:
    from huggingface_hub import RepoFile

_PIN = re.compile(  # owner, name, commit; JavaScript reads it as well, for the JSON schema
    r"^([A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*)@([0-9a-f]{40})$"
)
_CARD = "README.md"
_LEGAL = 2  # raised when other files count as legal texts
_BATCH = 64  # records read at a time: a record of code is some tens of kilobytes

Use = Literal["license", "repo", "commit"]


def _check_pin(pin: str) -> str:
    if not _PIN.fullmatch(pin):
        raise ValueError("must be `owner/name@<commit: 40 lower-case hex digits>`")
    return pin


Pin = Annotated[
    str, AfterValidator(_check_pin), WithJsonSchema({"type": "string", "pattern": _PIN.pattern})
]


class Hub(SourceStep):
    """Rows of a data set's Parquet files (kind ``record``), each as JSON in ``text``."""

    makes: ClassVar[frozenset[str]] = frozenset({"record"})
    sets: ClassVar[frozenset[str]] = frozenset({"text"})

    source: Literal["hub"]
    dataset: Annotated[
        Pin | None,
        Field(
            description="Data set on the Hub, pinned by commit: `owner/name@<40 hex digits>`. It "
            "is fetched once, into the cache."
        ),
    ] = None
    path: Annotated[
        str | None,
        Field(
            min_length=1,
            description="In place of `dataset`: a folder with a copy of one (its card README.md "
            "beside the data), or one Parquet file; relative to where the command is run. Its "
            "content is its pin, as for `local`.",
        ),
    ] = None
    include: Annotated[
        tuple[str, ...],
        Field(
            min_length=1,
            description="Globs of the Parquet files to read: `*` matches within a folder, `**/` "
            "any number of folders.",
        ),
    ] = ("**/*.parquet",)
    columns: Annotated[
        dict[Use, str],
        Field(
            description="Columns of the data set that say where a row comes from. license: SPDX "
            "id, or list of ids that all apply, which is joined to the data set's own license; "
            "repo: address of the repository; commit: its commit.",
            default_factory=dict,
        ),
    ]

    @model_validator(mode="after")
    def _one_place(self) -> Hub:
        if (self.dataset is None) == (self.path is None):
            raise ValueError("give one of `dataset` (on the Hub) and `path` (on this machine)")
        return self

    def pins(self) -> dict[Place, str]:
        where = os.path.realpath(self.path) if self.path else self.dataset
        return {(): json.dumps([where, self.include, self.columns], sort_keys=True)}

    def units(self, context: Context) -> list[Unit]:
        if self.dataset:
            sha256 = _digest([self.dataset, *self.include])
        else:
            sha256 = _digest([[path, file_sha256(file)] for path, file in self._local_files()])
        key = _digest([sha256, list(self.include), self.columns])
        return [Unit(self._label(), key, {"sha256": sha256})]

    def read(self, unit: Unit, context: Context) -> Iterator[Row | tuple[Row, Drop]]:
        cache, sha256 = cache_of(context), unit.spec["sha256"]
        if not is_stored(cache, sha256):
            if self.dataset:
                name, commit = self.dataset.split("@")
                info = Info(source=self.source, purl=_purl(self.dataset), version=commit)
                files = fetch(name, commit, lambda paths: _wanted(paths, self.include, name))
            else:
                info = Info(source=self.source)
                files = ((path, file.read_bytes()) for path, file in self._local_files())
            store(cache, sha256, info, files)
        yield from self._records(open_artifact(cache, sha256))

    def _label(self) -> str:
        if self.dataset:
            name, commit = self.dataset.split("@")
            return f"{name}@{commit[:12]}"
        return str(self.path)

    def _local_files(self) -> list[tuple[str, Path]]:
        """Return paths and places of the copy's files that are kept, sorted by path.

        Raises:
            SourceError: there is no such folder or file, or no Parquet file in it.
        """
        place = Path(str(self.path))
        include = (place.name,) if place.is_file() else self.include
        root = place.parent if place.is_file() else place
        if not place.exists():
            raise SourceError(f"{place}: no such folder or file (looked from {Path.cwd()})")
        files = {
            file.relative_to(root).as_posix(): file for file in root.rglob("*") if file.is_file()
        }
        return [(path, files[path]) for path in _wanted(files, include, str(place))]

    def _records(self, artifact: Artifact) -> Iterator[Row | tuple[Row, Drop]]:
        """Yield one row per record, in order of path and of place in the file."""
        for path in artifact.paths():
            if not path.endswith(".parquet"):
                continue
            records = _read_parquet(artifact.checked_file(path), self.columns)
            for number, record in enumerate(records, 1):
                yield self._record(artifact, path, number, record)

    def _record(
        self, artifact: Artifact, path: str, number: int, record: dict[str, Any]
    ) -> Row | tuple[Row, Drop]:
        stated = {use: record[column] for use, column in self.columns.items()}
        origin = make_origin(
            self.source,
            purl=artifact.info.purl,
            version=artifact.info.version,
            repo=_repository(stated.get("repo")),
            commit=stated.get("commit") or None,
            artifact_sha256=artifact.sha256,
            path=path,
            start_line=number,
            end_line=number,
        )
        try:
            text = json.dumps(record, ensure_ascii=False)
        except TypeError as error:  # bytes, times: nothing that code is made of
            return make_row("record", "", origin), Drop("not_json", {"error": str(error)})
        license_ = _claim(stated["license"]) if "license" in stated else None
        return make_row("record", text, origin, text=text, license=license_)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _purl(pin: str) -> str:
    return f"pkg:huggingface/datasets/{pin}"


def _wanted(paths: Iterable[str], include: Iterable[str], label: str) -> list[str]:
    """Return the files to keep: the selected Parquet files, the card and legal texts, sorted."""
    paths = list(paths)
    data = [path for path in select(paths, include, ()) if path.endswith(".parquet")]
    if not data:
        raise SourceError(f"{label}: no Parquet file matches `include` {list(include)}")
    return sorted({*data, *_legal(paths)})


def _legal(paths: Iterable[str]) -> list[str]:
    """Return a data set's card and the files that may speak of its terms."""
    return [p for p in paths if p == _CARD or (may_hold_terms(p) and not p.endswith(".parquet"))]


def _read_parquet(file: Path, columns: dict[Use, str]) -> Iterator[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        parquet = pq.ParquetFile(file)
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"{file.name}: is no Parquet file: {error}") from error
    missing = [name for name in columns.values() if name not in parquet.schema_arrow.names]
    if missing:
        raise SourceError(
            f"{file.name}: has no column {', '.join(missing)}; it has "
            + ", ".join(parquet.schema_arrow.names)
        )
    for batch in parquet.iter_batches(batch_size=_BATCH):
        yield from batch.to_pylist()


def _repository(address: Any) -> str | None:
    """Return a repository's address without what follows its name, such as ``/tree/<commit>``."""
    found = re.match(r"(https?://[^/]+/[^/]+/[^/]+)", str(address or ""))
    return found[1] if found else (str(address) if address else None)


def _claim(value: Any) -> License:
    """Return what a record says of its own license; `licenses` decides what it is worth."""
    ids = value if isinstance(value, list) else [value]
    return {
        "expression": " AND ".join(str(entry) for entry in ids if entry),
        "choice": None,
        "method": "column",
        "confidence": None,
        "path": None,
        "text_sha256": [],
        "notice_sha256": [],
        "copyright": [],
        "conflict": None,
    }


# --- the Hub -------------------------------------------------------------------------------------


def newest(pin: str) -> str:
    """Return a data set's newest commit, pinned in the same form.

    Raises:
        SourceError: the Hub cannot be reached, or has no such data set.
    """
    from huggingface_hub import HfApi

    name, commit = pin.split("@")
    try:
        return f"{name}@{HfApi().dataset_info(name).sha}"
    except Exception as error:
        raise _cannot_be_fetched(name, commit, error) from error


def fetch_papers(pin: str, cache: Path) -> Artifact:
    """Return the card and the legal texts of a data set as an artifact, and none of its data.

    Raises:
        SourceError: as `fetch`.
    """
    sha256 = _digest([pin, _LEGAL])
    if not is_stored(cache, sha256):
        name, commit = pin.split("@")
        info = Info(source="hub", purl=_purl(pin), version=commit)
        store(cache, sha256, info, fetch(name, commit, _legal))
    return open_artifact(cache, sha256)


def fetch(name: str, commit: str, choose: Callable[[Iterable[str]], list[str]]) -> Iterator[File]:
    """Yield the chosen files of a data set at a commit, each checked against its listed hash.

    Follows https://huggingface.co/docs/huggingface_hub/package_reference/hf_api.

    Raises:
        SourceError: the Hub cannot be reached, does not have the commit, or sent other bytes.
    """
    import tempfile

    from huggingface_hub import HfApi, RepoFile

    api, kind = HfApi(), "dataset"
    try:
        tree = api.list_repo_tree(name, revision=commit, recursive=True, repo_type=kind)
        listed = {entry.path: entry for entry in tree if isinstance(entry, RepoFile)}
        with tempfile.TemporaryDirectory(prefix="curate-hub-") as folder:
            for path in choose(listed):
                file = api.hf_hub_download(
                    name, path, revision=commit, repo_type=kind, local_dir=folder
                )
                content = Path(file).read_bytes()
                check_listed(f"{name}/{path}", content, listed[path])
                yield path, content
                Path(file).unlink()
    except SourceError:
        raise
    except Exception as error:
        raise _cannot_be_fetched(name, commit, error) from error


def _cannot_be_fetched(name: str, commit: str, error: Exception) -> SourceError:
    """Return what to tell; what the client raises depends on its version and its HTTP library."""
    first = " ".join(str(error).split())[:200]
    return SourceError(
        f"{name}@{commit[:12]}: cannot be fetched: {type(error).__name__}: {first}. Where the "
        f"Hub cannot be reached, get a copy with `hf download {name} --repo-type dataset "
        f"--revision {commit} --local-dir DIR` and give `path: DIR`"
    )


def check_listed(label: str, content: bytes, listed: RepoFile) -> None:
    """Compare a file with its entry: a sha256 for large files, git's own hash for others.

    Raises:
        SourceError: the content is not what the Hub lists.
    """
    if listed.lfs is not None:
        expected, found = listed.lfs.sha256, hashlib.sha256(content).hexdigest()
    else:
        expected, found = listed.blob_id, git_blob_id(content)
    if expected != found:
        raise SourceError(f"{label}: the Hub lists {expected} and sent {found}; run again")
