from __future__ import annotations

import pytest
import torch

from curate.verify.protocol.role import refusal
from curate.verify.reference.draw import OWN, Draw
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
