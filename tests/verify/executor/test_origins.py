"""Which kernels compute and which only move, and who worked on what lies in a storage."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from curate.devices import find_device
from curate.verify.compile.lowering import Lowering
from curate.verify.executor.origins import ANY, READ, Command, Origins, kernel_flows
from curate.verify.executor.serve import EXAMPLE

X, Y, Z = torch.empty(64), torch.empty(64), torch.empty(64, dtype=torch.int64)
MOVED, MADE = (False, frozenset({0})), (True, frozenset({0}))


@triton.jit
def count_up(y, step, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.store(y + at, (at * step).to(tl.float32))


@triton.jit
def scale(x, y, factor, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.store(y + at, (tl.load(x + at) * factor + 1).to(tl.float16))


@triton.jit
def turn(x, y, m, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)[:, None]
    j = tl.arange(0, B)[None, :]
    inside = (i < m) & (j < n)
    tl.store(y + j * m + i, tl.load(x + i * n + j, mask=inside, other=0.0), mask=inside)


@triton.jit
def long_copy(x, y, n, B: tl.constexpr):
    for start in range(0, n, B):
        at = start + tl.arange(0, B)
        tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def choose_itself(x, y, B: tl.constexpr):
    at = tl.arange(0, B)
    value = tl.load(x + at)
    tl.store(y + at, tl.where(value == value, 0.0 - value, value + 1))


@triton.jit
def pick(x, y, z, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.store(y + at, tl.load(x + tl.load(z + at) * 2 + 1))


@triton.jit
def relu(x, y, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.store(y + at, tl.maximum(tl.load(x + at), 0.0))


@triton.jit
def total(x, y, n, B: tl.constexpr):
    sums = tl.zeros((B,), tl.float32)
    for start in range(0, n, B):
        sums += tl.load(x + start + tl.arange(0, B))
    tl.store(y + tl.arange(0, B), sums)


@triton.jit
def number_places(x, y, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.store(y + at, tl.load(x + at) * at)


@triton.jit
def keep_some(x, y, B: tl.constexpr):
    at = tl.arange(0, B)
    v = tl.load(x + at)
    if tl.load(x) > 0:
        v = v + 1
    tl.store(y + at, v)


@triton.jit
def add_up(x, y, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.atomic_add(y + at, tl.load(x + at))


@triton.jit
def scale_by_one(x, y, z, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.store(y + at, tl.load(x + at) * tl.load(z))


@triton.jit
def by_table(x, y, B: tl.constexpr):
    at = tl.arange(0, B)
    tl.store(tl.load(y).to(tl.pointer_type(tl.float32)) + at, tl.load(x + at))


def text_of(kernel: object, *args: object) -> str:
    return Lowering(find_device("cuda:90")).lower(kernel, args, (1,), {"B": 16}).ttir


@pytest.mark.parametrize(
    ("kernel", "args", "found"),
    [
        (scale, (X, Y, 2.5), MOVED),
        (turn, (X, Y, 8, 8), MOVED),
        (long_copy, (X, Y, 64), MOVED),
        (pick, (X, Y, Z), (False, frozenset({0, 2}))),
        (choose_itself, (X, Y), MOVED),
        (relu, (X, Y), MADE),
        (total, (X, Y, 64), MADE),
        (number_places, (X, Y), MADE),
        (keep_some, (X, Y), MADE),
        (add_up, (X, Y), MOVED),
        (scale_by_one, (X, Y, Z), (False, frozenset({0, 2}))),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_what_a_kernel_does(
    kernel: object, args: tuple[object, ...], found: tuple[bool, frozenset[int]]
) -> None:
    assert kernel_flows(text_of(kernel, *args)) == {1: found}


def test_an_address_from_memory_may_lead_anywhere() -> None:
    assert kernel_flows(text_of(by_table, X, Z)) == {ANY: (False, frozenset({0, 1}))}
    origins = Origins()
    origins.note(Command("exp", [0], [(1, True)], 8, computes=True))
    origins.note(Command("by_table", [1, 2], kernel=text_of(by_table, X, Z)))
    assert origins.trace([7]).by_operators == [True]


def test_memory_that_a_launch_was_seen_to_reach_is_that_of_its_addresses() -> None:
    origins = Origins()
    origins.note(Command("exp", [0], [(1, True)], 8, computes=True))
    origins.note(Command("by_table", [1, 2], kernel=text_of(by_table, X, Z), strays=[3]))
    assert origins.trace([3, 7]).by_operators == [True, False]


def test_a_result_without_a_way_from_the_inputs_is_the_hosts() -> None:
    def results(*commands: Command) -> list[bool]:
        origins = Origins([0])
        for command in commands:
            origins.note(command)
        return origins.trace([2]).by_host

    made = Command("count_up", [2, None], kernel=text_of(count_up, X, 3))
    read = Command(READ, [0])
    assert results(read, made) == [True]
    assert results(made) == [False]  # from what was not read
    assert results(read, Command("relu", [0, 2], kernel=text_of(relu, X, Y))) == [False]


def copy(source: int, target: int) -> Command:
    return Command("copy", [source, target, None], size=4, kernel=EXAMPLE)


def test_a_table_that_only_numbers_go_into_is_nobodys_work() -> None:
    """Sines for a transform are not the transform; what is made of inputs or state is work."""
    for read, size in ((1, 0), (0, 8), (5, 8)):  # the table itself; an input; a parameter
        origins = Origins([0])
        origins.note(Command("arange", [], [(1, True)], 8))
        origins.note(Command("sin", [1], [(2, True)], 8, computes=True))
        origins.note(Command("cos", [2, read], [(2, True)], 8, computes=True))
        origins.note(Command("relu", [2, 3], kernel=text_of(relu, X, Y)))
        found = origins.trace([3])
        assert (found.calls, found.call_bytes) == ({"sin": 1, "cos": 1}, size)


def test_a_copy_of_what_an_operator_gave_is_the_operators() -> None:
    origins = Origins()
    origins.note(Command("exp", [0], [(1, True)], 8, computes=True))
    origins.note(copy(1, 2))
    found = origins.trace([2, 0])
    assert found.by_operators == [True, False]
    assert (found.calls, found.call_bytes, found.launch_work) == ({"exp": 1}, 8, 0)


def test_an_operator_before_or_behind_a_kernel_makes_a_hybrid() -> None:
    relu_text = text_of(relu, X, Y)
    for order in (1, -1):
        origins = Origins()
        steps = [Command("exp", [0], [(1, True)], 8, computes=True)]
        steps.append(Command("relu", [1, 2], size=5, kernel=relu_text))
        if order < 0:
            steps = [Command("relu", [0, 1], size=5, kernel=relu_text)]
            steps.append(Command("exp", [1], [(2, True)], 8, computes=True))
        for step in steps:
            origins.note(step)
        found = origins.trace([2])
        assert found.by_operators == [False] and found.launch_work == 5 and found.call_bytes == 8
        assert [origins.comes_first(step) for step in steps if step.computes] == [order > 0]


def test_what_leads_to_no_result_does_not_count() -> None:
    origins = Origins()
    origins.note(Command("relu", [0, 3], size=5, kernel=text_of(relu, X, Y)))
    idle = origins.note(Command("sum", [0], [(4, True)], 8, computes=True))
    origins.note(Command("exp", [0], [(1, True)], 8, computes=True))
    found = origins.trace([1])
    assert found.by_operators == [True] and found.calls == {"exp": 1}
    assert not origins.comes_first(idle)


def test_a_number_that_the_host_has_read_keeps_its_label() -> None:
    fill = text_of(fill_in, Y, 3.5)
    origins = Origins()
    origins.note(Command("sum", [0], [(1, True)], 8, computes=True))
    origins.note(Command(READ, [1]))
    origins.note(Command("fill_in", [2, None], kernel=fill))
    assert origins.trace([2]).by_operators == [True]


@triton.jit
def fill_in(y, number, B: tl.constexpr):
    tl.store(y + tl.arange(0, B), number)


def test_what_is_written_anew_has_lost_its_label() -> None:
    origins = Origins()
    origins.note(Command("exp", [0], [(1, True)], 8, computes=True))
    origins.note(Command("copy_", [3], [(1, True)]))
    assert origins.trace([1]).by_operators == [False]
    origins.note(Command("exp", [0], [(1, False)], 8, computes=True))
    origins.note(Command("copy_", [3], [(1, False)]))
    assert origins.trace([1]).by_operators == [True]
