from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from witness import Draw, Invalid, _difference, _Guarded, _rounding


@pytest.mark.parametrize("place", [-1, 6])
def test_a_write_beside_a_tensor_is_found(place: int) -> None:
    memory = _Guarded()
    with memory.allocating():
        out = torch.empty((2, 3), dtype=torch.float16)
        torch.zeros_like(out)
    assert bool(out.isnan().all())
    out.fill_(1)
    memory.check()
    out.as_strided((1,), (1,), out.storage_offset() + place).fill_(1)
    with pytest.raises(Invalid):
        memory.check()
    assert torch.zeros(3).untyped_storage().nbytes() == 12


def draw_for(own: torch.Tensor, exact: torch.Tensor, original: torch.Tensor) -> Draw:
    rounding = _rounding(own, exact, original)
    return Draw("", True, False, [], {}, [(own, exact, original, rounding)])


def test_rounding_is_no_fault_and_more_is() -> None:
    exact = torch.linspace(1, 2, 100, dtype=torch.float64)
    own = exact.float()
    draw = draw_for(own, exact, own)
    assert not _difference([own * (1 + 2**-23)], draw)
    assert _difference([own.bfloat16().float()], draw)
    one_wrong = own.clone()
    one_wrong[7] += 1e-5
    assert "1.00% of the output" in _difference([one_wrong], draw)
    assert _difference([own.half()], draw)
    assert _difference([own[1:]], draw)


def test_infinities_and_integers_must_be_the_original_s() -> None:
    own = torch.tensor([1.0, float("inf"), float("nan")])
    draw = draw_for(own, own.double(), own)
    assert not _difference([own.clone()], draw)
    assert _difference([torch.tensor([1.0, float("-inf"), float("nan")])], draw)
    assert _difference([torch.tensor([float("inf"), float("inf"), float("nan")])], draw)
    counts = torch.tensor([3, 4])
    assert _difference([counts + 1], draw_for(counts, counts, counts))


def test_a_draw_on_which_the_original_is_wrong_teaches_nothing() -> None:
    exact = torch.ones(4, dtype=torch.float64)
    assert _rounding(exact.float(), exact, exact.float() + 0.1) is None
