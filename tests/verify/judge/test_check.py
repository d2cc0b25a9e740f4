from __future__ import annotations

import json
import re

import pytest
from verify_programs import HEAD, PAIRS, Judge

FAULTS = [(name, fault) for name, pair in PAIRS.items() for fault in pair.faults]


@pytest.fixture(scope="module")
def honest(judge: Judge) -> dict[str, dict]:
    pairs = [(pair.reference, pair.honest) for pair in PAIRS.values()]
    return dict(zip(PAIRS, judge(pairs), strict=True))


@pytest.fixture(scope="module")
def faulty(judge: Judge) -> dict[tuple[str, str], dict]:
    pairs = [(PAIRS[n].reference, PAIRS[n].faulty(f)) for n, f in FAULTS]
    return dict(zip(FAULTS, judge(pairs), strict=True))


@pytest.mark.parametrize("name", PAIRS)
def test_honest_program_is_correct(honest: dict[str, dict], name: str) -> None:
    verdict = honest[name]
    assert verdict["status"] == "correct", verdict
    assert verdict["trials"] >= 3
    assert 0 <= verdict["error_ratio"] <= 1
    assert verdict["backend"] == "cpu"


@pytest.mark.parametrize(("name", "fault"), FAULTS)
def test_fault_is_caught(faulty: dict[tuple[str, str], dict], name: str, fault: str) -> None:
    verdict = faulty[name, fault]
    assert verdict["status"] in ("incorrect", "runtime_error"), verdict


def adding(body: str, reference: str = "x + 1", inputs: str = "torch.rand(100)") -> tuple[str, str]:
    """Return a reference, and a program whose kernel computes ``body`` from a block ``x``."""
    return (
        f"""
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return {reference}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return []
""",
        f"""{HEAD}
from triton.language.extra import libdevice

@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, {body}, mask=at < n)

class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
        return y
""",
    )


HONEST_ODDITIES = {
    "bfloat16": ("x + 1", "x + 1", "torch.randn(100).bfloat16()"),
    "bfloat16 product, rounded to nearest even": ("x * x", "x * x", "torch.randn(999).bfloat16()"),
    "half, computed in float32": (
        "(x.to(tl.float32) * 3 + 1).to(tl.float16)",
        "(x.float() * 3 + 1).half()",
        "torch.randn(100).half()",
    ),
    "NaN in the same places": ("tl.log(x)", "torch.log(x)", "torch.randn(100)"),
    "integers": (
        "x // 3 + x % 3",
        "x.div(3, rounding_mode='trunc') + x.fmod(3)",
        "torch.randint(-50, 50, (100,))",
    ),
    "maximum of NaN and a number": (
        "tl.maximum(tl.sqrt(x), 0.5)",
        "x.sqrt().fmax(x.new_tensor(0.5))",
        "torch.randn(100)",
    ),
}


def test_honest_oddities_are_correct(judge: Judge) -> None:
    pairs = [adding(*case) for case in HONEST_ODDITIES.values()]
    verdicts = dict(zip(HONEST_ODDITIES, judge(pairs), strict=True))
    assert {name: v["status"] for name, v in verdicts.items()} == dict.fromkeys(verdicts, "correct")


OUTCOMES = {
    "inline assembly": (
        (
            'tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], tl.float32, True, 1)',
            "x * 1",
        ),
        ("unsupported", "inline_asm"),
    ),
    "library function without counterpart": (
        ("libdevice.add_rz(x, x)", "x + x"),
        ("unsupported", "library_function"),
    ),
    "too much work": (
        ("x + 1", "x + 1", "torch.rand(10_000_000)"),
        ("unsupported", "too_much_work"),
    ),
    "random": (("x", "x * torch.rand(100)"), ("unsupported", "random")),
    "constant output": (("x * 0", "x * 0"), ("degenerate", "constant_output")),
    "no finite output": (("x / 0", "x / 0"), ("degenerate", "nothing_finite")),
    "reference raises": (("x", "x.no_such_method()"), ("unsupported", "reference_error")),
    "NaN for a number": (("tl.log(x - 0.5)", "torch.log(x)"), ("incorrect", "nonfinite")),
    "number for NaN": (
        ("tl.log(tl.abs(x))", "torch.log(x)", "torch.randn(100)"),
        ("incorrect", "nonfinite"),
    ),
    "another type": (("x", "x.double()"), ("incorrect", "dtype")),
    "right on [0, 1) only": (("x", "torch.relu(x)"), ("incorrect", "value")),
}


@pytest.fixture(scope="module")
def outcomes(judge: Judge) -> dict[str, dict]:
    pairs = [adding(*case) for case, _ in OUTCOMES.values()]
    return dict(zip(OUTCOMES, judge(pairs, elements=50_000_000), strict=True))


@pytest.mark.parametrize("name", OUTCOMES)
def test_status_and_reason(outcomes: dict[str, dict], name: str) -> None:
    outcome = outcomes[name]
    assert (outcome["status"], outcome["reason"]) == OUTCOMES[name][1], outcome


EMPTY = ("torch.zeros(outer)", "torch.empty(outer)")
SPECIAL = {
    "one element": adding("tl.where(at == 70, x + 2, x + 1)"),
    "uninitialised bias": (
        PAIRS["linear"].reference.replace(*EMPTY),
        PAIRS["linear"].honest.replace(*EMPTY),
    ),
    "rows by heart": (PAIRS["softmax"].reference, PAIRS["softmax"].faulty("rows by heart")),
    "attention": (PAIRS["attention"].reference, PAIRS["attention"].honest),
    "attention again": (PAIRS["attention"].reference, PAIRS["attention"].honest),
}


@pytest.fixture(scope="module")
def special(judge: Judge) -> dict[str, dict]:
    return dict(zip(SPECIAL, judge(list(SPECIAL.values())), strict=True))


def test_evidence_shows_the_worst_element(special: dict[str, dict]) -> None:
    evidence = special["one element"]["evidence"]
    assert evidence["output"] == "output"
    assert evidence["index"] == [70]
    assert evidence["error"] == pytest.approx(1.0, abs=1e-6)
    assert evidence["allowed"] < 1e-5
    assert evidence["wrong_share"] == 0.01


def test_uninitialised_parameters_are_drawn(special: dict[str, dict]) -> None:
    assert special["uninitialised bias"]["status"] == "correct"


def test_sizes_by_heart_are_wrong_only_where_sizes_may_vary(
    judge: Judge, special: dict[str, dict]
) -> None:
    (fixed,) = judge([SPECIAL["rows by heart"]], vary_sizes=False)
    assert fixed["status"] == "correct"
    assert special["rows by heart"]["status"] in ("incorrect", "runtime_error")


def test_too_large_a_program_is_tried_on_smaller_sizes(judge: Judge) -> None:
    large = PAIRS["softmax"].reference
    assert "rows = " in large
    case = (re.sub(r"rows = \d+", "rows = 4000", large), PAIRS["softmax"].honest)
    (by_size,) = judge([case], elements=500_000)
    (by_heart,) = judge([case], elements=500_000, vary_sizes=False)
    assert (by_size["status"], by_size["caveats"][0]) == ("correct", "smaller_sizes_only")
    assert (by_heart["status"], by_heart["reason"]) == ("unsupported", "too_much_work")


def test_a_program_may_refuse_other_sizes(judge: Judge) -> None:
    refusing = PAIRS["softmax"].honest.replace(
        "y = torch.empty_like(x)", "y = torch.empty_like(x)\n        assert len(x) == 7"
    )
    (verdict,) = judge([(PAIRS["softmax"].reference, refusing)])
    assert (verdict["status"], verdict["caveats"][0]) == ("correct", "own_sizes_only")


def test_what_is_made_for_the_files_own_size_is_tried_there(judge: Judge) -> None:
    reference, program = adding("x + 1", "x + 1", "torch.rand(rows, 96)")
    reference = reference.replace("def get_inputs", "rows = 6000\n\ndef get_inputs")
    launch = "        y = torch.empty_like(x)\n"
    made_for_it = program.replace(launch, f"        assert len(x) == 6000\n{launch}")
    for_none = program.replace(launch, f"        assert len(x) == 6001\n{launch}")
    honest, own, never = judge([(reference, text) for text in (program, made_for_it, for_none)])
    assert (honest["status"], honest["caveats"][0]) == ("correct", "smaller_sizes_only")
    assert own["status"] == "correct" and "own_sizes_only" in own["caveats"], own
    assert (never["status"], never["reason"]) == ("runtime_error", "AssertionError")
    assert never["evidence"]["message"].endswith(": assert len(x) == 6001)"), never


def test_results_in_float8_are_judged(judge: Judge) -> None:
    given = "x.to(tl.float8e5)", "x.to(torch.float8_e5m2)", "torch.randn(999)"
    reference, program = adding(*given)
    program = program.replace("empty_like(x)", "empty_like(x, dtype=torch.float8_e5m2)")
    wrong = program.replace("x.to(tl", "(x * 1.1).to(tl")
    right, scaled = judge([(reference, program), (reference, wrong)])
    assert right["status"] == "correct"
    assert scaled["status"] == "incorrect"


def of_rows(*case: str) -> tuple[str, str]:
    """Return what `adding` does, for inputs whose number of rows varies."""
    reference, program = adding(*case)
    reference = reference.replace("def get_inputs", "rows = 9\n\ndef get_inputs")
    return reference, program.replace("x = x.contiguous()", "x = x[1:].contiguous()")


def test_an_empty_result_takes_no_kernel(judge: Judge) -> None:
    reference, program = of_rows("x * 2", "x[1:] * 2", "torch.rand(rows, 12)")
    launch = "        kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)\n"
    assert launch in program
    careful = program.replace(launch, f"        if x.numel() > 0:\n    {launch}")
    never = program.replace(launch, "        y = x * 2\n")
    at_some = program.replace(launch, f"        y = x * 2\n        if len(x) > 5:\n    {launch}")
    verdicts = judge([(reference, text) for text in (careful, never, at_some)])
    assert [(v["status"], v["reason"]) for v in verdicts] == [
        ("correct", None),
        ("cheat", "no_kernel"),
        ("cheat", "torch_does_the_work"),  # a kernel after it may have left some as they were
    ]


# --- beyond the draws -----------------------------------------------------------------------

SCALED = (
    """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, scale=0.5):
        super().__init__()
        self.scale = scale

    def forward(self, x, gain=1.0):
        return torch.relu(x * self.scale) * gain

def get_inputs():
    return [torch.randn(4, 6)]

def get_init_inputs():
    return []
""",
    f"""{HEAD}
@triton.jit
def scale_kernel(x_ptr, y_ptr, n, scale, gain, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    scaled = tl.load(x_ptr + at, mask=at < n) * scale
    tl.store(y_ptr + at, tl.where(scaled < 0, 0.0, scaled) * gain, mask=at < n)

class ModelNew(nn.Module):
    def __init__(self, scale=0.5):
        super().__init__()
        self.scale = scale

    def forward(self, x, gain=1.0):
        x = x.contiguous()
        y = torch.empty(x.shape, device=x.device, dtype=x.dtype)
        grid = (triton.cdiv(y.numel(), 16),)
        scale_kernel[grid](x, y, y.numel(), self.scale, gain, BLOCK=16)
        return y
""",
)
CONVOLVED = (
    """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3)

    def forward(self, x):
        return torch.relu(self.conv(x))

def get_inputs():
    return [torch.randn(2, 2, 6, 5)]

def get_init_inputs():
    return []
""",
    f"""{HEAD}
@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, tl.where(x < 0, 0.0, x), mask=at < n)

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3)

    def forward(self, x):
        x = self.conv(x).contiguous()
        y = torch.empty(x.shape, device=x.device, dtype=x.dtype)
        relu_kernel[(triton.cdiv(y.numel(), 16),)](x, y, y.numel(), BLOCK=16)
        return y
""",
)
SIGNS = adding("x.to(tl.int32, bitcast=True) < 0", "torch.signbit(x)", "torch.randn(100)")
SIGNS = SIGNS[0], SIGNS[1].replace("torch.empty_like(x)", "torch.empty_like(x, dtype=torch.bool)")

BEYOND = {
    "honest": (SCALED, "", "", ()),
    "sizes by heart": (
        SCALED, "x.shape, device", "(4, 6), device", ("some_sizes_only", "own_ranks_only")
    ),
    "two dimensions": (
        SCALED, "x = x.con", "rows, columns = x.shape\n        x = x.con", ("own_ranks_only",)
    ),
    "argument by heart": (SCALED, "self.scale, gain,", "0.5, gain,", ("own_arguments_only",)),
    "option ignored": (SCALED, "self.scale, gain,", "self.scale, 1.0,", ("own_arguments_only",)),
    "strides ignored": (SCALED, "x = x.contiguous()", "pass", ("contiguous_only",)),
    "NaN lost": (
        SCALED, "tl.where(scaled < 0, 0.0, scaled)", "tl.maximum(scaled, 0.0)", ("finite_only",)
    ),
    "convolution by PyTorch": (CONVOLVED, "", "", ("torch_computes",)),
    "channels first": (CONVOLVED, ".contiguous()", "", ("contiguous_only", "torch_computes")),
    "honest signs": (SIGNS, "", "", ()),
}  # fmt: skip


@pytest.fixture(scope="module")
def beyond(judge: Judge) -> dict[str, dict]:
    pairs = [(pair[0], pair[1].replace(old, new)) for pair, old, new, _ in BEYOND.values()]
    pairs.append((SIGNS[0], SIGNS[1].replace("x.to(tl.int32, bitcast=True) < 0", "x < 0")))
    found = judge(pairs, backend="cpu", workers=1)
    return dict(zip([*BEYOND, "negative"], found, strict=True))


@pytest.mark.parametrize("name", BEYOND)
def test_what_else_a_caller_may_do_is_tried(beyond: dict[str, dict], name: str) -> None:
    verdict = beyond[name]
    assert (verdict["status"], tuple(verdict["caveats"])) == ("correct", BEYOND[name][3]), verdict


def test_caveats_say_what_was_changed(beyond: dict[str, dict]) -> None:
    changes = {
        name: beyond[name]["evidence"]["own_arguments_only"]["changes"]
        for name in ("argument by heart", "option ignored")
    }
    assert [(c["what"], c["which"], c["value"]) for c in changes["argument by heart"]] == [
        *(("argument", 0, value) for value in (0.75, 0.0, 1.5))
    ]
    assert [(c["what"], c["which"], c["value"]) for c in changes["option ignored"]] == [
        *(("input", 1, value) for value in (0.75, 0.0, -1.0))
    ]
    assert beyond["channels first"]["evidence"]["contiguous_only"]["layout"] == "permuted"


def test_zeros_have_signs(beyond: dict[str, dict]) -> None:
    verdict = beyond["negative"]
    assert (verdict["status"], verdict["reason"]) == ("incorrect", "value"), verdict
    assert verdict["evidence"]["trial"]["family"] == "steps"


def test_same_verdict_every_time(special: dict[str, dict], honest: dict[str, dict]) -> None:
    runs = [special["attention"], special["attention again"], honest["attention"]]
    assert len({json.dumps({**run, "id": "", "seconds": {}}, sort_keys=True) for run in runs}) == 1
