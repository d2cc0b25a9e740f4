import itertools

import pytest
import torch

from curate.harvest.closure import MODEL
from curate.harvest.python.einops import chain, einsum_equation
from curate.harvest.python.package import Definition, Package
from curate.harvest.python.slices import close

SIZES = {"b": 2, "h": 3, "w": 4, "c": 5, "d": 6, "i": 2, "j": 3}


def by_index(left: str, right: str) -> torch.Tensor:
    """Rearrange by filling one element at a time, from the definition of a pattern."""
    axes = [axis for axis in left.replace("(", "").replace(")", "").split() if axis != "1"]
    shape = [_length(group) for group in _groups(right)]
    result = torch.zeros(shape)
    source = tensor(left)
    for values in itertools.product(*(range(SIZES[axis]) for axis in axes)):
        at = dict(zip(axes, values, strict=True))
        result[_index(right, at)] = source[_index(left, at)]
    return result


def _groups(side: str) -> list[list[str]]:
    words = side.replace("(", " ( ").replace(")", " ) ").split()
    groups: list[list[str]] = []
    inside = False
    for word in words:
        if word in "()":
            inside = word == "("
            if inside:
                groups.append([])
        elif inside:
            groups[-1].append(word)
        else:
            groups.append([] if word == "1" else [word])
    return groups


def _length(group: list[str]) -> int:
    return int(torch.tensor([SIZES[axis] for axis in group] or [1]).prod())


def _index(side: str, at: dict[str, int]) -> tuple[int, ...]:
    index = []
    for group in _groups(side):
        position = 0
        for axis in group:
            position = position * SIZES[axis] + at[axis]
        index.append(position)
    return tuple(index)


def tensor(left: str) -> torch.Tensor:
    shape = [_length(group) for group in _groups(left)]
    return torch.arange(float(torch.tensor(shape).prod())).reshape(shape)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("b h w c", "b c h w"),
        ("b c (h d)", "b h c d"),
        ("b h c d", "b c (h d)"),
        ("b c (h d) w", "(b c) d 1 (w h)"),
        ("b 1 c", "c b"),
        ("b () c", "c 1 b"),
        ("(b h) (w c)", "(b w) (h c)"),
    ],
)
def test_rearrange_follows_the_definition(left: str, right: str) -> None:
    given = {axis: str(SIZES[axis]) for axis in ("h", "w", "d")}
    calls = chain(f"{left} -> {right}", given)
    assert calls is not None
    assert torch.equal(eval("x" + calls, {"x": tensor(left)}), by_index(left, right))


@pytest.mark.parametrize("between", ["", "i", "i j"])
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("... (h d)", "... h d"),
        ("... h d", "... (h d)"),
        ("... h d", "... d h"),
        ("... h c d", "... d h c"),
        ("b c ...", "c b ..."),
        ("b ... d", "b d ..."),
        ("b (h d) ...", "b h d ..."),
        ("b c ...", "(b c) ..."),
        ("b h ... w d", "(b h) ... (d w)"),
        ("... c", "... 1 c"),
        ("... 1 c", "... c"),
        ("... c", "c ... 1"),
        ("b ... d", "b (...) d"),
        ("b (h d) ...", "b h (...) d"),
        ("... c", "(...) c"),
        ("b ... c", "c (b ...)"),
    ],
)
def test_an_ellipsis_stands_for_any_axes(left: str, right: str, between: str) -> None:
    given = {axis: str(SIZES[axis]) for axis in ("h", "w", "d")}
    calls = chain(f"{left} -> {right}", given)
    assert calls is not None
    if "(...)" in right and not between:
        return  # nothing to join: einops makes an axis of length 1, which nobody asks for
    whole, wanted = left.replace("...", between), right.replace("...", between)
    assert torch.equal(eval("x" + calls, {"x": tensor(whole)}), by_index(whole, wanted))


def test_repeats_after_an_ellipsis() -> None:
    x = tensor("b c h d")
    calls = chain("... h d -> ... (h g) d", {"g": "2"})
    assert torch.equal(eval("x" + str(calls), {"x": x}), x.repeat_interleave(2, dim=-2))
    calls = chain("o ... -> (o 4) ...", {})
    assert torch.equal(eval("x" + str(calls), {"x": x}), x.repeat_interleave(4, dim=0))
    assert chain("b c ... -> b ...", {}, "mean") == ".mean(1)"


def test_an_einsum_with_words_for_axes() -> None:
    assert einsum_equation("b h i d, b h j d -> b h i j") == "bhid,bhjd->bhij"
    equation = einsum_equation("batch heads i dim, ... j -> batch i")
    assert equation == "bhid,...j->bi"
    assert einsum_equation("key kind -> kind key") == "ki->ik"
    assert einsum_equation("(b h) i -> i") is None
    assert einsum_equation("b i") is None


def test_repeat_and_reduce() -> None:
    x = tensor("b d")
    assert chain("b d -> b (h d)", {"h": "3"}) == (".unsqueeze(1).expand(-1, 3, -1).flatten(1, 2)")
    assert torch.equal(
        eval("x" + str(chain("b d -> b (h d)", {"h": "3"})), {"x": x}), x.repeat(1, 3)
    )
    assert chain("b c h w -> c b", {}, "mean") == ".mean((2, 3)).permute(1, 0)"


@pytest.mark.parametrize(
    "pattern", ["(b ...) d -> b d ...", "b (h d) -> b h d", "b b -> b", "b c -> b", "b -> b n"]
)
def test_what_a_chain_cannot_say_is_left(pattern: str) -> None:
    assert chain(pattern, {}) is None


def test_closure_needs_no_einops() -> None:
    text = """\
import torch
from torch import nn
import einops
from einops import rearrange as r, einsum
from einops.layers.torch import Rearrange

class A(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.heads = 2
        self.register_buffer('scale', torch.ones(4))
        self.patch = nn.Sequential(Rearrange('b (h p) c -> b h (p c)', p = p), nn.Linear(8, 8))

    def forward(self, x):
        y = r(self.patch(x) + 1, 'b n (h d) -> b h n d', h = self.heads)
        y = einsum(y, self.scale, '... d, d -> ... d')
        return r(einops.rearrange(y, 'b h n d -> b n h d'), '... h d -> ... (h d)')
"""
    target = Definition("a.py", "A")
    closed = close(Package(("a.py",), lambda _: text), target, {target: MODEL})
    assert "einops" not in closed.text
    names: dict[str, object] = {}
    exec(closed.text, names)
    x = torch.rand(3, 6, 4)
    model = names["Model"](2)  # type: ignore[operator]
    assert torch.equal(model(x), model.patch[1](x.reshape(3, 3, 8)) + 1)
