"""Problems get the sizes of their users, and some of them 16-bit types."""

import pytest

from curate.harvest import scale
from curate.harvest.scale import enlarged, in_16_bits
from curate.problem.problem import LoadedTask

FILE = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, 64)

    def forward(self, x):
        {body}


batch_size = 4
seq_len = 100
features = 32


def get_inputs():
    return [torch.rand(batch_size, seq_len, features,), torch.ones(2)][:1]


def get_init_inputs():
    return [features]
"""
LINEAR = FILE.format(body="return self.linear(x)")


def shape(reference):
    (x,) = LoadedTask(reference).inputs()
    return tuple(x.shape)


def test_sizes_of_the_inputs_are_doubled_in_turn():
    big = enlarged(LINEAR, 2**22)
    assert "features = 32" in big
    batch, length, features = shape(big)
    assert 2**21 < batch * length * features <= 2**22
    assert batch <= 256 and length % 100 == 0


def test_a_result_that_fills_memory_stops_it():
    pairs = FILE.format(body="return torch.cdist(x, x)")
    batch, length, _ = shape(enlarged(pairs, 2**26))
    assert batch * length**2 * 4 <= 2**33
    assert batch * length > 400


def test_a_recurrence_stays_short(monkeypatch):
    monkeypatch.setattr(scale, "MOST_CALLS", 2**12)
    steps = """for step in range(x.shape[1]):
            for _ in range(10):
                x = x * 0.9
        return x"""
    _, length, _ = shape(enlarged(FILE.format(body=steps), 2**26))
    assert 2**11 < 10 * length <= 2**12


@pytest.mark.parametrize("body", ["assert len(x) == 4; return x", "return x / len(missing)"])
def test_what_the_module_does_not_take_is_undone(body):
    assert shape(enlarged(FILE.format(body=body), 2**24))[0] == 4


def test_inputs_and_parameters_become_bfloat16():
    text = in_16_bits(LINEAR, "bfloat16")
    assert "torch.rand(batch_size, seq_len, features, dtype=torch.bfloat16)" in text
    task = LoadedTask(text)
    (x,), model = task.inputs(), task.build(0, task.init_inputs())
    assert str(model(x).dtype) == str(model.linear.weight.dtype) == "torch.bfloat16"


def test_a_file_that_names_a_type_keeps_it():
    assert in_16_bits(FILE.format(body="return x.to(dtype=torch.float64)"), "bfloat16") is None
    assert in_16_bits(LINEAR.replace("torch.rand(", "torch.normal(0.0, "), "bfloat16") is None
