"""Families of compositions around products of matrices: layers, adapters, losses on logits."""

from __future__ import annotations

from curate.sources.torch_ops.draft import ProblemDraft
from curate.sources.torch_ops.families.layouts import tokens
from curate.sources.torch_ops.families.stages import GATES

_BENDS = {
    "ReLU": "F.relu({})",
    "GELU": "F.gelu({})",
    "tanh-approximated GELU": 'F.gelu({}, approximate="tanh")',
    "SiLU": "F.silu({})",
    "squared ReLU": "F.relu({}).square()",
    "leaky ReLU": "F.leaky_relu({}, 0.01)",
    "tanh": "torch.tanh({})",
}


def projection(d: ProblemDraft) -> None:
    """A linear layer with the epilogue of a transformer's or a classifier's layer."""
    _rows(d)
    inputs, outputs = d.dims[-1], d.size("out_features", 96, 160, 256, 320)
    bias = d.pick("", ", bias=False")
    d.layer("linear", f"nn.Linear({d.argument(inputs)}, {d.argument(outputs)}{bias})")
    d.let("h", "self.linear(x)", "linear layer")
    if d.chance(0.7):
        name, call = d.pick(*_BENDS.items())
        d.let("h", call.format("h"), name)
    d.dims = (*d.dims[:-1], outputs)
    epilogue = d.pick("residual", "scaled residual", "gate", "mask", "")
    if "residual" in epilogue:
        d.take("residual", *d.dims)
        if epilogue == "scaled residual":
            gamma = d.parameter("gamma", outputs, draw="torch.full(({},), 0.1)")
            d.let("h", f"residual + {gamma} * h", "layer scale and a residual")
        else:
            d.let("h", "residual + h", "a residual")
    elif epilogue == "gate":
        d.take("gate", d.dims[0], *("1" for _ in d.dims[1:-1]), outputs)
        d.let("h", "h * torch.sigmoid(gate)", "a gate per sample")
    elif epilogue == "mask":
        d.inputs["keep"] = f"torch.rand({', '.join(d.dims)}) > 0.1"
        d.let("h", "torch.where(keep, h / 0.9, 0.0)", "dropout by a given mask")
    norm = d.pick("layer", "rms", "softmax", "")
    if norm == "layer":
        d.layer("norm", f"nn.LayerNorm({outputs})")
        d.let("h", "self.norm(h)", "layer norm")
    elif norm == "rms":
        weight = d.parameter("weight", outputs, draw="torch.ones({})")
        d.let("power", "h.float().square().mean(dim=-1, keepdim=True)")
        d.let("h", f"(h * torch.rsqrt(power + 1e-6)).to(h.dtype) * {weight}", "RMS norm")
    elif norm == "softmax":
        d.let("h", "torch.log_softmax(h, dim=-1)", "log-softmax")
    d.result = "h"


def _rows(d: ProblemDraft) -> None:
    if d.chance(0.6):
        tokens(d)
    else:
        d.dims = (d.size("batch_size", 64, 96, 128), d.size("in_features", 128, 192, 256))
        d.take("x", *d.dims)


def feed_forward(d: ProblemDraft) -> None:
    """A feed-forward block: up, activation or gate, down, and what stands around it."""
    tokens(d)
    hidden = d.argument(d.dims[-1])
    wide = d.argument(d.size("intermediate_size", 256, 384, 512))
    bias = d.pick("", ", bias=False")
    source = "x"
    if d.chance(0.6):
        kind = d.pick("LayerNorm", "RMSNorm")
        d.layer("norm", f"nn.{kind}({hidden})")
        source = d.let("h", "self.norm(x)", "layer norm" if kind == "LayerNorm" else "RMS norm")
    if d.chance(0.5):
        name, gate = d.pick(*list(GATES.items())[:4])
        if d.chance(0.5):
            d.layer("gate_up", f"nn.Linear({hidden}, 2 * {wide}{bias})")
            d.let("gate, up", f"self.gate_up({source}).chunk(2, dim=-1)")
        else:
            d.layer("gate_proj", f"nn.Linear({hidden}, {wide}{bias})")
            d.layer("up_proj", f"nn.Linear({hidden}, {wide}{bias})")
            d.let("gate, up", f"self.gate_proj({source}), self.up_proj({source})")
        d.let("h", f"{gate.format('gate')} * up", f"a unit gated by {name}")
    else:
        name, call = d.pick(*_BENDS.items())
        d.layer("up_proj", f"nn.Linear({hidden}, {wide}{bias})")
        d.let("h", call.format(f"self.up_proj({source})"), f"an up projection, {name}")
    d.layer("down_proj", f"nn.Linear({wide}, {hidden}{bias})")
    d.let("h", "self.down_proj(h)", "a down projection")
    d.result = "h"
    if d.chance(0.7):
        d.result = "x + h"
        d.parts.append("a residual")


def adapter(d: ProblemDraft) -> None:
    """A frozen linear layer with a low-rank update, or factors in its place."""
    _rows(d)
    inputs, outputs = d.argument(d.dims[-1]), d.argument(d.size("out_features", 128, 192, 320))
    rank = d.argument(d.size("rank", 8, 16, 32))
    kind = d.pick("lora", "lora", "factors", "magnitude")
    d.layer("down", f"nn.Linear({inputs}, {rank}, bias=False)")
    d.layer("up", f"nn.Linear({rank}, {outputs}, bias=False)")
    d.result = "out"
    if kind == "factors":
        d.let("out", "self.up(self.down(x))", "a linear layer in two factors")
        if d.chance(0.6):
            name, call = d.pick(*_BENDS.items())
            d.let("out", call.format("out"), name)
        return
    d.layer("base", f"nn.Linear({inputs}, {outputs}{d.pick('', ', bias=False')})")
    if kind == "lora":
        d.layers.append(f"self.scaling = {d.pick('16.0', '32.0')} / {rank}")
        d.let("out", "self.base(x) + self.scaling * self.up(self.down(x))")
        d.parts.append("a linear layer with a low-rank update")
    else:
        d.parameter("magnitude", outputs, draw="torch.rand({}) + 0.5")
        d.let("weight", "self.base.weight + self.up.weight @ self.down.weight")
        d.let("norm", "torch.linalg.vector_norm(weight, dim=1, keepdim=True)")
        d.let("weight", "self.magnitude[:, None] * weight / norm")
        d.let("out", "F.linear(x, weight, self.base.bias)")
        d.parts.append("a low-rank update with a magnitude per output")


def linear_cross_entropy(d: ProblemDraft) -> None:
    """Hidden states to logits to a loss, without a use for the logits themselves."""
    count, hidden = d.size("num_tokens", 96, 128, 192), d.size("hidden_size", 96, 128, 192)
    classes = d.size("vocab_size", 500, 1000, 1200)
    d.take("hidden", count, hidden)
    d.inputs["labels"] = f"torch.randint({classes}, ({count},))"
    ignoring = d.chance(0.4)
    if ignoring:
        d.take("keep", count, draw="torch.rand({}) > 0.2")
    d.layer("head", f"nn.Linear({d.argument(hidden)}, {d.argument(classes)}, bias=False)")
    d.let("logits", "self.head(hidden)", "a classifier's logits")
    if d.chance(0.4):
        cap = d.pick("15.0", "30.0")
        d.let("logits", f"{cap} * torch.tanh(logits / {cap})", "soft-capped")
    elif d.chance(0.3):
        d.let("logits", "logits / 0.8", "tempered")
    kind = d.pick("library", "formula", "smoothed", "z")
    if kind == "library":
        d.let("loss", 'F.cross_entropy(logits, labels, reduction="none")', "cross-entropy")
    elif kind == "smoothed":
        call = 'F.cross_entropy(logits, labels, reduction="none", label_smoothing=0.1)'
        d.let("loss", call, "cross-entropy with smoothed labels")
    else:
        d.let("log_z", "torch.logsumexp(logits, dim=-1)")
        d.let("loss", "log_z - logits.gather(1, labels[:, None]).squeeze(1)", "cross-entropy")
        if kind == "z":
            d.let("loss", "loss + 1e-3 * log_z.square()", "a penalty on the partition")
    if ignoring:
        d.let("loss", "torch.where(keep, loss, 0.0)", "ignored tokens left out")
        d.result = d.pick("loss.sum() / keep.sum().clamp(min=1)", "loss")
    else:
        d.result = d.pick("loss.mean()", "loss", "loss.sum()")


def contrastive(d: ProblemDraft) -> None:
    """Similarities of all pairs of two sets of embeddings, and a loss on them."""
    count, dim = d.size("batch_size", 64, 96, 128), d.size("embed_dim", 64, 128, 192)
    d.take("images", count, dim)
    d.take("texts", count, dim)
    kind = d.pick("clip", "siglip", "simclr", "margin", "kernel")
    if kind != "kernel":
        for name in ("images", "texts"):
            d.let(name, f"F.normalize({name}, dim=-1)")
    if kind == "clip":
        d.layer("log_scale", "nn.Parameter(torch.tensor(2.66))")
        d.let("logits", "self.log_scale.exp() * images @ texts.t()", "similarities of all pairs")
        d.let("own", "logits.diagonal()")
        d.let("rows", "(torch.logsumexp(logits, dim=1) - own).mean()")
        d.let("cols", "(torch.logsumexp(logits, dim=0) - own).mean()")
        d.result = "0.5 * (rows + cols)"
        d.parts.append("cross-entropy along both axes")
    elif kind == "siglip":
        d.layer("scale", "nn.Parameter(torch.tensor(10.0))")
        d.layer("bias", "nn.Parameter(torch.tensor(-5.0))")
        d.let("logits", "self.scale * images @ texts.t() + self.bias", "logits of all pairs")
        d.let("signs", "2.0 * torch.eye(logits.shape[0], device=logits.device) - 1.0")
        d.result = "-F.logsigmoid(signs * logits).sum(dim=-1).mean()"
        d.parts.append("a sigmoid loss")
    elif kind == "simclr":
        d.let("logits", f"images @ texts.t() / {d.pick('0.1', '0.07', '0.2')}", "similarities")
        d.result = d.pick("torch.log_softmax(logits, dim=-1)", "torch.softmax(logits, dim=-1)")
        d.parts.append("softmax of each row with a temperature")
    elif kind == "margin":
        d.let("scores", "images @ texts.t()", "similarities of all pairs")
        d.let("own", "scores.diagonal()[:, None]")
        d.result = "F.relu(0.2 + scores - own).mean(dim=-1)"
        d.parts.append("a margin to each row's own pair")
    else:
        d.let("squares", "images.square().sum(dim=1)[:, None] + texts.square().sum(dim=1)")
        d.let("distance", "(squares - 2.0 * images @ texts.t()).clamp(min=0.0)")
        ends = {
            "torch.exp(-distance / (2.0 * images.shape[1]))": "a Gaussian kernel",
            "1.0 / (1.0 + distance)": "a Student kernel",
            "distance.amin(dim=1)": "each row's nearest",
        }
        d.result, part = d.pick(*ends.items())
        d.parts += ["squared distances of all pairs by one product", part]


def grouped_product(d: ProblemDraft) -> None:
    """A product per group, expert or head, with its own weights and epilogue."""
    groups, rows = d.size("num_groups", 3, 4, 6, 8), d.size("rows", 48, 64, 96)
    inner, outputs = d.size("in_features", 64, 96, 128), d.size("out_features", 80, 128, 160)
    d.take("x", groups, rows, inner)
    weight = d.parameter("weight", groups, inner, outputs, draw="torch.randn({}) * 0.05")
    how = d.pick(f"torch.bmm(x, {weight})", f'torch.einsum("gmk,gkn->gmn", x, {weight})')
    d.let("h", how, "a product per group")
    if d.chance(0.7):
        bias = d.parameter("bias", groups, "1", outputs)
        d.let("h", f"h + {bias}", "a bias")
    end = d.pick("bend", "gated", "routed", "softmax")
    if end == "bend":
        name, call = d.pick(*_BENDS.items())
        d.let("h", call.format("h"), name)
    elif end == "gated":
        d.take("up", groups, rows, outputs)
        d.let("h", f"{d.pick('F.silu(h)', 'F.gelu(h)')} * up", "a gate on a second input")
    elif end == "routed":
        d.take("share", groups, rows, draw="torch.rand({})")
        d.let("h", "(h * share[..., None]).sum(dim=0)", "groups combined by their shares")
    else:
        d.let("h", "torch.softmax(h, dim=-1)", "softmax")
    d.result = "h"


FAMILIES = (
    projection,
    feed_forward,
    adapter,
    linear_cross_entropy,
    contrastive,
    grouped_product,
)
