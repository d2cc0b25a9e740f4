"""Timing: what one process measures, what the judge makes of it, and replays on the CPU."""

from __future__ import annotations

import random
import statistics
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from curate.problem.draw import Draw, Variation
from curate.verify.executor.commands import Storages
from curate.verify.executor.launch import CpuBackend
from curate.verify.executor.replay import Recording, Replay
from curate.verify.judge import timer as timing_judge
from curate.verify.judge.check import CandidateCheck, EarlyVerdict
from curate.verify.judge.device import Gate, Room, describe_device
from curate.verify.judge.oracle import NoOracle, TimedOracle
from curate.verify.judge.plan import examine
from curate.verify.judge.slot import TIMED, Slot
from curate.verify.judge.slots import make_slot
from curate.verify.judge.timer import (
    CANDIDATE,
    CallTimes,
    Timer,
    choose_size,
    measure,
    to_json,
)
from curate.verify.protocol.messages import ReadyBaselines
from curate.verify.protocol.places import TensorPlace
from curate.verify.reference.serve import Reference
from curate.verify.reference.timed import COMPILED, EAGER, Baselines
from curate.verify.timing import InputSets, TimedCall
from curate.verify.verdict import Candidate, Options

# --- one process ------------------------------------------------------------------------------


def sets() -> InputSets:
    targets = [torch.zeros(4), torch.zeros(3, dtype=torch.int64), torch.zeros(2)]
    masters = [
        [torch.tensor([0.5, -0.25, 0.0, 1.0]), torch.tensor([1, 2, 3]), torch.tensor([7.0, 8.0])],
        [torch.tensor([1.5, -1.25, 0.0, 2.0]), torch.tensor([4, 5, 6]), torch.tensor([7.0, 8.0])],
    ]
    return InputSets(targets, masters, [0.75, None], inputs=2)


def test_inputs_are_never_the_same_twice_and_keep_what_programs_rely_on() -> None:
    inputs, generator = sets(), random.Random(0)
    seen: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(60):
        inputs.fill_anew(generator)
        x, whole, state = inputs.targets
        first = int(whole[0]) == 1
        assert whole.tolist() == ([1, 2, 3] if first else [4, 5, 6])
        assert state.tolist() == [7.0, 8.0]  # no input: it stays
        assert x[2] == 0 and x.argmin() == 1
        seen[first].append(float(x[3]))
    scaled = [x * 0.75 for x in seen[True]]  # as if nothing had been multiplied before
    assert len(set(scaled)) == len(scaled) > 10
    assert min(scaled) >= 0.5 and max(scaled) < 1.0 and min(scaled) < 0.6 and max(scaled) > 0.9
    assert set(seen[False]) == {2.0}  # a set that may not be multiplied


def test_calls_are_timed_one_by_one_and_one_is_looked_at() -> None:
    inputs = sets()
    given: list[list[float]] = []

    def call() -> None:
        assert not torch.is_grad_enabled() and not torch.are_deterministic_algorithms_enabled()
        given.append(inputs.targets[0].tolist())

    timed = TimedCall(call, inputs, "cpu")
    looked: list[tuple[int, list[float]]] = []
    given.clear()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        times = timed.run(9, 1, check=(4, 1), look=lambda k: looked.append((k, given[-1])))
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)
    assert len(times) == 9 and min(times) > 0 and len(given) == 12
    assert looked == [(1, [1.5, -1.25, 0.0, 2.0])]
    assert len(timed.run(5, 1, body=False)) == 5 and len(given) == 12
    assert timed.graph is None


MATMUL = """
import torch
import torch.nn as nn

rows = 4


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x, factor):
        return self.layer(x) * factor


def get_inputs():
    return [torch.randn(rows, 16), 3]


def get_init_inputs():
    return []
"""


def test_baselines_in_the_process_of_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    reference = Reference()
    answer = reference.load(MATMUL, "cpu", "none")
    assert answer.own_size == 4
    baselines = Baselines(reference)
    sizes = {}
    for size in (None, 8):
        draw = Draw(3, size=size, changes=(Variation("scale", "inputs", 0.5),))
        us, sizes[size] = baselines.try_size(draw)
        assert us > 0
    assert sizes == {None: 2 * 4 * 16 * 4, 8: 2 * 8 * 16 * 4}

    def refuse(model: Any) -> Any:
        raise RuntimeError("no compiler here")

    monkeypatch.setattr(torch, "compile", refuse)
    prepared = baselines.prepare_timing([Draw(seed) for seed in (1, 2)])
    assert prepared == ReadyBaselines({EAGER: False}, "RuntimeError: no compiler here")
    times = baselines.time(EAGER, 6, 1)
    assert len(times) == 6 and all(us > 0 for us in times)


def test_a_draw_can_be_the_same_but_for_a_factor() -> None:
    reference = Reference()
    reference.load(MATMUL, "cpu", "none")
    x, factor = reference.inputs(Draw(5))
    half, same = reference.inputs(Draw(5, changes=(Variation("scale", "inputs", 0.5),)))
    assert factor == same == 3 and torch.equal(half, 0.5 * x)


# --- the judge's figures ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "us_per_row", "bytes_per_row", "chosen"),
    [
        (16, 10.0, 1e3, None),  # 160 us as it is
        (16, 1.0, 1e3, 128),
        (16, 1e-6, 2.5e7, 32),  # 64 would be 1.6 GB
        (None, 1e-3, 1e3, None),
        (16, 1e-3, 0.0, None),  # what is larger is not the inputs
    ],
)
def test_sizes_grow_until_eager_takes_long_enough(
    own: int | None,
    us_per_row: float,
    bytes_per_row: float,
    chosen: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[int | None] = []

    def try_size(size: int | None) -> tuple[float, int]:
        tried.append(size)
        rows = size or own or 16
        return us_per_row * rows, int(bytes_per_row * rows)

    monkeypatch.setattr(timing_judge, "LONG_US", 100.0)
    size, growth = choose_size(own, try_size)
    assert size == chosen and growth == (chosen / own if chosen and own else 1)
    assert tried[0] is None and len(tried) < 12


def test_a_size_that_the_reference_does_not_take_is_not_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timing_judge, "LONG_US", 100.0)

    def try_size(size: int | None) -> tuple[float, int]:
        if size and size > 40:
            raise NoOracle("unsupported", "reference_oom")
        return 1.0, size or 10

    assert choose_size(10, try_size) == (40, 4.0)


class Device:
    """Made-up times of programs, with noise."""

    def __init__(self, **us: float) -> None:
        self.us, self.noise, self.asked = us, random.Random(0), []

    def __call__(self, name: str, n: int) -> list[float]:
        self.asked.append((name, n))
        return [self.us[name] * self.noise.uniform(0.95, 1.05) for _ in range(n)]


def test_figures_are_medians_and_programs_take_turns() -> None:
    device = Device(candidate=50.0, eager=200.0, compile=100.0)
    names = [CANDIDATE, EAGER, COMPILED]
    times = measure(device, names, random.Random(0))
    for name in names:
        assert times[name].median == pytest.approx(device.us[name], rel=0.01)
        assert times[name].spread < 0.03
    turns = [name for name, n in device.asked[3:]]
    assert all(set(turns[i : i + 3]) == set(names) for i in range(0, 21, 3))
    assert len({tuple(turns[i : i + 3]) for i in range(0, 21, 3)}) > 2
    values = to_json(times, [1.0, 1.1, 0.9, 1.0], {"size": 64})
    assert values["speedup_eager"] == pytest.approx(4, rel=0.02)
    assert values["speedup_compile"] == pytest.approx(2, rel=0.02)
    assert (values["size"], values["problem"], values["overhead_us"]) == (64, None, 1.0)


def test_a_slow_program_is_called_less_often() -> None:
    times = measure(Device(candidate=50_000.0, eager=5.0), [CANDIDATE, EAGER], random.Random(0))
    assert (times[CANDIDATE].n, times[EAGER].n) == (timing_judge.FEWEST, timing_judge.MOST)


def test_a_time_that_noise_reaches_is_null() -> None:
    overhead = [2.0, 2.5, 3.0, 3.5]
    limit = statistics.median(overhead) + 3 * timing_judge.between_quartiles(overhead)
    near, far = CallTimes(limit - 0.1, 0.5, 100), CallTimes(limit + 1, 0.1, 100)
    values = to_json({CANDIDATE: near, EAGER: far}, overhead, {})
    assert values["candidate_us"] is values["spread"] is values["speedup_eager"] is None
    assert values["eager_us"] == round(limit + 1, 3)
    values = to_json({CANDIDATE: far, EAGER: near}, overhead, {})
    assert values["candidate_us"] is not None and values["speedup_eager"] is None
    assert values["compile_us"] is values["compile_problem"] is None


def test_what_could_not_be_timed_has_all_keys() -> None:
    whole = to_json(
        {CANDIDATE: CallTimes(9.0, 0.0, 5), EAGER: CallTimes(9.0, 0.0, 5)}, [1.0, 1.0], {}
    )
    assert to_json({}, [], {"problem": "why"}).keys() == whole.keys()
    assert {"candidate_us", "eager_us", "compile_us", "spread"} < whole.keys()


# --- recordings and replays, with the whole judge around them ---------------------------------

HEAD = """
import torch
import torch.nn as nn
import triton
import triton.language as tl
"""

REFERENCE = (
    HEAD
    + """
rows = 4


class Model(nn.Module):
    def forward(self, x):
        return {}


def get_inputs():
    return [torch.rand(rows, 32)]


def get_init_inputs():
    return []
"""
)

CURVE = REFERENCE.format("torch.sigmoid(x * x + 1)")

KERNELS = (
    HEAD
    + """
@triton.jit
def curve_of(x):
    return 1 / (1 + tl.exp(-x * x - 1))


@triton.jit
def curve_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, curve_of(tl.load(x_ptr + at, mask=at < n)), mask=at < n)


@triton.jit
def counted_kernel(x_ptr, y_ptr, count_ptr, n, LIMIT: tl.constexpr, BLOCK: tl.constexpr):
    calls = tl.load(count_ptr)
    at = tl.arange(0, BLOCK)
    if calls < LIMIT:
        tl.store(y_ptr + at, curve_of(tl.load(x_ptr + at, mask=at < n)), mask=at < n)
    tl.store(count_ptr, calls + 1)


tuned_kernel = triton.autotune(
    [triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 32})],
    key=["n"],
)(curve_kernel)


def curve(x):
    y = torch.empty_like(x)
    curve_kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
    return y


buffers = {}


def buffer(x):
    if x.shape not in buffers:
        buffers[x.shape] = torch.empty_like(x), torch.zeros(1, dtype=torch.int32, device="cuda")
    return buffers[x.shape]
"""
)


def program(forward: str, init: str = "pass") -> str:
    lines = "\n".join(f"        {line}" for line in forward.strip().splitlines())
    head = "\n\nclass ModelNew(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    return KERNELS + head + f"        {init}\n\n    def forward(self, x):\n{lines}\n"


class WithoutCompile(TimedOracle):
    """`torch.compile` takes a minute on the CPU."""

    def prepare(self, draws: list[Draw]) -> ReadyBaselines:
        self.draws = draws
        return ReadyBaselines({EAGER: False}, None)

    def time(self, name: str, n: int, seed: int) -> list[float]:
        return [100.0] * n


@pytest.fixture(scope="module")
def slot() -> Iterator[Slot]:
    made = make_slot(Options(backend="cpu", workers=1, timeout_s=120, trials=3, draw_seed=1))
    yield made
    made.close()


@pytest.fixture(autouse=True)
def own_sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing_judge, "LONG_US", 0.0)
    if "slot" in request.fixturenames:  # a busy CPU is noisier than any device
        monkeypatch.setattr(timing_judge, "RESOLVED", 0.0)


def timer_of(slot: Slot, reference: str, candidate: str) -> Timer:
    oracle = slot._oracle(reference)
    oracle.load()
    check = CandidateCheck(oracle, slot._session(False), "eval", slot.options, Room())
    examine(check, Candidate("one", reference, candidate))
    timed = WithoutCompile(slot.host("reference", TIMED), reference, "cpu", slot.options)
    timer = Timer(check, timed)
    timer.prepare()
    return timer


@pytest.mark.parametrize(
    "forward",
    [
        "return curve(x)",
        "return torch.cat(torch.split(curve(x.flip(1)), 2)).flip(1)",  # operators
        "y = torch.zeros_like(x)\ny.copy_(curve(x))\nreturn y.t().contiguous().t()",
        "return curve(x * torch.tensor([1.0] * 32, device=x.device))",  # an upload
        "y, _ = buffer(x)\ncurve_kernel[(x.numel(),)](x, y, x.numel(), BLOCK=1)\nreturn y.clone()",
        "return curve(x.clone().neg_())",
    ],
    ids=["kernel", "operators", "copies", "upload", "kept buffer", "in place"],
)
def test_replays_give_what_is_right_for_their_inputs(slot: Slot, forward: str) -> None:
    timer = timer_of(slot, CURVE, program(forward))
    assert timer.problem is None
    timing = timer.run()
    assert timing["candidate_us"] > 0 and timing["eager_us"] == 100.0
    assert timing["graph"] is False and timing["problem"] is None
    timer.session.close()


def test_state_is_written_before_each_replay(slot: Slot) -> None:
    reference = CURVE.replace(
        "    def forward(self, x):\n",
        "    def __init__(self):\n        super().__init__()\n"
        "        self.register_buffer('seen', torch.zeros(1))\n\n"
        "    def forward(self, x):\n        self.seen += x.sum()\n",
    )
    forward = "self.seen.add_(x.sum())\nreturn curve(x)"
    candidate = program(forward, "self.register_buffer('seen', torch.zeros(1))")
    timer = timer_of(slot, reference, candidate)
    assert timer.problem is None
    assert timer.run()["candidate_us"] > 0
    timer.session.close()


@pytest.mark.parametrize(
    ("forward", "problem"),
    [
        ("return curve(x) if x.sum().item() < 1e9 else curve(x) + 0", "reads values"),
        (
            "calls = self.calls = getattr(self, 'calls', 0) + 1\n"
            "y = torch.empty_like(x)\n"
            "curve_kernel[(x.numel() + calls,)](x, y, x.numel(), BLOCK=1)\nreturn y",
            "other work",
        ),
    ],
    ids=["reads", "differs"],
)
def test_what_cannot_be_replayed_has_no_time(slot: Slot, forward: str, problem: str) -> None:
    timer = timer_of(slot, CURVE, program(forward))
    timing = timer.run()
    assert timing["candidate_us"] is None and problem in timing["problem"]
    timer.session.close()


def test_autotuners_are_timed_with_their_fastest_configuration(slot: Slot) -> None:
    forward = """
y = torch.empty_like(x)
tuned_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
return y
"""
    timer = timer_of(slot, CURVE, program(forward))
    assert timer.problem is None and timer.session.turn in (0, 1, 2)
    assert timer.run()["candidate_us"] > 0
    timer.session.close()


def test_work_that_ends_after_many_calls_is_wrong_when_timed(
    slot: Slot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing_judge, "SPAN_US", 1e9)  # a hundred calls for each run
    forward = """
y, count = buffer(x)
counted_kernel[(1,)](x, y, count, x.numel(), LIMIT=340, BLOCK=triton.next_power_of_2(x.numel()))
return y.clone()
"""
    timer = timer_of(slot, CURVE, program(forward))
    assert timer.problem is None
    with pytest.raises(EarlyVerdict) as found:
        timer.run()
    assert (found.value.status, found.value.reason) == ("cheat", "wrong_when_timed")
    timer.session.close()


def test_programs_are_timed_at_a_larger_size_if_they_take_it(
    slot: Slot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing_judge, "LONG_US", 1e9)
    monkeypatch.setattr(timing_judge, "MOST_BYTES", 2 * 32 * 4 * 32)
    timer = timer_of(slot, CURVE, program("return curve(x)"))
    assert timer.run()["size"] == 32
    assert timer.expected[0].drawn.inputs[0].shape == (32, 32)
    timer.session.close()
    only = "assert x.shape[0] == 4, 'only four'\nreturn curve(x)"
    timer = timer_of(slot, CURVE, program(only))
    assert "own_sizes_only" in timer.check.outcome.caveats
    timing = timer.run()
    assert timing["size"] is None and timing["problem"] is None and timing["candidate_us"] > 0
    timer.session.close()


def test_slots_that_share_a_device_time_and_check_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two with room for one, neither waits for what the other holds."""
    monkeypatch.setattr("curate.verify.judge.slot.TimedOracle", WithoutCompile)
    options = Options(backend="cpu", workers=2, timeout_s=120, trials=2, draw_seed=1)
    object.__setattr__(options, "timing", True)  # which users need a device for
    slots = [Slot(options, describe_device("cpu"), Gate(tmp_path, 2**20)) for _ in range(2)]
    verdicts = []

    def judge(slot: Slot, name: str) -> None:
        for number in range(3):
            candidate = Candidate(f"{name} {number}", CURVE, program("return curve(x)"))
            verdicts.append(slot.judge(candidate))

    threads = [
        threading.Thread(target=judge, args=(slot, name), daemon=True)
        for slot, name in zip(slots, "ab", strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    try:
        assert [v.status for v in verdicts] == ["correct"] * 6
        for timing in (v.timing for v in verdicts):
            assert timing and timing["problem"] is None and timing["candidate_us"] > 0
        assert any(v.seconds["turn"] > 0 for v in verdicts)
        assert any(v.seconds["room"] > 0 for v in verdicts)
    finally:
        for slot in slots:
            slot.close()


def test_results_of_operators_take_the_place_of_their_storages() -> None:
    device = CpuBackend()
    device.name = "cpu:0"  # on the CPU itself they are copied: launches know addresses only
    storages = Storages(device, 2**20)
    sizes = {0: 64, 1: 64, 2: 64, 3: 64, 4: 128}
    for number, size in sizes.items():
        storages.new(number, size)
    recording = Recording([place(0)])
    for number in (1, 2, 3, 4):
        recording.add("new", {"storage": number}, [])
    transposed, given = place(1, (1, 4)), {"t": place(0).to_json()}
    for name, args, out in (
        ("aten::add.Tensor", [given, 1], place(1)),
        ("aten::add_.Tensor", [{"t": place(1).to_json()}, 1], None),
        ("aten::mul.Tensor", [{"t": transposed.to_json()}, 2], place(2, (1, 4))),
        ("aten::mul.Tensor", [{"t": transposed.to_json()}, 2], place(3)),  # lies otherwise
        ("aten::add.Tensor", [given, 3], place(4)),  # only a part of its storage
    ):
        outs = [out and out.to_json()]
        recording.add("op", {"name": name, "args": args, "kwargs": {}, "outs": outs}, [])
    replay = Replay(recording, storages, device, {})
    for _ in range(3):
        x = torch.rand(4, 4)
        storages.tensor(place(0)).copy_(x)
        replay()
        assert torch.equal(replay.tensor(place(1)), x + 1 + 1)
        for number, stride in ((2, (1, 4)), (3, (4, 1))):
            assert torch.equal(replay.tensor(place(number, stride)), (x + 1 + 1).t() * 2)
        assert torch.equal(replay.tensor(place(4)), x + 3)
    assert set(replay.moved) == {1, 2}


def place(number: int, stride: tuple[int, ...] = (4, 1)) -> TensorPlace:
    return TensorPlace(number, torch.float32, (4, 4), stride, 0)


# --- on a device ------------------------------------------------------------------------------


@pytest.mark.gpu
def test_times_on_a_device_are_those_of_do_bench() -> None:
    import triton

    x = torch.rand(64, 1 << 20, device="cuda")

    def call() -> None:
        torch.softmax(x, 1)

    timed = TimedCall(call, InputSets([x], [[x.clone()]], [1.0]), "cuda")
    assert timed.graph is not None, timed.problem
    ours = statistics.median(timed.run(50, 0))
    theirs = 1e3 * triton.testing.do_bench(call, return_mode="median")
    assert ours == pytest.approx(theirs, rel=0.03)
    assert statistics.median(timed.run(50, 0, body=False)) < 10


@pytest.mark.gpu
def test_what_cannot_be_captured_is_called_as_it_is() -> None:
    x = torch.rand(1 << 20, device="cuda")

    def call() -> None:
        x[x > 0.5].sum()

    timed = TimedCall(call, InputSets([x], [[x.clone()]], [1.0]), "cuda")
    assert timed.graph is None and timed.problem
    assert statistics.median(timed.run(10, 0)) > 0
