"""The steps `inductor` and `standalone`: what the generator prints, and what it does not."""

import json

from curate.inductor.inductor import Inductor
from curate.inductor.standalone import Standalone
from curate.rows import make_origin, make_row
from curate.step import Context, Keep

TASK = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return {body}


def get_inputs():
    return [torch.randn(8, 100)]


def get_init_inputs():
    return []
"""


def made(body):
    """Return a task's row behind `inductor`, and its pair."""
    text = TASK.format(body=body)
    row = make_row("task", text, make_origin("local", path="a.py"), reference=text)
    row["license"] = {"expression": "MIT", "choice": "MIT"}
    outcome = Inductor(step="inductor").apply(row, Context())
    assert isinstance(outcome, Keep)
    (generated,) = outcome.rows
    pair = Standalone(step="standalone").apply(generated, Context())
    assert isinstance(pair, Keep)
    return generated, pair.rows[0]


def test_what_is_printed_passes_as_it_is():
    generated, pair = made("torch.sigmoid(x) + 1")
    assert pair["triton"] == generated["generated"]["code"]
    assert pair["kind"] == "pair"
    assert pair["static"]["kernels"] == 1
    assert pair["static"]["any_float"] is True
    assert pair["static"]["pure_triton"] is True
    assert pair["origin"]["generator"]["name"] == "generator"
    assert pair["license"]["choice"] == "MIT"  # no line of Inductor's is in it


def test_what_is_not_printed_is_rewritten_and_says_why():
    generated, pair = made("torch.bucketize(x, x[0])")
    assert json.loads(generated["generated"]["spec"])["not_printed"] == "a binary search"
    assert pair["origin"]["generator"]["name"] == "inductor+standalone"
    assert pair["license"]["choice"] == "BSD-3-Clause AND MIT"


def test_programs_in_which_sizes_decide_between_schedules_are_printed():
    _, pair = made("torch.softmax(x, 1)")
    assert "<= 4096:" in pair["triton"]
    assert pair["origin"]["generator"]["name"] == "generator"
