"""What `curate train` can be told."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

METHODS = ("full", "lora", "qlora", "grpo")
"""What is trained: all weights, low-rank adapters (Hu et al. 2021, https://arxiv.org/abs/2106.09685)
of weights as they are or in four bits (Dettmers et al. 2023, https://arxiv.org/abs/2305.14314), or
all weights by reward (GRPO, Shao et al. 2024, https://arxiv.org/abs/2402.03300)."""


def option(default: Any, help: str, **flag: Any) -> Any:
    """Return a field whose metadata says how the command line shows it."""
    return field(default=default, metadata={"help": help, **flag})


@dataclass(frozen=True)
class TrainOptions:
    """How to train. What a field means is its ``help``, which the command line prints.

    Raises:
        ValueError: a value is not allowed; the message says which are.
    """

    dataset: str
    model: str
    output: Path
    config: str = option("messages", "Which view of the data set: messages, conversion or fim.")
    data: str = option(
        "output",
        "Where `curate run` wrote; a recipe's data set is looked for here.",
        metavar="DIR",
    )
    method: str = option(
        "lora",
        "Train all weights, adapters, adapters of weights in four bits, or by the judge's reward.",
        choices=METHODS,
    )
    epochs: float = option(3.0, "Times that every row is seen.", metavar="N")
    max_steps: int | None = option(
        None, "Stop after this many updates, whatever the epochs.", type=int, metavar="N"
    )
    batch_size: int = option(8, "Rows at a time on one device.", metavar="N")
    accumulation: int = option(2, "Batches that make one update.", metavar="N")
    learning_rate: float | None = option(
        None,
        "Highest rate; it warms up over 3 % of the updates and falls as a cosine.",
        type=float,
        shown="2e-5 for full, 1e-4 for adapters, 1e-6 for grpo",
        metavar="RATE",
    )
    lora_rank: int = option(32, "Rank of the adapters.", metavar="N")
    lora_alpha: int = option(32, "Scale of the adapters, divided by their rank.", metavar="N")
    max_length: int | None = option(
        None,
        "Tokens that a row may have; longer ones are left out and named.",
        type=int,
        shown="the longest row, up to what the model can read",
        metavar="N",
    )
    truncate: bool = option(False, "Cut rows that are too long in place of leaving them out.")
    packing: bool = option(False, "Put several rows into one sequence, so that nothing is padded.")
    checkpointing: bool = option(
        True, "Compute activations twice in place of keeping them: less memory, about 20 % slower."
    )
    evaluations: int = option(
        10, "Times that validation loss is measured and a checkpoint written.", metavar="N"
    )
    seed: int = option(0, "Decides the order of rows and how adapters begin.", metavar="N")

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


def flags(options: type[Any] = TrainOptions) -> Iterator[click.Option]:
    """Yield the option of the command line for every field of options that has a ``help``."""
    for item in dataclasses.fields(options):
        if "help" in item.metadata:
            yield _flag(item)


def _flag(item: dataclasses.Field[Any]) -> click.Option:
    shown, name = item.metadata, item.name.replace("_", "-")
    if isinstance(item.default, bool):
        return click.Option([f"--{name}/--no-{name}"], default=item.default, help=shown["help"])
    kind: Any = shown.get("type", type(item.default))
    if "choices" in shown:
        kind = click.Choice(shown["choices"])
    return click.Option(
        [f"--{name}"],
        type=kind,
        default=item.default,
        show_default=shown.get("shown", True),
        help=shown["help"],
        metavar=shown.get("metavar"),
    )
