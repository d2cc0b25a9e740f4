"""What else a caller may do, according to a reference in this process."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

from curate.problem.draw import Draw, Variation
from curate.verify.reference import serve
from curate.verify.reference.serve import NoValues, Reference

PROBLEM = """
import torch
import torch.nn as nn
X = torch.ones(4, 6)
{sizes}
class Model(nn.Module):
    def __init__(self{init}):
        super().__init__()
        {setup}
    def forward(self, {arguments}):
        {forward}
def get_inputs():
    return [{inputs}]
def get_init_inputs():
    return [{given}]
"""


def loaded(
    forward: str,
    inputs: str = "torch.randn(4, 6)",
    arguments: str = "x",
    setup: str = "pass",
    init: str = "",
    given: str = "",
    sizes: str = "",
) -> Reference:
    names = {"arguments": arguments, "setup": setup, "init": init, "given": given, "sizes": sizes}
    reference = Reference()
    source = PROBLEM.format(forward=forward, inputs=inputs, **names)
    reference.load(source, "cpu", "none")
    return reference


def variants(*case: str, **named: str) -> tuple[dict[str, list[tuple[Variation, ...]]], list[str]]:
    reference = loaded(*case, **named)
    answer = reference.variants(Draw(2, 2), True)
    draws = {what: [draw.changes for draw in found] for what, found in answer.draws.items()}
    return draws, answer.layouts


def test_sizes_without_names_are_tried_small_and_large() -> None:
    found, layouts = variants("return x.exp()")
    assert found["sizes"] == [
        (Variation("leading", 0, 3, 4), Variation("dimension", 0, 31, 6)),
        (Variation("leading", 0, 9, 4), Variation("dimension", 0, 7, 6)),
        (Variation("leading", 0, 128, 4), Variation("dimension", 0, 128, 6)),
        (Variation("leading", 0, 72, 4), Variation("dimension", 0, 72, 6)),
        (Variation("dimension", 0, 1, 6),),
    ]
    assert found["ranks"] == [(Variation("rank", 0, n),) for n in (2, 0)]
    assert found["arguments"] == []
    assert layouts == ["strided", "permuted", "mixed"]


@pytest.mark.parametrize(
    ("forward", "length"),
    [("return sum(x)", 3), ("return x[0] - x[-1] if len(x) < 3 else 1 / 0", 1)],
)
def test_lists_of_tensors_become_longer_or_else_shorter(forward: str, length: int) -> None:
    case = forward, "[torch.randn(4, 6), torch.randn(4, 6)]"
    assert (Variation("input", 0, length),) in variants(*case)[0]["arguments"]
    given = loaded(*case).inputs(Draw(2, changes=(Variation("input", 0, length),)))
    assert len(given[0]) == length


def test_a_dimension_fewer_is_tried_where_the_reference_takes_it() -> None:
    found, _ = variants("return x.sum(-1)", "torch.randn(3, 4, 6)")
    assert found["ranks"] == [(Variation("rank", 0, 2),), (Variation("rank", 0, 0),)]
    found, _ = variants("return x.sum((1, 2))", "torch.randn(3, 4, 6)")
    assert found["ranks"] == [(Variation("rank", 0, 2),)]


def test_a_smaller_operand_is_broadcast_along_the_last_dimension_where_the_reference_does_it() -> (
    None
):
    case = "return {} + y".format, "torch.randn(3, 4, 6), torch.arange(6.0)"
    broadcast = (Variation("broadcast", 0, 1),)
    assert broadcast in variants(case[0]("x"), case[1], arguments="x, y")[0]["ranks"]
    _, y = loaded(case[0]("x"), case[1], arguments="x, y").inputs(Draw(2, changes=broadcast))
    assert y.shape == (3, 4, 1) and y.flatten().tolist() == [0, 1, 2, 3, 4, 5] * 2
    refuses = "torch.nn.functional.layer_norm(x, y.shape)"
    assert broadcast not in variants(case[0](refuses), case[1], arguments="x, y")[0]["ranks"]


def test_arguments_are_left_out_or_infinite() -> None:
    setup = "self.p, self.shift = p, shift"
    norm = "return torch.linalg.vector_norm(x, self.p, -1) + self.shift"
    found, _ = variants(norm, setup=setup, init=", p, shift=2.0", given="3.0, 1.0")
    special = Variation("argument", 1, "left out"), Variation("argument", 0, "infinite")
    assert special in found["arguments"]


@pytest.mark.parametrize(
    ("case", "free"),
    [
        ({"forward": "return x @ torch.ones(6, 3)"}, {4}),
        ({"forward": "return x.view(4, 6)"}, set()),
        ({"forward": "return self.linear(x)", "setup": "self.linear = nn.Linear(6, 2)"}, {4}),
        ({"forward": "return x + y", "arguments": "x, y", "inputs": "X, torch.rand(6)"}, {4, 6}),
    ],
)  # fmt: skip
def test_a_size_that_the_reference_refuses_is_not_free(
    case: dict[str, Any], free: set[int]
) -> None:
    found, _ = variants(**case)
    assert {change.dimension for changes in found["sizes"] for change in changes} == free


def test_a_size_that_must_be_even_becomes_even() -> None:
    found, _ = variants("a, b = x.view(-1, 2, x.shape[1] // 2).unbind(1); return a + b")
    for changes in found["sizes"]:
        assert all(c.value % 2 == 0 for c in changes if c.dimension == 6)


def test_sizes_with_names_are_changed_by_name() -> None:
    found, _ = variants("return x.exp()", "torch.randn(rows, width)", sizes="rows, width = 4, 6")
    known = [{c.which: c.value for c in changes} for changes in found["sizes"]]
    assert known[:2] == [{"rows": 3, "width": 31}, {"rows": 9, "width": 5}]
    assert known[2:] == [{"rows": 128, "width": 128}, {"rows": 72, "width": 72}, {"width": 1}]


def sizes_of_shapes(forward: str, arguments: str, inputs: str) -> list[list[tuple[int, ...]]]:
    reference = loaded(forward, inputs, arguments)
    answer = reference.variants(Draw(2, 2), True)
    draws = answer.draws["sizes"][:2]  # the others are of equal sizes
    return [[tuple(t.shape) for t in reference.inputs(draw)] for draw in draws]


def test_axes_of_one_size_become_different() -> None:
    pool = "return nn.functional.max_pool2d(x, 2)"
    long, small = sizes_of_shapes(pool, "x", "torch.randn(2, 6, 6, 6)")
    assert long == [(3, 13, 13, 31)]
    assert len(set(small[0])) == 4
    ((a, b), (c, d)) = sizes_of_shapes(
        "return x @ y", "x, y", "torch.rand(8, 8), torch.rand(8, 8)"
    )[-1]
    assert (b, d) == (c, d) and a not in (b, d), "what both inputs share stays"
    (queries, keys) = sizes_of_shapes(
        "return torch.cdist(x, y)", "x, y", "torch.randn(5, 4), torch.rand(5, 4)"
    )[-1]
    assert queries[0] != keys[0] and queries[1] == keys[1]


def test_a_limit_that_no_input_comes_to_becomes_small() -> None:
    clipped = "return x.clamp(-self.most, self.most)[:, :self.count]"
    setup = "self.count, self.most = count, most"
    found, _ = variants(clipped, setup=setup, init=", count, most", given="64, 500.0")
    changes, *edges = ({(c.which, c.value) for c in draw} for draw in found["arguments"])
    assert changes == {(0, 2), (1, 0.02)}
    assert edges == [{(1, 0.0)}, {(1, -500.0)}], "nothing is left empty"


def test_a_change_that_raises_after_much_work_is_not_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serve, "LARGE_CALL", 100)
    text = PROBLEM.format(
        sizes="DONE = []",
        init=", times",
        setup="self.times = times",
        arguments="x",
        forward="y = x.repeat(self.times, 1)\n"
        "        if not x.is_meta:\n            DONE.append(self.times)\n"
        "        return nn.functional.layer_norm(y, [8, 6]).exp()",
        inputs="X * torch.rand(4, 6)",
        given="2",
    )
    reference = Reference()
    reference.load(text, "cpu", "none")
    reference.facts(Draw(2, 2))
    reference.variants(Draw(2, 2), True)
    assert set(reference.task.module.DONE) == {2}, "other numbers do not fit the norm"


def test_arguments_of_the_constructor_are_changed_with_inputs_that_go_with_them() -> None:
    setup = "self.norm = nn.LayerNorm(width, eps); self.flag = flag; self.unused = unused"
    found, _ = variants(
        "y = self.norm(x); return -y if self.flag else y",
        setup=setup,
        init=", width, eps=1e-5, flag=False, unused=3, name='a'",
        given="6",
    )
    assert found["arguments"] == [
        (
            Variation("argument", 2, True),
            Variation("argument", 0, 7, 6),
            Variation("argument", 1, 0.25001),
        ),
        (Variation("argument", 1, 0.0),),
        (Variation("argument", 1, 1.5),),
    ]
    assert found["more arguments"] == [
        (Variation("argument", 0, 9, 6), Variation("argument", 1, 1e-4))
    ]


def test_what_a_configuration_holds_is_changed() -> None:
    found, _ = variants(
        "y = self.norm(x); return -y if self.flag else y",
        setup="self.norm = nn.LayerNorm(config.width, config.eps); self.flag = config.flag",
        init=", config",
        given="__import__('types').SimpleNamespace(width=6, eps=1e-5, flag=False)",
    )
    changes, *_ = found["arguments"]
    assert changes == (
        Variation("argument", "0.flag", True),
        Variation("argument", "0.width", 7, 6),
        Variation("argument", "0.eps", 0.25001),
    )


def test_what_is_in_a_configuration_in_another_is_changed() -> None:
    found, _ = variants(
        "return self.norm(x) * self.scale",
        setup="self.norm, self.scale = nn.LayerNorm(6, config['norm'].eps), config['scale']",
        init=", config",
        given="{'norm': __import__('types').SimpleNamespace(eps=1e-5), 'scale': 0.5}",
    )
    changes, *_ = found["arguments"]
    assert changes == (
        Variation("argument", "0.norm.eps", 0.25001),
        Variation("argument", "0.scale", 0.75),
    )


def test_what_depends_on_a_flag_is_changed_without_it() -> None:
    found, _ = variants(
        "return x if self.flag else x * self.scale",
        setup="self.flag, self.scale = flag, scale",
        init=", scale=2.0, flag=False",
    )
    assert found["arguments"] == [
        (Variation("argument", 1, True),),
        (Variation("argument", 0, 1.5),),
        (Variation("argument", 0, 0.0),),
        (Variation("argument", 0, -2.0),),
    ]


def test_flags_are_also_changed_alone() -> None:
    found, _ = variants(
        "return x.cumsum(0) * (2 if self.twice else 1) if self.along else x + self.twice",
        setup="self.along, self.twice = along, twice",
        init=", along=False, twice=False",
    )
    along, twice = (Variation("argument", which, True) for which in (0, 1))
    assert found["arguments"] == [(along, twice)]
    assert found["more arguments"] == [(along,), (twice,)]


_input = functools.partial(Variation, "input", 1)


@pytest.mark.parametrize(
    ("forward", "arguments", "inputs", "changes"),
    [
        ("return x * gain", "x, gain=1.0", "", [_input(0.75), _input(0.0), _input(-1.0)]),
        ("return x * gain", "x, gain", ", 2", [_input(3), _input(-2), _input(295)]),
        ("return x if y is None else x + y", "x, y=None", "", [Variation("input", 1, "like")]),
        ("a, b = y or (x, x); return x * a + b", "x, y=None", "", [Variation("input", 1, "pair")]),
        ("return x", "x, unused=None", "", []),
    ],
)  # fmt: skip
def test_numbers_and_options_of_forward_are_changed(
    forward: str, arguments: str, inputs: str, changes: list[Variation]
) -> None:
    found, _ = variants(forward, f"torch.randn(4, 6){inputs}", arguments)
    assert [change for draw in found["arguments"] for change in draw] == changes


def test_layouts_that_the_reference_refuses_are_none() -> None:
    assert variants("return x.view(24)")[1] == ["strided"]
    assert variants("return x + 1", "torch.randn(5)")[1] == ["strided"]
    assert variants("return x + 1", "torch.randn(1, 1)")[1] == []


def long_shapes(reference: Reference, short: bool = True) -> list[list[tuple[int, ...]] | None]:
    """Return the shapes of inputs for each dimension that is made long; None where none can be."""
    found: list[list[tuple[int, ...]] | None] = []
    while True:
        draw, dimensions = reference.long(Draw(2, 2), len(found), short)
        if len(found) == dimensions:
            return found
        found.append(draw and [tuple(tensor.shape) for tensor in reference.inputs(draw)])


@pytest.mark.parametrize(
    ("case", "shapes"),
    [
        ({"forward": "return x.exp()"}, [[(3, 131_101)], [(131_101, 3)]]),
        (
            {"forward": "return self.norm(x)", "init": ", width", "given": "6",
             "setup": "self.norm = nn.LayerNorm(width)"},
            [[(3, 131_101)], [(131_101, 3)]],
        ),
        (
            {"forward": "return self.norm(x)", "init": ", width", "given": "width",
             "setup": "self.norm = nn.LayerNorm([width, 2])",
             "inputs": "torch.randn(rows, width, 2)", "sizes": "rows, width = 4, 6"},
            [[(3, 131_101, 2)], [(131_101, 3, 2)], None],
        ),
        # two dimensions of one name, together and one by one
        (
            {"forward": "return x.softmax(-1)", "inputs": "torch.randn(1, length, length)",
             "sizes": "length = 8"},
            [[(1, 1_031, 1_031)], [(1, 3, 131_101)], [(1, 131_101, 3)], [(131_101, 3, 3)]],
        ),
        # what must be square
        (
            {"forward": "return x + x.mT", "inputs": "torch.randn(2, 8, 8)"},
            [None, [(2, 203, 203)], [(131_101, 3, 3)]],
        ),
        # what the module fixes
        (
            {"forward": "return F(x)", "setup": "global F; F = nn.Linear(6, 2)"},
            [None, [(131_101, 6)]],
        ),
        # what another input alone has
        (
            {"forward": "return x + y.sum()", "arguments": "x, y",
             "inputs": "torch.randn(4, 6), torch.randn(8)"},
            [[(3, 131_101), (3,)], [(131_101, 3), (3,)], [(3, 3), (131_101,)]],
        ),
        # what must be a multiple of four
        ({"forward": "return x.view(4, -1)", "inputs": "torch.randn(8)"}, [[(131_104,)]]),
    ],
)  # fmt: skip
def test_one_dimension_is_made_long(
    case: dict[str, Any], shapes: list[list[tuple[int, ...]] | None]
) -> None:
    assert long_shapes(loaded(**case)) == shapes


def test_the_other_dimensions_may_stay_as_they_are() -> None:
    assert long_shapes(loaded("return x.exp()"), short=False) == [[(4, 131_101)], [(131_101, 6)]]
    most = loaded("return x @ x.mT", "torch.randn(64, 64, 8)")
    assert long_shapes(most, short=False)[0] == [(64, 64, 203)]


@pytest.mark.parametrize(("times", "longest"), [(1, [(1_031, 3)]), (20, None)])
def test_a_recurrence_is_as_long_as_its_steps_let_it_be(
    times: int, longest: list[tuple[int, ...]] | None
) -> None:
    step = "h = x[0]\n        for row in x:\n            h = (h + row){}\n        return h"
    assert long_shapes(loaded(step.format(times * ".tanh()")))[1] == longest


def test_other_sizes_that_are_far_more_work_are_left_out() -> None:
    reference = loaded("return x.repeat(len(x) ** 2, 1).exp()", "torch.rand(n, 4)", sizes="n = 8")
    reference.facts(Draw(2, 2))
    draws = reference.variants(Draw(2, 2), True).draws["sizes"]
    sizes = {change.value for draw in draws for change in draw.changes if change.which == "n"}
    assert 64 in sizes and 128 not in sizes, sizes


def test_large_inputs_may_be_twice_as_many() -> None:
    reference = loaded("return x.exp()", "torch.rand(8192, 512)")
    reference.facts(Draw(2, 2))
    draws = reference.variants(Draw(2, 2), True).draws["sizes"]
    assert Variation("leading", 0, 16385, 8192) in draws[1].changes, draws


@pytest.mark.parametrize("n", ["n", "int(torch.tensor(n))"], ids=["plain", "by a value"])
def test_of_changes_alone_those_count_that_make_inputs_no_larger(n: str) -> None:
    reference = loaded("return x.exp()", f"torch.rand({n}, m)", sizes="n = 4; m = 4")
    few, many = Variation("size", "m", 1), Variation("size", "n", 64)
    draw = Draw(2, 2, changes=(few, many))
    assert reference.alone(draw) == [Draw(2, 2, changes=(few,))]
    assert reference.alone(Draw(2, 2, changes=(few,))) == [Draw(2, 2, changes=(few,))]


def test_a_change_alone_is_left_out_where_it_makes_results_huge() -> None:
    setup = "self.conv = nn.Conv2d(8, 64, 3, stride, padding)"
    reference = loaded(
        "return self.conv(x)",
        "torch.randn(8, 8, 16, 16)",
        init=", stride, padding",
        setup=setup,
        given="1, 1",
    )
    reference.facts(Draw(1, 1))
    stride, padding = (Variation("argument", which, 138) for which in (0, 1))
    draw = Draw(2, 2, family="large", changes=(stride, padding))
    assert reference.alone(draw) == [Draw(2, 2, family="large", changes=(stride,))]


def test_a_tensor_without_numbers_is_not_given_memory() -> None:
    with torch.device("meta"), NoValues():
        with pytest.raises(NotImplementedError, match="has no numbers"):
            torch.ones(3).cpu()
        assert (torch.ones(3) + 1).is_meta
