"""The columns of every table, in one place.

Every step reads and writes rows of one schema, ``ROW``. A row's ``kind`` says what it is:

=========  ==================================================================================
``file``   one file of a source; its content is in ``text``
``record`` one row of another data set, as JSON in ``text``
``module`` one ``nn.Module`` class found in a file; after ``closure``, ``text`` stands alone
``task``   a PyTorch problem in KernelBench's form, in ``reference``
``pair``   a task and the Triton program that answers it, in ``reference`` and ``triton``
``kernel`` one ``@triton.jit`` function found in a file; after ``closure``, ``triton`` stands alone
``prompt`` a question to a teacher model, in ``turns``
``sample`` one answer of a teacher, the last of ``turns``; the program taken from it is ``triton``
``cuda``   a CUDA kernel and the Triton kernel named as its counterpart, in ``cuda`` and ``triton``
=========  ==================================================================================

A column that a kind does not use is null. In Python a row is a plain ``dict`` that survives JSON:
a `Row`, or where its kind is known a `FileRow`, `PairRow` and so on, whose columns are not null.
No row is changed in place. The Arrow schema is made from these classes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

import pyarrow as pa
from typing_extensions import ReadOnly, TypedDict

UInt32 = Annotated[int, pa.uint32()]

RAW = frozenset({"file", "record", "module"})
"""Kinds of row that problems and kernels are made of; most give none."""

Loose = dict[str, Any]
"""A row or a part of one as it was read from a file, for reports: nobody says what is in it."""


class Generator(TypedDict):
    """What wrote a row's code, when no person did."""

    name: ReadOnly[str]
    tools: ReadOnly[list[str]]


class TeacherModel(TypedDict):
    """The model that wrote a row's answer."""

    model: ReadOnly[str]
    terms: ReadOnly[str | None]  # of use of its answers: an SPDX id or a url


class Origin(TypedDict):
    """Where a row comes from. What is unknown is null, never invented."""

    source: ReadOnly[str]  # pypi | git | hub | local | torch_ops
    purl: ReadOnly[str | None]  # pkg:pypi/timm@1.0.31
    repo: ReadOnly[str | None]
    version: ReadOnly[str | None]
    commit: ReadOnly[str | None]
    artifact_sha256: ReadOnly[str | None]
    path: ReadOnly[str | None]  # inside the artifact, with forward slashes
    start_line: ReadOnly[int | None]  # 1-based, inclusive; of a record: its number in the file
    end_line: ReadOnly[int | None]
    symbol: ReadOnly[str | None]
    generator: ReadOnly[Generator | None]
    teacher: ReadOnly[TeacherModel | None]
    derived_from: ReadOnly[list[str]]  # files, purls or urls that the code says it comes from


class FileOrigin(Origin):
    """The origin of what lies in an artifact."""

    artifact_sha256: ReadOnly[str]
    path: ReadOnly[str]


class SymbolOrigin(FileOrigin):
    """The origin of a definition in a file of an artifact."""

    start_line: ReadOnly[int]
    symbol: ReadOnly[str]


class License(TypedDict):
    """Under which license a row is used, and how that was found."""

    expression: ReadOnly[str]  # SPDX, as found
    choice: ReadOnly[str | None]  # the branch of an OR under which the row is used
    # spdx_tag | header | license_file | override | card | generated
    method: ReadOnly[str | None]
    confidence: ReadOnly[float | None]
    path: ReadOnly[str | None]  # where in the artifact the decisive text stands
    text_sha256: ReadOnly[list[str]]  # license texts to ship with the row
    notice_sha256: ReadOnly[list[str]]  # NOTICE files to ship with the row
    copyright: ReadOnly[list[str]]
    conflict: ReadOnly[bool | None]  # tag, file and metadata disagree; the most restrictive won


class Static(TypedDict):
    """What a program's text says."""

    kernels: ReadOnly[int | None]
    lines: ReadOnly[int | None]
    ops: ReadOnly[list[str] | None]  # ATen operators of the reference's graph
    pure_triton: ReadOnly[bool | None]  # no extern call computes anything
    extern_calls: ReadOnly[list[str] | None]
    dynamic_dims: ReadOnly[int | None]  # sizes that are kernel arguments
    specialised: ReadOnly[list[str] | None]  # arguments it is written for, as in "eps=1e-5"
    any_float: ReadOnly[bool | None]  # it takes the floating type of its input


class Compiled(TypedDict):
    """What a compiler made of a program for one target."""

    target: ReadOnly[str]
    ok: ReadOnly[bool]
    kernels: ReadOnly[int | None]  # kernels compiled for this target
    registers: ReadOnly[int | None]  # largest of any kernel, per thread
    spills: ReadOnly[int | None]  # bytes, largest of any kernel
    shared: ReadOnly[int | None]  # bytes per block, largest of any kernel
    error: ReadOnly[str | None]  # error class
    message: ReadOnly[str | None]  # first line of the compiler's message
    signature: ReadOnly[str | None]  # JSON: kernel -> the argument types and constants used


class HostRun(TypedDict):
    """What a kernel's host function did on the CPU."""

    status: ReadOnly[str]  # ran | raised | unsupported
    message: ReadOnly[str | None]  # what it raised, or why it could not be run
    inputs: ReadOnly[str | None]  # the call, as Python
    launches: ReadOnly[int | None]
    deterministic: ReadOnly[bool | None]  # the same bits when run again
    mutated_inputs: ReadOnly[list[str] | None]  # arguments that it wrote to


class KernelFacts(TypedDict):
    """What is known of a kernel that stands alone."""

    launches: ReadOnly[str | None]  # JSON: what launch sites in its package give its parameters
    signature: ReadOnly[str | None]  # JSON: argument types and constants that it compiles with
    found_by: ReadOnly[str | None]  # launch_site | data_flow | search
    attempts: ReadOnly[int | None]  # compilations that finding it took
    dtypes: ReadOnly[list[str] | None]  # element types of its pointers with which it compiles
    run: ReadOnly[HostRun | None]


class Times(TypedDict):
    """Medians of the times of a call, in microseconds."""

    candidate_us: ReadOnly[float | None]
    eager_us: ReadOnly[float | None]
    compile_us: ReadOnly[float | None]  # torch.compile
    spread: ReadOnly[float | None]  # interquartile range of the candidate's over its median


class Judgement(TypedDict):
    """What the judge said of a program: `curate.verify.verdict.Verdict` as columns."""

    status: ReadOnly[str]  # one of curate.verify.verdict.STATUSES
    reason: ReadOnly[str | None]
    caveats: ReadOnly[list[str] | None]  # what the status does not cover
    backend: ReadOnly[str | None]  # cpu | cuda | hip
    device: ReadOnly[str | None]
    driver: ReadOnly[str | None]
    torch: ReadOnly[str | None]
    triton: ReadOnly[str | None]
    judge: ReadOnly[int]  # version of the judge
    trials: ReadOnly[int]
    max_abs_error: ReadOnly[float | None]
    error_ratio: ReadOnly[float | None]  # worst error over the error allowed; at most 1 passes
    kind: ReadOnly[str | None]  # pure_triton | pure_cuda | hybrid | no_kernel, as it ran
    launches: ReadOnly[int | None]  # in one forward
    aten_calls: ReadOnly[list[str] | None]  # operators that computed something, in one forward
    deterministic: ReadOnly[bool | None]  # the same bits when run again
    insensitive_inputs: ReadOnly[list[int] | None]  # positions that change nothing
    findings: ReadOnly[list[str] | None]  # rules of the static screen
    evidence: ReadOnly[str | None]  # JSON: what shows a status other than correct
    timing: ReadOnly[Times | None]


class Turn(TypedDict):
    """What one side of a conversation says."""

    role: ReadOnly[str]
    content: ReadOnly[str]


class Asked(TypedDict):
    """What a teacher was asked, and what is known of its answer."""

    family: ReadOnly[str]  # of the first prompt: implement | convert | optimise | …
    template: ReadOnly[str]  # the last prompt's and its version: implement@1, repair@1
    attempt: ReadOnly[int]  # 1 for a first answer, 2 for its repair and so on
    number: ReadOnly[int]  # of the answers to one prompt, from 0
    finish: ReadOnly[str | None]  # why the teacher stopped: stop | length | …
    prompt_tokens: ReadOnly[int | None]
    completion_tokens: ReadOnly[int | None]
    retried: ReadOnly[bool | None]  # a `repair` prompt was made of it
    # best | alternative | repaired | fixed | failed | unjudged: see curate.teacher.select
    selection: ReadOnly[str | None]


class Evidence(TypedDict):
    """A place that names both kernels of a CUDA→Triton pair."""

    kind: ReadOnly[str]  # test | dispatcher
    path: ReadOnly[str]
    line: ReadOnly[int]
    symbol: ReadOnly[str]  # '' for a whole test file, or outside functions


class Pairing(TypedDict):
    """A CUDA kernel and its counterpart in Triton."""

    grade: ReadOnly[str]  # name | test-linked | verified: how far it is known that they are a pair
    evidence: ReadOnly[list[Evidence]]
    path: ReadOnly[str]  # of the Triton kernel; that of the CUDA kernel is the origin's
    start_line: ReadOnly[int]
    symbol: ReadOnly[str]
    verdict: ReadOnly[Judgement | None]  # on the CUDA kernel; the row's is on the Triton kernel


class GraphHashes(TypedDict):
    """What a reference computes; names and sizes are left out of all of it."""

    exact: ReadOnly[str | None]  # hash of the graph with its numbers, dimensions and dtypes
    graph: ReadOnly[str | None]  # hash of which operator feeds which, and of nothing else
    hops: ReadOnly[list[UInt32] | None]  # hashes of the neighbourhood of each operator
    ops: ReadOnly[int | None]  # operators that compute something
    values: ReadOnly[list[str] | None]  # hashes of what it computes on small inputs


class Nearest(TypedDict):
    """The item of a benchmark that a row is most like."""

    benchmark: ReadOnly[str]
    item: ReadOnly[str]
    overlap: ReadOnly[float | None]  # share of the item's 13-grams that the row has
    resemblance: ReadOnly[float | None]  # Jaccard similarity of 5-grams, estimated by MinHash
    computes: ReadOnly[str | None]  # the item that the row computes in other words


class Row(TypedDict):
    """A row of any kind."""

    id: ReadOnly[str]
    parent_ids: ReadOnly[list[str]]
    kind: ReadOnly[str]
    origin: ReadOnly[Origin]
    license: ReadOnly[License | None]
    text: ReadOnly[str | None]
    entry_point: ReadOnly[str | None]  # the class's or kernel's name in its source
    reference: ReadOnly[str | None]  # PyTorch: Model, get_inputs, get_init_inputs
    triton: ReadOnly[str | None]  # ModelNew, or the kernel
    host_function: ReadOnly[str | None]  # launches the kernel, with what it needs
    kernel: ReadOnly[KernelFacts | None]
    pairing: ReadOnly[Pairing | None]
    cuda: ReadOnly[str | None]  # the CUDA kernel, its device functions and its launch code
    turns: ReadOnly[list[Turn] | None]  # a conversation with a teacher
    sample: ReadOnly[Asked | None]
    static: ReadOnly[Static | None]
    wiring: ReadOnly[GraphHashes | None]
    compile: ReadOnly[list[Compiled] | None]
    verdict: ReadOnly[Judgement | None]
    contamination: ReadOnly[Nearest | None]
    cluster: ReadOnly[str | None]
    split: ReadOnly[str | None]


# --- rows whose kind is known ---------------------------------------------------------------


class LocatedRow(Row):
    """A file, or what was found in one."""

    origin: ReadOnly[FileOrigin]


class FoundRow(LocatedRow):
    """A definition in a file."""

    origin: ReadOnly[SymbolOrigin]


class FileRow(LocatedRow):
    """A file, or a row of another data set."""

    text: ReadOnly[str]


class ModuleRow(FoundRow):
    """A module in a file, or one that stands alone."""

    text: ReadOnly[str]
    entry_point: ReadOnly[str]


class TaskRow(Row):
    """A problem."""

    reference: ReadOnly[str]


class ProvenRow(Row):
    """A row whose license is known."""

    license: ReadOnly[License]


class PairRow(ProvenRow):
    """A problem and its program."""

    kind: ReadOnly[Literal["pair"]]
    reference: ReadOnly[str]
    triton: ReadOnly[str]


class KernelRow(ProvenRow):
    """A kernel that stands alone."""

    kind: ReadOnly[Literal["kernel"]]
    entry_point: ReadOnly[str]
    triton: ReadOnly[str]
    kernel: ReadOnly[KernelFacts]


class FoundCudaRow(FoundRow):
    """A CUDA kernel in a file, and the place of its counterpart."""

    pairing: ReadOnly[Pairing]


class CudaRow(ProvenRow):
    """A CUDA kernel and its counterpart, both of which stand alone."""

    origin: ReadOnly[SymbolOrigin]
    pairing: ReadOnly[Pairing]
    entry_point: ReadOnly[str]
    cuda: ReadOnly[str]
    triton: ReadOnly[str]


class PromptRow(ProvenRow):
    """A question to a teacher."""

    turns: ReadOnly[list[Turn]]
    sample: ReadOnly[Asked]


class SampleRow(PromptRow):
    """A teacher's answer."""

    kind: ReadOnly[Literal["sample"]]


COMMON = ("id", "parent_ids", "kind", "origin", "license")
"""Columns of rows of every kind."""

_ENDING = ("contamination", "cluster", "split")

COLUMNS = {
    "file": ("text",),
    "record": ("text",),
    "module": ("text", "entry_point", "contamination"),
    "task": ("entry_point", "reference", "wiring", "contamination"),
    "pair": (
        *("entry_point", "reference", "triton", "static", "wiring", "compile", "verdict"),
        *_ENDING,
    ),
    "kernel": (
        *("text", "entry_point", "triton", "host_function", "kernel", "static", "compile"),
        *_ENDING,
    ),
    "cuda": (
        *("text", "entry_point", "triton", "host_function", "kernel", "pairing", "cuda"),
        *("reference", "static", "wiring", "compile", "verdict", *_ENDING),
    ),
    "prompt": (
        *("entry_point", "reference", "static", "turns", "sample", "wiring", "contamination"),
    ),
    "sample": (
        *("entry_point", "reference", "triton", "turns", "sample", "static", "wiring", "compile"),
        *("verdict", *_ENDING),
    ),
}
"""What a row of a kind may have in its columns, besides `COMMON`; all others are null."""


# --- Arrow ------------------------------------------------------------------------------------

_PLAIN = {str: pa.string(), bool: pa.bool_(), int: pa.int32(), float: pa.float64()}


def arrow_type(hint: Any) -> pa.DataType:
    """Return the type of a column in Arrow, from its type in Python."""
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is ReadOnly:
        return arrow_type(arguments[0])
    if origin is Annotated:
        return arguments[1]
    if origin is list:
        return pa.list_(arrow_type(arguments[0]))
    if origin in (Union, UnionType):
        (known,) = (one for one in arguments if one is not NoneType)
        return arrow_type(known)
    return pa.struct(_fields(hint))


def _fields(kind: type) -> list[tuple[str, pa.DataType]]:
    hints = get_type_hints(kind, include_extras=True)
    return [(name, arrow_type(hint)) for name, hint in hints.items()]


ROW = pa.schema(_fields(Row))
TURN, SAMPLE, KERNEL = arrow_type(Turn), arrow_type(Asked), arrow_type(KernelFacts)
COMPILE, VERDICT, ORIGIN = arrow_type(Compiled), arrow_type(Judgement), arrow_type(Origin)
PAIRING, LICENSE, STATIC = arrow_type(Pairing), arrow_type(License), arrow_type(Static)
RUN = arrow_type(HostRun)


def kind_digest(kind: str) -> str:
    """Return a digest of the names and types of the columns that rows of a kind may use."""
    return _columns_digest(COLUMNS[kind])


@cache
def _columns_digest(columns: tuple[str, ...]) -> str:
    known = {*COMMON, *columns}
    fields = [(field.name, str(field.type)) for field in ROW if field.name in known]
    return hashlib.sha256(json.dumps(fields).encode()).hexdigest()[:16]


# --- new rows -----------------------------------------------------------------------------------

_NO_ORIGIN = dict.fromkeys(field.name for field in ORIGIN)


def make_origin(source: str, **known: Any) -> Origin:
    """Return an origin with every field present; unknown ones are null.

    Raises:
        KeyError: ``known`` names a field that the schema lacks.
    """
    extra = known.keys() - _NO_ORIGIN.keys()
    if extra:
        raise KeyError(f"origin has no field {sorted(extra)}")
    return cast(Origin, {**_NO_ORIGIN, "source": source, "derived_from": [], **known})


def make_row(kind: str, content: str, origin: Origin, **columns: Any) -> Row:
    """Return a row of ``kind`` whose id is made from its content and its place of origin.

    Two copies of one text from two places are two rows with two ids: `dedupe` decides between
    them later and names the one it kept.

    Raises:
        KeyError: rows of this kind have no such column.
    """
    extra = columns.keys() - {*COMMON, *COLUMNS[kind]}
    if extra:
        raise KeyError(f"{kind} rows have no column {sorted(extra)}")
    place = [origin["artifact_sha256"], origin["path"], origin["symbol"], origin["start_line"]]
    known = {"parent_ids": [], **columns, "kind": kind, "origin": origin}
    empty = dict.fromkeys(ROW.names)
    return cast(Row, empty | known | {"id": row_id(kind, content, place)})


def part_row(
    file: FileRow,
    kind: str,
    text: str,
    lines: tuple[int, int],
    symbol: str,
    entry_point: str,
    **columns: Any,
) -> Row:
    """Return a row of ``kind`` for what stands in some lines of a file."""
    first, last = lines
    origin = file["origin"] | {"symbol": symbol, "start_line": first, "end_line": last}
    known = {"text": text, "entry_point": entry_point, "license": file["license"], **columns}
    return make_row(kind, text, origin, parent_ids=[file["id"]], **known)


def select(row: Row, columns: Iterable[str]) -> Loose:
    """Return some of a row's columns."""
    everything = cast(Loose, row)
    return {name: everything[name] for name in columns}


def status_of(row: Row) -> str | None:
    """Return the judge's status of a row; None where it has not been judged."""
    return row["verdict"] and row["verdict"]["status"]


def row_id(kind: str, content: str, place: list[Any]) -> str:
    """Return 20 hex digits (80 bits) that name a row of this kind, content and place."""
    key = json.dumps([kind, content, place], ensure_ascii=True)
    return hashlib.sha256(key.encode()).hexdigest()[:20]


def place(row: Row | Loose) -> str:
    """Return where a row comes from, in one line."""
    origin = row["origin"]
    where = origin["purl"] or origin["repo"] or origin["source"]
    path = f" {origin['path']}" if origin["path"] else ""
    line = f":{origin['start_line']}" if origin["start_line"] else ""
    symbol = f" {origin['symbol']}" if origin["symbol"] else ""
    return f"{where}{path}{line}{symbol}"
