"""What tracing takes for granted, said as a person would."""

import pytest
import sympy
from test_generator import printed

from curate.generator import torch_private as private
from curate.generator.generate import generate
from curate.generator.promises.guards import needed

WIDTH, HALF, BATCH = sympy.symbols("width half batch", integer=True, positive=True)
NUMBER = sympy.Symbol("number", integer=True)
EVEN = sympy.Eq(private.Mod(WIDTH, 2), 0)


def half(size):
    return private.FloorDiv(size, 2)


@pytest.mark.parametrize(
    ("guards", "plain"),
    [
        # chunk(2) of what is split
        (
            [sympy.Eq(half(WIDTH + 1), HALF), sympy.Eq(half(WIDTH), HALF)],
            [sympy.Eq(WIDTH, 2 * HALF)],
        ),
        ([sympy.Eq(2 * half(WIDTH), WIDTH), sympy.Ne(half(WIDTH), WIDTH)], [EVEN]),
        ([sympy.Eq(BATCH * WIDTH, BATCH * 2 * half(WIDTH))], [EVEN]),
        # only together
        ([sympy.Eq(half(WIDTH), HALF)], [sympy.Eq(half(WIDTH), HALF)]),
        # true of every size, but not of every number
        ([sympy.Gt(WIDTH, 0), sympy.Lt(half(WIDTH), WIDTH)], []),
        ([sympy.Gt(NUMBER, 0)], [sympy.Gt(NUMBER, 0)]),
        ([sympy.Ne(NUMBER, 1)], [sympy.Ne(NUMBER, 1)]),
        ([sympy.Ne(WIDTH, 1)], []),
        ([sympy.Ge(WIDTH, 4)], [sympy.Ge(WIDTH, 4)]),
        # a contradiction is no reason to leave anything out
        ([sympy.Gt(WIDTH, 9), sympy.Lt(WIDTH, 3)], [sympy.Lt(WIDTH, 3), sympy.Gt(WIDTH, 9)]),
    ],
)
def test_guards_are_said_plainly(guards, plain):
    found = needed(guards, {WIDTH, HALF, BATCH})
    assert set(found) == set(plain)


def test_an_argument_that_is_one_is_not_taken_for_a_size():
    assert needed([sympy.Ne(WIDTH, 1)], set()) == [sympy.Ne(WIDTH, 1)]


def test_a_program_asserts_what_its_module_needs():
    text = printed("a, b = x.chunk(2, -1); return a * torch.sigmoid(b)").text
    assert text.count("assert") == 3  # a rank, a type, and
    assert "assert width % 2 == 0" in text


def test_conditions_that_always_hold_are_not_asked():
    planes = "torch.randn(batch, width, 7, 9)"
    text = printed("return F.avg_pool2d(x, 3, 1, 1)", planes).text
    assert "cols >= 1" in text
    assert "& (cols >= 0)" not in text
    assert "1 >= 0" not in text.replace("cols - 1 >= 0", "")
    text = printed("return F.pad(x, (1, 0))").text
    assert "mask=row_mask & col_mask & (cols >= 1)" in text


def test_factors_whose_products_are_summed_agree_in_each_dimension():
    given = "torch.randn(6, 7), torch.randn(3, 6, 5), torch.randn(3, 5, 7)"
    text = printed("return torch.addbmm(x, y, z)", given, "x, y, z").text
    assert "z.dim()" not in text  # nothing of its shape is its own


def test_sizes_of_a_fixed_product_are_fixed():
    body = "assert x.shape[2] * x.shape[3] == 63; return x.flatten(1).sin()"
    text = printed(body, "torch.randn(batch, width, 7, 9)").text
    assert "7, 9)" in next(line for line in text.splitlines() if "assert x.shape" in line)


def test_nothing_is_asked_of_sizes_that_are_counted_together():
    text = printed("return torch.einsum('bi,bj->bij', x, x).flatten(1)").text
    assert not [line for line in text.splitlines() if "assert" in line and "*" in line]


WINDOW = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, window=6):
        super().__init__()
        self.window = window

    def forward(self, x):
        if x.shape[1] == self.window:
            return x.exp().sum(1)
        return x.exp().mean(1)

def get_inputs():
    return [torch.randn(8, {size}, 40)]

def get_init_inputs():
    return [6]
"""


def test_a_size_that_a_branch_has_made_an_attribute_is_checked():
    text = generate(WINDOW.format(size=6)).text
    assert "== self.window" in text
    other = generate(WINDOW.format(size=5)).text
    assert "== self.window" not in other and "self.window" in other  # they differ
