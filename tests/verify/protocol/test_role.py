from __future__ import annotations

import socket
from typing import Any

import pytest
import torch

from curate.problem.draw import OWN, Draw
from curate.verify.protocol import wire
from curate.verify.protocol.role import answer_one, refusal
from curate.verify.protocol.wire import Channel
from curate.verify.reference.serve import SKIP, _failure


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        # what a process hears whose first call finds the device full
        torch.AcceleratorError("CUDA error: out of memory\nSearch for `cudaErrorMemoryAllocation'"),
        RuntimeError("Triton Error [CUDA]: out of memory"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried 8 TB"),
    ],
)
def test_too_little_memory_is_oom_in_every_class_of_error(error: Exception) -> None:
    assert refusal(error).status == "oom"


def test_an_error_that_speaks_of_memory_is_not_oom() -> None:
    assert refusal(RuntimeError("out of memory slots in my table")).status == "runtime_error"


def test_a_full_device_says_nothing_of_a_draw() -> None:
    full, other = torch.OutOfMemoryError("CUDA out of memory."), ValueError("no")
    draw = Draw(1, family="normal")
    assert draw.family != OWN
    assert _failure(draw, full, "cuda").status == "oom"
    assert _failure(draw, full, "cpu").status == SKIP
    assert _failure(draw, other, "cuda").status == SKIP
    assert _failure(Draw(1), other, "cuda").reason == "reference_error"


def test_tensors_that_find_no_memory_are_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    one, other = (Channel(sock) for sock in socket.socketpair())
    one.send({"serial": 7, "do": "begin"}, [torch.ones(3)])
    monkeypatch.setattr(wire, "_make_tensor", full)
    answer_one(other, {}.__getitem__)
    told, _ = one.receive()
    assert told["serial"] == 7
    assert told["refused"]["status"] == "oom"
