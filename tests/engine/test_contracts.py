"""What steps say that they set and make is what they do, on real rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from curate import api
from curate.engine.records import read_records
from curate.engine.store import Store
from curate.registry import known_steps
from curate.rows import Loose
from curate.step import SourceStep, Step

RECIPE = """\
name: contracts
sources:
  - source: torch_ops
    single: 0
    compositions: 4
  - source: local
    path: code
steps:
  - step: licenses
  - step: normalize
  - step: modules
  - step: closure
  - step: licenses
  - step: inputs
  - step: wiring
  - step: inductor
  - step: decontaminate
  - step: compile
    targets: ["cuda:90"]
  - step: split
formats:
  - format: pairs
"""

MODULE = """\
# SPDX-License-Identifier: MIT
import torch
from torch import nn


class Scale(nn.Module):
    def __init__(self, dim: int = 16):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * self.weight + 1
"""

KINDS = {step.word()[1]: step for step in known_steps() if not issubclass(step, SourceStep)}


def unlike(step: type[Step], before: dict[str, Loose], row: Loose) -> set[str]:
    """Return what a step did with a row that it does not say."""
    old = before.get(row["id"])
    if old is None:
        return {row["kind"]} - step.makes - step.adds - step.takes
    filled = {name for name in row if old[name] is None and row[name] is not None}
    return filled - step.sets


@pytest.mark.slow
def test_steps_do_what_they_say(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code/scale.py").write_text(MODULE)
    (tmp_path / "recipe.yaml").write_text(RECIPE.replace("path: code", f"path: {tmp_path}/code"))
    done = api.run(tmp_path / "recipe.yaml", output=tmp_path / "out")
    assert done.folder
    store = Store(tmp_path / "out")
    seen = set()
    for record in read_records(tmp_path / "out", "contracts"):
        if not record.kinds:
            continue
        step = KINDS[record.step]
        for key in record.shards:
            manifest = store.finished(record.step, key)
            assert manifest.input
            source = next(s for s in store.steps.glob(f"*/{manifest.input}.json"))
            before = store.rows(source.parent.name, manifest.input).to_pylist()
            for row in store.rows(record.step, key).to_pylist():
                assert not unlike(step, {old["id"]: old for old in before}, row), record.step
                seen.add((record.step, row["kind"]))
    assert {("inductor", "pair"), ("closure", "module"), ("split", "pair")} <= seen
