"""Programs for more than the file's own arguments, sizes, layouts and types."""

import json
import re

import pytest

from curate.inductor.configurations import compile_reference
from curate.inductor.standalone import rewrite
from curate.verify.judge.slots import verify
from curate.verify.verdict import Candidate, Options

pytestmark = pytest.mark.slow  # PyTorch's compiler runs several times for every module

NORM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, dim, heads=4, eps=1e-5, unit_offset=False):
        super().__init__()
        self.heads = heads
        self.eps = eps
        self.unit_offset = unit_offset
        self.norm = nn.LayerNorm(dim)
        self.scale = nn.Parameter(torch.ones(dim // heads))

    def forward(self, x, shift=None):
        b, t, d = x.shape
        y = self.norm(x).view(b, t, self.heads, d // self.heads)
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        y = y * (1 + self.scale if self.unit_offset else self.scale)
        return y if shift is None else y + shift


def get_inputs():
    return [torch.randn(2, 5, 64)]


def get_init_inputs():
    return [64]
"""

CONVOLUTION = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, channels, filters, kernel_size=3, groups=1):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, kernel_size, padding=kernel_size // 2)
        self.pool = nn.MaxPool2d(kernel_size, 2)

    def forward(self, x):
        return self.pool(torch.relu(self.conv(x)))


def get_inputs():
    return [torch.randn(2, 6, 11, 9)]


def get_init_inputs():
    return [6, 8]
"""

POINTWISE = """
import torch


class Model(torch.nn.Module):
    def __init__(self, slope=0.25):
        super().__init__()
        self.slope = slope

    def forward(self, x, y):
        return torch.where(torch.signbit(x), x * self.slope, torch.where(y > 0.3, y, -y))


def get_inputs():
    return [torch.randn(6, 33), torch.randn(6, 33)]


def get_init_inputs():
    return []
"""

FILES = {"norm": NORM, "convolution": CONVOLUTION, "pointwise": POINTWISE}
HALF = (
    "\n\nclass {0}({0}):\n    def __init__(self, *given):\n        super().__init__(*given)\n{1}\n"
)


@pytest.fixture(scope="module")
def made():
    """Each file's program and what it says of itself."""
    found = {}
    for name, reference in FILES.items():
        output = compile_reference(reference, "cuda:90")
        spec = json.loads(json.dumps(output.spec))
        found[name] = rewrite(reference, output.code, spec).text, spec
    return found


def changed(name, *changes):
    """Return a file with some of its text replaced."""
    text = FILES[name]
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    return text


CASES = {
    "as in the file": ("norm", changed("norm")),
    "other sizes and numbers": (
        "norm",
        changed("norm", ("[64]", "[144, 6, 0.1]"), ("randn(2, 5, 64)", "randn(3, 7, 144)")),
    ),
    "wide rows": ("norm", changed("norm", ("[64]", "[1500]"), ("(2, 5, 64)", "(1, 2, 1500)"))),
    "other filters": (
        "convolution",
        changed("convolution", ("[6, 8]", "[5, 12]"), ("(2, 6, 11, 9)", "(3, 5, 11, 9)")),
    ),
    "images with channels last": (
        "convolution",
        changed("convolution", ("9)]", "9).contiguous(memory_format=torch.channels_last)]")),
    ),
    "three dimensions": ("pointwise", changed("pointwise", ("(6, 33)", "(2, 3, 17)"))),
    "zeros with signs": (
        "pointwise",
        changed("pointwise", ("randn(6, 33), ", "tensor([[-0.0, 0.0, -1.0]] * 6), ")).replace(
            "torch.randn(6, 33)]", "torch.randn(6, 3)]"
        ),
    ),
    "numbers at the threshold": (
        "pointwise",
        changed(
            "pointwise", ("(6, 33), ", "(64, 33), "), ("randn(6, 33)]", "full((64, 33), 0.3004)]")
        ),
    ),
    "another slope": ("pointwise", changed("pointwise", ("return []", "return [0.75]"))),
}


def test_programs_are_right_where_their_files_differ(made):
    candidates = [Candidate(case, text, made[name][0]) for case, (name, text) in CASES.items()]
    options = Options(backend="cpu", workers=2, trials=3, draw_seed=1)
    found = {
        verdict.id: (verdict.status, verdict.evidence) for verdict in verify(candidates, options)
    }
    assert {case: status for case, (status, _) in found.items()} == dict.fromkeys(
        CASES, "correct"
    ), found


def test_programs_take_the_type_of_their_input(made):
    candidates = []
    for name, reference in FILES.items():
        halves = "        self.to(torch.bfloat16)"
        problem = reference.replace(")]", ").bfloat16()]").replace(
            "), torch.randn", ").bfloat16(), torch.randn"
        )
        candidates.append(
            Candidate(
                name,
                problem + HALF.format("Model", halves),
                made[name][0] + HALF.format("ModelNew", halves),
            )
        )
    options = Options(backend="cpu", workers=2, trials=3, draw_seed=1)
    found = {verdict.id: verdict for verdict in verify(candidates, options)}
    assert {name: v.status for name, v in found.items()} == dict.fromkeys(FILES, "correct"), found


def test_numbers_are_read_and_not_written(made):
    text, spec = made["norm"]
    assert not re.search(r"\b(64|16|1e-0?5)\b", text.split("def forward")[1])
    assert "self.heads" in text and "self.eps" in text
    assert "triton.next_power_of_2(dim)" in text
    assert spec["fixed"] == {"unit_offset": False}
    text, spec = made["convolution"]
    assert "kernel_size" in spec["fixed"]
    assert {"channels", "filters"}.isdisjoint(spec["fixed"])
    assert "shape[" not in made["pointwise"][0]  # any shape will do
    assert "torch.empty_like(x)" in made["pointwise"][0]
    assert "> 0.3," in made["pointwise"][0]  # not as bfloat16 rounds it


def test_constants_that_bfloat16_does_not_tell_apart_stay_as_they_are():
    reference = changed("pointwise", ("y > 0.3, y, -y", "y > 0.999, y + 1.0, y.clamp(max=1.0)"))
    output = compile_reference(reference, "cuda:90")
    text = rewrite(reference, output.code, json.loads(json.dumps(output.spec))).text
    assert "> 0.999," in text
    assert text.count("1.0") == 2
    assert output.spec["any_float"] is None
    assert "self.slope" in text


REFUSED = {
    "an argument of the constructor": (
        "norm",
        changed("norm", ("[64]", "[64, 4, 1e-5, True]")),
        "written for unit_offset=False",
    ),
    "an argument of forward": (
        "norm",
        changed("norm", ("[torch.randn(2, 5, 64)]", "[torch.randn(2, 5, 64), 2.0]")),
        "written for shift=None",
    ),
    "two shapes": (
        "pointwise",
        changed("pointwise", ("torch.randn(6, 33)]", "torch.randn(33)]")),
        "y has shape (33,)",
    ),
    "another window": (
        "convolution",
        changed("convolution", ("[6, 8]", "[6, 8, 5]")),
        "written for kernel_size=3",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_they_are_not_written_for_they_refuse(case, made):
    name, problem, message = REFUSED[case]
    options = Options(backend="cpu", workers=1, trials=2)
    (verdict,) = verify([Candidate(case, problem, made[name][0])], options)
    assert verdict.status == "runtime_error"
    assert message in json.dumps(verdict.evidence)
