"""The ``kernelbook`` format: pairs under the columns of KernelBook, for those who train on it.

KernelBook (https://huggingface.co/datasets/GPUMODE/KernelBook) is read by name of column, so the
columns are exactly its own. Where the two differ in what stands in them: ``original_triton_code``
is null, since the compiler's file is not kept, and so is ``stars``; ``uuid`` is made from the row's
id; ``licenses`` are those of the row, not of its repository.
"""

from __future__ import annotations

import ast
from typing import ClassVar, Literal

import pyarrow as pa

from curate.formats.format import Format, View
from curate.rows import Origin, PairRow
from curate.step import Drop, Keep

_UUID_DIGITS = 15  # hex digits of the id: the most that a positive int64 holds


class KernelBook(Format):
    """KernelBook's columns: the module, and the program whose class is ``<entry_point>New``."""

    kinds: ClassVar[frozenset[str]] = frozenset({"pair"})
    reads: ClassVar[frozenset[str]] = frozenset({"license", "reference", "triton"})

    format: Literal["kernelbook"]

    def columns(self) -> pa.Schema:
        return pa.schema(
            [
                ("entry_point", pa.string()),
                ("original_triton_code", pa.string()),
                ("python_code", pa.string()),
                ("triton_code", pa.string()),
                ("repo_name", pa.string()),
                ("module_name", pa.string()),
                ("synthetic", pa.bool_()),  # nobody's module: drawn from PyTorch's operators
                ("uuid", pa.int64()),
                ("licenses", pa.list_(pa.string())),
                ("stars", pa.int64()),
                ("sha", pa.string()),
                ("repo_link", pa.string()),
            ]
        )

    def render(self, row: PairRow) -> View:
        from curate.licenses.policy import license_ids

        origin, license_ = row["origin"], row["license"]
        code = with_keyword_arguments(row["reference"])
        if code is None:
            return Drop("init_inputs")
        view = {
            "entry_point": row["entry_point"],
            "original_triton_code": None,
            "python_code": code,
            "triton_code": row["triton"],
            "repo_name": _repo_name(origin),
            "module_name": (origin["symbol"] or row["entry_point"] or "Model").rpartition(".")[2],
            "synthetic": origin["source"] == "torch_ops",
            "uuid": int(row["id"][:_UUID_DIGITS], 16),
            "licenses": sorted(license_ids(license_["choice"] or license_["expression"])),
            "stars": None,
            "sha": origin["commit"],
            "repo_link": origin["repo"] or origin["purl"],
        }
        return Keep((view,))


def _repo_name(origin: Origin) -> str | None:
    """Return ``owner/name`` of a repository, or a package's name."""
    if origin["repo"]:
        parts = origin["repo"].removesuffix("/").removesuffix(".git").split("/")
        return "/".join(parts[-2:])
    purl = origin["purl"]
    return purl.partition("/")[2].partition("@")[0] if purl else None


def with_keyword_arguments(reference: str) -> str | None:
    """Return a task whose ``get_init_inputs`` gives ``[arguments, keywords]``, as KernelBook's do.

    None where the function has no ``return`` of its own to be changed.
    """
    returned: list[ast.expr] = []
    for function in ast.parse(reference).body:
        if isinstance(function, ast.FunctionDef) and function.name == "get_init_inputs":
            nodes = (node for node in ast.walk(function) if isinstance(node, ast.Return))
            returned += [node.value for node in nodes if node.value is not None]
    if not returned:
        return None
    lines = [line.encode() for line in reference.splitlines(keepends=True)]
    for value in reversed(returned):  # columns are counted in bytes
        assert value.end_lineno is not None and value.end_col_offset is not None
        last = value.end_lineno - 1
        lines[last] = _inserted(lines[last], value.end_col_offset, b", {}]")
        first = value.lineno - 1
        lines[first] = _inserted(lines[first], value.col_offset, b"[")
    return b"".join(lines).decode()


def _inserted(line: bytes, column: int, text: bytes) -> bytes:
    return line[:column] + text + line[column:]
