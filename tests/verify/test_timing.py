"""The logic of timing, with a model on the CPU and a judge's clock that is made up."""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from torch import nn
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from curate.verify import timing
from curate.verify.timing import (
    CANDIDATE,
    COMPILED,
    EAGER,
    OVERHEAD,
    Checksums,
    Measured,
    Stats,
    TimedModel,
    find_fault,
    floor_us,
    measure,
    project,
    to_json,
    tolerance,
    turns,
)

torch.set_num_threads(1)

ROOT = Path(__file__).parents[2]


class Scores(nn.Module):
    """Two outputs, of which one is an index, and a table that integers point into."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(40, 64)

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        scores = x @ self.table(ids).T
        return {"scores": scores.softmax(-1), "best": scores.argmax(-1)}


def draw(seed: int) -> list[Any]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(32, 64, generator=generator)
    return [x, torch.randperm(40, generator=generator)[:20]]  # equal scores would tie


SETS = [draw(seed) for seed in range(3)]


def timed(model: Any, sets: list[list[Any]] = SETS) -> TimedModel:
    return TimedModel(model, sets, "cpu")


def wrong(model: Any, n: int = 60) -> int:
    """Return how many of n checksums are not those of `Scores`."""
    reference = timed(Scores())
    allowed = reference.tolerances(Scores().double())
    pairs = zip(timed(model).run(n, 5), reference.run(n, 5), turns(5, n, 3), strict=True)
    return sum(not timing._is_right(got, want, allowed[turn.set]) for got, want, turn in pairs)


# --- checksums ------------------------------------------------------------------------------


def test_checksums_are_those_of_the_nonce_and_a_shorter_run_is_the_beginning() -> None:
    model = timed(Scores())
    long = model.run(20, 7)
    assert model.run(20, 7) == long
    assert model.run(5, 7) == long[:5]
    assert len({scores for scores, _ in [*long, *model.run(20, 8)]}) == 40


def test_another_order_of_summing_passes() -> None:
    class Reordered(Scores):
        def forward(self, x: torch.Tensor, ids: torch.Tensor) -> dict[str, torch.Tensor]:
            rows = self.table(ids).T
            scores = sum(x[:, i : i + 8] @ rows[i : i + 8] for i in range(0, 64, 8))
            return {"scores": scores.exp() / scores.exp().sum(-1, True), "best": scores.argmax(-1)}

    assert wrong(Reordered()) == 0


class Kept(Scores):
    """Computes the first answers, and gives them again as its rule says."""

    def __init__(self, rule: Callable[[int, Any], Any], first: int) -> None:
        super().__init__()
        self.rule, self.first, self.calls, self.answers = rule, first, 0, {}

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> Any:
        self.calls += 1
        key = self.rule(self.calls, x)
        if self.calls <= self.first or key not in self.answers:
            self.answers[key] = super().forward(x, ids)
        return self.answers[key]


@pytest.mark.parametrize(
    "rule",
    [
        lambda calls, x: 0,
        lambda calls, x: calls % 3,
        lambda calls, x: x.data_ptr(),
        lambda calls, x: x._version,
        lambda calls, x: id(x),
    ],
)
def test_old_answers_are_wrong(rule: Callable[[int, Any], Any]) -> None:
    assert wrong(Kept(rule, first=3)) > 50


def test_less_precision_than_checked_is_wrong() -> None:
    class Rough(Scores):
        def forward(self, x: torch.Tensor, ids: torch.Tensor) -> dict[str, torch.Tensor]:
            return super().forward(x.half().float(), ids)

    assert wrong(Rough()) > 40


def test_inputs_that_a_model_changes_are_filled_anew() -> None:
    def change(x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        return x.mul_(3).sum(1)

    assert timed(change).run(10, 1) == timed(lambda x, ids: (3 * x).sum(1)).run(10, 1)


def test_nested_inputs_and_masters_of_other_kinds() -> None:
    def select(pair: tuple[torch.Tensor, torch.Tensor], mask: Any, axis: int) -> torch.Tensor:
        return (pair[0] * pair[1].real).where(mask, 0).sum(axis)

    torch.manual_seed(0)
    one = [(torch.rand(6, 4), torch.rand(6, 4, dtype=torch.cfloat)), torch.rand(6, 4) > 0.5, 1]
    model = TimedModel(select, [one, one], "cpu")
    assert all(value != 0 for (value,) in model.run(4, 3))
    assert model.bytes_moved() == 24 * (4 + 8 + 1) + 6 * 4
    assert len(model.run(4, 3, call_model=False)) == 4


def test_refusals() -> None:
    class Lazy(torch.Tensor):
        pass

    with pytest.raises(TypeError, match="Lazy"):
        timed(lambda x, ids: x.as_subclass(Lazy)).run(1, 0)
    with pytest.raises(ValueError, match="no tensor"):
        timed(lambda x, ids: 3).run(1, 0)
    many = iter([1, 2])
    with pytest.raises(ValueError, match="as many"):
        timed(lambda x, ids: [x] * next(many)).run(2, 0)
    with pytest.raises(ValueError, match="differ in shapes"):
        timed(Scores(), [SETS[0], [torch.rand(2, 64), SETS[0][1]]])


def test_flags_of_the_judge_are_off_while_timed_and_back_afterwards() -> None:
    seen = []

    def look(x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        seen.append((torch.are_deterministic_algorithms_enabled(), torch.is_grad_enabled()))
        return x

    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        timed(look).run(1, 0)
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)
    assert seen == [(False, False)]


# --- projections and their tolerance --------------------------------------------------------


def projected(y: torch.Tensor, seed: int = 1) -> float:
    sums = torch.zeros(2, dtype=torch.float64)
    project(y, sums, 1, seed)
    assert sums[0] == 0
    return float(sums[1])


def test_signs_are_balanced_and_differ_by_seed() -> None:
    ones = torch.ones(100_000)
    sums = [projected(ones, seed) for seed in range(40)]
    assert len(set(sums)) > 30
    assert max(map(abs, sums)) < 5 * 100_000**0.5


def test_nonfinite_values_have_their_places() -> None:
    y = torch.rand(50)
    for bad in (float("nan"), float("inf"), float("-inf")):
        changed = y.clone()
        changed[7] = bad
        assert abs(projected(changed) - projected(y)) > 1000
        assert projected(changed) == projected(changed.clone())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_errors_that_are_allowed_stay_within_the_tolerance(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    exact = torch.randn(5000, generator=generator, dtype=torch.float64)
    own = exact.to(dtype)
    allowed = tolerance(own, exact)
    limit = timing.allowed_error(own, exact)
    for seed in range(20):
        # As wrong as `compare` allows, with signs that know nothing of the projection's.
        error = torch.randint(0, 2, exact.shape, generator=generator) * 2 - 1
        assert abs(projected(exact + error * limit, seed) - projected(own, seed)) < allowed
    assert allowed < float(exact.norm())


def test_of_integers_a_few_may_differ_but_not_all() -> None:
    generator = torch.Generator().manual_seed(0)
    own, stale = (torch.randint(0, 1000, (5000,), generator=generator) for _ in range(2))
    got, allowed = own.clone(), tolerance(own, own)
    got[[7, 77, 777]] = 999 - got[[7, 77, 777]]
    apart = [abs(projected(got, seed) - projected(own, seed)) for seed in range(50)]
    assert max(apart) < allowed
    apart = [abs(projected(stale, seed) - projected(own, seed)) for seed in range(50)]
    assert statistics.median(apart) > allowed
    assert tolerance(torch.tensor([3]), torch.tensor([3])) < 1e-9
    assert tolerance(torch.tensor([3]), torch.tensor([5])) == pytest.approx(timing.DEVIATIONS * 2)


def test_a_large_output_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = torch.randn(100_000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    whole = tolerance(exact.float(), exact)
    monkeypatch.setattr(timing, "SAMPLE", 5000)
    assert tolerance(exact.float(), exact) == pytest.approx(whole, rel=0.1)


KERNEL = """
import torch
from curate.verify.timing import _project_kernel, _seed_of, project
for dtype in (torch.float32, torch.float16, torch.int64):
    for seed in (1, _seed_of(2**31 - 1, 1)):
        y = (100 * torch.rand(2500)).to(dtype)
        if dtype == torch.float32:
            y[:3] = torch.tensor([float("nan"), float("inf"), -float("inf")])
        sums = torch.zeros(2, 3, dtype=torch.float64)
        project(y, sums[0], 1, seed)
        _project_kernel[(3,)](y, sums[1], 1, y.numel(), seed, BLOCK=1024)
        torch.testing.assert_close(sums[0], sums[1], rtol=1e-12, atol=1e-9)
        assert sums[0, 1] != 0
"""


def test_the_kernel_projects_as_the_cpu_does() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", KERNEL],
        capture_output=True,
        text=True,
        env=os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)},
    )
    assert ran.returncode == 0, ran.stderr[-2000:]


@pytest.mark.parametrize("pointer", ["*bf16", "*fp64", "*u8"])
@pytest.mark.parametrize("target", [("cuda", 75, 32), ("hip", "gfx942", 64)])
def test_the_kernel_compiles(pointer: str, target: tuple[Any, ...]) -> None:
    signature = {"y_ptr": pointer, "sums_ptr": "*fp64", "slot": "i32", "numel": "i32"}
    source = ASTSource(
        timing._project_kernel,
        signature | {"seed": "i32", "BLOCK": "constexpr"},
        constexprs={"BLOCK": 4096},
    )
    assert triton.compile(source, target=GPUTarget(*target), options={"num_warps": 8}).asm


# --- the judge's side -----------------------------------------------------------------------


class Programs:
    """Real checksums of CPU models on a clock that is made up, in seconds.

    Attributes:
        costs: seconds of an iteration, besides the overhead.
        tricks: what a program adds to a run's time, given n.
    """

    OVERHEAD_S = 80e-6
    REQUEST_S = 1e-3

    def __init__(self, program: Any, /, **costs: float) -> None:
        self.models = {name: timed(Scores()) for name in (OVERHEAD, EAGER, COMPILED)}
        self.models[CANDIDATE] = timed(program)
        self.costs = {OVERHEAD: 0.0} | costs
        self.tricks: dict[str, Callable[[int], float]] = {}
        self.asked: list[tuple[str, int, int]] = []
        self.noise = random.Random(1)

    def __call__(self, name: str, n: int, nonce: int) -> tuple[float, Checksums]:
        self.asked.append((name, n, nonce))
        jitter = self.noise.uniform(0, 50e-6)
        seconds = self.REQUEST_S + jitter + n * (self.OVERHEAD_S + self.costs[name])
        seconds += self.tricks.get(name, lambda n: 0.0)(n)
        return seconds, self.models[name].run(n, nonce, call_model=name != OVERHEAD)

    def measure(self) -> Measured:
        allowed = self.models[EAGER].tolerances(Scores().double())
        return measure(self, allowed, random.Random(0), rounds=5)


@pytest.fixture(autouse=True)
def short_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "MOST", 60)
    monkeypatch.setattr(timing, "WARM_S", 0.004)


def test_times_are_those_of_the_clock() -> None:
    programs = Programs(Scores(), eager=100e-6, compile=50e-6, candidate=25e-6)
    measured = programs.measure()
    for name, seconds in programs.costs.items():
        if name != OVERHEAD:
            assert measured.stats[name].median_us == pytest.approx(1e6 * seconds, abs=2)
            assert measured.stats[name].wrong == 0
    assert measured.overhead_us == pytest.approx(80, abs=2)
    assert measured.alone_us == pytest.approx(100, abs=2)
    assert find_fault(measured, floor=10.0) is None
    values = to_json(measured, 10.0)
    assert values["speedup_eager"] == pytest.approx(4, rel=0.1)
    assert values["speedup_compile"] == pytest.approx(2, rel=0.1)


def test_baselines_run_before_the_candidate_and_nonces_are_used_once() -> None:
    programs = Programs(Scores(), eager=1e-4, compile=1e-4, candidate=1e-4)
    programs.measure()
    first = next(i for i, asked in enumerate(programs.asked) if asked[0] == CANDIDATE)
    assert {EAGER, COMPILED, OVERHEAD} <= {name for name, n, _ in programs.asked[:first] if n == 15}
    nonces = [nonce for name, _, nonce in programs.asked if name == CANDIDATE]
    assert len(nonces) == len(set(nonces))
    lengths = [n for name, n, _ in programs.asked if name == CANDIDATE][-12:]
    assert lengths != [15, 60] * 6 != [60, 15] * 6


def test_a_slow_candidate_runs_less_often() -> None:
    measured = Programs(Scores(), eager=1e-4, compile=1e-4, candidate=0.02).measure()
    assert measured.stats[CANDIDATE].n == 10
    assert measured.stats[EAGER].n == 60
    assert measured.stats[CANDIDATE].median_us == pytest.approx(20_000, rel=0.01)
    assert measured.stats[CANDIDATE].wrong == 0


def test_waiting_in_short_runs_gains_nothing_that_a_program_can_plan() -> None:
    programs = Programs(Scores(), eager=1e-4, compile=1e-4, candidate=1e-4)
    runs = iter(range(10**6))
    programs.tricks[CANDIDATE] = lambda n: 2e-3 * (next(runs) % 2)  # every second run
    measured = programs.measure()
    assert measured.stats[CANDIDATE].spread > 0.1 or measured.stats[CANDIDATE].median_us > 90


def test_a_program_that_stops_working_is_found() -> None:
    programs = Programs(
        Kept(lambda calls, x: 0, first=700), eager=1e-4, compile=1e-4, candidate=1e-6
    )
    measured = programs.measure()
    assert 0.1 < measured.stats[CANDIDATE].wrong < 1
    assert find_fault(measured, floor=0.0) == "wrong_when_timed"


def test_too_few_checksums_and_nan_are_wrong() -> None:
    class Forger(Programs):
        def __call__(self, name: str, n: int, nonce: int) -> tuple[float, Checksums]:
            seconds, sums = super().__call__(name, n, nonce)
            if name == COMPILED:
                return seconds, sums[: n // 2]
            return seconds, [[float("nan")] * 2] * n if name == CANDIDATE else sums

    measured = Forger(Scores(), eager=1e-4, compile=1e-4, candidate=1e-4).measure()
    assert measured.stats[COMPILED].wrong == pytest.approx(0.5, abs=0.05)
    assert measured.stats[CANDIDATE].wrong == 1


def test_a_candidate_that_slows_the_reference_is_found() -> None:
    programs = Programs(Scores(), eager=1e-3, compile=1e-3, candidate=1e-3)

    def ask(name: str, n: int, nonce: int) -> tuple[float, Checksums]:
        seconds, sums = programs(name, n, nonce)
        ran = any(asked[0] == CANDIDATE for asked in programs.asked)
        return seconds + (2e-3 * n if name == EAGER and ran else 0), sums

    measured = measure(ask, [[1e9, 1e9]] * 3, random.Random(0), rounds=3)
    assert measured.alone_us == pytest.approx(1000, rel=0.05)
    assert measured.stats[EAGER].median_us == pytest.approx(3000, rel=0.05)
    assert find_fault(measured, floor=0.0) == "slows_reference"


def made_up(candidate: float, eager: float) -> Measured:
    stats = {
        EAGER: Stats(eager, 0.01, 100, 0.0),
        COMPILED: Stats(eager, 0.01, 100, 0.0),
        CANDIDATE: Stats(candidate, 0.01, 100, 0.0),
    }
    return Measured(overhead_us=80.0, noise_us=0.5, stats=stats, alone_us=eager)


def test_times_that_memory_does_not_allow() -> None:
    floor = floor_us(400_000_000, 4e12, cache=40_000_000)
    assert floor == pytest.approx(90)
    assert find_fault(made_up(60.0, 200.0), floor) == "implausible_time"
    assert find_fault(made_up(80.0, 200.0), floor) is None
    assert find_fault(made_up(60.0, 80.0), floor) is None  # nor does eager read everything
    assert floor_us(1_000_000, 4e12, cache=40_000_000) == 0


def test_no_speedup_is_claimed_within_the_noise() -> None:
    assert to_json(made_up(0.6, 5.0), 0.0)["speedup_eager"] is None
    assert to_json(made_up(-3.0, 5.0), 0.0)["speedup_eager"] is None
    assert to_json(made_up(2.0, 5.0), 0.0)["speedup_eager"] == 2.5


def test_without_torch_compile_its_fields_are_empty() -> None:
    measured = made_up(2.0, 5.0)
    del measured.stats[COMPILED]
    values = to_json(measured, 0.0)
    assert (values["compile_us"], values["speedup_compile"]) == (None, None)
    assert (values["candidate_us"], values["eager_us"], values["spread"]) == (2.0, 5.0, 0.01)
