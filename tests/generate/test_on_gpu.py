"""Answers on a GPU: the same in batches of any size and token by token.

Run on a GPU node, which has no more than torch and transformers:

    PYTHONPATH=. pytest --noconftest -m gpu tests/generate/test_on_gpu.py
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny import make_tiny_model

from curate.generate.decode import Decoder, Request
from curate.generate.models import load_model, load_tokenizer
from curate.generate.sampling import Sampling

REQUESTS = {i: Request(list(range(3, 4 + i % 5)), seed=i) for i in range(40)}
SAMPLING = Sampling(n=1, max_tokens=300)


@pytest.mark.gpu
def test_an_answer_does_not_depend_on_its_batch(tmp_path: Path) -> None:
    folder = str(make_tiny_model(tmp_path / "tiny"))
    decoder = Decoder(load_model(folder, dtype="float64"), load_tokenizer(folder))
    found = dict(decoder.run(REQUESTS, SAMPLING))
    assert len({tuple(tokens or ()) for tokens in found.values()}) > 30
    decoder.batch = 7
    assert dict(decoder.run(REQUESTS, SAMPLING)) == found
    assert list(decoder.steps(REQUESTS[3], SAMPLING))[-1] == found[3]
