"""How far right results may be off: what roundings on the way to them can do.

`Jitter` runs a problem in float64 and changes the result of each operator by what rounding could
change in it; `RoundFactors` runs it as tensor cores do where a file allows TF32.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.overrides import TorchFunctionMode

from curate.problem.operator_calls import Mode, is_compute
from curate.problem.values import list_tensors, map_tensors, without_float8
from curate.verify.protocol.messages import Results

PRODUCTS = (
    *("mm", "mv", "linear", "convolution", "attention", "attention_for_cpu"),
    *("cdist", "_trilinear"),
)
"""Suffixes of operators that multiply matrices."""

CONVOLUTION = "convolution"
GELU = "gelu"
RESIZES = ("upsample_linear", "upsample_bilinear", "upsample_trilinear", "upsample_bicubic")
"""Prefixes of operators that weigh neighbours by the fraction of a place."""


LOG_SOFTMAX = "log_softmax"
SOFTMAXES = ("softmax", "safe_softmax", LOG_SOFTMAX)
ATTENTION = "scaled_dot_product"
"""Prefix of operators that have a softmax inside."""

MOST_EXPONENT = 60.0
"""Where `exp` is so large that nothing is left of a result, which float32 holds still."""


class RoundFactors(Mode):
    """Cuts the factors of float32 products to TF32's 10 bits of mantissa."""

    MATRICES = ("mm", "bmm", "addmm", "baddbmm", "addbmm", "mv", "addmv")

    def __init__(self, matmul_tf32: bool, cudnn_tf32: bool) -> None:
        """Cut those of matrix products, those of convolutions, or both."""
        self.factors = dict.fromkeys(self.MATRICES, slice(-2, None)) if matmul_tf32 else {}
        if cudnn_tf32:
            self.factors[CONVOLUTION] = slice(0, 2)

    def call(self, func: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Cut an operator's factors."""
        given, found = list(args), self.factors.get(func._schema.name.removeprefix("aten::"))
        if found is not None:
            given[found] = map(_cut, given[found])
        return func(*given, **kwargs)


def _cut(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype != torch.float32:
        return tensor
    return (tensor.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)


def last_place(inputs: list[Any]) -> float:
    """Return the last place of the type that a problem computes in: float32, or float64."""
    floats = [t.dtype for t in list_tensors(inputs) if t.is_floating_point()]
    double = bool(floats) and all(kind == torch.float64 for kind in floats)
    return float(torch.finfo(torch.float64 if double else torch.float32).eps)


def short_type(given: list[Any]) -> torch.dtype | None:
    """Return the 16-bit type that all floating inputs and parameters have, or None."""
    kinds = {t.dtype for t in list_tensors(given) if t.is_floating_point()}
    return kinds.pop() if kinds in SHORT_TYPES else None


class Taken(Mode):
    """Notes which tensors operators take while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self._storages: dict[int, torch.UntypedStorage] = {}  # kept, for no other to have its place

    def call(self, func: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Note what an operator takes."""
        for tensor in list_tensors([*args, *kwargs.values()]):
            if tensor.layout == torch.strided:
                storage = tensor.untyped_storage()
                self._storages[storage._cdata] = storage
        return func(*args, **kwargs)

    def __contains__(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage()._cdata in self._storages


COARSE = 2.0**-10
"""The last place of TF32 and of float16, relative to the values."""

NORMALISATIONS = ("native_layer_norm", "native_group_norm", "native_batch_norm")
"""Operators that give a mean, and what they divide by, besides what they have normalised."""

QUOTIENTS = ("mean", "var_mean", "div")
"""Operators of which a GPU may give another number in float32 even where the quotient has few
digits: it multiplies by the inverse. Of a row of equal numbers less its mean, that is all."""

FLOAT32 = torch.finfo(torch.float32).eps

RECURRENT_CELLS = "thnn_fused_"
"""Prefix of a GPU's operators for a step of a recurrent layer: two products, without their biases,
go in."""

SHORT_TYPES = ({torch.float16}, {torch.bfloat16})

JITTERS, MORE_JITTERS = 4, 20
"""How often the last digits are changed; one change may by luck move nothing. And how often where
few elements of a short type are further off than four runs explain."""

SHORT, SMALL = 256, 32
"""A number has few digits if it is a multiple of 1/256 up to 32: labels, masks, thresholds and
what the draws call ``steps``. A normal variable in float32 has few digits about once in 30,000
values."""

EXACT = {
    *("abs", "neg", "add", "sub", "rsub", "mul", "square", "sign", "relu", "where", "masked_fill"),
    *("floor", "ceil", "trunc", "round", "clamp", "clamp_min", "clamp_max", "maximum", "minimum"),
    *("max", "min", "amax", "amin", "cat", "stack", "index", "index_select", "gather", "flip"),
    *("roll", "repeat", "constant_pad_nd"),
}
"""Operators whose results are exact on any device where they have few digits."""

SELECT = {
    *("abs", "neg", "relu", "where", "masked_fill", "clamp", "clamp_min", "clamp_max", "maximum"),
    *("minimum", "max", "min", "amax", "amin", "cat", "stack", "index", "index_select", "gather"),
    *("flip", "roll", "repeat", "constant_pad_nd", "hardtanh", "threshold", "embedding", "tril"),
    *("triu", "max_pool2d_with_indices", "max_pool3d_with_indices", "upsample_nearest1d"),
    *("upsample_nearest2d", "upsample_nearest3d", "pixel_shuffle", "reflection_pad2d"),
    *("replication_pad2d", "index_put", "scatter", "adaptive_max_pool2d"),
}
"""Operators whose results are among what they are given: they may come before a rounding or after
it, with the same result."""

FILLS = ("where", "masked_fill", "constant_pad_nd")
"""Those of `SELECT` that take numbers of the file, such as -1e9, which no rounding changes."""

PICK = ("topk", "sort", "kthvalue", "median", "nanmedian", "mode", "cummax", "cummin")
"""Operators whose results are among what they are given, and which order it: a file may ask which
of the same numbers are not below one of them."""

ROUND_INSIDE = ("remainder", "fmod", "floor_divide", "fake_quantize", "grid_sampler")
"""Prefixes of operators that compute, and then round or compare, all in one; so
does a division with ``rounding_mode``, and ``round`` with ``decimals``."""


SINGLE = {torch.float32: torch.float64, torch.complex64: torch.complex128}
"""What a file of float32 names, and what it gets in float64."""


class Widened(Mode):
    """Takes wider types where a file names those that it computes in."""

    def __init__(self, wider: dict[torch.dtype, torch.dtype]) -> None:
        super().__init__()
        self.wider = wider

    def call(self, func: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Have an operator give the wider type."""
        if kwargs.get("dtype") in self.wider:
            kwargs["dtype"] = self.wider[kwargs["dtype"]]
        return func(*args, **kwargs)


class OwnEpsilon(TorchFunctionMode):  # type: ignore[misc]
    """Has `rms_norm` add in float64 what it adds in a shorter type where a file names no ``eps``.

    That is the last place of the type that it computes in.
    """

    def __init__(self, eps: float) -> None:
        super().__init__()
        self.eps = eps

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function of PyTorch's."""
        kwargs = kwargs or {}
        if func in (torch.rms_norm, torch.nn.functional.rms_norm):
            given = dict(zip(("input", "normalized_shape", "weight", "eps"), args, strict=False))
            given |= kwargs
            if given.get("eps") is None:
                return torch.nn.functional.rms_norm(**given | {"eps": self.eps})
        return func(*args, **kwargs)


@dataclass(frozen=True)
class Rounding:
    """What rounding may do on the way to a result.

    Attributes:
        ulp: the last place of the type that a program computes in; 0 if what rounding in it may do
            is nothing next to what rounding to 16 bits may.
        short: the 16-bit type that a problem is in: what an operator is given may then be rounded
            to that, as may the weights of an attention.
        cores: the 16-bit type of inputs and results, to which factors of products may be rounded
            even where a file has them in float32.
        factors: the last place of the type that factors of products may be rounded to.
        products: suffixes of the operators whose factors may be.
    """

    ulp: float
    short: torch.dtype | None
    cores: torch.dtype | None
    factors: float
    products: tuple[str, ...]


class Jitter(Mode):
    """Changes the result of every operator by up to a unit in float32's last place.

    So a run in float64 shows what rounding on the way can do to its end (stochastic arithmetic:
    Vignes, Discrete Stochastic Arithmetic for Validating Results of Numerical Software, 2004).
    """

    def __init__(self, seed: int, keep_short: bool, rounding: Rounding) -> None:
        """Make a run.

        Args:
            seed: of the changes. Every other run beyond the usual ones rounds to 16 bits what is
                alike alike, as weights of a softmax that are all nearly the same.
            keep_short: whether inputs of few digits stay, and results of `EXACT` operators. Such a
                number is meant as it is: where ``target == 1`` decides, it must not become
                1.0000001, or the result would pass for one that any change tips.
            rounding: what rounding may do.
        """
        super().__init__()
        self.keep_short = keep_short
        self.ulp, self.short, self.cores = rounding.ulp, rounding.short, rounding.cores
        self.weights = torch.finfo(self.short).eps if self.short else 0.0
        self.factors, self.products = rounding.factors, rounding.products
        self.alike = seed >= JITTERS and seed % 2 == 1
        self.rounds = False  # an operator of `ROUND_INSIDE` was called
        self._noise = Noise(seed)

    def call(self, func: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Change an operator's result."""
        name = func._schema.name.removeprefix("aten::").strip("_")
        if self.factors and name.endswith(self.products):
            args = tuple(map_tensors(list(args), self._rounded))
        selects = name in (FILLS if self.short is None else SELECT)
        if self.short and is_compute(func) and not selects:
            args = tuple(self._shortened(func, args))
        if self.cores and name.endswith(PRODUCTS):
            args = tuple(map_tensors(list(args), self._near_factor))
        if self.weights and name.startswith(RECURRENT_CELLS):
            args = self._with_biases(*args)
        if name == "histc" and self.ulp:
            args = (self._within_range(args[0], *args[2:]), *args[1:])
        result = func(*args, **kwargs)
        if is_compute(func):
            self.rounds |= _rounds_inside(name, func)
            rounds = self.ulp and not selects and name not in PICK
            for tensor in map(_as_real, list_tensors(result)) if rounds else []:
                if tensor.dtype == torch.float64 and tensor.numel():
                    self._change(tensor, self.ulp, is_exact=name in EXACT)
            self._round_within(func, name, args, kwargs, result)
            if self.weights:
                self._round_to_short(name, args, result)
            total = result[1] if name == "var_mean" else result  # the mean may be near zero
            if isinstance(total, torch.Tensor) and total.dtype == torch.float64 and not self.short:
                walk = walk_of(name, *args, **kwargs)
                if walk is not None and walk.shape == total.shape:
                    step, walk = self.ulp / 2 / math.sqrt(3), walk.nan_to_num(0.0, 0.0, 0.0)
                    total.addcmul_(walk, self._noise.normal(total), value=step)
        return result

    def _round_within(
        self, func: Any, name: str, args: Any, kwargs: dict[str, Any], result: Any
    ) -> None:
        """Change a result by what rounding inside its operator may do, where that is more than a
        unit in its last place."""
        if name == GELU or name.startswith(RESIZES):
            self._round_inside(name, args[0], result)
        elif name in NORMALISATIONS:
            self._round_mean(name, args, result)
        elif name in SOFTMAXES:
            self._round_peak(_peak_of(*args[:2]), result, name == LOG_SOFTMAX)
        elif name.startswith(ATTENTION) and args[0].dtype == torch.float64:
            self._round_peak(_peak_of_attention(*args, **kwargs), list_tensors(result)[0])
        elif name == "pow" and not isinstance(args[0], torch.Tensor):
            self._round_exponent(args[0], args[1], result)
        elif self.short and name in QUOTIENTS and not _rounds_inside(name, func):
            for tensor in list_tensors(result):
                tensor.addcmul_(tensor, self._noise.uniform(tensor), value=FLOAT32)

    def _round_to_short(self, name: str, args: Any, result: Any) -> None:
        """Change a result by what a GPU rounds to 16 bits inside its operator."""
        if name.startswith(ATTENTION):
            # Tensor cores take weights of 16 bits, each of which is then rounded.
            (attended, *_) = list_tensors(result)
            size = float(attended.square().mean().sqrt())
            step = self.weights / 2 / math.sqrt(3) * size
            attended.add_(self._noise.normal(attended), alpha=step)
        elif name == "safe_softmax":  # in float64, a GPU's attention has one
            result.addcmul_(result, self._noise.uniform(result), value=self.weights / 2)
        elif name == CONVOLUTION and args[2] is not None:
            # cuDNN's result is rounded to 16 bits before PyTorch adds the bias.
            before = result - args[2].reshape(-1, *(1,) * (result.dim() - 2))
            result.addcmul_(before, self._noise.uniform(result), value=self.weights / 2)

    def _within_range(self, x: torch.Tensor, low: float = 0.0, high: float = 0.0) -> torch.Tensor:
        """Return what is counted, moved as rounding may move it over an edge between two bins.

        Whether it is within the range is a comparison, which rounds nothing.
        """
        if low == high:  # then the range is that of the numbers
            low, high = float(x.min()), float(x.max())
        moved = (x + x * self._noise.uniform(x) * self.ulp).clamp(low, high)
        return torch.where((x >= low) & (x <= high), moved, x)

    def _round_inside(self, name: str, x: torch.Tensor, result: torch.Tensor) -> None:
        """Change a result by what float32 within the operator may do to it near zero.

        Where erf is near minus one, what is left of 1 + erf(x) has the last place of one; and the
        place of a pixel that of an image's size.
        """
        step, size = (self.ulp or FLOAT32) / 2, x.abs()
        if name != GELU:
            step *= max(x.shape[2:])
            size = size.amax(tuple(range(2, x.dim())), keepdim=True).expand_as(result)
        result.addcmul_(size, self._noise.uniform(result), value=step)

    def _round_exponent(self, base: float, exponent: torch.Tensor, result: torch.Tensor) -> None:
        """Change a power of a number by what float32 for its logarithm may do to it.

        A program writes ``exp2(exponent * log2(base))``, as for the angles of a rotary embedding.
        """
        if base > 0 and result.dtype == torch.float64:
            size = result * exponent * math.log(base)
            result.addcmul_(size, self._noise.uniform(result), value=(self.ulp or FLOAT32) / 2)

    def _round_peak(self, peak: torch.Tensor, result: torch.Tensor, is_log: bool = False) -> None:
        """Change weights by what rounding the largest score of a row may do to them.

        A GPU multiplies and subtracts in one operation: of ``exp(x * scale - peak)`` the peak alone
        is rounded.
        """
        step = (peak * (self.ulp or FLOAT32)).clamp_(max=MOST_EXPONENT)
        if is_log:
            result.addcmul_(step.expand_as(result), self._noise.uniform(result))
        else:
            result.addcmul_(step.expm1_() * result, self._noise.uniform(result))

    def _round_mean(self, name: str, args: Any, result: tuple[torch.Tensor, ...]) -> None:
        """Change what is normalised by what the rounding of its mean may do to it.

        Of a row of equal numbers little but that is left.
        """
        normalised, mean, inverse = result[:3]
        if not mean.numel():  # it is a buffer
            return
        size, weight = (mean * inverse).abs(), args[2 if name == "native_layer_norm" else 1]
        if name != "native_layer_norm":
            channels = normalised.shape[1]
            shape = -1, channels, *(1,) * (normalised.dim() - 2)
            size = size.reshape(-1, size.shape[-1])
            size = size.repeat_interleave(channels // size.shape[-1], 1).reshape(shape)
            weight = None if weight is None else weight.reshape(shape)
        if weight is not None:
            size = size * weight.abs()
        step = self.ulp or FLOAT32
        normalised.addcmul_(size.expand_as(normalised), self._noise.uniform(normalised), value=step)

    def _with_biases(self, of_input: torch.Tensor, of_state: torch.Tensor, *rest: Any) -> Any:
        """Return a cell's arguments with the products as far off as rounding them behind their
        biases may leave them."""
        _, *biases = rest
        given = []
        for product, bias in zip((of_input, of_state), biases or (None, None), strict=False):
            size = product if bias is None else product + bias
            given.append(
                product.addcmul(size, self._noise.uniform(product), value=self.weights / 2)
            )
        return *given, *rest

    def _shortened(self, func: Any, args: Any) -> list[Any]:
        """Return arguments with those that are results rounded to 16 bits, or to near there."""

        known = torch.finfo(self.short)
        beyond = int(known.eps * 2**52) - 1  # digits that the type does not have

        def near(tensor: torch.Tensor) -> torch.Tensor:
            if tensor.dtype != torch.float64 or not tensor.numel():
                return tensor
            bits = tensor.view(torch.int64)
            held = bits + BESIDE & beyond <= 2 * BESIDE
            if self.alike:
                factor = 1 + self._noise.uniform(tensor.new_empty(())).abs()
                rounded = (tensor * factor).to(self.short).double() / factor
                return torch.where(held | ~rounded.isfinite(), tensor, rounded)
            power = (bits & EXPONENT).view(torch.float64)
            change = power.clamp_(min=known.tiny).mul_(self._noise.uniform(tensor))
            return tensor.add(change.masked_fill_(held, 0), alpha=known.eps / 2)

        return [
            arg.copy_(near(arg))
            if isinstance(arg, torch.Tensor) and asked.alias_info and asked.alias_info.is_write
            else map_tensors(arg, near)
            for arg, asked in zip(args, func._schema.arguments, strict=False)
        ]

    def _near_factor(self, factor: torch.Tensor) -> torch.Tensor:
        """Return a factor as near to what it is as rounding it to 16 bits may leave it.

        So have programs the weights of an attention, whatever a file computes with them.
        """
        assert self.cores is not None
        if factor.dtype not in (torch.float32, torch.float64):
            return factor
        known = torch.finfo(self.cores)
        held = factor.to(self.cores).to(factor.dtype) == factor
        size = factor.abs().clamp_(min=known.tiny).masked_fill_(held, 0)
        return factor.addcmul(size, self._noise.uniform(size).to(size.dtype), value=known.eps / 2)

    def _rounded(self, factor: torch.Tensor) -> torch.Tensor:
        if factor.dtype != torch.float64:
            return factor
        # Tensor cores drop digits: a factor becomes smaller, by half of its last place on average.
        return factor * (1 + (self._noise.uniform(factor) - 1) * self.factors)

    def change(self, inputs: list[Any]) -> list[Any]:
        """Return inputs in float64, changed likewise."""

        def changed(tensor: torch.Tensor) -> torch.Tensor:
            if tensor.is_complex():
                return torch.view_as_complex(changed(_as_real(tensor.resolve_conj())).contiguous())
            if not tensor.is_floating_point() or tensor.element_size() == 1:
                return tensor
            if tensor.dtype == self.short:  # it holds what it holds
                return tensor.double()
            # Inputs in float64 have more digits, which a candidate has too.
            ulp = min(torch.finfo(tensor.dtype).eps, self.ulp)
            exact = tensor.to(torch.float64, copy=True)
            self._change(exact, ulp, is_exact=True)
            return exact

        return list(map_tensors(inputs, changed))

    def _change(self, tensor: torch.Tensor, ulp: float, *, is_exact: bool) -> None:
        # By a factor: an infinity stays one, and zero keeps its sign.
        factor = (self._noise.uniform(tensor) * ulp).add_(1)
        if is_exact and self.keep_short:
            digits = tensor * SHORT
            factor.masked_fill_((digits == digits.round()) & (tensor.abs() <= SMALL), 1)
        tensor.mul_(factor)


def _as_real(tensor: torch.Tensor) -> torch.Tensor:
    """Return the parts of complex numbers as a view, and other tensors as they are."""
    return torch.view_as_real(tensor) if tensor.is_complex() and not tensor.is_conj() else tensor


def _peak_of(x: torch.Tensor, dim: int) -> torch.Tensor:
    """Return how large the largest score of each row is; 0 where all are the same."""
    low, high = x.aminmax(dim=dim, keepdim=True) if x.dim() and x.numel() else (x, x)
    return torch.where(low == high, 0.0, high.abs()).nan_to_num_(0.0, 0.0, 0.0)


def _peak_of_attention(
    query: torch.Tensor, key: torch.Tensor, *_: Any, scale: float | None = None, **__: Any
) -> torch.Tensor:
    """Return what no score of a query is larger than."""
    if not query.numel() * key.numel():
        return query.new_zeros(())
    lengths = [torch.linalg.vector_norm(t, dim=-1, keepdim=True) for t in (query, key)]
    scale = query.shape[-1] ** -0.5 if scale is None else abs(scale)
    longest = lengths[1].amax((-3, -2), keepdim=True)
    return (lengths[0] * longest * scale).nan_to_num_(0.0, 0.0, 0.0)


BESIDE = 1 << 30
"""Two units in float32's last place, in a number in float64: what is nearer to a number of 16 bits
is not rounded to that."""

EXPONENT = 0x7FF << 52
"""Bits of a number in float64 that make a power of two."""

NOISE = 1 << 20
"""Random numbers of each kind that are drawn once and used again, from another place each time."""


class Noise:
    """Random numbers in float64 for tensors of any shape."""

    def __init__(self, seed: int) -> None:
        self.starts = random.Random(seed)

    def uniform(self, like: torch.Tensor) -> torch.Tensor:
        """Return numbers from [-1, 1) in a tensor's shape, on its device."""
        return self._take(like, 0)

    def normal(self, like: torch.Tensor) -> torch.Tensor:
        """Return normal numbers in a tensor's shape, on its device."""
        return self._take(like, 1)

    def _take(self, like: torch.Tensor, kind: int) -> torch.Tensor:
        table = random_numbers(str(like.device))[kind]
        count = like.numel()
        start = self.starts.randrange(NOISE // 2)
        if count > NOISE // 2:
            table = table[start:].repeat(count // (NOISE - start) + 1)
            start = 0
        return table[start : start + count].view(like.shape)


@functools.cache
def random_numbers(device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return `NOISE` numbers from [-1, 1), and as many normal ones."""
    generator = torch.Generator().manual_seed(0)
    even = torch.rand(NOISE, generator=generator, dtype=torch.float64) * 2 - 1
    normal = torch.randn(NOISE, generator=generator, dtype=torch.float64)
    return even.to(device), normal.to(device)


SCANS = ("cumsum", "cumprod", "logcumsumexp")
"""Scans that round; PyTorch's own `cumsum` adds in float64 on a CPU, so that the reference's own
error says nothing."""

WALK_CHUNKS = 64
"""Partial sums by which the roundings of a long sum are estimated."""


def walk_of(name: str, /, *args: Any, **kwargs: Any) -> torch.Tensor | None:
    """Return the root of the sum of squares of an accumulating operator's partial sums.

    Adding n numbers one by one rounds each partial sum s by at most u |s|; the roundings are a
    random walk of some u / sqrt(3) times what is returned. None for other operators.
    """
    with torch.utils._python_dispatch._disable_current_modes():
        if name in ("mm", "bmm", "addmm", "baddbmm") and len(args) >= 2:
            a, b = args[-2:]
            return _walk([(a[..., lo:hi], b[..., lo:hi, :]) for lo, hi in _spans(a.shape[-1])], a)
        if name in ("sum", "mean", "var_mean") and args and args[0].dtype == torch.float64:
            return _walk_of_sum(name, *args, **kwargs)
        if name in SCANS and args[0].dtype == torch.float64:
            return _walk_of_scan(name, *args[:2])
        if name == CONVOLUTION:
            return _walk_of_convolution(*args)
    return None


def _spans(length: int) -> list[tuple[int, int]]:
    count = max(1, min(WALK_CHUNKS, length))
    edges = [length * i // count for i in range(count + 1)]
    return list(itertools.pairwise(edges))


def _walk(parts: list[tuple[torch.Tensor, torch.Tensor]], a: torch.Tensor) -> torch.Tensor:
    total, squares = 0.0, 0.0
    for left, right in parts:
        total = total + left @ right
        squares = squares + total.square() * left.shape[-1]
    return torch.as_tensor(squares).sqrt()


def _walk_of_sum(
    name: str, x: torch.Tensor, dim: Any = None, keepdim: bool = False, **_: Any
) -> torch.Tensor:
    dims = (
        list(range(x.ndim)) if dim is None or dim == [] else [dim] if isinstance(dim, int) else dim
    )
    dims = [d % max(1, x.ndim) for d in dims]
    rest = [d for d in range(x.ndim) if d not in dims]
    flat = x.permute(*rest, *dims).reshape([x.shape[d] for d in rest] + [-1])
    total, squares = 0.0, 0.0
    for lo, hi in _spans(flat.shape[-1]):
        total = total + flat[..., lo:hi].sum(-1)
        squares = squares + total.square() * (hi - lo)
    walk = torch.as_tensor(squares).sqrt()
    walk = walk / flat.shape[-1] if name != "sum" and flat.shape[-1] else walk
    return (
        walk.reshape([1 if d in dims else x.shape[d] for d in range(x.ndim)]) if keepdim else walk
    )


def _walk_of_scan(name: str, x: torch.Tensor, dim: int) -> torch.Tensor:
    """Return the same for each element, of all that comes before it."""
    if not x.ndim:
        return torch.zeros_like(x)
    found = cast(torch.Tensor, getattr(torch, name)(x, dim)).nan_to_num(0.0, 0.0, 0.0)
    if name == "cumprod":  # what is rounded in one product is in all that follow
        return found * torch.ones_like(x).cumsum(dim).sqrt()
    return found.square().cumsum(dim).sqrt()


def _walk_of_convolution(
    x: torch.Tensor, weight: torch.Tensor, bias: Any, *how: Any
) -> torch.Tensor:
    """Return what is to be expected if the products are added in any order.

    Of n products with the sum S and the sum Q of their squares, the first k add up to S k / n in
    the mean, with a variance of about Q k (n - k) / n². The squares of all partial sums add up to
    n (S² / 3 + Q / 6).
    """
    *_, transposed, _, groups = how
    terms = weight[:, 0].numel() // groups if transposed else weight[0].numel()
    total = torch.convolution(x, weight, None, *how)
    squares = torch.convolution(x.square(), weight.square(), None, *how)
    return (total.square() / 3 + squares / 6).mul(terms).sqrt()


def _rounds_inside(name: str, operator: Any) -> bool:
    asked = {argument.name for argument in operator._schema.arguments}
    return bool(asked & {"rounding_mode", "decimals"}) or name.startswith(ROUND_INSIDE)


def furthest(exact: Results, moved: Results, known: Results | None) -> Results:
    """Return how far the floating tensors of a result are from another's, or from those before.

    Returns:
        Tensors in float32; 0 for what is no tensor, or not of the same shape each time; 1 where
        integers and truth values are others.
    """
    others = iter(list_tensors(moved))
    before = None if known is None else iter(list_tensors(known))

    def apart(tensor: torch.Tensor) -> torch.Tensor:
        other, most = next(others), None if before is None else next(before)
        unlike = most is not None and most.shape != tensor.shape
        if unlike or other.shape != tensor.shape:
            return torch.zeros((), dtype=torch.float32)
        if not tensor.is_floating_point() and not tensor.is_complex():
            found = (other != tensor).float()
        else:
            most_held = torch.finfo(torch.float32).max
            found = (without_float8(other) - without_float8(tensor)).abs().float()
            found = found.clamp(max=most_held)  # not before: 16 bits may not hold that number
        return found if most is None else torch.fmax(found, most)  # a run with NaN says nothing

    return cast(Results, map_tensors(exact, apart))
