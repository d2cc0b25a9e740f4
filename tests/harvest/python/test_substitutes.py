"""Parts of frameworks that do not compute: what stands for them in a standalone file."""

import textwrap
from typing import Any

import einops
import pytest
import torch

from curate.harvest.closure import MODEL
from curate.harvest.python.environment import KERNELS
from curate.harvest.python.package import Definition, External, Package, dotted_name
from curate.harvest.python.slices import close
from curate.harvest.python.substitutes import substitute

LIBRARY = {
    "transformers/__init__.py": "",
    "transformers/models/__init__.py": "",
    "transformers/utils/__init__.py": "from .import_utils import is_torch_npu_available\n",
    "transformers/utils/import_utils.py": """
        import importlib.util

        def is_torch_npu_available():
            return importlib.util.find_spec("torch_npu") is not None
        """,
    "transformers/utils/logging.py": "import tqdm\n\ndef get_logger(name):\n    return tqdm\n",
    "transformers/activations.py": "import kernels\n\nACT2FN = kernels.all()\n",
    "transformers/modeling_layers.py": """
        import accelerate

        class GradientCheckpointingLayer(accelerate.Base):
            pass
        """,
    "transformers/modeling_utils.py": """
        import flash_attn

        ALL_ATTENTION_FUNCTIONS = flash_attn.TABLE
        """,
}


def closed(text: str, **others: str) -> str:
    files = LIBRARY | {"transformers/models/a.py": text} | others
    texts = {name: textwrap.dedent(text) for name, text in files.items()}
    target = Definition("transformers/models/a.py", "A")
    return close(Package(tuple(texts), texts.__getitem__), target, {target: MODEL}).text


def test_a_layer_that_looks_up_its_activation_and_attention_stands_alone_and_runs() -> None:
    text = closed("""
        import torch
        from ..activations import ACT2FN
        from ..modeling_layers import GradientCheckpointingLayer
        from ..modeling_utils import ALL_ATTENTION_FUNCTIONS
        from ..utils import logging

        logger = logging.get_logger(__name__)

        def eager_attention_forward(module, query):
            return query * 2

        class A(GradientCheckpointingLayer):
            def __init__(self, act="silu"):
                super().__init__()
                self.act = ACT2FN[act]

            def forward(self, x):
                logger.warning_once("slow")
                attend = ALL_ATTENTION_FUNCTIONS.get_interface("flash", eager_attention_forward)
                return self.act(attend(self, x))
        """)
    spaces: dict[str, object] = {}
    exec(compile(text, "<closed>", "exec"), spaces)
    model = spaces[MODEL]
    assert isinstance(model, type) and issubclass(model, torch.nn.Module)
    x = torch.linspace(-3, 3, 7)
    assert torch.equal(model()(x), torch.nn.functional.silu(x * 2))
    assert "kernels" not in text and "accelerate" not in text


def test_what_only_another_library_reaches_goes() -> None:
    text = closed("""
        import torch
        from ..utils import is_torch_npu_available

        class A(torch.nn.Module):
            def forward(self, x):
                if is_torch_npu_available() and x.is_contiguous():
                    import torch_npu
                    return torch_npu.fused(x)
                elif is_torch_npu_available():
                    return x + 1
                return x
        """)
    assert "torch_npu.fused" not in text and "import torch_npu" not in text
    spaces: dict[str, object] = {}
    exec(compile(text, "<closed>", "exec"), spaces)
    model = spaces[MODEL]
    assert isinstance(model, type)
    assert torch.equal(model()(torch.ones(2)), torch.ones(2))


def test_what_a_function_imports_from_its_own_package_comes_along() -> None:
    text = closed(
        """
        import torch

        def pick(name):
            from .acts import Swish
            return {"swish": Swish}[name]()

        class A(torch.nn.Module):
            def forward(self, x):
                return pick("swish")(x)
        """,
        **{
            "transformers/models/acts.py": """
        import torch

        class Swish(torch.nn.Module):
            def forward(self, x):
                return x * torch.sigmoid(x)
        """
        },
    )
    assert "class Swish" in text and "from .acts" not in text
    spaces: dict[str, object] = {}
    exec(compile(text, "<closed>", "exec"), spaces)
    model = spaces[MODEL]
    assert isinstance(model, type)
    assert torch.equal(model()(torch.ones(1)), torch.sigmoid(torch.ones(1)))


def test_an_own_name_of_the_same_spelling_is_renamed() -> None:
    text = closed(
        """
        import torch
        from ..activations import ACT2FN
        from . import own

        class A(torch.nn.Module):
            def forward(self, x):
                return ACT2FN["relu"](x) + own.ACT2FN
        """,
        **{"transformers/models/own.py": "ACT2FN = 1\n"},
    )
    spaces: dict[str, object] = {}
    exec(compile(text, "<closed>", "exec"), spaces)
    model = spaces[MODEL]
    assert isinstance(model, type)
    assert torch.equal(model()(torch.ones(1)), torch.full((1,), 2.0))


def test_kernels_and_other_packages_keep_their_own() -> None:
    texts = {name: textwrap.dedent(text) for name, text in LIBRARY.items()}
    package = Package(tuple(texts), texts.__getitem__, KERNELS)
    own = Definition("transformers/activations.py", "ACT2FN")
    assert package.resolve(own.path, own.name) == own
    assert dotted_name(own) == "transformers.activations.ACT2FN"
    assert substitute("mine.activations.ACT2FN") is None
    assert substitute(dotted_name(External("transformers.activations", "ACT2FN", "A"))) is not None


def test_every_text_is_python_and_defines_its_name() -> None:
    import contextlib

    for dotted in (
        "transformers.activations.ACT2FN",
        "transformers.activations.get_activation",
        "transformers.modeling_utils.ALL_ATTENTION_FUNCTIONS",
        "transformers.modeling_utils.PreTrainedModel",
        "physicsnemo.core.module.Module",
        "transformers.utils.generic.maybe_autocast",
        "transformers.utils.logging.get_logger",
        "modelscope.utils.logger.get_logger",
        "diffusers.utils.import_utils.is_torch_version",
        "transformers.utils.is_torch_available",
        "transformers.utils.is_flash_attn_2_available",
        "transformers.utils.import_utils.is_torchdynamo_compiling",
        "transformers.utils.import_utils.torch_compilable_check",
        "diffusers.utils.deprecation_utils.deprecate",
        "transformers.cache_utils.DynamicCache",
        "nemo.core.classes.exportable.Exportable",
        "transformers.activations.ACT2CLS",
        "transformers.utils.logging",
        "transformers.pytorch_utils.prune_linear_layer",
        "packaging.version",
    ):
        found = substitute(dotted)
        assert found is not None
        spaces: dict[str, object] = {"torch": torch, "contextlib": contextlib}
        exec(compile(found.text, dotted, "exec"), spaces)
        assert found.name == dotted.rpartition(".")[2] and found.name in spaces


def made(dotted: str) -> Any:
    """Return what stands for a name, made from its text."""
    found = substitute(dotted)
    assert found is not None
    spaces: dict[str, Any] = {"torch": torch}
    exec(compile(found.text, dotted, "exec"), spaces)
    return spaces[found.name]


@pytest.mark.parametrize("pattern", ["* d", "b * d", "b * h d", "b n *"])
def test_pack_and_unpack_are_those_of_einops(pattern: str) -> None:
    first = pattern.split().index("*")
    fixed = [len(name) + 3 for name in pattern.split() if name != "*"]
    stars = [(2,), (3, 4), ()]
    tensors = [torch.randn(*fixed[:first], *star, *fixed[first:]) for star in stars]
    packed, shapes = made("einops.pack")(tensors, pattern)
    expected, expected_shapes = einops.pack(tensors, pattern)
    assert torch.equal(packed, expected) and shapes == expected_shapes
    parts = made("einops.unpack")(packed, shapes, pattern)
    assert all(map(torch.equal, parts, tensors))


def test_drop_path_drops_whole_samples_in_training_alone() -> None:
    x = torch.ones(64, 3, 4)
    layer, function = made("timm.layers.DropPath")(0.5), made("timm.models.layers.drop_path")
    torch.manual_seed(0)
    for dropped in (layer(x), function(x, 0.5, training=True)):
        rows = dropped.flatten(1)
        assert {tuple(row.unique().tolist()) for row in rows} == {(0.0,), (2.0,)}
    assert layer.eval()(x) is x and function(x, 0.5) is x


def test_sizes_versions_and_layers_are_those_of_the_packages() -> None:
    assert made("timm.layers.to_2tuple")(7) == (7, 7)
    assert made("timm.models.layers.helpers.to_3tuple")([1, 2, 3]) == (1, 2, 3)
    version = made("packaging.version")
    assert version.parse("2.13.0+cpu") > version.parse("2.9.1") > version.Version("1.13")
    linear = made("transformers.pytorch_utils.Conv1D")(5, 3)
    x = torch.randn(2, 3)
    expected = torch.nn.functional.linear(x, linear.weight.T, linear.bias)
    torch.testing.assert_close(linear(x), expected)
    norm = made("torchvision.ops.misc.FrozenBatchNorm2d")(6)
    norm.running_mean.normal_(), norm.running_var.uniform_(0.5, 2), norm.bias.normal_()
    image = torch.randn(2, 6, 3, 3)
    statistics = (norm.running_mean, norm.running_var, norm.weight, norm.bias)
    torch.testing.assert_close(norm(image), torch.nn.functional.batch_norm(image, *statistics))


def test_what_helpers_need_of_torch_is_imported() -> None:
    text = closed("""
        from einops import pack
        from torch import nn
        from timm.models.layers import to_2tuple, trunc_normal_

        class A(nn.Module):
            def forward(self, x):
                return pack([x, trunc_normal_(x)], "* d")[0], to_2tuple(x)
        """)
    assert "einops" not in text and "timm" not in text
    spaces: dict[str, Any] = {}
    exec(compile(text, "<closed>", "exec"), spaces)
    assert spaces[MODEL]()(torch.ones(3, 4))[0].shape == (6, 4)
