"""Kernels that differ only in names become one."""

import re

import pytest
from shared_judge import not_correct

from curate.generator.generate import generate
from curate.generator.text.alike import unite
from curate.generator.text.tidy import printed, tidy
from curate.verify import Candidate

pytest_plugins = ["shared_judge"]

KERNEL = '''@triton.autotune(configs=TILES, key=['N'])
@triton.jit
def {name}({x}_ptr, {weight}_ptr, {out}_ptr, N, BLOCK: tl.constexpr):
    """Compute {told}.

    Each program takes BLOCK elements.
    """
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    '# A comment.'
    mask = offsets < N
    {x} = tl.load({x}_ptr + offsets, mask=mask)
    {weight} = tl.load({weight}_ptr + offsets, mask=mask)
    tl.store({out}_ptr + offsets, {x} * {weight}, mask=mask)'''

Q = {"name": "q_proj_kernel", "x": "q", "weight": "weight", "out": "values", "told": "q = f(q)"}
K = {"name": "k_proj_kernel", "x": "k", "weight": "k_weight", "out": "values_1"}
K |= {"told": "part of k = f(k)"}


def united(*kernels: str) -> tuple[list[str], dict[str, str]]:
    functions = [tidy(kernel) for kernel in kernels]
    kept, names = unite(functions, {function.name for function in functions}, {})
    return list(map(printed, kept)), names


def test_names_are_those_that_all_have_in_common() -> None:
    (kernel,), names = united(KERNEL.format(**Q), KERNEL.format(**K))
    assert names == dict.fromkeys(("q_proj_kernel", "k_proj_kernel"), "proj_kernel")
    assert "def proj_kernel(x_ptr, weight_ptr, values_ptr, N, BLOCK: tl.constexpr):" in kernel
    assert "Compute q = f(q); or part of k = f(k)." in kernel
    assert "    # A comment.\n" in kernel
    assert "x = tl.load(x_ptr + offsets, mask=mask)" in kernel
    assert "tl.store(values_ptr + offsets, x * weight, mask=mask)" in kernel


def test_what_nothing_has_in_common_is_told_by_what_it_does() -> None:
    other = KERNEL.format(**K | {"name": "head_kernel", "out": "out", "told": "long" * 60})
    (kernel,), names = united(KERNEL.format(**Q), other)
    assert set(names.values()) == {"q_proj_kernel"}  # it multiplies no matrices
    assert "(x_ptr, weight_ptr, out_ptr, N, BLOCK: tl.constexpr)" in kernel
    assert "Compute q = f(q); or as much of the others." in kernel


@pytest.mark.parametrize(
    "old, new",
    [
        ("BLOCK: tl", "BLOCK_M: tl"),  # the host gives constants by their names
        ("N,", "M,"),  # as an autotuner does its key
        ("{x} * {weight}", "{x} + {weight}"),
        ("Each program takes", "Each program holds"),
        ("key=['N']", "key=[]"),
    ],
)
def test_kernels_that_differ_otherwise_stay_two(old: str, new: str) -> None:
    kept, names = united(KERNEL.format(**Q), KERNEL.replace(old, new).format(**K))
    assert len(kept) == 2
    assert names == {name: name for name in ("q_proj_kernel", "k_proj_kernel")}


GATES = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate = nn.Linear(width, hidden)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x, context):
        gate = torch.tanh(self.gate(x))
        up = torch.tanh(self.up(context))
        return self.down(torch.cumsum(gate, 1)) + torch.cumsum(up, 1).sum()

def get_inputs():
    return [torch.randn(6, 24), torch.randn(6, 24)]

def get_init_inputs():
    return [24, 40]
"""


def test_a_program_launches_it_for_each(warm_judge) -> None:
    program = generate(GATES)
    calls = re.findall(r"(\w+)\[grid\]", program.text)
    assert calls.count("linear_kernel") == 2
    assert "    # 64 bits" in program.text
    assert program.kernels == len(set(calls))
    assert not not_correct(warm_judge.run([Candidate("gates", GATES, program.text)]))
