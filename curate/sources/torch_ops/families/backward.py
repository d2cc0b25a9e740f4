"""Families of compositions that are backward passes: gradients by formula, from ``grad_output``."""

from __future__ import annotations

from curate.sources.torch_ops.draft import ProblemDraft
from curate.sources.torch_ops.families.layouts import images, rows, tokens


def _given(d: ProblemDraft, *names: str) -> None:
    """Make the arguments of `forward` the gradient and tensors of the forward pass, alike."""
    d.inputs = {}
    for name in ("grad_output", *names):
        d.take(name, *d.dims)


_SLOPES = {
    "GELU": (
        ("cdf", "0.5 * (1.0 + torch.erf(x * 0.7071067811865476))"),
        ("pdf", "torch.exp(-0.5 * x.square()) * 0.3989422804014327"),
        ("slope", "cdf + x * pdf"),
    ),
    "tanh-approximated GELU": (
        ("inner", "0.7978845608028654 * (x + 0.044715 * x.pow(3))"),
        ("t", "torch.tanh(inner)"),
        ("inner_slope", "0.7978845608028654 * (1.0 + 0.134145 * x.square())"),
        ("slope", "0.5 * (1.0 + t) + 0.5 * x * (1.0 - t.square()) * inner_slope"),
    ),
    "SiLU": (("gate", "torch.sigmoid(x)"), ("slope", "gate * (1.0 + x * (1.0 - gate))")),
    "softplus": (("slope", "torch.sigmoid(x)"),),
    "Mish": (
        ("t", "torch.tanh(F.softplus(x))"),
        ("slope", "t + x * torch.sigmoid(x) * (1.0 - t.square())"),
    ),
    "squared ReLU": (("slope", "2.0 * F.relu(x)"),),
    "ELU": (("slope", "torch.where(x > 0, 1.0, torch.exp(x))"),),
    "tanh": (("slope", "1.0 - torch.tanh(x).square()"),),
    "leaky ReLU": (("slope", "torch.where(x > 0, 1.0, 0.01)"),),
    "hard swish": (
        ("inside", "(x > -3.0) & (x < 3.0)"),
        ("slope", "torch.where(inside, (2.0 * x + 3.0) / 6.0, torch.where(x < 0, 0.0, 1.0))"),
    ),
}
"""Activations with the lines that give their derivatives at ``x``."""


def _slope(d: ProblemDraft, *names: str) -> str:
    name = d.pick(*names) if names else d.pick(*_SLOPES)
    for variable, expression in _SLOPES[name]:
        d.let(variable, expression)
    return name


def activation_backward(d: ProblemDraft) -> None:
    """Gradients of an activation, and of a bias, a scale or a residual next to it."""
    d.pick(rows, tokens)(d)
    _given(d, "x")
    around = d.pick("bias", "bias", "residual", "dropout")
    features = d.dims[-1]
    if around == "bias":
        bias = d.parameter("bias", features)
        d.let("x", f"x + {bias}")
    elif around == "dropout":
        d.take("keep", *d.dims, draw="torch.rand({}) > 0.1")
        d.let("grad_output", "torch.where(keep, grad_output / 0.9, 0.0)")
    name = _slope(d)
    d.let("grad_x", "grad_output * slope")
    outer = "0" if len(d.dims) == 2 else "(0, 1)"
    d.result, what = "grad_x", f"Gradient of {name}"
    if around == "bias":
        d.result = f"grad_x, grad_x.sum(dim={outer})"
        what = f"Gradients of a bias and {name} after it"
    elif around == "residual":
        d.result = "grad_output + grad_x"
        what = f"Gradient of {name} with a residual around it"
    else:
        what = f"Gradient of {name} and dropout by a given mask"
    d.summary = what + "."


def gate_backward(d: ProblemDraft) -> None:
    """Gradients of both halves of a gated unit."""
    tokens(d)
    joined = d.chance(0.4)
    if joined:
        d.inputs = {}
        d.take("grad_output", *d.dims)
        d.take("h", *d.dims[:-1], f"2 * {d.dims[-1]}")
        d.let("x, up", "h.chunk(2, dim=-1)")
    else:
        _given(d, "x", "up")
    name = _slope(d, "GELU", "tanh-approximated GELU", "SiLU", "squared ReLU")
    value = {
        "GELU": "x * cdf",
        "tanh-approximated GELU": "0.5 * x * (1.0 + t)",
        "SiLU": "x * gate",
        "squared ReLU": "F.relu(x).square()",
    }[name]
    d.let("grad_gate", "grad_output * up * slope")
    d.let("grad_up", f"grad_output * {value}")
    d.result = "torch.cat([grad_gate, grad_up], dim=-1)" if joined else "grad_gate, grad_up"
    d.summary = f"Gradients of a unit gated by {name}{', of both halves at once' * joined}."


def softmax_backward(d: ProblemDraft) -> None:
    """Gradient of a softmax or log-softmax along rows, by its result or by its logits."""
    layout = d.pick(rows, tokens, None)
    if layout is None:
        batch, heads = d.size("batch_size", 2, 3), d.size("num_heads", 4, 6)
        d.dims = (batch, heads, d.size("seq_len", 64, 96), d.size("key_len", 80, 128))
    else:
        layout(d)
    kind = d.pick("softmax", "softmax", "log-softmax")
    by_logits = d.chance(0.5)
    _given(d, "logits" if by_logits else "y")
    scale = d.pick("", "0.125", "0.5")
    if by_logits:
        source = f"logits * {scale}" if scale else "logits"
        d.let("y", f"torch.softmax({source}, dim=-1)")
    elif kind == "softmax":
        d.inputs["y"] = f"torch.softmax(torch.randn({', '.join(d.dims)}), dim=-1)"
    else:
        d.inputs["log_y"] = f"torch.log_softmax(torch.randn({', '.join(d.dims)}), dim=-1)"
        del d.inputs["y"]
        d.let("y", "torch.exp(log_y)")
    if kind == "softmax":
        d.let("total", "(grad_output * y).sum(dim=-1, keepdim=True)")
        d.let("grad", "y * (grad_output - total)")
    else:
        d.let("total", "grad_output.sum(dim=-1, keepdim=True)")
        d.let("grad", "grad_output - y * total")
    if scale:
        d.let("grad", f"grad * {scale}")
    if d.chance(0.3):
        d.take("mask", *d.dims, draw="torch.rand({}) < 0.2")
        d.let("grad", "grad.masked_fill(mask, 0.0)")
    d.result = "grad"
    after = " of scaled logits" if scale else ""
    d.summary = f"Gradient of a {kind}{after}, from its {'logits' if by_logits else 'result'}."


def cross_entropy_backward(d: ProblemDraft) -> None:
    """Gradient of cross-entropy and its relatives with respect to logits."""
    count, classes = d.size("batch_size", 64, 96, 128), d.size("num_classes", 200, 500, 1000)
    d.inputs["grad_output"] = f"torch.randn({count})"
    d.take("logits", count, classes)
    kind = d.pick("labels", "labels", "smoothed", "soft", "ignored")
    d.let("probs", "torch.softmax(logits, dim=-1)")
    if kind == "soft":
        target = f"torch.softmax(torch.randn({count}, {classes}), dim=-1)"
        d.inputs["target"] = target
    else:
        d.inputs["labels"] = f"torch.randint({classes}, ({count},))"
        d.let("classes", "torch.arange(logits.shape[1], device=logits.device)")
        d.let("target", "(classes == labels[:, None]).to(logits.dtype)")
    if kind == "smoothed":
        d.let("target", "0.9 * target + 0.1 / logits.shape[1]")
    d.let("grad", "grad_output[:, None] * (probs - target)")
    if kind == "ignored":
        d.take("keep", count, draw="torch.rand({}) > 0.2")
        d.let("grad", "torch.where(keep[:, None], grad, 0.0)")
    if d.chance(0.3):
        d.let("grad", "grad / logits.shape[0]")
    d.result = "grad"
    said = {"smoothed": " with smoothed labels", "soft": " with soft targets"}
    said["ignored"] = ", some rows ignored"
    d.summary = f"Gradient of cross-entropy{said.get(kind, '')} with respect to its logits."


def norm_backward(d: ProblemDraft) -> None:
    """Gradients of layer norm or RMS norm: of the input, the weight and the bias."""
    d.pick(rows, tokens)(d)
    features = d.dims[-1]
    _given(d, "x")
    kind = d.pick("layer", "layer", "rms", "rms", "l2")
    outer = "0" if len(d.dims) == 2 else "(0, 1)"
    if kind == "l2":
        d.let("norm", "torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp(min=1e-6)")
        d.let("y", "x / norm")
        d.let("along", "(grad_output * y).sum(dim=-1, keepdim=True)")
        d.result = "(grad_output - along * y) / norm"
        d.summary = "Gradient of normalisation to length 1."
        return
    weight = d.parameter("weight", features)
    if kind == "layer":
        d.let("mean", "x.mean(dim=-1, keepdim=True)")
        d.let("variance", "x.var(dim=-1, keepdim=True, unbiased=False)")
        d.let("rstd", "torch.rsqrt(variance + 1e-5)")
        d.let("normed", "(x - mean) * rstd")
    else:
        d.let("rstd", "torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + 1e-6)")
        d.let("normed", "x * rstd")
    d.let("grad", f"grad_output * {weight}")
    d.let("along", "(grad * normed).mean(dim=-1, keepdim=True)")
    if kind == "layer":
        d.let("grad_x", "rstd * (grad - grad.mean(dim=-1, keepdim=True) - normed * along)")
    else:
        d.let("grad_x", "rstd * (grad - normed * along)")
    wanted = d.pick("x", "weight", "all")
    if d.chance(0.3):
        d.take("grad_residual", *d.dims)
        d.let("grad_x", "grad_x + grad_residual")
    of_weight = f"(grad_output * normed).sum(dim={outer})"
    d.result = "grad_x"
    if wanted != "x":
        d.result += f", {of_weight}"
    if wanted == "all" and kind == "layer":
        d.result += f", grad_output.sum(dim={outer})"
    name = "layer norm" if kind == "layer" else "RMS norm"
    d.summary = f"Gradient{'s' if wanted != 'x' else ''} of {name}, with what it needs anew."


def batch_norm_backward(d: ProblemDraft) -> None:
    """Gradients of a norm over a batch or groups of an image's channels."""
    images(d)
    channels = d.dims[1]
    _given(d, "x")
    weight = d.parameter("weight", "1", channels, "1", "1")
    over = d.pick("(0, 2, 3)", "(2, 3)", "1")
    keep = f"dim={over}, keepdim=True"
    d.let("mean", f"x.mean({keep})")
    d.let("rstd", f"torch.rsqrt(x.var({keep}, unbiased=False) + 1e-5)")
    d.let("normed", "(x - mean) * rstd")
    d.let("grad", f"grad_output * {weight}")
    d.let("along", f"(grad * normed).mean({keep})")
    d.let("grad_x", f"rstd * (grad - grad.mean({keep}) - normed * along)")
    d.result = d.pick("grad_x", "grad_x, (grad_output * normed).sum(dim=(0, 2, 3))")
    before = ""
    if d.chance(0.4):
        d.let("grad_x", "torch.where(x > 0, grad_x, 0.0)")
        before = "ReLU and "
    names = {"(0, 2, 3)": "batch norm", "(2, 3)": "instance norm", "1": "layer norm over channels"}
    d.summary = f"Gradients of {before}{names[over]} in training."


def linear_backward(d: ProblemDraft) -> None:
    """Gradients of a linear layer, and of an activation after it."""
    count = d.size("batch_size", 64, 96, 128)
    inputs, outputs = d.size("in_features", 96, 128, 192), d.size("out_features", 80, 128, 160)
    d.take("grad_output", count, outputs)
    d.take("x", count, inputs)
    weight = d.parameter("weight", outputs, inputs, draw="torch.randn({}) * 0.05")
    kind = d.pick("plain", "plain", "relu", "silu", "gelu", "scaled")
    grad = "grad_output"
    if kind == "relu":
        d.take("y", count, outputs, draw="torch.relu(torch.randn({}))")
        grad = d.let("grad", "torch.where(y > 0, grad_output, 0.0)")
    elif kind in {"silu", "gelu"}:
        d.take("h", count, outputs)
        if kind == "silu":
            d.let("gate", "torch.sigmoid(h)")
            d.let("slope", "gate * (1.0 + h * (1.0 - gate))")
        else:
            d.let("cdf", "0.5 * (1.0 + torch.erf(h * 0.7071067811865476))")
            d.let("slope", "cdf + h * torch.exp(-0.5 * h.square()) * 0.3989422804014327")
        grad = d.let("grad", "grad_output * slope")
    elif kind == "scaled":
        d.take("loss_scale", "1", draw="torch.rand({}) + 0.5")
        grad = d.let("grad", "grad_output / loss_scale")
    wanted = d.pick("all", "all", "input", "weight")
    results = {
        "input": [f"{grad} @ {weight}"],
        "weight": [f"{grad}.t() @ x", f"{grad}.sum(dim=0)"],
    }
    results["all"] = results["input"] + results["weight"]
    if wanted == "input":
        del d.inputs["x"]
    elif wanted == "weight":
        d.layers.clear()
    d.result = ", ".join(results[wanted])
    before = {"relu": " and ReLU", "silu": " and SiLU", "gelu": " and GELU"}.get(kind, "")
    of = {"all": "", "input": ", of its input", "weight": ", of its weight and bias"}[wanted]
    d.summary = f"Gradients of a linear layer{before}{of}."


def attention_backward(d: ProblemDraft) -> None:
    """Gradients of attention, with its weights computed anew."""
    batch, heads = d.size("batch_size", 1, 2), d.size("num_heads", 2, 3)
    length, dim = d.size("seq_len", 48, 64), d.size("head_dim", 32, 48)
    d.dims = (batch, heads, length, dim)
    _given(d, "q", "k", "v")
    d.let("scale", "q.shape[-1] ** -0.5")
    d.let("scores", "torch.matmul(q, k.transpose(-2, -1)) * scale")
    if d.chance(0.5):
        d.let("places", "torch.arange(q.shape[2], device=q.device)")
        d.let("future", "places > places[:, None]")
        d.let("scores", 'scores.masked_fill(future, float("-inf"))')
    d.let("p", "torch.softmax(scores, dim=-1)")
    d.let("grad_p", "torch.matmul(grad_output, v.transpose(-2, -1))")
    if d.chance(0.5):
        d.let("delta", "(grad_p * p).sum(dim=-1, keepdim=True)")
    else:
        d.let("out", "torch.matmul(p, v)")
        d.let("delta", "(grad_output * out).sum(dim=-1, keepdim=True)")
    d.let("grad_scores", "p * (grad_p - delta) * scale")
    results = {
        "grad_v": "torch.matmul(p.transpose(-2, -1), grad_output)",
        "grad_q": "torch.matmul(grad_scores, k)",
        "grad_k": "torch.matmul(grad_scores.transpose(-2, -1), q)",
    }
    wanted = d.pick(("grad_q", "grad_k", "grad_v"), ("grad_q",), ("grad_k", "grad_v"))
    for name in wanted:
        d.let(name, results[name])
    d.result = ", ".join(wanted)
    masked = " with a causal mask" if "future" in str(d.body) else ""
    d.summary = f"Gradients of attention{masked}: {', '.join(n[5:] for n in wanted)}."


def layer_backward(d: ProblemDraft) -> None:
    """Gradients of layers that move or pool: rotary embedding, embedding, pooling, upsampling."""
    kind = d.pick("rotary", "embedding", "pooling", "upsampling", "shuffle", "similarity")
    d.result = "grad"
    if kind == "rotary":
        heads, length = d.size("num_heads", 4, 8), d.size("seq_len", 64, 96)
        half = d.size("half_dim", 16, 32)
        d.take("grad_output", d.size("batch_size", 2, 4), heads, length, f"2 * {half}")
        d.take("angle", length, half)
        d.let("cos, sin", "torch.cos(angle), torch.sin(angle)")
        if d.chance(0.5):
            d.let("first, second", "grad_output.chunk(2, dim=-1)")
            pair = "(first * cos + second * sin, second * cos - first * sin)"
            d.let("grad", f"torch.cat({pair}, dim=-1)")
        else:
            d.let("even, odd", "grad_output[..., 0::2], grad_output[..., 1::2]")
            pair = "(even * cos + odd * sin, odd * cos - even * sin)"
            d.let("grad", f"torch.stack({pair}, dim=-1).flatten(-2)")
        d.summary = "Gradient of a rotary embedding: the rotation back."
    elif kind == "embedding":
        batch, length = d.size("batch_size", 8, 16), d.size("seq_len", 32, 48)
        dim, vocabulary = d.size("embed_dim", 32, 64), d.size("vocab_size", 500, 1000)
        d.take("grad_output", batch, length, dim)
        d.inputs["tokens"] = f"torch.randint({vocabulary}, ({batch}, {length}))"
        d.layer("vocab_size", d.argument(vocabulary))
        d.let("grad", "grad_output.flatten(0, 1).float()")
        if d.chance(0.5):
            d.let("used", "(tokens != 0).float().flatten()[:, None]")
            d.let("grad", "grad * used")
        d.let("table", "grad.new_zeros(self.vocab_size, grad.shape[1])")
        d.result = "table.index_add(0, tokens.flatten(), grad)"
        d.summary = "Gradient of an embedding's table: rows summed by token in float32."
    elif kind in {"pooling", "upsampling", "shuffle"}:
        images(d)
        _given(d)
        factor = d.pick("2", "4")
        if d.chance(0.5):
            scale = d.parameter("scale", d.dims[1], "1", "1")
            d.let("grad_output", f"grad_output * {scale}")
        area = f"{int(factor) ** 2}.0"
        call = {
            "pooling": f"F.interpolate(grad_output, scale_factor={factor}.0) / {area}",
            "upsampling": f"F.avg_pool2d(grad_output, {factor}) * {area}",
            "shuffle": f"F.pixel_unshuffle(grad_output, {factor})",
        }[kind]
        d.let("grad", call)
        name = {"pooling": "average pooling", "upsampling": "nearest upsampling"}
        name["shuffle"] = "a pixel shuffle"
        d.summary = f"Gradient of {name[kind]} by {factor}."
    else:
        batch, dim = d.size("batch_size", 128, 200), d.size("dim", 192, 256)
        d.dims = (batch, dim)
        d.inputs["grad_output"] = f"torch.randn({batch})"
        d.take("a", *d.dims)
        d.take("b", *d.dims)
        d.let("norm_a", "torch.linalg.vector_norm(a, dim=1, keepdim=True)")
        d.let("norm_b", "torch.linalg.vector_norm(b, dim=1, keepdim=True)")
        d.let("cosine", "(a * b).sum(dim=1, keepdim=True) / (norm_a * norm_b)")
        d.let("grad", "grad_output[:, None] * (b / norm_b - cosine * a / norm_a) / norm_a")
        d.summary = "Gradient of the cosine of rows with respect to the first."


FAMILIES = (
    activation_backward,
    gate_backward,
    softmax_backward,
    cross_entropy_backward,
    norm_backward,
    batch_norm_backward,
    linear_backward,
    attention_backward,
    layer_backward,
)
