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

A column that a kind does not use is null. In Python a row is a plain ``dict`` that survives JSON.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pyarrow as pa

Row = dict[str, Any]

_strings = pa.list_(pa.string())

GENERATOR = pa.struct([("name", pa.string()), ("tools", _strings)])

TEACHER = pa.struct(
    [
        ("model", pa.string()),
        ("terms", pa.string()),  # of use of its answers: an SPDX id or a url
    ]
)

ORIGIN = pa.struct(
    [
        ("source", pa.string()),  # pypi | git | hub | local | torch_ops
        ("purl", pa.string()),  # pkg:pypi/timm@1.0.31
        ("repo", pa.string()),
        ("version", pa.string()),
        ("commit", pa.string()),  # null when unknown, never invented
        ("artifact_sha256", pa.string()),
        ("path", pa.string()),  # inside the artifact, with forward slashes
        ("start_line", pa.int32()),  # 1-based, inclusive; of a record: its number in the file
        ("end_line", pa.int32()),
        ("symbol", pa.string()),
        ("generator", GENERATOR),  # what wrote the row's code, when no person did
        ("teacher", TEACHER),  # the model that wrote the row's answer
        ("derived_from", _strings),  # files, purls or urls that the code says it comes from
    ]
)

LICENSE = pa.struct(
    [
        ("expression", pa.string()),  # SPDX, as found
        ("choice", pa.string()),  # the branch of an OR under which the row is used
        ("method", pa.string()),  # spdx_tag | header | license_file | override | card | generated
        ("confidence", pa.float64()),
        ("path", pa.string()),  # where in the artifact the decisive text stands
        ("text_sha256", _strings),  # license texts to ship with the row
        ("notice_sha256", _strings),  # NOTICE files to ship with the row
        ("copyright", _strings),
        ("conflict", pa.bool_()),  # tag, file and metadata disagree; the most restrictive won
    ]
)

GENERATED = pa.struct(
    [
        ("target", pa.string()),  # cuda:90, hip:gfx942 …
        ("code", pa.string()),  # the compiler's own output, before `standalone`
        ("spec", pa.string()),  # JSON: how graph inputs and outputs map to the module's
    ]
)

STATIC = pa.struct(
    [
        ("kernels", pa.int32()),
        ("lines", pa.int32()),
        ("ops", _strings),  # ATen operators of the reference's graph
        ("pure_triton", pa.bool_()),  # no extern call computes anything
        ("extern_calls", _strings),
        ("dynamic_dims", pa.int32()),  # sizes that are kernel arguments
    ]
)

COMPILE = pa.struct(
    [
        ("target", pa.string()),
        ("ok", pa.bool_()),
        ("kernels", pa.int32()),  # kernels compiled for this target
        ("registers", pa.int32()),  # largest of any kernel, per thread
        ("spills", pa.int32()),  # bytes, largest of any kernel
        ("shared", pa.int32()),  # bytes a block, largest of any kernel
        ("error", pa.string()),  # error class
        ("message", pa.string()),  # first line of the compiler's message
        ("signature", pa.string()),  # JSON: kernel -> the argument types and constants used
    ]
)

RUN = pa.struct(
    [
        ("status", pa.string()),  # ran | raised | unsupported
        ("message", pa.string()),  # what it raised, or why it could not be run
        ("inputs", pa.string()),  # the call, as Python
        ("launches", pa.int32()),
        ("deterministic", pa.bool_()),  # the same bits when run again
        ("changed_inputs", _strings),  # arguments of the wrapper that it wrote to
    ]
)

KERNEL = pa.struct(
    [
        ("launches", pa.string()),  # JSON: what launch sites in its package give its parameters
        ("signature", pa.string()),  # JSON: the argument types and constants that it compiles with
        ("found_by", pa.string()),  # launch_site | data_flow | search
        ("attempts", pa.int32()),  # compilations that finding it took
        ("dtypes", _strings),  # element types of its pointers with which it compiles
        ("run", RUN),  # of its wrapper, on the CPU
    ]
)

TIMING = pa.struct(
    [
        ("candidate_us", pa.float64()),  # microseconds a call, medians
        ("eager_us", pa.float64()),
        ("compile_us", pa.float64()),  # torch.compile
        ("spread", pa.float64()),  # interquartile range of the candidate's over its median
    ]
)

VERDICT = pa.struct(
    [
        ("status", pa.string()),  # one of curate.verify.verdict.STATUSES
        ("reason", pa.string()),
        ("caveats", _strings),  # what the status does not cover
        ("backend", pa.string()),  # cpu | cuda | hip
        ("device", pa.string()),
        ("driver", pa.string()),
        ("torch", pa.string()),
        ("triton", pa.string()),
        ("judge", pa.int32()),  # version of the judge
        ("trials", pa.int32()),
        ("max_abs_error", pa.float64()),
        ("tolerance", pa.float64()),  # worst error over what was allowed; at most 1 passes
        ("kind", pa.string()),  # pure_triton | pure_cuda | hybrid | no_kernel, as it ran
        ("launches", pa.int32()),  # in one forward
        ("aten_calls", _strings),  # operators that computed something, in one forward
        ("deterministic", pa.bool_()),  # the same bits when run again
        ("insensitive_inputs", pa.list_(pa.int32())),  # positions that change nothing
        ("findings", _strings),  # rules of the static screen
        ("evidence", pa.string()),  # JSON: what shows a status other than correct
        ("timing", TIMING),
    ]
)

TURN = pa.struct([("role", pa.string()), ("content", pa.string())])

SAMPLE = pa.struct(
    [
        ("family", pa.string()),  # of the first prompt: implement | convert | optimise | …
        ("template", pa.string()),  # the last prompt's and its version: implement@1, repair@1
        ("attempt", pa.int32()),  # 1 for a first answer, 2 for its repair and so on
        ("number", pa.int32()),  # of the answers to one prompt, from 0
        ("finish", pa.string()),  # why the teacher stopped: stop | length | …
        ("prompt_tokens", pa.int32()),
        ("completion_tokens", pa.int32()),
        ("retried", pa.bool_()),  # a `repair` prompt was made of it
        # best | alternative | repaired | fixed | failed | unjudged: see curate.teacher.select
        ("selection", pa.string()),
    ]
)

PAIRING = pa.struct(  # a CUDA kernel and its counterpart in Triton
    [
        ("grade", pa.string()),  # name | test-linked | verified: how far it is known that they are
        (
            "evidence",  # what names both
            pa.list_(
                pa.struct(
                    [
                        ("kind", pa.string()),  # test | dispatcher
                        ("path", pa.string()),
                        ("line", pa.int32()),
                        ("symbol", pa.string()),  # '' for a whole test file, or outside functions
                    ]
                )
            ),
        ),
        ("path", pa.string()),  # of the Triton kernel; that of the CUDA kernel is the origin's
        ("start_line", pa.int32()),
        ("symbol", pa.string()),
        ("verdict", VERDICT),  # on the CUDA kernel; that on the Triton kernel is the row's own
    ]
)

WIRING = pa.struct(  # of the reference's graph; names and sizes are left out of all of it
    [
        ("exact", pa.string()),  # hash of the graph with its numbers, dimensions and dtypes
        ("graph", pa.string()),  # hash of which operator feeds which, and of nothing else
        ("hops", pa.list_(pa.uint32())),  # hashes of the neighbourhood of each operator
        ("ops", pa.int32()),  # operators that compute something
        ("values", _strings),  # hashes of what it computes on small inputs that never change
    ]
)

CONTAMINATION = pa.struct(  # the item of a benchmark that a row is most like
    [
        ("benchmark", pa.string()),
        ("item", pa.string()),
        ("overlap", pa.float64()),  # share of the item's 13-grams that the row has
        ("resemblance", pa.float64()),  # Jaccard similarity of 5-grams, estimated by MinHash
        ("computes", pa.string()),  # the item that the row computes in other words; or null
    ]
)

ROW = pa.schema(
    [
        ("id", pa.string()),
        ("parent_ids", _strings),
        ("kind", pa.string()),
        ("origin", ORIGIN),
        ("license", LICENSE),
        ("text", pa.string()),
        ("entry_point", pa.string()),  # the class's or kernel's name in its source
        ("reference", pa.string()),  # PyTorch: Model, get_inputs, get_init_inputs
        ("triton", pa.string()),  # ModelNew, or the kernel
        ("wrapper", pa.string()),  # a function that launches the kernel, and what it needs
        ("kernel", KERNEL),
        ("pairing", PAIRING),
        ("cuda", pa.string()),  # the CUDA kernel, its device functions and its launch code
        ("turns", pa.list_(TURN)),  # a conversation with a teacher
        ("sample", SAMPLE),
        ("generated", GENERATED),
        ("static", STATIC),
        ("wiring", WIRING),
        ("compile", pa.list_(COMPILE)),
        ("verdict", VERDICT),
        ("contamination", CONTAMINATION),
        ("cluster", pa.string()),
        ("split", pa.string()),
    ]
)

_EMPTY_ORIGIN: Row = {field.name: None for field in ORIGIN}


def make_origin(source: str, **known: Any) -> Row:
    """Return an origin with every field present; unknown ones are null.

    Raises:
        KeyError: ``known`` names a field that the schema lacks.
    """
    extra = known.keys() - _EMPTY_ORIGIN.keys()
    if extra:
        raise KeyError(f"origin has no field {sorted(extra)}")
    return {**_EMPTY_ORIGIN, "source": source, "derived_from": [], **known}


def make_row(kind: str, content: str, origin: Row, **columns: Any) -> Row:
    """Return a row of ``kind`` whose id is made from its content and its place of origin.

    Two copies of one text from two places are two rows with two ids: `dedupe` decides between
    them later and names the one it kept.

    Raises:
        KeyError: ``columns`` names a column that the schema lacks.
    """
    extra = columns.keys() - set(ROW.names)
    if extra:
        raise KeyError(f"rows have no column {sorted(extra)}")
    row: Row = dict.fromkeys(ROW.names)
    place = [origin[f] for f in ("artifact_sha256", "path", "symbol", "start_line")]
    row.update(columns, kind=kind, origin=origin, id=row_id(kind, content, place))
    row["parent_ids"] = columns.get("parent_ids", [])
    return row


def row_id(kind: str, content: str, place: list[Any]) -> str:
    """Return 20 hex digits (80 bits) that name a row of this kind, content and place."""
    key = json.dumps([kind, content, place], ensure_ascii=True)
    return hashlib.sha256(key.encode()).hexdigest()[:20]


def place(row: Row) -> str:
    """Return where a row comes from, in one line."""
    origin = row["origin"]
    where = origin["purl"] or origin["repo"] or origin["source"]
    path = f" {origin['path']}" if origin["path"] else ""
    line = f":{origin['start_line']}" if origin["start_line"] else ""
    symbol = f" {origin['symbol']}" if origin["symbol"] else ""
    return f"{where}{path}{line}{symbol}"
