"""Calls arrive with the types of the method that is called, or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from curate.problem.draw import Draw, Variation
from curate.verify.protocol.calls import handlers_of, message, pack_call, read_answer
from curate.verify.protocol.messages import Results
from curate.verify.protocol.wire import WireError, pack


@message
@dataclass(frozen=True)
class Seen:
    draw: Draw
    sizes: dict[str, list[int]]
    results: Results
    share: float | None


class Process:
    def look(self, draw: Draw, sizes: dict[str, list[int]], values: Any, share: float) -> Seen:
        results: Results = {"output": values, "changed": {}, "state": {}}
        return Seen(draw, sizes, results, share if share else None)

    def flags(self, known: dict[str, int | bool]) -> dict[str, int | bool]:
        return known

    def pair(self, number: int = 3) -> tuple[int, bool]:
        return number, True


DRAW = Draw(3, changes=(Variation("scale", "inputs", 0.5),))


def ask(method: Any, *args: Any, **named: Any) -> Any:
    """Call a method as if it were in another process."""
    tensors: list[torch.Tensor] = []
    process = Process()
    handlers = handlers_of(process.look, process.pair, process.flags)
    given = pack_call(method, args, named, tensors)
    return read_answer(method, *handlers[method.__name__](given, tensors))


@pytest.mark.parametrize("share", [0.5, 1, 0])
def test_what_is_sent_arrives(share: float) -> None:
    values = [torch.arange(3), {"a": (1, None)}]
    seen = ask(Process.look, DRAW, {"n": [4, 2]}, values, share=share)
    assert seen.draw == DRAW and seen.sizes == {"n": [4, 2]}
    assert torch.equal(seen.results["output"][0], values[0])
    assert seen.results["output"][1] == values[1]
    assert seen.share == (share or None)
    assert ask(Process.pair) == (3, True)
    assert repr(ask(Process.flags, {"warps": 4, "fused": True})) == "{'warps': 4, 'fused': True}"


def test_neither_a_number_nor_a_truth_value_is_refused() -> None:
    with pytest.raises(WireError):
        ask(Process.flags, {"warps": 4.0})


@pytest.mark.parametrize(
    "answer", [None, 3, (3,), (3, True, 1), [3, True], (True, True), (3.0, True), ("3", True)]
)
def test_an_answer_of_another_type_is_refused(answer: Any) -> None:
    with pytest.raises(WireError):
        read_answer(Process.pair, pack(answer, []), [])


@pytest.mark.parametrize("packed", [None, 3, {"message": 3}, {"message": [1]}, {"list": []}, {}])
def test_a_message_of_another_form_is_refused(packed: Any) -> None:
    with pytest.raises(WireError):
        read_answer(Process.look, packed, [])
