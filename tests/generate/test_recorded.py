"""Answers on a GPU, where the model's kernels are recorded and replayed: the same as without.

Run on a GPU node, which has no more than torch and transformers:

    PYTHONPATH=. pytest --noconftest -m gpu tests/generate/test_recorded.py
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import make_tiny_model

from curate.generate.decode import Decoder, Request
from curate.generate.models import load_model, load_tokenizer
from curate.generate.sampling import Sampling

pytestmark = pytest.mark.gpu

REQUESTS = {i: Request(list(range(3, 4 + i % 5)), seed=i) for i in range(40)}
SAMPLING = Sampling(n=1, max_tokens=300)


@pytest.fixture
def decoder(tmp_path: Path) -> Decoder:
    folder = str(make_tiny_model(tmp_path / "tiny"))
    return Decoder(load_model(folder, dtype="float64"), load_tokenizer(folder))


def test_replayed_answers_are_those_of_the_model(decoder: Decoder) -> None:
    assert decoder.records
    replayed = dict(decoder.run(REQUESTS, SAMPLING))
    assert decoder.records  # it could be
    decoder.records = False
    assert dict(decoder.run(REQUESTS, SAMPLING)) == replayed
    assert len({tuple(tokens or ()) for tokens in replayed.values()}) > 30


def test_new_weights_are_read_by_the_next_batch(decoder: Decoder) -> None:
    before = dict(decoder.run(REQUESTS, SAMPLING))
    with torch.no_grad():
        for weight in decoder.model.parameters():
            weight.mul_(1.5)
    after = dict(decoder.run(REQUESTS, SAMPLING))
    decoder.records = False
    assert dict(decoder.run(REQUESTS, SAMPLING)) == after != before


def test_a_model_that_looks_at_values_is_not_recorded(
    decoder: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = dict(decoder.run(REQUESTS, SAMPLING))
    layer: Any = decoder.model.model.layers[0].mlp
    forward: Callable[[torch.Tensor], torch.Tensor] = layer.forward

    def looks(states: torch.Tensor) -> torch.Tensor:
        return forward(states) if states.sum().item() != 0.5 else states

    monkeypatch.setattr(layer, "forward", looks)
    assert dict(decoder.run(REQUESTS, SAMPLING)) == expected
    assert not decoder.records
