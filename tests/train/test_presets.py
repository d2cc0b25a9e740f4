from __future__ import annotations

from pathlib import Path

import pytest

from curate.train.options import TrainOptions
from curate.train.presets import PRESETS, with_preset


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_made_of_options(name: str) -> None:
    TrainOptions("data", "model", Path("out"), **PRESETS[name])


def test_what_is_given_counts_more_than_the_preset() -> None:
    values = with_preset("qlora", {"max_length": 4096})
    assert values["max_length"] == 4096
    assert (values["lora_rank"], values["lora_alpha"], values["accumulation"]) == (32, 32, 16)
    assert PRESETS["qlora"]["max_length"] == 1024, "the preset itself stays as it is"


@pytest.mark.parametrize(
    "wrong", [{"epochs": 0}, {"batch_size": -1}, {"method": "sgd"}, {"max_steps": 0}]
)
def test_values_that_mean_nothing_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        TrainOptions("data", "model", Path("out"), **wrong)  # type: ignore[arg-type]


def test_the_learning_rate_suits_the_method() -> None:
    def rate(**given: object) -> float:
        return TrainOptions("data", "model", Path("out"), **given).rate  # type: ignore[arg-type]

    assert rate(method="full") < rate(method="lora")
    assert rate(method="full", learning_rate=0.5) == 0.5
