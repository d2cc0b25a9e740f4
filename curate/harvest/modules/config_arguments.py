"""Stand-ins for configuration objects, from what a module reads of them.

``config.hidden_size`` says that a configuration has a ``hidden_size``, and names in configurations
mean what names of arguments do. What is read with a default, or asked for with ``hasattr``, is left
out.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator

from curate.harvest.guess import look_up
from curate.harvest.modules.constructor_arguments import choices, is_config

STAND_IN = "SimpleNamespace"
"""The class, of the standard library's `types`, that stands for a configuration's."""

_FLAGS = (
    r"(disable|use|is|has|add|do|return|tie|with|enable|apply|norm_topk|gradient|pre|safer)_\w+"
    r"|\w*_mode|output_(attentions|hidden_states)|quant_mode"
    r"|rezero|rotary_value|\w+_(enabled|style|only)|fp32_\w+"
)
_VALUES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"(\w*intermediate|ffn(_hidden)?|mlp)_?(size|dim)|n_inner|d_ff|dim_ff", ("256", "128")),
    (
        r"\w*act(ivation)?(_fn|_func(tion)?)?|\w*(activation|transition)_function",
        ("'gelu'", "'relu'", "'silu'"),
    ),
    (r"_?attn_implementation(_internal)?", ("'eager'",)),
    (r"\w*position_embedding_type", ("'absolute'",)),
    (r"rope_parameters", ("{'rope_type': 'default', 'rope_theta': 10000.0}",)),
    (r"\w*theta|rotary_emb_base", ("10000.0",)),
    (r"initializer_\w+|init_std|\w+_std", ("0.02",)),
    (r"mlp_layer_types", ("['dense', 'dense']", "['sparse', 'sparse']")),
    (r"layer_types", ("['full_attention', 'full_attention']",)),
    (r"\w*init_value\w*", ("0.1",)),
    (r"\w*downsampl\w+_rate", ("2",)),
    (r"\w*(max_distance|num_buckets)", ("32",)),
    (r"\w*conv_kernel(_(dim|size))?", ("4", "3")),
    (r"clip_qkv|\w*softcapping", ("None",)),
    (r"swiglu_limit", ("7.0",)),
    (r"\w*(pad|bos|eos)_(token_)?id|chunk_size_feed_forward", ("0",)),
    (r"\w*_scaling|quantization_config|sliding_window|classifier_dropout|torch_dtype", ("None",)),
    (r"num_experts_per_tok|top_?k|topk_group|n_group|pretraining_tp", ("1", "2")),
    (_FLAGS, ("False", "True")),
    (r"\w*pdrop|layerdrop", ("0.0",)),
    (r"\w*(attention|kv)_heads", ("4", "2")),
    (r"d_kv|\w*_dim_head", ("16", "32")),
    (
        r"(\w+_)?(num|n|max|index)_\w+|\w+_(num|count|multiplier|mult|topk|radius|left|right)",
        ("4", "2"),
    ),
)
_TRIES = 3


def stand_ins(text: str, parameter: str) -> tuple[str, ...]:
    """Return expressions of configurations to try for an argument; none where that cannot be.

    Args:
        text: the module's file.
        parameter: name of the constructor's argument.
    """
    tree = ast.parse(text)
    attributes, keys = _reads(tree, ast.Attribute), _reads(tree, ast.Subscript)
    read, looked_up = attributes.get(parameter, []), keys.get(parameter, [])
    found = []
    for rank in range(_TRIES):
        if looked_up and set(read) <= {"get", "keys", "items"}:
            found.append(_of_keys(looked_up, rank))
        elif read and not looked_up:
            found.append(_of_attributes(read, attributes, rank))
    return tuple(dict.fromkeys(filter(None, found)))


def _of_keys(keys: list[str], rank: int) -> str | None:
    values = {key: _value(key, rank) for key in keys}
    if None in values.values():
        return None
    return f"{{{', '.join(f'{key!r}: {value}' for key, value in values.items())}}}"


def _of_attributes(names: list[str], known: dict[str, list[str]], rank: int) -> str | None:
    """Return a stand-in with these attributes; configurations among them are stand-ins too."""
    values = {}
    for name in names:
        if is_config(name, inspect.Parameter.empty) and name in known:
            # It may be passed on to a class that calls it by a shorter name.
            inner = [one for one in known[name] + names if one not in known]
            values[name] = _of_attributes(list(dict.fromkeys(inner)), known, rank)
        else:
            values[name] = _value(name, rank)
    if None in values.values():
        return None
    return f"{STAND_IN}({', '.join(f'{name}={value}' for name, value in values.items())})"


def _value(name: str, rank: int) -> str | None:
    parameter = inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    values = look_up(_VALUES, name.lower(), ()) or choices(parameter)
    return values[min(rank, len(values) - 1)] if values else None


def _reads(tree: ast.AST, kind: type[ast.Attribute] | type[ast.Subscript]) -> dict[str, list[str]]:
    """Return what a file reads of each configuration, in the order of the text."""
    optional = set(_optional(tree))
    found: dict[str, dict[str, tuple[int, int]]] = {}
    for node in ast.walk(tree):
        if not isinstance(node, kind) or not isinstance(node.ctx, ast.Load):
            continue
        owner = _called(node.value)
        name = node.attr if isinstance(node, ast.Attribute) else _key(node)
        if owner and name and (owner, name) not in optional:
            found.setdefault(owner, {}).setdefault(name, (node.lineno, node.col_offset))
    return {owner: sorted(read, key=read.__getitem__) for owner, read in found.items()}


def _optional(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield what may be absent: it is asked for with ``hasattr``, or read with a default."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and len(node.args) > 1:
            of, name = node.args[:2]
            called = node.func.id if isinstance(node.func, ast.Name) else ""
            if called in ("getattr", "hasattr") and isinstance(name, ast.Constant):
                yield _called(of), str(name.value)


def _called(node: ast.AST) -> str:
    """Return what a configuration is called, ``config`` or ``self.config``; '' for other values."""
    name = node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")
    return name if is_config(name.strip("_"), inspect.Parameter.empty) else ""


def _key(node: ast.Subscript) -> str:
    key = node.slice.value if isinstance(node.slice, ast.Constant) else ""
    return key if isinstance(key, str) else ""
