"""What a constructor's argument probably is, from its annotation and its name.

Values are Python expressions, so that the file that calls the constructor can show them. The
table was written by hand from the terms that papers and PyTorch use.
"""

from __future__ import annotations

import inspect
import re
import typing
from typing import Any

from curate.harvest.guess import annotation_text, look_up

CHANNELS = ("64", "32", "128", "16", "256", "3")

_CONFIG = re.compile(r"(\w+_)?(config|cfg|conf|args|opts?|options|hparams|hyperparams|params)")

_BY_NAME: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"(layer|block|stage)_?(idx|index|id|number)", ("0", "1")),
    (r".*(dropout|drop_rate|drop_path|drop_prob|proj_drop|attn_drop).*|drop|p|prob", ("0.0",)),
    (r".*eps(ilon)?", ("1e-05",)),
    (r".*(momentum|alpha|beta|gamma|temperature|sigma|slope|scale_value|weight)", ("0.5", "1.0")),
    (
        r".*(mlp|ffn?|width|expan\w+|hidden)_?(ratio|mult|factor|rate|dim_mult)?_?(mult|ratio)|mult",
        ("4", "2"),
    ),
    (r".*(ratio|reduction|squeeze|reduc\w*_factor|rd_\w+)", ("4", "2", "16", "0.25")),
    (
        r"(num_)?(attention_)?(n|kv|q|attn)?_?(num_)?(kv_|query_)?heads?|num_\w*heads|n_?heads?\w*",
        ("4", "2", "8"),
    ),
    (
        r".*(head_dim|dim_head|head_size|dim_key|dim_value|d_k|d_v|key_dim|head_channels)",
        ("16", "32", "64"),
    ),
    (r".*kernel(_?sizes?)?|k|ksize|window_?(size)?\w*|ws", ("3", "7", "4", "(3, 3)", "(7, 7)")),
    (r".*strides?", ("1", "2")),
    (r".*(padding|pad|pads)", ("1", "0")),
    (r".*dilations?", ("1", "2")),
    (r".*(groups|cardinality|num_groups)", ("1", "4", "8")),
    (r".*(scale|scale_factor|upscale\w*|downscale\w*|shrink\w*|block_size)", ("2", "4")),
    (r".*patch_(size|dim)|patch_(height|width)|p1|p2|patch", ("8", "4", "16")),
    (
        r".*(image|img|input|in|feat|fmap|feature_map|spatial)_?(size|shape|resolution|res|hw)"
        r"|resolution|image_(height|width)|size|height|width|h|w",
        ("32", "(32, 32)", "64", "224", "(3, 32, 32)"),
    ),
    (r".*(num_class(es)?|n_class(es)?|classes|n_labels|num_labels|num_outputs?)", ("10", "1000")),
    (
        r".*(vocab_?size|num_tokens|num_embeddings|n_tokens|ntokens?|num_codes|codebook_size)",
        ("1000", "256"),
    ),
    (
        r".*(seq_?len(gth)?|max_len(gth)?|context_(len|length)|block_len|max_position\w*|num_patches"
        r"|max_seq_?len\w*|n_ctx|sequence_length|length|len)",
        ("128", "64", "512"),
    ),
    (
        r".*(layers|depths?|blocks|num_\w*blocks|n_layers?|num_layer|num_units|repeats?|n|stages?|steps"
        r"|iters?|iterations|num_experts|experts|levels?|num_convs?|order|branches)",
        ("2", "1", "3", "4", "(2, 2)", "[2, 2, 2, 2]"),
    ),
    (r"(num_)?frames|frame_(size|patch_size)|time_(dim|steps)", ("8", "16")),
    (r"(in_?(chans?|channels?)|c_in|inp_channels|channels)", ("64", "3", "32", "128", "16")),
    (
        r"normalized_shape|.*(in_?(dim|features|size|planes|ch)|chans|dims?|planes|inp|oup|embed\w*|hidden\w*|model"
        r"|channels?|features|filters|width|ch|c|d|c\d|size|nf|ic|oc|units|rank|input|output|inter\w*"
        r"|out\w*|mid\w*|bottleneck\w*|squeeze\w*|base\w*|nc|cin|cout|projection\w*|feats)",
        CHANNELS,
    ),
)

_CLASSES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        r".*act\w*|nonlinearity|non_linearity|gate\w*",
        ("torch.nn.ReLU",),
    ),
    (
        r".*norm\w*",
        (
            "torch.nn.BatchNorm2d",
            "torch.nn.LayerNorm",
            "torch.nn.BatchNorm1d",
        ),
    ),
    (r".*conv\w*", ("torch.nn.Conv2d",)),
    (r".*linear\w*", ("torch.nn.Linear",)),
    (r".*pool\w*", ("torch.nn.MaxPool2d", "torch.nn.AvgPool2d")),
)

_STRINGS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r".*act\w*|nonlinearity", ("'relu'", "'gelu'")),
    (r".*norm\w*", ("'batch'", "'layer'")),
    (r".*pad\w*", ("'same'", "'zeros'", "'reflect'")),
    (r".*reduction", ("'mean'", "'none'")),
    (r".*pool\w*", ("'avg'", "'max'")),
    (r".*mode|.*interp\w*", ("'bilinear'", "'binary'", "'nearest'")),
    (r".*init\w*", ("'xavier_uniform'",)),
)


def is_config(name: str, annotation: Any) -> bool:
    """Whether an argument is a configuration object, which would have to be mocked."""
    simple = annotation in (int, float, bool, str)
    return not simple and _CONFIG.fullmatch(name.lower()) is not None


def choices(parameter: inspect.Parameter) -> tuple[str, ...]:
    """Return the expressions to try for a required argument, the likeliest first."""
    name = parameter.name.lower().strip("_")
    kind = annotation_text(parameter.annotation)
    if kind.startswith("literal"):
        return tuple(repr(value) for value in typing.get_args(parameter.annotation))
    if kind == "bool" or re.fullmatch(r"(use|with|is|has|no|do|enable)_\w+|bias|\w+_bias", name):
        return ("True", "False")
    if kind == "str":
        return look_up(_STRINGS, name, ())
    if "callable" in kind or kind.startswith(("type[", "<class 'type'")):
        return look_up(_CLASSES, name, ())
    values = look_up(_BY_NAME, name, ())
    if kind == "float":
        return tuple(v for v in values if _is_float(v)) or ("0.5", "1.0")
    if kind == "int":
        return tuple(v for v in values if v.isdigit()) or ("16", "4", "2")
    if re.match(r"(list|sequence|tuple|iterable)\b.*\bint", kind):
        return _sequences(kind, tuple(v for v in values if v.isdigit()) or ("16", "4"))
    return values or look_up(_CLASSES, name, ())


def _sequences(kind: str, values: tuple[str, ...]) -> tuple[str, ...]:
    if kind.count("list") + kind.count("sequence") + kind.count("tuple") > 1:
        return tuple(f"[[{v}, {v}], [{v}, {v}]]" for v in values)
    if kind.startswith("tuple") and "..." not in kind:
        count = max(1, kind.count("int"))
        return tuple("(" + ", ".join([v] * count) + ("," * (count == 1)) + ")" for v in values)
    return tuple(f"[{', '.join([v] * count)}]" for v in values[:3] for count in (2, 4, 3))


def _is_float(text: str) -> bool:
    return text.replace(".", "").replace("e-", "").isdigit()
