"""Recurrent layers as one operator each, so that a graph holds no copy of every step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from curate.generator.unprintable import Unprintable

KINDS = ("lstm", "gru", "rnn_tanh", "rnn_relu")
"""What PyTorch calls its recurrent layers."""

_LIBRARY = torch.library.Library("curate", "DEF")
_LIBRARY.define(
    "recurrence(Tensor[] gates, Tensor[] weights, Tensor[] biases, Tensor[] states, str kind, "
    "bool batch_first) -> Tensor[]"
)
RECURRENCE = torch.ops.curate.recurrence.default
"""All steps of a layer: of both directions, if there are two of everything.

``gates`` are the products of the layer's input, ``weights`` and ``biases`` belong to those of the
state, and ``states`` are those before the first step: of an LSTM the cells behind the others. The
first result is the output of all steps, those behind it are an LSTM's cells after the last.
"""


def _results(
    gates: Sequence[Tensor],
    weights: Sequence[Tensor],
    biases: Sequence[Tensor],
    states: Sequence[Tensor],
    kind: str,
    batch_first: bool,
) -> list[Tensor]:
    """Return tensors like the results, without values."""
    if len({x.dtype for x in (*gates, *weights, *biases, *states)}) > 1:
        raise ValueError("types must be the same")
    cells = states[len(weights) :]
    width = weights[0].shape[1] * len(weights)
    out = gates[0].new_empty((gates[0].shape[0], gates[0].shape[1], width))
    return [out, *(cell.new_empty(cell.shape) for cell in cells)]


torch.library.register_fake("curate::recurrence", _results, lib=_LIBRARY)


def _layers(kind: str) -> Callable[..., Any]:
    """Return what runs in place of PyTorch's layers of a kind."""

    def run(
        x: Tensor,
        states: Any,
        weights: Any,
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[Tensor, ...]:
        if not isinstance(weights, list):
            raise Unprintable("a packed sequence")
        if train and dropout:
            raise Unprintable("random numbers")
        both, of_each = 1 + bidirectional, 4 if has_biases else 2
        if len(weights) != num_layers * both * of_each:
            raise Unprintable("a projection of the state")
        states = states if kind == "lstm" else (states,)
        ends: list[list[Tensor]] = [[] for _ in states]
        for layer in range(num_layers):
            own = range(layer * both, (layer + 1) * both)
            w_in, w_state, *biases = zip(
                *(weights[i * of_each : (i + 1) * of_each] for i in own), strict=True
            )
            b_in, b_state = biases or ([None] * both, [])
            gates = [torch.nn.functional.linear(x, w, b) for w, b in zip(w_in, b_in, strict=True)]
            before = [state[i] for state in states for i in own]
            x, *cells = RECURRENCE(gates, w_state, b_state, before, kind, batch_first)
            hidden, time = w_state[0].shape[1], int(batch_first)
            ends[0].append(x.select(time, -1)[:, :hidden])
            if bidirectional:
                ends[0].append(x.select(time, 0)[:, hidden:])
            ends[-1] += cells
        last = [torch.stack(found) if found[1:] else found[0].unsqueeze(0) for found in ends]
        return (x, *last)

    return run


@contextmanager
def recurrences() -> Iterator[None]:
    """Have recurrent layers be `RECURRENCE`."""
    with ExitStack() as stack:
        for kind in KINDS:
            stack.enter_context(mock.patch.object(torch._VF, kind, _layers(kind), create=True))
        yield
