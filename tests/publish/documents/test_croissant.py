"""`croissant.json`, validated and read by the real `mlcroissant`, which knows Croissant 1.1."""

import json
import shutil
from pathlib import Path
from typing import Any

import mlcroissant
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_sets import pair
from reports import make, rows
from steps_for_tests import LICENSE

from curate.files import file_sha256
from curate.formats.dataset.write import read_run
from curate.publish.analysis.analysis import Run, analyse
from curate.publish.documents.croissant import CONFORMS_TO, NAMESPACES, croissant
from curate.publish.documents.provenance import collect
from curate.rows import make_origin

UNKNOWN_HERE = 'Property "https://schema.org/datePublished" is recommended, but does not exist.'
CONFIGS = ("pairs", "kernels", "fim")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of every nested column, whose sources are pinned in different ways."""
    output = tmp_path_factory.mktemp("croissant")
    package = make_origin("pypi", purl="pkg:pypi/a@1", version="1", artifact_sha256="1" * 64)
    repository = make_origin("git", repo="https://example.org/b", commit="c" * 40)
    named = {**LICENSE, "copyright": ["Copyright 2024 Ada", "Copyright 2025 Grace"]}
    tool = {"name": "inductor", "tools": ["torch 2.13.0", "triton 3.7.1"]}
    more = [
        pair(21, license=named, parent_ids=["0" * 20], split="train")
        | {"origin": {**package, "generator": tool}},
        pair(22, license={**LICENSE, "choice": "BSD-3-Clause AND MIT"}) | {"origin": repository},
    ]
    make(output, [*rows(), *more])
    run = Run(output, "scales")
    text = croissant(run, analyse(run), collect(run))
    (run.folder / "croissant.json").write_text(text)
    return run.folder


@pytest.fixture(scope="module")
def data_set(folder: Path) -> mlcroissant.Dataset:
    return mlcroissant.Dataset(folder / "croissant.json")


@pytest.fixture(scope="module")
def written(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "croissant.json").read_text())
    return found


def test_it_is_valid_croissant_1_1(data_set: mlcroissant.Dataset) -> None:
    """What the format asks for and only who publishes knows is all that is missing."""
    issues = data_set.metadata.ctx.issues
    assert issues.errors == set()
    assert [warning.partition("] ")[2] for warning in issues.warnings] == [UNKNOWN_HERE]
    assert data_set.metadata.ctx.is_v1_1()
    assert data_set.metadata.conforms_to == CONFORMS_TO


def test_the_validator_would_find_a_mistake(folder: Path, written: dict[str, Any]) -> None:
    del written["recordSet"][1]["field"][1]["dataType"]
    with pytest.raises(mlcroissant.ValidationError, match="does not specify a valid"):
        mlcroissant.Dataset({**written})


def plain(value: Any) -> Any:
    """Return what was read with texts as texts, for `mlcroissant` gives bytes."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    return list(map(plain, value)) if isinstance(value, list) else value


def expected(place: str, kind: pa.DataType, value: Any) -> dict[str, Any]:
    """Return a Parquet value as `mlcroissant` gives it: by field, columns of columns apart."""
    if pa.types.is_list(kind) and pa.types.is_struct(kind.value_type):
        items = [None] if value is None else value
        return {place: [expected(place, kind.value_type, item)[place] for item in items]}
    if not pa.types.is_struct(kind):
        return {place: value}
    own: dict[str, Any] = {}
    inner: dict[str, Any] = {}
    for field in kind:
        found = expected(f"{place}/{field.name}", field.type, value and value[field.name])
        (inner if pa.types.is_struct(field.type) else own).update(found)
    return {place: own, **inner}


@pytest.mark.parametrize("config", CONFIGS)
def test_every_value_is_read_as_it_was_written(
    folder: Path, data_set: mlcroissant.Dataset, config: str
) -> None:
    written = []
    for path in sorted((folder / config).glob("*.parquet")):
        table = pq.read_table(path)
        for row in table.to_pylist():
            record = {f"{config}/split": path.name.partition("-")[0]}
            for field in table.schema:
                record |= expected(f"{config}/{field.name}", field.type, row[field.name])
            written.append(record)
    assert len(written) > 5
    by_id = {record[f"{config}/id"]: record for record in written}
    read = [plain(record) for record in data_set.records(config)]
    assert len(read) == len(written)
    for record in read:
        assert record == by_id[record[f"{config}/id"]]


def test_files_have_their_sha256_and_size(folder: Path, written: dict[str, Any]) -> None:
    files = {f["@id"]: f for f in written["distribution"] if f["@type"] == "cr:FileObject"}
    paths = {p.relative_to(folder).as_posix() for c in CONFIGS for p in (folder / c).iterdir()}
    assert files.keys() == paths
    for path, file in files.items():
        assert file["sha256"] == file_sha256(folder / path)
        assert file["contentSize"] == f"{(folder / path).stat().st_size} B"


def test_a_copy_of_the_folder_is_read_the_same(folder: Path, tmp_path: Path) -> None:
    """Nothing in the file is a path of the machine that wrote it."""
    shutil.copytree(folder, tmp_path / "copy")
    there = mlcroissant.Dataset(tmp_path / "copy/croissant.json")
    assert len(list(there.records("kernels"))) == 6
    assert str(folder.parent) not in (folder / "croissant.json").read_text()


def test_where_it_comes_from_in_prov(folder: Path, written: dict[str, Any]) -> None:
    sources = {entity["@id"]: entity for entity in written["prov:wasDerivedFrom"]}
    assert sources.keys() == {
        "https://example.org/k.git",
        f"git+https://example.org/b@{'c' * 40}",
        "pkg:pypi/a@1",
        "pkg:pypi/adders@1.0",
    }
    assert sources["pkg:pypi/a@1"] == {
        "@type": "prov:Entity",
        "@id": "pkg:pypi/a@1",
        "prov:label": "pkg:pypi/a@1",
        "version": "1",
        "sha256": ["1" * 64],
        "license": ["MIT"],
    }
    run = read_run(folder)
    assert run
    assert run["key"] in written["prov:wasGeneratedBy"]["prov:label"]
    assert written["license"] == [
        "https://spdx.org/licenses/BSD-3-Clause",
        "https://spdx.org/licenses/MIT",
    ]
    # The validator keeps what is not Croissant's own: it is told in the namespace that it names.
    kept = mlcroissant.Dataset(folder / "croissant.json").metadata.extra_properties
    assert {name for name in kept if NAMESPACES["prov"] in name or name.startswith("prov:")} == {
        "prov:wasDerivedFrom",
        "prov:wasGeneratedBy",
    }


def test_what_it_says_for_responsible_ai(data_set: mlcroissant.Dataset) -> None:
    said = data_set.metadata
    assert said.data_limitations and "A device adds in another order" in said.data_limitations[0]
    assert said.data_annotation_protocol and "`unsupported`" in said.data_annotation_protocol[0]
    assert said.annotations_per_item == "None by people: programs make all labels."
    assert said.personal_sensitive_information
    assert said.data_preprocessing_protocol
    assert [step.partition(":")[0] for step in said.data_preprocessing_protocol] == [
        *("normalize", "parse", "dedupe", "decontaminate", "split")
    ]
    assert said.data_biases and said.data_biases[0].startswith("4 sources; the largest gives 50 %")
    assert "inductor, torch 2.13.0, triton 3.7.1" in said.data_biases[1]
