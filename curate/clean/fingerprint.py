"""Fingerprint files: what `decontaminate` knows of a benchmark, as hashes and without its code.

Of each item the file holds, for the ways in which a copy of it is found,

- the hash of each of its parts (`curate.clean.forms.parts`);
- the hashes of the grams of each part (`curate.clean.forms.overlap`), if there are enough of them;
- the MinHash signature of the text of each of its programs (`curate.clean.similar.minhash`);

and of each of its programs in KernelBench's form, which is run in the sandbox for it,

- what it computes (`curate.clean.wiring.wiring`), which other words do not change.

A part of fewer than `MIN_NODES` nodes has no hash, since too many programs share it. An item that
has no larger one is known by what it computes alone, as building blocks are
(`curate.clean.computed`): one that is a lone ReLU is found in every problem that is a lone ReLU,
and in none that holds one among other operators. An item that computes nothing (it gives its
input back, cast or viewed) is not known at all: all of its kind look alike.

Neither code nor words can be had from them. The file is JSON with one line for each item of the
benchmark, so that versions can be compared; numbers of 32 bits stand in it as base64, lowest byte
first.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from curate.clean.forms.parts import MIN_NODES, Kind, PlainProgram
from curate.clean.wiring.graph import NOTHING
from curate.files import InputError
from curate.wording import plain

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FORM = 4
"""Raised when the same code gets other hashes; a file of another form is refused."""

MIN_GRAMS = 24
"""Grams that a part needs for its overlap to count: every program has the few of a smaller one."""

MIN_KERNEL_GRAMS = 64
"""The same for kernels. Smaller ones apply one function to each element, and are the skeleton of
all of that kind."""

SHIPPED = Path(__file__).with_name("fingerprints")
"""Folder with the files that the package ships."""


Base64 = Annotated[str, Field(pattern="^[A-Za-z0-9+/]*={0,2}$")]
Signature = Annotated[str, Field(pattern="^[A-Za-z0-9+/]{683}=$")]  # 128 numbers


class PartFingerprint(BaseModel):
    """A part of an item, without its code."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Kind
    name: Annotated[str, Field(description="The part's name in the item; empty for a program.")]
    ast: Annotated[str, Field(pattern="^[0-9a-f]{20}$", description="Hash of its structure.")]
    grams: Annotated[
        Base64, Field(description="Hashes of its grams, rising; empty if they do not count.")
    ] = ""


class Computation(BaseModel):
    """What a problem computes, without its code; see `curate.rows.WIRING`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    graph: Annotated[str, Field(pattern="^[0-9a-f]{20}$", description="Hash of its graph.")]
    ops: Annotated[int, Field(description="Operators that compute something.")]
    hops: Annotated[
        Base64, Field(description="Hashes of the graph's neighbourhoods; empty if it has values.")
    ] = ""
    values: Annotated[
        tuple[str, ...], Field(description="Hashes of what it computes on small inputs.")
    ] = ()

    @property
    def is_known(self) -> bool:
        """Whether it says what is computed; graphs that give what they read are all alike."""
        return bool(self.values) or self.graph not in NOTHING


class BenchmarkItem(BaseModel):
    """One problem or program of a benchmark, without its code."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    parts: tuple[PartFingerprint, ...]
    signatures: Annotated[
        tuple[Signature, ...], Field(description="MinHash signatures of its programs' texts.")
    ]
    computes: Annotated[
        tuple[Computation, ...], Field(description="What its problems compute.")
    ] = ()


class FingerprintFile(BaseModel):
    """What a fingerprint file holds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$")]
    version: Annotated[str | None, Field(description="Commit or release of the benchmark.")] = None
    url: Annotated[str | None, Field(description="Where the benchmark is kept.")] = None
    license: Annotated[str | None, Field(description="The benchmark's own, SPDX.")] = None
    form: Annotated[int, Field(description="Version of what the hashes are made of.")] = FORM
    min_nodes: Annotated[int, Field(description="Nodes that a part needs.")] = MIN_NODES
    items: Annotated[dict[str, BenchmarkItem], Field(min_length=1)]

    def to_json(self) -> str:
        """Return the file's text: the same for the same benchmark, one line an item."""
        head = self.model_dump(exclude={"items"})
        lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
        items = [
            f"{json.dumps(item)}: {json.dumps(found.model_dump(exclude_defaults=True))}"
            for item, found in sorted(self.items.items())
        ]
        return "{\n" + ",\n".join([*lines, '"items": {\n' + ",\n".join(items) + "\n}"]) + "\n}\n"


# --- making a file ----------------------------------------------------------------------------

SUFFIXES = (".py", ".json", ".jsonl", ".parquet")


@dataclass(frozen=True)
class Made:
    """Fingerprints of a benchmark, and the items that have none with the reason."""

    benchmark: FingerprintFile
    passed_over: dict[str, str]


def make_fingerprints(
    paths: Iterable[Path],
    name: str,
    version: str | None = None,
    url: str | None = None,
    license: str | None = None,
) -> Made:
    """Return the fingerprints of the programs that files and folders hold.

    Programs in KernelBench's form are run, in the sandbox.

    Args:
        paths: ``.py`` files; ``.json``, ``.jsonl`` and ``.parquet`` files with rows, of which
            every text that is Python counts; folders of these.
        name: the benchmark's.
        version: its commit or release.
        url: where it is kept.
        license: its own, as an SPDX expression.

    Raises:
        InputError: a file cannot be read, holds something else, or nothing counts.
        SandboxUnavailable: there is no sandbox on this machine.
    """
    items: dict[str, BenchmarkItem] = {}
    problems: dict[str, list[str]] = {}
    passed_over: dict[str, str] = {}
    for item, codes in _items(paths):
        if item in items:
            raise InputError(f"{item}: two items are called so; give the folder that holds both")
        problems[item] = [code for code in codes if _is_problem(code)]
        items[item], error = _fingerprints(codes)
        passed_over[item] = error or f"no part has {MIN_NODES} nodes, and " + (
            "it cannot be traced, or computes nothing"
            if problems[item]
            else "it is no problem in KernelBench's form"
        )
    known = _computations([code for codes in problems.values() for code in codes])
    for item, found in items.items():
        computes = tuple(c for code in problems[item] if (c := known.get(code)))
        items[item] = found.model_copy(update={"computes": computes})
    items = {item: found for item, found in items.items() if found.parts or found.computes}
    passed_over = {item: why for item, why in passed_over.items() if item not in items}
    if not items:
        why = "; ".join(f"{item}: {why}" for item, why in list(passed_over.items())[:1])
        raise InputError(f"nothing to fingerprint is there{why and '; '}{why}")
    try:
        made = FingerprintFile(name=name, version=version, url=url, license=license, items=items)
    except ValidationError as error:
        raise InputError(f"--name {name}: use a-z, 0-9 and . _ - only") from error
    return Made(made, passed_over)


def _is_problem(code: str) -> bool:
    """Say whether a program has KernelBench's form."""
    return all(f"{word}(" in code for word in ("class Model", "def get_inputs", "def forward"))


def _computations(codes: list[str]) -> dict[str, Computation]:
    """Return what problems compute, by their code; those that cannot be traced are left out."""
    from curate.clean.wiring.wiring import Wiring
    from curate.engine.executor import Job
    from curate.engine.processes.local import LocalExecutor
    from curate.engine.processes.sandbox import bubblewrap
    from curate.rows import make_origin, make_row
    from curate.step import Context

    if not codes:
        return {}
    bubblewrap()
    step = Wiring(step="wiring", timeout_s=300)
    origin = make_origin("local")
    rows = [dict(make_row("task", code, origin, reference=code)) for code in codes]
    jobs = (Job("", number, [row]) for number, row in enumerate(rows))
    found = {}
    for _, _, result in LocalExecutor(os.cpu_count() or 1).run(step, Context(), jobs):
        for row in result.kept:
            if row["wiring"] and (computes := _computation(row["wiring"])).is_known:
                found[row["reference"]] = computes
    return found


def _computation(wiring: dict[str, Any]) -> Computation:
    """Return what a file keeps of the column ``wiring``."""
    import numpy as np

    known = {name: wiring[name] for name in ("graph", "ops", "values")}
    hops = "" if wiring["values"] else to_base64(np.array(wiring["hops"], np.uint32))
    return Computation(**known, hops=hops)


def _fingerprints(codes: list[str]) -> tuple[BenchmarkItem, str | None]:
    """Return what is kept of an item's programs, and what was wrong with the last bad one."""
    from curate.clean.forms.overlap import text_signature

    found: dict[tuple[str, str, str], PartFingerprint] = {}
    programs: list[str] = []
    wrong = None
    for code in codes:
        try:
            parts = _parts(PlainProgram(code))
        except (SyntaxError, ValueError, RecursionError) as error:
            wrong = f"is not Python: {error}"
            continue
        found |= {(part.kind, part.name, part.ast): part for part in parts}
        programs += [code] if parts else []
    signatures = tuple(to_base64(signature) for signature in map(text_signature, programs))
    return BenchmarkItem(
        parts=tuple(found[key] for key in sorted(found)), signatures=signatures
    ), wrong


def _parts(program: PlainProgram) -> list[PartFingerprint]:
    """Return what is kept of a program's parts."""
    from curate.clean.forms.overlap import grams

    parts = list(program.parts(min_nodes=0))
    has_kernels = any(part.kind == "kernel" for part in parts)
    found = []
    for part in parts:
        # Beside kernels, plain functions are launchers and heuristics: many programs share
        # them that compute other things.
        if part.nodes < MIN_NODES or (has_kernels and part.kind == "function"):
            continue
        # A program with kernels is mostly launchers and tests too.
        whole = part.kind == "kernel_and_helpers" or (has_kernels and part.kind == "program")
        own = grams(program, part.body)
        enough = MIN_KERNEL_GRAMS if part.kind == "kernel" else MIN_GRAMS
        counts = not whole and len(own) >= enough
        text = to_base64(own) if counts else ""
        found.append(PartFingerprint(kind=part.kind, name=part.name, ast=part.ast, grams=text))
    return found


def to_base64(numbers: NDArray[np.uint32]) -> str:
    """Return numbers as a fingerprint file holds them."""
    return base64.b64encode(numbers.astype("<u4").tobytes()).decode()


def _items(paths: Iterable[Path]) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each item and the programs in it."""
    for path in paths:
        if path.is_dir():
            files = sorted(p for p in path.rglob("*") if p.suffix in SUFFIXES and p.is_file())
            for file in files:
                yield from _items_of_file(file, file.relative_to(path).as_posix())
        elif path.suffix in SUFFIXES:
            yield from _items_of_file(path, path.name)
        else:
            raise InputError(f"{path}: must be a folder or end in {', '.join(SUFFIXES)}")


def _items_of_file(path: Path, name: str) -> Iterator[tuple[str, list[str]]]:
    if path.suffix == ".py":
        yield name, [_read_text(path)]
        return
    for number, row in enumerate(_rows(path), 1):
        label = row.get("name") or row.get("id") or number
        yield f"{name}#{label}", [value for value in row.values() if isinstance(value, str)]


def _rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file of JSON, JSON lines or Parquet."""
    if path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            rows: Any = pq.read_table(path).to_pylist()
        except (OSError, pa.ArrowInvalid) as error:
            raise InputError(f"{path}: cannot be read: {error}") from error
    else:
        text = _read_text(path)
        try:
            lines = [line for line in text.split("\n") if line.strip()]
            rows = json.loads(text) if path.suffix == ".json" else [json.loads(s) for s in lines]
        except json.JSONDecodeError as error:
            raise InputError(f"{path}: is not JSON: {error}") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError(f"{path}: must hold a list of objects")
    return rows


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error


# --- files --------------------------------------------------------------------------------


def shipped_names() -> list[str]:
    """Return the names of the files that the package ships."""
    return sorted(path.stem for path in SHIPPED.glob("*.json"))


def find_file(name: str) -> Path:
    """Return the file behind a name: one that the package ships, or a path.

    Raises:
        InputError: there is none.
    """
    if name in shipped_names():
        return SHIPPED / f"{name}.json"
    path = Path(name)
    if not path.is_file():
        raise InputError(
            f"{name}: is no fingerprint file and no shipped one; "
            f"shipped are {', '.join(shipped_names())}"
        )
    return path


def write_benchmark(path: Path, benchmark: FingerprintFile) -> None:
    """Write a fingerprint file; the same bytes for the same benchmark.

    Raises:
        InputError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(benchmark.to_json(), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error}") from error


def read_benchmark(path: Path) -> FingerprintFile:
    """Return what a fingerprint file holds.

    Raises:
        InputError: it cannot be read, holds something else, or was made by another version.
    """
    try:
        content = json.loads(_read_text(path))
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: is no fingerprint file: {error}") from error
    if isinstance(content, dict) and isinstance(form := content.get("form"), int) and form != FORM:
        raise InputError(
            f"{path}: is of form {form}, and this version reads form {FORM}; make it again with "
            "`curate fingerprint`"
        )
    try:
        return FingerprintFile.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{path}: is no fingerprint file: {place}: {plain(first)}") from error
