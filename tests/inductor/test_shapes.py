import ast

import pytest
import torch

from curate.generator.text.layout import text
from curate.inductor.shapes import Layout, view


def expressions(items):
    return tuple(ast.parse(str(item), mode="eval").body for item in items)


def written(have, size, stride, offset=0):
    """Return the view's source text, `base` being laid out as ``have``."""
    layout = Layout(*map(expressions, have)) if have else None
    want = Layout(expressions(size), expressions(stride))
    return text(view(ast.Name("base"), layout, want, ast.Constant(offset)))


DENSE = ((4, 6), (6, 1))
CASES = [
    (DENSE, (4, 6), (6, 1), 0, "base"),
    (DENSE, (6, 4), (1, 6), 0, "base.t()"),
    (DENSE, (2, 12), (12, 1), 0, "base.view(2, 12)"),
    (DENSE, (3, 4, 2), (2, 6, 1), 0, "base.view(4, 3, 2).transpose(0, 1)"),
    (DENSE, (4, 2), (6, 1), 3, "base.narrow(1, 3, 2)"),
    (DENSE, (2, 6), (6, 1), 12, "base.narrow(0, 2, 2)"),
    (DENSE, (4, 3), (6, 2), 1, "torch.as_strided(base, (4, 3), (6, 2), base.storage_offset() + 1)"),
    (((6,), (1,)), (4, 6), (0, 1), 0, "base.expand(4, 6)"),
    (None, (6, 4), (1, 6), 0, "torch.as_strided(base, (6, 4), (1, 6))"),
]


@pytest.mark.parametrize(("have", "size", "stride", "offset", "source"), CASES)
def test_view_is_written_plainly_and_means_the_same(have, size, stride, offset, source):
    assert written(have, size, stride, offset) == source
    storage = torch.arange(24)
    shape, steps = have or DENSE
    base = torch.as_strided(storage, shape, steps)
    found = eval(source, {"base": base, "torch": torch})
    assert torch.equal(found, torch.as_strided(storage, size, stride, offset))


def test_symbols_are_compared_by_meaning():
    have = (("s0", "3", "s1"), ("3*s1", "s1", "1"))
    assert written(have, ("3*s0", "s1"), ("s1", "1")) == "base.view(3 * s0, s1)"
    assert written(have, ("s0", "s1", "3"), ("3*s1", "1", "s1")) == "base.transpose(1, 2)"
    assert written(have, ("s0", "s1"), ("s1", "1")).startswith("torch.as_strided")


def test_dimensions_of_size_one_may_have_any_stride():
    assert Layout(expressions((1, 8, 1)), expressions((8, 1, 8))).is_contiguous
    assert not Layout(expressions((2, 8)), expressions((1, 2))).is_contiguous
