"""The ``nvcc`` step: whether NVIDIA's compiler takes the CUDA side of a pair.

Compiled means PTX: no GPU is needed, nothing is assembled, linked or run. A kernel that is a
template gives code only where the launch code in the row instantiates it; ``compile.kernels`` says
how many entries came out. Headers are those of the toolkit and of the installed PyTorch.

nvcc is taken from the path, or from the wheels ``nvidia-cuda-nvcc``, ``nvidia-nvvm``,
``nvidia-cuda-crt``, ``nvidia-cuda-runtime`` and ``nvidia-cuda-cccl``.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from curate.rows import COMPILE, Row
from curate.step import Context, Keep, Outcome, RowStep

_TOOLKIT = "/usr/local/cuda/bin:/usr/local/bin"
"""Where NVIDIA's installers put it, which is not on the sandbox's path."""
_MISSING = re.compile(r"(?:fatal error: (\S+): No such file|cannot open source file \"([^\"]+)\")")
_ERROR = re.compile(r"^.*\berror\b.*$", re.MULTILINE)


class Nvcc(RowStep):
    """Compile the CUDA side of pairs to PTX, and keep every row with what came of it.

    ``compile`` gets an entry ``nvcc:90``: ok and how many kernels came out, or the error:
    ``missing_header`` (a library that is not here), ``compile_error``, ``timeout``, or
    ``unsupported`` where there is no nvcc.
    """

    kinds: ClassVar[frozenset[str]] = frozenset({"cuda"})
    sandboxed: ClassVar[bool] = True
    tools: ClassVar[tuple[str, ...]] = ("nvidia-cuda-nvcc", "torch")

    step: Literal["nvcc"]
    arch: Annotated[
        int, Field(ge=75, description="Compute capability without its point, 90 for Hopper.")
    ] = 90
    timeout_s: Annotated[float, Field(gt=0, description="Seconds that one row may take.")] = 300.0

    def apply(self, row: Row, context: Context) -> Outcome:
        result = compile_ptx(row["cuda"], self.arch, self.timeout_s * 0.9)
        return Keep(({**row, "compile": [*(row["compile"] or []), result]},))


def find_nvcc() -> Path | None:
    """Return the compiler on the path, or that of the wheels; None where there is none."""
    if found := shutil.which("nvcc") or shutil.which("nvcc", path=_TOOLKIT):
        return Path(found)
    spec = importlib.util.find_spec("nvidia")
    folders = spec.submodule_search_locations if spec else None
    found_there = [p for folder in folders or () for p in Path(folder).glob("cu*/bin/nvcc")]
    return max(found_there, default=None)


def compile_ptx(source: str, arch: int, timeout_s: float) -> Row:
    """Return the entry of column ``compile`` for a CUDA file, compiled for one architecture."""
    result: Row = dict.fromkeys(field.name for field in COMPILE)
    result |= {"target": f"nvcc:{arch}", "ok": False}
    nvcc = find_nvcc()
    if nvcc is None:
        return result | {"error": "unsupported", "message": "there is no nvcc here"}
    with tempfile.TemporaryDirectory() as folder:
        file, ptx = Path(folder, "kernel.cu"), Path(folder, "kernel.ptx")
        file.write_text(source, encoding="utf-8")
        command = [str(nvcc), "--ptx", f"-arch=sm_{arch}", "-std=c++20", "--expt-relaxed-constexpr"]
        command += ["--expt-extended-lambda", *_includes(), "-o", str(ptx), str(file)]
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,  # workers have none, and gcc stumbles over that
                capture_output=True,
                text=True,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return result | {"error": "timeout", "message": f"not done in {timeout_s:.0f} s"}
        if done.returncode == 0:
            entries = re.findall(r"^\s*(?:\.visible |\.weak )?\.entry ", ptx.read_text(), re.M)
            return result | {"ok": True, "kernels": len(entries)}
        return result | _error(done.stderr.replace(f"{folder}/", ""))


def _includes() -> list[str]:
    """Return the options that name PyTorch's headers."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return []
    root = Path(spec.origin).parent / "include"
    return [f"-I{root}", f"-I{root / 'torch/csrc/api/include'}"]


def _error(printed: str) -> Row:
    """Return the class and the first line of what the compiler complains of."""
    if missing := _MISSING.search(printed):
        return {"error": "missing_header", "message": missing[1] or missing[2]}
    first = _ERROR.search(printed)
    return {"error": "compile_error", "message": first[0].strip() if first else printed[:200]}
