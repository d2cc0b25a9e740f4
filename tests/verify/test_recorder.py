"""What a run did, as the recorder saw it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from curate.verify.recorder import SAMPLE, Recorder, TensorFingerprint, is_compute, sample

ROOT = Path(__file__).parents[2]
torch.set_num_threads(1)

# --- what computes --------------------------------------------------------------------------

COMPUTES = {
    "add": lambda x: x + 1,
    "in place": lambda x: x.mul_(2),
    "matmul": lambda x: x @ x,
    "softmax": lambda x: x.softmax(0),
    "comparison": lambda x: x > 0,
    "sum": lambda x: x.sum(),
    "gather": lambda x: x.take(torch.zeros(1, dtype=torch.long)),
    "concatenation": lambda x: torch.cat([x, x]),
    "where": lambda x: torch.where(x > 0, x, -x),
    "random": lambda x: torch.rand_like(x),
    "linear": lambda x: torch.nn.functional.linear(x, x),
}
MOVES = {
    "allocation": lambda x: torch.empty_like(x),
    "zeros": lambda x: torch.zeros(3, 3),
    "constant": lambda x: torch.full((3,), 2.0),
    "view": lambda x: x.view(-1)[2:].unsqueeze(0),
    "transpose": lambda x: x.t(),
    "copy": lambda x: x.t().contiguous(),
    "clone": lambda x: x.clone(),
    "copy into": lambda x: torch.empty(4, 4).copy_(x),
    "conversion": lambda x: x.half().float(),
    "expansion": lambda x: x[:1].expand(4, 4),
    "number": lambda x: x[0, 0].item(),
    "range": lambda x: torch.arange(5),
    "fill": lambda x: x.fill_(3),
}


@pytest.mark.parametrize("name", COMPUTES)
def test_operators_that_compute_are_counted(name: str) -> None:
    with Recorder() as recorder:
        COMPUTES[name](torch.ones(4, 4))
    assert recorder.calls and recorder.call_bytes


@pytest.mark.parametrize("name", MOVES)
def test_operators_that_move_are_not(name: str) -> None:
    with Recorder() as recorder:
        MOVES[name](torch.ones(4, 4))
    assert (recorder.calls, recorder.call_bytes) == ({}, 0)


def test_an_operator_of_another_library_computes() -> None:
    library = torch.library.Library("curate_test", "DEF")
    library.define("alias_of(Tensor(a) x) -> Tensor(a)")
    assert is_compute(torch.ops.curate_test.alias_of.default)


def test_bytes_are_those_of_arguments_and_results() -> None:
    with Recorder() as recorder:
        torch.add(torch.ones(10), torch.ones(10))
        torch.add(torch.ones(10), torch.ones(10), alpha=2)
        torch.cat([torch.ones(5), torch.ones(5)])
    assert recorder.calls == {"add": 2, "cat": 1}
    assert recorder.call_bytes == 4 * (30 + 30 + 20)


# --- fingerprints ---------------------------------------------------------------------------

X = torch.randn(50, 40, generator=torch.Generator().manual_seed(0))


def matches(one: torch.Tensor, other: torch.Tensor) -> bool:
    prints = TensorFingerprint.of(one), TensorFingerprint.of(other)
    assert prints[0] and prints[1]
    return prints[0].matches(prints[1])


def test_a_fingerprint_knows_values_in_any_order_and_shape() -> None:
    for other in (X.t(), X.reshape(-1), X.flip(0), X.double(), X.reshape(-1)[torch.randperm(2000)]):
        assert matches(X, other)


def test_a_fingerprint_tells_other_values_apart() -> None:
    changed = X.clone()
    changed[3, 4] += 1
    for other in (X + 0.001, -X, X * 1.01, X[:49], changed, X.abs()):
        assert not matches(X, other)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(0),
        torch.ones(1),
        torch.ones(9),
        torch.tensor([1.0, float("nan")]),
        torch.tensor([1.0, float("inf")]),
        torch.ones(3, dtype=torch.complex64),
    ],
    ids=["empty", "single", "constant", "NaN", "infinite", "complex"],
)
def test_values_that_say_nothing_have_no_fingerprint(tensor: torch.Tensor) -> None:
    assert TensorFingerprint.of(tensor) is None


def test_a_sample_is_small_spread_and_a_copy() -> None:
    tensor = torch.arange(100_000.0)
    taken = sample(tensor)
    assert len(taken) == SAMPLE and float(taken[-1]) > 90_000
    tensor.zero_()
    assert taken.any()
    assert sample(torch.tensor(3.0)).tolist() == [3.0]
    assert sample(torch.zeros(0, 3)).tolist() == []


# --- results that were there already --------------------------------------------------------


class Kernel:
    __name__ = "kernel"


def launched(recorder: Recorder, *arguments: Any) -> None:
    with recorder.launch(Kernel(), arguments):
        pass


def test_an_output_was_called_if_an_operator_gave_it() -> None:
    with Recorder() as recorder:
        y = X.softmax(1)
        z = torch.empty_like(y).copy_(y)
    assert recorder.was_called(y) and recorder.was_called(z)
    assert not recorder.was_called(X)
    assert not recorder.was_called(y.reshape(40, 50)) and not recorder.was_called(y.double())
    assert not recorder.was_called(y + 1e-3)


def test_an_output_was_called_also_with_nan() -> None:
    with Recorder() as recorder:
        y = (X - 0.5).log()
    assert y.isnan().any() and recorder.was_called(y.clone())


def test_an_output_was_called_though_it_was_changed_since() -> None:
    with Recorder() as recorder:
        y = X + 1
        before = y.clone()
        y.zero_()
    assert recorder.was_called(before)


def test_an_output_was_ready_if_a_kernel_was_given_its_values() -> None:
    with Recorder([X]) as recorder:
        y = X.softmax(1)
        launched(recorder, y, torch.zeros_like(y), y.numel())
    assert recorder.launches == {"kernel": 1}
    assert recorder.launch_bytes == 2 * 4 * X.numel()
    assert recorder.was_ready(y.t().contiguous())
    assert not recorder.was_ready(X + 1)


def test_inputs_and_what_other_kernels_wrote_were_not_ready() -> None:
    with Recorder([X]) as recorder:
        y = torch.zeros_like(X)
        launched(recorder, X, y)
        y.copy_(X * 2)  # as a kernel would
        launched(recorder, y[:], torch.zeros_like(y))
    assert not recorder.was_ready(y) and not recorder.was_ready(X)


def test_an_output_was_scaled_if_a_number_makes_it_of_an_argument() -> None:
    with Recorder([X]) as recorder:
        y = X.softmax(1)
        launched(recorder, y)
    assert recorder.was_scaled(y * 3) and recorder.was_scaled(1 - y / 2)
    assert not recorder.was_scaled(y.square()) and not recorder.was_scaled(X)
    assert not recorder.was_scaled(y[:25])
    assert not recorder.was_scaled(torch.ones_like(y))


def test_launches_that_raise_are_kept() -> None:
    recorder = Recorder()
    with pytest.raises(ValueError), recorder.launch(Kernel(), ()):
        raise ValueError("no such block")
    assert recorder.launches == {"kernel": 1}
    assert [str(error) for error in recorder.failed] == ["no such block"]
