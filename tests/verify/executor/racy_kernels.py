"""Kernels whose programs get in each other's way, each with a twin whose programs do not.

Run as a program, its last line is a JSON object: for each of `PAIRS`, what the racy launch and the
orderly one came to: the name of an exception, ``right`` or ``wrong``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import triton
import triton.language as tl

sys.path.insert(0, str(Path(__file__).parents[1]))
import executor_for_tests

executor_for_tests.install()

N, WIDTH = 8, 32
"""Programs of a grid, and elements of a block."""

Outcome = tuple[torch.Tensor, torch.Tensor]
"""What a launch gave, and what is right."""


def numbers(count: int = N * WIDTH) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(3))


# --- stores to one element --------------------------------------------------------------------


@triton.jit
def name_yourself(out, step):
    tl.store(out + tl.program_id(0) * step, tl.program_id(0).to(tl.float32))


def one_slot() -> Outcome:
    out = torch.zeros(N)
    name_yourself[(N,)](out, 0)
    return out, torch.zeros(N)


def a_slot_each() -> Outcome:
    out = torch.zeros(N)
    name_yourself[(N,)](out, 1)
    return out, torch.arange(N).float()


@triton.jit
def stretch(source, out, width, EXTRA: tl.constexpr, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    at = tl.program_id(0) * width + lane
    value = tl.load(source + at, mask=lane < width + EXTRA, other=0.0)
    tl.store(out + at, value * tl.program_id(0), mask=lane < width + EXTRA)


def stretched(extra: int) -> Outcome:
    source, out = numbers(N * WIDTH + 1), torch.zeros(N * WIDTH + 1)
    stretch[(N,)](source, out, WIDTH, EXTRA=extra, BLOCK=2 * WIDTH)
    right = source[:-1].view(N, WIDTH) * torch.arange(N)[:, None]
    return out[:-1], right.reshape(-1)


@triton.jit
def scatter_rows(where, out, BLOCK: tl.constexpr):
    row, lane = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(out + tl.load(where + row) * BLOCK + lane, (row + lane).to(tl.float32))


def scattered(where: list[int]) -> Outcome:
    out, right = torch.zeros(N, WIDTH), torch.zeros(N, WIDTH)
    scatter_rows[(N,)](torch.tensor(where), out, BLOCK=WIDTH)
    for row, target in enumerate(where):
        right[target] = row + torch.arange(WIDTH)
    return out, right


@triton.jit
def raise_flag(flags, out, OWN: tl.constexpr):
    row = tl.program_id(0)
    tl.store(flags, row if OWN else 7)
    tl.store(out + row, row)


def flagged(own: bool) -> Outcome:
    flags, out = torch.zeros(1, dtype=torch.int32), torch.zeros(N, dtype=torch.int32)
    raise_flag[(N,)](flags, out, OWN=own)
    return torch.cat([flags, out]), torch.cat([torch.tensor([7]), torch.arange(N)]).int()


# --- loads of what others store ---------------------------------------------------------------


@triton.jit
def shift_left(source, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(source + at + 1, mask=at + 1 < count, other=0.0))


def shifted(in_place: bool) -> Outcome:
    source = numbers()
    right = torch.cat([source[1:], torch.zeros(1)])
    out = source if in_place else torch.empty_like(source)
    shift_left[(N,)](source, out, N * WIDTH, BLOCK=WIDTH)
    return out, right


@triton.jit
def turn_tiles(source, out, n, BLOCK: tl.constexpr):
    r = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tile = tl.load(source + r[:, None] * n + c[None, :])
    tl.store(out + c[:, None] * n + r[None, :], tl.trans(tile))


def turned(in_place: bool) -> Outcome:
    source = numbers(64 * 64).view(64, 64)
    right = source.t().contiguous()
    out = source if in_place else torch.empty_like(source)
    turn_tiles[(4, 4)](source, out, 64, BLOCK=16)
    return out, right


@triton.jit
def square_then_add(x, between, out, programs, STEP: tl.constexpr, BLOCK: tl.constexpr):
    row, lane = tl.program_id(0), tl.arange(0, BLOCK)
    if STEP != 2:
        value = tl.load(x + row * BLOCK + lane)
        tl.store(between + row * BLOCK + lane, value * value)
    if STEP != 1:
        mine = tl.load(between + row * BLOCK + lane)
        other = tl.load(between + (row + 1) % programs * BLOCK + lane)
        tl.store(out + row * BLOCK + lane, mine + other)


def two_stages(steps: tuple[int, ...]) -> Outcome:
    x, between, out = numbers(), torch.zeros(N * WIDTH), torch.zeros(N * WIDTH)
    for step in steps:
        square_then_add[(N,)](x, between, out, N, STEP=step, BLOCK=WIDTH)
    squares = (x * x).view(N, WIDTH)
    return out, (squares + squares.roll(-1, 0)).reshape(-1)


@triton.jit
def running_sums(x, ends, out, STEP: tl.constexpr, BLOCK: tl.constexpr):
    row, lane = tl.program_id(0), tl.arange(0, BLOCK)
    sums = tl.cumsum(tl.load(x + row * BLOCK + lane), 0)
    if STEP == 1:
        tl.store(ends + row, tl.sum(tl.where(lane == BLOCK - 1, sums, 0.0), 0))
    else:
        before = 0.0
        for earlier in range(row):
            before += tl.load(ends + earlier)
        if STEP == 0:
            tl.store(ends + row, tl.sum(tl.where(lane == BLOCK - 1, sums, 0.0), 0))
        tl.store(out + row * BLOCK + lane, sums + before)


def summed_up(steps: tuple[int, ...]) -> Outcome:
    x = (numbers() * 8).round()
    ends, out = torch.zeros(N), torch.zeros(N * WIDTH)
    for step in steps:
        running_sums[(N,)](x, ends, out, STEP=step, BLOCK=WIDTH)
    return out, x.cumsum(0)


# --- atomic operations ------------------------------------------------------------------------


@triton.jit
def add_up(x, total, SCOPE: tl.constexpr, BLOCK: tl.constexpr):
    part = tl.sum(tl.load(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)), 0)
    if SCOPE is not None:
        tl.atomic_add(total, part, scope=SCOPE)
    else:
        tl.store(total, tl.load(total) + part)


def added_up(scope: str | None) -> Outcome:
    x, total = (numbers() * 8).round(), torch.zeros(1)
    add_up[(N,)](x, total, SCOPE=scope, BLOCK=WIDTH)
    return total, x.sum()[None]


@triton.jit
def clear_and_add(x, total, FIRST: tl.constexpr, BLOCK: tl.constexpr):
    if FIRST and tl.program_id(0) == 0:
        tl.store(total, 0.0)
    tl.atomic_add(total, tl.sum(tl.load(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)), 0))


@triton.jit
def clear(total):
    tl.store(total, 0.0)


def cleared(by_the_first: bool) -> Outcome:
    x, total = (numbers() * 8).round(), torch.full((1,), 9.0)
    if not by_the_first:
        clear[(1,)](total)
    clear_and_add[(N,)](x, total, FIRST=by_the_first, BLOCK=WIDTH)
    return total, x.sum()[None]


@triton.jit
def count_colours(x, out, ATOMIC: tl.constexpr, BLOCK: tl.constexpr):
    colour = tl.load(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
    if ATOMIC:
        tl.atomic_add(out + colour, 1)
    else:
        tl.store(out + colour, tl.load(out + colour) + 1)


def counted(atomic: bool) -> Outcome:
    x, out = torch.arange(N * WIDTH) % WIDTH, torch.zeros(WIDTH, dtype=torch.int32)
    count_colours[(N,)](x, out, ATOMIC=atomic, BLOCK=WIDTH)
    return out, torch.full((WIDTH,), N, dtype=torch.int32)


@triton.jit
def last_one_sums(
    x, parts, tickets, out, WHO: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr,
    SEM: tl.constexpr = "acq_rel", SCOPE: tl.constexpr = "gpu",
):  # fmt: skip
    row = tl.program_id(0)
    tl.store(parts + row, tl.sum(tl.load(x + row * BLOCK + tl.arange(0, BLOCK)), 0))
    ticket = tl.atomic_add(tickets, 1, sem=SEM, scope=SCOPE)
    chosen = ticket == N - 1 if WHO == "the last ticket" else ticket == 0
    if chosen:
        tl.store(out, tl.sum(tl.load(parts + tl.arange(0, N)), 0))


def ticketed(who: str, **how: str) -> Outcome:
    x, parts, out = (numbers() * 8).round(), torch.zeros(N), torch.zeros(1)
    tickets = torch.zeros(1, dtype=torch.int32)
    last_one_sums[(N,)](x, parts, tickets, out, WHO=who, N=N, BLOCK=WIDTH, **how)
    return out, x.sum()[None]


@triton.jit
def lock_and_add(x, lock, total, LOCKED: tl.constexpr, BLOCK: tl.constexpr):
    part = tl.sum(tl.load(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)), 0)
    if LOCKED:
        while tl.atomic_cas(lock, 0, 1) == 1:
            pass
    tl.store(total, tl.load(total) + part)
    if LOCKED:
        tl.atomic_xchg(lock, 0)


def locked(with_lock: bool) -> Outcome:
    x, total = (numbers() * 8).round(), torch.zeros(1)
    lock = torch.zeros(1, dtype=torch.int32)
    lock_and_add[(N,)](x, lock, total, LOCKED=with_lock, BLOCK=WIDTH)
    return total, x.sum()[None]


@triton.jit
def count_and_take(x, own, between, out, n: tl.constexpr, OTHER: tl.constexpr, BLOCK: tl.constexpr):
    row, lane = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(between + row * BLOCK + lane, tl.load(x + row * BLOCK + lane) * 2)
    tl.atomic_add(own + row, 1)  # nobody else looks at this counter
    taken = (row + OTHER) % n
    tl.store(out + row * BLOCK + lane, tl.load(between + taken * BLOCK + lane))


def counters_of_their_own(other: int) -> Outcome:
    x, between, out = numbers(), torch.zeros(N * WIDTH), torch.zeros(N * WIDTH)
    own = torch.zeros(N, dtype=torch.int32)
    count_and_take[(N,)](x, own, between, out, n=N, OTHER=other, BLOCK=WIDTH)
    return out, (x * 2).view(N, WIDTH).roll(-other, 0).reshape(-1)


@triton.jit
def take_from_either(x, y, n: tl.constexpr, OTHER: tl.constexpr, BLOCK: tl.constexpr):
    row, lane = tl.program_id(0), tl.arange(0, BLOCK)
    taken = (row + OTHER) % n
    places = tl.where(lane % 2 == 0, x + taken * BLOCK + lane, y + lane)
    tl.store(x + row * BLOCK + lane, tl.load(places) + 1)


def from_two_tensors(other: int) -> Outcome:
    x, y = numbers(), numbers(WIDTH)
    rows = torch.where(torch.arange(WIDTH) % 2 == 0, x.view(N, WIDTH), y) + 1
    take_from_either[(N,)](x, y, n=N, OTHER=other, BLOCK=WIDTH)
    return x, rows.reshape(-1)


PAIRS: dict[str, tuple[Callable[[], Outcome], Callable[[], Outcome]]] = {
    "stores to one slot": (one_slot, a_slot_each),
    "blocks overlap by one": (lambda: stretched(1), lambda: stretched(0)),
    "two rows go to one": (
        lambda: scattered([0, 1, 2, 3, 4, 5, 6, 3]),
        lambda: scattered([7, 6, 5, 4, 3, 2, 1, 0]),
    ),
    "flags of other values": (lambda: flagged(True), lambda: flagged(False)),
    "a shift in place": (lambda: shifted(True), lambda: shifted(False)),
    "a transpose in place": (lambda: turned(True), lambda: turned(False)),
    "a stage reads its neighbour": (lambda: two_stages((0,)), lambda: two_stages((1, 2))),
    "a scan that does not wait": (lambda: summed_up((0,)), lambda: summed_up((1, 2))),
    "a sum by loads and stores": (lambda: added_up(None), lambda: added_up("gpu")),
    "a sum within a block": (lambda: added_up("cta"), lambda: added_up("sys")),
    "the first one clears": (lambda: cleared(True), lambda: cleared(False)),
    "a histogram by loads and stores": (lambda: counted(False), lambda: counted(True)),
    "the first ticket sums": (
        lambda: ticketed("the first ticket"),
        lambda: ticketed("the last ticket"),
    ),
    "tickets that order nothing": (
        lambda: ticketed("the last ticket", SEM="relaxed"),
        lambda: ticketed("the last ticket", SEM="acq_rel"),
    ),
    "tickets that only release": (
        lambda: ticketed("the last ticket", SEM="release"),
        lambda: ticketed("the last ticket", SCOPE="sys"),
    ),
    "tickets within a block": (
        lambda: ticketed("the last ticket", SCOPE="cta"),
        lambda: ticketed("the last ticket", SCOPE="gpu"),
    ),
    "a sum without its lock": (lambda: locked(False), lambda: locked(True)),
    "counters that nobody shares": (
        lambda: counters_of_their_own(1),
        lambda: counters_of_their_own(0),
    ),
    "loads from either of two": (lambda: from_two_tensors(1), lambda: from_two_tensors(0)),
}


def outcome(launch: Callable[[], Outcome]) -> str:
    try:
        got, right = launch()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "right" if torch.allclose(got, right.to(got.dtype), atol=1e-5) else "wrong"


if __name__ == "__main__":
    print(
        json.dumps({name: [outcome(racy), outcome(calm)] for name, (racy, calm) in PAIRS.items()})
    )
