"""The ``prompts`` step: questions to a teacher, made from rows.

Each family has a template, a file in ``templates/``, and fits rows of some kinds:

================  ================================================================================
``implement``     a task or pair that can be told in formulas (`curate.teacher.describe`): the
                  operators, element types, shapes and the interface, without the module's code
``convert``       a task or pair: the module's code is shown, the Triton program is asked for
``convert_cuda``  a ``cuda`` row with a reference: CUDA in, Triton out
``optimise``      a correct pair: a faster program is asked for
``fim``           a correct pair: its program without the body of its longest kernel
``explain``       a correct pair: the answer is text, which nothing judges
``repair``        a wrong answer: the conversation so far and, in plain words, what the judge found
================  ================================================================================

Every family but ``explain`` asks for a whole program, which the judge compares with the row's
reference. Kernels without a reference give no prompt: nothing could judge the answer.

A prompt asks for one answer: where several are wanted there are several, alike but for their
``sample.number``. Its ``parent_ids`` begin with the task's id and end with that of the row that it
is made from, and an answer's are the prompt's and the prompt itself. Of a repair they are the whole
conversation, an answer and a prompt by turns, and its ``sample.family`` is that of the first
prompt: so `select` knows what belongs together.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field, field_validator

from curate.rows import Row, make_row, select, status_of
from curate.step import Context, Keep, RowStep
from curate.teacher.describe import ProblemInWords, describe
from curate.teacher.feedback import evidence, finding
from curate.teacher.template import fence, load
from curate.verify import WRONG

Family = Literal["implement", "convert", "convert_cuda", "optimise", "fim", "explain", "repair"]
FAMILIES: tuple[Family, ...] = get_args(Family)

MARKER = "# the body is left out"
"""What stands in the place of the body that a ``fim`` prompt asks for."""


class Prompts(RowStep):
    """Adds questions to a teacher: prompts of every family that fits a row.

    The row itself goes on as it was; a wrong answer of which a `repair` prompt is made is marked as
    retried, so that a later `prompts` step asks about newer answers only.
    """

    version: ClassVar[int] = 2
    takes: ClassVar[frozenset[str]] = frozenset({"task", "pair", "cuda", "sample"})
    adds: ClassVar[frozenset[str]] = frozenset({"prompt"})
    sets: ClassVar[frozenset[str]] = frozenset({"turns", "sample"})
    batch: ClassVar[int] = 64

    step: Literal["prompts"]
    families: Annotated[
        tuple[Family, ...],
        Field(
            min_length=1,
            description="What is asked: implement (a module told in formulas), convert (PyTorch "
            "code to Triton), convert_cuda, optimise (a correct pair), fim (a correct pair without "
            "a kernel's body), explain (a correct pair; the answer is text, and not judged), "
            "repair (a wrong answer that `verify` kept with keep_wrong). A row that a family does "
            "not fit gives no prompt; docs/prompts.md shows them all.",
        ),
    ]
    samples: Annotated[
        int,
        Field(
            ge=1,
            le=1000,
            description="Answers to ask for, of each family: so many prompts, alike but for their "
            "number, of which `teacher` answers each.",
        ),
    ] = 1

    @field_validator("families")
    @classmethod
    def _each_once(cls, families: tuple[Family, ...]) -> tuple[Family, ...]:
        if len(set(families)) < len(families):
            raise ValueError("a family is named twice")
        return families

    def options(self) -> dict[str, Any]:
        """Return the options; a template counts by its words."""
        texts = {name: load(name).text.encode() for name in self.families}
        shas = {name: hashlib.sha256(text).hexdigest() for name, text in texts.items()}
        return {**super().options(), "templates": shas}

    def apply(self, row: Row, context: Context) -> Keep[Row]:
        made = [p for name in self.families for p in make_prompts(name, row, self.samples)]
        if row["sample"] and made:
            row = {**row, "sample": {**row["sample"], "retried": True}}
        return Keep((row, *made))


def make_prompts(family: Family, row: Row, samples: int = 1) -> list[Row]:
    """Return the prompts of a family that are made from a row; none where it does not fit."""
    values = _PLACES[family](row)
    if values is None:
        return []
    template = load(family)
    text = template.fill(values)
    before = row["sample"]
    sample = {
        "family": before["family"] if before else family,
        "template": template.label,
        "attempt": before["attempt"] + 1 if before else 1,
    }
    columns = select(row, ("license", "reference", "entry_point", "static", "wiring"))
    columns["turns"] = [*(row["turns"] or ()), {"role": "user", "content": text}]
    return [
        make_row(
            "prompt",
            json.dumps([row["id"], number, text]),
            row["origin"],
            parent_ids=lineage(row),
            sample={**sample, "number": number},
            **columns,
        )
        for number in range(samples)
    ]


def lineage(row: Row) -> list[str]:
    """Return the parents of what is made from a row: the task first, the row itself last."""
    if row["kind"] == "sample":
        return [*row["parent_ids"], row["id"]]
    return [*(row["parent_ids"][:1] if row["kind"] == "pair" else ()), row["id"]]


# --- what stands in the places of each template -----------------------------------------------

Places = dict[str, str]


def _implement(row: Row) -> Places | None:
    if row["kind"] not in ("task", "pair") or row["reference"] is None:
        return None
    problem = describe(row["reference"])
    if problem is None or not problem.operators:
        return None
    several = len(problem.operators) > 1
    return {
        "operators": _listed([f"`{name}`" for name in problem.operators]),
        "dtypes": _listed(list(dict.fromkeys(tensor.dtype for tensor in problem.inputs))),
        "inputs": "\n".join(
            f"- `{tensor.name}`: {tensor.dtype}, shape {tensor.shape}" for tensor in problem.inputs
        ),
        "steps": "\n".join(f"    {step}" for step in problem.steps),
        "fusion": "Fuse all of it into one kernel, or into as few as sums and products over whole "
        "rows allow." * several,
        "interface": _interface(problem),
    }


def _interface(problem: ProblemInWords) -> str:
    names = ", ".join(argument.partition("=")[0] for argument in problem.arguments)
    lines = [f"- it is built as `ModelNew({names})`"]
    if problem.arguments:
        lines[0] += f", here with {', '.join(f'`{argument}`' for argument in problem.arguments)}"
    else:
        lines[0] += ", without arguments"
    if problem.state:
        lines.append(
            "- it has these parameters and layers, under these names, since their values are "
            "copied in by name:"
        )
        lines += [f"  - `{name}`: `{made}`" for name, made in problem.state]
    else:
        lines.append("- it has no parameters")
    return "\n".join(lines)


def _convert(row: Row) -> Places | None:
    if row["kind"] not in ("task", "pair") or row["reference"] is None:
        return None
    return {"reference": fence(row["reference"])}


def _convert_cuda(row: Row) -> Places | None:
    if row["kind"] != "cuda" or not row["cuda"] or not row["reference"]:
        return None
    return {"cuda": fence(row["cuda"], "cuda"), "reference": fence(row["reference"])}


def _whole_pair(row: Row) -> Places | None:
    if row["kind"] != "pair" or status_of(row) != "correct":
        return None
    return {"triton": fence(row["triton"] or ""), "reference": fence(row["reference"] or "")}


def _fim(row: Row) -> Places | None:
    places = _whole_pair(row)
    left = without_body(row["triton"] or "") if places else None
    if places is None or left is None:
        return None
    kernel, program = left
    named = {"kernel": kernel, "marker": MARKER, "program": fence(program)}
    return {**named, "reference": places["reference"]}


def _repair(row: Row) -> Places | None:
    sample, verdict = row["sample"], row["verdict"]
    if row["kind"] != "sample" or not sample or sample["retried"] or not row["triton"]:
        return None
    if not verdict or verdict["status"] not in WRONG:
        return None
    return {"finding": finding(verdict), "evidence": evidence(verdict)}


_PLACES: dict[Family, Callable[[Row], Places | None]] = {
    "implement": _implement,
    "convert": _convert,
    "convert_cuda": _convert_cuda,
    "optimise": _whole_pair,
    "fim": _fim,
    "explain": _whole_pair,
    "repair": _repair,
}


def without_body(program: str) -> tuple[str, str] | None:
    """Return the longest kernel's name, and the program with `MARKER` in place of its body.

    A docstring stays. None where no function is a ``@triton.jit`` kernel, or the text is no Python.
    """
    try:
        tree = ast.parse(program)
    except (SyntaxError, ValueError):
        return None
    kernels = [
        (body[-1].end_lineno - body[0].lineno, node.name, body)
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and any(map(_is_jit, node.decorator_list))
        if (body := _code(node)) and body[-1].end_lineno
        if body[0].lineno > node.lineno
    ]
    if not kernels:
        return None
    _, name, body = max(kernels, key=lambda kernel: kernel[:2])
    lines = program.splitlines()
    margin = " " * body[0].col_offset
    left = [*lines[: body[0].lineno - 1], margin + MARKER, *lines[body[-1].end_lineno :]]
    return name, "\n".join(left) + "\n"


def _code(function: ast.FunctionDef) -> list[ast.stmt]:
    """Return a function's statements without its docstring."""
    match function.body:
        case [ast.Expr(ast.Constant(str())), *rest]:
            return rest
        case body:
            return body


def _is_jit(decorator: ast.expr) -> bool:
    return ast.unparse(decorator).removeprefix("triton.").partition("(")[0] == "jit"


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
