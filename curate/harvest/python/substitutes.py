"""What stands in a standalone file for parts of a framework that do not compute.

Libraries of models look activations and attentions up in tables that bring in every optional
library, and their bases load, save and log. A module that stands alone gets the least that computes
the same: PyTorch's own activations, the attention that its own file defines, a plain
`torch.nn.Module`. The texts are ours, and carry the license of the row that they stand in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Substitute:
    """What stands for a definition of a framework.

    Attributes:
        name: what it is called in the standalone file.
        text: its source; empty where ``home`` has it.
        home: the module to import it from.
    """

    name: str
    text: str = ""
    home: str = ""


_ACTIVATIONS = """{
    "gelu": torch.nn.GELU(),
    "gelu_new": torch.nn.GELU(approximate="tanh"),
    "gelu_pytorch_tanh": torch.nn.GELU(approximate="tanh"),
    "hardswish": torch.nn.Hardswish(),
    "leaky_relu": torch.nn.LeakyReLU(),
    "relu": torch.nn.ReLU(),
    "sigmoid": torch.nn.Sigmoid(),
    "silu": torch.nn.SiLU(),
    "swish": torch.nn.SiLU(),
    "tanh": torch.nn.Tanh(),
}"""

_LOGGER = '''class SilentLogger:
    """Takes every message and shows none."""

    def __getattr__(self, name):
        return lambda *args, **kwargs: None


def get_logger(*args):
    return SilentLogger()'''

_NOTHING = "def {name}(*args, **kwargs):\n    pass"
_ABSENT = "def {name}(*args):\n    return False"
_EMPTY = 'class {name}:\n    """Nothing that computes."""'
_PRESENT = "def {name}():\n    return True"
_RECENT = """def {name}(operation, version):
    return operation in (">", ">=", "!=")"""

_TEXTS: tuple[tuple[str, str], ...] = (
    (r"transformers\.activations\.ACT2FN", f"ACT2FN = {_ACTIVATIONS}"),
    (
        r"(transformers|diffusers\.models)\.activations\.get_activation",
        f"get_activation = {_ACTIVATIONS}.__getitem__",
    ),
    (
        r"transformers\.modeling_utils\.ALL_ATTENTION_FUNCTIONS",
        '''class ALL_ATTENTION_FUNCTIONS:
    """The attention that a file defines itself, whatever a configuration names."""

    @staticmethod
    def get_interface(name, default):
        return default''',
    ),
    (
        r"transformers\.modeling_utils\.PreTrainedModel",
        '''class PreTrainedModel(torch.nn.Module):
    """A module with a configuration."""

    def __init__(self, config):
        super().__init__()
        self.config = config

    def post_init(self):
        pass''',
    ),
    (
        r"physicsnemo\.core\.module\.Module",
        '''class Module(torch.nn.Module):
    """A module without what is said about it."""

    def __init__(self, meta=None):
        super().__init__()''',
    ),
    (
        r"transformers\.utils\.generic\.maybe_autocast",
        "def maybe_autocast(*args, **kwargs):\n    return contextlib.nullcontext()",
    ),
    (r"(transformers|diffusers)\.utils\.logging\.get_logger", _LOGGER),
    (r"modelscope\.utils\.logger\.get_logger", _LOGGER),
    (r"(transformers|diffusers)\.utils\.import_utils\.is_torch_version", _RECENT),
    (r"(transformers|diffusers)\.utils(\.\w+)?\.is_torch_available", _PRESENT),
    (r"(transformers|diffusers)\.utils(\.\w+)?\.is_\w+_available", _ABSENT),
    (r"transformers\.utils(\.\w+)?\.is_(torchdynamo\w*|\w*tracing)", _ABSENT),
    (r"transformers\.utils\.import_utils\.torch_compilable_check", _NOTHING),
    (r"diffusers\.utils\.deprecation_utils\.deprecate", _NOTHING),
    (r"transformers\.cache_utils\.(Dynamic|EncoderDecoder|Static)?Cache", _EMPTY),
    (r"nemo\.[\w.]+\.(AccessMixin|AdapterModuleMixin|Exportable)", _EMPTY),
)
"""Full name -> the text; ``{name}`` in it is the definition's own."""

_HOMES = (
    (r"transformers\.modeling_layers\.GradientCheckpointingLayer", "torch.nn.Module"),
    (r"nemo\.core\.classes\.module\.NeuralModule", "torch.nn.Module"),
    (r"transformers\.initialization\.(\w+)", r"torch.nn.init.\1"),
)
"""Full name -> what PyTorch has for it."""


def substitute(dotted: str) -> Substitute | None:
    """Return what stands for a definition, by its full name; None where it stands for itself."""
    for pattern, target in _HOMES:
        if found := re.fullmatch(pattern, dotted):
            home, _, name = found.expand(target).rpartition(".")
            return Substitute(name, home=home)
    name = dotted.rpartition(".")[2]
    for pattern, text in _TEXTS:
        if re.fullmatch(pattern, dotted):
            return Substitute(name, text.replace("{name}", name))
    return None
