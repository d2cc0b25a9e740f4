"""Small Triton functions that a rewritten program may need, as source text.

Each stands for a function of Inductor's run-time library with the same meaning: NaN wins a maximum
or minimum, the lower index wins a tie, and integer division rounds down, as in PyTorch.
"""

from __future__ import annotations

import re

HELPERS: dict[str, str] = {}

ELEMENT_CONFIGS = "ELEMENT_CONFIGS"
"""What a program calls the blocks among which its kernels of elements are tuned."""

ELEMENT_CONFIGS_TEXT = """ELEMENT_CONFIGS = [
    triton.Config({"BLOCK_SIZE": 256}, num_warps=4),
    triton.Config({"BLOCK_SIZE": 512}, num_warps=4),
    triton.Config({"BLOCK_SIZE": 1024}, num_warps=4),
    triton.Config({"BLOCK_SIZE": 2048}, num_warps=8),
]"""


def _helper(source: str) -> None:
    found = re.search(r"def (\w+)\(", source)
    assert found
    HELPERS[found[1]] = source.strip()


for _word, _sign in (("maximum", ">"), ("minimum", "<")):
    _helper(f'''
def {_word}(a, b):
    """Elementwise {_word} in which NaN wins, as in PyTorch."""
    return tl.{_word}(a, b, propagate_nan=tl.PropagateNan.ALL)
''')
    _helper(f'''
def {_word}_with_index(a, a_index, b, b_index):
    """Combine (value, index) pairs: NaN wins, then the {_word}, then the lower index."""
    better = (a {_sign} b) | ((a != a) & (b == b))
    equal = (a == b) | ((a != a) & (b != b))
    take_a = better | (equal & (a_index < b_index))
    return tl.where(take_a, a, b), tl.where(take_a, a_index, b_index)
''')

_helper('''
def multiply(a, b):
    """Combine function of a product."""
    return a * b
''')

_helper('''
def logical_or(a, b):
    """Combine function of `any`."""
    return a | b
''')

_helper('''
def welford_update(value, mean, m2, count, first):
    """Add one block of values to running means and sums of squared deviations."""
    if first:
        count = tl.full(count.shape, 1, count.dtype)
        mean = value
        m2 = tl.zeros_like(m2)
    else:
        delta = value - mean
        count = count + 1
        mean = mean + delta / count
        m2 = m2 + delta * (value - mean)
    return mean, m2, count
''')

_helper('''
def welford_combine(mean_a, m2_a, count_a, mean_b, m2_b, count_b):
    """Merge two groups' means and sums of squared deviations (Chan et al., 1979)."""
    count = count_a + count_b
    share_b = tl.where(count == 0.0, 0.0, count_b / count)
    delta = tl.where(mean_a == mean_b, 0.0, mean_b - mean_a)
    mean = mean_a + delta * share_b
    m2 = m2_a + m2_b + delta * delta * count_a * share_b
    return mean, m2, count
''')

_helper('''
def rescale(old_max, new_max):
    """Factor that moves a sum of exponentials from one maximum to another."""
    return tl.where(new_max == float("-inf"), 1.0, tl.exp(old_max - new_max))
''')

_helper('''
def softmax_update(peak, total, value):
    """Add one value to a running maximum and sum of exponentials (Milakov, Gimelshein 2018)."""
    new_peak = maximum(peak, value)
    return new_peak, total * rescale(peak, new_peak) + rescale(value, new_peak)
''')

_helper('''
def softmax_merge(peak_a, total_a, peak_b, total_b):
    """Merge two running maxima and sums of exponentials."""
    peak = maximum(peak_a, peak_b)
    return peak, total_a * rescale(peak_a, peak) + total_b * rescale(peak_b, peak)
''')

_helper('''
def softmax_reduce(peaks, totals, axis: tl.constexpr):
    """Reduce running maxima and sums of exponentials along `axis`."""
    peak = tl.reduce(peaks, axis, maximum)
    row_peak = tl.expand_dims(peak, axis)
    delta = tl.where(row_peak == float("-inf"), 0.0, peaks - row_peak)
    return peak, tl.sum(totals * tl.exp(delta), axis)
''')

_helper('''
def floor_div(a, b):
    """Integer division that rounds down; Triton's // rounds towards zero."""
    quotient = a // b
    inexact = (a % b) != 0
    return tl.where(inexact & ((a < 0) != (b < 0)), quotient - 1, quotient)
''')

_helper('''
def floor_mod(a, b):
    """Remainder with the sign of the divisor; Triton's % has the dividend's."""
    remainder = a % b
    return tl.where((remainder != 0) & ((a < 0) != (b < 0)), remainder + b, remainder)
''')

_helper('''
def integer_power(base, exponent):
    """Exact integer power by repeated squaring; the exponent is not negative."""
    result = tl.full(base.shape, 1, base.dtype)
    for _ in tl.static_range(32):
        result = tl.where((exponent & 1) != 0, result * base, result)
        exponent = exponent >> 1
        base = base * base
    return result
''')

_helper('''
def last_of_scan(x, is_last, dim: tl.constexpr, keep_dims: tl.constexpr):
    """Return the element of `x` where `is_last` holds; exactly one along `dim`."""
    return tl.sum(tl.where(is_last, x, tl.zeros_like(x)), dim, keep_dims=keep_dims)
''')

_helper('''
def random_int64(seed, offset, low, high):
    """Random integers in [low, high), from two Philox words each."""
    word_0, word_1, _, _ = tl.randint4x(seed, offset)
    bits = word_0.to(tl.uint64) | (word_1.to(tl.uint64) << 32)
    return (bits % (high - low).to(tl.uint64)).to(tl.int64) + low
''')

_helper('''
def bucketize(
    values, bounds_ptr, n_bounds, numel, stride, first, dtype: tl.constexpr, right: tl.constexpr
):
    """Index of the bucket of each value between sorted bounds, by binary search."""
    low = tl.zeros(values.shape, dtype)
    high = tl.full(values.shape, n_bounds, dtype)
    width = n_bounds + 1
    while width > 1:
        middle = (low + high) // 2
        inside = (middle < n_bounds) & (first + middle * stride < numel)
        bound = tl.load(bounds_ptr + first + middle * stride, mask=inside, other=0)
        if right:
            above = values >= bound
        else:
            above = values > bound
        above = above | (values != values)
        low = tl.where(above & inside, middle + 1, low)
        high = tl.where(above, high, middle)
        width = (width + 1) // 2
    return low
''')

_helper('''
def goes_before(a, i, b, j, n_valid, descending: tl.constexpr):
    """Order of (value, index) pairs: padding last, NaN as the largest value, ties by index."""
    a_nan = a != a
    b_nan = b != b
    if descending:
        less = (a > b) | (a_nan & (b == b))
    else:
        less = (a < b) | ((a == a) & b_nan)
    tie = (a == b) | (a_nan & b_nan)
    less = less | (tie & (i < j))
    if n_valid is None:
        before = less
    else:
        i_valid = i < n_valid
        j_valid = j < n_valid
        before = (i_valid & (j >= n_valid)) | ((i_valid == j_valid) & less)
    return before
''')

_helper('''
def bitonic_sort(keys, index, n_valid, axis: tl.constexpr, descending: tl.constexpr):
    """Sort each row of `keys`, carrying `index` along; the network of Batcher (1968)."""
    keys, index = tl.broadcast(keys, index)
    n: tl.constexpr = keys.shape[1]
    lane = tl.broadcast_to(tl.arange(0, n)[None, :], keys.shape)
    size = 2
    while size <= n:
        stride = size // 2
        while stride > 0:
            partner = lane ^ stride
            other_key = tl.gather(keys, partner, axis)
            other_index = tl.gather(index, partner, axis)
            before = goes_before(keys, index, other_key, other_index, n_valid, descending)
            wants_first = ((lane & stride) == 0) == ((lane & size) == 0)
            keep = before == wants_first
            keys = tl.where(keep, keys, other_key)
            index = tl.where(keep, index, other_index)
            stride = stride // 2
        size = size * 2
    return keys, index
''')

_WORD = re.compile(r"(?<![.\w])\w+")
_DOCSTRING = re.compile(r'""".*?"""', re.DOTALL)


def with_dependencies(names: set[str]) -> list[str]:
    """Return ``names`` and the helpers that they call, callees first."""
    ordered: list[str] = []

    def visit(name: str) -> None:
        for word in _WORD.findall(_DOCSTRING.sub("", HELPERS[name])):
            if word in HELPERS and word != name:
                visit(word)
        if name not in ordered:
            ordered.append(name)

    for name in HELPERS:
        if name in names:
            visit(name)
    return ordered
