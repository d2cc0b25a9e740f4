"""``croissant.json``: a data set as programs look for it, in Croissant 1.1 with the RAI vocabulary.

Formats: https://docs.mlcommons.org/croissant/docs/croissant-spec-1.1.html and
https://docs.mlcommons.org/croissant/docs/croissant-rai-spec.html; where rows come from is given in
W3C PROV-O, as the first of them asks.

Files are named relative to ``croissant.json``, so that `mlcroissant` reads a downloaded copy.
Only the publisher knows three fields that the format requires, so they are left
out rather than made up: ``url``, ``creator`` and ``datePublished``. A data set
has no version number before it is tagged; ``version`` is 0.0.0 with the start of the data's sha256.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from curate.formats.dataset.front_matter import SPLITS, Config, read_configs
from curate.formats.dataset.write import data_sha256
from curate.licenses.policy import UnknownLicense, license_ids
from curate.publish.analysis.analysis import Analysis, Run, StepCounts
from curate.publish.analysis.counts import ranked
from curate.publish.analysis.numbers import plural, share
from curate.publish.analysis.words import REMOVAL, headline, step_line
from curate.publish.documents.card import ABOUT, COLUMNS, JUDGED, UNSUPPORTED, citation, limits
from curate.publish.documents.provenance import Account, Pin, Provenance

Json = dict[str, Any]

CROISSANT_FILE = "croissant.json"
CONFORMS_TO = ["http://mlcommons.org/croissant/1.1", "http://mlcommons.org/croissant/RAI/1.0"]
NAMESPACES = {
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "prov": "http://www.w3.org/ns/prov#",
}
TERMS = (
    *("annotation", "arrayShape", "citeAs", "column", "containedIn", "equivalentProperty"),
    *("excludes", "extract", "field", "fileObject", "fileProperty", "fileSet", "format"),
    *("includes", "isArray", "isLiveDataset", "jsonPath", "key", "md5", "parentField", "path"),
    *("readLines", "recordSet", "references", "regex", "repeated", "replace", "samplingRate"),
    *("sdVersion", "separator", "source", "subField", "transform", "unArchive", "value"),
)
"""Names that Croissant writes without its prefix."""
SPLIT_TERMS = {"train": "cr:TrainingSplit", "validation": "cr:ValidationSplit"}
SPLIT_TERMS |= {"test": "cr:TestSplit"}
DATA_TYPES = {"bool": "sc:Boolean", "int32": "sc:Integer", "int64": "sc:Integer"}
DATA_TYPES |= {"float": "sc:Float", "double": "sc:Float", "string": "sc:Text"}
PERSONAL = (
    "Rows are code, not data about people. Comments, docstrings and copyright lines may name those "
    "who wrote it; they are kept, as licenses ask for, and were not searched for anything else."
)


def croissant(run: Run, analysis: Analysis, found: Provenance) -> str:
    """Return the text of a finished run's ``croissant.json``.

    Args:
        run: whose Parquet files are there, with their sha256 in ``run.json``.
        analysis: of the same run.
        found: where its published rows come from.
    """
    configs = read_configs(run.folder, run.known)
    data = {
        "@context": _context(),
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS_TO,
        "name": analysis.name,
        "description": " ".join([analysis.description, *headline(analysis)]).strip(),
        "license": [f"https://spdx.org/licenses/{key}" for key in _license_ids(found)],
        "citeAs": citation(run.known),
        "version": f"0.0.0+{data_sha256(run.known)[:16]}",
        "keywords": ["triton", "gpu-kernels", "code", "pytorch"],
        "inLanguage": "en",
        **_provenance(run, found),
        **dict(_responsibility(run, analysis, found)),
        "distribution": [file for config in configs for file in _files(run, config)],
        "recordSet": [_splits(), *(_records(run, config) for config in configs)],
    }
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def _context() -> Json:
    return {
        "@language": "en",
        "@vocab": NAMESPACES["sc"],
        **NAMESPACES,
        **{term: f"cr:{term}" for term in TERMS},
        "conformsTo": "dct:conformsTo",
        "data": {"@id": "cr:data", "@type": "@json"},
        "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
        "description": {"@container": "@language"},
        "examples": {"@id": "cr:examples", "@type": "@json"},
        "name": {"@container": "@language"},
    }


def _license_ids(found: Provenance) -> list[str]:
    """Return the SPDX ids of all licenses that rows are under."""
    ids: set[str] = set()
    for expression in _expressions(found):
        try:
            ids |= license_ids(expression)
        except UnknownLicense:
            continue  # `curate push` refuses such a row
    return sorted(ids)


def _expressions(found: Provenance) -> list[str]:
    return sorted({x for account in found.sources.values() for x in account.licenses})


# --- where rows come from -----------------------------------------------------------------------


def _provenance(run: Run, found: Provenance) -> Json:
    known = run.known
    label = f"run {known['key']} of the recipe {known['recipe']['name']}, which run.json describes"
    return {
        "prov:wasDerivedFrom": list(_entities(found)),
        "prov:wasGeneratedBy": {
            "@type": "prov:Activity",
            "prov:label": label,
            "prov:wasAssociatedWith": {"@type": "prov:SoftwareAgent", "prov:label": "curate"},
        },
    }


def _entities(found: Provenance) -> Iterator[Json]:
    """Yield the sources that gave rows; one that was read from several artifacts is one entity."""
    sources: dict[tuple[str, str | None], list[tuple[Pin, Account]]] = {}
    for pin, account in found.sources.items():
        if account.rows:
            sources.setdefault((pin.name, pin.commit), []).append((pin, account))
    for (name, commit), parts in sources.items():
        address = f"git+{name}@{commit}" if commit else name
        known = {
            "@id": address if ":" in address else None,  # a source without an address has no IRI
            "version": parts[0][0].version,
            "sha256": sorted({pin.sha256 for pin, _ in parts if pin.sha256}),
            "license": sorted({x for _, account in parts for x in account.licenses}),
        }
        there = {field: value for field, value in known.items() if value}
        yield {"@type": "prov:Entity", "prov:label": name, **there}


# --- responsible AI -----------------------------------------------------------------------------


def _responsibility(run: Run, a: Analysis, found: Provenance) -> Iterator[tuple[str, Any]]:
    steps = list(zip(a.steps, run.records, strict=True))
    collected = [step.what for step, record in steps if not record.kinds]
    yield "rai:dataCollection", " ".join(f"{what}." for what in dict.fromkeys(collected))
    yield "rai:dataCollectionType", ["Software Collection"]
    yield "rai:dataCollectionRawData", "What prov:wasDerivedFrom names; PROVENANCE.md tells more."
    yield (
        "rai:dataPreprocessingProtocol",
        [_step_line(step) for step, record in steps if record.kinds],
    )
    if a.verdicts.judge.counts:
        yield "rai:dataAnnotationProtocol", _line(JUDGED + UNSUPPORTED)
        yield "rai:machineAnnotationTools", list(a.verdicts.judge.counts)
    yield "rai:annotationsPerItem", "None by people: programs make all labels."
    yield "rai:dataUseCases", ["Training and fine-tuning of models that write Triton kernels."]
    yield "rai:dataLimitations", [" ".join(["What is not known:", *limits(a)])]
    yield "rai:dataBiases", list(_biases(found))
    yield "rai:personalSensitiveInformation", [PERSONAL]
    yield "rai:dataReleaseMaintenancePlan", _line(REMOVAL)


def _step_line(step: StepCounts) -> str:
    return f"{step.label}: {step.what}. {step_line(step)}"


def _line(text: str) -> str:
    return " ".join(text.split())


def _biases(found: Provenance) -> Iterator[str]:
    rows = sum(account.rows for account in found.sources.values())
    most = max((account.rows for account in found.sources.values()), default=0)
    given = sum(1 for account in found.sources.values() if account.rows)
    if most:
        yield f"{plural(given, 'source')}; the largest gives {share(most, rows)} of the rows."
    for tool, n in ranked(found.generators).items():
        yield f"{share(n, rows)} of the rows hold code that a tool wrote, in its style: {tool}."
    yield f"Only code under these licenses: {', '.join(_expressions(found))}."


# --- files and columns --------------------------------------------------------------------------


def _files(run: Run, config: Config) -> Iterator[Json]:
    """Yield the Parquet files of a config and, last, the set of them that its records are in."""
    paths = sorted(path for path in run.known["files"] if path.startswith(f"{config.name}/"))
    for path in paths:
        yield {
            "@type": "cr:FileObject",
            "@id": path,
            "name": path,
            "contentUrl": path,
            "contentSize": f"{(run.folder / path).stat().st_size} B",
            "encodingFormat": "application/x-parquet",
            "sha256": run.known["files"][path],
        }
    yield {
        "@type": "cr:FileSet",
        "@id": f"{config.name}/files",
        "name": f"{config.name}/files",
        "encodingFormat": "application/x-parquet",
        "includes": f"{config.name}/*.parquet",
    }


def _splits() -> Json:
    fields = [("name", "sc:Text"), ("url", "sc:URL")]
    return {
        "@type": "cr:RecordSet",
        "@id": "splits",
        "name": "splits",
        "dataType": "cr:Split",
        "key": {"@id": "splits/name"},
        "field": [
            {"@type": "cr:Field", "@id": f"splits/{name}", "name": name, "dataType": kind}
            for name, kind in fields
        ],
        "data": [{"splits/name": x, "splits/url": SPLIT_TERMS[x]} for x in SPLITS],
    }


def _records(run: Run, config: Config) -> Json:
    formats = {f["config"] or f["format"]: f["format"] for f in run.known["recipe"]["formats"]}
    name, source = config.name, {"fileSet": {"@id": f"{config.name}/files"}}
    split = {
        "@type": "cr:Field",
        "@id": f"{name}/split",
        "name": "split",
        "dataType": "sc:Text",
        "references": {"field": {"@id": "splits/name"}},
        "source": {
            **source,
            "extract": {"fileProperty": "fullpath"},
            # It matches its own result too, to which `mlcroissant` applies it once more.
            "transform": {
                "regex": rf"^(?:{re.escape(name)}/)?({'|'.join(SPLITS)})(?:-.*\.parquet)?$"
            },
        },
    }
    columns = (_column(name, column, source) for column in config.schema)
    about = ABOUT.get(formats.get(name, ""))
    key = {"key": {"@id": f"{name}/id"}} if "id" in config.columns else {}
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        **({"description": about} if about else {}),
        **key,
        "field": [split, *columns],
    }


def _column(record_set: str, column: pa.Field, source: Json) -> Json:
    of = {**source, "extract": {"column": column.name}}
    field = _field(f"{record_set}/{column.name}", column, of)
    about = COLUMNS.get(column.name)
    return {**field, **({"description": about} if about else {})}


def _field(place: str, column: pa.Field, source: Json, path: tuple[str, ...] = ()) -> Json:
    """Return a column, or what a column of columns holds at a path, as a field."""
    kind, shape = column.type, {}
    if pa.types.is_list(kind):
        kind, shape = kind.value_type, {"isArray": True, "arrayShape": "-1"}
    field = {"@type": "cr:Field", "@id": place, "name": column.name, **shape}
    if pa.types.is_struct(kind):
        inner = [_field(f"{place}/{x.name}", x, source, (*path, x.name)) for x in kind]
        return {**field, "subField": inner}
    transform = {"transform": {"jsonPath": ".".join(path)}} if path else {}
    return {**field, "dataType": DATA_TYPES[str(kind)], "source": {**source, **transform}}
