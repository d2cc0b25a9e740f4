"""``docs/prompts.md``: every family of prompts, shown on one small example."""

from __future__ import annotations

import json
from typing import cast

from curate.rows import Loose, Row, make_origin, make_row
from curate.teacher.prompts import FAMILIES, Family, make_prompts
from curate.teacher.template import fence, load

HEAD = """\
# Prompts

What the step `prompts` asks a teacher. `curate prompts` prints this page; each template is a file
in `curate/teacher/templates/`, and its version is recorded with every answer (`sample.template`).
The example is one small module in all of them.
"""

FITS: dict[Family, str] = {
    "implement": "A `task` or `pair` that reads as a list of formulas: `forward` is a sequence of "
    "assignments. Nothing of the module's code is shown.",
    "convert": "Any `task` or `pair`.",
    "convert_cuda": "A `cuda` row that has a reference.",
    "optimise": "A `pair` that was judged correct. The answer is checked like any other, and "
    "`select` keeps it as best only if it and the pair were timed and it is faster.",
    "fim": "A `pair` that was judged correct; its longest kernel is emptied. The answer is a whole "
    "program, which is checked like any other.",
    "explain": "A `pair` that was judged correct. The answer is text, and nothing judges it: its "
    "row has no verdict, and `select` calls it `unjudged`.",
    "repair": "A `sample` that was judged wrong, once. The teacher sees the conversation so far.",
}

REFERENCE = '''\
import torch
import torch.nn as nn


class Model(nn.Module):
    """A bias added and ReLU."""

    def __init__(self, features):
        super().__init__()
        self.shift = nn.Parameter(torch.randn(features))

    def forward(self, x):
        x = x + self.shift
        return torch.relu(x)


batch_size = 48
features = 100


def get_inputs():
    return [torch.randn(batch_size, features)]


def get_init_inputs():
    return [features]
'''

TRITON = '''\
import torch
import triton
import triton.language as tl


@triton.jit
def bias_relu_kernel(x_ptr, shift_ptr, out_ptr, features, BLOCK: tl.constexpr):
    """One row a program."""
    columns = tl.arange(0, BLOCK)
    inside = columns < features
    start = tl.program_id(0) * features
    x = tl.load(x_ptr + start + columns, mask=inside)
    shift = tl.load(shift_ptr + columns, mask=inside)
    tl.store(out_ptr + start + columns, tl.maximum(x + shift, 0.0), mask=inside)


class ModelNew(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.shift = torch.nn.Parameter(torch.randn(features))

    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        rows, features = x.shape
        block = triton.next_power_of_2(features)
        bias_relu_kernel[(rows,)](x, self.shift, out, features, BLOCK=block)
        return out
'''

WRONG = TRITON.replace("tl.maximum(x + shift, 0.0)", "x + shift")

CUDA = """\
__global__ void bias_relu(const float *x, const float *shift, float *out, int features, int size) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < size) out[i] = fmaxf(x[i] + shift[i % features], 0.0f);
}

torch::Tensor forward(torch::Tensor x, torch::Tensor shift) {
    auto out = torch::empty_like(x);
    int size = x.numel(), threads = 256;
    bias_relu<<<(size + threads - 1) / threads, threads>>>(
        x.data_ptr<float>(), shift.data_ptr<float>(), out.data_ptr<float>(), x.size(1), size);
    return out;
}
"""

EVIDENCE = {
    "trial": {"family": "own", "size": None},
    "output": "output",
    "index": [21, 78],
    "expected": 0.0,
    "got": -5.177012920379639,
    "allowed": 4.203535653318485e-06,
    "wrong_share": 0.534792,
}
"""What the judge says of `WRONG`."""


def page() -> str:
    """Return the text of the page."""
    return "\n".join([HEAD, *(_section(family) for family in FAMILIES)])


def _section(family: Family) -> str:
    (prompt,) = make_prompts(family, example(family))
    turns = [
        f"_{turn['role']}:_\n\n{fence(turn['content'], 'text')}" for turn in prompt["turns"] or ()
    ]
    label = f"Template `{load(family).label}`."
    return "\n".join([f"## {family}\n", f"{FITS[family]} {label}\n", *turns])


def example(family: Family) -> Row:
    """Return a row that a family fits."""
    kinds: dict[Family, str] = {"implement": "task", "convert": "task", "repair": "task"}
    kind = "cuda" if family == "convert_cuda" else kinds.get(family, "pair")
    columns: Loose = {"reference": REFERENCE, "entry_point": "Model"}
    columns |= {"triton": TRITON, "verdict": {"status": "correct"}} if kind == "pair" else {}
    columns |= {"cuda": CUDA} if kind == "cuda" else {}
    row = make_row(kind, REFERENCE, make_origin("local", symbol="Model"), **columns)
    return _wrong_answer(row) if family == "repair" else row


def _wrong_answer(task: Row) -> Row:
    (prompt,) = make_prompts("convert", task)
    asked = cast(Loose, prompt)
    verdict = {"status": "incorrect", "reason": "value", "evidence": json.dumps(EVIDENCE)}
    answer = {"role": "assistant", "content": fence(WRONG)}
    made = {
        **asked,
        "kind": "sample",
        "parent_ids": [*asked["parent_ids"], asked["id"]],
        "triton": WRONG,
        "turns": [*asked["turns"], answer],
        "sample": {**asked["sample"], "retried": None},
        "verdict": verdict,
    }
    return cast(Row, made)
