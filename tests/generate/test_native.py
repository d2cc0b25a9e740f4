"""What Inductor writes for a GPU that is not there is what it writes where the GPU is."""

import contextlib

import pytest
import torch

from curate.generate import offline

pytestmark = pytest.mark.gpu

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n"
TAIL = "\n\ndef get_inputs():\n    return [{inputs}]\n\n\ndef get_init_inputs():\n    return []\n"

MODULES = {
    "pointwise": ("F.gelu(x) * torch.sigmoid(x)", "torch.randn(64, 1000)"),
    "softmax": ("torch.softmax(x * 0.5, dim=-1)", "torch.randn(128, 1000)"),
    "layernorm": ("F.layer_norm(x, x.shape[-1:])", "torch.randn(16, 64, 768)"),
    "long_reduction": ("x.square().sum(dim=-1).sqrt()", "torch.randn(8, 100000)"),
    "scan": ("torch.cumsum(x, dim=-1)", "torch.randn(32, 512)"),
    "transpose": ("x.transpose(1, 2).contiguous() + 1", "torch.randn(8, 96, 120)"),
    "argmax": ("x.argmax(dim=1)", "torch.randn(64, 300)"),
    "matmul": ("F.relu(x @ x.T)", "torch.randn(128, 64)"),
}


def reference(name: str) -> str:
    value, inputs = MODULES[name]
    body = f"class Model(nn.Module):\n    def forward(self, x):\n        return {value}\n"
    return HEAD + body + TAIL.format(inputs=inputs)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dynamic", [True, False], ids=["dynamic", "static"])
@pytest.mark.parametrize("name", MODULES)
def test_offline_code_is_native_code(
    name: str, dynamic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    major, minor = torch.cuda.get_device_capability()
    target = f"cuda:{major}{minor}"

    def written() -> offline.Generated:
        exported = offline.export(offline.load(reference(name)), dynamic)
        return offline.generate(exported, target, native_matmul=False)

    without = written()
    monkeypatch.setattr(offline, "target_gpu", lambda target: contextlib.nullcontext())
    with_gpu = written()
    assert without.code == with_gpu.code
    assert without.spec["kernels"] == with_gpu.spec["kernels"]
