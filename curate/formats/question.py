"""What a model is asked for a Triton program: in rows to learn from, and when it is tested."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

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
    "Here is a PyTorch module. Replace what its `forward` computes by Triton kernels of your own, "
    "in a class `ModelNew` with the same constructor and the same `state_dict`.\n",
    "Implement `ModelNew`, a drop-in replacement for the `Model` below, in Triton.\n",
    "Convert this module from PyTorch to Triton. Answer with one Python file that defines "
    "`ModelNew`; it is built and called just as `Model` is.\n",
    "The following module runs on an NVIDIA GPU. Rewrite it as `ModelNew`, with its computation "
    "in `@triton.jit` kernels. Its interface must not change.\n",
    "Port `Model` to Triton. Call the result `ModelNew`, and keep the names of its parameters, so "
    "that a checkpoint of `Model` loads into it.\n",
    "Fuse what this module computes into as few Triton kernels as make sense. The new module is "
    "called `ModelNew` and takes and returns what `Model` does.\n",
    "Write the GPU code of this PyTorch module by hand: Triton kernels, and a module `ModelNew` "
    "around them with the constructor and the outputs of `Model`.\n",
    "Below is a reference in PyTorch. Give an equivalent `ModelNew` that uses custom Triton "
    "kernels; results may differ by rounding only.\n",
    "I want custom Triton kernels instead of PyTorch's operators in this module. Please name the "
    "new class `ModelNew` and leave its constructor as it is.\n",
    "Task: a Triton version of the module below. Requirements: the class is called `ModelNew`, it "
    "has the same constructor arguments and parameters, and `forward` returns the same values.\n",
)
"""What stands above a module, one for each row; a model that is tested is asked the first."""


def worded(row: PairRow) -> str:
    """Return an instruction for a row: a wording drawn by its id, and what its program keeps to.

    What the program is written for always stands there. Of the other things that are true of it,
    each is asked for in a quarter of the rows.
    """
    drawn = hashlib.sha256(row["id"].encode()).digest()
    told = [f"It need only work for {', '.join(found)}." for found in [_written_for(row)] if found]
    told += [text for i, text in enumerate(_true_of(row)) if text and drawn[1 + i] % 4 == 0]
    return WORDINGS[drawn[0] % len(WORDINGS)] + "".join(f"{text}\n" for text in told)


def _written_for(row: PairRow) -> list[str]:
    static = row["static"]
    return [f"`{item}`" for item in (static and static["specialised"]) or []]


def _true_of(row: PairRow) -> Iterator[str]:
    """Yield sentences that ask for what a program does, each at a place of its own."""
    if (static := row["static"]) is not None:
        anywhere = bool(static["dynamic_dims"]) and not static["specialised"]
        yield "No PyTorch operator may do any of the computing." if static["pure_triton"] else ""
        yield "Inputs may be float32, float16 or bfloat16." if static["any_float"] else ""
        yield "Sizes of the inputs must not be hard-coded." if anywhere else ""
        yield "Only the forward pass is needed."


def question(reference: str, instruction: str = INSTRUCTION) -> str:
    """Return the user's message for a PyTorch module: the instruction, and the module fenced."""
    return f"{instruction}\n{fence(reference)}"


def conversation(reference: str) -> list[dict[str, str]]:
    """Return what a model is asked, word for word as rows of the format ``messages`` have it."""
    return [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": question(reference)},
    ]
