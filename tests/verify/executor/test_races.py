"""Programs of one grid that get in each other's way, and twins of theirs that do not."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from curate.verify.executor.memory import ACQUIRE, MANY_READERS, RELEASE, Order

KERNELS = Path(__file__).with_name("racy_kernels.py")


def names() -> list[str]:
    """Return the keys of `racy_kernels.PAIRS`, which cannot be imported in this process."""
    for node in ast.parse(KERNELS.read_text()).body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "PAIRS":
            assert isinstance(node.value, ast.Dict)
            return [ast.literal_eval(key) for key in node.value.keys if key is not None]
    raise AssertionError("no PAIRS")


@pytest.fixture(scope="module")
def outcomes() -> dict[str, list[str]]:
    """Run all launches in one process of their own: Triton's runtime is replaced there."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", KERNELS],
        capture_output=True,
        text=True,
        env=environment | {"PYTHONPATH": str(KERNELS.parents[3])},
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    found: dict[str, list[str]] = json.loads(ran.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("name", names())
def test_a_race_is_refused(name: str, outcomes: dict[str, list[str]]) -> None:
    assert outcomes[name][0].startswith("Race: ")


@pytest.mark.parametrize("name", names())
def test_programs_that_keep_apart_are_right(name: str, outcomes: dict[str, list[str]]) -> None:
    assert outcomes[name][1] == "right"


# --- what atomic operations order -------------------------------------------------------------


def order(*operations: tuple[int, int] | tuple[int, int, int]) -> Order:
    made = Order()
    for program, address, *hands in operations:
        made.note(np.array([program], np.int32), np.array([address]), *hands)
    return made


def ordered(made: Order, one: int, time: int, other: int) -> bool:
    known = [np.array([value]) for value in (one, time, other)]
    return made.unordered(*known) is None


def test_an_operation_at_one_address_hands_on_what_was_done_before() -> None:
    made = order((1, 64), (2, 64))
    assert ordered(made, 1, 0, 2)
    assert not ordered(made, 2, 0, 1)  # it came later
    assert not ordered(made, 1, 1, 2)  # what was done after the operation is not handed on
    assert not ordered(made, 1, 0, 3)


def test_operations_at_two_addresses_order_nothing() -> None:
    assert not ordered(order((1, 64), (2, 96)), 1, 0, 2)


def test_what_is_not_released_or_not_acquired_is_not_handed_on() -> None:
    assert ordered(order((1, 64, RELEASE), (2, 64, ACQUIRE)), 1, 0, 2)
    assert ordered(order((1, 64, RELEASE), (3, 64, 0), (2, 64, ACQUIRE)), 1, 0, 2)
    assert not ordered(order((1, 64, ACQUIRE), (2, 64, RELEASE)), 1, 0, 2)
    for one, other in ((0, 3), (3, 0), (RELEASE, RELEASE), (ACQUIRE, ACQUIRE)):
        assert not ordered(order((1, 64, one), (2, 64, other)), 1, 0, 2)
    assert not ordered(order((1, 64), (3, 64, RELEASE), (3, 96), (2, 96)), 1, 0, 2)


def test_each_of_a_thousand_pairs_is_looked_at() -> None:
    made = order(*((program, 64) for program in range(1, 1001)))
    first, times = np.arange(1, 1000), np.arange(999)
    assert made.unordered(first, times, np.full(999, 1000)) is None
    late = times + (first == 7)  # one stored after its operation
    assert made.unordered(first, late, np.full(999, 1000)) == 6


def test_order_goes_by_way_of_a_third_program() -> None:
    made = order((1, 64), (3, 64), (3, 96), (2, 96))
    assert ordered(made, 1, 0, 2)
    assert not ordered(order((3, 64), (3, 96), (1, 64), (2, 96)), 1, 0, 2)


def test_of_many_readers_it_is_enough_that_the_writer_waits() -> None:
    assert ordered(order((2, 64)), MANY_READERS, 0, 2)
    assert not ordered(order((1, 64)), MANY_READERS, 0, 2)
