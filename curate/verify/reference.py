"""The reference's process: draws inputs and parameters, and says what is right.

It serves these requests, one problem a process:

- ``load {source, device}``: run the file;
- ``draw {draw}``: inputs, parameters, and the results in the file's precision and in float64;
- ``facts {draw}``: what the task is made of, and whether it can tell right from wrong.
"""

from __future__ import annotations

import contextlib
import copy
import socket
from typing import Any

import torch
from torch import nn

from curate.verify.compare import flatten
from curate.verify.draws import OWN, Draw, draw_inputs, free_sizes, redraw_parameters
from curate.verify.problem import Task, describe
from curate.verify.recorder import Recorder
from curate.verify.role import (
    Answer,
    Refusal,
    Tensors,
    get_precision,
    list_tensors,
    pack_all,
    poison_memory,
    same_tensors,
    serve_requests,
    to_device,
    to_double,
)
from curate.verify.wire import Channel, WireError

SKIP = "skip"
"""Status of a draw that the reference does not take: nothing is learned from it."""


class Reference:
    """One problem, on one device."""

    def __init__(self) -> None:
        self.task: Task
        self.device = "cpu"
        self.models: dict[tuple[int, str], tuple[list[Any], nn.Module]] = {}

    def load(self, request: dict[str, Any], tensors: Tensors) -> Answer:
        """Run the file's text."""
        self.device = request["device"]
        self.task = Task(request["source"])
        if self.device != "cpu":
            torch.zeros(1, device=self.device)  # a context, before time counts
        return {"free_sizes": free_sizes(self.task), "precision": get_precision()}, []

    def draw(self, request: dict[str, Any], tensors: Tensors) -> Answer:
        """Return one draw's inputs and parameters, and what is to come out."""
        draw = Draw(**request["draw"])
        init, model = self._model(draw)
        inputs = self._inputs(draw)
        own, exact = self._run(model, inputs, draw)
        if draw.family == "steps" and _has_integers(own["output"]) and not _has_integers(inputs):
            raise Refusal(SKIP, "ties", "equal inputs have no one index")
        state = model.state_dict()
        try:
            return pack_all(
                {
                    "init": init,
                    "inputs": inputs,
                    "names": list(state),
                    "state": list(state.values()),
                    "own": own,
                    "exact": exact,
                }
            )
        except WireError as error:
            raise Refusal("unsupported", "not_data", str(error)) from error

    def initial_state(self, request: dict[str, Any], tensors: Tensors) -> Answer:
        """Return the parameters as the constructor makes them."""
        draw = Draw(**request["draw"])
        torch.manual_seed(draw.parameters)
        init = self.task.init_inputs()
        state = self.task.build(draw.parameters, init).state_dict()
        return pack_all({"names": list(state), "state": list(state.values())})

    def facts(self, request: dict[str, Any], tensors: Tensors) -> Answer:
        """Return the operators that compute, and what the output does not depend on."""
        draw = Draw(**request["draw"])
        _, model = self._model(draw)
        inputs = self._inputs(draw)
        own = self._forward(model, inputs, draw.seed)
        if not same_tensors(own, self._forward(model, inputs, draw.seed + 1)):
            raise Refusal("unsupported", "random", "the output depends on the seed")
        with Recorder() as recorder:
            self._forward(model, inputs, draw.seed)
        return {
            "calls": dict(recorder.calls),
            "call_bytes": recorder.call_bytes,
            "mode_dependent": self._depends_on_mode(model, inputs, draw, own),
            "insensitive_inputs": self._insensitive(model, inputs, draw, own),
        }, []

    # the work

    def _model(self, draw: Draw) -> tuple[list[Any], nn.Module]:
        """Return the constructor's arguments, and a model with drawn parameters."""
        key = draw.parameters, draw.mode
        if key not in self.models:
            torch.manual_seed(draw.parameters)
            init = self.task.init_inputs()
            model = self.task.build(draw.parameters, init)
            redraw_parameters(model, draw.parameters)
            self.models = {key: (init, model.train(draw.mode == "train").to(self.device))}
        return self.models[key]

    def _inputs(self, draw: Draw) -> list[Any]:
        try:
            return list(to_device(draw_inputs(self.task, draw), self.device))
        except Exception as error:
            raise _failure(draw, error) from error

    def _forward(self, model: nn.Module, inputs: list[Any], seed: int) -> dict[str, Any]:
        """Return what ``forward`` gives, and those inputs that it changed; the model stays."""
        given = copy.deepcopy(inputs)
        model = copy.deepcopy(model)
        torch.manual_seed(seed)
        result = model(*given)
        changed = {
            path: value
            for path, value in flatten(given, "input").items()
            if not same_tensors(value, flatten(inputs, "input").get(path))
        }
        return {"output": result, "changed": changed}

    def _run(
        self, model: nn.Module, inputs: list[Any], draw: Draw
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the results in the file's own precision and in float64.

        Raises:
            Refusal: it raises, or gives nothing finite on a draw that is not the file's own.
        """
        try:
            own = self._forward(model, inputs, draw.seed)
        except Exception as error:
            raise _failure(draw, error) from error
        if draw.family != OWN and not _finite(own):
            raise Refusal(SKIP, "not_finite", f"not finite on {draw.family} inputs")
        with contextlib.suppress(RuntimeError):
            exact = self._forward(copy.deepcopy(model).double(), to_double(inputs), draw.seed)
            if list(flatten(exact)) == list(flatten(own)):
                return own, exact
        # Some modules name float32 in their code and cannot be run in another precision; they
        # are held to the floor of the tolerance alone.
        return own, own

    def _depends_on_mode(
        self, model: nn.Module, inputs: list[Any], draw: Draw, own: dict[str, Any]
    ) -> bool:
        try:
            other = self._forward(copy.deepcopy(model).train(draw.mode == "eval"), inputs, 0)
        except Exception:
            return True
        return not same_tensors(own, other)

    def _insensitive(
        self, model: nn.Module, inputs: list[Any], draw: Draw, own: dict[str, Any]
    ) -> list[int]:
        """Return positions of tensor inputs that can be drawn anew without effect."""
        others = self._inputs(Draw(draw.seed + 1000, draw.parameters, draw.family, draw.size))
        found = []
        for i, (value, other) in enumerate(zip(inputs, others, strict=True)):
            if not isinstance(value, torch.Tensor) or same_tensors(value, other):
                continue
            try:
                changed = self._forward(model, [*inputs[:i], other, *inputs[i + 1 :]], draw.seed)
            except Exception:
                continue
            if same_tensors(own["output"], changed["output"]):
                found.append(i)
        return found


def _failure(draw: Draw, error: Exception) -> Refusal:
    if draw.family != OWN or draw.size is not None:
        return Refusal(SKIP, "raises", describe(error))
    return Refusal("unsupported", "reference_error", describe(error))


def _finite(value: Any) -> bool:
    return all(bool(t.isfinite().all()) for t in list_tensors(value) if t.is_floating_point())


def _has_integers(value: Any) -> bool:
    return any(not t.is_floating_point() and not t.is_complex() for t in list_tensors(value))


def serve(sock: socket.socket) -> None:
    """Serve the judge on a channel, in a child of its own."""
    poison_memory()
    torch.set_grad_enabled(False)
    reference = Reference()
    channel = Channel(sock)
    serve_requests(
        channel,
        {
            "load": reference.load,
            "draw": reference.draw,
            "initial_state": reference.initial_state,
            "facts": reference.facts,
        },
    )
