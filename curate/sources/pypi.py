"""The `pypi` source: packages from a package index, pinned by version and hash.

The index is the one that pip is configured for. A file is taken when its sha256 is the pinned one,
so the hash decides between wheel and source archive. Nothing is ever built or installed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from packaging.utils import canonicalize_name
from packaging.version import Version
from pydantic import AfterValidator, Field, WithJsonSchema

from curate.cache.artifact import is_stored, open_artifact
from curate.rows import Row
from curate.sources.files import FileSource, cache_of
from curate.step import Context, Drop, Place, Unit

_PIN = re.compile(  # name, version, sha256; JavaScript reads it as well, for the JSON schema
    r"^([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)==([A-Za-z0-9.!+_-]+)"
    r" --hash=sha256:([0-9a-f]{64})$"
)


def _check_pin(pin: str) -> str:
    match = _PIN.fullmatch(pin)
    if not match:
        raise ValueError(
            "must be a pinned package as in pip's requirements files: "
            "`name==version --hash=sha256:<64 lower-case hex digits>`; `curate pin RECIPE name` "
            "writes it"
        )
    Version(match[2])
    return pin


Pin = Annotated[
    str,
    AfterValidator(_check_pin),
    WithJsonSchema({"type": "string", "pattern": _PIN.pattern}),
]


class Pypi(FileSource):
    """Files of packages on the index that pip is configured for, pinned by version and hash."""

    source: Literal["pypi"]
    packages: Annotated[
        tuple[Pin, ...],
        Field(
            min_length=1,
            description="Packages as pip's requirements files pin them: `name==version "
            "--hash=sha256:…`. The hash decides which of the version's files is read, wheel or "
            "source archive; `curate pin RECIPE name` writes the line.",
        ),
    ]

    def pins(self) -> dict[Place, str]:
        return {("packages", i): pin.rpartition(":")[2] for i, pin in enumerate(self.packages)}

    def units(self, context: Context) -> list[Unit]:
        units = []
        for pin in self.packages:
            match = _PIN.fullmatch(pin)
            assert match, "packages are checked when the recipe is read"
            name, version, sha256 = canonicalize_name(match[1]), match[2], match[3]
            spec = {"name": name, "version": version, "sha256": sha256}
            units.append(Unit(f"{name} {version}", self._key(sha256), spec))
        return units

    def read(self, unit: Unit, context: Context) -> Iterator[Row | tuple[Row, Drop]]:
        cache, spec = cache_of(context), unit.spec
        if not is_stored(cache, spec["sha256"]):
            from curate.sources.index import fetch

            fetch(spec["name"], spec["version"], spec["sha256"], cache)
        artifact = open_artifact(cache, spec["sha256"])
        purl, version = artifact.info.purl, spec["version"]
        yield from self._rows(unit.label, artifact, purl=purl, version=version)
