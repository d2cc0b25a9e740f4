"""What a model is asked for a Triton program: in rows to learn from, and when it is tested."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from curate.devices import find_device
from curate.formats.prompts.examples import WorkedExample
from curate.formats.prompts.facts import ProgramFacts
from curate.rows import PairRow
from curate.teacher.template import fence

SYSTEM = "You write Triton GPU kernels that replace PyTorch modules."

INSTRUCTION = """\
Rewrite this PyTorch module with custom Triton kernels. Name the new module `ModelNew`; keep its \
constructor, its parameters and what `forward` returns.
"""


WORDINGS = (
    INSTRUCTION,
    "Write Triton kernels for this PyTorch module, and a module `ModelNew` that launches them. "
    "The constructor, the parameters and the results are to stay the same.\n",
    "Here is a PyTorch module. Put Triton kernels of your own into its `forward`, in a class "
    "`ModelNew` with the same constructor and the same `state_dict`.\n",
    "Implement `ModelNew`, a drop-in replacement for the `Model` below, in Triton.\n",
    "Convert this module from PyTorch to Triton. Answer with one Python file that defines "
    "`ModelNew`; it is built and called just as `Model` is.\n",
    "Rewrite the following module as `ModelNew`, with `@triton.jit` kernels. Its interface must "
    "not change.\n",
    "Port `Model` to Triton. Call the result `ModelNew`, and keep the names of its parameters, so "
    "that a checkpoint of `Model` loads into it.\n",
    "The module below needs Triton kernels. The new module is called `ModelNew` and takes and "
    "returns what `Model` does.\n",
    "Write the GPU code of this PyTorch module by hand: Triton kernels, and a module `ModelNew` "
    "around them with the constructor and the outputs of `Model`.\n",
    "Below is a reference in PyTorch. Give an equivalent `ModelNew` that uses custom Triton "
    "kernels.\n",
    "I want custom Triton kernels for this module. Please name the new class `ModelNew` and leave "
    "its constructor as it is.\n",
    "Task: a Triton version of the module below. Requirements: the class is called `ModelNew`, it "
    "has the same constructor arguments and parameters, and `forward` returns the same values.\n",
)
"""What stands above a module, one for each row; a model that is tested is asked the first."""

EXAMPLE = "An example, another module and its Triton version:\n"
ASKED = "The module to rewrite:\n"

GIVEN = """\
You write custom Triton kernels that take the place of PyTorch operators in a given architecture. \
Which operators you replace is up to you; several may become one kernel.
"""
FORM = "This pair shows the form. The architecture that was given:\n"
MADE = "The same architecture with custom Triton kernels:\n"
NOW = "Now you are given this architecture:\n"
RETURN = """\
Rewrite the architecture named `Model` with custom Triton kernels and name it `ModelNew`. Return \
all of its code in one block: code that compiles and runs, no outline, no tests and no other text.
"""
"""The order of KernelBench's prompt with one example: role, a pair, the architecture, the task."""


def asked(row: PairRow, example: WorkedExample | None = None) -> str:
    """Return the user's message for a row: one of the wordings, or KernelBench's order.

    Args:
        row: the id decides what is drawn.
        example: a program of another operator. Half of the messages that have one are in
            KernelBench's order.
    """
    drawn = _drawn(row)
    told = "".join(f"{text}\n" for text in conditions(row))
    if example is not None and drawn[1] % 2:
        return kernelbench_question(row["reference"], example, told)
    return question(row["reference"], WORDINGS[drawn[0] % len(WORDINGS)] + told, example)


def kernelbench_question(reference: str, example: WorkedExample, told: str = "") -> str:
    """Return a question in the order of KernelBench's prompt with one example."""
    pair = f"{FORM}\n{fence(example.reference)}\n{MADE}\n{fence(example.triton)}"
    return f"{GIVEN}\n{pair}\n{NOW}\n{fence(reference)}\n{RETURN}{told}"


def _drawn(row: PairRow) -> bytes:
    return hashlib.sha256(row["id"].encode()).digest()


def conditions(row: PairRow) -> list[str]:
    """Return what a row's prompt asks for besides the module: only what its program does.

    What the program is written for always stands there. Goals are asked for in half of the rows
    whose program reaches them, of the other things each in a quarter.
    """
    facts, drawn = ProgramFacts(row), _drawn(row)
    written_for = ", ".join(f"`{item}`" for item in facts.written_for)
    told = [f"It need only work for {written_for}."] if written_for else []
    told += [text for i, text in enumerate(_goals(facts)) if text and drawn[2 + i] % 2 == 0]
    told += [text for i, text in enumerate(_true_of(facts, drawn)) if text and not drawn[8 + i] % 4]
    return told


def _goals(facts: ProgramFacts) -> Iterator[str]:
    """Yield what a program achieves, each at a place of its own."""
    yield "Fuse all of it into one kernel." if facts.is_one_kernel else ""
    yield f"No element of `{facts.read_once}` may be loaded twice." if facts.read_once else ""
    yield f"It has to be faster than {facts.faster_than}." if facts.faster_than else ""


def _true_of(facts: ProgramFacts, drawn: bytes) -> Iterator[str]:
    """Yield sentences that ask for what a program does, each at a place of its own."""
    calls = ", ".join(f"`{call}`" for call in facts.library_calls)
    if facts.is_pure:
        yield "PyTorch may allocate and view tensors, and must not compute anything."
    else:
        yield f"PyTorch may still compute {calls}." if calls else ""
    short = "It must also work in float16 and bfloat16, with module and inputs converted alike."
    yield short if facts.takes_short_floats else ""
    yield "Sizes of the inputs must not be hard-coded." if facts.takes_other_sizes else ""
    yield "Only the forward pass is needed." if facts.is_forward_only else ""
    tensors = ", ".join(f"`{x.name}` is {x.dtype} {list(x.shape)}" for x in facts.inputs)
    yield f"Inputs: {tensors}." if tensors else ""
    if targets := facts.targets:
        target = find_device(targets[drawn[20] % len(targets)])
        yield f"It has to compile for {target.card} ({target.name})."
    else:
        yield ""
    if facts.tolerance and drawn[21] % 2:
        yield f"Results may differ from the module's by at most {facts.tolerance:g}."
    else:
        yield "Results may differ from the module's by rounding only." if facts.is_close else ""


def question(
    reference: str, instruction: str = INSTRUCTION, example: WorkedExample | None = None
) -> str:
    """Return the user's message for a PyTorch module: the instruction, and the module fenced."""
    if example is None:
        return f"{instruction}\n{fence(reference)}"
    pair = f"{fence(example.reference)}\n{fence(example.triton)}"
    return f"{instruction}\n{EXAMPLE}\n{pair}\n{ASKED}\n{fence(reference)}"


def conversation(reference: str) -> list[dict[str, str]]:
    """Return what a model is asked, word for word as rows of the format ``messages`` have it."""
    return [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": question(reference)},
    ]
