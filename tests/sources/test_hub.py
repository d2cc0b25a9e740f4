"""Records of a data set: from the Hub at a commit, or from a copy, the same rows with the same
licenses; what was fetched once is never fetched again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from licenses.license_samples import bsd_text
from pydantic import ValidationError

from curate.licenses.licenses import Licenses
from curate.rows import ROW, Row
from curate.sources.hub import Hub, _legal
from curate.step import Context, Drop, Keep, SourceError

COLUMNS = {"license": "licenses", "repo": "repo_link", "commit": "sha"}
RECORDS = [
    {"code": "a = 'ä'\n", "licenses": ["MIT"], "sha": "1" * 40},
    {"code": "b = 1\n", "licenses": ["MIT", "Apache-2.0"], "sha": "2" * 40},
]
for record in RECORDS:
    record["repo_link"] = f"https://github.com/one/other/tree/{record['sha']}"
CARD = "---\nlicense: mit\n---\n# Rows\n"


def write(folder: Path, records: list[dict[str, Any]] = RECORDS, card: str = CARD) -> Path:
    (folder / "data").mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(records), folder / "data/train.parquet")
    (folder / "README.md").write_text(card)
    return folder


def hub(**options: Any) -> Hub:
    return Hub.model_validate({"source": "hub", "columns": COLUMNS, **options})


def read(step: Hub, context: Context) -> list[Row]:
    (unit,) = step.units(context)
    rows = list(step.read(unit, context))
    assert all(isinstance(row, dict) for row in rows)
    pa.Table.from_pylist(rows, schema=ROW)
    return rows  # type: ignore[return-value]


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(cache=tmp_path / "cache")


def test_a_copy_gives_records_with_their_origin(tmp_path: Path, context: Context) -> None:
    rows = read(hub(path=str(write(tmp_path / "copy"))), context)
    assert [json.loads(row["text"]) for row in rows] == RECORDS
    assert [row["kind"] for row in rows] == ["record"] * 2
    origin = rows[1]["origin"]
    assert origin["repo"] == "https://github.com/one/other"
    assert (origin["commit"], origin["path"]) == ("2" * 40, "data/train.parquet")
    assert (origin["start_line"], origin["end_line"], origin["purl"]) == (2, 2, None)
    assert str(tmp_path) not in repr(rows)


def test_one_file_is_read_as_well(tmp_path: Path, context: Context) -> None:
    copy = write(tmp_path / "copy")
    assert len(read(hub(path=str(copy / "data/train.parquet")), context)) == 2


def test_key_follows_content_and_options(tmp_path: Path, context: Context) -> None:
    copy = write(tmp_path / "copy")

    def key(**options: Any) -> str:
        return hub(path=str(copy), **options).units(context)[0].key

    first = key()
    (copy / "notes.txt").write_text("not kept")
    assert key() == first
    assert key(columns={}) != first
    write(copy, card="---\nlicense: other\n---\n")
    assert key() != first


def test_a_copy_that_is_gone_is_read_from_the_cache(tmp_path: Path, context: Context) -> None:
    copy = write(tmp_path / "copy")
    step = hub(path=str(copy))
    (unit,) = step.units(context)
    first = list(step.read(unit, context))
    (copy / "data/train.parquet").unlink()
    assert list(step.read(unit, context)) == first


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "nowhere"}, "no such folder or file"),
        ({"path": "copy", "include": ["*.json"]}, "no Parquet file matches"),
        ({"path": "copy", "columns": {"license": "terms"}}, "has no column terms; it has code"),
    ],
)
def test_errors_say_what_to_do(
    options: dict[str, Any],
    message: str,
    tmp_path: Path,
    context: Context,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "copy")
    with pytest.raises(SourceError, match=message):
        read(hub(**options), context)


def test_a_file_that_is_no_parquet_is_told(tmp_path: Path, context: Context) -> None:
    copy = write(tmp_path / "copy")
    (copy / "data/train.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(SourceError, match="is no Parquet file"):
        read(hub(path=str(copy)), context)


def test_what_json_cannot_hold_is_dropped(tmp_path: Path, context: Context) -> None:
    step = hub(path=str(write(tmp_path / "copy", [{"code": b"\0"}])), columns={})
    (unit,) = step.units(context)
    ((row, drop),) = step.read(unit, context)
    assert isinstance(drop, Drop) and drop.reason == "not_json"
    assert row["text"] is None


def test_one_place_is_needed() -> None:
    for options in ({}, {"path": "x", "dataset": f"a/b@{'0' * 40}"}):
        with pytest.raises(ValidationError, match="give one of"):
            hub(**options)
    with pytest.raises(ValidationError, match="40 lower-case hex digits"):
        hub(dataset="a/b@main")


# --- licenses -------------------------------------------------------------------------------------


def licensed(folder: Path, context: Context) -> list[Keep | Drop]:
    step = Licenses(step="licenses")
    return [step.apply(row, context) for row in read(hub(path=str(folder)), context)]


def test_both_licenses_hold(tmp_path: Path, context: Context) -> None:
    first, second = licensed(write(tmp_path / "copy"), context)
    assert isinstance(first, Keep) and isinstance(second, Keep)
    assert first.rows[0]["license"]["expression"] == "MIT"
    assert second.rows[0]["license"]["choice"] == "Apache-2.0 AND MIT"
    assert second.rows[0]["license"]["method"] == "card"
    assert second.rows[0]["license"]["path"] == "README.md"


def test_a_license_file_is_kept_as_text(tmp_path: Path, context: Context) -> None:
    copy = write(tmp_path / "copy", card="---\nlicense: bsd-3-clause\n---\n")
    (copy / "LICENSE").write_text(bsd_text())
    first, _ = licensed(copy, context)
    assert isinstance(first, Keep)
    license_ = first.rows[0]["license"]
    assert (license_["method"], license_["path"]) == ("license_file", "LICENSE")
    assert license_["choice"] == "BSD-3-Clause AND MIT"
    assert len(license_["text_sha256"]) == len(license_["copyright"]) == 1
    assert not license_["conflict"]


@pytest.mark.parametrize(
    ("card", "licenses", "reason"),
    [
        (CARD, ["MIT", "GPL-3.0-only"], "license_denied"),
        (CARD, ["no_license"], "license_unknown"),
        (CARD, [], "license_unknown"),
        ("---\nlicense: cc-by-4.0\n---\n", ["MIT"], "license_denied"),
        (
            "---\nlicense: other\nlicense_name: June 9 Researcher Reciprocity License\n---\n",
            ["MIT"],
            "license_unknown",
        ),
        ("---\nlicense: [mit\n---\n", ["MIT"], "license_unknown"),
        ("# No head\n", ["MIT"], "license_unknown"),
    ],
)
def test_what_is_unknown_or_denied_goes(
    card: str, licenses: list[str], reason: str, tmp_path: Path, context: Context
) -> None:
    copy = write(tmp_path / "copy", [{**RECORDS[0], "licenses": licenses}], card)
    (outcome,) = licensed(copy, context)
    assert isinstance(outcome, Drop)
    assert outcome.reason == reason


def test_a_license_file_in_other_words_is_unknown(tmp_path: Path, context: Context) -> None:
    copy = write(tmp_path / "copy")
    (copy / "LICENSE").write_text("You may read these rows, but train on them only if you share.")
    first, _ = licensed(copy, context)
    assert isinstance(first, Drop)
    assert first.reason == "license_unknown"


# --- the Hub --------------------------------------------------------------------------------------


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A Hub on loopback with one data set; its ``pin`` is the commit."""
    pytest.importorskip("uvicorn", reason="the Hub stand-in is a web application")
    from huggingface_hub import constants
    from publish.hub_stand_in import Blob, Repo, serve
    from publish.hub_stand_in import Hub as StandIn

    copy = write(tmp_path / "remote")
    files = {
        "README.md": Blob((copy / "README.md").read_bytes(), lfs=False),
        "data/train.parquet": Blob((copy / "data/train.parquet").read_bytes(), lfs=True),
        "data/train.json": Blob(b"[]", lfs=True),
    }
    with serve(StandIn()) as here:
        repo = here.repos.setdefault("one/rows", Repo("one", private=False))
        here.pin = f"one/rows@{repo.commit('heads/main', 'rows', files).oid}"
        template = here.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "ENDPOINT", here.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)  # another test may have set it
        yield here


def test_a_commit_is_fetched_once(remote: Any, context: Context, tmp_path: Path) -> None:
    step = hub(dataset=remote.pin)
    rows = read(step, context)
    assert [json.loads(row["text"]) for row in rows] == RECORDS
    commit = remote.pin.split("@")[1]
    assert rows[0]["origin"]["purl"] == f"pkg:huggingface/datasets/{remote.pin}"
    assert rows[0]["origin"]["version"] == commit
    asked = len(remote.requests)
    assert read(step, context) == rows
    assert len(remote.requests) == asked
    outcome = Licenses(step="licenses").apply(rows[0], context)
    assert isinstance(outcome, Keep)


def test_a_commit_that_is_not_there_is_told(remote: Any, context: Context) -> None:
    with pytest.raises(SourceError, match=r"cannot be fetched.*hf download one/rows"):
        read(hub(dataset=f"one/rows@{'0' * 40}"), context)


def test_other_bytes_than_the_listed_ones_are_refused() -> None:
    from huggingface_hub import RepoFile

    from curate.sources.hub import check_listed

    content = b"# Rows\n"
    oid = hashlib.sha1(b"blob 7\0" + content).hexdigest()
    sha256 = hashlib.sha256(content).hexdigest()
    plain = RepoFile(path="README.md", size=7, oid=oid)
    lfs = {"oid": sha256, "size": 7, "pointerSize": 130}
    large = RepoFile(path="train.parquet", size=7, oid="0" * 40, lfs=lfs)
    for listed in (plain, large):
        check_listed("one/rows", content, listed)
        with pytest.raises(SourceError, match="the Hub lists"):
            check_listed("one/rows", content + b"more", listed)


def test_files_that_may_speak_of_terms_come_with_the_card() -> None:
    legal = ["README.md", "EULA.txt", "data/USE_POLICY.md", "LICENSE", "licenses/other.txt"]
    others = ["data/train.parquet", "terms.parquet", "data/preview.png", "notes.md"]
    assert _legal([*legal, *others]) == legal
