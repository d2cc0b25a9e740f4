"""Compile one kernel that stands alone, from a signature written as JSON.

A signature says what `triton.compile` must know of each parameter. Nothing is launched, so no GPU
is needed. Each compilation is done in a forked child: LLVM ends the process when it meets something
that it cannot do, and reports it on standard error only.

Uses private parts of Triton; tested with triton 3.6, 3.7 and 3.9.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import Any

import triton.language as tl
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.jit import JITFunction

from curate.devices import Device, find_device
from curate.problem.problem import EXAMPLE, ProgramError, load
from curate.verify.compile.aot import (
    CompiledLaunch,
    CompiledTarget,
    KernelError,
    ResourceUsage,
    compile_launch,
    stub_driver,
)

KERNEL = "kernel"  # the name of the module that a kernel's file becomes
SECONDS = 15  # of CPU time that one compilation may take
MOST_PRINTED = 65536  # bytes of the compiler's messages that are looked at


@dataclass(frozen=True)
class KernelSignature:
    """What a kernel is compiled with.

    Attributes:
        types: parameter to Triton's type name (``*fp32``, ``i32``, ``constexpr``), for all.
        constants: the value of each ``constexpr``, as JSON: a tuple is a list, a type is
            ``{"dtype": "fp32"}``, a function of the kernel's file is ``{"function": name}``.
        divisible_by_16: the parameters, pointers mostly, whose value 16 divides.
        num_warps: warps per block.
        num_stages: stages of software pipelining.
    """

    types: dict[str, str]
    constants: dict[str, Any]
    divisible_by_16: list[str]
    num_warps: int = 4
    num_stages: int = 2

    def to_json(self) -> str:
        """Return the text of ``kernel.signature``."""
        return json.dumps(asdict(self), sort_keys=True)


def read_signature(text: str) -> KernelSignature:
    """Return the signature that `KernelSignature.to_json` wrote."""
    return KernelSignature(**json.loads(text))


@dataclass(frozen=True)
class LoadedKernel:
    """A kernel's file, loaded.

    Attributes:
        module: the file as a module.
        function: the function under ``@triton.jit``.
        configs: the configurations of ``@triton.autotune``; none where there is no such decorator.
        heuristics: parameter to the function that computes it from the other arguments.
    """

    module: ModuleType
    function: Any
    configs: list[Any]
    heuristics: dict[str, Callable[..., Any]]

    def launch(self, signature: KernelSignature) -> CompiledLaunch:
        """Return the launch that has this signature."""
        order = self.function.arg_names
        return CompiledLaunch(
            self.function,
            {name: signature.types[name] for name in order},
            {
                (order.index(name),): self._constant(value)
                for name, value in signature.constants.items()
            },
            {(order.index(name),): [["tt.divisibility", 16]] for name in signature.divisible_by_16},
            {"num_warps": signature.num_warps, "num_stages": signature.num_stages},
        )

    def _constant(self, value: Any) -> Any:
        if isinstance(value, list):
            return tuple(map(self._constant, value))
        if isinstance(value, dict):
            ((kind, name),) = value.items()
            return tl.dtype(name) if kind == "dtype" else getattr(self.module, name)
        return value


def warm() -> None:
    """Compile an example in this process, so that its children find everything loaded.

    Triton hashes itself before its first compilation: half a second that each child would take.
    """
    target = find_device("cuda:90")
    types = {"x_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    kernel = load_kernel(EXAMPLE[1], "add_one_kernel", target)
    compile_launch(kernel.launch(KernelSignature(types, {"BLOCK": 32}, [])), target)


def load_kernel(source: str, entry_point: str, target: Device) -> LoadedKernel:
    """Run a kernel's file and return its kernel.

    Raises:
        ProgramError: the file cannot be loaded, or ``entry_point`` is no kernel in it.
    """
    with stub_driver(target):
        module = load(KERNEL, source)
    found = getattr(module, entry_point, None)
    configs: list[Any] = []
    heuristics: dict[str, Any] = {}
    while isinstance(found, Autotuner | Heuristics):
        if isinstance(found, Autotuner):
            configs = configs or list(found.configs)
        else:
            heuristics = {**found.values, **heuristics}
        found = found.fn
    if not isinstance(found, JITFunction):
        raise ProgramError(KERNEL, f"{entry_point} is no kernel")
    return LoadedKernel(module, found, configs, heuristics)


@dataclass(frozen=True)
class CompiledKernel:
    """The result of one compilation.

    Attributes:
        usage: what the kernel takes; None where it does not compile.
        error: the error's class, such as ``CompilationError``, ``shared_memory``, ``crash``.
        message: the first line that says what is wrong.
        lines: the lines of source that led to the fault, outermost call first.
    """

    usage: ResourceUsage | None
    error: str | None = None
    message: str | None = None
    lines: tuple[str, ...] = ()


def compile_signature(
    kernel: LoadedKernel, signature: KernelSignature, target: Device
) -> CompiledKernel:
    """Compile a kernel with a signature in a child of its own, and return what came of it."""
    launch = kernel.launch(signature)
    answer, printed, ended_by = _in_child(lambda: _compile(launch, target))
    if ended_by == signal.SIGXCPU:
        return CompiledKernel(
            None, "timeout", f"compilation took more than {SECONDS} s of CPU time"
        )
    if not answer:
        return CompiledKernel(
            None, "crash", _diagnostic(printed) or "the compiler ended the process"
        )
    found = json.loads(answer)
    if found["usage"]:
        return CompiledKernel(ResourceUsage(**found["usage"]))
    # What a pass finds wrong is printed; the exception says only that the pass failed.
    message = _diagnostic(printed) if found["error"] == "RuntimeError" else None
    return CompiledKernel(None, found["error"], message or found["message"], tuple(found["lines"]))


def _compile(launch: CompiledLaunch, target: Device) -> dict[str, object]:
    try:
        return {"usage": asdict(compile_launch(launch, target))}
    except KernelError as error:
        said = {"error": error.error, "message": error.message}
        return {"usage": None, **said, "lines": list(_lines(error))}


def _lines(error: BaseException) -> Iterator[str]:
    """Yield the source line of each call between the kernel and the fault."""
    cause: BaseException | None = error.__cause__
    while cause is not None:
        node, source = getattr(cause, "node", None), getattr(cause, "src", None)
        if node is not None and source:
            lines = source.splitlines()[node.lineno - 1 : node.end_lineno][:20]
            yield " ".join(line.strip() for line in lines)[:500]
        cause = cause.__cause__


def _diagnostic(printed: str) -> str | None:
    found = re.search(r"(?:error|LLVM ERROR|Assertion|fatal)\b:?\s*(.+)", printed)
    return found[1].strip()[:500] if found else None


def _in_child(work: Callable[[], object]) -> tuple[str, str, int]:
    """Return what ``work`` gave as JSON, what it printed, and the signal that ended it or 0.

    The answer is empty where the process ended before it gave one.
    """
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as printed:
        pid = os.fork()
        if not pid:
            _answer(work, given.fileno(), printed.fileno())
        _, status = os.waitpid(pid, 0)
        given.seek(0)
        printed.seek(0)
        said = printed.read(MOST_PRINTED).decode(errors="replace")
        return given.read().decode(), said, os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def _answer(work: Callable[[], object], given: int, printed: int) -> None:
    """Do ``work``, write what it gives, and end the process: what a child does."""
    try:
        # CPU time, which other work on the machine does not change; ptxas gets as much again.
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.dup2(printed, 1)
        os.dup2(printed, 2)
        os.write(given, json.dumps(work()).encode())
    finally:
        os._exit(0)


def compile_kernel(
    source: str, entry_point: str, signature: KernelSignature, targets: list[str]
) -> list[CompiledTarget]:
    """Compile a kernel for every target.

    Returns:
        One result per target.

    Raises:
        ProgramError: the file cannot be loaded, or ``entry_point`` is no kernel in it.
        ValueError: an unknown target.
    """
    parsed = [find_device(name) for name in targets]
    shown = json.dumps({entry_point: [asdict(signature)]}, sort_keys=True)
    results = []
    for target in parsed:
        kernel = load_kernel(source, entry_point, target)
        found = compile_signature(kernel, signature, target)
        known = found.usage, found.error, found.message
        results.append(CompiledTarget(target.name, 1, shown, *known))
    return results
