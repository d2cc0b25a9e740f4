"""Run a small recipe of the test steps: ``python run_for_tests.py OUTPUT WORKERS``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from steps_for_tests import Act, Double, Numbers

from curate.engine.processes.local import LocalExecutor
from curate.engine.run import Stage, Walk
from curate.formats.dataset.write import data_sha256, write_dataset
from curate.formats.pairs import PairsFormat


class Small:
    """What `Walk` needs of a recipe, with steps that no registry knows."""

    def __init__(self, sources: list[Any], steps: list[Any], formats: list[Any] = ()) -> None:
        self.name, self.seed, self.description = "small", 0, "Made in a test."
        self.sources, self.steps, self.formats = sources, steps, list(formats)

    def model_dump(self, mode: str) -> dict[str, Any]:
        return {"name": self.name}


class AllFiles(PairsFormat):
    """Shows files, which the test steps make, as if they were pairs."""

    kinds = frozenset({"file"})
    reads = frozenset()


def walk(output: Path, workers: int = 2, share: tuple[int, int] = (1, 1), **options: Any) -> Walk:
    recipe = Small([Numbers(count=40)], [Act(), Double()], [AllFiles(format="pairs")])
    for name, value in options.items():
        setattr(recipe, name, value)
    return Walk(recipe, output, LocalExecutor(workers), share=share)  # type: ignore[arg-type]


def counts(stages: list[Stage]) -> list[tuple[int, ...]]:
    names = ("seen", "kept", "emitted", "untouched")
    return [tuple(stage.total(name) for name in names) for stage in stages]


if __name__ == "__main__":
    small = walk(Path(sys.argv[1]), int(sys.argv[2]), sources=[Numbers(count=200)])
    print(data_sha256(write_dataset(small, small.run())))
