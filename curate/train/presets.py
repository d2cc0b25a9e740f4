"""Settings that go together, by name."""

from __future__ import annotations

from typing import Any

PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "qlora": {
        "method": "qlora",
        "lora_rank": 32,
        "lora_alpha": 32,
        "learning_rate": 1e-4,
        "batch_size": 1,
        "accumulation": 16,
        "max_length": 1024,
        "truncate": True,
    },
    "full": {"method": "full", "epochs": 10.0, "batch_size": 32, "accumulation": 1},
}
"""What a preset sets; everything else is as `curate.train.options.TrainOptions` has it.

``qlora`` and ``full`` are the settings of two projects that this one grew out of. The first cuts
rows at 1,024 tokens, which leaves many kernels without their end; how many, the run says.
"""


def with_preset(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a preset, with those that were given in place of the preset's."""
    return PRESETS[name] | given
