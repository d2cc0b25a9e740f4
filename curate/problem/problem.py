"""A problem in KernelBench's form, and the program that answers it.

A reference file defines ``Model``, ``get_inputs()`` and ``get_init_inputs()``; a candidate file
defines ``ModelNew`` with the same constructor and the same ``state_dict``
(https://github.com/ScalingIntelligence/KernelBench).
"""

from __future__ import annotations

import keyword
import linecache
import sys
import traceback
from types import ModuleType
from typing import Any

import torch

from curate.problem.branches import compile_noted

REFERENCE = "reference"
CANDIDATE = "candidate"

EXAMPLE = (
    """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x + 1


def get_inputs():
    return [torch.rand(100)]


def get_init_inputs():
    return []
""",
    """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_one_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + 1, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        add_one_kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)
        return out
""",
)
"""A reference and a candidate; a worker judges it before it forks, so that its children find
everything loaded."""


class ProgramError(Exception):
    """A file cannot be loaded, or lacks what KernelBench's form asks for.

    Attributes:
        which: ``reference`` or ``candidate``.
    """

    def __init__(self, which: str, message: str) -> None:
        super().__init__(message)
        self.which = which


def load(
    which: str,
    source: str,
    given: dict[str, Any] | None = None,
    name: str | None = None,
    note: str | None = None,
) -> ModuleType:
    """Run a file's text as a module and return the module.

    Args:
        which: what it is, for messages; and its name, if there is no other.
        source: its text.
        given: globals that it finds there.
        name: its name.
        note: which of the globals is to be called with the number of each branch that host
            functions take (`curate.problem.branches`); None for a text that runs as it is.

    The text is registered with `linecache`, where `inspect` and so Triton find it: no file is
    written.

    Raises:
        ProgramError: the text does not run.
    """
    name = name or which
    filename = f"<{name}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    module = ModuleType(name)
    module.__file__ = filename
    module.__dict__.update(given or {})
    sys.modules[name] = module
    try:
        if note is None:
            code = compile(source, filename, "exec")
        else:
            code = compile_noted(source, filename, note)
        exec(code, module.__dict__)
    except Exception as error:
        raise ProgramError(which, f"cannot be loaded: {describe(error)}") from error
    return module


def attribute_path(path: str) -> str:
    """Return the expression for a module's path: ``self.blocks[0].norm`` for ``blocks.0.norm``."""
    text = "self"
    for part in filter(None, path.split(".")):
        if part.isdigit():
            text += f"[{part}]"
        elif part.isidentifier() and not keyword.iskeyword(part):
            text += f".{part}"
        else:  # a module may have any name
            text = f"getattr({text}, {part!r})"
    return text


class LoadedTask:
    """A reference file, loaded.

    Attributes:
        module: the file as a module.
        source: its text.

    Raises:
        ProgramError: it cannot be loaded, or a name is missing.
    """

    def __init__(self, source: str) -> None:
        self.module, self.source = load(REFERENCE, source), source
        for name in ("Model", "get_inputs", "get_init_inputs"):
            if not hasattr(self.module, name):
                raise ProgramError(REFERENCE, f"defines no {name}")

    def init_inputs(self) -> list[Any]:
        """Return fresh arguments of the constructors."""
        return list(self.module.get_init_inputs())

    def inputs(self) -> list[Any]:
        """Return fresh arguments of ``forward``."""
        return list(self.module.get_inputs())

    def build(self, seed: int, init_inputs: list[Any]) -> torch.nn.Module:
        """Return ``Model`` built with a seed, in eval mode.

        Raises:
            ProgramError: the constructor raised.
        """
        return _build(REFERENCE, self.module.Model, seed, init_inputs)


class LoadedProgram:
    """A candidate file, loaded.

    Args:
        source: its text.
        given: globals that it finds there.
        name: its module's name; ``candidate`` by default.
        note: see `load`.

    Raises:
        ProgramError: it cannot be loaded, or defines no ``ModelNew``.
    """

    def __init__(
        self,
        source: str,
        given: dict[str, Any] | None = None,
        name: str | None = None,
        note: str | None = None,
    ) -> None:
        self.module = load(CANDIDATE, source, given, name, note)
        if not hasattr(self.module, "ModelNew"):
            raise ProgramError(CANDIDATE, "defines no ModelNew")

    def build(self, seed: int, init_inputs: list[Any]) -> torch.nn.Module:
        """Return ``ModelNew`` built with a seed, in eval mode.

        Raises:
            ProgramError: the constructor raised.
        """
        return _build(CANDIDATE, self.module.ModelNew, seed, init_inputs)


def _build(which: str, kind: Any, seed: int, init_inputs: list[Any]) -> torch.nn.Module:
    seed_everything(seed)
    try:
        model: torch.nn.Module = kind(*init_inputs).eval()
    except Exception as error:
        message = f"{kind.__name__} cannot be built: {describe(error)}"
        raise ProgramError(which, message) from error
    return model


def poison_memory() -> None:
    """Fill every uninitialised tensor with NaN, for the rest of the process.

    See https://docs.pytorch.org/docs/stable/deterministic.html; `torch.Tensor(n)` included.
    """
    # Not by torch.use_deterministic_algorithms, which imports Inductor: seconds for every child.
    torch._C._set_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True


def seed_everything(seed: int) -> None:
    """Seed PyTorch's generators, those of a device that is in use included.

    `torch.manual_seed` takes note of the stack for a device that is not: a millisecond.
    """
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)


def describe(error: BaseException) -> str:
    """Return an exception as one short line, with the program's line that raised it."""
    text = " ".join(str(error).split()).encode(errors="replace").decode()
    passed = traceback.extract_tb(error.__traceback__)
    lines = [f"line {p.lineno}: {p.line}" for p in passed if p.filename[:1] == "<" and p.line]
    said = f"{type(error).__name__}: {text}"[:500]
    return f"{said} ({lines[-1][:120]})" if lines else said
