"""Stages that follow one another in a composition: activations, norms, gates, reductions.

A stage is a function that appends one or two statements to a `ProblemDraft` and keeps the draft's
``dims`` true. Stages know what may follow them, so that a chain never computes a constant or a NaN.
"""

from __future__ import annotations

from collections.abc import Callable

from curate.sources.torch_ops.draft import ProblemDraft

Stage = Callable[[ProblemDraft], None]

ACTIVATIONS = {
    "ReLU": "F.relu({})",
    "GELU": "F.gelu({})",
    "tanh-approximated GELU": 'F.gelu({}, approximate="tanh")',
    "SiLU": "F.silu({})",
    "Mish": "F.mish({})",
    "ELU": "F.elu({}, alpha=0.8)",
    "SELU": "F.selu({})",
    "CELU": "F.celu({}, alpha=1.5)",
    "leaky ReLU": "F.leaky_relu({}, negative_slope=0.1)",
    "hard swish": "F.hardswish({})",
    "softplus": "F.softplus({})",
    "softsign": "F.softsign({})",
    "tanh shrinkage": "F.tanhshrink({})",
    "soft shrinkage": "F.softshrink({}, lambd=0.25)",
    "log-sigmoid": "F.logsigmoid({})",
    "tanh": "torch.tanh({})",
    "sigmoid": "torch.sigmoid({})",
    "arctangent": "torch.atan({})",
    "error function": "torch.erf({})",
    "squared ReLU": "F.relu({}).square()",
    "sine": "torch.sin({})",
    "inverse hyperbolic sine": "torch.asinh({})",
    "ReLU6": "F.relu6({})",
    "hard tanh": "F.hardtanh({}, min_val=-2.0, max_val=2.0)",
}
"""Activation by its name in a sentence; ``{}`` is the argument."""

GATES = {
    "sigmoid": "torch.sigmoid({})",
    "SiLU": "F.silu({})",
    "GELU": "F.gelu({})",
    "tanh-approximated GELU": 'F.gelu({}, approximate="tanh")',
    "ReLU": "F.relu({})",
    "squared ReLU": "F.relu({}).square()",
    "tanh": "torch.tanh({})",
    "hard sigmoid": "F.hardsigmoid({})",
    "Mish": "F.mish({})",
    "softplus": "F.softplus({})",
    "ELU plus one": "(F.elu({}) + 1.0)",
}
"""What multiplies the other half in a gated unit."""


def activate(d: ProblemDraft) -> None:
    """Apply an activation."""
    name, call = d.pick(*ACTIVATIONS.items())
    d.let("x", call.format("x"), name)


def scale(d: ProblemDraft) -> None:
    """Multiply by a constant."""
    d.let("x", d.pick("x * 0.5", "x * 1.7", "2.0 * x", "x / 3.0", "x * 0.7071"), "scaling")


def learned_scale(d: ProblemDraft) -> None:
    """Multiply by a parameter per channel."""
    name = d.parameter("gain", *channel_shape(d))
    d.let("x", f"x * {name}", "a learned scale")


def bias(d: ProblemDraft) -> None:
    """Add or subtract a parameter per channel."""
    sign = d.pick("+", "-")
    name = d.parameter("shift", *channel_shape(d))
    d.let("x", f"x {sign} {name}", "a bias added" if sign == "+" else "a bias subtracted")


def clamp(d: ProblemDraft) -> None:
    """Limit the values."""
    how = {
        "torch.clamp(x, min=-1.5, max=1.5)": "clamping",
        "torch.clamp(x, max=2.0)": "clamping from above",
        "torch.clamp(x, min=-0.5)": "clamping from below",
        "4.0 * torch.tanh(x / 4.0)": "soft capping",
        "torch.clamp(x, min=-1.0, max=3.0)": "clamping",
    }
    d.let("x", *d.pick(*how.items()))


def swish_gate(d: ProblemDraft) -> None:
    """Multiply the tensor by a gate made from itself."""
    how = {
        "x * torch.sigmoid(1.702 * x)": "a sigmoid gate on itself",
        "x * torch.tanh(F.softplus(x))": "a soft-plus tanh gate on itself",
        "x * torch.exp(-x.square())": "a Gaussian gate on itself",
        "x * torch.sigmoid(x) * 1.2": "a scaled sigmoid gate on itself",
        "torch.sign(x) * torch.log1p(x.abs())": "signed logarithm",
        "x / (1.0 + x.abs())": "soft saturation",
        "torch.sqrt(x.square() + 1.0) - 1.0": "a smooth absolute value",
    }
    d.let("x", *d.pick(*how.items()))


def residual(d: ProblemDraft) -> None:
    """Add a second input of the same sizes."""
    if "residual" in d.inputs:
        learned_scale(d)
        return
    name = d.take("residual", *d.dims)
    how = {
        f"x + {name}": "a residual",
        f"x + 0.5 * {name}": "half of a residual",
        f"torch.lerp(x, {name}, 0.3)": "interpolation with a residual",
        f"torch.maximum(x, {name})": "the maximum with a second input",
        f"x * {name}": "a product with a second input",
        f"torch.addcmul({name}, x, x.sigmoid())": "a gated residual",
    }
    d.let("x", *d.pick(*how.items()))


def broadcast(d: ProblemDraft) -> None:
    """Combine with a second input that has size 1, or no axis, where ``x`` has channels."""
    if "context" in d.inputs:
        bias(d)
        return
    channel = d.axis % len(d.dims)
    kept = d.pick(0, channel)
    dims = [dim if i in (0, kept) else "1" for i, dim in enumerate(d.dims)]
    name = d.take("context", *dims)
    how = {
        f"F.silu(x + {name})": "SiLU after a broadcast offset",
        f"x * torch.sigmoid({name})": "a broadcast gate",
        f"x * (1.0 + {name})": "a broadcast modulation",
        f"torch.maximum(x, {name})": "a broadcast lower limit",
        f"x * F.softplus({name})": "a positive broadcast scale",
    }
    d.let("x", *d.pick(*how.items()))


def normalize(d: ProblemDraft) -> None:
    """Normalise over features, channels or groups, as fits the layout."""
    (_normalize_last if d.axis == -1 else _normalize_channels)(d)


def _normalize_last(d: ProblemDraft) -> None:
    features = d.argument(d.dims[-1])
    choice = d.rng.randrange(6)
    if choice == 0:
        d.let("x", f"{d.layer('norm', f'nn.LayerNorm({features})')}(x)", "layer norm")
    elif choice == 1:
        gain = d.parameter("norm_weight", features)
        d.let("x", f"x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + 1e-6) * {gain}")
        d.parts.append("RMS norm")
    elif choice == 2:
        d.let("x", f"{d.layer('norm', f'nn.RMSNorm({features}, eps=1e-6)')}(x)", "RMS norm")
    elif choice == 3:
        d.let("x", "8.0 * F.normalize(x, dim=-1)", "normalisation to length 8")
    elif choice == 4:
        d.let("mean", "x.mean(dim=-1, keepdim=True)")
        d.let("x", "(x - mean) / (x.std(dim=-1, keepdim=True) + 1e-5)", "standardisation")
    else:
        d.let("low", "x.amin(dim=-1, keepdim=True)")
        d.let("high", "x.amax(dim=-1, keepdim=True)")
        d.let("x", "(x - low) / (high - low + 1e-6)", "min-max normalisation")


def _normalize_channels(d: ProblemDraft) -> None:
    channels = d.argument(d.dims[1])
    rank = len(d.dims) - 2
    spatial = tuple(range(2, len(d.dims)))
    choice = d.rng.randrange(6)
    if choice == 0:
        d.let("x", f"{d.layer('norm', f'nn.BatchNorm{rank}d({channels})')}(x)", "batch norm")
    elif choice == 1:
        groups = d.argument(d.size("num_groups", 4, 8))
        layer = d.layer("norm", f"nn.GroupNorm({groups}, {channels})")
        d.let("x", f"{layer}(x)", "group norm")
    elif choice == 2 and not any("shift" in line for line in d.layers):
        layer = d.layer("norm", f"nn.InstanceNorm{rank}d({channels}, affine=True)")
        d.let("x", f"{layer}(x)", "instance norm")
    elif choice == 3:
        gain = d.parameter("norm_weight", *channel_shape(d))
        d.let("variance", "x.var(dim=1, keepdim=True, unbiased=False)")
        d.let("x", "(x - x.mean(dim=1, keepdim=True)) * torch.rsqrt(variance + 1e-5)")
        d.let("x", f"x * {gain}", "layer norm over channels")
    elif choice == 4:
        d.let("power", f"x.square().mean(dim={spatial}, keepdim=True)")
        d.let("x", "x * torch.rsqrt(power + 1e-6)", "normalisation of each channel's power")
    else:
        d.let("x", "4.0 * F.normalize(x, dim=1)", "normalisation over channels")


def reduce_last(d: ProblemDraft) -> None:
    """Reduce over the last axis, or over all axes after the channels."""
    spatial = (len(d.dims) - 1,) if d.axis == -1 else tuple(range(2, len(d.dims)))
    dim = "-1" if len(spatial) == 1 else str(spatial)
    keep = d.chance(0.4)
    end = f"dim={dim}, keepdim=True" if keep else f"dim={dim}"
    how = {
        f"x.mean({end})": "the mean",
        f"x.sum({end}) * 0.1": "a scaled sum",
        f"torch.amax(x, {end})": "the maximum",
        f"torch.logsumexp(x, {end})": "log-sum-exp",
        f"x.var({end})": "the variance",
        f"torch.linalg.vector_norm(x, {end})": "the Euclidean norm",
        f"x.abs().mean({end})": "the mean magnitude",
        f"torch.amax(x, {end}) - x.mean({end})": "the peak above the mean",
        f"x.square().mean({end}).add(1e-6).sqrt()": "the root mean square",
    }
    over = "features" if d.axis == -1 else "positions"
    expression, part = d.pick(*how.items())
    d.let("x", expression, f"{part} over {over}")
    first = spatial[0]
    if keep:
        d.dims = (*d.dims[:first], *("1" for _ in spatial), *d.dims[first + len(spatial) :])
    else:
        d.dims = d.dims[:first]


def softmax(d: ProblemDraft) -> None:
    """Softmax or a relative of it over channels or features."""
    how = {
        f"torch.softmax(x, dim={d.axis})": "softmax",
        f"torch.log_softmax(x, dim={d.axis})": "log-softmax",
        f"F.softmin(x, dim={d.axis})": "softmin",
        f"torch.softmax(x / 0.7, dim={d.axis})": "softmax with a temperature",
        f"x * torch.softmax(x, dim={d.axis})": "softmax weights on itself",
    }
    d.let("x", *d.pick(*how.items()))


def channel_shape(d: ProblemDraft) -> tuple[str, ...]:
    """Return the sizes of a parameter that broadcasts along channels or features."""
    if d.axis == -1:
        return (d.dims[-1],)
    return (d.dims[1], *("1" for _ in d.dims[2:]))


POINTWISE: dict[Stage, int] = {
    activate: 5,
    scale: 1,
    learned_scale: 2,
    bias: 3,
    clamp: 2,
    swish_gate: 2,
    residual: 2,
    broadcast: 2,
}
"""Stages that keep the sizes, with their weights."""

# After the key, a stage of the value adds nothing or makes the result constant.
_POINTLESS: dict[Stage, set[Stage]] = {
    normalize: {normalize, reduce_last, softmax, scale},
    scale: {scale, normalize, learned_scale, bias},
    learned_scale: {scale, learned_scale, normalize},
    bias: {bias, scale},
    activate: {activate, swish_gate},
    swish_gate: {activate, swish_gate},
    clamp: {clamp, activate, swish_gate},
    softmax: {softmax, reduce_last, clamp, scale, swish_gate},
    residual: {residual},
    broadcast: {broadcast, normalize, softmax},
}


def pointless_after(d: ProblemDraft, last: Stage | None) -> set[Stage]:
    """Return the stages that make no sense after `last`."""
    barred = _POINTLESS.get(last, set()) if last else set()
    # A channel's bias is gone after a norm over that channel's positions.
    return barred | {normalize} if last is bias and d.axis == 1 else barred


def chain(
    d: ProblemDraft, count: int, *, norm: float = 0.5, first: Stage | None = None
) -> Stage | None:
    """Append `count` stages that keep the sizes.

    Args:
        d: the draft.
        count: number of stages.
        norm: share of drafts in which one of the stages is a normalisation.
        first: the stage that has just been appended, if any.

    Returns:
        The last stage.
    """
    where = d.rng.randrange(count) if d.chance(norm) else -1
    used = {first}
    last = first
    for index in range(count):
        barred = pointless_after(d, last)
        if index == where and normalize not in barred:
            stage: Stage = normalize
        else:
            open_ = [s for s in POINTWISE if s not in barred and s not in used]
            stage = d.rng.choices(open_, [POINTWISE[s] for s in open_])[0]
        stage(d)
        used.add(stage)
        last = stage
    return last


def close(d: ProblemDraft, last: Stage | None) -> None:
    """Append a reduction or softmax that makes sense after `last`; at times an activation too."""
    barred = pointless_after(d, last)
    stages = [s for s in (reduce_last, softmax) if s not in barred]
    if stages:
        stage = d.rng.choice(stages)
        stage(d)
        if stage is reduce_last and d.chance(0.4):
            name = d.pick("SiLU", "GELU", "softplus", "ELU", "inverse hyperbolic sine", "sine")
            d.let("x", ACTIVATIONS[name].format("x"), name)
