"""CUDA source compiled to PTX, and what the PTX says of the kernels in it.

nvcc is taken from the path, or from the wheels ``nvidia-cuda-nvcc``, ``nvidia-nvvm``,
``nvidia-cuda-crt``, ``nvidia-cuda-runtime`` and ``nvidia-cuda-cccl``. No GPU is needed: nothing is
assembled, linked or run.
"""

from __future__ import annotations

import functools
import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from curate.engine.processes.sandbox import sandbox_command

_TOOLKIT = "/usr/local/cuda/bin:/usr/local/bin"
"""Where NVIDIA's installers put it, which is not on the sandbox's path."""
_MISSING = re.compile(r"(?:fatal error: (\S+): No such file|cannot open source file \"([^\"]+)\")")
_ERROR = re.compile(r"^.*\berror\b.*$", re.MULTILINE)
_MODULE_ID = re.compile(r"(_INTERNAL_|_GLOBAL__N__)[0-9a-f]{8}(?=_)")
"""What nvcc names a compilation by, in symbols of no other file: another each time."""
_SCRIPT = """\
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder" && cat > kernel.cu &&
"$@" -o kernel.ptx kernel.cu >&2 && cat kernel.ptx
"""
"""A compiler as a filter: source in, PTX out. So it needs no file that a sandbox must share."""


class NvccError(Exception):
    """A CUDA file has no PTX.

    Attributes:
        error: ``missing_header`` (a library that is not here), ``compile_error``, ``timeout``, or
            ``unsupported`` where there is no nvcc.
        message: the header, or the first line of what the compiler complains of.
    """

    def __init__(self, error: str, message: str) -> None:
        super().__init__(f"{error}: {message}")
        self.error, self.message = error, message


def find_nvcc() -> Path | None:
    """Return the compiler on the path, or that of the wheels; None where there is none."""
    if found := shutil.which("nvcc") or shutil.which("nvcc", path=_TOOLKIT):
        return Path(found)
    return max((p / "bin/nvcc" for p in _toolkits() if (p / "bin/nvcc").exists()), default=None)


def compile_ptx(source: str, arch: int, timeout_s: float, sandbox: bool = False) -> str:
    """Return the PTX of a CUDA file for one architecture: the same text for the same file.

    Args:
        source: the file's text.
        arch: compute capability without its point.
        timeout_s: seconds that the compiler may take.
        sandbox: whether the compiler runs in a sandbox of its own, so that the source can include
            none of the user's files.
    """
    nvcc = find_nvcc()
    if nvcc is None:
        raise NvccError("unsupported", "there is no nvcc here")
    # PyTorch declares what is for CUDA only where USE_CUDA is defined.
    options = ["--ptx", f"-arch=sm_{arch}", "-std=c++20", "-DUSE_CUDA"]
    options += ["--expt-relaxed-constexpr", "--expt-extended-lambda", *_includes()]
    command = ["sh", "-c", _SCRIPT, "sh", str(nvcc), *options]
    if sandbox:
        command = sandbox_command(command)
    try:
        done = subprocess.run(
            command, input=source.encode(), capture_output=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise NvccError("timeout", f"not done in {timeout_s:.0f} s") from error
    if done.returncode:
        raise _error(done.stderr.decode(errors="replace"))
    return _MODULE_ID.sub(r"\g<1>00000000", done.stdout.decode())


def _includes() -> list[str]:
    """Return the options that name the headers of PyTorch, of CUDA's libraries and of TVM's FFI."""
    folders = [root / "include" for root in _toolkits()]
    for name in ("torch", "tvm_ffi"):
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            root = Path(spec.origin).parent / "include"
            folders += [root, root / "torch/csrc/api/include"]
    return [f"-I{folder}" for folder in folders if folder.is_dir()]


def _toolkits() -> list[Path]:
    """Return the folders that NVIDIA's wheels share."""
    spec = importlib.util.find_spec("nvidia")
    places = spec.submodule_search_locations if spec else None
    return sorted(path for place in places or () for path in Path(place).glob("cu*"))


def _error(printed: str) -> NvccError:
    """Return the class and the first line of what the compiler complains of."""
    if missing := _MISSING.search(printed):
        return NvccError("missing_header", missing[1] or missing[2])
    first = _ERROR.search(printed)
    return NvccError("compile_error", first[0].strip() if first else printed[:200])


# --- what PTX says ----------------------------------------------------------------------------


@dataclass(frozen=True)
class PtxParameter:
    """One argument that a kernel takes.

    Attributes:
        type: PTX's name of its type, such as ``f64``, or ``u64``, which addresses are too; ``b8``
            for a struct.
        size: bytes.
    """

    type: str
    size: int


_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*\(([^)]*)\)|\.entry\s+([\w$]+)\s*(?=[.{])")
_PARAMETER = re.compile(r"\.param\s+(?:\.align\s+\d+\s+)?\.([a-z]+)(\d+)\s[^,\[]*(?:\[(\d+)\])?")


def entries(ptx: str) -> dict[str, tuple[PtxParameter, ...]]:
    """Return the parameters of every kernel by its name, which C++ has mangled."""
    return {
        match[1] or match[3]: tuple(_parameters(match[2] or "")) for match in _ENTRY.finditer(ptx)
    }


def _parameters(listed: str) -> Iterator[PtxParameter]:
    for match in _PARAMETER.finditer(listed):
        letter, bits, count = match.groups()
        yield PtxParameter(letter + bits, int(bits) // 8 * int(count or 1))


def find_entry(names: list[str], part: str) -> str:
    """Return the one name that is ``part``, or else the one that holds it.

    Raises:
        ValueError: there is no such name, or more than one.
    """
    found = [name for name in names if name == part] or [name for name in names if part in name]
    if len(found) != 1:
        listed = ", ".join(found or names)[:1000]
        raise ValueError(f"{len(found)} kernels have {part!r} in their names; there are {listed}")
    return found[0]


_STATEMENT = re.compile(
    r"(?:\s|[{}]|[$\w]+:|@!?%\w+|\.loc\b[^\n]*)*([a-z][\w.]*)\s+(.*)", re.DOTALL
)
"""One statement, behind labels, brackets and a condition."""
_OPERAND = re.compile(r"%[\w.]+|\b[\w$]+_param_\d+")


@functools.lru_cache(maxsize=512)
def stored_parameters(ptx: str, kernel: str) -> frozenset[int] | None:
    """Return the positions of the parameters through which a kernel may write to memory.

    None means that it cannot be told: it calls a function, keeps addresses in local memory, or its
    parameters have names that nvcc does not give.
    """
    prefix = f"{kernel}_param_"  # what nvcc calls them
    start = re.search(rf"\.entry\s+{re.escape(kernel)}(?![\w$])", ptx)
    header, _, rest = (ptx[start.end() :] if start else "").partition("{")
    body = rest.partition("\n}")[0]
    if ".param" in header and f"{prefix}0" not in header:
        return None
    sources: dict[str, set[str]] = {}
    pending: list[str] = []
    for statement in body.split(";"):
        found = _STATEMENT.match(re.sub(r"//.*", "", statement))
        if found is None:
            continue
        operation, operands = found[1], found[2]
        if operation.startswith("call") or re.match(r"(ld|st)\.local\.[uvb.\d]*64", operation):
            return None
        if operation.startswith(("st.", "red.", "atom.")):
            address = re.search(r"\[\s*(%[\w.]+)", operands)
            pending += [address[1]] if address and ".shared" not in operation else []
        elif not operation.startswith("ld.") or operation.startswith("ld.param"):
            made, _, given = operands.partition("}" if operands.startswith("{") else ",")
            for name in _OPERAND.findall(made):
                sources.setdefault(name, set()).update(_OPERAND.findall(given))
    seen = set(pending)
    while pending:
        for name in sources.get(pending.pop(), set()) - seen:
            seen.add(name)
            pending.append(name)
    return frozenset(int(name[len(prefix) :]) for name in seen if name.startswith(prefix))
