"""Families of compositions that follow a formula: losses, statistics, optimisers, geometry.

Each family picks one formula of its field and varies what stands around it. See `compositions`.
"""

from __future__ import annotations

from curate.sources.torch_ops.draft import ProblemDraft
from curate.sources.torch_ops.families.layouts import any_layout, images, rows, signal, tokens
from curate.sources.torch_ops.families.stages import ACTIVATIONS, activate, chain, normalize

# --- Losses -------------------------------------------------------------------------------------

_REGRESSION = {
    "squared error": "error.square()",
    "absolute error": "error.abs()",
    "Huber loss": "torch.where(error.abs() < 1.0, 0.5 * error.square(), error.abs() - 0.5)",
    "log-cosh loss": "error + F.softplus(-2.0 * error) - 0.6931",
    "Charbonnier loss": "torch.sqrt(error.square() + 1e-4)",
    "quantile loss": "torch.maximum(0.9 * error, -0.1 * error)",
    "Cauchy loss": "torch.log1p(0.5 * error.square())",
    "Welsch loss": "1.0 - torch.exp(-0.5 * error.square())",
    "Geman-McClure loss": "error.square() / (1.0 + error.square())",
    "epsilon-insensitive loss": "F.relu(error.abs() - 0.1)",
    "wing loss": (
        "torch.where(error.abs() < 1.0, torch.log1p(2.0 * error.abs()), error.abs() + 0.1)"
    ),
    "asymmetric squared error": "torch.where(error > 0, error.square(), 0.3 * error.square())",
    "Tukey biweight loss": "1.0 - (1.0 - (error / 4.0).square()).clamp(min=0.0) ** 3",
}

_BINARY = {
    "binary cross-entropy": "F.softplus(logits) - logits * target",
    "focal loss": "torch.abs(target - prob).square() * (F.softplus(logits) - logits * target)",
    "Brier score": "(prob - target).square()",
    "hinge loss": "F.relu(1.0 - (2.0 * target - 1.0) * logits)",
    "squared hinge loss": "F.relu(1.0 - (2.0 * target - 1.0) * logits).square()",
    "exponential loss": "torch.exp(-(2.0 * target - 1.0) * torch.tanh(logits))",
    "polynomial cross-entropy": "F.softplus(logits) - logits * target + (target - prob).abs()",
    "asymmetric loss": "F.softplus(logits) * prob.square() - target * F.logsigmoid(logits)",
}

_OVERLAP = {
    "Dice loss": "1.0 - (2.0 * overlap + 1.0) / (total + 1.0)",
    "Jaccard loss": "1.0 - (overlap + 1.0) / (total - overlap + 1.0)",
    "log Dice loss": "-torch.log((2.0 * overlap + 1.0) / (total + 1.0))",
    "Tversky loss": "1.0 - overlap / (overlap + 0.3 * (prob.sum(dim) - overlap) + 1.0)",
}

_DIVERGENCE = {
    "cross-entropy": "-(p * log_q)",
    "KL divergence": "p * (torch.log(p + 1e-8) - log_q)",
    "reverse KL divergence": "log_q.exp() * (log_q - torch.log(p + 1e-8))",
    "squared Hellinger distance": "0.5 * (p.sqrt() - torch.exp(0.5 * log_q)).square()",
    "total variation distance": "0.5 * (p - log_q.exp()).abs()",
    "Jeffreys divergence": "(p - log_q.exp()) * (torch.log(p + 1e-8) - log_q)",
}


def regression_loss(d: ProblemDraft) -> None:
    """A loss between a prediction and a target of the same sizes."""
    layout = d.pick(rows, tokens, images, signal)
    layout(d)
    d.inputs = {}
    prediction, target = d.take("prediction", *d.dims), d.take("target", *d.dims)
    if d.chance(0.3):
        name = d.pick("tanh", "sigmoid", "softplus", "inverse hyperbolic sine")
        d.let(prediction, ACTIVATIONS[name].format(prediction), f"{name} of the prediction")
    d.let("error", f"{prediction} - {target}")
    name, formula = d.pick(*_REGRESSION.items())
    d.let("loss", formula, name)
    _weigh(d, "loss")
    _reduce_loss(d, "loss")


def binary_loss(d: ProblemDraft) -> None:
    """A loss between logits and labels of 0 and 1, or soft labels."""
    layout = d.pick(rows, tokens, images)
    layout(d)
    d.inputs = {}
    d.take("logits", *d.dims)
    hard = d.chance(0.5)
    d.take("target", *d.dims, draw="(torch.rand({}) > 0.5).float()" if hard else "torch.rand({})")
    if d.chance(0.3):
        d.let("target", "0.9 * target + 0.05", "labels smoothed")
    if d.chance(0.3):
        d.let("logits", "logits / 2.0", "logits tempered")
    if d.chance(0.3):
        dim = "-1" if d.axis == -1 else "(-2, -1)"
        d.let("prob", "torch.sigmoid(logits)")
        d.let("dim", dim)
        d.let("overlap", "(prob * target).sum(dim)")
        d.let("total", "prob.sum(dim) + target.sum(dim)")
        name, formula = d.pick(*_OVERLAP.items())
        if "total" not in formula:
            d.body.pop()
        d.let("loss", formula, name)
        d.result = d.pick("loss", "loss.mean()")
        return
    name, formula = d.pick(*_BINARY.items())
    if "prob" in formula:
        d.let("prob", "torch.sigmoid(logits)")
    d.let("loss", formula, name)
    _weigh(d, "loss")
    _reduce_loss(d, "loss")


def divergence_loss(d: ProblemDraft) -> None:
    """A divergence between two distributions that are given as logits."""
    layout = d.pick(rows, tokens)
    layout(d)
    d.inputs = {}
    d.take("student", *d.dims)
    d.take("teacher", *d.dims)
    temperature = d.pick("", " / 2.0", " / 0.7")
    if d.chance(0.25):
        d.let("student", "10.0 * torch.tanh(student / 10.0)", "logits soft-capped")
    d.let("p", f"torch.softmax(teacher{temperature}, dim=-1)")
    d.let("log_q", f"torch.log_softmax(student{temperature}, dim=-1)")
    name, formula = d.pick(*_DIVERGENCE.items())
    if temperature:
        name = f"{name} at a temperature"
    d.let("loss", f"({formula}).sum(dim=-1)", name)
    if d.chance(0.3):
        d.let("entropy", "-(log_q.exp() * log_q).sum(dim=-1)")
        d.let("loss", "loss - 0.1 * entropy", "an entropy bonus")
    if d.chance(0.3):
        d.take("weight", *d.dims[:-1], draw="torch.rand({})")
        d.let("loss", "loss * weight", "weighting")
    d.result = d.pick("loss", "loss.mean()", "loss.sum()")


def label_loss(d: ProblemDraft) -> None:
    """A loss between logits and class indices."""
    batch, classes = d.size("batch_size", 96, 128, 256), d.size("num_classes", 200, 512, 1000)
    d.take("logits", batch, classes)
    d.inputs["labels"] = f"torch.randint({classes}, ({batch},))"
    if d.chance(0.3):
        d.let("logits", "15.0 * torch.tanh(logits / 15.0)", "logits soft-capped")
    elif d.chance(0.3):
        prior = d.parameter("prior", classes)
        d.let("logits", f"logits + {prior}", "logits adjusted by a prior")
    d.let("log_prob", "torch.log_softmax(logits, dim=-1)")
    d.let("picked", "log_prob.gather(-1, labels[:, None]).squeeze(-1)")
    how = {
        "cross-entropy": "-picked",
        "focal loss": "-(1.0 - picked.exp()).square() * picked",
        "label-smoothed cross-entropy": "-0.9 * picked - 0.1 * log_prob.mean(dim=-1)",
        "generalised cross-entropy": "(1.0 - torch.exp(0.7 * picked)) / 0.7",
        "polynomial cross-entropy": "1.0 - picked.exp() - picked",
        "cross-entropy with a confidence penalty": (
            "-picked + 0.1 * (log_prob.exp() * log_prob).sum(dim=-1)"
        ),
    }
    name, formula = d.pick(*how.items())
    d.let("loss", formula, name)
    if d.chance(0.3):
        d.let("z", "torch.logsumexp(logits, dim=-1)")
        d.let("loss", "loss + 1e-2 * z.square()", "a penalty on the log-partition")
    d.result = d.pick("loss", "loss.mean()", "loss.sum()")


def _weigh(d: ProblemDraft, loss: str) -> None:
    choice = d.rng.randrange(5)
    if choice == 0:
        d.take("weight", *d.dims, draw="torch.rand({})")
        d.let(loss, f"{loss} * weight", "elementwise weights")
    elif choice == 1:
        d.take("weight", d.dims[0], *("1" for _ in d.dims[1:]), draw="torch.rand({})")
        d.let(loss, f"{loss} * weight", "weights per sample")
    elif choice == 2:
        d.take("mask", *d.dims, draw="torch.rand({}) > 0.3")
        d.let(loss, f"torch.where(mask, {loss}, 0.0)", "a mask")


def _reduce_loss(d: ProblemDraft, loss: str) -> None:
    inner = "-1" if len(d.dims) == 2 else str(tuple(range(1, len(d.dims))))
    d.result = d.pick(
        loss,
        f"{loss}.mean()",
        f"{loss}.sum(dim={inner})",
        f"{loss}.mean(dim={inner})",
        f"{loss}.mean(dim=0)",
        f"{loss}.sum(dim={inner}).mean()",
        f"{loss}.amax(dim={inner})",
    )


# --- Statistics and scans -----------------------------------------------------------------------


def running_statistics(d: ProblemDraft) -> None:
    """Exponential moving averages of mean and variance, and what they normalise."""
    layout = d.pick(rows, tokens, images)
    layout(d)
    channel = d.axis % len(d.dims)
    others = tuple(i for i in range(len(d.dims)) if i != channel)
    dim = str(others[0]) if len(others) == 1 else str(others)
    features = d.dims[channel]
    shape = "" if d.axis == -1 else f"[:{''.join(', None' for _ in d.dims[2:])}]"
    d.take("running_mean", features)
    d.let("mean", f"x.mean(dim={dim})")
    momentum = d.pick("0.1", "0.01", "0.3")
    d.let("new_mean", f"torch.lerp(running_mean, mean, {momentum})", "running mean updated")
    kind = d.pick("variance", "range", "none", "second moment")
    spread = ""
    if kind != "none":
        d.take("running_spread", features, draw="torch.rand({}) + 0.5")
        spread = {
            "variance": f"x.var(dim={dim}, unbiased={d.pick('False', 'True')})",
            "range": f"torch.amax(x.abs(), dim={dim})",
            "second moment": f"x.square().mean(dim={dim})",
        }[kind]
        d.let("new_spread", f"torch.lerp(running_spread, {spread}, {momentum})")
        d.parts.append(f"running {kind} updated")
    centred = f"x - new_mean{shape}"
    if kind in {"variance", "second moment"}:
        d.let("x", f"({centred}) * torch.rsqrt(new_spread + 1e-5){shape}")
    elif kind == "range":
        d.let("x", f"({centred}) / (new_spread + 1e-5){shape}")
    else:
        d.let("x", centred)
    d.parts.append("input normalised by them" if spread else "input centred")
    if d.chance(0.4):
        d.let("x", "x.clamp(-3.0, 3.0)", "clamping")
    elif d.chance(0.5):
        activate(d)
    d.result = d.pick("x", "x, new_mean", "x, new_mean, new_spread" if spread else "x, new_mean")


def scan(d: ProblemDraft) -> None:
    """A cumulative sum, product, maximum or log-sum-exp along time."""
    layout, dim = d.pick((tokens, 1), (signal, -1), (rows, -1))
    layout(d)
    before = {
        "": "x",
        "squares": "x.square()",
        "sigmoids": "torch.sigmoid(x)",
        "magnitudes": "x.abs()",
        "softplus": "F.softplus(x)",
        "softmax weights": f"torch.softmax(x, dim={dim})",
        "differences from the mean": f"x - x.mean(dim={dim}, keepdim=True)",
    }
    name, source = d.pick(*before.items())
    if name:
        d.let("x", source, name)
    if d.chance(0.3):
        d.take("gate", *d.dims)
        d.let("x", "x * torch.sigmoid(gate)", "input gated")
    how = {
        "cumulative sum": f"torch.cumsum(x, dim={dim})",
        "reversed cumulative sum": f"x.flip({dim}).cumsum(dim={dim}).flip({dim})",
        "cumulative log-sum-exp": f"torch.logcumsumexp(x, dim={dim})",
        "cumulative product": f"torch.cumprod(torch.sigmoid(x) + 0.4, dim={dim})",
        "exclusive cumulative sum": f"torch.cumsum(x, dim={dim}) - x",
        "geometric running mean": f"torch.exp(torch.cumsum(F.logsigmoid(x), dim={dim}) / 64.0)",
    }
    scan_name, expression = d.pick(*how.items())
    d.let("total", expression, scan_name)
    after = {
        "": "total",
        "divided by the step count": "total / steps",
        "added to the input": "x + 0.1 * total",
        "as a gate": "x * torch.sigmoid(total)",
        "squashed": "torch.tanh(0.1 * total)",
        "divided by the total": f"total / (total.abs().amax(dim={dim}, keepdim=True) + 1e-6)",
    }
    after_name, after_expression = d.pick(*after.items())
    if "steps" in after_expression:
        shape = "[:, None]" if dim == 1 else ""
        d.let("steps", f"torch.arange(1, x.shape[{dim}] + 1, device=x.device){shape}")
    d.let("x", after_expression, after_name)
    d.parts = [part for part in d.parts if part]
    if d.chance(0.3):
        activate(d)


def moving_window(d: ProblemDraft) -> None:
    """Statistics of a sliding window along time."""
    signal(d)
    kernel = d.pick("5", "7", "9")
    pad = str(int(kernel) // 2)
    window = f"kernel_size={kernel}, stride=1, padding={pad}"
    d.let("mean", f"F.avg_pool1d(x, {window})")
    how = {
        "moving average": "mean",
        "deviation from the moving average": "x - mean",
        "moving variance": "F.relu(power - mean.square())",
        "moving standard score": "(x - mean) * torch.rsqrt(F.relu(power - mean.square()) + 1e-4)",
        "moving average and maximum": "mean + peak",
        "moving range": "peak + F.max_pool1d(-x, {w}) + 0.0 * mean",
        "smoothed momentum": "mean[..., 1:] - mean[..., :-1]",
        "position in the moving range": "(x - mean) / (peak - mean + 1.0)",
        "divisive normalisation": "x / (1.0 + mean.abs())",
    }
    name, formula = d.pick(*how.items())
    if name == "moving range":
        d.body.pop()
        formula = f"peak + F.max_pool1d(-x, {window})"
    if "power" in formula:
        d.let("power", f"F.avg_pool1d(x.square(), {window})")
    if "peak" in formula:
        d.let("peak", f"F.max_pool1d(x, {window})")
    d.let("x", formula, f"{name} over {kernel} steps")
    if name != "smoothed momentum":
        chain(d, d.pick(1, 2), norm=0.3)
    else:
        activate(d)


# --- Updates of optimisers and of recurrent cells -----------------------------------------------


def optimizer_step(d: ProblemDraft) -> None:
    """One step of an optimiser on one weight matrix."""
    d.dims = (d.size("rows", 200, 256, 384, 500), d.size("columns", 256, 320, 512, 700))
    weight, grad = d.take("weight", *d.dims), d.take("grad", *d.dims)
    clipped = d.pick("", "value", "norm", "row")
    if clipped == "value":
        d.let(grad, "grad.clamp(-1.0, 1.0)", "gradient clipped by value")
    elif clipped == "norm":
        d.let("norm", "torch.linalg.vector_norm(grad)")
        d.let(grad, "grad * (100.0 / (norm + 1e-6)).clamp(max=1.0)", "gradient clipped by norm")
    elif clipped == "row":
        d.let("norm", "torch.linalg.vector_norm(grad, dim=1, keepdim=True)")
        d.let(grad, "grad / norm.clamp(min=1e-6)", "gradient normalised by row")
    decay = d.pick("", "coupled", "decoupled")
    if decay == "coupled":
        d.let(grad, f"{grad} + 0.01 * {weight}", "weight decay in the gradient")
    rule = d.pick(
        *("momentum", "nesterov", "adam", "adamw", "lion"),
        *("rmsprop", "adagrad", "adafactor", "signum"),
    )
    state = _optimizer_update(d, rule)
    if decay == "decoupled":
        d.let(weight, f"{weight} * 0.999", "decoupled weight decay")
    trust = d.chance(0.25)
    if trust:
        d.let("ratio", "torch.linalg.vector_norm(weight) / torch.linalg.vector_norm(update)")
        d.let(weight, "weight - 1e-2 * ratio * update", "a trust ratio")
    else:
        d.let(weight, f"weight - {d.pick('1e-2', '3e-2', '0.1')} * update")
    d.result = ", ".join([weight, *state])


def _optimizer_update(d: ProblemDraft, rule: str) -> list[str]:
    state = []
    if rule == "adamw":
        d.layer("step", d.argument(d.size("step", 10, 100, 1000)))
    if rule in {"momentum", "nesterov", "adam", "adamw", "lion", "signum"}:
        d.take("momentum", *d.dims)
        state.append("momentum")
    if rule in {"adam", "adamw", "rmsprop", "adagrad"}:
        d.take("variance", *d.dims, draw="torch.rand({})")
        state.append("variance")
    lines = {
        "momentum": [("momentum", "0.9 * momentum + grad"), ("update", "momentum")],
        "nesterov": [("momentum", "0.9 * momentum + grad"), ("update", "grad + 0.9 * momentum")],
        "adam": [
            ("momentum", "torch.lerp(momentum, grad, 0.1)"),
            ("variance", "torch.lerp(variance, grad.square(), 0.001)"),
            ("update", "momentum / (variance.sqrt() + 1e-8)"),
        ],
        "adamw": [
            ("momentum", "torch.lerp(momentum, grad, 0.1)"),
            ("variance", "torch.lerp(variance, grad.square(), 0.01)"),
            ("first", "momentum / (1.0 - 0.9 ** self.step)"),
            ("second", "variance / (1.0 - 0.99 ** self.step)"),
            ("update", "first / (second.sqrt() + 1e-8)"),
        ],
        "lion": [
            ("update", "torch.sign(0.9 * momentum + 0.1 * grad)"),
            ("momentum", "torch.lerp(momentum, grad, 0.01)"),
        ],
        "rmsprop": [
            ("variance", "0.99 * variance + 0.01 * grad.square()"),
            ("update", "grad * torch.rsqrt(variance + 1e-6)"),
        ],
        "adagrad": [
            ("variance", "variance + grad.square()"),
            ("update", "grad / (variance.sqrt() + 1e-6)"),
        ],
        "adafactor": [
            ("row", "grad.square().mean(dim=1, keepdim=True)"),
            ("column", "grad.square().mean(dim=0, keepdim=True)"),
            ("update", "grad * torch.rsqrt(row * column / row.mean() + 1e-6)"),
        ],
        "signum": [
            ("momentum", "torch.lerp(momentum, grad, 0.1)"),
            ("update", "momentum / momentum.abs().mean()"),
        ],
    }
    names = {
        "adam": "Adam",
        "adamw": "bias-corrected Adam",
        "lion": "Lion",
        "rmsprop": "RMSprop",
        "adagrad": "Adagrad",
    }
    names |= {"adafactor": "factored second-moment", "signum": "magnitude-normalised momentum"}
    names |= {"momentum": "momentum", "nesterov": "Nesterov momentum"}
    for name, expression in lines[rule]:
        d.let(name, expression)
    d.parts.append(f"{names[rule]} step")
    return state


def recurrent_cell(d: ProblemDraft) -> None:
    """The elementwise part of a recurrent cell, given its gates."""
    batch, hidden = (
        d.size("batch_size", 64, 96, 128, 256),
        d.size("hidden_size", 160, 256, 320, 512),
    )
    d.dims = (batch, hidden)
    squash = d.pick("torch.tanh({})", "F.relu({})", "F.softsign({})", "F.hardtanh({})")
    gate = d.pick("torch.sigmoid({})", "F.hardsigmoid({})")
    kind = d.pick("lstm", "gru", "minimal", "highway", "peephole", "leaky", "slstm")
    count = {"lstm": 4, "peephole": 4, "gru": 3, "slstm": 3}.get(kind, 2)
    d.take("gates", batch, f"{count} * {hidden}")
    d.take("state", batch, hidden)
    if d.chance(0.4):
        gain = d.parameter("gate_bias", f"{count} * {hidden}")
        d.arguments = [hidden]
        d.let("gates", f"gates + {gain}")
    d.result = "state"
    if kind in {"lstm", "peephole"}:
        d.let("i, f, g, o", "gates.chunk(4, dim=-1)")
        if kind == "peephole":
            peep = d.parameter("peephole", hidden)
            d.let("i, f", f"i + {peep} * state, f + {peep} * state")
        d.let("state", f"{gate.format('f')} * state + {gate.format('i')} * {squash.format('g')}")
        d.let("hidden", f"{gate.format('o')} * {squash.format('state')}")
        d.result = d.pick("hidden, state", "hidden")
    elif kind == "gru":
        d.let("r, z, n", "gates.chunk(3, dim=-1)")
        d.let("candidate", squash.format(f"n + {gate.format('r')} * state"))
        d.let("state", f"torch.lerp(candidate, state, {gate.format('z')})")
    elif kind == "slstm":
        d.let("i, f, z", "gates.chunk(3, dim=-1)")
        d.let("peak", "torch.maximum(F.logsigmoid(f), i)")
        d.let("keep", "torch.exp(F.logsigmoid(f) - peak)")
        d.let("state", f"keep * state + torch.exp(i - peak) * {squash.format('z')}")
    elif kind == "minimal":
        d.let("z, candidate", "gates.chunk(2, dim=-1)")
        d.let("state", f"torch.lerp(state, {squash.format('candidate')}, {gate.format('z')})")
    elif kind == "highway":
        d.let("t, value", "gates.chunk(2, dim=-1)")
        d.let("t", gate.format("t"))
        d.let("state", f"t * {squash.format('value')} + (1.0 - t) * state")
    else:
        d.let("value, rate", "gates.chunk(2, dim=-1)")
        d.let("decay", "torch.exp(-F.softplus(rate))")
        d.let("state", f"decay * state + (1.0 - decay) * {squash.format('value')}")
    names = {
        "lstm": "LSTM",
        "gru": "GRU",
        "minimal": "Minimal gated",
        "slstm": "Exponentially gated",
    }
    names |= {"highway": "Highway", "peephole": "Peephole LSTM", "leaky": "Leaky"}
    d.summary = f"{names[kind]} cell update from precomputed gates."
    if "hidden" not in d.result and d.chance(0.4):
        d.let("state", "F.normalize(state, dim=-1)" if d.chance(0.5) else "state.clamp(-2.0, 2.0)")


# --- Distances, probability, geometry -----------------------------------------------------------


def similarity(d: ProblemDraft) -> None:
    """Distances and similarities between vectors, and what is made of them."""
    pairwise = d.chance(0.4)
    if pairwise:
        first, second = d.size("num_queries", 40, 64, 96), d.size("num_keys", 48, 80, 96)
        size = d.size("dim", 24, 32, 48)
        d.take("a", first, size)
        d.take("b", second, size)
        d.let("difference", "a[:, None, :] - b[None, :, :]")
        product = "(a[:, None, :] * b[None, :, :])"
    else:
        shape = d.size("batch_size", 200, 256, 400), d.size("dim", 256, 320, 512)
        d.take("a", *shape)
        d.take("b", *shape)
        d.let("difference", "a - b")
        product = "(a * b)"
    how = {
        "squared Euclidean distance": "difference.square().sum(dim=-1)",
        "Euclidean distance": "difference.square().sum(dim=-1).add(1e-8).sqrt()",
        "Manhattan distance": "difference.abs().sum(dim=-1)",
        "Chebyshev distance": "difference.abs().amax(dim=-1)",
        "Minkowski distance": "(difference.abs() ** 3).sum(dim=-1) ** (1.0 / 3.0)",
        "Canberra distance": "(difference.abs() / (a.abs() + b.abs() + 1e-6)).sum(dim=-1)",
        "scaled dot product": f"{product}.sum(dim=-1) * 0.1",
        "soft maximum distance": "torch.logsumexp(difference.abs(), dim=-1)",
        "cosine similarity": "F.cosine_similarity(a, b, dim=-1)",
    }
    name, formula = d.pick(*how.items())
    if pairwise and "a.abs()" in formula:
        formula = formula.replace("a.abs() + b.abs()", "a.abs()[:, None] + b.abs()[None]")
    if pairwise and name == "cosine similarity":
        formula = "F.cosine_similarity(a[:, None, :], b[None, :, :], dim=-1)"
    if "difference" not in formula:
        d.body.pop()
    d.let("score", formula, f"pairwise {name}" if pairwise else name)
    after = {
        "": "",
        "a Gaussian kernel": "torch.exp(-score / scale)",
        "an inverse multiquadric kernel": "torch.rsqrt(1.0 + (score / scale).square())",
        "a margin": "F.relu(score - 0.2)",
        "a Student-t kernel": "1.0 / (1.0 + (score / scale).square())",
        "softmax": "torch.softmax(-score, dim=-1)",
        "squashing": "torch.tanh(score / scale)",
        "standardisation": "(score - score.mean()) / (score.std() + 1e-5)",
        "log1p": "torch.log1p(score.abs())",
    }
    part, expression = d.pick(*after.items())
    if "scale" in expression:
        d.let("scale", "score.abs().mean() + 1e-6")
    if expression:
        d.let("score", expression, part)
    d.result = "score"


def probability(d: ProblemDraft) -> None:
    """Log-densities, divergences and samples of common distributions."""
    layout = d.pick(rows, tokens, images)
    layout(d)
    d.inputs = {}
    how = {
        "Gaussian log-density": "-0.5 * ((x - mean) / std).square() - torch.log(std) - 0.9189",
        "Laplace log-density": "-(x - mean).abs() / std - torch.log(2.0 * std)",
        "Cauchy log-density": "-torch.log1p(((x - mean) / std).square()) - torch.log(3.1416 * std)",
        "logistic log-density": (
            "-(x - mean) / std - 2.0 * F.softplus(-(x - mean) / std) - torch.log(std)"
        ),
        "Student-t log-density": (
            "-2.5 * torch.log1p(((x - mean) / std).square() / 4.0) - torch.log(std)"
        ),
        "Gaussian cumulative distribution": "0.5 * (1.0 + torch.erf((x - mean) / (1.4142 * std)))",
        "reparametrised Gaussian sample": "mean + std * x",
        "reparametrised and squashed sample": "torch.tanh(mean + std * x)",
        "concrete sample": "torch.sigmoid((mean + x) / std)",
        "KL divergence to a standard Gaussian": (
            "0.5 * (mean.square() + std.square() - 1.0) - torch.log(std) + 0.01 * x"
        ),
        "expected improvement": (
            "std * torch.exp(-0.5 * ((x - mean) / std).square()) * 0.3989 + F.relu(x - mean)"
        ),
        "Gumbel log-density": "-(x - mean) / std - torch.exp(-((x - mean) / std).clamp(min=-3.0))",
    }
    name, formula = d.pick(*how.items())
    if name.startswith("KL"):
        formula = formula.removesuffix(" + 0.01 * x")
    else:
        d.take("x", *d.dims)
    d.take("mean", *d.dims)
    raw = d.pick("exp", "softplus", "clamped", "shared")
    channels = (d.dims[-1],) if d.axis == -1 else (d.dims[1], *("1" for _ in d.dims[2:]))
    if raw == "shared":
        std = d.parameter("log_std", *channels, draw="0.3 * torch.randn({})")
        d.let("std", f"torch.exp({std})")
    else:
        d.take("spread", *d.dims)
        forms = {"exp": "torch.exp(0.5 * {})", "softplus": "F.softplus({}) + 1e-3"}
        d.let("std", forms.get(raw, "torch.exp({}.clamp(-2.0, 1.0))").format("spread"))
    d.let("x", formula, name)
    inner = "-1" if len(d.dims) == 2 else str(tuple(range(1, len(d.dims))))
    d.result = d.pick("x", "x", "x.mean()", f"x.sum(dim={inner})", f"x.mean(dim={inner})")


def boxes_and_vectors(d: ProblemDraft) -> None:
    """Geometry: boxes, quaternions, rays, coordinates."""
    count = d.size("num_items", 4000, 6000, 10000, 16384)
    kind = d.pick(
        "boxes", "boxes", "decode", "quaternion", "rotate", "sphere", "camera", "triangle"
    )
    end = d.pick("", "clamp", "tanh", "normalize", "scale", "log")
    if kind == "boxes":
        d.take("a", count, "4", draw="torch.rand({})")
        d.take("b", count, "4", draw="torch.rand({})")
        d.let("a_low, a_high", "a[:, :2], a[:, :2] + a[:, 2:]")
        d.let("b_low, b_high", "b[:, :2], b[:, :2] + b[:, 2:]")
        d.let("overlap", "F.relu(torch.minimum(a_high, b_high) - torch.maximum(a_low, b_low))")
        d.let("overlap", "overlap[:, 0] * overlap[:, 1]")
        d.let("union", "a[:, 2] * a[:, 3] + b[:, 2] * b[:, 3] - overlap")
        d.let("out", "overlap / (union + 1e-6)", "intersection over union of boxes")
        variant = d.pick("", "generalised", "distance")
        if variant:
            d.let("hull", "torch.maximum(a_high, b_high) - torch.minimum(a_low, b_low)")
            d.parts[-1] = f"{variant} {d.parts[-1]}"
        if variant == "generalised":
            d.let("area", "hull[:, 0] * hull[:, 1]")
            d.let("out", "out - (area - union) / (area + 1e-6)")
        elif variant:
            d.let("gap", "(a_low + a_high - b_low - b_high).square().sum(dim=-1) / 4.0")
            d.let("out", "out - gap / (hull.square().sum(dim=-1) + 1e-6)")
    elif kind == "decode":
        d.take("anchors", count, "4", draw="torch.rand({}) + 0.1")
        d.take("deltas", count, "4")
        d.let("center", "anchors[:, :2] + 0.1 * deltas[:, :2] * anchors[:, 2:]")
        d.let("size", "anchors[:, 2:] * torch.exp((0.2 * deltas[:, 2:]).clamp(max=4.0))")
        d.let("out", "torch.cat((center - 0.5 * size, center + 0.5 * size), dim=-1)")
        d.parts.append("boxes decoded from anchors and offsets")
    elif kind == "quaternion":
        d.take("q", count, "4")
        d.take("r", count, "4")
        d.let("q", "F.normalize(q, dim=-1)")
        d.let("a, b, c, d", "q.unbind(-1)")
        d.let("e, f, g, h", "r.unbind(-1)")
        d.let(
            "first",
            "torch.stack((a * e - b * f - c * g - d * h, a * f + b * e + c * h - d * g), -1)",
        )
        d.let(
            "last",
            "torch.stack((a * g - b * h + c * e + d * f, a * h + b * g - c * f + d * e), -1)",
        )
        d.let("out", "torch.cat((first, last), dim=-1)", "product of quaternions")
    elif kind == "rotate":
        d.take("points", count, "2")
        d.take("angle", count)
        d.let("cos, sin", "torch.cos(angle), torch.sin(angle)")
        d.let("x, y", "points.unbind(-1)")
        d.let("out", "torch.stack((cos * x - sin * y, sin * x + cos * y), dim=-1)")
        d.parts.append("points rotated by angles")
    elif kind == "sphere":
        d.take("points", count, "3")
        d.let("x, y, z", "points.unbind(-1)")
        d.let("radius", "torch.sqrt(x * x + y * y + z * z + 1e-6)")
        d.let("polar", "torch.acos((z / radius).clamp(-0.999, 0.999))")
        d.let("out", "torch.stack((radius, polar, torch.atan2(y, x)), dim=-1)")
        d.parts.append("spherical coordinates")
    elif kind == "camera":
        d.take("points", count, "3", draw="torch.rand({}) + 0.5")
        focal = d.parameter("focal", "2", draw="torch.rand({}) + 0.5")
        offset = d.parameter("center", "2")
        d.let("out", f"points[:, :2] / points[:, 2:] * {focal} + {offset}", "pinhole projection")
        if d.chance(0.5):
            d.let("radius", "out.square().sum(dim=-1, keepdim=True)")
            d.let("out", "out * (1.0 + 0.1 * radius)", "radial distortion")
    else:
        for name in ("a", "b", "c"):
            d.take(name, count, "3")
        d.let("normal", "torch.linalg.cross(b - a, c - a)")
        d.let("out", "0.5 * torch.linalg.vector_norm(normal, dim=-1)", "areas of triangles")
    _finish_geometry(d, "tanh" if kind == "camera" else end)
    d.result = "out"


def _finish_geometry(d: ProblemDraft, end: str) -> None:
    how = {
        "clamp": ("out.clamp(-0.9, 0.9)", "clamping"),
        "tanh": ("torch.tanh(out)", "tanh"),
        "normalize": ("(out - out.mean(dim=0)) / (out.std(dim=0) + 1e-5)", "standardisation"),
        "scale": ("2.0 * out - 1.0", "rescaling"),
        "log": ("torch.log1p(out.abs())", "logarithm"),
    }
    if end:
        d.let("out", *how[end])


# --- Signals, images, physics -------------------------------------------------------------------


def image_processing(d: ProblemDraft) -> None:
    """Colour, contrast and filters of images with three channels."""
    batch, height = d.size("batch_size", 4, 6, 8), d.size("height", 56, 64, 80, 96)
    d.dims = (batch, "3", height, d.size("width", 56, 64, 80, 96))
    d.axis = 1
    d.take("x", *d.dims, draw="torch.rand({})")
    steps = {
        "gamma correction": "x.clamp(min=1e-4) ** (1.0 / 2.2)",
        "sRGB to linear light": (
            "torch.where(x <= 0.04045, x / 12.92, ((x.clamp(min=0.0) + 0.055) / 1.055) ** 2.4)"
        ),
        "contrast": "(x - x.mean(dim=(2, 3), keepdim=True)) * 1.3 + 0.5",
        "saturation": "torch.lerp(x.mean(dim=1, keepdim=True), x, 1.4)",
        "inversion": "1.0 - x",
        "solarisation": "torch.where(x > 0.5, 1.0 - x, x)",
        "tone mapping": "x / (1.0 + x.abs())",
        "horizontal flip": "x.flip(3)",
        "normalisation by mean and deviation": (
            "(x - x.mean(dim=(2, 3), keepdim=True)) / (x.std(dim=(2, 3), keepdim=True) + 1e-5)"
        ),
        "sharpening": "x + 0.5 * (x - F.avg_pool2d(x, 3, stride=1, padding=1))",
        "box blur": "F.avg_pool2d(x, 3, stride=1, padding=1)",
        "dilation": "F.max_pool2d(x, 3, stride=1, padding=1)",
        "erosion": "-F.max_pool2d(-x, 3, stride=1, padding=1)",
        "channel reversal": "x.flip(1)",
        "local contrast": "x - x.amin(dim=(2, 3), keepdim=True)",
        "downsampling": 'F.interpolate(x, scale_factor=0.5, mode="bilinear")',
        "upsampling": "F.interpolate(x, scale_factor=2.0)",
    }
    for name in d.rng.sample(sorted(steps), d.pick(2, 3, 4)):
        d.let("x", steps[name], name)
    ends = {
        "": "",
        "luma": "0.299 * x[:, 0] + 0.587 * x[:, 1] + 0.114 * x[:, 2]",
        "clamping": "x.clamp(0.05, 0.95)",
        "edges": "F.avg_pool2d((x - F.max_pool2d(x, 3, stride=1, padding=1)).abs(), 2)",
        "chroma": "x.amax(dim=1) - x.amin(dim=1)",
    }
    part, expression = d.pick(*ends.items())
    if expression:
        d.let("x", expression, part)


def image_attention(d: ProblemDraft) -> None:
    """Squeeze-and-excitation and its relatives: an image gated by its own statistics."""
    images(d)
    channels = d.argument(d.dims[1])
    kind = d.pick("squeeze", "spatial", "context", "global response", "simple", "strip")
    pooled = d.pick(
        "x.mean(dim=(2, 3))", "x.amax(dim=(2, 3))", "x.var(dim=(2, 3))", "x.logsumexp(dim=(2, 3))"
    )
    squash = d.pick("torch.sigmoid({})", "F.hardsigmoid({})", "(1.0 + torch.tanh({}))")
    inner = d.pick("F.relu({})", "F.gelu({})", "F.silu({})")
    if kind == "squeeze":
        reduced = d.argument(d.size("reduced", 2, 4))
        d.layer("down", f"nn.Linear({channels}, {reduced})")
        d.layer("up", f"nn.Linear({reduced}, {channels})")
        d.let("gate", pooled)
        d.let("gate", f"self.up({inner.format('self.down(gate)')})")
        d.let("x", f"x * {squash.format('gate')}[:, :, None, None]", "squeeze and excitation")
    elif kind == "spatial":
        weight = d.parameter("mix", "2", draw="torch.rand({}) + 0.5")
        d.let("mean, peak", "x.mean(dim=1, keepdim=True), x.amax(dim=1, keepdim=True)")
        d.let("gate", f"{weight}[0] * mean + {weight}[1] * peak")
        d.let("x", f"x * {squash.format('gate')}", "spatial gate from channel statistics")
    elif kind == "context":
        query = d.parameter("query", channels, "1", "1")
        d.let("scores", f"(x * {query}).sum(dim=1, keepdim=True).flatten(2)")
        d.let("weights", "torch.softmax(scores, dim=-1)")
        d.let("summary", "(x.flatten(2) * weights).sum(dim=-1)")
        d.let("x", f"x + {inner.format('summary')}[:, :, None, None]", "global context added")
    elif kind == "global response":
        gain, shift = (d.parameter(n, channels, "1", "1") for n in ("gain", "shift"))
        d.let("norm", "torch.linalg.vector_norm(x, dim=(2, 3), keepdim=True)")
        d.let("norm", "norm / (norm.mean(dim=1, keepdim=True) + 1e-6)")
        d.let("x", f"{gain} * (x * norm) + {shift} + x", "global response normalisation")
    elif kind == "simple":
        d.let("power", "(x - x.mean(dim=(2, 3), keepdim=True)).square()")
        d.let("energy", "power / (4.0 * (power.mean(dim=(2, 3), keepdim=True) + 1e-4)) + 0.5")
        d.let("x", f"x * {squash.format('energy')}", "parameter-free energy attention")
    else:
        how = d.pick("mean", "amax")
        d.let("rows", f"x.{how}(dim=3, keepdim=True)")
        d.let("columns", f"x.{how}(dim=2, keepdim=True)")
        gates = f"{squash.format('rows')} * {squash.format('columns')}"
        d.let("x", f"x * {gates}", "gates by rows and columns")
    if d.chance(0.7):
        chain(d, d.pick(1, 2), norm=0.0)


def image_resample(d: ProblemDraft) -> None:
    """Shuffles, pads, shifts and resizes, with elementwise work around them."""
    images(d)
    how = {
        "pixel shuffle": "F.pixel_shuffle(x, 2)",
        "pixel unshuffle": "F.pixel_unshuffle(x, 2)",
        "nearest upsampling": "F.interpolate(x, scale_factor=2.0)",
        "bilinear upsampling": 'F.interpolate(x, scale_factor=2.0, mode="bilinear")',
        "reflection padding": 'F.pad(x, (2, 2, 2, 2), mode="reflect")',
        "replication padding": 'F.pad(x, (1, 1, 1, 1), mode="replicate")',
        "constant padding": "F.pad(x, (1, 2, 1, 2), value=0.5)",
        "channel shuffle": "x.unflatten(1, (4, -1)).transpose(1, 2).flatten(1, 2)",
        "roll": "torch.roll(x, shifts=(2, -1), dims=(2, 3))",
        "centre crop": "x[:, :, 2:-2, 2:-2]",
        "channel halves swapped": "torch.cat(x.chunk(2, dim=1)[::-1], dim=1)",
        "transposition": "x.transpose(2, 3)",
    }
    if d.chance(0.5):
        activate(d)
    elif d.chance(0.5):
        normalize(d)
    name, expression = d.pick(*how.items())
    d.let("x", expression, name)
    ends = {
        "softmax over channels": "torch.softmax(x, dim=1)",
        "tanh": "torch.tanh(x)",
        "a product with SiLU": "x * F.silu(x)",
        "the channel mean subtracted": "x - x.mean(dim=1, keepdim=True)",
        "normalisation over channels": "F.normalize(x, dim=1)",
        "mean over positions": "x.square().mean(dim=(2, 3))",
        "maximum over channels": "x.amax(dim=1)",
        "clamping": "x.clamp(-1.0, 1.0)",
        "standardisation": "(x - x.mean()) / (x.std() + 1e-5)",
    }
    for part in d.rng.sample(sorted(ends), d.pick(1, 2)):
        expression = ends[part]
        if "x.square().mean" in d.body[-1] or "x.amax(dim=1)" in d.body[-1]:
            break
        d.let("x", expression, part)


def finite_differences(d: ProblemDraft) -> None:
    """One explicit time step of a differential equation on a periodic grid."""
    batch = d.size("batch_size", 4, 6, 8)
    d.dims = (batch, d.size("height", 96, 128, 150), d.size("width", 100, 128, 160))
    d.take("u", *d.dims)
    kind = d.pick("heat", "wave", "advection", "reaction", "burgers", "cahn", "sine")
    gradient = kind in {"advection", "burgers"}
    if gradient:
        upwind = d.chance(0.5)
        left = "torch.roll(u, 1, dims=-1)"
        right = "u" if upwind else "torch.roll(u, -1, dims=-1)"
        d.let("slope", f"{right} - {left}" if upwind else f"0.5 * ({right} - {left})")
    else:
        d.let("neighbours", "torch.roll(u, 1, dims=-1) + torch.roll(u, -1, dims=-1)")
        d.let("neighbours", "neighbours + torch.roll(u, 1, dims=-2) + torch.roll(u, -1, dims=-2)")
        d.let("laplacian", "neighbours - 4.0 * u")
    if kind in {"wave", "sine"}:
        d.take("previous", *d.dims)
    force = {
        "heat": "0.1 * laplacian",
        "wave": "u - previous + 0.2 * laplacian",
        "sine": "u - previous + 0.2 * laplacian - 0.1 * torch.sin(u)",
        "advection": "-0.3 * slope",
        "burgers": "-0.1 * u * slope",
        "reaction": "0.1 * laplacian + 0.05 * (u - u ** 3)",
        "cahn": "0.05 * (u - u ** 3) - 0.1 * torch.tanh(laplacian)",
    }[kind]
    names = {"heat": "Heat", "wave": "Wave", "sine": "Sine-Gordon", "advection": "Advection"}
    names |= {"burgers": "Burgers", "reaction": "Allen-Cahn", "cahn": "Phase-field"}
    extra = d.pick("", "source", "damping", "coefficient", "boundary")
    if extra == "source":
        d.take("source", *d.dims)
        force += " + 0.1 * source"
    elif extra == "damping":
        force += " - 0.02 * u"
    elif extra == "coefficient":
        rate = d.parameter("rate", d.dims[1], d.dims[2], draw="torch.rand({})")
        force = f"{rate} * ({force})"
    d.let("u", f"u + {force}".replace("+ -", "- "))
    if extra == "boundary":
        d.let("u", "F.pad(u[:, 1:-1, 1:-1], (1, 1, 1, 1))")
    d.result = d.pick("u", "u", "u, u.square().mean(dim=(-2, -1))", "u.clamp(-2.0, 2.0)")
    ends = {
        "source": " with a source",
        "damping": " with damping",
        "boundary": " with a zero border",
    }
    ends |= {"coefficient": " with a coefficient field", "": ""}
    d.summary = f"{names[kind]} equation, one explicit step on a periodic grid{ends[extra]}."


def audio_features(d: ProblemDraft) -> None:
    """Features of waveforms and spectra."""
    signal(d)
    steps = {
        "pre-emphasis": "x[..., 1:] - 0.97 * x[..., :-1]",
        "power in decibels": "10.0 * torch.log10(x.square() + 1e-6)",
        "mu-law compression": "torch.sign(x) * torch.log1p(255.0 * x.abs()) / 5.545",
        "a Hann window": "x * torch.hann_window(x.shape[-1], device=x.device)",
        "peak normalisation": "x / (x.abs().amax(dim=-1, keepdim=True) + 1e-5)",
        "mean subtraction": "x - x.mean(dim=-1, keepdim=True)",
        "energy envelope": "F.avg_pool1d(x.square(), kernel_size=8, stride=4).sqrt()",
        "root compression": "torch.sign(x) * x.abs().clamp(min=1e-4).sqrt()",
        "soft clipping": "x - x ** 3 / 3.0",
        "half-wave rectification": "F.relu(x)",
        "reversal in time": "x.flip(-1)",
        "differences in time": "x[..., 2:] - x[..., :-2]",
        "a phase rotation": "torch.cos(3.0 * x)",
        "standardisation over channels": (
            "(x - x.mean(dim=1, keepdim=True)) / (x.std(dim=1, keepdim=True) + 1e-4)"
        ),
    }
    chosen = d.rng.sample(sorted(steps), d.pick(2, 3, 4))
    for name in chosen:
        d.let("x", steps[name], name)
    ends = {
        "": "",
        "loudness": "x.square().mean(dim=-1).add(1e-6).log()",
        "softmax over channels": "torch.softmax(x, dim=1)",
        "a sum of magnitudes over channels": "x.abs().sum(dim=1)",
    }
    part, expression = d.pick(*ends.items())
    if expression:
        d.let("x", expression, part)


def state_space(d: ProblemDraft) -> None:
    """Elementwise pieces of linear attention and of state-space models."""
    tokens(d)
    hidden = d.dims[-1]
    kind = d.pick("decay", "feature", "discretise", "shift", "mix", "router")
    if kind == "decay":
        d.take("rate", *d.dims)
        d.let("decay", f"-F.softplus(rate) * {d.pick('0.1', '0.05', '0.02')}")
        d.let("weight", "torch.exp(torch.cumsum(decay, dim=1))")
        d.let("x", d.pick("x * weight", "torch.cumsum(x * weight, dim=1)", "x * (1.0 - weight)"))
        d.parts.append("data-dependent cumulative decay")
    elif kind == "feature":
        d.take("key", *d.dims)
        form = d.pick(
            "F.elu({}) + 1.0", "F.relu({}) + 1e-2", "F.softplus({})", "torch.exp({} * 0.5)"
        )
        d.let("x", form.format("x"))
        d.let("key", form.format("key"))
        total = d.pick("torch.cumsum(key, dim=1)", "key.sum(dim=1, keepdim=True)")
        d.let("x", f"x / ((x * {total}).mean(dim=-1, keepdim=True) + 1e-6)")
        d.parts.append("linear attention normaliser")
    elif kind == "discretise":
        d.take("delta", *d.dims)
        log_a, skip = d.parameter("log_a", hidden), d.parameter("skip", hidden)
        d.let("delta", "F.softplus(delta)")
        d.let("a", f"torch.exp(-delta * torch.exp({log_a}))")
        d.let("x", d.pick("(1.0 - a) * x", "delta * a * x", "a * x") + f" + {skip} * x")
        d.parts.append("zero-order-hold discretisation of a diagonal state space")
    elif kind == "shift":
        mix = d.parameter("mix", hidden, draw="torch.rand({})")
        steps = d.pick("1", "2")
        d.let("previous", f"F.pad(x, (0, 0, {steps}, -{steps}))")
        d.let(
            "x", d.pick(f"torch.lerp(x, previous, {mix})", f"x + {mix} * (previous - x).square()")
        )
        d.parts.append("token shift")
    elif kind == "mix":
        d.take("other", *d.dims)
        rate = d.parameter("rate", hidden)
        gate = d.pick("torch.sigmoid", "torch.tanh")
        d.let("gate", f"{gate}({rate} * (x + other))")
        d.let("x", d.pick("gate * x + (1.0 - gate) * other", "x + gate * (other - x).abs()"))
        d.parts.append("gated mix of two streams")
    else:
        experts = d.size("num_experts", 4, 6, 8)
        d.take("outputs", *d.dims[:2], experts, hidden)
        d.dims, d.sizes["hidden_size"] = (*d.dims[:2], hidden), 96
        d.sizes["seq_len"] = 64
        d.inputs.pop("x")
        d.take("logits", *d.dims[:2], experts)
        form = d.pick("torch.softmax(logits, dim=-1)", "torch.sigmoid(logits)", "F.relu(logits)")
        d.let("weights", form)
        if "softmax" not in form:
            d.let("weights", "weights / (weights.sum(dim=-1, keepdim=True) + 1e-3)")
        d.let("x", "(weights[..., None] * outputs).sum(dim=2)", "experts combined by their weights")
    if d.chance(0.7):
        chain(d, d.pick(1, 2), norm=0.0 if kind == "feature" else 0.5)


def normalise_clamp_reduce(d: ProblemDraft) -> None:
    """Normalise, limit, and reduce: statistics with outliers held back."""
    any_layout(d)
    spatial = "-1" if d.axis == -1 else str(tuple(range(2, len(d.dims))))
    if spatial == "(2,)":
        spatial = "2"
    over = f"dim={spatial}, keepdim=True"
    forms = {
        "standardisation": (f"x - x.mean({over})", f"x.std({over}) + 1e-5"),
        "scaling by the mean deviation": (f"x - x.mean({over})", "x.abs().mean() + 1e-5"),
        "centring by the largest magnitude": (f"x - x.mean({over})", f"0.4 * x.abs().amax({over})"),
        "scaling by the mean magnitude": ("x", f"x.abs().mean({over}) + 1e-5"),
        "scaling by the root mean square": ("x", f"x.square().mean({over}).sqrt() + 1e-5"),
        "batch standardisation": ("x - x.mean(dim=0)", "x.std(dim=0) + 1e-4"),
    }
    name, (centred, spread) = d.pick(*forms.items())
    d.let("spread", spread)
    d.let("x", f"({centred}) / spread" if " " in centred else f"{centred} / spread", name)
    limits = {
        "clamping": "x.clamp(-2.0, 2.0)",
        "soft capping": "3.0 * torch.tanh(x / 3.0)",
        "clamping from below": "x.clamp(min=-1.0)",
        "soft shrinkage": "F.softshrink(x, lambd=0.3)",
        "winsorised squares": "x.square().clamp(max=4.0)",
        "exponential weighting": "x * torch.exp(-0.5 * x.square())",
    }
    part, expression = d.pick(*limits.items())
    d.let("x", expression, part)
    ends = {
        "mean": f"x.mean(dim={spatial})",
        "log-sum-exp": f"torch.logsumexp(x, dim={spatial})",
        "third moment": f"(x ** 3).mean(dim={spatial})",
        "fourth moment": f"(x ** 4).mean(dim={spatial})",
        "mean square": f"x.square().mean(dim={spatial})",
        "maximum": f"x.amax(dim={spatial})",
        "sum of magnitudes": f"x.abs().sum(dim={spatial})",
        "soft count above one": f"torch.sigmoid(8.0 * (x - 1.0)).sum(dim={spatial})",
        "variance": f"x.var(dim={spatial})",
    }
    if "clamp" in expression or "tanh" in expression:
        del ends["maximum"]
    end, reduced = d.pick(*ends.items())
    d.let("x", reduced, end)


FAMILIES = (
    regression_loss,
    binary_loss,
    divergence_loss,
    label_loss,
    running_statistics,
    scan,
    moving_window,
    optimizer_step,
    recurrent_cell,
    similarity,
    probability,
    boxes_and_vectors,
    image_processing,
    image_attention,
    image_resample,
    finite_differences,
    audio_features,
    state_space,
    normalise_clamp_reduce,
)
