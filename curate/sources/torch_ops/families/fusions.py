"""Families of compositions that chain stages: epilogues, norms, gates, attention, positions.

Each family opens with an operator or an input and lets the stages of `stages` follow. See
`compositions`.
"""

from __future__ import annotations

from curate.sources.torch_ops.draft import ProblemDraft
from curate.sources.torch_ops.families.layouts import any_layout, images, signal, tokens, volumes
from curate.sources.torch_ops.families.stages import (
    GATES,
    activate,
    chain,
    close,
    normalize,
    pointless_after,
    reduce_last,
)

# --- Chains of stages ---------------------------------------------------------------------------


def elementwise(d: ProblemDraft) -> None:
    """A chain of elementwise operators with broadcasting."""
    any_layout(d)
    chain(d, d.pick(3, 4, 5, 6), norm=0.0)


def norm_chain(d: ProblemDraft) -> None:
    """Normalisation with a prologue or an epilogue."""
    any_layout(d)
    if d.chance(0.5):
        normalize(d)
        chain(d, d.pick(1, 2, 3), norm=0.0, first=normalize)
    else:
        last = chain(d, d.pick(1, 2), norm=0.0)
        if normalize in pointless_after(d, last):
            activate(d)
        normalize(d)
        chain(d, d.pick(1, 2), norm=0.0, first=normalize)


def reduction_epilogue(d: ProblemDraft) -> None:
    """Elementwise work, then a reduction or softmax."""
    any_layout(d)
    close(d, chain(d, d.pick(1, 2, 3, 4), norm=0.2))


def linear_epilogue(d: ProblemDraft) -> None:
    """A linear layer and what follows it."""
    batch = d.size("batch_size", 64, 96, 128, 192)
    inputs, outputs = (
        d.size("in_features", 96, 128, 200, 256),
        d.size("out_features", 128, 160, 320),
    )
    d.take("x", batch, inputs)
    end = d.pick("", ", bias=False")
    layer = d.layer("linear", f"nn.Linear({d.argument(inputs)}, {d.argument(outputs)}{end})")
    d.let("x", f"{layer}(x)", "linear layer")
    d.dims = (batch, outputs)
    last = chain(d, d.pick(2, 3, 4))
    if d.chance(0.5):
        close(d, last)


def conv_epilogue(d: ProblemDraft) -> None:
    """A convolution and what follows it."""
    rank, layout = d.pick((1, signal), (2, images), (2, images), (3, volumes))
    layout(d)
    inputs, outputs = d.argument("channels"), d.size("out_channels", 16, 24, 32)
    kernel = d.pick("3, padding=1", "1", "3, padding=1, bias=False", "1, bias=False")
    depthwise = d.chance(0.3)
    if depthwise:
        outputs = inputs
        kernel = d.pick("3, padding=1", "5, padding=2") + f", groups={inputs}"
        del d.sizes["out_channels"]
    else:
        d.argument(outputs)
    layer = d.layer("conv", f"nn.Conv{rank}d({inputs}, {outputs}, {kernel})")
    d.let("x", f"{layer}(x)", f"{'depthwise ' if depthwise else ''}{rank}D convolution")
    d.dims = (d.dims[0], outputs, *d.dims[2:])
    last = chain(d, d.pick(1, 2, 3), norm=0.0)
    if normalize not in pointless_after(d, last) and d.chance(0.4):
        normalize(d)
        last = normalize
    if d.chance(0.4):
        close(d, last)


def matmul_epilogue(d: ProblemDraft) -> None:
    """A product of two inputs and what follows it."""
    rows, columns = d.size("rows", 96, 128, 150), d.size("columns", 128, 160, 192)
    inner = d.size("inner", 64, 80, 128)
    axes = (d.size("batch_size", 3, 4, 6),) if d.chance(0.5) else ()
    d.take("a", *axes, rows, inner)
    if d.chance(0.5):
        d.take("b", *axes, inner, columns)
        d.let("x", "torch.matmul(a, b)", "matrix product")
    else:
        d.take("b", *axes, columns, inner)
        d.let(
            "x", "torch.matmul(a, b.transpose(-2, -1))", "matrix product with a transposed matrix"
        )
    if d.chance(0.6):
        d.let("x", f"x / {d.sizes[inner] ** 0.5:.1f}")
        d.parts[-1] = f"scaled {d.parts[-1]}"
    d.dims = (*axes, rows, columns)
    close(d, chain(d, d.pick(1, 2, 3), norm=0.3)) if d.chance(0.6) else chain(d, 3)


def pool_affine(d: ProblemDraft) -> None:
    """Pooling, and elementwise work around it."""
    rank, layout = d.pick((1, signal), (2, images), (3, volumes))
    layout(d)
    if d.chance(0.6):
        chain(d, d.pick(1, 2), norm=0.2)
    how = {
        f"F.max_pool{rank}d(x, kernel_size=2)": "max pooling",
        f"F.avg_pool{rank}d(x, kernel_size=2)": "average pooling",
        f"F.avg_pool{rank}d(x, kernel_size=3, stride=2, padding=1)": "strided average pooling",
        f"F.max_pool{rank}d(x, kernel_size=3, stride=1, padding=1)": "max pooling at stride 1",
        f"x - F.avg_pool{rank}d(x, kernel_size=3, stride=1, padding=1)": "local mean subtracted",
        f"F.adaptive_avg_pool{rank}d(x, 4)": "adaptive average pooling",
        f"F.avg_pool{rank}d(x, 2) + F.max_pool{rank}d(x, 2)": "average plus max pooling",
        f"F.avg_pool{rank}d(x.square(), kernel_size=2).sqrt()": "root-mean-square pooling",
    }
    d.let("x", *d.pick(*how.items()))
    _affine(d)
    if d.chance(0.7):
        activate(d)
        if d.chance(0.5):
            reduce_last(d)


def _affine(d: ProblemDraft) -> None:
    shape = (d.dims[1], *("1" for _ in d.dims[2:]))
    gain, shift = d.parameter("gain", *shape), d.parameter("shift", *shape)
    d.let("x", d.pick(f"x * {gain} + {shift}", f"(x - {shift}) * {gain}"), "a channel affine")


# --- Tokens: gates, attention, positions --------------------------------------------------------


def gated_unit(d: ProblemDraft) -> None:
    """Gated linear unit of Shazeer (2020), with what stands around it."""
    tokens(d)
    gate_name, gate = d.pick(*GATES.items())
    source = d.rng.randrange(4)
    if source == 0:
        d.inputs = {}
        d.take("gate", *d.dims)
        d.take("x", *d.dims)
        d.let("x", f"{gate.format('gate')} * x", f"{gate_name} gate of one input on another")
    elif source == 1:
        d.inputs = {}
        d.take("x", *d.dims[:-1], f"2 * {d.dims[-1]}")
        order = d.pick("gate, x", "x, gate")
        d.let(order, "x.chunk(2, dim=-1)")
        d.let("x", f"{gate.format('gate')} * x", f"{gate_name} gate of one half on the other")
    elif source == 2:
        wide = d.size("intermediate_size", 160, 224, 288)
        hidden = d.argument(d.dims[-1])
        d.argument(wide)
        for name in ("gate_proj", "up_proj"):
            d.layer(name, f"nn.Linear({hidden}, {wide}, bias=False)")
        d.let("x", f"{gate.format('self.gate_proj(x)')} * self.up_proj(x)")
        d.parts.append(f"two projections, the one gated by the {gate_name} of the other")
        d.dims = (*d.dims[:-1], wide)
    else:
        weight, offset = (
            d.parameter("gate_weight", d.dims[-1]),
            d.parameter("gate_bias", d.dims[-1]),
        )
        d.let("gate", gate.format(f"x * {weight} + {offset}"))
        mix = d.pick("gate * x", "x + gate * torch.tanh(x)", "gate * x + (1.0 - gate) * x.square()")
        d.let("x", mix, f"a channelwise {gate_name} gate on the input")
    if d.chance(0.75):
        chain(d, d.pick(1, 2), norm=0.6, first=activate)


def block_norm(d: ProblemDraft) -> None:
    """Pre- and post-norm residual blocks with layer scale and adaptive modulation."""
    tokens(d)
    hidden = d.dims[-1]
    branch = d.take("branch", *d.dims)
    offset = d.parameter("branch_bias", hidden) if d.chance(0.5) else ""
    layer_scale = d.parameter("layer_scale", hidden) if d.chance(0.5) else ""
    term = f"({branch} + {offset})" if offset else branch
    if d.chance(0.4):
        d.let(branch, d.pick("F.gelu({})", "F.silu({})", "torch.tanh({})").format(term))
        d.parts.append("activated branch")
        term = branch
    term = f"{layer_scale} * {term}" if layer_scale else term
    d.let("x", f"x + {term}", "residual sum" + (" with layer scale" if layer_scale else ""))
    if d.chance(0.3):
        d.let("skip", "x")
        d.result = "x, skip"
    normalize(d)
    if d.chance(0.5):
        scale, shift = (d.take(n, d.dims[0], "1", hidden) for n in ("scale", "shift"))
        d.let("x", f"x * (1.0 + {scale}) + {shift}", "adaptive modulation")
    if d.chance(0.5):
        activate(d)


def attention_weights(d: ProblemDraft) -> None:
    """Scores to attention weights: scale, cap, bias, mask, softmax."""
    batch, heads = d.size("batch_size", 2, 3, 4), d.size("num_heads", 4, 6, 8)
    length = d.size("seq_len", 48, 64, 80, 96)
    keys = d.pick(length, d.size("key_len", 56, 72, 112))
    if keys == length:
        del d.sizes["key_len"]
    d.dims = (batch, heads, length, keys)
    d.take("scores", *d.dims)
    factor = d.pick("0.125", "0.0884", "self.temperature")
    if factor.startswith("self"):
        d.parameter("temperature", d.argument(heads), "1", "1", draw="torch.rand({}) + 0.5")
    d.let("scores", f"scores * {factor}", "scores scaled")
    if d.chance(0.3):
        d.let("scores", "20.0 * torch.tanh(scores / 20.0)", "soft-capped")
    _attention_bias(d, length, keys)
    _attention_mask(d, length, keys)
    end = d.pick("softmax", "softmax", "log_softmax", "sigmoid", "sink", "relu")
    if end == "softmax":
        d.let("weights", "torch.softmax(scores, dim=-1)", "softmax")
    elif end == "log_softmax":
        d.let("weights", "torch.logsumexp(scores, dim=-1)", "log-sum-exp over keys")
    elif end == "sigmoid":
        d.let("weights", f"torch.sigmoid(scores - math.log({keys_or_attr(d, keys)}))")
        d.parts.append("sigmoid weights")
    elif end == "sink":
        sink = d.parameter("sink", d.argument(heads), "1", "1")
        d.let("top", f"torch.maximum(scores.amax(dim=-1, keepdim=True), {sink})")
        d.let("weights", "torch.exp(scores - top)")
        d.let("total", f"weights.sum(dim=-1, keepdim=True) + torch.exp({sink} - top)")
        d.let("weights", "weights / total", "softmax with an attention sink")
    else:
        d.let("weights", "F.relu(scores).square()", "squared ReLU weights")
    d.result = "weights"
    if end == "softmax" and d.chance(0.35):
        d.let("entropy", "-(weights * torch.log(weights + 1e-9)).sum(dim=-1)", "their entropy")
        d.result = d.pick("weights, entropy", "entropy")


def keys_or_attr(d: ProblemDraft, name: str) -> str:
    """Return a constant as an attribute that the constructor sets."""
    return d.layer(name, d.argument(name))


def _attention_bias(d: ProblemDraft, length: str, keys: str) -> None:
    heads = d.dims[1]
    choice = d.rng.randrange(5)
    if choice == 0:
        d.take("bias", "1", heads, length, keys)
        d.let("scores", "scores + bias", "with a position bias")
    elif choice == 1:
        slopes = d.layer(
            "slopes", f"2.0 ** (-8.0 * torch.arange(1, {d.argument(heads)} + 1) / {heads})"
        )
        d.let("query_pos", "torch.arange(scores.shape[-2], device=scores.device)[:, None]")
        d.let("key_pos", "torch.arange(scores.shape[-1], device=scores.device)[None, :]")
        d.let("distance", "(query_pos - key_pos).abs()")
        d.layers[-1] = f'self.register_buffer("slopes", {d.layers[-1].split(" = ", 1)[1]})'
        d.let(
            "scores", f"scores - {slopes}[:, None, None] * distance", "with linear biases (ALiBi)"
        )
    elif choice == 2:
        name = d.parameter("head_bias", d.argument(heads), "1", d.argument(keys))
        d.let("scores", f"scores + {name}", "with a learned key bias")


def _attention_mask(d: ProblemDraft, length: str, keys: str) -> None:
    choice = d.rng.randrange(5)
    fill = d.pick('float("-inf")', "-1e4")
    rows = "torch.arange(scores.shape[-2], device=scores.device)[:, None]"
    columns = "torch.arange(scores.shape[-1], device=scores.device)[None, :]"
    if choice == 0 and length == keys:
        d.let("rows", rows)
        d.let("columns", columns)
        d.let("scores", f"scores.masked_fill(columns > rows, {fill})", "causally masked")
    elif choice == 1 and length == keys:
        d.let("rows", rows)
        d.let("columns", columns)
        window = d.pick("16", "24", "32")
        d.let("outside", f"(columns > rows) | (rows - columns >= {window})")
        d.let("scores", f"scores.masked_fill(outside, {fill})", "masked to a sliding window")
    elif choice == 2:
        d.take("padding", d.dims[0], "1", "1", keys, draw="torch.rand({}) < 0.2")
        d.let("scores", "scores.masked_fill(padding, -1e4)", "with padding masked")
    elif choice == 3:
        d.take("mask", d.dims[0], "1", length, keys)
        d.let("scores", "torch.where(mask > -0.5, scores, -1e4)", "masked where told")


def rotary(d: ProblemDraft) -> None:
    """Rotary position embedding (Su et al., 2021) of queries, or of queries and keys."""
    batch, heads = d.size("batch_size", 2, 4), d.size("num_heads", 4, 6, 8)
    length, half = d.size("seq_len", 40, 64, 96), d.size("half_dim", 16, 24, 32)
    heads_first = d.chance(0.6)
    d.dims = (batch, heads, length) if heads_first else (batch, length, heads)
    tables = d.pick("inputs", "computed", "positions")
    names = d.pick(("q",), ("q", "k"))
    for name in names:
        d.take(name, *d.dims, f"2 * {half}")
    where = "" if heads_first else "[:, None, :]"
    if tables == "inputs":
        angle = d.take("angle", length, half)
        d.let("cos, sin", f"torch.cos({angle}){where}, torch.sin({angle}){where}")
    else:
        d.argument(half)
        line = f"10000.0 ** (-torch.arange({half}) / {half})"
        d.layers.append(f'self.register_buffer("frequencies", {line})')
        if tables == "computed":
            axis = "-2" if heads_first else "-3"
            d.let("positions", f"torch.arange(q.shape[{axis}], device=q.device)")
        else:
            d.take("positions", length, draw="torch.rand({}) * 100.0")
        d.let("angle", "positions[:, None] * self.frequencies")
        d.let("cos, sin", f"angle.cos(){where}, angle.sin(){where}")
    norm = d.pick("", "", "rms", "l2")
    interleaved = d.chance(0.5)
    scaled = d.chance(0.3)
    outputs = []
    for name in names:
        if norm == "rms":
            d.let(name, f"{name} * torch.rsqrt({name}.square().mean(dim=-1, keepdim=True) + 1e-6)")
        elif norm == "l2":
            d.let(name, f"F.normalize({name}, dim=-1)")
        if interleaved:
            d.let("even, odd", f"{name}[..., 0::2], {name}[..., 1::2]")
            pair = "torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)"
            d.let(f"{name}", f"{pair}.flatten(-2)")
        else:
            d.let("first, second", f"{name}.chunk(2, dim=-1)")
            pair = "(first * cos - second * sin, second * cos + first * sin)"
            d.let(f"{name}", f"torch.cat({pair}, dim=-1)")
        if scaled:
            d.let(name, f"{name} * 0.125")
        outputs.append(name)
    d.result = ", ".join(outputs)
    what = "queries and keys" if len(names) > 1 else "queries"
    kind = "interleaved pairs" if interleaved else "halves"
    before = {"": "", "rms": ", RMS-normalised first", "l2": ", normalised to length 1 first"}[norm]
    after = ", then scaled" if scaled else ""
    d.summary = f"Rotary position embedding of {what} by {kind}{before}{after}."


def position_embedding(d: ProblemDraft) -> None:
    """Token embeddings plus positions, normalised or activated."""
    tokens(d)
    length, hidden = d.dims[1], d.dims[2]
    if d.chance(0.4):
        vocabulary = d.argument(d.size("vocab_size", 500, 1000, 1500))
        table = d.layer("embedding", f"nn.Embedding({vocabulary}, {d.argument(hidden)})")
        d.inputs = {"tokens": f"torch.randint({vocabulary}, ({d.dims[0]}, {length}))"}
        d.let("x", f"{table}(tokens)", "token embedding")
    if d.chance(0.4):
        d.let("x", "x * 16.0", "scaled")
    kind = d.pick("learned", "sinusoidal", "time", "none")
    if kind == "learned":
        positions = d.parameter("positions", length, hidden)
        d.let("x", f"x + {positions}", "learned positions added")
    elif kind == "sinusoidal":
        d.layers.append("self.half = hidden_size // 2")
        d.argument(hidden)
        d.let("steps", "torch.arange(self.half, device=x.device) / self.half")
        d.let("index", "torch.arange(x.shape[1], device=x.device)")
        d.let("angle", "index[:, None] * torch.exp(-9.21 * steps)")
        d.let(
            "x", "x + torch.cat((angle.sin(), angle.cos()), dim=-1)", "sinusoidal positions added"
        )
    elif kind == "time":
        time = d.take("time", d.dims[0], "1", "1", draw="torch.rand({})")
        weight = d.parameter("time_weight", hidden)
        d.let("x", f"x + torch.sin(6.28 * {time} * {weight})", "a Fourier embedding of time added")
    if kind == "none" or d.chance(0.7):
        normalize(d)
    chain(d, d.pick(1, 2), norm=0.0, first=normalize)


FAMILIES = (
    elementwise,
    norm_chain,
    reduction_epilogue,
    linear_epilogue,
    conv_epilogue,
    matmul_epilogue,
    pool_affine,
    gated_unit,
    block_norm,
    attention_weights,
    rotary,
    position_embedding,
)
