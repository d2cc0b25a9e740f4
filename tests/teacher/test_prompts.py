from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

import curate.teacher.prompts as module
from curate.rows import SAMPLE, Row, make_origin, make_row
from curate.step import Context
from curate.teacher import page
from curate.teacher.describe import InputTensor, describe
from curate.teacher.feedback import FINDINGS, REASONS, evidence, finding
from curate.teacher.prompts import FAMILIES, MARKER, Prompts, make_prompts, without_body
from curate.teacher.template import Template, load
from curate.verify import WRONG

ROOT = Path(__file__).parents[2]
PAIR = {"triton": page.TRITON, "verdict": {"status": "correct"}, "parent_ids": ["the task"]}


def row(kind: str, **columns: Any) -> Row:
    known = {"reference": page.REFERENCE, "entry_point": "Model", **columns}
    return make_row(kind, page.REFERENCE, make_origin("torch_ops", symbol="relu"), **known)


def answer(status: str, attempt: int = 1, **columns: Any) -> Row:
    sample = dict.fromkeys(field.name for field in SAMPLE)
    sample |= {"family": "convert", "template": "convert@1", "attempt": attempt, "number": 0}
    known = {
        "triton": page.WRONG,
        "turns": [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}],
        "verdict": {"status": status, "reason": "value", "evidence": json.dumps(page.EVIDENCE)},
        "sample": sample,
        "parent_ids": ["the task", "the prompt"],
    }
    return row("sample", **{**known, **columns})


def words(family: str, asked_of: Row) -> str:
    (prompt,) = make_prompts(family, asked_of)  # type: ignore[arg-type]
    return str(prompt["turns"][-1]["content"])


def step(**options: Any) -> Prompts:
    return Prompts.model_validate({"step": "prompts", **options})


# --- templates and their page -----------------------------------------------------------------


def test_the_page_is_what_the_command_prints() -> None:
    assert (ROOT / "docs" / "prompts.md").read_text() == page.page()


def test_every_template_is_a_familys_and_has_a_version() -> None:
    files = {path.stem for path in (ROOT / "curate" / "teacher" / "templates").iterdir()}
    assert files == set(FAMILIES)
    assert all(load(family).version >= 1 for family in FAMILIES)


def test_other_words_are_another_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    before = step(families=["convert"]).options()
    monkeypatch.setattr(module, "load", lambda name: Template(name, 1, "Other words."))
    assert step(families=["convert"]).options() != before


@pytest.mark.parametrize(
    ("families", "said"),
    [([], "at least 1"), (["convert", "convert"], "named twice"), (["invent"], "implement")],
)
def test_families_that_cannot_be_are_refused(families: list[str], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        step(families=families)


# --- which rows give prompts ------------------------------------------------------------------

FITS = {
    "task": (row("task"), {"implement", "convert"}),
    "a task that no formulas tell": (row("task", reference="def f(): ...\n"), {"convert"}),
    "a correct pair": (
        row("pair", **PAIR),
        {"implement", "convert", "optimise", "fim", "explain"},
    ),
    "a pair that was not judged": (row("pair", triton=page.TRITON), {"implement", "convert"}),
    "cuda": (row("cuda", cuda=page.CUDA), {"convert_cuda"}),
    "cuda without a reference": (row("cuda", cuda=page.CUDA, reference=None), set()),
    "a correct answer": (answer("correct"), set()),
    "an answer that could not be judged": (answer("unsupported"), set()),
    "text": (answer("incorrect", triton=None, verdict=None), set()),
    **{f"an answer: {status}": (answer(status), {"repair"}) for status in sorted(WRONG)},
}


@pytest.mark.parametrize("name", FITS)
def test_a_family_fits_the_rows_that_its_answers_can_be_judged_for(name: str) -> None:
    asked_of, families = FITS[name]
    assert {family for family in FAMILIES if make_prompts(family, asked_of)} == families


def test_a_row_goes_on_beside_its_prompts() -> None:
    task = row("task", license={"choice": "MIT"})
    kept = step(families=["implement", "convert", "repair"], samples=2).apply(task, Context()).rows
    assert kept[0] is task
    asked = [(r["sample"]["family"], r["sample"]["number"]) for r in kept[1:]]
    assert asked == [("implement", 0), ("implement", 1), ("convert", 0), ("convert", 1)]
    assert len({r["id"] for r in kept}) == 5
    for prompt in kept[1:]:
        assert (prompt["kind"], prompt["parent_ids"]) == ("prompt", [task["id"]])
        assert (prompt["license"], prompt["reference"]) == (task["license"], task["reference"])
        assert prompt["sample"]["attempt"] == 1
        assert prompt["triton"] is None


def test_a_pairs_prompt_names_the_task_first() -> None:
    pair = row("pair", **PAIR)
    (prompt,) = make_prompts("explain", pair)
    assert prompt["parent_ids"] == ["the task", pair["id"]]


# --- repair -----------------------------------------------------------------------------------


def test_a_repair_goes_on_with_the_conversation_once() -> None:
    wrong = answer("incorrect")
    again = step(families=["repair"])
    marked, prompt = again.apply(wrong, Context()).rows
    assert marked == {**wrong, "sample": {**wrong["sample"], "retried": True}}
    assert [turn["role"] for turn in prompt["turns"]] == ["user", "assistant", "user"]
    assert prompt["turns"][:2] == wrong["turns"]
    assert prompt["parent_ids"] == ["the task", "the prompt", wrong["id"]]
    assert prompt["sample"]["family"] == "convert"
    assert (prompt["sample"]["template"], prompt["sample"]["attempt"]) == ("repair@1", 2)
    assert again.apply(marked, Context()).rows == (marked,)


def test_a_repair_says_what_the_judge_found() -> None:
    asked = words("repair", answer("incorrect"))
    assert "An output has wrong values." in asked
    assert "at index [21, 78], 0 was expected and -5.17701 came" in asked
    assert "53.5% of the values are wrong" in asked
    assert "inputs as `get_inputs` draws them" in asked


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        ({"status": "compile_error", "reason": "CompilationError"}, "cannot be compiled"),
        ({"status": "timeout", "reason": "timeout"}, "hangs"),
        ({"status": "cheat", "reason": "no_kernel"}, "launches no Triton kernel"),
        ({"status": "cheat", "reason": "network"}, "`network`"),
        ({"status": "runtime_error", "reason": "out_of_bounds"}, "mask"),
        ({"status": "crash", "reason": "crash"}, "its own process"),
    ],
)
def test_a_finding_is_in_plain_words(verdict: dict[str, str], said: str) -> None:
    assert said in finding(verdict)


def test_every_wrong_status_has_words_and_no_reason_gives_one_for_a_right_program() -> None:
    assert FINDINGS.keys() == WRONG
    assert not REASONS.keys() & {"reference_error", "too_much_work", "random"}


def test_evidence_shows_the_message_whatever_fences_it_holds() -> None:
    told = evidence({"evidence": json.dumps({"message": "at line 3:\n```\n  tl.dott\n"})})
    assert told == "````\nat line 3:\n```\n  tl.dott\n````"
    assert evidence({"evidence": None}) == ""


def test_a_finding_without_evidence_leaves_no_gap() -> None:
    asked = words("repair", answer("timeout", verdict={"status": "timeout", "reason": "timeout",
                                                       "evidence": None}))  # fmt: skip
    assert "\n\n\n" not in asked


# --- the other families -----------------------------------------------------------------------


def test_implement_tells_the_interface_without_the_code() -> None:
    asked = words("implement", row("task"))
    for line in page.REFERENCE.splitlines():
        told = line.strip() in (
            "x = x + self.shift",
            "return torch.relu(x)",
            "def forward(self, x):",
        )
        assert not told or line.strip() not in asked
    for part in (
        *("`addition` and `relu` on float32", "- `x`: float32, shape (48, 100)"),
        *("x = x + shift\n    return relu(x)", "`ModelNew(features)`, here with `features=100`"),
        *("`shift`: `nn.Parameter(torch.randn(features))`", "Fuse all of it"),
    ):
        assert part in asked


def test_one_operator_is_not_to_be_fused() -> None:
    one = page.REFERENCE.replace("        x = x + self.shift\n", "")
    assert "Fuse" not in words("implement", row("task", reference=one))


def test_fim_leaves_out_the_body_and_nothing_else() -> None:
    name, program = without_body(page.TRITON) or ("", "")
    assert name == "bias_relu_kernel"
    head, tail = program.split(f"    {MARKER}\n")
    assert page.TRITON.startswith(head) and page.TRITON.endswith(tail)
    assert head.endswith('"""One row a program."""\n')
    assert "tl.load" not in program


@pytest.mark.parametrize(
    "program", ["def f(): pass\n", "not python (", "@triton.jit\ndef f(): x\n"]
)
def test_fim_needs_a_kernel_with_a_body(program: str) -> None:
    assert without_body(program) is None


# --- formulas ---------------------------------------------------------------------------------

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n"
FILE = """
class Model(nn.Module):
    def forward(self, {names}):
        {body}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


def file(body: str, inputs: str = "torch.rand(4)", names: str = "x", above: str = "") -> str:
    return HEAD + above + FILE.format(body=body, inputs=inputs, names=names)


@pytest.mark.parametrize(
    ("expression", "formula", "operators"),
    [
        ("x.abs()", "abs(x)", ("abs",)),
        ("F.softplus(x, beta=2)", "softplus(x, beta=2)", ("softplus",)),
        ("torch.linalg.norm(x) + 1", "linalg.norm(x) + 1", ("linalg.norm", "addition")),
        ("x.transpose(0, 1).sum(dim=-1)", "sum(transpose(x, 0, 1), dim=-1)", ("sum",)),
        ("torch.where(x > 0.5, x, -x)", "where(x > 0.5, x, -x)", ("comparison", "where")),
    ],
)
def test_expressions_are_told_as_formulas(
    expression: str, formula: str, operators: tuple[str, ...]
) -> None:
    problem = describe(file(f"return {expression}"))
    assert problem
    assert (problem.steps, problem.operators) == ((f"return {formula}",), operators)


@pytest.mark.parametrize(
    ("expression", "dtype", "shape"),
    [
        ("torch.randn(size, 2 * 3)", "float32", (16, 6)),
        ("torch.randn((4, size))", "float32", (4, 16)),
        ("torch.randint(size, [4, 5])", "int64", (4, 5)),
        ("torch.rand(4, dtype=torch.float16)", "float16", (4,)),
        ("torch.rand(4).to(torch.bfloat16)", "bfloat16", (4,)),
        ("torch.randn(4, 5).abs() + 0.5", "float32", (4, 5)),
        ("torch.rand(4) > 0.5", "bool", (4,)),
    ],
)
def test_inputs_are_told_by_type_and_shape(
    expression: str, dtype: str, shape: tuple[int, ...]
) -> None:
    problem = describe(file("return x.abs()", expression, above="size = 16\n"))
    assert problem and problem.inputs == (InputTensor("x", dtype, shape),)


UNTELLABLE = {
    "a branch": file("if x.sum() > 0:\n            x = -x\n        return x"),
    "a helper": file("return twice(x)", above="def twice(x):\n    return 2 * x\n"),
    "a comprehension": file("return torch.stack([y for y in x])"),
    "a size that is not known": file("return x.abs()", "torch.rand(unknown)"),
    "inputs that another function makes": file("return x.abs()", "make()"),
    "more inputs than names": file("return x.abs()", "torch.rand(4), torch.rand(4)"),
    "another class": file("return x.abs()", above="class Other:\n    pass\n"),
    "a method of its own": file("return self.twice(x)"),
    "no Python": "class Model(",
}


@pytest.mark.parametrize("name", UNTELLABLE)
def test_what_formulas_would_not_tell_is_left_alone(name: str) -> None:
    assert describe(UNTELLABLE[name]) is None


def test_most_of_our_own_problems_can_be_told() -> None:
    from itertools import islice

    from curate.sources.torch_ops.compositions import compositions

    told = [describe(text) is not None for _, text in islice(compositions(0), 60)]
    assert sum(told) >= 55
