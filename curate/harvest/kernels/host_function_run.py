"""Call a wrapper with made-up inputs until one call runs, and say what that call did.

The wrapper runs on the judge's device without a GPU (`cpu_device`), with its checks of every
address, its bounds of work and its memory filled with what no program should count on. A call that
fails tells which arguments to change next: those of the statement that raised, by what its message
mentions. A change stays when the wrapper gets further with it.
"""

from __future__ import annotations

import inspect
import itertools
import json
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import triton.language as tl

from curate.engine.processes.time_limit import OutOfTime, time_limit
from curate.harvest.guess import hill_climb
from curate.harvest.kernels.host_function_inputs import OMIT, Hints, Scale, options, scales
from curate.harvest.kernels.host_function_text import HostFunctionReading, Known
from curate.problem.problem import ProgramError, describe, load
from curate.problem.values import list_tensors, map_tensors
from curate.rows import RUN, KernelRow
from curate.verify.cpu_device import (
    CpuDevice,
    ExecutorStopped,
    Handle,
    asked_launches,
    first_line,
    on_device,
    refusal,
    to_cpu,
    to_gpu,
)

MODULE = "wrapper"
FILENAME = f"<{MODULE}>"

INCURABLE = frozenset(
    (
        *("inline_asm", "map_elementwise", "library_function", "operation", "control_flow"),
        *("call", "kernel"),
    )
)
"""What the executor lacks, whatever the inputs."""

MAX_LATE = 3
"""Calls that may take all their time or work before the search ends."""

SLICES = 5
"""One try may take this part of the work and of the time that there are for all."""


@dataclass(frozen=True)
class RunLimits:
    """Bounds of one search; see the options of `Launch`."""

    tries: int
    elements: int
    seconds: float


@dataclass
class HostFunctionTry:
    """One call.

    Attributes:
        call: parameter to the expression that it was given.
        launches: kernels launched, the one that raised included.
        line: line of the wrapper that it came to.
        reason: a short code for what stopped it, or None.
        message: the error as one line.
        unsupported: whether the device is to blame.
    """

    call: dict[str, str]
    launches: int = 0
    line: int = 0
    reason: str | None = None
    message: str = ""
    unsupported: bool = False

    @property
    def launched(self) -> bool:
        """Whether it ran to its end and launched something."""
        return self.reason is None and self.launches > 0

    @property
    def progress(self) -> tuple[bool, int, bool, int]:
        """How far the call came; larger is further."""
        return self.launched, self.launches, self.reason is None, self.line


def label(row: KernelRow, limits: RunLimits) -> dict[str, Any]:
    """Return a row's `curate.rows.RUN`; `cpu_device.warm` has been called.

    ``raised`` is an error in a launch or after one; an error before the first launch says nothing
    of the kernel, and the inputs that were made up may be to blame for either.
    """
    host_function = row["host_function"]
    assert host_function is not None
    device = CpuDevice()
    try:
        reading = HostFunctionReading(host_function, _signature(row))
        device.begin(0, limits.elements, races=False)
        with on_device(device.stream), time_limit(limits.seconds):
            module = load(MODULE, host_function)
    except SyntaxError as error:
        return _label("unsupported", message=f"syntax_error: {describe(error)}")
    except ProgramError as error:
        return _label("unsupported", message=f"not_loaded: {_scrub(str(error))}")
    except OutOfTime:
        return _label("unsupported", message="out_of_time: the file does not load")
    except ExecutorStopped as error:
        return _label("unsupported", message=f"not_loaded: {_scrub(str(error))}")
    finally:
        sys.modules.pop(MODULE, None)
    name = _launcher(row, reading)
    if name is None or not callable(getattr(module, name, None)):
        return _label("unsupported", message="no_function: the file has none that launches")
    try:
        function = getattr(module, name)
        # An operator of PyTorch's library is called past the dispatcher, which knows no handles.
        function = getattr(function, "_init_fn", function)
        search = HostFunctionSearch(function, name, reading, limits, device)
    except (TypeError, ValueError) as error:
        return _label("unsupported", message=f"no_signature: {describe(error)}")
    found = search.run()
    if found.reason is None:
        return search.describe(found)
    shown = _scrub(found.message)
    if not shown.startswith(found.reason):
        shown = f"{found.reason}: {shown}"
    call = {"inputs": search.text(found.call), "launches": found.launches}
    if found.unsupported:
        return _label("unsupported", shown, **call)
    if not found.launches:  # the made-up inputs may be to blame
        return _label("unsupported", f"no_inputs_found: {shown}", **call)
    return _label("raised", shown, **call)


def _label(status: str, message: str | None = None, **known: Any) -> dict[str, Any]:
    unknown = {field.name: None for field in RUN}
    return {**unknown, "status": status, "message": message, **known}


def _signature(row: KernelRow) -> dict[str, str]:
    """Return the types of the kernel's parameters, where they are known."""
    text = row["kernel"]["signature"]
    return dict(json.loads(text)["types"]) if text else {}


def _launcher(row: KernelRow, reading: HostFunctionReading) -> str | None:
    """Return the function to call: the last of the file that a launch site is in, or the last."""
    text = row["kernel"]["launches"]
    sites = {site["function"] for site in json.loads(text)} if text else set()
    functions = reading.launchers()
    named = [name for name in functions if name in sites]
    return next(iter([*named[::-1], *functions[::-1]]), None)


def _scrub(message: str) -> str:
    """Return a message without addresses, which differ from run to run, and our own names."""
    return re.sub(r"\bHandle\b", "Tensor", re.sub(r"0x[0-9a-f]{4,}", "0x…", message))


class HostFunctionSearch:
    """The search for one wrapper's inputs."""

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        reading: HostFunctionReading,
        limits: RunLimits,
        device: CpuDevice,
    ) -> None:
        self.function, self.name, self.reading = function, name, reading
        self.limits, self.device = limits, device
        self.calls, self.spent = itertools.count(), 0.0
        signature = inspect.signature(function)
        self.parameters = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        self.known = reading.parameters(name)
        self.literals = reading.literals(name)
        self.hints = {p.name: Hints() for p in self.parameters}
        self.tried: set[str] = set()
        self.late = 0
        self.started = time.monotonic()

    def run(self) -> HostFunctionTry:
        """Return the first call that runs and launches, or the one that came furthest."""
        best: HostFunctionTry | None = None
        rounds = scales(self.known.values())
        scale = rounds[0]
        for each in rounds:
            found = self._try(self._first(each))
            if found and (best is None or found.progress > best.progress):
                best, scale = found, each
            if self._over(best):
                break
        assert best is not None  # the first call is always made
        return hill_climb(
            best,
            lambda near: self._neighbours(near, scale),
            self._try,
            lambda new, old: new.progress > old.progress,
            self._over,
        )

    def _over(self, last: HostFunctionTry | None) -> bool:
        """Whether to stop after a call."""
        return (
            (last is not None and (last.launched or last.reason in INCURABLE))
            or len(self.tried) >= self.limits.tries
            or self.late >= MAX_LATE
            or self.spent > self.limits.elements
            or time.monotonic() - self.started > self.limits.seconds
        )

    def _first(self, scale: Scale) -> dict[str, str]:
        return {p.name: self._options(p, scale)[0] for p in self.parameters}

    def _options(self, parameter: inspect.Parameter, scale: Scale) -> list[str]:
        name = parameter.name
        known = self.known.get(name, Known())
        return options(parameter, known, scale, self.hints[name], self.literals.get(name, []))

    def _neighbours(self, best: HostFunctionTry, scale: Scale) -> Iterator[dict[str, str]]:
        """Yield calls with one argument changed, those that the error is about first."""
        concerned, statement = self.reading.concerned(self.name, best.line)
        for name in concerned & self.hints.keys():
            _learn(self.hints[name], best.message, statement)
        first = [p for p in self.parameters if p.name in concerned]
        rest = [p for p in self.parameters if p.name not in concerned]
        for group in (first, rest):
            lists = [[(p.name, text) for text in self._options(p, scale)] for p in group]
            for turn in itertools.zip_longest(*lists):
                for change in turn:
                    if change and best.call[change[0]] != change[1]:
                        yield {**best.call, change[0]: change[1]}

    # one call

    def text(self, call: dict[str, str]) -> str:
        """Return a call as Python."""
        given: dict[str, Any] = {name: text for name, text in call.items() if text != OMIT}
        for parameter in self.parameters:
            if parameter.kind is parameter.VAR_POSITIONAL and parameter.name in given:
                given[parameter.name] = [f"*{given[parameter.name]}"]
        positional, named = self._arrange(given)
        shown = [f"{name}={text}" for name, text in named.items()]
        return f"{self.name}({', '.join([*positional, *shown])})"

    def _arrange(self, values: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return arguments by position and by name."""
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for parameter in self.parameters:
            if parameter.name not in values:
                continue
            value = values[parameter.name]
            by_name = parameter.default is not parameter.empty or bool(named)
            if parameter.kind is parameter.VAR_POSITIONAL:
                positional += value
            elif parameter.kind is parameter.KEYWORD_ONLY or (
                by_name and parameter.kind is not parameter.POSITIONAL_ONLY
            ):
                named[parameter.name] = value
            else:
                positional.append(value)
        return positional, named

    def _make(self, call: dict[str, str], seed: int = 0) -> dict[str, Any]:
        """Return the call's arguments."""
        torch.manual_seed(seed)
        names = {"torch": torch, "tl": tl}
        return {name: eval(text, names) for name, text in call.items() if text != OMIT}

    def _call(self, inputs: dict[str, Any], races: bool = False) -> Any:
        """Call the wrapper on the device within the limits of one try.

        Returns what it returns and the inputs afterwards, as they are on the device.
        """
        device, seconds = self.device, self.limits.seconds / SLICES
        elements = self.limits.elements / SLICES
        device.begin(next(self.calls), elements, races)
        try:
            with time_limit(seconds), on_device(device.stream):
                given = map_tensors(inputs, to_gpu)
                positional, named = self._arrange(given)
                result = self.function(*positional, **named)
                device.check()  # the wrapper may have caught what was raised
        finally:
            self.spent += elements - device.backend.work.left
        return result, given

    def _try(self, call: dict[str, str]) -> HostFunctionTry | None:
        """Return what a call came to; None if it was tried before."""
        text = self.text(call)
        if text in self.tried:
            return None
        self.tried.add(text)
        before = asked_launches()
        found = HostFunctionTry(call)
        try:
            self._call(self._make(call))
        except OutOfTime:
            self.late += 1
            found.reason, found.unsupported = "out_of_time", True
            found.message = "the call does not end in time"
        except (Exception, ExecutorStopped) as error:
            why = self.device.error or refusal(error)
            found.reason, found.message = why.reason, why.message
            if why.status == "compile_error":
                found.message = first_line(error)
            found.unsupported = why.status == "unsupported"
            self.late += why.reason == "too_much_work"
            found.line = self._line(error)
        found.launches = asked_launches() - before
        return found

    def _line(self, error: BaseException) -> int:
        """Return the wrapper's line at which an error was raised or passed through."""
        node = self.reading.functions[self.name]
        lines = [
            line
            for frame, line in traceback.walk_tb(error.__traceback__)
            if frame.f_code.co_filename == FILENAME
            and node.lineno <= line <= (node.end_lineno or node.lineno)
        ]
        return lines[0] if lines else 0

    # the label

    def describe(self, found: HostFunctionTry) -> dict[str, Any]:
        """Return the label of a call that runs: it is made twice more, with two draws.

        A GPU runs a launch's programs in no order. So atomic operations come in another order in
        each call, and what depends on the order of programs otherwise is not deterministic.
        """
        changed: set[str] = set()
        same: list[bool | None] = []
        for seed in (0, 1):
            inputs = self._make(found.call, seed)
            first, again = self._again(inputs), self._again(inputs, races=True)
            if first is not None:
                changed |= {k for k in inputs if not _same_bits(inputs[k], first[1][k])}
            if first is not None and again is not None:
                same.append(_same_bits(first, again))
            else:
                error = self.device.error
                same.append(False if error and error.reason == "race" else None)
        return _label(
            "ran",
            inputs=self.text(found.call),
            launches=found.launches,
            deterministic=False if False in same else None if None in same else True,
            mutated_inputs=sorted(changed),
        )

    def _again(
        self, inputs: dict[str, Any], races: bool = False
    ) -> tuple[Any, dict[str, Any]] | None:
        """Return what a call returns, and the inputs afterwards; None if it raises."""
        try:
            result, given = self._call(inputs, races)
            return map_tensors(result, _values), map_tensors(given, _values)
        except (Exception, ExecutorStopped, OutOfTime):
            return None


def _values(tensor: torch.Tensor) -> torch.Tensor:
    return to_cpu(tensor) if isinstance(tensor, Handle) else tensor


def _same_bits(one: Any, other: Any) -> bool:
    """Whether the tensors of two values are the same, bit by bit."""
    pairs = list(itertools.zip_longest(list_tensors(one), list_tensors(other)))
    return all(
        a is not None
        and b is not None
        and (a.shape, a.dtype) == (b.shape, b.dtype)
        and torch.equal(_bits(a), _bits(b))
        for a, b in pairs
    )


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _learn(hints: Hints, message: str, statement: str) -> None:
    """Note what an error's message, and the statement that raised it, ask for."""
    text = f"{message} {statement}"
    if unpacked := re.search(r"expected (\d+)(, got \d+)?\)", message):
        hints.ranks.insert(0, int(unpacked.group(1)))
    for written, dtype in _DTYPES:
        if re.search(written, text, re.IGNORECASE) and dtype not in hints.dtypes:
            hints.dtypes.append(dtype)
    for number in map(int, re.findall(r"\b\d+\b", text)):
        if 2 < number <= 1024 and number not in hints.sizes:
            hints.sizes.append(number)


_DTYPES = (
    (r"float16|half\b", "float16"),
    (r"bfloat16|bf16", "bfloat16"),
    (r"int32|\bint\b", "int32"),
    (r"int64|\blong\b", "int64"),
    (r"\bbool", "bool"),
    (r"\bint8", "int8"),
    (r"uint8", "uint8"),
    (r"float8_e4m3|fp8", "float8_e4m3fn"),
    (r"float64|double", "float64"),
)
