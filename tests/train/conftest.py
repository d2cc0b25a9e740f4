from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny import make_tiny_model


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """A tiny model is not faster on two cores that others share."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a model of 100,000 parameters that reads 2,048 tokens."""
    return str(make_tiny_model(Path(tmp_path_factory.mktemp("tiny"))))
