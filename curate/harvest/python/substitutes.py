"""What stands in a standalone file for what it would import from a framework.

Libraries of models look activations and attentions up in tables that bring in every optional
library, and their bases load, save and log. A module that stands alone gets the least that computes
the same: PyTorch's own activations, the attention that its own file defines, a plain
`torch.nn.Module`; and of the few helpers that half of the field imports from one package (`timm`,
`einops`) a text of a few lines. The texts are ours, and carry the license of the row that they
stand in.
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

_ACTIVATION_CLASSES = """{
    "gelu": torch.nn.GELU,
    "hardswish": torch.nn.Hardswish,
    "leaky_relu": torch.nn.LeakyReLU,
    "relu": torch.nn.ReLU,
    "sigmoid": torch.nn.Sigmoid,
    "silu": torch.nn.SiLU,
    "swish": torch.nn.SiLU,
    "tanh": torch.nn.Tanh,
}"""

_LOGGER = '''class SilentLogger:
    """Takes every message and shows none."""

    def __getattr__(self, name):
        return lambda *args, **kwargs: None


def get_logger(*args):
    return SilentLogger()'''

_LOGGING = '''class {name}:
    """Loggers that take every message and show none."""

    def __getattr__(self, name):
        return lambda *args, **kwargs: None

    @staticmethod
    def get_logger(*args):
        return {name}()'''

_VERSION = '''class {name}:
    """Versions as tuples of their first two numbers."""

    @staticmethod
    def parse(text):
        return tuple(int(number) for number in str(text).split(".")[:2])

    Version = parse'''

_DROP_PATH = '''class {name}(torch.nn.Module):
    """Sets the whole branch of a sample to zero in training, and does nothing otherwise."""

    def __init__(self, drop_prob=0.0, scale_by_keep=True):
        super().__init__()
        self.drop_prob = drop_prob
        self.scale_by_keep = scale_by_keep

    def forward(self, x):
        if not self.training or not self.drop_prob:
            return x
        kept = x.new_empty(x.shape[0], *[1] * (x.dim() - 1)).bernoulli_(1 - self.drop_prob)
        return x * kept / (1 - self.drop_prob if self.scale_by_keep else 1)'''

_DROP_PATH_FUNCTION = '''def {name}(x, drop_prob=0.0, training=False, scale_by_keep=True):
    """Set the whole branch of a sample to zero in training, and do nothing otherwise."""
    if not training or not drop_prob:
        return x
    kept = x.new_empty(x.shape[0], *[1] * (x.dim() - 1)).bernoulli_(1 - drop_prob)
    return x * kept / (1 - drop_prob if scale_by_keep else 1)'''

_TUPLE = """def {name}(value):
    return tuple(value) if isinstance(value, (tuple, list)) else (value,) * {count}"""

_FROZEN_NORM = '''class {name}(torch.nn.Module):
    """Batch norm whose statistics and weights are constants."""

    def __init__(self, num_features, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.register_buffer("weight", torch.ones(num_features))
        self.register_buffer("bias", torch.zeros(num_features))
        self.register_buffer("running_mean", torch.zeros(num_features))
        self.register_buffer("running_var", torch.ones(num_features))

    def forward(self, x):
        scale = self.weight * (self.running_var + self.eps).rsqrt()
        shift = self.bias - self.running_mean * scale
        return x * scale[:, None, None] + shift[:, None, None]'''

_CONV1D = '''class {name}(torch.nn.Module):
    """A linear layer that keeps its weight transposed."""

    def __init__(self, nf, nx):
        super().__init__()
        self.nf = nf
        self.nx = nx
        self.weight = torch.nn.Parameter(torch.randn(nx, nf) * 0.02)
        self.bias = torch.nn.Parameter(torch.zeros(nf))

    def forward(self, x):
        return x @ self.weight + self.bias'''

_PACK = '''def {name}(tensors, pattern):
    """Join tensors along one dimension that stands for all of theirs at the star."""
    names = pattern.split()
    first, after = names.index("*"), len(names) - names.index("*") - 1
    shapes = [tensor.shape[first : tensor.dim() - after] for tensor in tensors]
    flat = [
        tensor.reshape(*tensor.shape[:first], shape.numel(), *tensor.shape[first + len(shape) :])
        for tensor, shape in zip(tensors, shapes)
    ]
    return torch.cat(flat, dim=first), shapes'''

_UNPACK = '''def {name}(tensor, shapes, pattern):
    """Take apart what `pack` has joined."""
    first = pattern.split().index("*")
    parts = tensor.split([torch.Size(shape).numel() for shape in shapes], dim=first)
    return [
        part.reshape(*part.shape[:first], *shape, *part.shape[first + 1 :])
        for part, shape in zip(parts, shapes)
    ]'''

_NOTHING = "def {name}(*args, **kwargs):\n    pass"
_ABSENT = "def {name}(*args):\n    return False"
_EMPTY = 'class {name}:\n    """Nothing that computes."""'
_PRESENT = "def {name}():\n    return True"
_RECENT = """def {name}(operation, version):
    return operation in (">", ">=", "!=")"""

_TEXTS: tuple[tuple[str, str], ...] = (
    (r"transformers\.activations\.ACT2FN", f"ACT2FN = {_ACTIVATIONS}"),
    (r"transformers\.activations\.ACT2CLS", f"ACT2CLS = {_ACTIVATION_CLASSES}"),
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
    (r"transformers\.utils\.logging", _LOGGING),
    (r"transformers\.(modeling_utils|pytorch_utils)\.Conv1D", _CONV1D),
    (
        r"transformers\.(modeling_utils|pytorch_utils)\."
        r"(find_pruneable_heads_and_indices|prune_linear_layer)",
        _NOTHING,
    ),
    (r"packaging\.version", _VERSION),
    (r"(timm\.(models\.)?layers|mmcv\.cnn\.bricks)\.DropPath", _DROP_PATH),
    (r"timm\.(models\.)?layers\.drop_path", _DROP_PATH_FUNCTION),
    *(
        (rf"timm\.(models\.)?layers(\.helpers)?\.to_{count}tuple", _TUPLE.replace("{count}", count))
        for count in "1234"
    ),
    (r"timm\.layers\.use_fused_attn", _ABSENT),
    (r"torchvision\.ops(\.misc)?\.FrozenBatchNorm2d", _FROZEN_NORM),
    (r"einops\.pack", _PACK),
    (r"einops\.unpack", _UNPACK),
)
"""Full name -> the text; ``{name}`` in it is the definition's own."""

_HOMES = (
    (r"transformers\.modeling_layers\.GradientCheckpointingLayer", "torch.nn.Module"),
    (r"nemo\.core\.classes\.module\.NeuralModule", "torch.nn.Module"),
    (r"transformers\.initialization\.(\w+)", r"torch.nn.init.\1"),
    (r"timm\.(?:models\.)?layers\.(trunc_normal_)", r"torch.nn.init.\1"),
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
