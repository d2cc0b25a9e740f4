import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

sys.path.insert(0, str(Path(__file__).parent))

import xet_stand_in  # noqa: F401  (adds its routes)
from hub_stand_in import Hub, serve


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serve(Hub()) as served:
        yield served


@pytest.fixture
def alice(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """The hub, with the clients of this process logged in as alice, who may write."""
    # The clients read these from the environment once, when they are imported.
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    # By LFS here: hf_xet reads its folders once a process. Commands, which users type, use xet.
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)  # another test may have set it
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setenv("HF_TOKEN", "hf_of_alice")
    return hub
