"""Make the helpers next to this file importable, here and in the workers that tests start."""

import os
import sys
from pathlib import Path

import pytest

HERE = str(Path(__file__).parent)
sys.path.insert(0, HERE)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [HERE, os.environ.get("PYTHONPATH")]))


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a model of 100,000 parameters that reads 2,048 tokens."""
    import torch
    from tiny import make_tiny_model

    torch.set_num_threads(1)  # it is not faster on two cores that others share
    return str(make_tiny_model(Path(tmp_path_factory.mktemp("tiny"))))
