"""What both kinds of training share: what came of one, its checkpoints, who speaks."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from curate.generate.models import default_dtype
from curate.train.options import TrainOptions

Say = Callable[[str], None]

CHECKPOINTS = "checkpoints"
ALL_OF_THEM = 10**9
"""Updates after which a thing that is to happen once, at the end, would happen again."""
PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate", "datasets")


@dataclass(frozen=True)
class Trained:
    """A finished training.

    Attributes:
        folder: where the model, its tokenizer and ``training.json`` are.
        record: what ``training.json`` holds.
    """

    folder: Path
    record: dict[str, Any]


def is_first() -> bool:
    """Say whether this is the process that speaks and writes, where several train together."""
    return os.environ.get("RANK", "0") == "0"


def save_model(trainer: Any, folder: Path) -> None:
    """Write a trainer's model and tokenizer, and nothing else."""
    trainer.save_model(str(folder))
    if is_first():
        for name in ("training_args.bin", "README.md"):  # a pickle, and an empty card of peft's
            (folder / name).unlink(missing_ok=True)


def say_nothing(line: str) -> None:
    """Say nothing: what the other processes do."""
    del line


def adapter(options: TrainOptions) -> Any:
    """Return adapters of every linear layer but the last (QLoRA, section 4)."""
    from peft import LoraConfig

    return LoraConfig(
        r=options.lora_rank,
        lora_alpha=options.lora_alpha,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )


def trainer_arguments(options: TrainOptions, device: str) -> dict[str, Any]:
    """Return the options that both of TRL's trainers take, by TRL's names."""
    return {
        "output_dir": str(options.output / CHECKPOINTS),
        "num_train_epochs": options.epochs,
        "max_steps": options.max_steps or -1,
        "per_device_train_batch_size": options.batch_size,
        "gradient_accumulation_steps": options.accumulation,
        "learning_rate": options.rate,
        "lr_scheduler_type": "cosine",
        "warmup_steps": 0.03,
        "gradient_checkpointing": options.checkpointing,
        "use_cpu": device == "cpu",
        "bf16": default_dtype(device) == "bfloat16",
        "save_strategy": "steps",
        "save_steps": 1 / options.evaluations if options.evaluations > 1 else ALL_OF_THEM,
        "save_total_limit": 1,
        "seed": options.seed,
        "report_to": "none",
        "disable_tqdm": True,
    }


def last_checkpoint(folder: Path) -> Path | None:
    """Return the last checkpoint in a folder that was written whole; None if there is none."""
    whole = (state.parent for state in folder.glob("checkpoint-*/trainer_state.json"))
    return max(whole, key=update_of, default=None)


def update_of(checkpoint: Path) -> int:
    """Return the update after which a checkpoint was written."""
    return int(checkpoint.name.rpartition("-")[2])


def environment(device: str) -> dict[str, Any]:
    """Return the versions that a record names, and the device."""
    import torch

    versions = {name: version(name) for name in PACKAGES}
    return {
        "versions": versions | {"python": platform.python_version()},
        "device": "cpu" if device == "cpu" else torch.cuda.get_device_name(device),
    }
