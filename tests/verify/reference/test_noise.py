"""How far rounding may move a result: sums in any order, but not fewer digits."""

import contextlib
import functools
from typing import Any

import numpy as np
import pytest
import torch

from curate.problem.draw import FAMILIES, Draw
from curate.verify.protocol.compare import Mismatch, compare
from curate.verify.reference.noise import (
    JITTERS,
    Jitter,
    RoundFactors,
    Rounding,
    furthest,
    walk_of,
)
from curate.verify.reference.serve import Reference


@pytest.mark.parametrize(
    ("transposed", "groups"), [(False, 1), (False, 2), (True, 1), (True, 2)], ids=str
)
def test_the_walk_of_a_convolution_is_as_long_as_that_of_its_products(
    transposed: bool, groups: int
) -> None:
    torch.manual_seed(0)
    inside, outside = 64, 32
    x = torch.randn(2, inside, 7, 7, dtype=torch.float64)
    shape = (inside, outside // groups) if transposed else (outside, inside // groups)
    weight = torch.randn(*shape, 3, 3, dtype=torch.float64)
    how = [1, 1], [1, 1], [1, 1], transposed, [0, 0], groups
    found = walk_of("convolution", x, weight, None, *how)
    assert found is not None and found.shape == (2, outside, 7, 7)
    if transposed:  # the same products, with the filter turned round
        parts = weight.reshape(groups, inside // groups, outside // groups, 3, 3)
        weight = parts.transpose(1, 2).reshape(outside, inside // groups, 3, 3).flip(-1, -2)
    patches = torch.nn.functional.unfold(x, 3, padding=1).reshape(2, groups, -1, 49)
    filters = weight.reshape(groups, outside // groups, -1)
    products = filters[None, :, :, :, None] * patches[:, :, None]
    walk = products.cumsum(3).square().sum(3).sqrt().reshape(2, outside, 7, 7)
    middle = (..., slice(1, -1), slice(1, -1))  # at the edges, some products are zero
    assert 0.9 < float(found[middle].norm() / walk[middle].norm()) < 1.1


def test_a_convolution_may_add_in_any_order_but_not_drop_digits() -> None:
    reference = Reference()
    source = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(192, 8, 3)
    def forward(self, x):
        return self.conv(x)
def get_inputs():
    return [torch.randn(1, 192, 8, 8)]
def get_init_inputs():
    return []
"""
    reference.load(source, "cpu", "none")
    draw = Draw(4, 4)
    with torch.no_grad():
        drawn, noise = reference.draw(draw), reference.noise(draw, "usual")
        assert noise is not None
        own, exact, (x,) = drawn.own, drawn.exact, drawn.inputs
        conv = reference.model(draw)[1].conv
        patches = torch.nn.functional.unfold(x, 3)[0].t().contiguous()
        filters = conv.weight.reshape(8, -1).t().contiguous()

        def summed(order: torch.Tensor) -> torch.Tensor:
            total = torch.zeros(36, 8)
            for k in order:  # one by one, which no library does
                total += patches[:, k, None] * filters[k]
            return (total + conv.bias).t().reshape(1, 8, 6, 6)

        right = own["output"], exact["output"], noise["output"]
        compare(summed(torch.randperm(1728)), *right)
        with RoundFactors(matmul_tf32=True, cudnn_tf32=False):
            coarse = (torch.mm(patches, filters) + conv.bias).t().reshape(1, 8, 6, 6)
        with pytest.raises(Mismatch, match="value"):
            compare(coarse, *right)


def test_a_scan_may_add_one_by_one_in_float32_but_not_drop_digits() -> None:
    source = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        return x.cumsum(-1)
def get_inputs():
    return [torch.randn(3, 5000)]
def get_init_inputs():
    return []
"""
    reference = Reference()
    reference.load(source, "cpu", "none")
    with torch.no_grad():
        for seed in range(40):
            draw = Draw(seed, 0, FAMILIES[seed % len(FAMILIES)])
            drawn, noise = reference.draw(draw), reference.noise(draw, "usual")
            assert noise is not None
            right = drawn.own["output"], drawn.exact["output"], noise["output"]
            x = drawn.inputs[0].numpy()
            compare(torch.from_numpy(np.add.accumulate(x, -1, dtype=np.float32)), *right)
            if draw.family != "steps":  # which have few digits
                with pytest.raises(Mismatch, match="value"):
                    compare(drawn.inputs[0].bfloat16().float().cumsum(-1), *right)


def first_draw(source: str) -> tuple[torch.Tensor, tuple[Any, Any, Any]]:
    """Return the first input of a file's first draw, and what is right for it."""
    reference, draw = Reference(), Draw(0)
    reference.load(source, "cpu", "none")
    drawn, noise = reference.draw(draw), reference.noise(draw, "usual")
    assert noise is not None
    return drawn.inputs[0], (drawn.own["output"], drawn.exact["output"], noise["output"])


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16], ids=str)
def test_a_gelu_may_add_one_to_an_error_function_near_minus_one(kind: torch.dtype) -> None:
    source = f"""
import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        return nn.functional.gelu(x)
def get_inputs():
    return [torch.cat([torch.tensor([-5.25]), torch.randn(4095) - 64]).to({kind})]
def get_init_inputs():
    return []
"""
    with torch.no_grad():
        given, right = first_draw(source)
        x = given.float()
        error = torch.erf(x * 0.5**0.5)
        below = torch.nextafter(error, torch.tensor(-1.0))  # another library's
        compare((0.5 * x * (1 + below)).to(kind), *right)
        with pytest.raises(Mismatch, match="value"):
            compare((0.5 * x * (1.00001 + error)).to(kind), *right)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16], ids=str)
def test_infinities_on_the_way_leave_the_noise_a_number(kind: torch.dtype) -> None:
    source = f"""
import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, q, k):
        scores = (q @ k.mT).masked_fill(torch.ones(32, 32).triu(1) > 0, -torch.inf)
        return torch.softmax(scores, -1) @ k + scores.logsumexp(-1, keepdim=True)
def get_inputs():
    return [torch.randn(4, 32, 64, dtype={kind}) * 8 for _ in range(2)]
def get_init_inputs():
    return []
"""
    with torch.no_grad():
        _, (_, exact, noise) = first_draw(source)
        assert noise.isfinite().all() and exact.isfinite().all()
        assert (noise > 0).double().mean() > 0.9


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_rms_norm_adds_what_it_adds_in_the_files_own_type(kind: torch.dtype) -> None:
    source = f"""
import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        return nn.functional.rms_norm(x, (64,))
def get_inputs():
    return [torch.randn(8, 64, dtype={kind}) * 1e-4]
def get_init_inputs():
    return []
"""
    with torch.no_grad():
        given, (own, exact, _) = first_draw(source)
        eps = 2.0**-52 if kind == torch.float64 else 2.0**-23
        x = given.double()
        right = x * (x.square().mean(-1, keepdim=True) + eps).rsqrt()
        torch.testing.assert_close(exact, right)
        torch.testing.assert_close(own.double(), right, rtol=1e-2, atol=0)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_a_resize_may_round_the_places_of_its_pixels(mode: str) -> None:
    source = f"""
import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, x):
        return nn.functional.interpolate(x, size=(24, 30), mode="{mode}")
def get_inputs():
    return [torch.randn(4, 8, 32, 40, dtype=torch.float16)]
def get_init_inputs():
    return []
"""
    with torch.no_grad():
        given, right = first_draw(source)

        def resized(moved: float) -> torch.Tensor:
            """Along the width, by places that are ``moved`` by some last places."""
            x = given.double()
            columns = (torch.arange(30, dtype=torch.float64) + 0.5) * 40 / 30 - 0.5
            columns = columns * (1 + moved * 2.0**-24)
            rows = (torch.arange(24, dtype=torch.float64) + 0.5) * 32 / 24 - 0.5
            grid = torch.stack(torch.meshgrid(columns / 20, rows / 16, indexing="xy"), -1)
            grid = grid + torch.tensor([1 / 40 - 1, 1 / 32 - 1], dtype=torch.float64)
            grid = grid.expand(4, -1, -1, -1)
            found = torch.nn.functional.grid_sample(
                x, grid, mode, padding_mode="border", align_corners=False
            )
            return found.half()

        compare(resized(1.0), *right)
        with pytest.raises(Mismatch, match="value"):
            compare(resized(3000.0), *right)


@pytest.mark.parametrize(("span", "moves"), [((0.0, 1.0), False), ((), False), ((0.0, 1.5), True)])
def test_rounding_moves_what_is_counted_between_bins_and_not_out_of_the_range(
    span: tuple[float, ...], moves: bool
) -> None:
    x = torch.tensor([0.0, 1.0], dtype=torch.float64).repeat(32)
    bins = 3 if moves else 4
    right, last = torch.histc(x, bins, *span), torch.finfo(torch.float32).eps
    found = []
    for seed in range(4):
        with Jitter(seed, True, Rounding(last, None, None, 0.0, ())):
            found.append(torch.histc(x, bins, *span))
    apart = torch.stack(found).sub(right).abs()
    assert bool((apart > 1).any()) is moves  # 1.0 is an edge within the range, or its end
    assert float(torch.stack(found).sum(1).sub(64).abs().max()) < 1e-3


NORMALISED = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = {norm}
    def forward(self, x):
        return self.norm(x)
def get_inputs():
    return [torch.full((4, 6, 96), 0.7)]
def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    "norm", ["nn.LayerNorm(96)", "nn.GroupNorm(2, 6)", "nn.InstanceNorm1d(6, affine=True)"]
)
def test_of_equal_numbers_the_rounding_of_their_mean_is_left(norm: str) -> None:
    """A GPU that divides by multiplying gets a mean that is not the number itself."""
    reference = Reference()
    reference.load(NORMALISED.format(norm=norm), "cpu", "none")
    with torch.no_grad():
        drawn, noise = reference.draw(Draw(0)), reference.noise(Draw(0), "usual")
    assert noise is not None
    own, exact = drawn.own["output"], drawn.exact["output"]
    rounded = 2.0**-24 / 1e-5**0.5
    compare(own + rounded, own, exact, noise["output"])
    with pytest.raises(Mismatch):
        compare(own + 60 * rounded, own, exact, noise["output"])


def test_a_step_of_a_recurrent_layer_may_round_its_products_behind_their_biases() -> None:
    jitter = Jitter(0, True, Rounding(0.0, torch.bfloat16, torch.bfloat16, 0.0, ()))
    product, bias = torch.full((64, 32), 1e-6), torch.full((32,), 0.1)
    of_input, of_state, state, *_ = jitter._with_biases(
        *(t.double() for t in (product, product, product, bias, bias))
    )
    for changed in (of_input, of_state):
        far = float((changed - 1e-6).abs().max())
        assert 0.9 * 0.1 * 2**-8 < far < 0.1 * 2**-8
    assert torch.equal(state, product.double())


@pytest.mark.parametrize("mean", ["x.mean(-1, True)", "x.sum(-1, True) / 96"])
def test_of_equal_numbers_of_16_bits_the_same_is_left(mean: str) -> None:
    """Where a file computes in float32, its mean has a place in that, and no coarser one."""
    reference = Reference()
    source = NORMALISED.format(norm="None").replace(", 0.7)", ", 0.75, dtype=torch.bfloat16)")
    given = f"1000 * (lambda x: x - {mean})(x.float())"
    reference.load(source.replace("self.norm(x)", given), "cpu", "none")
    with torch.no_grad():
        drawn, noise = reference.draw(Draw(0)), reference.noise(Draw(0), "usual")
    assert noise is not None
    own, exact = drawn.own["output"], drawn.exact["output"]
    rounded = 1000 * 2.0**-24
    compare(own + rounded, own, exact, noise["output"])
    with pytest.raises(Mismatch):
        compare(own + 60 * rounded, own, exact, noise["output"])


MIXED = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 64).half()
        self.other = nn.Linear(64, 64)
    def forward(self, x):
        return {forward}

def get_inputs():
    return [torch.randn(8, 64).half()]

def get_init_inputs():
    return []
"""


@pytest.mark.parametrize(
    ("forward", "short"),
    [
        ("self.layer(torch.tanh(self.layer(x)))", torch.float16),
        ("self.layer(x) + self.other(x.float())", None),
    ],
)
def test_a_layer_that_nothing_calls_does_not_say_what_is_rounded(
    forward: str, short: torch.dtype | None
) -> None:
    reference, draw = Reference(), Draw(0)
    reference.load(MIXED.format(forward=forward), "cpu", "none")
    with torch.no_grad():
        assert reference._short(draw, reference.draw(draw).inputs) == short


MAGNITUDES = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def forward(self, z, near):
        return z * (z.abs() - near)
def get_inputs():
    z = torch.randn(40, dtype=torch.complex64)
    return [z, z.abs() - 1e-3]
def get_init_inputs():
    return []
"""


def test_what_is_left_of_a_complex_magnitude_may_be_off_by_its_last_place() -> None:
    reference = Reference()
    reference.load(MAGNITUDES, "cpu", "none")
    drawn, noise = reference.draw(Draw(4, 4)), reference.noise(Draw(4, 4), "usual")
    assert noise is not None
    known = drawn.own["output"], drawn.exact["output"], noise["output"]
    assert known[1].dtype == torch.complex128
    z, near = drawn.inputs
    last = z.abs() * torch.finfo(torch.float32).eps
    compare(z * (z.abs() + last - near), *known)
    with pytest.raises(Mismatch, match="value"):
        compare(z * (z.abs() + 200 * last - near), *known)


def test_a_number_that_is_filled_in_is_not_rounded() -> None:
    reference = Reference()
    source = MAGNITUDES.replace("z * (z.abs() - near)", "near.masked_fill(z < 9, -1e9).softmax(-1)")
    reference.load(source.replace("complex64", "float32"), "cpu", "none")
    drawn, noise = reference.draw(Draw(4, 4)), reference.noise(Draw(4, 4), "usual")
    assert noise is not None and float(noise["output"].max()) < 1e-8
    assert torch.equal(drawn.own["output"], torch.full((40,), 1 / 40))


ROTARY = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        return x * 10000.0 ** -torch.linspace(0, 1, x.shape[-1])

def get_inputs():
    return [torch.rand(8, 64)]

def get_init_inputs():
    return []
"""


def test_a_power_of_a_number_may_be_that_of_two() -> None:
    reference = Reference()
    reference.load(ROTARY, "cpu", "none")
    drawn = reference.draw(Draw(0))
    (x,) = drawn.inputs
    exponent = torch.linspace(0, 1, 64) * -torch.tensor(10000.0).log2()
    results = x * torch.exp2(exponent)
    right = drawn.own["output"], drawn.exact["output"]
    noise = reference.noise(Draw(0), "usual")
    compare(results, *right, noise["output"])
    with pytest.raises(Mismatch):
        compare(x * torch.exp2(exponent * (1 + 3e-6)), *right, noise["output"])


NAMED = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x):
        angles = torch.outer(torch.arange(900).float(), 0.7 ** torch.arange(24).float())
        turned = torch.polar(torch.ones_like(angles), angles)
        return torch.view_as_real(torch.view_as_complex(x.float()) * turned)

def get_inputs():
    return [torch.randn(900, 24, 2)]

def get_init_inputs():
    return []
"""


def test_what_a_file_names_as_float32_is_rounded_like_what_it_does_not_name() -> None:
    """Angles of hundreds have few digits behind the point, and a program has others."""
    reference = Reference()
    reference.load(NAMED, "cpu", "none")
    drawn, noise = reference.draw(Draw(0)), reference.noise(Draw(0), "usual")
    (x,) = drawn.inputs

    def turned(base: float) -> torch.Tensor:
        places = torch.arange(24, dtype=torch.float32) * torch.tensor(base).log2()
        angles = torch.arange(900.0)[:, None] * torch.exp2(places)
        (a, b), cos, sin = x.unbind(-1), angles.cos(), angles.sin()
        return torch.stack((a * cos - b * sin, a * sin + b * cos), -1)

    right = drawn.own["output"], drawn.exact["output"], noise["output"]
    compare(turned(0.7), *right)
    with pytest.raises(Mismatch):
        compare(turned(0.70001), *right)


def test_a_file_that_looks_at_the_bits_of_a_float32_has_them() -> None:
    source = NAMED.replace(
        "x.float()", "(x.float().view(torch.int32) & ~0x7FFF).view(torch.float32)"
    )
    reference = Reference()
    reference.load(source, "cpu", "none")
    drawn = reference.draw(Draw(0))
    assert not reference.widens
    assert drawn.exact["output"].shape == drawn.own["output"].shape
    compare(drawn.own["output"], drawn.own["output"], drawn.exact["output"])


ATTENDED = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def forward(self, q, k, v):
        return {result}

def get_inputs():
    return [torch.randn(4, 2, 48, 32{kind}) for _ in range(3)]

def get_init_inputs():
    return []
"""
FUSED = "F.scaled_dot_product_attention(q, k, v)"
PLAIN = "torch.softmax(q @ k.mT * 32**-0.5, -1) @ v"
WIDE = "(torch.softmax(q.float() @ k.float().mT * 32**-0.5, -1) @ v.float()).to(q.dtype)"


@pytest.mark.parametrize("kind", ["", ", dtype=torch.bfloat16"], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("result", [FUSED, PLAIN, WIDE], ids=["fused", "plain", "wide"])
def test_a_gpu_rounds_the_largest_score_alone(result: str, kind: str) -> None:
    """It multiplies and subtracts in one: of scores of 1e9 that is far off, and may overflow."""
    reference = Reference()
    reference.load(ATTENDED.format(result=result, kind=kind), "cpu", "none")
    missed = 0
    for family in ("own", "large", "shifted"):
        for seed in range(2):
            draw = Draw(seed, 0, family)
            drawn, noise = reference.draw(draw), reference.noise(draw, "usual")
            q, k, v = (t.float() for t in drawn.inputs)
            scores = (q @ k.mT).double()
            peak = (scores * 32**-0.5).amax(-1, True).float()
            weights = (scores * 32**-0.5 - peak).exp().float()
            right = drawn.own["output"], drawn.exact["output"], noise["output"]
            given = (weights @ v) / weights.sum(-1, True)
            compare(given.to(right[0].dtype), *right)
            weights *= scores < peak * 32**0.5 * (1 - 1e-6)  # all but the largest
            with contextlib.suppress(Mismatch):
                compare(((weights @ v) / weights.sum(-1, True)).to(right[0].dtype), *right)
                missed += 1
    assert missed <= 2  # of scores of 1e9 nothing can be said


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16], ids=str)
def test_weights_may_have_16_bits_and_sums_may_not(kind: torch.dtype) -> None:
    """Tensor cores take factors of 16 bits, also where a file has them in float32."""
    reference = Reference()
    reference.load(ATTENDED.format(result=WIDE, kind=f", dtype={kind}"), "cpu", "none")
    for seed in range(5):
        drawn, noise = reference.draw(Draw(seed)), reference.noise(Draw(seed), "usual")
        q, k, v = (t.float() for t in drawn.inputs)
        weights = torch.exp(q @ k.mT * 32**-0.5)
        total = weights.sum(-1, True)
        right = drawn.own["output"], drawn.exact["output"], noise["output"]
        compare((weights.to(kind).float() @ v / total).to(kind), *right)
        with pytest.raises(Mismatch):
            parts = (weights[..., None] * v[..., None, :, :]).to(kind).unbind(-2)
            summed = functools.reduce(lambda a, b: (a.float() + b.float()).to(kind), parts)
            compare((summed.float() / total).to(kind), *right)


def test_rounding_leaves_a_zero_its_sign() -> None:
    signs = "torch.copysign(torch.ones_like(x), x)"
    source = ROTARY.replace("x * 10000.0 ** -torch.linspace(0, 1, x.shape[-1])", signs)
    reference = Reference()
    reference.load(source, "cpu", "none")
    draw = Draw(0, 0, "steps")
    drawn, noise = reference.draw(draw), reference.noise(draw, "usual")
    (x,) = drawn.inputs
    assert ((x == 0) & x.signbit()).any()
    assert noise is not None and noise["output"].max() < 1e-6


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_weights_that_are_nearly_the_same_may_all_be_rounded_alike(kind: torch.dtype) -> None:
    """As in a softmax of nearly equal scores: such a program is off by as much everywhere."""
    weights = torch.full((64, 64), 1 / 1000, dtype=torch.float64)
    rounding, leans = Rounding(0.0, kind, kind, 0.0, ()), []
    for seed in (JITTERS, JITTERS + 1):
        with Jitter(seed, True, rounding):
            changed = weights * 1.0
        off = (changed / weights - 1) / torch.finfo(kind).eps
        assert 0.01 < off.abs().max() <= 0.5
        leans.append(float(off.mean().abs() / off.abs().max()))
    assert leans[0] < 0.1
    assert leans[1] > 0.99
    with Jitter(JITTERS + 1, True, rounding):
        assert torch.equal(weights.to(kind).double() * 1.0, weights.to(kind).double())


def test_a_run_that_leaves_a_table_says_nothing() -> None:
    """Of a quantile of one, rounded up, the place is behind the last number."""
    source = ROTARY.replace(
        "x * 10000.0 ** -torch.linspace(0, 1, x.shape[-1])",
        "torch.quantile(x, torch.tensor([0.0, 0.3, 1.0]), dim=-1)",
    )
    reference = Reference()
    reference.load(source, "cpu", "none")
    noise = reference.noise(Draw(0), "more")
    assert noise is None or noise["output"].isfinite().all()
    rounding = Rounding(1.0, None, None, 0.0, ())
    right = reference._right(Draw(0))[1]
    inputs = reference.inputs(Draw(0))
    assert reference._moved(Draw(0), inputs, right, 1, rounding, keep_short=False) is None


def test_a_move_that_float32_does_not_hold_is_a_large_one() -> None:
    """As of weights that are worked out again from scores of 1e9: nothing is known of them."""
    exact = torch.zeros(3, dtype=torch.float64)
    moved = torch.tensor([1e300, -torch.inf, torch.nan], dtype=torch.float64)
    (found,) = furthest({"output": [exact]}, {"output": [moved]}, None)["output"]
    assert found[:2].tolist() == [torch.finfo(torch.float32).max] * 2 and found[2].isnan()


def test_how_far_results_of_16_bits_move_is_said_in_float32() -> None:
    """A file that ends in `.to(torch.bfloat16)` has none longer; that type has another maximum."""
    ones = torch.ones(2, dtype=torch.bfloat16)
    (found,) = furthest({"output": [ones]}, {"output": [ones * 3]}, None)["output"]
    assert found.tolist() == [2.0, 2.0] and found.dtype == torch.float32
