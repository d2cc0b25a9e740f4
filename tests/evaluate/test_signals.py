from __future__ import annotations

import pytest

from curate.evaluate.signals import has_masked_store, signals, token_overlap

STORE = "tl.store(p + tl.arange(0, B), x{})"


def test_a_store_is_masked_by_its_own_argument() -> None:
    assert has_masked_store(STORE.format(", mask=m"))
    assert not has_masked_store(STORE.format("") + "\ntl.load(p, mask=m)")
    assert has_masked_store(STORE.format("") + "\n" + STORE.format(", mask = i < (n)"))
    assert not has_masked_store("tl.store(p, x")  # cut


def test_signals_are_shares_of_all_answers_and_overlap_of_those_with_a_right_one() -> None:
    kernel = "@triton.jit\ndef k(p):\n    tl.load(p)\n"
    assert signals([(kernel, kernel), (None, kernel), ("x = 1", None), ("y", None)]) == {
        "triton_jit": 0.25,
        "tl_load": 0.25,
        "masked_store": 0.0,
        "token_overlap": 0.5,
    }
    assert signals([("x", None)])["token_overlap"] is None


def test_overlap_is_of_sets_of_tokens() -> None:
    assert token_overlap("a + b", "b  +  a + a") == 1
    assert token_overlap("a b", "b c") == pytest.approx(1 / 3)
    assert token_overlap("", "a") == 0
