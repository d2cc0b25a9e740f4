"""Wordings of the question, and what a row's own program lets it ask for."""

import re
from typing import Any

import pytest

from curate.formats.conversion import Conversion
from curate.formats.messages import Messages
from curate.formats.prompts.examples import Examples, WorkedExample
from curate.formats.prompts.question import INSTRUCTION, WORDINGS, asked, conditions
from curate.rows import COMPILE, STATIC, VERDICT, Loose, make_origin, make_row
from curate.step import Keep

LICENSE = {"choice": "MIT", "expression": "MIT"}
REFERENCE = """\
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.exp(x) + 1


batch_size = 48


def get_inputs():
    return [torch.randn(batch_size, 100)]
"""
TRITON = '''\
@triton.jit
def exp_kernel(x_ptr, out_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    """Compute exp(x) + 1.

    Each program takes BLOCK_SIZE elements.
    """
    offsets = tl.program_id(0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    tl.store(out_ptr + offsets, tl.exp(x) + 1.0, mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        assert x.dtype != torch.float64, "float64 is not supported"
        out = torch.empty_like(x)
        exp_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK_SIZE=1024)
        return out
'''
KNOWN = {"pure_triton": True, "any_float": True, "specialised": [], "kernels": 1}
KNOWN |= {"ops": ["aten.exp.default", "aten.add.Tensor"], "extern_calls": []}
RIGHT = {"status": "correct", "caveats": [], "launches": 1, "max_abs_error": 3e-5}


def of(schema: Any, **known: Any) -> Loose:
    return dict.fromkeys(field.name for field in schema) | known


def pair(number: int, triton: str = TRITON, verdict: Any = RIGHT, **static: Any) -> Any:
    columns: Loose = {"reference": REFERENCE, "triton": triton, "license": LICENSE}
    columns["static"] = of(STATIC, **KNOWN | static)
    columns["verdict"] = of(VERDICT, **verdict)
    columns["compile"] = [of(COMPILE, target="cuda:90", ok=True)]
    return make_row("pair", f"row {number}", make_origin("local"), **columns)


def share(sentence: str, triton: str = TRITON, verdict: Any = RIGHT, **static: Any) -> float:
    """Return in which share of rows a sentence stands."""
    rows = [conditions(pair(n, triton, verdict, **static)) for n in range(300)]
    return sum(any(sentence in said for said in told) for told in rows) / len(rows)


def test_rows_ask_in_a_dozen_ways_and_always_in_the_same() -> None:
    rows = [pair(number) for number in range(400)]
    texts = [asked(row) for row in rows]
    found = {wording: sum(text.startswith(wording) for text in texts) for wording in WORDINGS}
    assert len(found) == 12 and min(found.values()) > 10, found
    assert [asked(row) for row in rows] == texts
    assert all("`ModelNew`" in wording for wording in WORDINGS)


FOR_ITS_SHAPE = TRITON.replace("        out", "        assert x.shape == (48, 100)\n        out")
FLOAT32 = TRITON.replace("x.dtype != torch.float64", "x.dtype == torch.float32")
CONVERTED = TRITON.replace("return out", "return out.to(x.dtype)")
TWICE = TRITON.replace("    mask =", "    y = tl.load(x_ptr + offsets)\n    mask =")
REPEATED = TRITON.replace("x_ptr + offsets", "x_ptr + offsets % 48")
BACKWARD = TRITON + "\n    def backward(self, grad):\n        return grad\n"


@pytest.mark.parametrize(
    ("sentence", "otherwise"),
    [
        ("must not compute anything", {"pure_triton": False}),
        ("must not compute anything", {"verdict": RIGHT | {"kind": "hybrid"}}),
        ("float16 and bfloat16", {"any_float": False}),
        ("float16 and bfloat16", {"triton": FLOAT32}),
        ("float16 and bfloat16", {"triton": CONVERTED}),
        ("hard-coded", {"specialised": ["dim=2"]}),
        ("hard-coded", {"triton": FOR_ITS_SHAPE}),
        ("hard-coded", {"triton": REPEATED}),
        ("hard-coded", {"verdict": RIGHT | {"caveats": ["some_sizes_only"]}}),
        ("hard-coded", {"verdict": RIGHT | {"status": "unsupported"}}),
        ("into one kernel", {"kernels": 2}),
        ("into one kernel", {"ops": ["aten.exp.default"]}),
        ("into one kernel", {"verdict": RIGHT | {"launches": 3}}),
        ("`x` may be loaded twice", {"triton": TWICE}),
        ("`x` may be loaded twice", {"triton": REPEATED}),
        ("Only the forward pass", {"triton": BACKWARD}),
        ("by at most 0.0001.", {"verdict": RIGHT | {"max_abs_error": 3e-4}}),
        ("by at most 0.0001.", {"verdict": RIGHT | {"max_abs_error": None}}),
        ("by rounding only", {"verdict": RIGHT | {"caveats": ["low_precision"]}}),
    ],
)
def test_a_condition_stands_where_the_program_meets_it(sentence: str, otherwise: Loose) -> None:
    assert share(sentence) > 0.05
    assert share(sentence, **otherwise) == 0


def test_speed_is_asked_for_where_it_was_measured() -> None:
    times = {"candidate_us": 5.0, "eager_us": 9.0, "compile_us": 4.0, "spread": 0.1}
    assert share("faster than eager PyTorch", verdict=RIGHT | {"timing": times}) > 0.3
    assert share("`torch.compile`", verdict=RIGHT | {"timing": times}) == 0
    assert share("faster", verdict=RIGHT | {"timing": {**times, "eager_us": 4.5}}) == 0
    assert share("faster") == 0


def test_what_inputs_and_targets_are() -> None:
    assert share("Inputs: `x` is float32 [48, 100].") > 0.15
    assert share("It has to compile for NVIDIA H100 80GB HBM3 (cuda:90).") > 0.15
    hybrid = {"pure_triton": False, "extern_calls": ["torch.matmul"]}
    assert share("PyTorch may still compute `torch.matmul`.", **hybrid) > 0.15


def test_what_a_program_is_written_for_is_always_told() -> None:
    for number in range(50):
        text = asked(pair(number, specialised=["kernel_size=3", "bias=False"]))
        assert "It need only work for `kernel_size=3`, `bias=False`.\n" in text


EXAMPLE = WorkedExample("e", "class Model: ...", "class ModelNew: ...", "ISC", frozenset(), None)


def test_half_of_the_prompts_with_an_example_are_in_the_order_of_kernelbench() -> None:
    texts = [asked(pair(n), EXAMPLE) for n in range(200)]
    given = [text for text in texts if text.startswith("You write custom")]
    assert 70 < len(given) < 130
    for text in texts:
        assert text.index(EXAMPLE.reference) < text.index(EXAMPLE.triton) < text.index(REFERENCE)
    for text in given:
        assert (
            text.index(REFERENCE) < text.index("named `Model`") < text.index("`ModelNew`. Return")
        )


def test_a_recipe_may_ask_in_its_own_words() -> None:
    row = pair(7)
    for view, column in ((Messages, "messages"), (Conversion, "prompt")):
        name = view.__name__.lower()
        own = view(format=name, instruction=INSTRUCTION).render(row)
        drawn = view(format=name).render(row)
        assert isinstance(own, Keep) and isinstance(drawn, Keep)
        assert re.search("Rewrite this PyTorch module", str(own.rows[0][column]))
        assert asked(row).split("\n")[0] in str(drawn.rows[0][column])


def example_of(number: int, **columns: Any) -> Any:
    row = pair(number, ops=["aten.relu.default"])
    return {**row, "split": "train", "cluster": f"c{number}", **columns}


def test_examples_are_short_right_and_of_another_operator() -> None:
    examples = Examples()
    fit = [example_of(n) for n in range(20)]
    unfit = [
        example_of(20, triton=TRITON + "x = 1\n" * 60),
        example_of(21, verdict=of(VERDICT, **RIGHT | {"status": "incorrect"})),
        example_of(22, static=of(STATIC, **KNOWN)),  # the operators of those who ask
        example_of(23, split="test"),
        example_of(24, verdict=of(VERDICT, **RIGHT | {"caveats": ["finite_only"]})),
        example_of(25, cluster="asks"),
    ]
    for row in (*fit, *unfit):
        examples.add(row)
    asking = [{**pair(n), "split": "train", "cluster": "asks"} for n in range(100, 300)]
    found = [examples.for_row(row) for row in asking]
    assert 70 < sum(example is not None for example in found) < 130
    assert {example.id for example in found if example} <= {row["id"] for row in fit}
    assert len({example.id for example in found if example}) > 10
    other = [examples.for_row({**row, "split": "test"}) for row in asking]
    assert {example.id for example in other if example} == {unfit[3]["id"]}
    assert not any(examples.for_row({**row, "split": "validation"}) for row in asking)


def test_the_choice_of_an_example_does_not_depend_on_the_order_of_rows() -> None:
    one, other = Examples(), Examples()
    rows = [example_of(n) for n in range(30)]
    for row in rows:
        one.add(row)
    for row in reversed(rows):
        other.add(row)
    asking = [{**pair(n), "split": "train"} for n in range(100, 150)]
    assert [one.for_row(row) for row in asking] == [other.for_row(row) for row in asking]
