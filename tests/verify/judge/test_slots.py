"""Every status and every caveat, end to end."""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
import torch
import triton
from verify_programs import HEAD, LAYER_NORM, SOFTMAX

from curate.devices import ON_CPU
from curate.rows import VERDICT
from curate.verify.judge import slot as judging
from curate.verify.judge.device import DeviceInfo, Gate
from curate.verify.judge.slot import Slot, tidy
from curate.verify.judge.slots import Judge, verify
from curate.verify.verdict import Candidate, Options, Verdict

pytestmark = pytest.mark.slow

OPTIONS = Options(
    backend="cpu",
    workers=2,
    trials=4,
    timeout_s=20,
    memory_mb=1024,
    draw_seed=1,
    elements=2_600_000,
)

REFERENCE = """
import os
import time
import torch
import torch.nn as nn

{top}

class Model(nn.Module):
    def forward(self, x):
        {forward}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
"""

CANDIDATE = (
    HEAD
    + """
import os
import sys
import time

@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, {body}, mask=at < n)

def launch(x):
    y = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y

{top}

class ModelNew(nn.Module):
    def forward(self, x):
        {forward}
"""
)


def reference(forward: str = "return x + 1", inputs: str = "torch.rand(100)", top: str = "") -> str:
    return REFERENCE.format(forward=indented(forward), inputs=inputs, top=top)


def candidate(forward: str = "return launch(x)", body: str = "x + 1", top: str = "") -> str:
    return CANDIDATE.format(forward=indented(forward), body=body, top=top)


def indented(text: str) -> str:
    return text.replace("\n", "\n        ")


@dataclass(frozen=True)
class Case:
    """A reference, a program, and what is to be said of it."""

    status: str
    reason: str | None = None
    reference: str = reference()
    candidate: str = candidate()
    caveats: tuple[str, ...] | None = None


ROWS = "rows = {rows}\nwidth = {width}"
TWO_SIZES = reference(inputs="torch.rand(rows, width)", top=ROWS.format(rows=4, width=6))
MODES = reference("return 2 * x if self.training else x + 1")

CASES = {
    # what a program is
    "right": Case("correct", caveats=("contiguous_only",)),
    "right, of any strides": Case(
        "correct", candidate=candidate("return launch(x.contiguous())"), caveats=()
    ),
    "wrong value": Case("incorrect", "value", candidate=candidate(body="x + 1.01")),
    "wrong shape": Case("incorrect", "shape", candidate=candidate("return launch(x)[:50]")),
    "a bound that only equal numbers show": Case(
        "incorrect",
        "value",
        reference("return x <= 0.5"),
        candidate("return launch(x)", "x < 0.5").replace(
            "torch.empty_like(x)", "torch.empty_like(x, dtype=torch.bool)"
        ),
    ),
    "a number that is never written, of two that it may have": Case(
        "incorrect",
        "value",
        reference("return x < 2"),
        candidate("return launch(x)", "x < 2")
        .replace("torch.empty_like(x)", "torch.empty_like(x, dtype=torch.bool)")
        .replace("x.numel(), BLOCK", "x.numel() - 1, BLOCK"),
    ),
    "larger than a result may be": Case(
        "incorrect", "shape", candidate=candidate("return launch(x).repeat(20000)")
    ),
    "wrong type": Case("incorrect", "dtype", candidate=candidate("return launch(x).double()")),
    "wrong structure": Case("incorrect", "structure", candidate=candidate("return [launch(x)]")),
    "no data": Case("incorrect", "structure", candidate=candidate("return launch(x), print")),
    "wrong state": Case(
        "incorrect", "state_dict", LAYER_NORM.reference, LAYER_NORM.faulty("another state_dict")
    ),
    "out of bounds": Case(
        "incorrect",
        "out_of_bounds",
        candidate=candidate().replace("mask=at < n)", "mask=None)"),
    ),
    "bad syntax": Case("compile_error", "SyntaxError", candidate=candidate("return return")),
    "raises": Case("runtime_error", "KeyError", candidate=candidate("raise KeyError('no')")),
    "raises when loaded": Case(
        "runtime_error", "ZeroDivisionError", candidate=candidate(top="1 / 0")
    ),
    "raises when built": Case(
        "runtime_error",
        "ValueError",
        candidate=candidate().replace(
            "    def forward", "    def __init__(self):\n        raise ValueError\n    def forward"
        ),
    ),
    "no ModelNew": Case(
        "runtime_error", "ProgramError", candidate=candidate().replace("ModelNew", "Other")
    ),
    "hangs": Case("timeout", "timeout", candidate=candidate("while True:\n    pass")),
    "eats memory": Case(
        "oom",
        "MemoryError",
        candidate=candidate("kept = []\nwhile True:\n    kept.append(bytearray(1 << 26))"),
    ),
    "aborts": Case("crash", "crash", candidate=candidate("os.abort()")),
    "leaves": Case("crash", None, candidate=candidate("os._exit(0)")),
    "no kernel": Case("cheat", "no_kernel", candidate=candidate("return x + 1")),
    "kernel for show": Case(
        "cheat",
        "host_does_the_work",
        candidate=candidate(
            "launch(x)\nreturn torch.tensor([v + 1 for v in x.tolist()], device=x.device)"
        ),
    ),
    "PyTorch, and a copy": Case(
        "cheat", "torch_does_the_work", candidate=candidate("return launch(x + 1)", body="x")
    ),
    "caught its kernel's error": Case(
        "incorrect",
        "out_of_bounds",
        candidate=candidate(
            "try:\n    return launch(x)\nexcept Exception:\n    return x + 1",
            body="tl.load(x_ptr + at + n)",
        ),
    ),
    # its process holds nothing that is worth the trouble
    "looks at frames": Case(
        "correct", None, candidate=candidate("sys._getframe()\nreturn launch(x)")
    ),
    "patches": Case("correct", None, candidate=candidate(top="torch.allclose = lambda *a: True")),
    # what a reference says
    "constant": Case(
        "degenerate", "constant_output", reference("return x * 0"), candidate(body="x*0")
    ),
    "empty": Case(
        "degenerate",
        "empty_output",
        reference("return (x + 1)[:0]"),
        candidate("return launch(x)[:0]"),
    ),
    "not finite": Case(
        "degenerate", "nothing_finite", reference("return x / 0"), candidate(body="x / 0")
    ),
    "reference raises": Case("unsupported", "reference_error", reference("return x.nothing()")),
    "reference does not load": Case("unsupported", "reference_error", "import nothing_at_all"),
    "reference ends": Case("unsupported", "reference_error", reference("os._exit(0)")),
    "reference is random": Case(
        "unsupported", "random", reference("return x + torch.rand_like(x)")
    ),
    "reference gives no data": Case("unsupported", "not_data", reference("return x + 1, {1, 2}")),
    "inline assembly": Case(
        "unsupported",
        "inline_asm",
        candidate=candidate(
            body='tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], tl.float32, True, 1)'
        ),
    ),
    "too much work": Case(
        "unsupported", "too_much_work", reference(inputs="torch.rand(1_000_000)")
    ),
    # what a verdict does not cover
    "own sizes only": Case(
        "correct",
        None,
        SOFTMAX.reference,
        SOFTMAX.honest.replace("y = torch", "assert len(x) == 7\n        y = torch"),
        ("own_sizes_only", "contiguous_only", "some_sizes_only", "own_ranks_only", "fewer_trials"),
    ),
    "one size by heart": Case(
        "correct",
        None,
        TWO_SIZES,
        candidate("assert x.shape[1] == 6\nreturn launch(x.contiguous())"),
        ("some_sizes_only", "own_ranks_only"),
    ),
    "fallback": Case(
        "correct",
        None,
        candidate=candidate(
            "try:\n    return launch(x.contiguous())\nexcept Exception:\n    return x + 1"
        ),
        caveats=("has_fallback", "untried_branches"),
    ),
    "other state names": Case(
        "correct",
        None,
        LAYER_NORM.reference,
        LAYER_NORM.honest.replace("self.norm", "self.called_otherwise"),
        (
            "contiguous_only",
            "own_ranks_only",
            "own_arguments_only",  # a block of 64
            "own_types_only",  # it adds up in bfloat16
            "some_sizes_only",
            "fewer_trials",
        ),
    ),
    "right when training": Case(
        "correct",
        None,
        MODES,
        candidate("return launch(x.contiguous())", "2 * x"),
        ("train_mode_only",),
    ),
    "right in eval mode": Case(
        "correct",
        None,
        MODES,
        candidate("return launch(x.contiguous())"),
        ("eval_mode_only",),
    ),
    "right in no mode": Case("incorrect", "value", MODES, candidate(body="3 * x")),
    "much work": Case(
        "correct",
        None,
        reference(inputs="torch.rand(100_000)"),
        candidate("return launch(x.contiguous())"),
        ("fewer_trials", "narrow_offsets"),
    ),
    "smaller sizes only": Case(
        "correct",
        None,
        SOFTMAX.reference.replace("rows = 7", "rows = 40_000").replace(
            "return torch", "assert len(x) >= 40_000 or len(x) <= 3; return torch"
        ),
        SOFTMAX.honest,
        ("smaller_sizes_only", "contiguous_only", "own_ranks_only", "fewer_trials"),
    ),
}

Verdicts = dict[str, Verdict]


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with closing(Judge(OPTIONS)) as judge:
        yield judge


def judged(judge: Judge, cases: dict[str, Case]) -> Verdicts:
    candidates = [Candidate(name, case.reference, case.candidate) for name, case in cases.items()]
    verdicts = list(judge.run(candidates))
    assert len(verdicts) == len(cases)
    return {verdict.id: verdict for verdict in verdicts}


@pytest.fixture(scope="module")
def verdicts(judge: Judge) -> Verdicts:
    return judged(judge, CASES)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", CASES)
def test_status_reason_and_caveats(verdicts: Verdicts, name: str) -> None:
    verdict, case = verdicts[name], CASES[name]
    assert verdict.status == case.status, verdict.to_json()
    if case.reason is not None or case.status == "correct":
        assert verdict.reason == case.reason, verdict.to_json()
    if case.caveats is not None:
        assert verdict.caveats == case.caveats, verdict.to_json()


def test_a_correct_verdict_holds_what_was_seen(verdicts: Verdicts) -> None:
    verdict = verdicts["right"]
    assert (verdict.backend, verdict.device, verdict.driver) == ("cpu", "cpu", None)
    assert (verdict.torch, verdict.triton) == (torch.__version__, triton.__version__)
    assert verdict.trials == OPTIONS.trials
    assert verdict.max_abs_error is not None and 0 <= verdict.max_abs_error < 1e-4
    assert verdict.error_ratio is not None and 0 <= verdict.error_ratio <= 1
    assert verdict.timing is None and verdict.compile == []
    evidence = verdict.evidence
    assert (evidence["launches"], evidence["aten_calls"]) == ({"kernel": 1}, {})
    assert (evidence["kind"], evidence["deterministic"]) == ("pure_triton", True)
    assert evidence["reference_device"] == "cpu" and evidence["insensitive_inputs"] == []


SUM = reference("return x.sum(0, keepdim=True)", inputs="torch.rand(1000)")
ADDS_UP = (
    candidate("return launch(x.contiguous())")
    .replace("tl.store(y_ptr + at, x + 1, mask=at < n)", "tl.atomic_add(y_ptr, tl.sum(x))")
    .replace("mask=at < n)", "mask=at < n, other=0.0)")
    .replace("torch.empty_like(x)", "torch.zeros(1, device=x.device)")
)
CLEARS = "    if tl.program_id(0) == 0:\n        tl.store(y_ptr, 0.0)\n    tl.atomic_add"


@pytest.mark.parametrize(
    ("program", "status", "reason", "caveats"),
    [
        (ADDS_UP, "correct", None, ()),
        (ADDS_UP.replace("    tl.atomic_add", CLEARS), "incorrect", "race", ()),
        (
            ADDS_UP.replace("y_ptr, tl.sum(x)", "y_ptr + tl.where(at < n, 0, at), x"),
            "incorrect",
            "out_of_bounds",
            (),
        ),
        (
            ADDS_UP.replace("x = tl.load", "libdevice.no_such()\n    x = tl.load"),
            "correct",
            None,
            ("races_unproved",),
        ),
    ],
    ids=["right", "clears the sum itself", "adds zero outside", "not for the CPU"],
)
def test_the_cpu_has_its_say_on_atomics(
    judge: Judge, program: str, status: str, reason: str | None, caveats: tuple[str, ...]
) -> None:
    """What a device would say is made up here; `run_on_gpu.py` does the same on a real one."""
    made_up = Verdict("sum", "correct", backend="cuda", evidence={"launches": {"kernel": 1}})
    verdict = judge.slots[0].check_races(Candidate("sum", SUM, program), made_up)
    found = (verdict.status, verdict.reason, verdict.caveats)
    assert found == (status, reason, caveats), verdict.to_json()
    assert verdict.backend == "cuda" and verdict.evidence["launches"] == {"kernel": 1}
    assert ("on_cpu" in verdict.evidence) == (verdict != made_up)


def test_a_wrong_verdict_says_where_and_on_which_draw(verdicts: Verdicts) -> None:
    evidence = verdicts["wrong value"].evidence
    assert evidence["got"] - evidence["expected"] == pytest.approx(0.01, rel=0.01)
    assert evidence["trial"]["family"] == "own" and evidence["wrong_share"] == 1
    assert verdicts["wrong value"].error_ratio is None


def test_what_programs_raise_or_print_is_told(verdicts: Verdicts) -> None:
    assert verdicts["raises"].evidence["message"].startswith("KeyError: 'no' (line ")
    assert "ZeroDivisionError" in verdicts["raises when loaded"].evidence["message"]
    assert verdicts["aborts"].evidence["signal"] == "SIGABRT"
    assert "nothing" in verdicts["reference raises"].evidence["message"]


def test_findings_of_the_screen_are_labels(verdicts: Verdicts) -> None:
    found = {finding["rule"] for finding in verdicts["no kernel"].findings}
    assert "kernel_never_launched" in found
    assert verdicts["right"].findings == ()


@pytest.mark.parametrize("name", ["right", "wrong value", "hangs", "reference raises"])
def test_a_verdict_is_a_row(verdicts: Verdicts, name: str) -> None:
    row = verdicts[name].to_row()
    assert list(row.keys() ^ {field.name for field in VERDICT}) == []
    (back,) = pa.array([row], type=VERDICT).to_pylist()
    assert {key: back[key] for key in row if key != "max_abs_error"} == {
        key: row[key] for key in row if key != "max_abs_error"
    }


@pytest.mark.parametrize("name", CASES)
def test_a_verdict_survives_json(verdicts: Verdicts, name: str) -> None:
    verdict = verdicts[name]
    assert Verdict.from_json(json.loads(json.dumps(verdict.to_json()))) == verdict


def test_a_judge_says_the_same_again(judge: Judge, verdicts: Verdicts) -> None:
    names = ["right", "other state names", "wrong value"]
    again = judged(judge, {name: CASES[name] for name in names})
    assert again == {name: verdicts[name] for name in names}


def test_an_error_of_the_judge_costs_one_verdict(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = judging.CandidateCheck.load

    def fail_at(check: judging.CandidateCheck, given: Candidate) -> None:
        if "# fail" in given.candidate:
            raise ArithmeticError("as asked")
        load(check, given)

    monkeypatch.setattr(judging.CandidateCheck, "load", fail_at)
    spoilt = Case("unsupported", candidate=candidate() + "# fail")
    found = judged(judge, {"before": Case("correct"), "spoilt": spoilt, "after": Case("correct")})
    assert [found[name].status for name in ("before", "after")] == ["correct", "correct"]
    assert (found["spoilt"].status, found["spoilt"].reason) == ("unsupported", "judge_error")
    assert found["spoilt"].evidence["message"] == "ArithmeticError: as asked"
    assert "fail_at" in found["spoilt"].evidence["where"]


def test_an_error_of_the_caller_is_raised(judge: Judge) -> None:
    def broken() -> Iterator[Candidate]:
        yield Candidate("0", reference(), candidate())
        raise LookupError("no more candidates")

    with closing(Judge(Options(**{**vars(OPTIONS), "workers": 1}))) as own:
        given = own.run(broken())
        with pytest.raises(LookupError, match="no more"):
            list(given)


REFUSES = 'assert x.shape == (100,), "of 100"\nreturn launch(x)'


def test_what_was_drawn_goes_with_its_verdict() -> None:
    """Python looks for cycles seldom, and draws can be large: none may keep a tensor."""
    programs = [candidate(), candidate(body="x + 2"), candidate(REFUSES)]
    references = [reference(), reference(), reference(top="# another")]
    given = [
        Candidate(str(n), r, c) for n, (r, c) in enumerate(zip(references, programs, strict=True))
    ]
    gc.collect()
    gc.disable()
    try:
        with closing(Judge(Options(**{**vars(OPTIONS), "workers": 1}))) as own:
            statuses = [verdict.status for verdict in own.run(given)]
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            kept = [thing for thing in gc.garbage if isinstance(thing, torch.Tensor)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert statuses == ["correct", "incorrect", "correct"]
    assert not kept


def test_no_candidates_no_processes() -> None:
    before = descendants()
    assert list(verify([], OPTIONS)) == []
    assert descendants() == before


def test_a_judge_that_came_to_the_end_can_be_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread may be alive for a moment after it has given its last verdict."""
    monkeypatch.setattr(threading.Thread, "is_alive", lambda _: True)
    with closing(Judge(Options(backend="cpu", workers=1))) as own:
        verdict = Verdict("0", "correct")
        closed: list[bool] = []
        slot = SimpleNamespace(judge=lambda _: verdict, close=lambda: closed.append(True))
        monkeypatch.setattr(own, "slots", [slot, slot])
        assert list(own.run([Candidate("0", "", "")])) == [verdict]
        assert not closed


def descendants() -> set[int]:
    """Return the processes that this one has started, directly or not."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stat = (folder / "stat").read_text()
            except OSError:
                continue
            state, parent = stat.rpartition(")")[2].split()[:2]
            if state != "Z":
                parents[int(folder.name)] = int(parent)
    found: set[int] = set()
    while new := {p for p, parent in parents.items() if parent in {os.getpid(), *found}} - found:
        found |= new
    return found


def test_closing_early_leaves_no_process() -> None:
    before = descendants()
    hang = candidate("while True:\n    pass")

    def endless() -> Iterator[Candidate]:
        yield Candidate("right", reference(), candidate())
        for i in range(1000):
            taken.append(i)
            yield Candidate(f"hangs {i}", reference(), hang)

    taken: list[int] = []
    verdicts = verify(endless(), OPTIONS)
    assert next(verdicts).status == "correct"
    started = descendants() - before
    assert len(started) >= 4, "two hosts for each of two workers"
    verdicts.close()
    deadline = time.monotonic() + 10
    while (left := {pid for pid in started if Path(f"/proc/{pid}").exists()}) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.1)
    assert left == set()
    assert descendants() - before == set()
    assert len(taken) < 10, "candidates are read as workers get free"


def test_evidence_is_bounded_json() -> None:
    deep: Any = 0
    for _ in range(50):
        deep = [deep]
    hostile = {
        "long": "x" * 10**6,
        "many": list(range(10**5)),
        "deep": deep,
        "large": 10**50,
        "broken": "\ud800",
        "other": object(),
        5: {"k" * 10**4: None, "nan": float("nan")},
    }
    found = tidy(hostile)
    assert len(json.dumps(found)) < 10_000
    assert len(found["long"]) == 2000 and len(found["many"]) == 100
    assert found["large"] == str(10**50)[:40]
    found["broken"].encode()


@pytest.mark.parametrize(
    ("is_gpu", "status", "trials", "again"),
    [
        (True, "crash", 1, True),
        (True, "incorrect", 2, True),
        (True, "incorrect", 0, False),
        (True, "runtime_error", 1, False),
        (False, "incorrect", 1, False),
    ],
)
def test_what_fails_on_a_device_after_a_right_draw_is_compiled_for_each_size(
    monkeypatch: pytest.MonkeyPatch, is_gpu: bool, status: str, trials: int, again: bool
) -> None:
    slot = Slot(OPTIONS, DeviceInfo("a device", None, is_gpu, ON_CPU), Gate())
    facts = SimpleNamespace(mode_dependent=False)
    oracle = SimpleNamespace(smaller={}, facts=lambda mode: facts)
    asked: list[bool] = []

    def check(way: Any) -> Verdict:
        asked.append(way.exact)
        found = "correct" if way.exact else status
        return dataclasses.replace(way.verdict, status=found, trials=trials)

    monkeypatch.setattr(slot, "_prepare", lambda: None)
    monkeypatch.setattr(slot, "_oracle", lambda reference: oracle)
    monkeypatch.setattr(slot, "_check_in_room", check)
    found = slot._check(Candidate("a", "", ""), Verdict("a", "correct"), False)
    assert asked == [False, True][: 1 + again]
    assert found.status == ("correct" if again else status)
