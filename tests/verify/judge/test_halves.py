"""Judging without a GPU: the program's Python in one process, its numbers in another."""

from __future__ import annotations

import dataclasses
import os
import signal
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from curate.verify.host_half.serve import HostHalf
from curate.verify.judge.slot import Slot
from curate.verify.judge.slots import make_slot
from curate.verify.verdict import Candidate, Options, Verdict

HEAD = """
import torch
import torch.nn as nn
import triton
import triton.language as tl
"""

ROWS = """
@triton.jit
def normalize_rows(source, target, width, BLOCK: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    inside = column < width
    values = tl.load(source + row * width + column, mask=inside, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(target + row * width + column, powers / tl.sum(powers, 0), mask=inside)


@triton.jit
def carry(source, target, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + at, tl.load(source + at, mask=at < count), mask=at < count)


def by_kernel(x):
    out = torch.empty_like(x)
    normalize_rows[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return out


def carried(result):
    out = torch.empty_like(result)
    carry[(triton.cdiv(out.numel(), 256),)](result, out, out.numel(), BLOCK=256)
    return out
"""


def problem(forward: str, inputs: str, init: str = "pass") -> str:
    return HEAD + textwrap.dedent(
        f"""
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                {init}

            def forward(self, {forward.partition("|")[0]}):
                {forward.partition("|")[2]}


        def get_inputs():
            return [{inputs}]


        def get_init_inputs():
            return []
        """
    )


def program(forward: str, before: str = ROWS, init: str = "pass") -> str:
    names, _, body = forward.partition("|")
    lines = textwrap.indent(textwrap.dedent(body).strip(), " " * 8)
    head = "\n\nclass ModelNew(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    return HEAD + before + f"{head}        {init}\n\n    def forward(self, {names}):\n{lines}\n"


SOFTMAX = problem("x|return torch.softmax(x, dim=1)", "torch.randn(16, 48)")


@pytest.fixture(scope="module")
def slot() -> Iterator[Slot]:
    made = make_slot(Options(backend="cpu", workers=1, timeout_s=120))
    yield made
    made.close()


def judged(slot: Slot, reference: str, candidate: str) -> Verdict:
    return slot.judge(Candidate("one", reference, candidate))


@pytest.mark.parametrize(
    "forward",
    [
        "x|return by_kernel(x.contiguous())",
        "x|\nassert x.is_cuda and x.device.type == 'cuda'\nreturn by_kernel(x.contiguous())",
        """x|
x = x.contiguous()
out = torch.empty(x.shape, device="cuda", dtype=x.dtype)
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.device(x.device), torch.cuda.stream(side):
    count = torch.cuda.get_device_properties(0).multi_processor_count
    assert count > 1
    normalize_rows[(x.shape[0],)](x, out, x.shape[1], BLOCK=64, num_warps=2)
torch.cuda.synchronize()
return out""",
        """x|
x = x.contiguous()
out = torch.empty_like(x)
ready = normalize_rows.warmup(x, out, x.shape[1], BLOCK=64, grid=(1,))
ready[(x.shape[0],)](x, out, x.shape[1])
return out""",
    ],
    ids=["plain", "is_cuda", "streams", "warmup"],
)
def test_honest_programs_in_everyday_idioms_are_correct(slot: Slot, forward: str) -> None:
    verdict = judged(slot, SOFTMAX, program(forward))
    assert verdict.status == "correct", verdict
    assert verdict.trials == 8
    assert verdict.evidence["kind"] == "pure_triton"


@pytest.mark.parametrize(
    ("by", "forward"),
    [
        ("torch", "x|return carried(torch.softmax(x, 1))"),
        (
            "torch",
            "x|\nlast = by_kernel(x[-1:].contiguous())\n"
            "return carried(torch.cat([torch.softmax(x[:-1], 1), last]))",
        ),
        (
            "host",
            """x|
rows = [[v - max(row) for v in row] for row in x.tolist()]
import math
powers = [[math.exp(v) for v in row] for row in rows]
done = [[v / sum(row) for v in row] for row in powers]
return carried(torch.tensor(done, device="cuda"))""",
        ),
        (
            "torch",
            """x|
if bool((x.abs() < 4).all()):
    return carried(torch.softmax(x, 1))
return by_kernel(x.contiguous())""",
        ),
    ],
    ids=["copying kernel", "all rows but one", "Python", "on usual inputs"],
)
def test_who_lets_others_work_is_a_cheat(slot: Slot, by: str, forward: str) -> None:
    verdict = judged(slot, SOFTMAX, program(forward))
    assert (verdict.status, verdict.reason) == ("cheat", f"{by}_does_the_work"), verdict


def test_the_name_of_its_module_tells_a_program_nothing(slot: Slot) -> None:
    forward = "x|return by_kernel(x.contiguous()) if __name__ == 'candidate' else x + 0"
    assert judged(slot, SOFTMAX, program(forward)).status != "correct"


RACES = """
@triton.jit
def count_in_one(source, target, count, ATOMIC: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.sum(tl.load(source + at, mask=at < count, other=0.0), 0)
    if ATOMIC:
        tl.atomic_add(target, part)
    else:
        tl.store(target, tl.load(target) + part)


@triton.jit
def shift(target, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + at, tl.load(target + at + 1, mask=at + 1 < count), mask=at + 1 < count)
"""
TOTAL = problem("x|return x.sum()", "torch.randn(1000)")


@pytest.mark.parametrize(("atomic", "status"), [("True", "correct"), ("False", "incorrect")])
def test_programs_that_add_to_one_place_need_atomics(slot: Slot, atomic: str, status: str) -> None:
    forward = f"""x|
x = x.contiguous()
out = torch.zeros((), device=x.device)
count_in_one[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), ATOMIC={atomic}, BLOCK=64)
return out"""
    verdict = judged(slot, TOTAL, program(forward, RACES))
    assert verdict.status == status, verdict
    assert verdict.reason == (None if status == "correct" else "race")


def test_loading_what_another_program_stores_is_a_race(slot: Slot) -> None:
    reference = problem("x|y = x.clone(); y[:-1] = x[1:]; return y", "torch.randn(1000)")
    forward = """x|
out = x.clone()
shift[(triton.cdiv(x.numel(), 64),)](out, x.numel(), BLOCK=64)
return out"""
    verdict = judged(slot, reference, program(forward, RACES))
    assert (verdict.status, verdict.reason) == ("incorrect", "race"), verdict


def test_every_address_is_checked(slot: Slot) -> None:
    forward = """x|
out = torch.empty_like(x)
carry[(triton.cdiv(out.numel(), 256) + 1,)](x.contiguous(), out, out.numel() + 1, BLOCK=256)
return out"""
    verdict = judged(slot, problem("x|return x * 1.0", "torch.randn(30, 5)"), program(forward))
    assert (verdict.status, verdict.reason) == ("incorrect", "out_of_bounds"), verdict


PRODUCT = """
@triton.jit
def multiply(a, b, c, K, N: tl.constexpr, HOW: tl.constexpr):
    rows, columns = tl.arange(0, 16), tl.program_id(0) * 16 + tl.arange(0, 16)
    total = tl.zeros((16, 16), tl.float32)
    for start in range(0, K, 32):
        k = start + tl.arange(0, 32)
        left = tl.load(a + rows[:, None] * K + k[None, :])
        right = tl.load(b + k[:, None] * N + columns[None, :])
        total = tl.dot(left, right, total, input_precision=HOW)
    tl.store(c + rows[:, None] * N + columns[None, :], total)
"""


@pytest.mark.parametrize(
    ("how", "precision", "verdict"),
    [
        ("ieee", "own", ("correct", None)),
        ("tf32", "own", ("incorrect", "precision")),
        ("tf32", "tf32", ("correct", None)),
    ],
)
def test_long_products_may_round_in_any_order_and_to_tf32_where_asked(
    slot: Slot,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    precision: str,
    verdict: tuple[str, str | None],
) -> None:
    slot.forget()
    monkeypatch.setattr(slot, "options", dataclasses.replace(slot.options, precision=precision))
    reference = problem("a, b|return a @ b", "torch.randn(16, 4096), torch.randn(4096, 32)")
    forward = f"""a, b|
c = torch.empty(16, 32, device=a.device)
multiply[(2,)](a.contiguous(), b.contiguous(), c, a.shape[1], N=32, HOW="{how}")
return c"""
    found = judged(slot, reference, program(forward, PRODUCT))
    assert (found.status, found.reason) == verdict, found
    assert found.caveats.count("low_precision") == (precision == "tf32")


def last_descendant(pid: int) -> int:
    """Return the process that a host has forked, below those of its sandbox."""
    while children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        pid = int(children[-1])
    return pid


def test_an_executor_serves_many_and_its_death_costs_the_next_nothing(slot: Slot) -> None:
    honest = program("x|return by_kernel(x.contiguous())")
    pids = []
    for number in range(3):
        assert judged(slot, SOFTMAX, honest).status == "correct"
        pids.append(last_descendant(slot.hosts["executor 0"].pid or 0))
        if number == 1:
            os.kill(pids[-1], signal.SIGKILL)
            time.sleep(0.5)
    assert pids[0] == pids[1] != pids[2]


def test_a_state_that_forward_must_update_is_compared(slot: Slot) -> None:
    reference = problem(
        "x|self.last.copy_(x); return torch.softmax(x, 1)",
        "torch.randn(8, 16)",
        'self.register_buffer("last", torch.zeros(8, 16))',
    )
    init = 'self.register_buffer("last", torch.zeros(8, 16))'
    good = "x|\nself.last.copy_(x)\nreturn by_kernel(x.contiguous())"
    assert judged(slot, reference, program(good, init=init)).status == "correct"
    bad = judged(slot, reference, program("x|return by_kernel(x.contiguous())", init=init))
    assert bad.status == "incorrect", bad


def test_a_large_state_that_the_judge_writes_does_not_come_from_the_program(slot: Slot) -> None:
    """Gigabytes took a minute to send, and twice their memory."""
    session = slot._session(False)
    session.load(
        program("x|return self.linear(x)", init="self.linear = nn.Linear(4096, 4100)"), None, {}
    )
    names = [("linear.weight", [4100, 4096]), ("linear.bias", [4100])]
    session._begin([], [], seed=5)
    state, _ = session._call(lambda: session.host.ask(HostHalf.build, [], 5, "eval", names))
    weight, bias = session._finish(None, [place for _, place in state]).found
    assert 0 < bias.abs().max() <= 4096**-0.5
    assert not (weight.abs() <= 4096**-0.5).all() or not weight.any()
    session.close()


def test_what_the_compiler_refuses_is_an_error_without_a_gpu(slot: Slot) -> None:
    forward = """x|
out = torch.empty_like(x)
normalize_rows[(x.shape[0],)](x, out, x.shape[1], BLOCK=48)
return out"""
    verdict = judged(slot, SOFTMAX, program(forward))
    assert verdict.status == "compile_error", verdict


def test_a_program_cannot_claim_that_it_cannot_be_judged(slot: Slot) -> None:
    forward = """x|
class Unsupported(Exception):
    reason = "too_much_work"
raise Unsupported("too much work")"""
    verdict = judged(slot, SOFTMAX, program(forward))
    assert verdict.status == "runtime_error", verdict


# --- calls in a row, graphs, and what a program says of itself ---------------------------------


def test_a_graph_does_its_work_when_it_is_replayed(slot: Slot) -> None:
    captured = """x|
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    out = by_kernel(x.contiguous())
"""
    replayed = judged(slot, SOFTMAX, program(captured + "graph.replay()\nreturn out"))
    assert replayed.status == "correct", replayed
    assert judged(slot, SOFTMAX, program(captured + "return out")).status == "incorrect"
    asks = captured + "    out.sum().item()\ngraph.replay()\nreturn out"
    assert judged(slot, SOFTMAX, program(asks)).status == "runtime_error"


def test_a_program_whose_calls_differ_has_a_caveat(slot: Slot) -> None:
    forward = """x|
self.calls += 1
return by_kernel(x.contiguous()) if self.calls % 7 else by_kernel(x.clone())"""
    verdict = judged(slot, SOFTMAX, program(forward, init="self.calls = 0"))
    caveats = "keeps_state", "calls_differ", "own_ranks_only"
    assert (verdict.status, verdict.caveats) == ("correct", caveats), verdict


@pytest.mark.parametrize(
    ("result", "status"),
    [("object()", "incorrect"), ("(_ for _ in ()).throw(Unsupported('no'))", "runtime_error")],
)
def test_no_program_says_that_it_is_not_to_be_judged(slot: Slot, result: str, status: str) -> None:
    named = "\nclass Unsupported(Exception):\n    reason = 'interpreter_budget'\n"
    verdict = judged(slot, SOFTMAX, program(f"x|return {result}", before=ROWS + named))
    assert verdict.status == status, verdict


def test_a_program_may_use_frames_threads_and_numpy(slot: Slot) -> None:
    forward = """x|
import inspect, threading
import numpy as np
threads = [threading.Thread(target=len, args=('',))]
threads[0].start()
threads[0].join()
assert inspect.currentframe() is not None and np.prod(x.shape) == x.numel()
assert torch.arange(3).numpy().sum() == 3
return by_kernel(x.contiguous())"""
    verdict = judged(slot, SOFTMAX, program(forward))
    assert verdict.status == "correct", verdict


@pytest.mark.parametrize("line", ["os.kill(os.getpid(), 0)", "import ctypes\nctypes.CDLL(None)"])
def test_what_attacks_the_sandbox_is_a_cheat(slot: Slot, line: str) -> None:
    forward = f"x|\nimport os\n{line}\nreturn by_kernel(x.contiguous())"
    assert judged(slot, SOFTMAX, program(forward)).status == "cheat"


def test_small_results_may_be_as_exact_as_usual_ones(slot: Slot) -> None:
    kernel = """
@triton.jit
def tanh_kernel(source, target, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(source + at, mask=at < count)
    e = tl.exp(-2.0 * tl.abs(x))
    tl.store(target + at, tl.where(x < 0, -1.0, 1.0) * (1.0 - e) / (1.0 + e), mask=at < count)
"""
    forward = """x|
out = torch.empty_like(x)
tanh_kernel[(triton.cdiv(x.numel(), 256),)](x.contiguous(), out, x.numel(), BLOCK=256)
return out"""
    reference = problem("x|return torch.tanh(x)", "torch.randn(32, 32)")
    verdict = judged(slot, reference, program(forward, before=kernel))
    assert verdict.status == "correct" and "absolute_accuracy" in verdict.caveats, verdict
    rounded = kernel.replace("(1.0 - e)", "(1.0 - e.to(tl.bfloat16).to(tl.float32))")
    assert judged(slot, reference, program(forward, before=rounded)).status == "incorrect"
