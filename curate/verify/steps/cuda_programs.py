"""A CUDA→Triton pair and its binding make two programs that the judge can hold to one reference.

No package says what a kernel's arguments are in a form that a program can read, so a person writes
it down: a binding is a file ``PACKAGE/KERNEL.py``, named after the package and the CUDA kernel, in
three parts that a line ``# %% NAME`` begins:

- ``reference``: ``Model``, ``get_inputs`` and ``get_init_inputs`` in PyTorch;
- ``cuda``: a ``ModelNew`` that calls ``launch_cuda`` (see
  `curate.verify.host_half.cuda_launches`). Text constants ``ABOVE`` and ``BELOW`` are put above and
  below the CUDA code to compile: macros that the package gives its compiler, and the template
  instances that are wanted;
- ``triton``: a ``ModelNew`` that stands below the pair's Triton code.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curate.verify.verdict import Candidate

PARTS = ("reference", "cuda", "triton")
_PART = re.compile(r"^# %% (\w+)\n", re.MULTILINE)


class BindingError(Exception):
    """A binding is malformed; the message says where."""


@dataclass(frozen=True)
class Binding:
    """What ties both sides of a pair to one reference.

    Attributes:
        reference: text of a file in KernelBench's form.
        cuda: text of the program that launches the CUDA kernel.
        triton: what makes the Triton code a program.
        above: what is put above the CUDA code.
        below: what is put below it.
    """

    reference: str
    cuda: str
    triton: str
    above: str
    below: str

    def source(self, cuda: str) -> str:
        """Return the CUDA file to compile, given the pair's CUDA code."""
        return f"{self.above}\n{cuda}\n{self.below}\n"

    def candidates(self, row: dict[str, Any], ptx: str) -> tuple[Candidate, Candidate]:
        """Return the program of the CUDA side and that of the Triton side of a row."""
        triton = f"{row['host_function'] or row['triton']}\n\n{self.triton}"
        return (
            Candidate(f"{row['id']}:cuda", self.reference, self.cuda, ptx),
            Candidate(f"{row['id']}:triton", self.reference, triton),
        )


def read_binding(path: Path) -> Binding:
    """Return the binding in a file.

    Raises:
        BindingError: it cannot be read, or a part is missing.
    """
    try:
        _, *pieces = _PART.split(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise BindingError(f"{path}: cannot be read: {error}") from error
    parts = dict(zip(pieces[::2], pieces[1::2], strict=True))
    if tuple(parts) != PARTS:
        wanted = ", ".join(f"# %% {name}" for name in PARTS)
        raise BindingError(f"{path}: must have the parts {wanted}, in this order")
    texts = _constants(path, parts["cuda"])
    return Binding(**parts, above=texts.get("ABOVE", ""), below=texts.get("BELOW", ""))


def _constants(path: Path, program: str) -> dict[str, str]:
    """Return the texts that a program assigns to names at its top level."""
    try:
        body = ast.parse(program).body
    except SyntaxError as error:
        raise BindingError(f"{path}: part cuda, line {error.lineno}: {error.msg}") from error
    return {
        node.targets[0].id: node.value.value
        for node in body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }


def find_binding(folder: Path, row: dict[str, Any]) -> Binding | None:
    """Return the binding of a row's pair, or None where nobody wrote one."""
    package = str(row["origin"]["purl"]).rpartition("/")[2].partition("@")[0]
    path = folder / package / f"{row['origin']['symbol']}.py"
    return read_binding(path) if path.exists() else None
