"""Families of compositions around convolutions: transposed, grouped, depthwise, causal."""

from __future__ import annotations

from curate.sources.torch_ops.draft import ProblemDraft
from curate.sources.torch_ops.families.layouts import images, signal
from curate.sources.torch_ops.families.stages import ACTIVATIONS

_BENDS = ("ReLU", "GELU", "SiLU", "leaky ReLU", "hard swish", "ELU", "tanh", "ReLU6")


def _bend(d: ProblemDraft) -> None:
    name = d.pick(*_BENDS)
    d.let("x", ACTIVATIONS[name].format("x"), name)


def _norm(d: ProblemDraft, rank: int) -> None:
    channels = d.dims[1]
    kind = d.pick("batch", "group")
    layer = {
        "batch": f"nn.BatchNorm{rank}d({channels})",
        "group": f"nn.GroupNorm(4, {channels})",
    }[kind]
    d.let("x", f"{d.layer('norm', layer)}(x)", f"{kind} norm")


def upsampling(d: ProblemDraft) -> None:
    """A transposed convolution, as decoders have it, with what follows."""
    rank, layout = d.pick((1, signal), (2, images), (2, images))
    layout(d)
    inputs, outputs = d.argument("channels"), d.argument(d.size("out_channels", 8, 16, 24))
    shape = d.pick(
        "4, stride=2, padding=1",
        "2, stride=2",
        "3, stride=2",
        "3, padding=1",
    )
    bias = d.pick("", "", ", bias=False")
    layer = d.layer("up", f"nn.ConvTranspose{rank}d({inputs}, {outputs}, {shape}{bias})")
    d.let("x", f"{layer}(x)", f"transposed {rank}D convolution")
    d.dims = (d.dims[0], outputs, *d.dims[2:])
    end = d.pick("norm", "bend", "both", "scale", "skip")
    if end in {"norm", "both"}:
        _norm(d, rank)
    if end in {"bend", "both"}:
        _bend(d)
    elif end == "scale":
        gain = d.parameter("gain", outputs, *("1" for _ in range(rank)))
        d.let("x", f"torch.clamp(x * {gain}, -1.0, 1.0)", "a learned scale, clamping")
    elif end == "skip":
        d.let("x", "torch.tanh(x) + 0.1 * x", "tanh with a leak")


def grouped_convolution(d: ProblemDraft) -> None:
    """A grouped or dilated convolution, with a norm, an activation and a shortcut."""
    images(d)
    d.sizes["channels"] = d.pick(16, 24, 32)
    channels = d.argument("channels")
    groups = d.pick("2", "4", "8")
    dilation = d.pick("3, padding=1", "3, padding=2, dilation=2", "3, padding=1, stride=2")
    d.layer("conv", f"nn.Conv2d({channels}, {channels}, {dilation}, groups={groups}, bias=False)")
    d.let("h", "self.conv(x)", f"convolution in {groups} groups")
    d.parts[-1] += ", dilated" if "dilation" in dilation else ""
    shortcut = "stride" not in dilation and d.chance(0.6)
    d.layer("norm", f"nn.BatchNorm2d({channels})")
    d.let("h", "self.norm(h)", "batch norm")
    name = d.pick(*_BENDS)
    if shortcut:
        d.let("h", "x + h", "a shortcut")
    d.let("h", ACTIVATIONS[name].format("h"), name)
    if d.chance(0.4):
        d.let("h", "h.mean(dim=(2, 3))", "average over positions")
    d.result = "h"


def separable_convolution(d: ProblemDraft) -> None:
    """A depthwise convolution and a pointwise one, as mobile networks have them."""
    images(d)
    channels, outputs = d.argument("channels"), d.argument(d.size("out_channels", 16, 32, 48))
    kernel = d.pick("3, padding=1", "5, padding=2", "7, padding=3", "3, padding=1, stride=2")
    d.layer("depthwise", f"nn.Conv2d({channels}, {channels}, {kernel}, groups={channels})")
    d.layer("pointwise", f"nn.Conv2d({channels}, {outputs}, 1, bias=False)")
    d.let("x", "self.depthwise(x)", "depthwise convolution")
    if d.chance(0.7):
        _bend(d)
    elif d.chance(0.5):
        _norm(d, 2)
    d.let("x", "self.pointwise(x)", "pointwise convolution")
    d.dims = (d.dims[0], outputs, *d.dims[2:])
    d.layer("norm_out", f"nn.BatchNorm2d({outputs})")
    d.let("x", "self.norm_out(x)", "batch norm")
    if d.chance(0.6):
        _bend(d)


def causal_convolution(d: ProblemDraft) -> None:
    """A convolution along time that sees the past only: depthwise, dilated or gated."""
    signal(d)
    channels, taps = d.argument("channels"), d.pick(3, 4, 4, 7)
    kind = d.pick("depthwise", "depthwise", "dilated", "gated")
    past = taps - 1
    if kind == "depthwise":
        bias = d.pick("", ", bias=False")
        d.layer("conv", f"nn.Conv1d({channels}, {channels}, {taps}, groups={channels}{bias})")
        d.let("h", f"self.conv(F.pad(x, ({past}, 0)))", f"causal depthwise convolution of {taps}")
        d.let("h", d.pick("F.silu(h)", "F.gelu(h)", "F.relu(h)"), "an activation")
    elif kind == "dilated":
        step = d.pick(2, 4)
        d.layer("conv", f"nn.Conv1d({channels}, {channels}, {taps}, dilation={step})")
        d.let("h", f"self.conv(F.pad(x, ({past * step}, 0)))", "causal dilated convolution")
        d.let("h", d.pick("F.relu(h)", "torch.tanh(h)"), "an activation")
    else:
        d.layer("conv", f"nn.Conv1d({channels}, 2 * {channels}, {taps})")
        d.let("signal, gate", f"self.conv(F.pad(x, ({past}, 0))).chunk(2, dim=1)")
        d.let("h", d.pick("torch.tanh(signal)", "signal") + " * torch.sigmoid(gate)")
        d.parts.append("causal convolution, gated")
    end = d.pick("residual", "scaled", "multiplied", "")
    if end == "residual":
        d.let("h", "x + h", "a residual")
    elif end == "scaled":
        gain = d.parameter("gain", channels, "1")
        d.let("h", f"x + {gain} * h", "a scaled residual")
    elif end == "multiplied":
        d.take("z", *d.dims)
        d.let("h", "h * F.silu(z)", "a gate from a second input")
    d.result = "h"


def patches(d: ProblemDraft) -> None:
    """An image cut into patches that become tokens."""
    batch, channels = d.size("batch_size", 2, 4, 6), d.size("channels", 3, 4, 8)
    patch = d.pick(4, 8)
    side = d.size("image_size", *(n * patch for n in (6, 8, 10)))
    hidden = d.argument(d.size("hidden_size", 96, 128, 160))
    d.take("x", batch, channels, side, side)
    d.layer("project", f"nn.Conv2d({d.argument(channels)}, {hidden}, {patch}, stride={patch})")
    d.let("x", "self.project(x).flatten(2).transpose(1, 2)", f"patches of {patch} by {patch}")
    if d.chance(0.5):
        token = d.parameter("class_token", "1", "1", hidden)
        d.let("x", f"torch.cat([{token}.expand(x.shape[0], -1, -1), x], dim=1)", "a class token")
    if d.chance(0.6):
        d.layer("norm", f"nn.LayerNorm({hidden})")
        d.let("x", "self.norm(x)", "layer norm")
    elif d.chance(0.6):
        scale = d.parameter("scale", hidden)
        d.let("x", f"x * {scale}", "a learned scale")


FAMILIES = (
    upsampling,
    grouped_convolution,
    separable_convolution,
    causal_convolution,
    patches,
)
