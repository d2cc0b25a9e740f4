"""Forwards that return gradients: printed, and judged on the CPU."""

import re

from shared_judge import not_correct

from curate.generator.generate import generate
from curate.harvest.backward import gradients
from curate.verify import Candidate

pytest_plugins = ["shared_judge"]

FILE = """from collections import OrderedDict

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.layer = {layer}

    def forward(self, x):
        return self.layer(x) * x.mean()


batch_size = 4
size = 12


def get_inputs():
    return [torch.rand({shape})]


def get_init_inputs():
    return [24]
"""
ROWS, IMAGES = "batch_size, size, 24", "batch_size, 8, size, 14"
CASES = {
    "a product and a norm": (
        "nn.Sequential(nn.LayerNorm(channels), nn.Linear(channels, 40), nn.GELU())",
        ROWS,
    ),
    "names that are no identifiers": (
        "nn.Sequential(OrderedDict({'layer 0': nn.Linear(channels, 40), 'class': nn.Tanh()}))",
        ROWS,
    ),
    "strided convolution": ("nn.Conv2d(8, channels, 3, stride=2, padding=1)", IMAGES),
    "transposed convolution": ("nn.ConvTranspose2d(8, channels, 4, 2, 1)", IMAGES),
}


ONE_PIXEL = """import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.layer = nn.Conv2d(channels, 24, 1)

    def forward(self, x):
        y = torch.relu(self.layer(self.pool(x)))
        return F.interpolate(y, size=x.shape[-2:], mode="bilinear")


batch_size = 4
size = 12


def get_inputs():
    return [torch.rand(batch_size, 24, size, 14)]


def get_init_inputs():
    return [24]
"""


def test_what_a_tile_adds_at_one_place_is_summed_first(warm_judge):
    reference = gradients(ONE_PIXEL, "Block", 60)
    text = generate(reference).text
    assert re.search(r"tl\.sum\(tl\.where\(row_mask, \w+, 0\), axis=0, keep_dims=True\)", text)
    assert not not_correct(warm_judge.run([Candidate("one pixel", reference, text)]))


def test_programs_are_right(warm_judge):
    candidates = []
    for name, (layer, shape) in CASES.items():
        reference = gradients(FILE.format(layer=layer, shape=shape), "Block", 60)
        candidates.append(Candidate(name, reference, generate(reference).text))
    assert not not_correct(warm_judge.run(candidates))


ATTENTION = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.to_qkv = nn.Linear(width, 3 * width, bias=False)
        self.to_out = nn.Linear(width, width, bias=False)

    def forward(self, x):
        q, k, v = (
            t.unflatten(2, (self.heads, -1)).transpose(1, 2)
            for t in self.to_qkv(x).chunk(3, dim=-1)
        )
        attn = (q @ k.transpose(-2, -1)).softmax(-1)
        return self.to_out((attn @ v).transpose(1, 2).flatten(2))


batch_size = 2
length = 20


def get_inputs():
    return [torch.rand(batch_size, length, 48)]


def get_init_inputs():
    return [48, 3]
"""


def test_products_read_and_write_heads_where_they_lie(warm_judge):
    """Of an attention whose weights the gradient needs, nothing is copied in another order."""
    reference = gradients(ATTENTION, "Attention", 60)
    text = generate(reference).text
    assert "operand" not in text
    assert ("batch // heads * M" in text) and "copy" not in text.lower()
    assert not not_correct(warm_judge.run([Candidate("attention", reference, text)]))


def test_docstrings_speak_of_gradients():
    layer, shape = CASES["strided convolution"]
    text = generate(gradients(FILE.format(layer=layer, shape=shape), "Block", 60)).text
    assert "ackpropagate through " in text and "autograd" not in text.partition("class Model")[0]
    assert re.search(r"def \w*grad\w*_kernel", text)
    assert "return x_grad\n" in text
