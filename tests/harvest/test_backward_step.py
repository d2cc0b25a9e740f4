"""The gradients of modules as problems: what is asked for, and that it is what autograd gives."""

import pytest
import torch

from curate.harvest.backward import Backward, gradients
from curate.problem.problem import LoadedTask
from curate.rows import make_origin, make_row
from curate.step import Context

FILE = """import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, features, scale=0.5):
        super(Model, self).__init__()
        self.net = nn.Sequential(nn.Linear(features, 24), nn.Tanh())
        self.conv = {conv}
        self.scale = scale

    def forward(self, x):
        {body}


batch_size = 4
length = 20


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return [32]
"""
INPUT = "torch.rand(batch_size, length, 32)"


def file(body, inputs=INPUT, conv="nn.Identity()"):
    return FILE.format(body=body, inputs=inputs, conv=conv)


def asked(body, **given):
    text = gradients(file(body, **given), "GatedBlock", 60)
    assert text is not None
    return text


def test_it_returns_what_autograd_gives():
    text = asked("return self.net(x) * self.scale")
    task = LoadedTask(text)
    model = task.build(0, task.init_inputs())
    x, grad = task.inputs()
    assert x.shape == (4, 20, 32) and grad.shape == (4, 20, 24)
    x.requires_grad_()
    (model.gated_block.net(x) * 0.5).backward(grad)
    right = [x.grad, *(p.grad for p in model.parameters())]
    for found, expected in zip(model(x.detach(), grad), right, strict=True):
        torch.testing.assert_close(found, expected)
    assert '"""Gradients of GatedBlock: of x and its parameters."""' in text
    assert "super(GatedBlock, self).__init__()" in text
    assert "def __init__(self, features):" in text


def test_the_result_of_a_loss_is_one_number():
    text = asked("return F.mse_loss(self.net(x), self.net(x).detach() + x[..., :24])")
    assert "grad_output" not in text
    assert "def forward(self, x):" in text


def test_a_convolution_has_gradients_of_its_inputs_alone():
    images = "torch.rand(batch_size, 3, 2 * length, length)"
    text = asked("return self.conv(x)", inputs=images, conv="nn.Conv2d(3, 5, 3, 2, 1)")
    assert "return torch.autograd.grad(out, x, grad_output)[0]" in text
    assert "torch.randn(batch_size, 5, length, (length + 1) // 2)" in text


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        ("return x[:, 2:-1, ::3]", "batch_size, length - 3, 11"),
        ("return x.flatten(0, 1).sin()", "batch_size * length, 32"),
        ("return torch.cat([x, x, x[:, :1]], 1).mean(2)", "batch_size, 2 * length + 1"),
        ("return x[:, ::2]", "batch_size, (length + 1) // 2, 32"),
        ("return x.unfold(1, 2, 2)", "batch_size, length // 2, 32, 2"),
    ],
)
def test_shapes_follow_from_sizes(body, shape):
    assert f"torch.randn({shape})" in asked(body)


def test_only_what_has_gradients_is_asked_for():
    text = asked(
        "return self.net[0].weight.sum(0) + F.one_hot(x).sum(1).float().cos()",
        inputs="torch.arange(batch_size * 8).view(batch_size, 8) % 32",
    )
    assert "return torch.autograd.grad(out, self.gated_block.net[0].weight, grad_output)[0]" in text


def test_inputs_stand_in_lines_of_their_own_if_one_is_too_long():
    given = f"{INPUT}, torch.rand(batch_size, length, 32)"
    text = gradients(
        file("return x")
        .replace("self, x", "self, x, other")
        .replace("return x", "return self.net(x * other)")
        .replace(f"[{INPUT}]", f"[{given}]"),
        "Pair",
        60,
    )
    assert f"        {INPUT},\n        torch.randn(batch_size, length, 24),\n    ]" in text
    assert (
        "return torch.autograd.grad(out, (x, other, *self.pair.parameters()), grad_output)" in text
    )


@pytest.mark.parametrize(
    "body",
    {
        "integers": "return (self.net(x) > 0).long()",
        "two results": "return x.sin(), x.cos()",
        "a change of its input": "x += 1; return self.net(x)",
        "gradients already": "return torch.autograd.functional.vjp(torch.sin, x)[0]",
        "no gradient": "return self.net(x).detach() * 2",
        "many operators": "for _ in range(70): x = x.sin()\n        return x",
        "random numbers": "return F.dropout(self.net(x))",
        "a name in use": "GatedBlock = self.net; return GatedBlock(x)",
    }.values(),
    ids=str,
)
def test_left_out(body):
    assert gradients(file(body), "GatedBlock", 60) is None


@pytest.mark.parametrize(
    ("symbol", "share", "rows"),
    [("_GatedBlock", 1, 2), ("GatedBlock", 0, 1), ("softmax", 1, 1), ("Model", 1, 1)],
)
def test_rows_are_added(symbol, share, rows):
    text = file("return self.net(x)")
    origin = make_origin("pypi", symbol=symbol)
    row = make_row("task", text, origin, reference=text, entry_point="Model")
    kept = Backward(step="backward", share=share).apply(row, Context()).rows
    assert len(kept) == rows and kept[0] is row
    for added in kept[1:]:
        assert added["parent_ids"] == [row["id"]] and added["origin"] == origin
        assert "class GatedBlock(nn.Module):" in added["reference"]
