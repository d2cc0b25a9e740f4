"""Scans whose rows are shared out: judged on the CPU, in both branches, and read."""

import re

import pytest
from shared_judge import not_correct

from curate.generator.generate import generate
from curate.verify import Candidate

pytest_plugins = ["shared_judge"]

REFERENCE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        {body}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


def reference(body, inputs):
    return REFERENCE.format(body=body.replace("\n", "\n        "), inputs=inputs)


TALL, WIDE = "torch.randn(1500, 5)", "torch.randn(3, 5000)"
EQUAL = "torch.randint(-2, 3, {}).float()"

CASES = {
    "one dimension": reference("return x.cumsum(0)", "torch.randn(5000)"),
    "one short part": reference("return x.cumprod(0)", "torch.rand(37) + 0.5"),
    "integers": reference("return x.cumsum(0), x.cummin(0)", "torch.randint(-9, 9, (5000,))"),
    "before and after": reference("return torch.sigmoid((x * 2).cumsum(0) / 10) + x", TALL),
    "products": reference("return x.cumprod(0)", "torch.rand(1500, 5) + 0.5"),
    "the last of equal ones": reference("return x.cummax(-1)", EQUAL.format("(3, 9000)")),
    "equal ones in columns": reference("return x.cummin(0)", EQUAL.format("(1500, 5)")),
    "not a number": reference(
        "x = torch.where(x > 3, float('nan'), x)\nreturn x.cummax(0), x.cummin(0)",
        "torch.randn(5000)",
    ),
    "exponentials": reference("return x.logcumsumexp(1)", WIDE),
    "nothing so far": reference(
        "return torch.where(x > 1, x, float('-inf')).logcumsumexp(0)", "torch.randn(5000)"
    ),
    "whether": reference("return (x > 1).cummax(0)", "torch.randn(5000)"),
    "a scan of a scan": reference("return x.abs().cumsum(1).sqrt().cumsum(1)", WIDE),
    "two at once": reference("return x.cumsum(0) - (x * x).cumsum(0)", TALL),
    "backwards": reference("return x.flip(-1).cumsum(-1).flip(-1)", WIDE),
    "middle dimension": reference("return x.cumsum(1).cos()", "torch.randn(2, 1500, 3)"),
    "with a reduction": reference("return torch.softmax(x, 0).cummax(0)", "torch.randn(5000)"),
}


@pytest.fixture(scope="module")
def programs():
    return {name: generate(text).text for name, text in CASES.items()}


@pytest.mark.weekly
def test_programs_are_right_in_each_branch(programs, thorough_judge):
    candidates = [Candidate(name, CASES[name], text) for name, text in programs.items()]
    verdicts = {verdict.id: verdict for verdict in thorough_judge.run(candidates)}
    assert not not_correct(verdicts.values())
    narrow = {"untried_branches", "own_sizes_only", "some_sizes_only"}
    assert not {n: v.caveats for n, v in verdicts.items() if narrow & set(v.caveats)}
    assert {name for name, text in programs.items() if "_partial_kernel[" not in text} <= {
        "with a reduction"
    }


def test_one_dimension_has_no_other_form(programs):
    text = programs["one dimension"]
    assert text.count("[grid](") == 3
    assert " if " not in text.partition("def forward")[2]
    assert "tl.cumsum(partial_sum, 0)" in text


@pytest.mark.parametrize("case", ["before and after", "exponentials"])
def test_sizes_decide_where_there_are_rows(programs, case):
    text = programs[case]
    assert text.count("[grid](") == 4
    assert re.search(r"if \w+ >= \d+ or \w+ <= \d+:", text)


def test_what_is_scanned_is_not_kept_in_memory(programs):
    text = programs["before and after"]
    sizes = re.findall(r"torch.empty\((.*?), device", text)
    assert len([size for size in sizes if "n_splits" not in size]) == 1  # the result
    assert text.count("x = tl.load(x_ptr") == 3


def test_fixed_sizes_need_no_branch():
    text = generate(reference("return x.reshape(-1, 64).cumsum(-1)", "torch.randn(8, 640)")).text
    assert text.count("[grid](") == 1
    assert "    if " not in text


def test_long_rows_of_a_square_are_many():
    text = generate(reference("return (x @ x.mT).cumsum(-1)", "torch.randn(2, 70, 9)")).text
    assert text.count("tl.cumsum(") == 1


def test_products_stay_in_64_bits_between_parts(programs):
    text = programs["products"]
    assert text.count("dtype=torch.float64") == 2
