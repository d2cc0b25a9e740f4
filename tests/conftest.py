"""Make the helpers next to this file importable, here and in the workers that tests start."""

import os
import sys
from pathlib import Path

import pytest

HERE = str(Path(__file__).parent)
sys.path.insert(0, HERE)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [HERE, os.environ.get("PYTHONPATH")]))


LONGEST = (
    "adversarial/test_adversarial.py",
    "adversarial/test_sandbox_attacks.py",
    "generator/schedules/test_attention.py",
    "engine/test_run.py",
    "generator/test_generator.py",
    "generator/schedules/test_library.py",
    "verify/judge/test_slots.py",
    "generator/schedules/test_split_scans.py",
    "engine/test_contracts.py",
    "engine/test_limit.py",
    "engine/test_mend.py",
)
"""Files that take longest: with several workers they begin first, so that none ends alone."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first; `.ci/run` has workers take files in this order."""
    ranks = {Path(HERE, name): rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(item.path, len(LONGEST)))


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a model of 100,000 parameters that reads 2,048 tokens."""
    import torch
    from tiny import make_tiny_model

    torch.set_num_threads(1)  # it is not faster on two cores that others share
    return str(make_tiny_model(Path(tmp_path_factory.mktemp("tiny"))))
