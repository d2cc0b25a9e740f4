from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from curate.generate.models import load_model
from curate.train.memory import (
    MARGIN,
    DoesNotFit,
    Facts,
    check,
    estimate,
    model_facts,
)
from curate.train.options import TrainOptions

SMOLLM2 = Facts(
    parameters=134_515_008,
    linear=106_168_320,
    sides=30 * (4 * 576 + 2 * (576 + 192) + 3 * (576 + 1536)),
    layers=30,
    hidden=576,
    intermediate=1536,
    vocabulary=49152,
    query=576,
    context=8192,
)


def options(**changed: Any) -> TrainOptions:
    values: dict[str, Any] = {"method": "full", "batch_size": 4, "accumulation": 1}
    return TrainOptions("data", "model", Path("out"), **values | changed)


def needed(length: int = 1024, **changed: Any) -> Any:
    return estimate(SMOLLM2, options(**changed), length, "cpu")


def test_facts_are_those_of_the_model(tiny: str) -> None:
    facts, model = model_facts(tiny), load_model(tiny)
    assert facts.parameters == sum(weight.numel() for weight in model.parameters())
    layer = 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128
    assert facts.linear == 2 * layer
    assert facts.sides == 2 * (2 * (64 + 64) + 2 * (64 + 32) + 3 * (64 + 128))
    assert (facts.layers, facts.hidden, facts.intermediate) == (2, 64, 128)
    assert (facts.query, facts.vocabulary, facts.context) == (64, 512, 2048)


def test_all_weights_take_sixteen_bytes_each_in_float32() -> None:
    whole = needed()
    assert whole.parameters + whole.gradients + whole.optimizer == 16 * SMOLLM2.parameters
    assert whole.total == sum(dataclasses.astuple(whole))


def test_adapters_need_gradients_of_themselves_only() -> None:
    adapters = 8 * SMOLLM2.sides
    lora = needed(method="lora", lora_rank=8)
    assert lora.parameters == 4 * (SMOLLM2.parameters + adapters)
    assert lora.gradients == 4 * adapters and lora.optimizer == 8 * adapters
    assert needed(method="qlora", lora_rank=8).parameters < lora.parameters / 2


def test_activations_grow_with_what_is_read_and_fall_with_checkpointing() -> None:
    assert needed(batch_size=8).activations == 2 * needed().activations
    assert needed(2048).activations > 2 * needed().activations
    assert needed(checkpointing=False).activations > 5 * needed().activations


def test_activations_are_what_the_forward_pass_keeps(tiny: str) -> None:
    rows, length = 3, 256
    model = load_model(tiny, dtype="float32").train()
    own = {weight.data_ptr() for weight in model.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in own:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    padded = torch.ones(rows, length, dtype=torch.long)
    padded[0, 100:] = 0
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model.model(input_ids=padded, attention_mask=padded, use_cache=False)
    found = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    given = options(batch_size=rows, checkpointing=False)
    expected = estimate(model_facts(tiny), given, length, "cpu").activations
    assert expected == pytest.approx(found, rel=0.05)


def test_what_fits_passes() -> None:
    enough = int(needed().total * MARGIN) + 1
    assert check(SMOLLM2, options(), 1024, "cpu", enough) == needed()
    with pytest.raises(DoesNotFit):
        check(SMOLLM2, options(), 1024, "cpu", enough - 2)


@pytest.mark.parametrize(
    ("wanted", "way_out"),
    [
        ({"batch_size": 4}, r"--batch-size 4 --accumulation 2: about"),
        ({"batch_size": 1, "method": "lora"}, r"--batch-size 1 --method lora --accumulation 8"),
    ],
)
def test_what_does_not_fit_is_refused_with_options_that_do(
    wanted: dict[str, Any], way_out: str
) -> None:
    free = int(needed(**wanted).total * MARGIN) + 1
    with pytest.raises(DoesNotFit) as refused:
        check(SMOLLM2, options(batch_size=8), 1024, "cpu", free)
    said = str(refused.value)
    assert f"{free / 1e9:.2f} GB" in said and "logits" in said
    flags = said.partition("It fits with ")[2].partition(": about")[0].split(" --")
    expected = way_out.partition(":")[0].split(" --")
    assert {flag.strip("- ") for flag in flags} == {flag.strip("- ") for flag in expected}


def test_a_model_that_never_fits_is_refused_without_false_hope() -> None:
    with pytest.raises(DoesNotFit, match="choose a smaller model"):
        check(SMOLLM2, options(), 1024, "cpu", 1_000_000)
