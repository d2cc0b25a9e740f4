"""The candidate's process: builds the program, runs it on what the judge sends, says what it did.

It serves these requests, one candidate a process:

- ``load {source, device, precision, operations}``: run the file;
- ``build {init, names, state, parameters, mode}``: construct ``ModelNew`` and give it the state;
- ``run {inputs, seed, fresh, layout}``: one forward, and what it launched and called;
- ``ablate {inputs, seed, refuse}``: one forward without its kernels;
- ``burst {inputs, seed, count}``: forwards whose results nobody looks at.

Everything here but the outputs is a claim of a process in which hostile code runs; the judge
compares the outputs with results that never were in this process.
"""

from __future__ import annotations

import contextlib
import socket
import sys
from typing import Any

import torch
from torch import nn

from curate.verify import watch
from curate.verify.compare import flatten
from curate.verify.problem import CANDIDATE, EXAMPLE, REFERENCE, Program, Task, describe
from curate.verify.recorder import Launches, Recorder
from curate.verify.role import (
    Answer,
    Handlers,
    Tensors,
    list_tensors,
    map_tensors,
    pack_all,
    poison_memory,
    same_tensors,
    serve_requests,
    set_precision,
    to_device,
    unpack_named,
)
from curate.verify.wire import Channel

SPIN = 1_000_000  # cycles that the device waits before it has the inputs: half a millisecond
PLAIN_NAMES = {"Tensor", "Parameter"}


class Candidate:
    """One program, on one device."""

    def __init__(self, launches: Launches, before: dict[str, Any]) -> None:
        self.launches, self.before = launches, before
        self.device = "cpu"
        self.program: Program
        self.model: nn.Module
        self.inputs: list[Any] = []
        self.synchronize = torch.cuda.synchronize
        self.budget = contextlib.ExitStack()
        self.work_budget: Any = None

    def load(self, request: dict[str, Any], tensors: Tensors) -> Answer:
        """Run the file's text."""
        self.device = request["device"]
        set_precision(self.device, request["precision"])
        if self.device != "cpu":
            torch.zeros(1, device=self.device)  # a context, before time counts
        if request["operations"] is not None:
            self.budget.enter_context(self.work_budget(request["operations"]))
        self.program = Program(request["source"])
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
        recorder = Recorder(keep_results=True)
        self.launches.recorder = recorder
        try:
            with recorder:
                result = self._forward(inputs, request["seed"])
        finally:
            self.launches.recorder = None
        for error in recorder.failed:
            if type(error).__name__ == "Unsupported":  # whatever the program made of it
                raise error
        values = {"output": map_tensors(result, _plain), "changed": _changed(inputs, kept)}
        answer, sent = pack_all(values)
        return {
            **answer,
            "launches": dict(recorder.launches),
            "failed": [describe(error) for error in recorder.failed],
            "calls": dict(recorder.calls),
            "call_bytes": recorder.call_bytes,
            "launch_bytes": recorder.launch_bytes,
            "is_torch_result": _all_held(recorder, result),
            "subclasses": sorted({type(t).__name__ for t in list_tensors(result)} - PLAIN_NAMES),
            "devices": sorted({t.device.type for t in list_tensors(result)}),
            "patched": watch.changed(self.before),
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
        """Run many forwards; nobody looks at their results."""
        inputs = self._take_inputs(request | {"fresh": True}, tensors)
        for _ in range(request["count"]):
            self.model(*map_tensors(inputs, torch.clone))
        self._wait()
        return {}, []

    # the work

    def _take_inputs(self, request: dict[str, Any], tensors: Tensors) -> list[Any]:
        """Return the inputs on the device.

        Unless they are to be fresh, they are the very objects of the run before with new values,
        at the same addresses and with the same version counters: what a cache would look at.
        """
        inputs = unpack_named(request, tensors, "inputs")
        if request.get("layout") == "strided":
            return list(map_tensors(to_device(inputs, self.device), _strided))
        old, new = list_tensors(self.inputs), list_tensors(inputs)
        fits = [(t.shape, t.dtype, t.stride()) for t in old] == [
            (t.shape, t.dtype, t.stride()) for t in new
        ]
        if request["fresh"] or not fits or not new:
            self.inputs = list(to_device(inputs, self.device))
            return self.inputs
        if self.device != "cpu":
            # Work that does not wait for the current stream starts before its inputs are there.
            staged = [tensor.to(self.device) for tensor in new]
            torch.cuda._sleep(SPIN)
            new = staged
        for there, values in zip(old, new, strict=True):
            there.data.copy_(values)
        return self.inputs

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


def _strided(tensor: torch.Tensor) -> torch.Tensor:
    """Return the same values with gaps between them, at an odd address."""
    if not tensor.ndim or not tensor.numel():
        return tensor
    room = torch.zeros(2 * tensor.numel() + 1, dtype=tensor.dtype, device=tensor.device)
    spread = room[1:].view(*tensor.shape, 2)[..., 0]
    return spread.copy_(tensor)


def _changed(inputs: list[Any], kept: Any) -> dict[str, Any]:
    after, before = flatten(inputs, "input"), flatten(kept, "input")
    return {path: v for path, v in after.items() if not same_tensors(v, before.get(path))}


def _all_held(recorder: Recorder, result: Any) -> bool:
    outputs = [t for t in list_tensors(result) if t.numel()]
    return bool(outputs) and all(recorder.holds(_plain(t)) for t in outputs)


def warm(interpreted: bool) -> None:
    """Load what programs need; an interpreted example loads what is loaded on first use."""

    if interpreted:
        task, program = Task(EXAMPLE[0]), Program(EXAMPLE[1])
        with torch.no_grad(), Recorder(keep_results=True):
            program.build(0, task.init_inputs())(*task.inputs())
        for name in (REFERENCE, CANDIDATE):
            del sys.modules[name]


def serve(sock: socket.socket, interpreted: bool) -> None:
    """Serve the judge on a channel, in a child of its own."""
    poison_memory()
    torch.set_grad_enabled(False)
    channel = Channel(sock)
    launches = Launches()
    launches.install(interpreted)
    candidate = Candidate(launches, watch.snapshot())
    if interpreted:
        from curate.verify.interpreter import work_budget

        candidate.work_budget = work_budget
    handlers: Handlers = {
        "load": candidate.load,
        "build": candidate.build,
        "set_state": candidate.set_state,
        "run": candidate.run,
        "ablate": candidate.ablate,
        "burst": candidate.burst,
    }
    # A program that imports these gets others, not the ones that watch it.
    for name in [name for name in sys.modules if name.split(".")[0] == "curate"]:
        del sys.modules[name]

    def report(rule: str, event: str, line: int) -> None:
        channel.send({"event": rule, "what": event, "line": line})

    watch.watch_events(report)
    serve_requests(channel, handlers)
