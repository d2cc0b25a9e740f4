"""What the processes of the judge have in common: requests in, replies out."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, cast

import torch
from triton.compiler.errors import CompilationError
from triton.runtime.errors import OutOfResources, PTXASError

from curate.problem.problem import ProgramError, describe
from curate.problem.values import Tensors, same_tensors
from curate.verify.protocol.calls import Answered, Given, Handler, pack_call, read_answer
from curate.verify.protocol.compare import flatten
from curate.verify.protocol.wire import Channel, ConnectionClosed, WireError

NO_MEMORY = ("DefaultCPUAllocator: can't allocate memory",
             "CUDA error: out of memory", "HIP error: out of memory",
             "Triton Error [CUDA]: out of memory", "Triton Error [HIP]: out of memory")  # fmt: skip
"""What PyTorch and Triton say in errors of other classes when host or device has no memory: where
a neighbour fills the device, a process may fail as early as in its first call."""

FATAL = ("illegal memory access", "device-side assert triggered", "launch failure",
         "misaligned address", "invalid program counter", "hardware stack")  # fmt: skip
"""Errors after which a CUDA or HIP context cannot be used any more."""


class Refusal(Exception):
    """A request that has no answer.

    Attributes:
        status: one of the judge's statuses.
        reason: a short code in snake_case, or the error's class.
    """

    def __init__(self, status: str, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason, self.message = status, reason, message


def refusal(error: BaseException) -> Refusal:
    """Return what an exception says about the program that raised it."""
    if isinstance(error, Refusal):
        return error
    cause: BaseException = error
    if isinstance(error, ProgramError) and error.__cause__:
        cause = error.__cause__
    return Refusal(*_classify(cause), describe(error if isinstance(error, ProgramError) else cause))


def _classify(error: BaseException) -> tuple[str, str]:
    name = type(error).__name__
    if isinstance(error, OutOfResources):
        return "compile_error", "out_of_resources"
    if isinstance(error, CompilationError | PTXASError | SyntaxError):
        return "compile_error", name
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or any(
        words in str(error) for words in NO_MEMORY
    ):
        return "oom", name
    if any(words in str(error) for words in FATAL):
        return "crash", next(w for w in FATAL if w in str(error)).replace(" ", "_")
    if isinstance(error, WireError):
        return "unsupported", "not_data"
    return "runtime_error", name


def ask(
    channel: Channel,
    method: Callable[Concatenate[Any, Given], Answered],
    *args: Given.args,
    **named: Given.kwargs,
) -> Answered:
    """Have the process at the other end, which is trusted, call a method of what it serves.

    Raises:
        Refusal: as its answer.
    """
    tensors: Tensors = []
    given = pack_call(method, args, named, tensors)
    channel.send({"do": method.__name__, "serial": 0, "given": given}, tensors)
    reply, received = channel.receive()
    if "refused" in reply:
        raise Refusal(**reply["refused"])
    return cast(Answered, read_answer(method, reply["answer"], received))


def serve_requests(channel: Channel, handlers: dict[str, Handler]) -> None:
    """Answer requests, each with its own number, until the judge closes the channel."""
    while True:
        try:
            answer_one(channel, handlers.__getitem__)
        except ConnectionClosed:
            return
        give_back()


def answer_one(channel: Channel, find: Callable[[str], Handler]) -> None:
    """Answer one request; an error of its handler, or too little memory for it, is an answer too.

    Raises:
        ConnectionClosed: the judge is gone.
    """
    frame = channel.receive_frame()
    try:
        request, tensors = frame.open()
        answer, sent = find(request["do"])(request["given"], tensors)
        channel.send({"serial": request["serial"], "answer": answer}, sent)
    except Exception as error:
        why = refusal(error)
        refused = {"status": why.status, "reason": why.reason, "message": why.message[:1000]}
        channel.send({"serial": frame.message()["serial"], "refused": refused})


SPARE = 2**30
"""Bytes of the device that a process may keep for its next request."""


def give_back() -> None:
    """Give memory of the device that is not in use back to the neighbours."""
    if torch.cuda.is_initialized() and (
        torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > SPARE
    ):
        torch.cuda.empty_cache()


# --- values ---------------------------------------------------------------------------------


def mutated_inputs(given: Any, inputs: Any) -> dict[str, Any]:
    """Return those inputs, by their path, that ``forward`` has changed."""
    after, before = flatten(given, "input"), flatten(inputs, "input")
    return {path: v for path, v in after.items() if not same_tensors(v, before.get(path))}


STRIDED, PERMUTED, MIXED = LAYOUTS = "strided", "permuted", "mixed"
"""Ways in which inputs may lie in memory, other than one element after the other: with gaps, at an
odd address; with channels last, or the last two dimensions swapped where there are no channels; and
every second input so, while the others lie with all dimensions but the last in reverse order, and a
gap behind each row, as a slice of a tensor or heads of an attention do."""


def layout_of(shape: Sequence[int], layout: str, number: int) -> tuple[tuple[int, ...], int] | None:
    """Return strides, and the first element's offset, of a tensor in one of `LAYOUTS`.

    None means that it lies there as it would anyway.

    Args:
        shape: of the tensor.
        layout: one of `LAYOUTS`.
        number: which of the inputs' tensors it is, from 0.
    """
    if layout == MIXED:
        return layout_of(shape, PERMUTED, number) if number % 2 else _rows_apart(shape)
    order = list(range(len(shape)))  # of dimensions, the last one innermost
    if layout == PERMUTED:
        has_channels = len(shape) in (4, 5) and shape[1] > 1
        if len(shape) > 1:
            order.append(order.pop(1 if has_channels else -2))
    stride, step = [0] * len(shape), 2 if layout == STRIDED else 1
    for dim in reversed(order):
        stride[dim] = step
        step *= shape[dim]
    moved = [dim for dim in order if shape[dim] > 1]
    if not step or not moved or (layout == PERMUTED and moved == sorted(moved)):
        return None
    return tuple(stride), int(layout == STRIDED)


def _rows_apart(shape: Sequence[int]) -> tuple[tuple[int, ...], int] | None:
    """Return strides of rows that lie apart, the first dimension innermost among the others."""
    if len(shape) < 2 or math.prod(shape) < 2:
        return None
    strides = itertools.accumulate(shape[:-2], operator.mul, initial=shape[-1] + 1)
    return (*strides, 1), 0


def lay_out(tensor: torch.Tensor, layout: str, number: int) -> torch.Tensor:
    """Return a tensor with the same values in one of `LAYOUTS`, with zeros in gaps."""
    found = layout_of(tensor.shape, layout, number)
    if found is None:
        return tensor
    room = torch.zeros(2 * tensor.numel() + 1, dtype=tensor.dtype, device=tensor.device)
    return room.as_strided(tensor.shape, *found).copy_(tensor)


def set_precision(device: str, precision: dict[str, bool]) -> None:
    """Allow TF32 and the like as far as the reference does."""
    if device == "cpu":
        return
    torch.backends.cuda.matmul.allow_tf32 = precision["matmul_tf32"]
    allow_cudnn_tf32(precision["cudnn_tf32"])


def allow_cudnn_tf32(allowed: bool) -> None:
    """Allow TF32 in convolutions, or not.

    Not by ``torch.backends``: whoever imports PyTorch's test suite can set nothing there any more.
    """
    torch._C._set_cudnn_allow_tf32(allowed)


def get_precision() -> dict[str, bool]:
    """Return what this process allows."""
    return {
        "matmul_tf32": bool(torch.backends.cuda.matmul.allow_tf32),
        "cudnn_tf32": bool(torch.backends.cudnn.allow_tf32),
    }
