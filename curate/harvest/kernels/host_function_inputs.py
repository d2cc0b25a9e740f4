"""What an argument of a wrapper may be: Python expressions, the likeliest first.

Sizes are small powers of two, so that blocks fit and the executor is soon done. The tables of
names were written by hand from the terms that papers and PyTorch use.
"""

from __future__ import annotations

import inspect
import math
import re
import typing
from collections.abc import Iterable
from dataclasses import dataclass, field

from curate.harvest.guess import annotation_text, look_up
from curate.harvest.kernels.host_function_text import Known

OMIT = ""
"""Leaves an argument to its default."""


@dataclass(frozen=True)
class Scale:
    """How large things are in one round of tries.

    Attributes:
        rank: dimensions of tensors of which nothing is known.
        equal: one size for everything, or None for sizes by name and position.
        like: names of the sizes that tensors have of which nothing is known, if these are known.
    """

    rank: int
    equal: int | None = None
    like: tuple[str, ...] = ()

    def size(self, name: str) -> int:
        """Return a size by the name that the wrapper gives to it."""
        if self.equal:
            return self.equal
        return look_up(_SIZES, name.lower(), 16)

    def shape(self, rank: int, dims: dict[int, str]) -> list[int]:
        """Return a tensor's sizes; the names of some positions may be known."""
        if self.equal:
            # Many dimensions are made small, the last ones last.
            sizes = [self.equal] * rank
            for index in range(rank):
                if math.prod(sizes) > MAX_ELEMENTS:
                    sizes[index] = 2
            return sizes
        if not dims and rank == len(self.like):
            dims = dict(enumerate(self.like))
        sizes = list((2, 2, 2, 4, 16, 64)[-rank:]) if rank else []
        image = {"h", "w"} <= {name.lower() for name in dims.values()}
        for index, name in dims.items():
            if -rank <= index < rank:
                small = image and _IMAGE.get(name.lower())
                sizes[index] = small or self.size(name)
        return sizes


_IMAGE = {"n": 2, "b": 2, "c": 4, "h": 8, "w": 8, "d": 8}
"""Sizes of images, whose names mean other things elsewhere."""

MAX_ELEMENTS = 16_384
"""Largest tensor that is made up with equal sizes, in elements."""


def scales(known: Iterable[Known]) -> list[Scale]:
    """Return the rounds of tries, in order.

    Args:
        known: what is known of the wrapper's parameters. Tensors of which nothing is known are
            first made like the largest of which the sizes have names.
    """
    named = [k for k in known if k.rank and len(k.dims) == k.rank and min(k.dims) == 0]
    largest = max(named, key=lambda k: k.rank or 0, default=None)
    found = [Scale(rank, equal) for equal in (None, 16, 64) for rank in (2, 3, 4, 1)]
    if largest is None or not largest.rank:
        return found
    like = tuple(largest.dims[index] for index in range(largest.rank))
    return [Scale(largest.rank, None, like), Scale(largest.rank, 16, like), *found]


@dataclass
class Hints:
    """What errors have shown of one argument.

    Attributes:
        ranks: numbers of dimensions to try first.
        dtypes: element types to try first.
        sizes: sizes to try first.
    """

    ranks: list[int] = field(default_factory=list)
    dtypes: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)


def options(
    parameter: inspect.Parameter, known: Known, scale: Scale, hints: Hints, literals: list[str]
) -> list[str]:
    """Return what one argument may be, the likeliest first.

    Args:
        parameter: as the wrapper declares it.
        known: what its text shows.
        scale: how large things are.
        hints: what errors have shown.
        literals: strings that the wrapper compares with the argument.
    """
    if parameter.kind is parameter.VAR_POSITIONAL:
        one = _tensors(parameter.name, known, scale, hints)[0]
        return [OMIT, f"({one},)", f"({one}, {one})", f"({one}, {one}, {one})"]
    found = list(dict.fromkeys(_values(parameter, known, scale, hints, literals)))
    if parameter.default is not parameter.empty:
        return [OMIT, *found]
    return found or ["None"]


def _values(
    parameter: inspect.Parameter, known: Known, scale: Scale, hints: Hints, literals: list[str]
) -> list[str]:
    name = parameter.name.lower().strip("_")
    kind = annotation_text(parameter.annotation).removeprefix("none | ")
    if kind == "bool" or isinstance(parameter.default, bool):
        return ["True", "False"]
    if "literal" in kind and typing.get_args(parameter.annotation):
        return [repr(value) for value in typing.get_args(parameter.annotation)]
    if literals or kind == "str":
        return [*map(repr, [*literals, *look_up(_STRINGS, name, ())]), "None"]
    if "dtype" in kind or re.search(r"dtype$", name):
        return ["torch.float32", "torch.float16", "torch.int32"]
    if "device" in kind or name == "device":
        return ["'cuda'"]
    if "list[torch.tensor" in kind or "sequence[torch.tensor" in kind:
        one = _tensors(name, known, scale, hints)[0]
        return [f"[{one}, {one}]"]
    if kind == "float" or isinstance(parameter.default, float):
        return _floats(name)
    if kind == "int" or isinstance(parameter.default, int):
        return _integers(name, scale, hints)
    if re.search(r"(tuple|list|sequence|size)\b", kind) and "tensor" not in kind:
        size = scale.size(name)
        return [f"[{size}]", f"[{scale.rank}, {size}]", "[1, 1]", f"[2, {size}, {size}]"]
    if "callable" in kind or known.called:
        return ["lambda *given: given[0]", "None"]
    if known.tensor or "tensor" in kind:
        return [*_tensors(name, known, scale, hints), *_numbers(kind, name, scale, hints)]
    return _by_name(name, known, scale, hints)


def _by_name(name: str, known: Known, scale: Scale, hints: Hints) -> list[str]:
    """Return values for an argument without annotation that is not used as a tensor."""
    if (known.kind or "").startswith("fp"):
        return _floats(name)
    if re.fullmatch(_BOOLEANS, name):
        return ["True", "False"]
    if strings := look_up(_STRINGS, name, ()):
        return [*map(repr, strings), "None"]
    if re.fullmatch(_FLOATS, name):
        return [*_floats(name), *_integers(name, scale, hints)[:2]]
    if (known.kind or "").startswith(("i", "u", "constexpr")) or re.fullmatch(_INTEGERS, name):
        return [*_integers(name, scale, hints), "1.0", "True"]
    return [*_tensors(name, known, scale, hints), *_integers(name, scale, hints), "1.0", "None"]


def _numbers(kind: str, name: str, scale: Scale, hints: Hints) -> list[str]:
    return [*_floats(name)[:1], *_integers(name, scale, hints)[:1]] if "|" in kind else []


def _floats(name: str) -> list[str]:
    return list(dict.fromkeys([look_up(_FLOAT_VALUES, name, "1.0"), "0.5", "1.0", "0.0"]))


def _integers(name: str, scale: Scale, hints: Hints) -> list[str]:
    if re.fullmatch(r"(\w*_)?(dim|axis|dims)", name):
        return ["-1", "0", "1"]
    if re.fullmatch(r"(kernel|window|pool)_?(size|h|w)|stride|dilation|groups", name):
        return ["2", "1", "3"] if "stride" not in name else ["1", "2"]
    if re.fullmatch(r"pad\w*", name):
        return ["0", "1"]
    if re.fullmatch(r"\w*(seed|offset|start|idx|index|layer_id|rank)\w*", name):
        return ["0", "1"]
    sizes = [*hints.sizes, scale.size(name), 1, 2, 4, 16, 32, 64, 128, 0]
    return [str(size) for size in dict.fromkeys(sizes)]


def _tensors(name: str, known: Known, scale: Scale, hints: Hints) -> list[str]:
    """Return tensors: by all that is known first, then of other types, ranks and sizes."""
    rank = known.rank
    if rank is None:
        # In a wrapper of tensors with many dimensions, w and beta have as many.
        is_vector = re.fullmatch(_VECTORS, name) and len(scale.like) < 4
        rank = 1 if is_vector else scale.rank
        rank = max(rank, known.least_rank)
    ranks = [*hints.ranks, rank, *(r for r in (1, 2, 3, 4, 5, 0) if r >= known.least_rank)]
    kinds = [*hints.dtypes, _dtype(name, known), *_OTHER_TYPES]
    first = scale.shape(ranks[0], known.dims)
    found = _special(name, scale, hints)
    found.append(tensor(first, kinds[0]))
    for size in hints.sizes:
        found.append(tensor([*first[:-1], size], kinds[0]))
        found.append(tensor([size, *first[1:]], kinds[0]))
    found += [tensor(scale.shape(r, known.dims if r == rank else {}), kinds[0]) for r in ranks]
    found += [tensor(first, kind) for kind in kinds]
    found += [tensor([size], kinds[0]) for size in (2, 4, 16, 32, 64, 1)]
    found += [tensor([*first[:-1], size], kinds[0]) for size in (1, 16, 32, 128) if first]
    return found


def _dtype(name: str, known: Known) -> str:
    if known.kind and known.kind.startswith("*"):
        return _TYPES.get(known.kind.lstrip("*k"), "float32")
    return look_up(_TYPE_BY_NAME, name, "float32")


def _special(name: str, scale: Scale, hints: Hints) -> list[str]:
    """Return tensors whose values mean something."""
    if hints.ranks or hints.dtypes:
        return []
    batch, length = scale.size("batch"), scale.size("seq")
    if re.fullmatch(r"\w*(cu_?seq_?len\w*|cu_seq\w*|indptr|\w*_indptr|\w*offsets?|splits)", name):
        return [
            f"torch.tensor([0, {length}], dtype=torch.int32)",
            f"torch.arange({batch} + 1, dtype=torch.int32) * {length}",
        ]
    if re.fullmatch(r"\w*(seq_?lens?|lengths?|context_lens?|kv_lens?|num_tokens)", name):
        return [f"torch.full(({batch},), {length}, dtype=torch.int32)"]
    if re.fullmatch(r"block_tables?|page_tables?|\w*_table", name):
        return [f"torch.arange({batch} * 2, dtype=torch.int32).view({batch}, 2)"]
    return []


def tensor(shape: list[int], dtype: str) -> str:
    """Return an expression that makes a tensor of small values."""
    sizes = ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "")
    if dtype == "bool":
        return f"torch.rand(({sizes})) > 0.2"
    if dtype.startswith(("int", "uint")):
        return f"torch.randint(0, 2, ({sizes}), dtype=torch.{dtype})"
    if dtype == "float32":
        return f"torch.randn({sizes.rstrip(',') or '()'})"
    if dtype.startswith("float8"):
        return f"torch.randn({sizes.rstrip(',') or '()'}).to(torch.{dtype})"
    return f"torch.randn(({sizes}), dtype=torch.{dtype})"


_SIZES: tuple[tuple[str, int], ...] = (
    (r"b|bs|bsz|n?_?batch\w*|z|num_seqs?|g|groups?|n_groups|num_groups", 2),
    (r"h|hq|hk|hv|hkv|n?_?(num_)?\w*heads?|nheads|e|num_experts|topk|top_k|k_top", 4),
    (r"t|l|s|n_ctx|\w*seq\w*|\w*length|\w*len|m|n_rows|num_tokens|rows?|tokens", 32),
    (r"n|n_cols|cols?|hidden\w*|\w*features|v_?size|vocab\w*", 64),
    (r"c|channels?|\w*channels", 8),
)

_VECTORS = r"\w*(weights?|bias|gamma|beta|scales?|rstd|mean|lse|norm_w|norm_weight|inv_\w+)|[wb]"

_FLOATS = (
    r"\w*(eps(ilon)?|scale|scaling|alpha|beta|gamma|temperature|prob\w*|theta|slope|ratio"
    r"|factor|softcap|momentum|dropout\w*|lr|weight_decay|threshold|limit|value)|p|beta[12]"
)

_INTEGERS = (
    r"\w*(size|dim|axis|num|n_\w+|block\w*|chunk\w*|stride\w*|len|length|heads?|groups?|width"
    r"|height|count|steps?|rows?|cols?|k|seed|warps|stages|bits|top_?k)|num_\w+|n_\w+|block_\w+|[mnkhwbctd]"
)

_STRINGS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"\w*(reduction|reduce)", ("mean", "sum", "none", "batchmean")),
    (r"\w*(activation|act|act_fn)", ("silu", "relu", "gelu")),
    (r"\w*(mode|approximate)", ("none", "tanh", "mean")),
)

_BOOLEANS = r"(is|use|has|with|do|return|need|output|apply|enable|inplace|causal|training)(_\w+)?"

_FLOAT_VALUES: tuple[tuple[str, str], ...] = (
    (r"\w*eps\w*", "1e-05"),
    (r"p|\w*(prob|dropout)\w*", "0.5"),
    (r"lr|\w*(decay|slope)\w*", "0.01"),
)

_TYPE_BY_NAME: tuple[tuple[str, str], ...] = (
    (r"\w*mask\w*|condition|cond", "bool"),
    (
        r"\w*(indices|index|idx|ids?|labels?|targets?|seqlens?|positions?|lengths?|table|slots?"
        r"|mapping|offsets?|experts?|tokens_per\w*)",
        "int64",
    ),
    (r"\w*(qweight|qzeros|packed)\w*", "int32"),
)

_OTHER_TYPES = ("float16", "bfloat16", "int64", "int32", "bool", "int8", "uint8", "float8_e4m3fn")

_TYPES = {
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "fp64": "float64",
    "i1": "bool",
    "i8": "int8",
    "u8": "uint8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u32": "uint32",
    "fp8e4nv": "float8_e4m3fn",
    "fp8e5": "float8_e5m2",
}
"""Triton's names of types, and PyTorch's."""
