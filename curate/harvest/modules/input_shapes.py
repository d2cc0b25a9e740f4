"""What an argument of ``forward`` may be: shapes with named sizes, and values."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from curate.harvest.guess import annotation_text
from curate.harvest.modules.documented import Documentation, Letters
from curate.harvest.modules.sizes import OTHERS, SEARCH_SIZES, Dim, Sizes, evaluate


@dataclass(frozen=True)
class InputGuess:
    """One argument of ``forward``.

    Attributes:
        kind: what is drawn, one of `_DRAWS`, or ``value``.
        dims: sizes, or the names of sizes.
        high: exclusive bound of a ``randint``; the expression itself for a ``value``.
    """

    kind: str
    dims: tuple[Dim, ...] = ()
    high: int | str = 0

    def shape(self, sizes: Sizes) -> tuple[int, ...]:
        return evaluate(self.dims, sizes)

    def expression(self) -> str:
        """Return Python that draws the argument, where the named sizes are variables."""
        if self.kind == "value":
            return str(self.high)
        shape = ", ".join(map(str, self.dims))
        tuple_of = f"({shape},)" if len(self.dims) == 1 else f"({shape})"
        return _DRAWS[self.kind].format(shape=shape, tuple=tuple_of, high=self.high)


_DRAWS = {
    "randn": "torch.randn({shape})",
    "rand": "torch.rand({shape})",
    "randint": "torch.randint(0, {high}, {tuple})",
    "binary": "torch.randint(0, 2, {tuple}).float()",
    "mask": "torch.rand({shape}) > 0.2",
    "logprob": "torch.nn.functional.logsigmoid(torch.randn({shape}))",
    "causal": "torch.full({tuple}, float('-inf')).triu(1)",
    "rotary": "(torch.randn({shape}).cos(), torch.randn({shape}).sin())",
}


@dataclass
class Subject:
    """A module whose inputs are searched.

    Attributes:
        model: the module.
        name: what its author called it.
        told: its docstrings and code.
        hints: sizes that its inputs may have, the likeliest first.
        sizes: named sizes of its own, from its documentation.
    """

    model: Any
    name: str
    told: Documentation
    hints: list[int] = field(default_factory=list)
    sizes: Sizes = field(default_factory=dict)

    @property
    def is_criterion(self) -> bool:
        """Whether it compares a prediction with a truth."""
        return re.search(_CRITERIA, self.name) is not None


def candidates(parameter: inspect.Parameter, subject: Subject) -> Iterator[InputGuess]:
    """Yield what one argument of ``forward`` may be, the likeliest first."""
    name = parameter.name.lower()
    kind = annotation_text(parameter.annotation).strip("'\"")
    hints = subject.hints
    side = next((s for s in ("height", "width") if name in (s, s[0]) or name.endswith(f"_{s}")), "")
    if kind == "int" or side:
        wanted = f"2 * {side}" if re.match("target|out", name) else side
        numbers = (12, SEARCH_SIZES["height"], 1, 2, *hints)
        values = ([wanted] if side else []) + [str(v) for v in numbers]
        yield from (InputGuess("value", (), v) for v in values)
        return
    if re.fullmatch(r"(feat_|input_|x_|img_|spatial_)?(size|shape|resolution|hw)", name):
        yield InputGuess("value", (), "(height, width)")
        yield from (InputGuess("value", (), f"({v}, {v})") for v in (12, *hints))
    if is_rotary(parameter):
        yield from (InputGuess("rotary", dims) for dims in _angles(subject))
        return
    if parameter.default is None:
        yield InputGuess("value", (), "None")
        return
    if kind in ("float", "bool"):
        yield InputGuess("value", (), "0.5" if kind == "float" else "False")
        return
    yield from _tensors(parameter.name, subject)


def is_rotary(parameter: inspect.Parameter) -> bool:
    """Whether an argument is a rotary embedding: cosines and sines of angles."""
    kind = annotation_text(parameter.annotation).lower()
    pair = re.search(r"tuple\[(torch\.)?tensor, ?(torch\.)?tensor\]", kind)
    return bool(pair) and re.search("position|rotary|rope|freqs|cos", parameter.name) is not None


def _angles(subject: Subject) -> Iterator[tuple[Dim, ...]]:
    """Yield shapes of angles: one for each element of a head, or for half of them."""
    heads = {getattr(module, "head_dim", None) for module in subject.model.modules()}
    sizes = [size for size in heads if isinstance(size, int)] or subject.hints[:4]
    for size in dict.fromkeys([*sizes, *(size // 2 for size in sizes)]):
        yield from (("batch_size", "seq_len", size), ("seq_len", size))


def _tensors(name: str, subject: Subject) -> Iterator[InputGuess]:
    """Yield the tensors that an argument may be: as documented, then by its name and the layers."""
    kinds = _kinds(name, subject)
    hints = subject.hints
    high = index_bound(subject)
    for dims in _documented(name, subject):
        yield from (InputGuess(k, dims, high if k == "randint" else 0) for k in kinds)
    name = name.lower()
    if "mask" in name:
        if re.fullmatch("(attention|attn|causal)_mask", name):  # added to scores
            yield InputGuess("causal", ("seq_len", "seq_len"))
        yield from (InputGuess("mask", dims) for dims in _MASKS)
        yield InputGuess("value", (), "None")
    drawn = [kinds[0] if kinds[0] in ("rand", "logprob", "binary") else "randn"]
    if subject.is_criterion and kinds[0] == "randint":
        drawn = ["randint", "binary"]
    for label in _ranked(name, kinds[0], subject):
        dims = _TEMPLATES[label]
        if label in ("indices", "labels"):
            yield InputGuess("randint", dims, high)
            continue
        chosen = [(dims, size) for size in (hints if "C" in dims else hints[:1])]
        chosen += [(_square(dims), size) for size in hints[:3] if "width" in dims]
        for shape, size in chosen:
            own = tuple(size if d == "C" else d for d in shape)
            yield from (InputGuess(k, own, high if k == "randint" else 0) for k in drawn)
    for length, size in itertools.product([h for h in hints if h >= 7], hints[:4]):
        yield InputGuess("randn", ("batch_size", size, length, length))
        yield InputGuess("randn", ("batch_size", length, size))


def _square(dims: tuple[Dim, ...]) -> tuple[Dim, ...]:
    return tuple("height" if d == "width" else d for d in dims)


def _kinds(name: str, subject: Subject) -> list[str]:
    """Return what may be drawn for a tensor, the likeliest first, from its name and its docs."""
    about = subject.told.about(name).lower()
    name = name.lower()
    if re.search(r"log_?p(rob)?s?\b|log.?probab", f"{name} {about}"):
        return ["logprob"]
    if "mask" in name or re.search(r"\bbool(ean)?\b.*(tensor|mask)", about):
        return ["mask"]
    if re.search(_EMBEDDINGS_OF_NUMBERS, subject.name):
        return ["rand"]  # times, from 0 to 1
    if subject.is_criterion and re.fullmatch(_TRUTHS, name):
        whole = re.search(r"label|\bids?\b|index|indices|class", f"{name} {about}")
        return ["randint", "binary"] if whole and "y_" not in name else ["binary", "randint"]
    if re.fullmatch(_INDICES, name) or re.search(r"integer|\bids\b|indices", about):
        return ["randint", "randn"]
    if re.fullmatch(r"p|probs?|prob_?\w*|\w+_probs?|probabilit\w*", name) or "probabilit" in about:
        return ["rand"]
    about_logits = re.search(r"(?i)logit|sigmoid|softmax", subject.name + subject.told.source)
    if subject.is_criterion and re.fullmatch(r"y_?(pr(ed)?|hat)|preds?|predictions?", name):
        return ["randn" if about_logits else "rand"]
    return ["randn"]


def _ranked(name: str, kind: str, subject: Subject) -> list[str]:
    """Return the labels of `_TEMPLATES`, the likeliest first."""
    first: Iterable[str] = ()
    for pattern, labels in _FIRST_BY_NAME:
        if re.fullmatch(pattern, name) and (kind != "binary" or "indices" not in labels):
            first = labels
            break
    if kind == "logprob":
        first = ("scalars",)
    if subject.is_criterion and kind == "randint":
        first = ("labels", "indices")
    if re.search(_EMBEDDINGS_OF_NUMBERS, subject.name):
        first = ("scalars",)
    found = [*first, *_by_layers(subject), *(["vector"] if subject.is_criterion else [])]
    return list(dict.fromkeys([*found, *_TEMPLATES]))


def _by_layers(subject: Subject) -> Iterator[str]:
    """Yield what the module's layers, its parameters and its words speak of."""
    for module in subject.model.modules():
        for base in type(module).__mro__:
            for pattern, label in _FIRST_BY_LAYER:
                if base.__module__.startswith("torch.nn") and re.fullmatch(pattern, base.__name__):
                    yield label
                    return
    for parameter in subject.model.parameters():
        rank = len(parameter.shape)
        if rank > 2 and parameter.shape[0] == 1 and set(parameter.shape[2:]) == {1}:
            yield {3: "signal", 4: "image", 5: "volume"}.get(rank, "sequence")
            return
    if re.search(_IMAGES, subject.told.source + subject.name):
        yield "image"


def _documented(name: str, subject: Subject) -> Iterator[tuple[Dim, ...]]:
    """Yield the shapes that are documented for an argument; `C` is each of the hints in turn."""
    for letters in subject.told.shapes(name):
        dims = _dims(letters, subject)
        places = [i for i, d in enumerate(dims) if d == "C"]
        hints = subject.hints[:6]
        chosen = [(h,) * len(places) for h in hints] if places else [()]
        if len(places) == 2:
            chosen += list(itertools.product(hints[:4], repeat=2))
        for values in dict.fromkeys(chosen):
            at = dict(zip(places, values, strict=True))
            yield tuple(at.get(i, d) for i, d in enumerate(dims))
        if "seq_len" in dims:  # a length that the module has
            for length, size in itertools.product([h for h in hints if h >= 7], hints[:3]):
                own = {"seq_len": length, "C": size}
                yield tuple(own.get(d, d) if isinstance(d, str) else d for d in dims)


def _dims(letters: Letters, subject: Subject) -> tuple[Dim, ...]:
    """Return a documented shape as sizes: each letter is one of its own."""
    found: list[Dim] = []
    lower = [x.lower() for x in letters]
    image = bool({"w", "width"} & set(lower))
    for place, (own, letter) in enumerate(zip(letters, lower, strict=True)):
        known = int(own) if own.isdigit() else getattr(subject.model, own, None)
        if type(known) is int:
            found.append(known)
        elif place == 0 and re.fullmatch(_BATCHES, letter):
            found.append("batch_size")
        elif image and letter in ("h", "height", "w", "width"):
            found.append("height" if letter[0] == "h" else "width")
        elif letter == "depth" or (image and letter == "d" and len(letters) == 5):
            found.append("depth")
        elif re.fullmatch(_HEADS, letter):
            found.append("n_heads")
        elif re.fullmatch(_LENGTHS, letter):
            found.append("context_len" if re.fullmatch(_CONTEXTS, letter) else "seq_len")
        elif re.fullmatch(_WIDTHS, letter):
            found.append("C")
        else:
            found.append(_other(letter, subject))
    return tuple(found)


def _other(letter: str, subject: Subject) -> str:
    name = letter if len(letter) > 2 else f"{letter}_size"
    subject.sizes.setdefault(name, OTHERS[len(subject.sizes) % len(OTHERS)])
    return name


def size_hints(subject: Subject) -> list[int]:
    """Return sizes that the inputs may have, the likeliest first."""
    model = subject.model
    found = [CLASSES] if subject.is_criterion else []
    for module in model.modules():
        for name in _SIZE_FIELDS:
            value = getattr(module, name, None)
            if isinstance(value, tuple) and value:
                value = value[-1]
            if isinstance(value, int) and not isinstance(value, bool):
                found.append(value)
    for tensor in model.parameters():
        found += tensor.shape[:3]
    found += [v for v in vars(model).values() if isinstance(v, int) and not isinstance(v, bool)]
    found += [64, 3]
    sizes = list(dict.fromkeys(v for v in found if 2 <= v <= 4096))[:8]
    return [*sizes, 1]  # a single channel broadcasts against anything: last


CLASSES = 10
"""Classes that a criterion's predictions and labels have."""

_SIZE_FIELDS = (
    "in_features",
    "in_channels",
    "num_features",
    "num_channels",
    "normalized_shape",
    "embed_dim",
    "d_model",
    "input_size",
    "img_size",
    "image_size",
)


def index_bound(subject: Subject) -> int:
    """Return the exclusive bound of indices: every embedding accepts them, or they are classes."""
    embeddings = [m for m in subject.model.modules() if isinstance(m, torch.nn.Embedding)]
    classes = subject.hints[0] if subject.is_criterion else 2
    return min((m.num_embeddings for m in embeddings), default=classes)


def distributions(inputs: tuple[InputGuess, ...]) -> Iterator[tuple[InputGuess, ...]]:
    """Yield the inputs as they are, then with values in [0, 1) and the safest indices."""
    yield inputs
    safe = {"randn": ("rand", 0), "randint": ("randint", 2)}
    yield tuple(
        replace(i, kind=safe[i.kind][0], high=safe[i.kind][1]) if i.kind in safe else i
        for i in inputs
    )


def apart(inputs: tuple[InputGuess, ...]) -> Iterator[tuple[InputGuess, ...]]:
    """Yield the inputs with another length in all but the first, then in one of them."""
    first = next((i for i, given in enumerate(inputs) if "seq_len" in given.dims), len(inputs))
    later = [i for i in range(first + 1, len(inputs)) if "seq_len" in inputs[i].dims]
    for changed in dict.fromkeys((tuple(later), *((i,) for i in later))):
        if changed:
            yield tuple(_other_length(g) if i in changed else g for i, g in enumerate(inputs))


def _other_length(given: InputGuess) -> InputGuess:
    last = len(given.dims) - 1 - given.dims[::-1].index("seq_len")  # of a mask, that of the keys
    return replace(given, dims=(*given.dims[:last], "context_len", *given.dims[last + 1 :]))


_TEMPLATES: dict[str, tuple[Dim, ...]] = {
    "sequence": ("batch_size", "seq_len", "C"),
    "image": ("batch_size", "C", "height", "width"),
    "finer": ("batch_size", "C", "2 * height", "2 * width"),
    "grid": ("batch_size", "height * width", "C"),
    "signal": ("batch_size", "C", "seq_len"),
    "vector": ("batch_size", "C"),
    "indices": ("batch_size", "seq_len"),
    "last": ("batch_size", "height", "width", "C"),
    "volume": ("batch_size", "C", "depth", "height", "width"),
    "labels": ("batch_size",),
    "square": ("batch_size", "seq_len", "seq_len"),
    "matrix": ("batch_size", "C", "C"),
    "heads": ("batch_size", "n_heads", "seq_len", "C"),
    "own_heads": ("batch_size", "C", "seq_len", 16),
    "scores": ("batch_size", "n_heads", "seq_len", "context_len"),
    "scalars": ("batch_size",),
    "tokens": ("batch_size", "seq_len"),
    "flat": ("seq_len", "C"),
    "weight": (96, "C"),
}
"""Shapes of tensors. `C` is a size that the module has, such as its channels."""

_MASKS: tuple[tuple[Dim, ...], ...] = (
    ("batch_size", "seq_len"),
    ("batch_size", "seq_len", "seq_len"),
    ("seq_len", "seq_len"),
)

_FIRST_BY_LAYER = (
    (r"Embedding", "indices"),
    (r"\w+2d", "image"),
    (r"\w+1d", "signal"),
    (r"\w+3d", "volume"),
    (r"Linear|LayerNorm|RMSNorm|MultiheadAttention", "sequence"),
)

_INDICES = r"(input_?)?(ids|tokens?|idx|indices|labels?|targets?)"

_FIRST_BY_NAME = (
    (_INDICES, ("indices", "labels")),
    (r"im(g|age)s?\d?|pixel_values|feature_?maps?", ("image",)),
    (r"q|k|v|query|key|value|seq\w*|hidden\w*|context|src|tgt|memory|embeds?", ("sequence",)),
    (r"skip\w*|lateral\w*|low_?level\w*", ("finer", "image")),
    (r"video|volume", ("volume",)),
    (r"weights?", ("weight",)),
    (r"(attn|attention)_(weights|scores|logits)|scores|sim", ("scores",)),
    (r"t|t_?emb|times?|timesteps?|sigma|cond\w*|time_emb", ("scalars", "vector")),
)

_EMBEDDINGS_OF_NUMBERS = r"(?i)(sinusoidal|fourier|time_?steps?).*emb"

_CRITERIA = r"(?i)loss|criterion|iou|dice|jaccard|f_?score|recall|precision|accuracy"

_TRUTHS = r"y_?(true|gt)|gt\w*|ground_truth|targets?|labels?|tgt"

_IMAGES = (
    r"(?i)2d\b|\bimages?\b|pixel|\bheight\b|spatial|feature_?maps?|segmentation|interpolate"
    r"|channels"
)

_BATCHES = r"b|bsz?\w*|batch\w*|\*|\.\.\.|_|n"

_HEADS = r"(n|num)_?(q|kv|local)?_?h(eads?)?|nh|heads?|n_kv|h"

_LENGTHS = (
    r"[nsltijmkq]|s_\w|(max_)?seq\w*|\w*len(gth)?|\w*tokens?\w*|time|frames?|\w*patches"
    r"|\w*positions?"
)

_CONTEXTS = r"s_[ey]|[jmk]|\w*(source|memory|context|encoder)\w*"
"""Lengths that are not those of the first input, as in ``[b, s_y, d]``."""

_WIDTHS = (
    r"[cdefv_]|h_?d|d_?[hkv]|n?ch|d_\w+|c_\w+"
    r"|\w*(dim|channels?|features?|hidden|embed\w*|vocab\w*|width|size|chans?)"
)
