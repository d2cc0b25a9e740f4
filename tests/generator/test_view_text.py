"""Views are written as people write them, and give the elements that they stand for."""

from __future__ import annotations

import random
from typing import Any

import pytest
import sympy
import torch

from curate.generator.views import Elements, contiguous_strides, view_text

B, S, D = (sympy.Symbol(name, positive=True, integer=True) for name in ("b", "s", "d"))


def written(own: list[Any], size: list[Any], stride: list[Any], offset: Any = 0) -> str | None:
    own, size, stride = (list(map(sympy.sympify, given)) for given in (own, size, stride))
    seen = Elements(size, stride, sympy.sympify(offset))
    return view_text("x", seen, own, contiguous_strides(own), str)


CASES = {
    "the last": (([B, S], [B], [S], S - 1), "x[:, -1]"),
    "the last, kept": (([B, S], [1, S], [S, 1], (B - 1) * S), "x[-1:]"),
    "one in front": (([B, S], [1, B], [0, S]), "x[None, :, 0]"),
    "chunk": (([B, 3 * D], [B, D], [3 * D, 1], D), "x[:, d:2*d]"),
    "last chunk": (([B, 3 * D], [B, D], [3 * D, 1], 2 * D), "x[:, 2*d:]"),
    "transposed": (([B, S, D], [B, D, S], [S * D, 1, D]), "x.permute(0, 2, 1)"),
    "of joined rows": (([B * S, D], [B, D, S], [S * D, 1, D]), "x.view(b, s, d).permute(0, 2, 1)"),
    "heads": (([B * S, 8 * D], [B, 8, S, D], [8 * S * D, D, 8 * D, 1]),
              "x.view(b, s, 8, d).permute(0, 2, 1, 3)"),
    "repeated": (([B, D], [B, S, D], [D, 0, 1]), "x[:, None].expand(-1, s, -1)"),
    "ones": (([B, 3 * D], [B, 1, 1, D], [3 * D, D, D, 1]), "x[:, None, None, :d]"),
    "windows": (([B, S], [B, S - 2, 3], [S, 1, 1]), None),
    "beyond a row": (([B, S], [B, S], [S, 1], 1), None),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_written(name: str) -> None:
    given, expected = CASES[name]
    assert written(*given) == expected


def changed(x: torch.Tensor, rng: random.Random) -> torch.Tensor:
    """Return a view of a tensor that one operation gives."""
    d = rng.randrange(x.dim())
    n = x.shape[d]
    match rng.randrange(6):
        case 0:
            return x.permute(rng.sample(range(x.dim()), x.dim()))
        case 1 if x.dim() > 1:
            return x.select(d, rng.randrange(n))
        case 2:
            start = rng.randrange(n)
            return x.narrow(d, start, rng.randint(1, n - start))
        case 3 if n % 2 == 0:
            return x.unflatten(d, (2, n // 2))
        case 4:
            return x.unsqueeze(d)
        case 5 if n == 1:
            return x.expand(*(3 if i == d else -1 for i in range(x.dim())))
    return x


def test_what_is_written_is_the_view() -> None:
    rng = random.Random(0)
    known = 0
    for _ in range(3000):
        x = torch.arange(0.0)
        own = [rng.choice((1, 2, 4, 6)) for _ in range(rng.randint(1, 4))]
        view = x = torch.arange(torch.Size(own).numel()).reshape(own)
        for _ in range(rng.randint(1, 3)):
            view = changed(view, rng)
        text = written(own, view.shape, view.stride(), view.storage_offset())
        if text is not None:
            known += 1
            assert torch.equal(eval(text, {"x": x}), view), (own, text)
    assert known > 2000
