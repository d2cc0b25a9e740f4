"""Recurrent layers as a loop of launches: judged on the CPU, and read."""

import re

import pytest
from shared_judge import not_correct

from curate.generator.generate import generate
from curate.generator.unprintable import Unprintable
from curate.verify import Candidate

pytest_plugins = ["shared_judge"]

REFERENCE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.layer = nn.{layer}
        self.last = nn.Linear(hidden, 5)

    def forward(self, {names}):
        {body}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return [6, 20]
"""


def reference(layer, body, states=0, tail=""):
    x = "torch.randn(2, 3, 6)"
    given = [x, *["torch.randn({}, {}, 20)".format(*_state(layer))] * states]
    return REFERENCE.format(
        layer=layer.replace("(", "(width, hidden, ").replace(", )", ")") + tail,
        names=", ".join(["x", "h0", "c0"][: 1 + states]),
        body=body.replace("\n", "\n        "),
        inputs=", ".join(text + tail for text in given),
    )


def _state(layer):
    count = (2 if "num_layers=2" in layer else 1) * (2 if "bidirectional" in layer else 1)
    return count, 2 if "batch_first" in layer else 3


CASES = {
    "lstm": reference("LSTM()", "return self.layer(x)"),
    "lstm, given": reference(
        "LSTM(num_layers=2, bidirectional=True)", "return self.layer(x, (h0, c0))", 2
    ),
    "cells": reference("LSTM(bias=False)", "return self.layer(x, (h0, c0))[1][1]", 2),
    "gru": reference(
        "GRU(num_layers=2, bidirectional=True, batch_first=True)", "return self.layer(x, h0)[1]", 1
    ),
    "gru, last": reference(
        "GRU(batch_first=True)", "out, _ = self.layer(x)\nreturn self.last(out[:, -1, :])"
    ),
    "rnn": reference("RNN(batch_first=True)", "return self.layer(x)"),
    "relu": reference("RNN(nonlinearity='relu')", "return self.layer(x, h0)", 1),
    "half": reference("LSTM()", "return self.layer(x)[0]", tail=".half()"),
    "bfloat16": reference("GRU()", "return self.layer(x)[0]", tail=".bfloat16()"),
}


@pytest.fixture(scope="module")
def programs():
    return {name: generate(text).text for name, text in CASES.items()}


def test_they_are_right(programs, warm_judge):
    candidates = [Candidate(name, CASES[name], text) for name, text in programs.items()]
    assert not not_correct(warm_judge.run(candidates))


def test_each_direction_of_a_layer_is_one_loop_whose_length_is_open(programs):
    lengths = {"lstm": 1, "lstm, given": 4, "gru": 4, "rnn": 1}
    for name, count in lengths.items():
        assert programs[name].count("for step in ") == count, name
        assert len(re.findall(r"range\((\w*len\w*)\)", programs[name])) == count, name
    assert programs["lstm, given"].count("for step in reversed(") == 2


def test_steps_of_all_layers_are_launches_of_one_kernel(programs):
    assert programs["lstm, given"].count("step_kernel[grid](") == 4
    assert programs["lstm, given"].count("step_kernel(") == 1


def test_the_input_is_multiplied_for_all_steps_before_the_loop(programs):
    forward = programs["gru"].partition("def forward(")[2]
    # Four products, four loops, and the states of all layers as one tensor.
    assert len(re.findall(r"_kernel\w*\[grid\]\(", forward)) == 9
    assert forward.count("seq_len * batch") + forward.count("batch * seq_len") >= 4


def test_the_first_state_is_given_or_zeros(programs):
    assert programs["lstm"].count("torch.zeros(") == 2
    assert "torch.zeros(" not in programs["lstm, given"]
    assert "h, c = (h0[3], c0[3])" in programs["lstm, given"]


def test_a_projection_of_the_state_is_refused():
    with pytest.raises(Unprintable, match="projection"):
        generate(reference("LSTM(proj_size=7)", "return self.layer(x)[0]"))


def test_a_share_of_dropout_leaves_sizes_open():
    text = CASES["gru, last"].replace("batch_first", "dropout=rate, num_layers=2, batch_first")
    text = text.replace("width, hidden):", "width, hidden, rate):").replace(
        "[6, 20]", "[6, 20, 0.1]"
    )
    assert "written for" not in generate(text).text.replace("written for rate", "")
