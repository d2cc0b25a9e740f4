"""The options of `curate train`."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curate.flags import option

METHODS = ("full", "lora", "qlora", "grpo")
"""What is trained: all weights, low-rank adapters (Hu et al. 2021, https://arxiv.org/abs/2106.09685)
of weights as they are or in four bits (Dettmers et al. 2023, https://arxiv.org/abs/2305.14314), or
all weights by reward (GRPO, Shao et al. 2024, https://arxiv.org/abs/2402.03300)."""


@dataclass(frozen=True)
class TrainOptions:
    """How to train. What a field means is its ``help``, which the command line prints.

    Raises:
        ValueError: a value is not allowed; the message says which are.
    """

    dataset: str
    model: str
    output: Path
    config: str = option("messages", "View of the data set: messages, conversion or fim.")
    data: str = option(
        "output",
        "Folder that `curate run` wrote to, where the data set of a recipe is found.",
        metavar="DIR",
    )
    method: str = option(
        "lora",
        "full trains all weights, lora adapters, qlora adapters of 4-bit weights; grpo is "
        "reinforcement learning with the judge's reward.",
        choices=METHODS,
    )
    epochs: float = option(3.0, "Passes over the data.", metavar="N")
    max_steps: int | None = option(
        None, "Stop after this many updates, whatever --epochs says.", type=int, metavar="N"
    )
    batch_size: int = option(8, "Rows per batch on each device.", metavar="N")
    accumulation: int = option(2, "Batches per update.", metavar="N")
    learning_rate: float | None = option(
        None,
        "Peak learning rate; it warms up over 3 % of the updates, then falls as a cosine.",
        type=float,
        shown="2e-5 for full, 1e-4 for adapters, 1e-6 for grpo",
        metavar="RATE",
    )
    lora_rank: int = option(32, "Rank of the adapters.", metavar="N")
    lora_alpha: int = option(32, "Scale of the adapters; it is divided by their rank.", metavar="N")
    max_length: int | None = option(
        None,
        "Most tokens per row; longer rows are left out and listed.",
        type=int,
        shown="the longest row, up to what the model can read",
        metavar="N",
    )
    truncate: bool = option(False, "Cut rows that are too long instead of leaving them out.")
    packing: bool = option(False, "Put several rows into one sequence, which saves padding.")
    checkpointing: bool = option(
        True, "Compute activations twice instead of storing them: less memory, about 20 % slower."
    )
    evaluations: int = option(
        10, "How often to measure validation loss and write a checkpoint.", metavar="N"
    )
    seed: int = option(0, "Seed for the order of rows and the initial adapters.", metavar="N")

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"method {self.method!r}: allowed are {', '.join(METHODS)}")
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            counted = isinstance(value, int | float) and not isinstance(value, bool)
            if counted and item.name != "seed" and not value > 0:
                raise ValueError(f"{item.name} {value}: must be greater than 0")

    @property
    def rate(self) -> float:
        """The learning rate: as given, or what suits the method."""
        usual = {"full": 2e-5, "lora": 1e-4, "qlora": 1e-4, "grpo": 1e-6}
        return self.learning_rate or usual[self.method]

    def to_json(self) -> dict[str, Any]:
        """Return the options as JSON values."""
        values = dataclasses.asdict(self)
        return {name: str(v) if isinstance(v, Path) else v for name, v in values.items()}
