"""What a model is asked for a Triton program: in rows to learn from, and when it is tested."""

from __future__ import annotations

from curate.teacher.template import fence

SYSTEM = "You write Triton GPU kernels that replace PyTorch modules."

INSTRUCTION = """\
Rewrite this PyTorch module with custom Triton kernels. Name the new module `ModelNew`; keep its \
constructor, its parameters and what `forward` returns.
"""


def question(reference: str, instruction: str = INSTRUCTION) -> str:
    """Return the user's message for a PyTorch module: the instruction, and the module fenced."""
    return f"{instruction}\n{fence(reference)}"


def conversation(reference: str) -> list[dict[str, str]]:
    """Return what a model is asked, word for word as rows of the format ``messages`` have it."""
    return [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": question(reference)},
    ]
