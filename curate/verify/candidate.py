"""The candidate's process: builds the program, runs it on what the judge sends, says what it did.

It serves these requests, one candidate per process:

- ``load {source, ptx, device, precision}``: run the file;
- ``build {init, names, state, parameters, mode}``: construct ``ModelNew`` and give it the state;
- ``run {inputs, seed, fresh, layout, plain}``: one forward, and what it launched and called;
- ``ablate {inputs, seed, refuse}``: one forward without its kernels;
- ``burst {inputs, seed, count}``: many forwards, of whose results one comes back;
- ``prepare_timing {sets}``, ``run_timed {n, nonce}``: see `curate.verify.timing`;
- ``profile {nonce}``: the device's own account of one timed iteration.

Everything here but the outputs is a claim of a process in which hostile code runs; the judge
compares the outputs with results that never were in this process.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn

from curate.verify import watch
from curate.verify.launcher import LAUNCH, make_launcher
from curate.verify.problem import CANDIDATE, EXAMPLE, REFERENCE, LoadedProgram, LoadedTask, describe
from curate.verify.protocol.role import (
    Answer,
    Handlers,
    Refusal,
    Tensors,
    lay_out,
    list_tensors,
    map_tensors,
    mutated_inputs,
    pack_all,
    poison_memory,
    serve_requests,
    set_precision,
    to_device,
    unpack_named,
)
from curate.verify.protocol.wire import Channel, WireError
from curate.verify.recorder import Launches, Recorder
from curate.verify.timing import TimedModel

SPIN = 1_000_000  # cycles that the device waits before it has the inputs: half a millisecond
GUARD = 1024  # elements on each side of an input
PLAIN_NAMES = {"Tensor", "Parameter"}


class CandidateProcess:
    """One program, on one device."""

    def __init__(self, launches: Launches) -> None:
        self.launches = launches
        self.before: dict[str, Any] = {}
        self.device = "cpu"
        self.program: LoadedProgram
        self.model: nn.Module
        self.inputs: dict[str, Any] = {}
        self.timed: TimedModel
        self.synchronize = torch.cuda.synchronize
        self.stream: Any = None

    def load(self, request: dict[str, Any], tensors: Tensors) -> Answer:
        """Run the file's text."""
        self.device = request["device"]
        set_precision(self.device, request["precision"])
        if self.device != "cpu":
            torch.zeros(1, device=self.device)  # a context, before time counts
            self.stream = torch.cuda.current_stream()
        launchers = {}
        if request["ptx"] is not None:
            launchers[LAUNCH] = make_launcher(request["ptx"], self.launches.admit, self.device)
        self.program = LoadedProgram(request["source"], launchers)
        return {"patched": watch.changed(self.before)}, []

    def build(self, request: dict[str, Any], tensors: Tensors) -> Answer:
        """Construct the model under the reference's seed; return its state's names."""
        init = unpack_named(request, tensors, "init")
        names = unpack_named(request, tensors, "names")
        state = unpack_named(request, tensors, "state")
        model = self.program.build(request["parameters"], init)
        self.model = model.train(request["mode"] == "train")
        own = self.model.state_dict()
        if list(own) != names or any(
            value.shape != given.shape for value, given in zip(own.values(), state, strict=True)
        ):
            self.model.to(self.device)
            return pack_all({"names": list(own), "state": list(own.values())})
        self.model.load_state_dict(dict(zip(names, state, strict=True)), strict=True)
        self.model.to(self.device)
        return {"names": None}, []

    def set_state(self, request: dict[str, Any], tensors: Tensors) -> Answer:
        """Give a built model its state, by its own names."""
        names = unpack_named(request, tensors, "names")
        state = unpack_named(request, tensors, "state")
        self.model.load_state_dict(dict(zip(names, state, strict=True)), strict=True)
        return {}, []

    def run(self, request: dict[str, Any], tensors: Tensors) -> Answer:
        """Run one forward and return the outputs, the inputs that it changed, and what it did."""
        self.launches.next_turn()
        inputs = self._take_inputs(request, tensors)
        kept = map_tensors(inputs, torch.clone)
        if request.get("plain"):
            before = self.launches.count
            result = self._forward(inputs, request["seed"])
            answer, sent = self._results(result, inputs, kept)
            return answer | {"count": self.launches.count - before}, sent
        known = [*list_tensors(inputs), *self.model.state_dict().values()]
        recorder = Recorder(known, blank=request["seed"] % 2 == 1)
        self.launches.recorder = recorder
        try:
            with recorder:
                result = self._forward(inputs, request["seed"])
        finally:
            self.launches.recorder = None
        answer, sent = self._results(result, inputs, kept)
        outputs = [_plain(t) for t in list_tensors(result) if t.numel()]
        return {
            **answer,
            "launches": dict(recorder.launches),
            "failed": [describe(error) for error in recorder.failed],
            "calls": dict(recorder.calls),
            "call_bytes": recorder.call_bytes,
            "launch_bytes": recorder.launch_bytes,
            "was_called": bool(outputs) and all(map(recorder.was_called, outputs)),
            "was_ready": bool(outputs) and all(map(recorder.was_ready, outputs)),
            "was_scaled": bool(outputs) and all(map(recorder.was_scaled, outputs)),
            "trespassed": recorder.trespassed(),
            "elements": 0,
        }, sent

    def _results(self, result: Any, inputs: list[Any], kept: Any) -> Answer:
        values = {"output": map_tensors(result, _plain), "changed": mutated_inputs(inputs, kept)}
        try:
            answer, sent = pack_all(values)
        except WireError as error:
            raise Refusal("incorrect", "structure", f"the output is not data: {error}") from error
        patched = watch.changed(self.before)
        if self.device != "cpu" and torch.cuda.current_stream() != self.stream:
            torch.cuda.set_stream(self.stream)
            patched.append("torch.cuda.current_stream()")
        return {
            **answer,
            "subclasses": sorted({type(t).__name__ for t in list_tensors(result)} - PLAIN_NAMES),
            "devices": sorted({t.device.type for t in list_tensors(result)}),
            "patched": patched,
        }, sent

    def ablate(self, request: dict[str, Any], tensors: Tensors) -> Answer:
        """Run one forward with its launches left out, or refused with an exception."""
        inputs = self._take_inputs(request | {"fresh": True}, tensors)
        self.launches.refused = request["refuse"]
        try:
            result = self._forward(inputs, request["seed"])
        finally:
            self.launches.refused = None
        return pack_all({"output": map_tensors(result, _plain)})

    def burst(self, request: dict[str, Any], tensors: Tensors) -> Answer:
        """Run many forwards; return the result that is furthest from the first."""
        inputs = self._take_inputs(request | {"fresh": True}, tensors)
        first = worst = None
        furthest = 0.0
        for _ in range(request["count"]):
            result = map_tensors(self.model(*map_tensors(inputs, torch.clone)), _plain)
            first = first if first is not None else map_tensors(result, torch.clone)
            if (apart := _apart(result, first)) > furthest or worst is None:
                worst, furthest = map_tensors(result, torch.clone), apart
        self._wait()
        return pack_all({"output": worst})

    def prepare_timing(self, request: dict[str, Any], tensors: Tensors) -> Answer:
        """Load parameters and inputs; autotuned kernels measure themselves from now on."""
        if self.build(request, tensors)[0]["names"] is not None:
            raise Refusal("unsupported", "timing_state", "parameters have names of their own")
        self.launches.tune()
        sets = unpack_named(request, tensors, "sets")
        self.timed = TimedModel(self.model, sets, self.device)
        return {}, []

    def run_timed(self, request: dict[str, Any], tensors: Tensors) -> Answer:
        """Run some timed iterations and return their checksums."""
        sums = self.timed.run(request["n"], request["nonce"])
        return {}, [torch.tensor(sums, dtype=torch.float64)]

    def profile(self, request: dict[str, Any], tensors: Tensors) -> Answer:
        """Return the device time of kernels of one forward, by name, in microseconds."""
        runs = []
        for call_model in (False, True):  # the loop alone first: its kernels are not the program's
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
                sums = self.timed.run(1, request["nonce"], call_model)
            spent: dict[str, float] = {}
            for event in seen.events():
                if event.device_type == torch.autograd.DeviceType.CUDA:
                    name = event.name[:200]
                    spent[name] = spent.get(name, 0.0) + event.device_time
            runs.append(spent)
        loop, whole = runs
        own = {name: max(0.0, us - loop.get(name, 0.0)) for name, us in whole.items()}
        return {"kernels": own}, [torch.tensor(sums, dtype=torch.float64)]

    # the work

    def _take_inputs(self, request: dict[str, Any], tensors: Tensors) -> list[Any]:
        """Return the inputs on the device.

        Unless they are to be fresh, they are the very objects of the run before with new values,
        at the same addresses and with the same version counters: what a cache would look at.
        """
        inputs = unpack_named(request, tensors, "inputs")
        new = list_tensors(inputs)
        if layout := request.get("layout"):
            there = to_device(inputs, self.device)
            return list(map_tensors(there, lambda tensor: lay_out(tensor, layout)))
        kind = repr([(t.shape, t.dtype, t.stride()) for t in new])
        if request.get("fresh") or kind not in self.inputs:
            there = map_tensors(inputs, lambda tensor: _guarded(tensor, self.device))
            if not request.get("fresh"):
                self.inputs[kind] = there
            return list(there)
        old = list_tensors(self.inputs[kind])
        if self.device != "cpu":
            # Work that does not wait for the current stream starts before its inputs are there.
            staged = [tensor.to(self.device) for tensor in new]
            torch.cuda._sleep(SPIN)
            new = staged
        for there, values in zip(old, new, strict=True):
            there.data.copy_(values)
        return list(self.inputs[kind])

    def _forward(self, inputs: list[Any], seed: int) -> Any:
        torch.manual_seed(seed)
        result = self.model(*inputs)
        # Copied on the stream that the caller uses, as any caller would.
        result = map_tensors(result, lambda t: t.clone() if type(t) is torch.Tensor else t)
        self._wait()
        return result

    def _wait(self) -> None:
        if self.device != "cpu":
            self.synchronize()


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's data without whatever a subclass does."""
    return tensor.as_subclass(torch.Tensor).detach()


def _guarded(tensor: torch.Tensor, device: str) -> torch.Tensor:
    """Return a tensor on a device, with NaN before and behind it: nothing good to read there."""
    if device == "cpu" or not tensor.is_floating_point() or tensor.element_size() < 2:
        return tensor.to(device)
    room = torch.full((tensor.numel() + 2 * GUARD,), float("nan"), dtype=tensor.dtype).to(device)
    inside = room[GUARD : GUARD + tensor.numel()]
    return inside.as_strided(tensor.shape, tensor.stride(), GUARD).copy_(tensor)


def _apart(one: Any, other: Any) -> float:
    """Return the largest difference of two results; infinite where one holds NaN."""
    furthest = 0.0
    for mine, its in zip(list_tensors(one), list_tensors(other), strict=False):
        a, b = mine.double(), its.double()
        if not a.numel():
            continue
        if bool((a.isnan() != b.isnan()).any()):
            return float("inf")
        apart = (a - b).abs().nan_to_num(nan=0.0)  # NaN, or the same infinity, in both
        furthest = max(furthest, float(apart.max()))
    return furthest


def warm() -> None:
    """Load what programs need; an example on the CPU loads what is loaded on first use."""
    launch_tools.prepare()
    task = LoadedTask(EXAMPLE[0])
    with torch.no_grad(), Recorder():
        task.build(0, task.init_inputs())(*task.inputs())
    for name in (REFERENCE, CANDIDATE):
        sys.modules.pop(name, None)


class LaunchTools:
    """What Triton compiles with gcc before its first launch, kept for children's own caches.

    A cache on disk that children share could be spoiled by one of them.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def prepare(self) -> None:
        """Compile it, without touching the device; where that fails, children do it."""
        with tempfile.TemporaryDirectory() as folder, contextlib.suppress(Exception):
            os.environ["TRITON_CACHE_DIR"] = folder
            importlib.import_module("triton.backends.nvidia.driver").CudaUtils()
            found = [path for path in Path(folder).rglob("*") if path.is_file()]
            self.files = {str(path.relative_to(folder)): path.read_bytes() for path in found}

    def give(self) -> None:
        """Fill a new cache of this process's own."""
        folder = Path(tempfile.mkdtemp())
        os.environ["TRITON_CACHE_DIR"] = str(folder)
        for name, content in self.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)


launch_tools = LaunchTools()


def serve(sock: socket.socket) -> None:
    """Serve the judge on a channel, in a child of its own."""
    poison_memory()
    launch_tools.give()
    torch.set_grad_enabled(False)
    channel = Channel(sock)
    launches = Launches()
    launches.install()
    candidate = CandidateProcess(launches)
    handlers: Handlers = {
        "load": candidate.load,
        "build": candidate.build,
        "set_state": candidate.set_state,
        "run": candidate.run,
        "ablate": candidate.ablate,
        "burst": candidate.burst,
        "prepare_timing": candidate.prepare_timing,
        "run_timed": candidate.run_timed,
        "profile": candidate.profile,
    }
    # A program that imports these gets others, not the ones that watch it.
    for name in [name for name in sys.modules if name.split(".")[0] == "curate"]:
        del sys.modules[name]

    def report(rule: str, event: str, line: int) -> None:
        channel.send({"event": rule, "what": event, "line": line})

    watch.watch_events(report)
    candidate.before = watch.snapshot()
    serve_requests(channel, handlers)
