"""Compile a program's kernels for devices that this machine does not have.

Which kernels ``ModelNew`` launches, and with which arguments, is found by running ``forward`` on
fake tensors with the launches intercepted; each kernel is then compiled with `triton.compile` for
a named target. Nothing here needs a GPU.

Uses private parts of Triton; tested with triton 3.6, 3.7 and 3.9.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import json
import os
import re
import tempfile
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import torch
import triton
from torch._subclasses.fake_tensor import FakeTensorMode
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction, create_function_from_signature

from curate.devices import MAX_THREADS, Device, find_device
from curate.problem.problem import LoadedProgram, LoadedTask, describe

if TYPE_CHECKING:
    from curate.rows import Compiled

if os.environ.get("TRITON_INTERPRET", "0") not in ("", "0"):
    raise ImportError("TRITON_INTERPRET is set, and interpreted kernels cannot be compiled")


Tuned: TypeAlias = Literal["first", "all"]


class LaunchError(Exception):
    """``forward`` could not be run, so its launches are unknown."""


@dataclass(frozen=True)
class CompiledLaunch:
    """One kernel and what Triton specialises it on.

    Attributes:
        kernel: the function under ``@triton.jit``.
        types: argument name to Triton's type name (``*fp32``, ``i32``, ``constexpr``).
        constants: path in the arguments to the value of a ``tl.constexpr`` or of a size 1.
        attributes: path to what is known of a value, such as divisibility by 16.
        options: the compiler's options, such as ``num_warps``.
        may_fail: whether a tuner passes over it with one of the errors `PASSED_OVER`.
    """

    kernel: Any
    types: dict[str, Any]
    constants: dict[tuple[int, ...], Any]
    attributes: dict[tuple[int, ...], Any]
    options: dict[str, Any]
    may_fail: bool = False

    def key(self) -> str:
        """Return a text that is equal for launches that compile to the same code."""
        return repr((self.kernel.cache_key, self.describe(), self.attributes))

    def describe(self) -> dict[str, object]:
        """Return the signature as JSON values."""
        names = list(self.types)
        return {
            "types": {name: str(kind) for name, kind in self.types.items()},
            "constants": {
                ".".join([names[path[0]], *map(str, path[1:])]): _plain(value)
                for path, value in self.constants.items()
            },
            "divisible_by_16": [
                names[path[0]]
                for path, known in self.attributes.items()
                if ["tt.divisibility", 16] in known
            ],
            "num_warps": self.options["num_warps"],
            "num_stages": self.options["num_stages"],
        }


@dataclass(frozen=True)
class ResourceUsage:
    """What one compiled kernel takes: registers and spilled bytes per thread, shared bytes."""

    registers: int
    spills: int
    shared: int


@dataclass(frozen=True)
class CompiledTarget:
    """What a compiler made of kernels for one target; see `curate.rows.Compiled`.

    Attributes:
        kernel: name of the one that does not compile.
    """

    target: str
    kernels: int
    signature: str
    usage: ResourceUsage | None
    error: str | None = None
    message: str | None = None
    kernel: str | None = None

    @property
    def ok(self) -> bool:
        """Whether they compile."""
        return self.usage is not None

    def to_row(self) -> Compiled:
        """Return the result as a row has it."""
        usage = self.usage
        return {
            "target": self.target,
            "ok": usage is not None,
            "kernels": self.kernels,
            "registers": None if usage is None else usage.registers,
            "spills": None if usage is None else usage.spills,
            "shared": None if usage is None else usage.shared,
            "error": self.error,
            "message": self.message,
            "signature": self.signature,
        }


class KernelError(Exception):
    """A kernel that does not compile for a target.

    Attributes:
        kernel: the kernel's name.
        error: the error's class, such as ``CompilationError`` or ``shared_memory``.
        message: its first line.
    """

    def __init__(self, kernel: str, error: str, message: str) -> None:
        super().__init__(f"{kernel}: {error}: {message}")
        self.kernel, self.error, self.message = kernel, error, message


def compile_program(
    reference: str, candidate: str, targets: list[str], tuned: Tuned = "first"
) -> list[CompiledTarget]:
    """Compile every kernel that a candidate launches, for every target.

    Args:
        tuned: which configurations of a tuned kernel are compiled: the first, or all that it does
            not prune. Of these, some may take more than the target has, but not each.
    """
    parsed = [find_device(name) for name in targets]
    found = find_launches(reference, candidate, parsed, tuned)
    return [_compile_target(target, found[target.name]) for target in parsed]


def find_launches(
    reference: str, candidate: str, targets: list[Device], tuned: Tuned = "first"
) -> dict[str, list[CompiledLaunch]]:
    """Return, for each target, the distinct launches that ``forward`` makes on it, in order.

    Fake tensors cost no memory and no arithmetic. A program that looks at values cannot run on
    them and is run again on real tensors.
    """
    with contextlib.suppress(Exception):
        return _run_forward(reference, candidate, targets, tuned, FakeTensorMode())
    return _run_forward(reference, candidate, targets, tuned, contextlib.nullcontext())


def _run_forward(
    reference: str,
    candidate: str,
    targets: list[Device],
    tuned: Tuned,
    mode: contextlib.AbstractContextManager[Any],
) -> dict[str, list[CompiledLaunch]]:
    found: dict[str, list[CompiledLaunch]] = {}
    with mode, torch.no_grad():
        task = LoadedTask(reference)
        model = LoadedProgram(candidate).build(0, task.init_inputs())
        for target in targets:
            with record_launches(target, tuned) as launches:
                try:
                    model(*task.inputs())
                except Exception as error:
                    raise LaunchError(describe(error)) from error
            found[target.name] = list({launch.key(): launch for launch in launches}.values())
    return found


@contextmanager
def record_launches(target: Device, tuned: Tuned = "first") -> Iterator[list[CompiledLaunch]]:
    """Collect kernel launches in the yielded list instead of making them.

    Only a device can say which configuration of a tuned kernel is fastest: the first is taken, and
    with ``tuned="all"`` the others are launched before it.
    """
    launches: list[CompiledLaunch] = []

    def run(kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        launches.append(bind_launch(kernel, target, args, kwargs))

    def no_time(tuner: Any, *args: Any, config: Any, **meta: Any) -> float:
        if tuned == "all":
            tuner.fn.run(*args, **meta | config.all_kwargs())
            launches[-1] = dataclasses.replace(launches[-1], may_fail=True)
        return 0.0

    def tune_all(tuner: Any, *args: Any, **kwargs: Any) -> None:
        tuner.cache.clear()  # of the target before
        before = len(launches)
        choose(tuner, *args, **kwargs)
        if len(launches) > before + 1:
            launches.pop()  # the first again

    saved = JITFunction.run, Autotuner._bench, Autotuner.run
    choose = Autotuner.run
    JITFunction.run, Autotuner._bench = run, no_time
    Autotuner.run = tune_all if tuned == "all" else choose
    try:
        with stub_driver(target):
            yield launches
    finally:
        JITFunction.run, Autotuner._bench, Autotuner.run = saved


def bind_launch(kernel: Any, target: Device, args: Any, kwargs: dict[str, Any]) -> CompiledLaunch:
    """Do what `JITFunction.run` does before it compiles; launches that compile alike are one.

    Raises:
        RuntimeError: a global variable has another value than when the kernel was first launched.
    """
    backend, binder = _binder(kernel, target)
    kwargs = {name: _stand_in(value) for name, value in kwargs.items()}
    kwargs |= {"debug": False, "instrumentation_mode": ""}
    bound, specialization, options = binder(*map(_stand_in, args), **kwargs)
    for (name, _), (value, names) in kernel.used_global_vals.items():
        if names.get(name) != value:
            raise RuntimeError(f"Global variable {name} has changed since the first launch")
    key = kernel, target, _typed(specialization), _typed(sorted(options.items()))
    try:
        known = _known_launches.get(key)
    except TypeError:  # a constant without a hash
        return _pack(kernel, backend, kwargs, bound, specialization)
    if known is None:
        if len(_known_launches) >= MOST_KNOWN:
            _known_launches.clear()
        known = _known_launches[key] = _pack(kernel, backend, kwargs, bound, specialization)
    return known


MOST_KNOWN = 1024
_known_launches: dict[Any, CompiledLaunch] = {}


def _typed(value: Any) -> Any:
    """Return a key that tells 1 from 1.0 and True."""
    if isinstance(value, list | tuple):
        return tuple(map(_typed, value))
    return type(value), value


def _pack(
    kernel: Any, backend: Any, kwargs: dict[str, Any], bound: Any, specialization: Any
) -> CompiledLaunch:
    options, types, constants, attributes = kernel._pack_args(
        backend, kwargs, bound, specialization, None
    )
    return CompiledLaunch(kernel, types, constants, attributes, options.__dict__)


@functools.lru_cache(maxsize=256)
def _binder(kernel: Any, target: Device) -> tuple[Any, Any]:
    backend = make_backend(gpu_target(target))
    return backend, create_function_from_signature(kernel.signature, kernel.params, backend)


class _Pointer:
    """What the compiler may know of a tensor: its type, alignment and extent in bytes."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.dtype = tensor.dtype
        # Device allocations are aligned, so that only a view's offset can break alignment.
        self._offset: int = tensor.storage_offset() * tensor.element_size()
        self._extent: int = tensor.untyped_storage().size()

    def data_ptr(self) -> int:
        return self._offset

    def ptr_range(self) -> int:
        return self._extent


def _stand_in(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return _Pointer(value)
    if type(value) is tuple:
        return tuple(map(_stand_in, value))
    return value


@contextmanager
def stub_driver(target: Device) -> Iterator[None]:
    """Answer for ``target`` what Triton and kernels' files ask about the device."""
    config = triton.runtime.driver
    saved = config._active
    answers = types.SimpleNamespace(
        get_current_target=lambda: gpu_target(target),
        get_current_device=lambda: 0,
        get_current_stream=lambda device: 0,
        get_active_torch_device=lambda: torch.device("cpu"),
    )
    config.set_active(answers)
    try:
        yield
    finally:
        config._active = saved


def gpu_target(target: Device) -> GPUTarget:
    """Return a device as Triton describes it."""
    return GPUTarget(target.backend, target.arch, target.warp_size)


# --- compiling ------------------------------------------------------------------------------


def compile_launch(launch: CompiledLaunch, target: Device) -> ResourceUsage:
    """Compile one kernel for one target and return what it takes.

    Raises:
        KernelError: it does not compile, or it takes more than the target has.
    """
    source = ASTSource(launch.kernel, launch.types, launch.constants, launch.attributes)
    return _compile_source(launch.kernel.__name__, source, launch.options, target)


def compile_ttir(name: str, ttir: str, options: dict[str, int], target: Device) -> ResourceUsage:
    """Compile one kernel from its TTIR."""
    with _file_of(ttir) as path:
        return _compile_source(name, path, options, target)


def compile_cubin(name: str, ttir: str, options: dict[str, int], target: Device) -> Any:
    """Return Triton's `CompiledKernel` of a kernel's TTIR."""
    with _file_of(ttir) as path:
        compiled = _compiled(name, path, dict(options), target)
    _reject_too_large(name, int(compiled.metadata.shared), options, target)
    return compiled


@contextmanager
def _file_of(ttir: str) -> Iterator[str]:
    """Write TTIR where Triton reads it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.ttir"
        path.write_text(ttir)
        yield str(path)


def _reject_too_large(name: str, shared: int, options: dict[str, Any], target: Device) -> None:
    if shared > target.shared:
        message = f"{shared} bytes of shared memory, {target.name} has {target.shared}"
        raise KernelError(name, "shared_memory", message)
    threads = options["num_warps"] * target.warp_size
    if threads > MAX_THREADS:
        message = f"{threads} threads per block, {target.name} has {MAX_THREADS}"
        raise KernelError(name, "threads", message)


def _compiled(name: str, source: Any, options: dict[str, Any], target: Device) -> Any:
    try:
        with stub_driver(target):
            return triton.compile(source, target=gpu_target(target), options=options)
    except Exception as error:
        raise KernelError(name, type(error).__name__, first_line(error)) from error


def _compile_source(
    name: str, source: Any, options: dict[str, Any], target: Device
) -> ResourceUsage:
    log = io.StringIO()
    with _ptxas_log(), contextlib.redirect_stdout(log):
        compiled = _compiled(name, source, options, target)
    usage = _usage(compiled, target, log.getvalue())
    _reject_too_large(name, usage.shared, options, target)
    return usage


@contextmanager
def _ptxas_log() -> Iterator[None]:
    """Make Triton print ptxas's report, and compile even what its cache holds."""
    nvidia, compilation = triton.knobs.nvidia, triton.knobs.compilation
    with nvidia.scope(), compilation.scope():
        nvidia.dump_ptxas_log = True
        compilation.always_compile = True
        yield


def _usage(compiled: Any, target: Device, log: str) -> ResourceUsage:
    shared = int(compiled.metadata.shared)
    if target.backend == "cuda":
        # "Used 22 registers", "0 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads"
        return ResourceUsage(
            _largest(r"Used (\d+) registers", log),
            _largest(r"(\d+) bytes spill stores", log),
            shared,
        )
    # The metadata that the AMDGPU ABI puts at the end of the assembly; a register has 4 bytes.
    text = compiled.asm["amdgcn"]
    spilled = _largest(r"\.vgpr_spill_count:\s*(\d+)", text)
    shared = max(shared, _largest(r"\.group_segment_fixed_size:\s*(\d+)", text))
    return ResourceUsage(_largest(r"\.vgpr_count:\s*(\d+)", text), 4 * spilled, shared)


def _largest(pattern: str, text: str) -> int:
    return max(map(int, re.findall(pattern, text)), default=0)


def first_line(error: BaseException) -> str:
    """Return the first line that says what is wrong.

    Triton wraps an error once for every call between the kernel and the fault.
    """
    while error.__cause__ is not None:
        error = error.__cause__
    text = getattr(error, "error_message", None) or str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:500] if lines else type(error).__name__


PASSED_OVER = ("shared_memory", "threads", "PTXASError", "CompileTimeAssertionFailure")
"""Errors for which Triton's tuner passes over a configuration."""


def _compile_target(target: Device, launches: list[CompiledLaunch]) -> CompiledTarget:
    signatures: dict[str, list[object]] = {}  # of each kernel, by its name
    for launch in launches:
        signatures.setdefault(launch.kernel.__name__, []).append(launch.describe())
    known = target.name, len(launches), json.dumps(signatures, sort_keys=True)
    used = []
    passed_over: dict[Any, KernelError] = {}
    fitting = set()
    for launch in launches:
        try:
            used.append(compile_launch(launch, target))
            fitting.add(launch.kernel)
        except KernelError as error:
            if not (launch.may_fail and error.error in PASSED_OVER):
                return _failed(known, error)
            passed_over[launch.kernel] = error
    if none_fits := [error for kernel, error in passed_over.items() if kernel not in fitting]:
        return _failed(known, none_fits[0])
    registers, spills, shared = (
        max((getattr(usage, name) for usage in used), default=0)
        for name in ("registers", "spills", "shared")
    )
    return CompiledTarget(*known, ResourceUsage(registers, spills, shared))


def _failed(known: tuple[str, int, str], error: KernelError) -> CompiledTarget:
    return CompiledTarget(*known, None, error.error, error.message, error.kernel)


def _plain(value: Any) -> Any:
    """Return a constant as a JSON value."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return getattr(value, "__name__", None) or str(value)
