"""Products of float16 on a CPU, done in float32."""

import pytest
import torch

from curate.problem.half import HalfInFloat32
from curate.problem.operator_calls import OperatorCalls

MODULES = [
    (torch.nn.Linear(7, 5), (3, 7)),
    (torch.nn.Conv2d(4, 6, 3, padding=1), (2, 4, 8, 8)),
    (torch.nn.ConvTranspose1d(4, 6, 3, groups=2), (2, 4, 9)),
]


@pytest.mark.parametrize(("module", "shape"), MODULES, ids=lambda one: type(one).__name__)
def test_results_are_float16_and_those_of_float32_rounded_once(module, shape):
    with torch.no_grad():
        half = module.half()
        x = torch.rand(shape).half()
        with HalfInFloat32():
            found = half(x)
        assert found.dtype == torch.float16
        assert torch.equal(found, module.float()(x.float()).half())


def test_types_that_do_not_fit_are_refused_as_without_it():
    with HalfInFloat32(), pytest.raises(RuntimeError, match="dtype"):
        torch.rand(2, 2).half() @ torch.rand(2, 2)


def test_what_is_counted_is_what_was_called():
    with HalfInFloat32(), OperatorCalls() as called:
        torch.rand(2, 2).half() @ torch.rand(2, 2).half()
    assert [call for call in called.calls if call.endswith("mm")]


def test_what_does_not_fit_float16_is_infinite():
    large = torch.full((1, 2), 6e4, dtype=torch.float16)
    with HalfInFloat32():
        assert (large @ large.T).isinf().all()
