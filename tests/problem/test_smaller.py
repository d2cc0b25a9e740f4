"""Sizes that fill a GPU are made smaller for a CPU, as long as the model takes them."""

import math

import pytest
import torch

from curate.problem.problem import LoadedTask
from curate.problem.smaller import ALL, CALL_BYTES, FIRST, NONE, shrink
from curate.verify import Candidate

pytest_plugins = ["shared_judge"]

FILE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x):
        {check}
        return x * self.weight


batch_size = {batch}
seq_len = 2048
features = 4096


def get_inputs():
    return [torch.rand(batch_size, seq_len, features)]


def get_init_inputs():
    return [features]
"""

PROGRAM = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x_ptr, weight_ptr, out_ptr, n, features, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    weight = tl.load(weight_ptr + offsets % features, mask=offsets < n)
    tl.store(out_ptr + offsets, x * weight, mask=offsets < n)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x):
        x, out = x.contiguous(), torch.empty(x.shape, device=x.device, dtype=x.dtype)
        grid = (triton.cdiv(x.numel(), 1024),)
        scale_kernel[grid](x, self.weight, out, x.numel(), x.shape[-1], BLOCK=1024)
        return out
"""


def shrunk(batch, check="pass", which=ALL, features=4096):
    text = FILE.format(batch=batch, check=check).replace("4096", str(features))
    task = LoadedTask(text)

    def run():
        with torch.device("meta"):
            return task.module.Model(*task.init_inputs())(*task.inputs()).nbytes

    found = shrink(task, which, run)
    with torch.device("meta"):
        (x,) = task.inputs()
    return found, tuple(x.shape)


def test_sizes_of_the_inputs_are_halved_first():
    found, shape = shrunk(512)
    assert found == {"batch_size": [512, 4], "seq_len": [2048, 4]}
    assert shape == (4, 4, 4096)


def test_a_batch_is_halved_before_other_sizes_of_the_inputs():
    found, shape = shrunk(64, features=64)
    assert found == {"batch_size": [64, 4], "seq_len": [2048, 256]}
    assert shape == (4, 256, 64)


def test_the_others_stay_on_demand():
    assert shrunk(512, which=FIRST) == ({"batch_size": [512, 4]}, (4, 2048, 4096))
    assert shrunk(512, which=NONE) == ({}, (512, 2048, 4096))


def test_sizes_of_the_constructor_follow_where_that_is_not_enough():
    found, shape = shrunk(3)
    assert found == {"seq_len": [2048, 4]}
    assert shape == (3, 4, 4096)


@pytest.mark.parametrize(
    "check",
    ["assert x.shape[0] == 512 and x.shape[1] == 2048", "assert x.shape == (512, 2048, 4096)"],
)
def test_what_the_model_does_not_take_stays(check):
    assert shrunk(512, check) == ({}, (512, 2048, 4096))


def test_a_size_is_halved_as_far_as_the_model_goes_along():
    found, shape = shrunk(64, "assert x.shape[0] % 16 == 0", features=64)
    assert found == {"batch_size": [64, 16], "seq_len": [2048, 64]}
    assert shape == (16, 64, 64)


def test_a_large_result_makes_them_smaller_still():
    task = LoadedTask(FILE.format(batch=512, check="x = x.repeat(1, 250, 1)"))

    def run():
        with torch.device("meta"):
            return task.module.Model(*task.init_inputs())(*task.inputs()).nbytes

    assert shrink(task, ALL, run)["batch_size"] == [512, 4]
    assert run() <= CALL_BYTES


def test_too_many_operators_make_them_smaller_too():
    task = LoadedTask(FILE.format(batch=64, check="pass").replace("4096", "64"))

    def run():
        return math.inf if task.module.seq_len > 64 else 0

    assert shrink(task, ALL, run) == {"batch_size": [64, 4], "seq_len": [2048, 64]}


def test_few_inputs_that_make_much_work_are_fewer():
    text = FILE.format(batch=64, check="x = x.repeat(1, 1, 4000)").replace("4096", "1")
    task = LoadedTask(text)

    def run():
        with torch.device("meta"):
            return task.module.Model(*task.init_inputs())(*task.inputs()).nbytes

    assert run() > 4 * CALL_BYTES
    assert shrink(task, ALL, run)["batch_size"] == [64, 4]
    assert run() <= CALL_BYTES


def test_a_size_stays_from_where_on_the_model_does_not_take_its_half():
    check = "assert x.shape[1] >= 500; x = x.repeat(1, 2500, 1)"
    found, _ = shrunk(512, check, features=1)
    assert found == {"batch_size": [512, 4], "seq_len": [2048, 512]}


def test_few_elements_and_little_work_stay():
    task = LoadedTask(FILE.format(batch=1, check="pass").replace("4096", "64"))
    assert shrink(task, ALL, lambda: CALL_BYTES) == {}


def test_a_verdict_names_both_sizes(warm_judge):
    text = FILE.format(batch=512, check="pass")
    (verdict,) = warm_judge.run([Candidate("", text, PROGRAM)])
    assert verdict.status == "correct", verdict
    assert "smaller_sizes_only" in verdict.caveats
    assert verdict.evidence["smaller_sizes_only"]["sizes"]["seq_len"] == [2048, 4]
