"""Backward passes that are written as formulas give what autograd gives."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from curate.problem.eager import load
from curate.sources.torch_ops.draft import ProblemDraft
from curate.sources.torch_ops.families import backward

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "GELU": F.gelu,
    "tanh-approximated GELU": lambda x: F.gelu(x, approximate="tanh"),
    "SiLU": F.silu,
    "softplus": F.softplus,
    "Mish": F.mish,
    "squared ReLU": lambda x: F.relu(x).square(),
    "ELU": F.elu,
    "tanh": torch.tanh,
    "leaky ReLU": F.leaky_relu,
    "hard swish": F.hardswish,
}


def problems(family: Callable[[ProblemDraft], None], count: int) -> Iterator[tuple[str, Any]]:
    """Yield the docstring of a family's problems, and what their files define."""
    for seed in range(count):
        draft = ProblemDraft(Random(f"{seed}"))
        family(draft)
        text = draft.text()
        yield " ".join(text.split('"""')[1].split()), load(text)


def results(names: Any) -> tuple[list[Tensor], list[Tensor], Any]:
    """Return a problem's inputs, what its model makes of them, and the model."""
    torch.manual_seed(0)
    inputs = names["get_inputs"]()
    model = names["Model"](*names["get_init_inputs"]()).eval()
    with torch.no_grad():
        found = model(*inputs)
    return inputs, [found] if isinstance(found, Tensor) else list(found), model


def gradients(output: Tensor, grad_output: Tensor, *of: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(output, of, grad_output))


def check(found: list[Tensor], expected: list[Tensor]) -> None:
    for one, two in zip(found, expected, strict=True):
        torch.testing.assert_close(one, two, atol=2e-4, rtol=1e-3)


def test_activations() -> None:
    seen = set()
    for said, names in problems(backward.activation_backward, 120):
        activation = next((a for a in ACTIVATIONS if f"and {a} after it" in said), None)
        if activation is None:
            continue
        seen.add(activation)
        (grad_output, x), found, model = results(names)
        x.requires_grad_()
        expected = gradients(ACTIVATIONS[activation](x + model.bias), grad_output, x, model.bias)
        check(found, expected)
    assert seen == set(ACTIVATIONS)


def test_gates() -> None:
    for said, names in problems(backward.gate_backward, 20):
        name = re.sub(r"^.* gated by |[.,].*$", "", said)
        inputs, found, _ = results(names)
        for x in inputs:
            x.requires_grad_()
        joined = len(inputs) == 2
        x, up = inputs[1].chunk(2, dim=-1) if joined else inputs[1:]
        check(found, gradients(ACTIVATIONS[name](x) * up, inputs[0], *inputs[1:]))


@pytest.mark.parametrize("kind", ["layer norm", "RMS norm"])
def test_norms(kind: str) -> None:
    checked = 0
    for said, names in problems(backward.norm_backward, 60):
        if kind not in said or "grad_residual" in names["Model"].forward.__code__.co_varnames:
            continue
        (grad_output, x), found, model = results(names)
        x.requires_grad_()
        shape = x.shape[-1:]
        norm = (
            F.layer_norm(x, shape, model.weight)
            if kind == "layer norm"
            else F.rms_norm(x, shape, model.weight, eps=1e-6)
        )
        expected = gradients(norm, grad_output, x, model.weight)
        check(found[:2], expected[: len(found)])
        checked += 1
    assert checked >= 5


def test_softmax_of_logits() -> None:
    checked = 0
    for said, names in problems(backward.softmax_backward, 60):
        inputs, found, _ = results(names)
        if "from its logits" not in said or "scaled" in said or len(inputs) > 2:
            continue
        grad_output, logits = inputs
        logits.requires_grad_()
        function = torch.log_softmax if "log-softmax" in said else torch.softmax
        check(found, gradients(function(logits, -1), grad_output, logits))
        checked += 1
    assert checked >= 3


def test_attention() -> None:
    for said, names in problems(backward.attention_backward, 12):
        (grad_output, q, k, v), found, _ = results(names)
        wanted = [{"q": q, "k": k, "v": v}[name] for name in said.split(": ")[1][:-1].split(", ")]
        for x in (q, k, v):
            x.requires_grad_()
        out = F.scaled_dot_product_attention(q, k, v, is_causal="causal" in said)
        check(found, gradients(out, grad_output, *wanted))


def test_batch_norms() -> None:
    for said, names in problems(backward.batch_norm_backward, 12):
        (grad_output, x), found, model = results(names)
        over = {"batch norm": (0, 2, 3), "instance norm": (2, 3)}
        dims = next((d for name, d in over.items() if name in said), (1,))
        x.requires_grad_()
        variance = x.var(dims, keepdim=True, unbiased=False)
        normed = (x - x.mean(dims, keepdim=True)) * torch.rsqrt(variance + 1e-5)
        (expected,) = gradients(normed * model.weight, grad_output, x)
        inside = x > 0 if "ReLU" in said else torch.ones_like(x, dtype=torch.bool)
        check(found[:1], [torch.where(inside, expected, 0.0)])
