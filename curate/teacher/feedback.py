"""What the judge found, in words that whoever wrote the program can work with."""

from __future__ import annotations

import json
from typing import Any

from curate.rows import Judgement
from curate.teacher.template import fence

FINDINGS = {
    "incorrect": "Its outputs are wrong.",
    "compile_error": "It cannot be compiled.",
    "runtime_error": "It raises an exception.",
    "timeout": "It does not finish in time: it hangs, or is far too slow.",
    "oom": "It takes more memory than it may.",
    "crash": "It ends its own process.",
    "cheat": "It does what a program must not do that is to replace PyTorch by its own kernels.",
}
"""What a status says of a program."""

REASONS = {
    "value": "An output has wrong values.",
    "nonfinite": "An output is NaN or infinite where the module's is finite, or the other way "
    "round.",
    "shape": "An output has the wrong shape.",
    "dtype": "An output has the wrong element type.",
    "structure": "`forward` does not return what the module's returns: another number of tensors, "
    "or no tensor.",
    "state_dict": "Its parameters and buffers have not the names or the initial values of the "
    "module's.",
    "device": "An output is on the wrong device.",
    "bias": "An output in 16 bits is rounded to one side.",
    "out_of_bounds": "A kernel reads or writes outside of its tensors: a mask is missing or wrong.",
    "race": "Two programs of a grid touch the same element, and nothing orders them.",
    "shared_memory": "A kernel needs more shared memory than the device has.",
    "out_of_resources": "A kernel needs more registers or shared memory than the device has.",
    "illegal_memory_access": "A kernel reads or writes where it must not, which broke the device's "
    "context.",
    "no_kernel": "Its outputs are right, but it launches no Triton kernel: PyTorch computed them.",
    "decoy_kernel": "Its outputs are right even when its kernels are left out: PyTorch computes "
    "them, and the kernels are for show.",
    "torch_does_the_work": "PyTorch computes the result, and the kernels do next to nothing.",
    "host_does_the_work": "Python computes the result, and the kernels do next to nothing.",
    "fallback": "A kernel failed to launch, and PyTorch computed the result in its place.",
}
"""What a reason says, where it says more than the status."""

DRAWS = {
    "own": "inputs as `get_inputs` draws them",
    "signed": "normal inputs around zero",
    "steps": "inputs that are multiples of one half from -4 to 4, and numbers of the module's text",
    "shifted": "inputs with a mean of 64 standard deviations",
    "large": "inputs with a spread of 1 to 30,000, another in each row",
    "small": "inputs of about 0.001",
    "outlier": "inputs of which two are far from the others",
    "negative": "inputs that are all below zero",
}
"""Families of draws (`curate.problem.draw.FAMILIES`) in words."""

MOST_CHARACTERS = 1500  # of a message


def finding(verdict: Judgement) -> str:
    """Return one sentence, or two, on why a program is not right."""
    status, reason = verdict["status"], verdict["reason"]
    if reason in REASONS:
        return REASONS[reason]
    if status == "cheat":
        return f"{FINDINGS[status]} The rule that it breaks is `{reason}`."
    return FINDINGS[status]


def evidence(verdict: Judgement) -> str:
    """Return what shows it, a line each: where, what was expected, what came; "" if nothing."""
    known: dict[str, Any] = json.loads(verdict["evidence"] or "{}")
    lines = [*_message(known), *_difference(known), *_draw(known)]
    if calls := known.get("aten_calls"):
        lines.append(f"PyTorch operators that computed something: {', '.join(sorted(calls))}.")
    return "\n".join(lines)


def _message(known: dict[str, Any]) -> list[str]:
    message = str(known.get("message") or known.get("printed") or "").strip()
    return [fence(message[:MOST_CHARACTERS], "").rstrip()] if message else []


def _difference(known: dict[str, Any]) -> list[str]:
    if "expected" not in known or "got" not in known:
        return []
    place = f"In `{known['output']}`" if "output" in known else "In the result"
    if "index" in known:
        place += f" at index {known['index']}"
    line = f"{place}, {_shown(known['expected'])} was expected and {_shown(known['got'])} came"
    if known.get("allowed") is not None:
        line += f" (an error of {_shown(known['allowed'])} is allowed)"
    if known.get("wrong_share") is not None:
        line += f"; {known['wrong_share']:.1%} of the values are wrong"
    return [f"{line}."]


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else f"{value}"


def _draw(known: dict[str, Any]) -> list[str]:
    trial = known.get("trial")
    if not isinstance(trial, dict):
        return []
    inputs = DRAWS.get(str(trial.get("family")), "drawn inputs")
    size = trial.get("size")
    sizes = "" if size is None else f", with the first size that is free set to {size}"
    return [f"It was seen on {inputs}{sizes}."]
