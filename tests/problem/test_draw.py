from __future__ import annotations

import dataclasses
import json
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from verify_programs import LINEAR, SOFTMAX

from curate.problem.draw import (
    BUFFERS,
    FAMILIES,
    MANY,
    NOT_FINITE,
    OWN,
    ROWS,
    SETS,
    Draw,
    Variation,
    changed_arguments,
    constants,
    draw_inputs,
    free_sizes,
    integer_families,
    parameters_seed,
    plan,
    redraw,
    redraw_parameters,
    reshaped,
    retyped,
    sizes,
    tables,
)
from curate.problem.problem import LoadedTask

# --- plans ----------------------------------------------------------------------------------


def test_a_plan_starts_with_the_files_own_draw_and_takes_every_family() -> None:
    draws = plan(8, own_size=7)
    assert draws[0] == Draw(0, parameters_seed(0))
    assert [draw.family for draw in draws] == list(FAMILIES)
    assert [draw.seed for draw in draws] == list(range(8))
    assert [draw.family for draw in plan(9, None)][8] == OWN


def test_every_second_draw_takes_another_size() -> None:
    assert [draw.size for draw in plan(8, own_size=7)] == [None, None, 1, None, 15, None, 3, None]
    assert {draw.size for draw in plan(8, own_size=None)} == {None}
    assert set(sizes(7)) == {1, 3, 15}
    assert plan(5, own_size=7, many=True)[4].size == MANY == sizes(7, many=True)[2]
    assert sizes(50, many=True)[2] == 101


def test_a_thrifty_plan_is_small_after_its_first_draw() -> None:
    found = [draw.size for draw in plan(8, own_size=4000, thrifty=True)]
    assert found == [None, 3, 3, 1, 1, 1, 3, 3]
    assert {draw.size for draw in plan(8, own_size=None, thrifty=True)} == {None}


def test_steps_never_have_a_size_of_one() -> None:
    for options in ({}, {"many": True}, {"thrifty": True}):
        first = next(d for d in plan(8, own_size=200, **options) if d.family == "steps")
        assert first.size != 1


def test_draws_share_parameters_in_sets_and_start_at_a_seed() -> None:
    draws = plan(8, None, seed=100)
    assert [draw.seed for draw in draws] == list(range(100, 108))
    assert [draw.parameters for draw in draws] == [
        parameters_seed(100, i // SETS) for i in range(8)
    ]
    assert draws[0].to_json() == dataclasses.asdict(Draw(100, parameters_seed(100)))


def test_the_seed_of_the_parameters_does_not_tell_that_of_the_inputs() -> None:
    found = [parameters_seed(100, number) for number in range(4)]
    assert len(set(found)) == 4 and not set(found) & set(range(90, 120))
    assert [seed % 2 for seed in found] == [0, 1, 0, 1]


# --- sizes ----------------------------------------------------------------------------------

SIZES = """
import torch
import torch.nn as nn
batch, length, width, classes = 4, 6, 8, 3
scale = 0.5
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, classes)
    def forward(self, x):
        return self.linear(x)
def get_inputs():
    return [scale * torch.rand(batch, length, width)]
def get_init_inputs():
    return [width]
"""


def test_free_sizes_are_those_that_only_the_inputs_depend_on() -> None:
    assert free_sizes(LoadedTask(SIZES)) == ["batch", "length"]
    assert free_sizes(LoadedTask(SOFTMAX.reference)) == ["rows"]
    assert free_sizes(LoadedTask(LINEAR.reference)) == []


@pytest.mark.parametrize(
    ("size", "changes", "shape"),
    [
        (None, (), (4, 6, 8)),
        (3, (), (3, 6, 8)),
        (1, (), (1, 6, 8)),
        (3, (Variation("size", "length", 5),), (3, 5, 8)),
        (None, (Variation("size", "batch", 9), Variation("size", "length", 5)), (9, 5, 8)),
        (None, (Variation("dimension", 0, 5, dimension=8),), (4, 6, 5)),
        (
            None,
            (Variation("leading", 0, 8, dimension=4), Variation("dimension", 0, 4, 8)),
            (8, 6, 4),
        ),
        (None, (Variation("rank", 0, 2),), (2, 4, 6, 8)),
    ],
)
def test_inputs_take_the_draws_sizes(
    size: int | None, changes: tuple[Variation, ...], shape: tuple[int]
) -> None:
    task = LoadedTask(SIZES)
    for family in (OWN, "signed"):
        (x,) = draw_inputs(task, Draw(0, family=family, size=size, changes=changes))
        assert x.shape == shape
    assert (task.module.batch, task.module.length) == (4, 6), "the file's sizes are back"


def test_sizes_are_back_after_inputs_that_raise() -> None:
    task = LoadedTask(
        SIZES.replace("batch, length, width)]", "batch, length, 8 // (4 - batch + 1))]")
    )
    with pytest.raises(ZeroDivisionError):
        draw_inputs(task, Draw(seed=0, size=5))
    assert task.module.batch == 4


def test_a_draw_is_the_same_after_a_journey_as_json() -> None:
    draw = Draw(
        1, 2, "large", 3, "train", (Variation("argument", 0, 2.5), Variation("size", "n", 3))
    )
    assert Draw.from_json(json.loads(json.dumps(draw.to_json()))) == draw
    assert draw.instance == (2, (Variation("argument", 0, 2.5),))


def test_equal_dimensions_change_together_and_values_stay_what_they_are() -> None:
    x, places, bias = torch.rand(4, 3), torch.arange(4), torch.rand(3)
    found = reshaped(
        [x, [places], bias], [Variation("leading", 0, 9, 4), Variation("dimension", 0, 2, 3)]
    )
    assert torch.equal(found[0], x[:, :2].repeat(3, 1)[:9])
    assert found[1][0].tolist() == [0, 0, 0, 1, 1, 2, 2, 3, 3], "in order"
    assert torch.equal(found[2], bias[:2])


# --- numbers --------------------------------------------------------------------------------


def test_arguments_are_changed_by_position_also_those_that_are_left_out() -> None:
    class Model:
        def forward(self, x, n, gain=1.0, mask=None, *, flag=False):
            pass

    x = torch.rand(3, 5)
    given = [x, 2]

    def changed(*changes: Variation) -> list:
        return changed_arguments(Model.forward, given, changes, "input")

    assert changed() == given == changed(Variation("argument", 1, 7))
    assert changed(Variation("input", 1, 7)) == [x, 7]
    assert changed(Variation("input", 2, 0.5)) == [x, 2, 0.5]
    *others, mask = changed(Variation("input", 3, "like"))
    assert others == [x, 2, 1.0] and mask.shape == x.shape
    assert [t.shape for t in changed(Variation("input", 3, "pair"))[3]] == [x.shape, x.shape]


def test_numbers_in_a_namespace_are_changed_by_name() -> None:
    config = SimpleNamespace(width=8, eps=1e-5)
    changes = [Variation("argument", "1.eps", 0.25), Variation("argument", 0, 3)]
    changed = changed_arguments(nn.Module.__init__, [2, config], changes, "argument")
    assert changed == [3, SimpleNamespace(width=8, eps=0.25)]
    assert config.eps == 1e-5
    nested = SimpleNamespace(mlp={"width": 8}, scale=2.0)
    change = Variation("argument", "0.mlp.width", 9)
    changed = changed_arguments(nn.Module.__init__, [nested], [change], "argument")
    assert changed == [SimpleNamespace(mlp={"width": 9}, scale=2.0)]
    assert nested.mlp == {"width": 8}


# --- inputs ---------------------------------------------------------------------------------

X = torch.rand(4000, generator=torch.Generator().manual_seed(0))


def redrawn(family: str, value: torch.Tensor = X) -> torch.Tensor:
    torch.manual_seed(0)
    found = redraw(value, value, family)
    assert (found.shape, found.dtype, found.stride()) == (
        value.shape,
        value.dtype,
        value.stride(),
    )
    assert not torch.equal(found, value)
    return found


def test_families_are_what_they_are_called() -> None:
    spread = float(X.std())
    signed = redrawn("signed")
    assert abs(float(signed.mean())) < spread / 5
    assert float(signed.std()) == pytest.approx(spread, rel=0.1)
    steps = redrawn("steps")
    assert torch.equal((2 * steps).round(), 2 * steps)
    assert 1 < float(steps.abs().max()) <= 4
    assert float(redrawn("steps", torch.rand(100_000)).abs().max()) == 4
    shifted = redrawn("shifted")
    assert float(shifted.mean()) == pytest.approx(64 * spread, rel=0.01)
    assert float(shifted.std()) == pytest.approx(spread, rel=0.1)
    rows = redrawn("large", torch.rand(1000, 200)).std(dim=1)
    assert float(rows.min()) < 2 and 20_000 < float(rows.max()) < 40_000
    few = redrawn("large", torch.rand(3, 1000)).abs()
    assert float(few.median(dim=1).values.min()) * 20 < float(few.max())
    assert float(redrawn("small").std()) == pytest.approx(0.001, rel=0.1)
    assert float(redrawn("negative").max()) < 0


def test_an_outlier_changes_two_elements_only() -> None:
    found = redrawn("outlier")
    assert int((found != X).sum()) == 2
    assert float(found.abs().max()) > 50 * float(X.max())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("family", FAMILIES[1:])
def test_families_keep_types_and_strides_and_are_finite(family: str, dtype: torch.dtype) -> None:
    value = (1000 * X).to(dtype).reshape(40, 100).t()
    assert redrawn(family, value).isfinite().all()


def test_what_may_have_a_meaning_stays() -> None:
    values = [torch.arange(9), torch.ones(9), torch.tensor(0.5), torch.ones(9) > 0, "mean", None]
    values += [torch.tensor([0.0, float("inf")])]
    for value, found in zip(values, redraw(values, values, "signed"), strict=True):
        assert found is value


@pytest.mark.parametrize("family", FAMILIES[1:])
@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_one_element_is_redrawn_if_the_file_draws_it(family: str, shape: tuple[int, ...]) -> None:
    value, again = torch.full(shape, 0.3), torch.full(shape, 0.7)
    found = redraw(value, again, family)
    assert found.shape == shape and not torch.equal(found, value)


def test_the_files_sizes_do_not_hide_what_it_draws() -> None:
    task = LoadedTask(SIZES.replace("(batch, length, width)", "(batch, 1)"))
    (x,) = draw_inputs(task, Draw(0, family="negative", size=1))
    assert x.shape == (1, 1) and float(x) < 0


def test_steps_are_equal_to_each_other_and_to_constants_of_the_file() -> None:
    few = redraw(X[:10], X[10:20], "steps")
    assert len(few.unique()) <= 3
    found = constants("x = F.hardshrink(y, 0.3) if y > -1.7e0 else 100.0 + 1e-6")
    assert found == [-1.7, -0.3, 0.3, 1.7]
    values, counts = redraw(X, X, "steps", found).unique(return_counts=True)
    shares = {round(float(v), 4): int(n) / len(X) for v, n in zip(values, counts, strict=True)}
    assert all(shares[value] > 0.015 for value in found) and shares[0.0] > 0.03
    task = LoadedTask(SIZES)
    (x,) = draw_inputs(task, Draw(0, family="steps"))
    assert constants(task.source) == [-0.5, 0.5] and x.unique().numel() < x.numel() / 4


PAIR = """
import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self, most):
        super().__init__()
        self.most = most
    def forward(self, x, y, z):
        return {forward}
def get_inputs():
    once = torch.randn(1, 5)
    return [torch.randn(16, 5), torch.randn(16, 5), once.expand(16, 5)]
def get_init_inputs():
    return [12]
"""


def test_inputs_of_one_shape_share_some_rows_in_steps() -> None:
    task = LoadedTask(PAIR.format(forward="x + y + z"))
    x, y, z = draw_inputs(task, Draw(0, family="steps"))
    same = (x == y).all(1)
    assert same[-4:].all() and not same[:-4].all()
    assert torch.equal(z, z[:1].expand(16, 5)), "one row is no pair's"


COUNTS = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, x, counts):
        return torch.cat([part.softmax(0) for part in x.split(counts.tolist())])

def get_inputs():
    return [torch.rand(60, 4), torch.tensor([20, 0, 30, 9, 1], dtype=torch.int32)]

def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("family", FAMILIES[1:])
def test_counts_of_rows_add_up_in_every_draw(family: str) -> None:
    _, counts = draw_inputs(LoadedTask(COUNTS), Draw(3, family=family))
    assert counts.sum() == 60 and counts.tolist() != [20, 0, 30, 9, 1]
    assert counts.dtype == torch.int32


@pytest.mark.parametrize(
    ("forward", "found"), [("x.clamp(max=self.most)", [-12, 12]), ("x + self.most", [])]
)
def test_whole_numbers_of_the_constructor_are_met_where_forward_cuts_off(
    forward: str, found: list[float]
) -> None:
    assert constants(PAIR.format(forward=forward)) == found


def test_other_types_are_given_by_name() -> None:
    whole, short, long = torch.arange(3), torch.rand(3).half(), torch.rand(3)
    given = [whole, short, long]
    kinds = [tensor.dtype for tensor in retyped(given, ["int32", "float32"])]
    assert kinds == [torch.int32, torch.float32, torch.float32]
    for name, kind in (("bfloat16", torch.bfloat16), ("float16", torch.float16)):
        assert [t.dtype for t in retyped([long, short], [name])] == [kind, torch.float16]
        assert [t.dtype for t in retyped([short, long], [name])] == [torch.float16, torch.float32]
    kinds = [tensor.dtype for tensor in retyped([*given, long + 1], ["float64"])]
    assert kinds == [torch.int64, torch.float16, torch.float64, torch.float64]
    assert retyped(given, []) is given


def test_steps_lie_between_two_steps_of_a_quantisation() -> None:
    quantised = "(x / (x.abs().amax(-1, keepdim=True) / 127)).round() + y + z"
    plain, rounding = (LoadedTask(PAIR.format(forward=f)) for f in ("x + y + z", quantised))
    assert draw_inputs(plain, Draw(0, family="steps"))[0].abs().max() <= 4
    x, _, z = draw_inputs(rounding, Draw(0, family="steps"))
    between, even = _between_and_even(x)
    assert (x[between, 0] == 127).all() and (x[between, 1:] % 1 == 0.5).all()
    assert (x[2::2] % 0.5 == 0).all() and x.abs().max() == 127
    assert sorted(x[even, 0].abs().tolist()) in ([0, 0, 1], [0, 0, 1, 127])  # zeros stay
    assert torch.equal(z, z[:1].expand(16, 5))
    sized = LoadedTask(PAIR.format(forward="(x / 0.0625).round() + y + z"))
    x, _, z = draw_inputs(sized, Draw(0, family="steps"))
    between, _ = _between_and_even(x)
    assert (x[between & (torch.arange(16) % 4 == 3), 1:] / 0.0625 % 1).eq(0.5).all()
    assert (x[between & (torch.arange(16) % 4 == 1), 0] == 127).all()


def _between_and_even(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return which rows lie between steps, and which have one value."""
    even = (x == x[:, :1]).all(1)
    return (torch.arange(len(x)) % 2 == 1) & ~even, even


def test_zeros_have_both_signs() -> None:
    steps = redrawn("steps")
    assert {bool(sign) for sign in steps[steps == 0].signbit()} == {False, True}


@pytest.mark.parametrize("count", [1, 5, 100])
def test_some_values_are_not_finite(count: int) -> None:
    value = torch.rand(count, 2)
    found = redraw(value, value, NOT_FINITE)
    odd = ~found.isfinite()
    rows = list(zip(range(1, count, 2), (-float("inf"), float("inf"), float("nan")), strict=False))
    rows = rows if count >= ROWS else []
    assert 0 < int(odd.sum()) <= max(1, count // 2) + 2 * len(rows)
    for row, kind in rows:
        assert torch.equal(found[row].nan_to_num(7), torch.full((2,), kind).nan_to_num(7))
    assert torch.equal(found[~odd], value[~odd])
    if count == 100:
        assert found.isnan().any() and (found.isinf() & (found > 0)).any()
        assert (found.isinf() & (found < 0)).any()


def test_a_permutation_becomes_another() -> None:
    value = torch.stack([torch.randperm(8) for _ in range(40)])
    found = redraw(value, value, "steps")
    assert not torch.equal(found, value)
    assert torch.equal(found.sort(-1).values, torch.arange(8).expand(40, 8))


def test_offsets_begin_and_end_where_they_do() -> None:
    value = torch.tensor([0, 3, 3, 9, 14, 20])
    found = redraw(value, value, "signed")
    assert (int(found[0]), int(found[-1])) == (0, 20) and bool((found.diff() >= 0).all())


BAGS = """
import torch
class Model(torch.nn.Module):
    def forward(self, ids, offsets):
        return ids
def get_inputs():
    return [torch.arange(1, 41), torch.tensor([0, 3, 9])]
def get_init_inputs():
    return []
"""


def test_offsets_of_other_integers_stay() -> None:
    for family, first in (("nothing", 0), ("all_away", -100)):
        ids, offsets = draw_inputs(LoadedTask(BAGS), Draw(5, family=family))
        assert ids.tolist() == [first] * 40
        assert offsets.tolist() == [0, 3, 9]


@pytest.mark.parametrize("value", [torch.ones(9, 40).bool(), torch.ones(9, 40)])
def test_constant_masks_and_weights_become_others(value: torch.Tensor) -> None:
    assert integer_families([value]) == ("other_integers", "nothing")
    found = redraw(value, value, "other_integers")
    assert found.dtype == value.dtype and len(found.unique()) > 1
    for family in FAMILIES:
        assert torch.equal(redraw(value, value, family), value)
    assert integer_families([torch.zeros(9), torch.randn(9)]) == ()


def test_boundaries_stay_sorted_where_the_file_needs_it() -> None:
    for name, is_sorted in (("bucketize", True), ("mul", False)):
        text = SORTED.replace("bucketize", name)
        (_, edges) = draw_inputs(LoadedTask(text), Draw(5, family="signed"))
        assert bool((edges.diff() >= 0).all()) is is_sorted


SORTED = """
import torch
class Model(torch.nn.Module):
    def forward(self, x, edges):
        return torch.bucketize(x, edges)
def get_inputs():
    return [torch.randn(40), torch.randn(40).sort().values]
def get_init_inputs():
    return []
"""


def test_tensors_in_lists_are_redrawn() -> None:
    first, (second, third) = redraw((X, [X, 3]), (X, [X, 3]), "signed")
    assert (first.shape, second.shape, third) == (X.shape, X.shape, 3)
    assert not torch.equal(first, X) and not torch.equal(second, first)


def test_one_draw_gives_the_same_inputs_each_time() -> None:
    task = LoadedTask(SIZES)
    for family in FAMILIES:
        (one,), (other,) = (draw_inputs(task, Draw(5, family=family)) for _ in range(2))
        (another,) = draw_inputs(task, Draw(6, family=family))
        assert torch.equal(one, other) and not torch.equal(one, another)


# --- parameters -----------------------------------------------------------------------------


def test_defaults_are_redrawn_and_keep_their_signs() -> None:
    model = nn.Sequential(nn.BatchNorm1d(64), nn.Linear(64, 8))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    redraw_parameters(model, seed=0)
    after = model.state_dict()
    assert after["0.weight"].min() >= 0.5 and after["0.weight"].std() > 0.1
    assert after["0.bias"].abs().max() <= 0.5 and after["0.bias"].std() > 0.1
    assert after["0.running_var"].min() >= 0.5
    assert after["0.running_mean"].std() > 0.1 and after["0.running_mean"].min() < 0
    tame = nn.BatchNorm1d(64)
    redraw_parameters(tame, seed=0, flip=False)
    assert tame.running_mean is not None
    assert tame.running_mean.std() > 0.1 and tame.running_mean.min() >= 0
    assert torch.equal(after["0.num_batches_tracked"], before["0.num_batches_tracked"])
    moved = (after["1.weight"] - before["1.weight"]).abs()
    assert 0 < moved.max() <= before["1.weight"].std() / 2 + 1e-6


def test_masks_and_tables_in_buffers_stay() -> None:
    model = nn.Module()
    model.register_buffer("mask", torch.tril(torch.ones(4, 4)))
    model.register_buffer("minus", torch.full((3,), -float("inf")))
    model.register_buffer("unset", torch.full((3,), float("nan")))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    redraw_parameters(model, seed=0)
    for name, value in model.state_dict().items():
        assert torch.equal(before[name].nan_to_num(9.0), value.nan_to_num(9.0)), name


def test_tables_change_from_a_seed_on_and_masks_do_not() -> None:
    def model(seed: int) -> dict[str, torch.Tensor]:
        made = nn.Module()
        for name, value in {
            "angles": torch.linspace(0, 3, 5),
            "order": torch.arange(6).view(3, 2).mT,
            "mask": torch.tril(torch.ones(4, 4)),
            "flags": torch.tensor([True, False]),
            "bias": torch.tensor([0.0, -float("inf")]),
            "count": torch.zeros((), dtype=torch.long),
        }.items():
            made.register_buffer(name, value)
        assert tables(made) == {"angles", "order"}
        redraw_parameters(made, seed)
        return dict(made.state_dict())

    before, after = model(4), model(4 + BUFFERS)
    assert {n for n in before if not torch.equal(before[n], after[n])} == {"angles", "order"}
    assert after["order"].tolist() == [[1, 3, 5], [0, 2, 4]]


def test_a_parameter_that_was_never_initialised_is_drawn() -> None:
    model = nn.Module()
    model.weight = nn.Parameter(torch.full((100,), float("nan")))
    model.empty = nn.Parameter(torch.empty(0))
    with torch.no_grad():
        redraw_parameters(model, seed=0)
    assert model.weight.abs().max() <= 0.5 and model.weight.std() > 0.1


def test_one_seed_gives_the_same_parameters_each_time() -> None:
    states = []
    for seed in (1, 1, 2):
        torch.manual_seed(0)
        model = nn.Linear(8, 8)
        with torch.no_grad():
            redraw_parameters(model, seed)
        states.append(model.weight.clone())
    assert torch.equal(states[0], states[1]) and not torch.equal(states[0], states[2])


def test_buffers_in_float8_stay_as_they_are():
    model = torch.nn.Linear(4, 3)
    model.register_buffer("short", torch.ones(3, 4).to(torch.float8_e4m3fn))
    before = model.weight.detach().clone()
    with torch.no_grad():
        redraw_parameters(model, seed=1)
    assert model.short.float().eq(1).all()
    assert not model.weight.equal(before)


@pytest.mark.parametrize("shape", [(9, 5), (2, 3, 7), (64, 2, 4, 4)])
def test_some_rows_are_even_and_some_far_on_one_side(shape: tuple[int, ...]) -> None:
    value = torch.randn(shape)

    def rows(family: str) -> torch.Tensor:
        drawn = redraw(value, value, family)
        return drawn.flatten(1) if shape[0] > 3 else drawn.flatten(0, -2)

    steps = rows("steps")
    zero = steps[(steps == 0).all(1)]
    assert sorted(zero[:, 0].signbit().tolist()) == ([False, True] if len(steps) > 7 else [True])
    assert int((steps == 1).all(1).sum()) == 1
    large = rows("large")
    assert [int((sign * large > 31_600).all(1).sum()) for sign in (-1, 1)] == [1, 1]


def test_masks_in_steps_have_rows_of_one_value_and_integers_are_few() -> None:
    mask, counts = torch.rand(6, 40) < 0.5, torch.randint(0, 10_000, (600,))
    for value in (mask, mask.float()):
        drawn = redraw(value, value, "steps")
        assert drawn.dtype == value.dtype
        assert {False, True} <= {bool(row[0]) for row in drawn if (row == row[0]).all()}
        assert not any((row == row[0]).all() for row in redraw(value, value, "signed"))
    assert len(redraw(counts, counts, "steps").unique()) <= 8
    assert len(redraw(counts, counts, "signed").unique()) > 300


def test_one_number_of_each_input_may_be_another() -> None:
    task, draw = LoadedTask(PAIR.format(forward="x + y + z")), Draw(4, family="signed")
    changed = dataclasses.replace(draw, changes=(Variation("one", 0, 0),))
    for before, after in zip(draw_inputs(task, draw), draw_inputs(task, changed), strict=True):
        differs = before != after
        assert int(differs.sum()) <= 1 and (after[differs] == before.amax()).all()
        assert differs.any() or 0 in before.stride()
