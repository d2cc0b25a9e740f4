"""Families of compositions that choose, look up and gather: experts, top-k, embeddings, graphs."""

from __future__ import annotations

from curate.sources.torch_ops.draft import ProblemDraft


def expert_routing(d: ProblemDraft) -> None:
    """A router of a mixture of experts: logits, the best experts, their weights."""
    count, hidden = d.size("num_tokens", 96, 128, 200), d.size("hidden_size", 64, 96, 128)
    experts = d.argument(d.size("num_experts", 8, 16, 32))
    best = d.layer("top_k", d.argument(d.size("top_k", 1, 2, 4)))
    d.take("x", count, hidden)
    d.layer("router", f"nn.Linear({d.argument(hidden)}, {experts}, bias=False)")
    d.let("logits", "self.router(x)", "router logits")
    if d.chance(0.3):
        bias = d.parameter("balance", experts, draw="torch.randn({}) * 0.1")
        d.let("logits", f"logits + {bias}", "a balancing bias")
    if d.chance(0.4):
        kind = d.pick("softmax", "sigmoid")
        score = "torch.softmax(logits, dim=-1)" if kind == "softmax" else "torch.sigmoid(logits)"
        d.let("scores", score, f"scores by {kind}")
        _dense_routes(d, best)
        return
    # By logits, since scores may be equal where these are not.
    d.let("best, experts", f"torch.topk(logits, {best}, dim=-1)", "the best experts")
    kind = d.pick("softmax after", "softmax before", "sigmoid")
    if kind == "softmax after":
        d.let("weights", "torch.softmax(best, dim=-1)", "softmax of their logits")
    elif kind == "softmax before":
        d.let("total", "torch.logsumexp(logits, dim=-1, keepdim=True)")
        d.let("weights", "torch.exp(best - total)", "their shares by softmax of all")
    else:
        d.let("weights", "torch.sigmoid(best)", "weights by sigmoid")
        d.let("weights", "weights / weights.sum(dim=-1, keepdim=True)", "of sum 1")
    d.result = "weights, experts"


def _dense_routes(d: ProblemDraft, best: str) -> None:
    """Return a weight for every expert, or the loss on the experts' load."""
    d.let("least", f"torch.topk(scores, {best}, dim=-1).values[:, -1:]")
    if d.chance(0.5):
        d.let("routes", "torch.where(scores >= least, scores, 0.0)", "all but the best set to 0")
        d.result = "routes / routes.sum(dim=-1, keepdim=True)"
    else:
        d.let("load", "(scores >= least).to(scores.dtype).mean(dim=0)", "the experts' load")
        d.result = "(load * scores.mean(dim=0)).sum() * scores.shape[1]"
        d.parts.append("a loss that balances it")


def expert_layer(d: ProblemDraft) -> None:
    """All experts of a small mixture on all tokens, weighted by a router."""
    count, hidden = d.size("num_tokens", 64, 96, 128), d.size("hidden_size", 64, 96, 128)
    experts, wide = d.argument(d.size("num_experts", 4, 6, 8)), d.size("expert_size", 64, 96, 160)
    d.take("x", count, hidden)
    d.layer("router", f"nn.Linear({d.argument(hidden)}, {experts})")
    up = d.parameter("up", experts, hidden, wide, draw="torch.randn({}) * 0.05")
    d.let("shares", "torch.softmax(self.router(x), dim=-1)", "router shares")
    d.let("h", f'torch.einsum("td,edf->etf", x, {up})', "an up projection per expert")
    name, call = d.pick(("ReLU", "F.relu(h)"), ("GELU", "F.gelu(h)"), ("SiLU", "F.silu(h)"))
    d.let("h", call, name)
    if d.chance(0.6):
        down = d.parameter("down", experts, wide, hidden, draw="torch.randn({}) * 0.05")
        d.let("h", f"torch.bmm(h, {down})", "a down projection per expert")
    d.let("out", "(shares.t()[..., None] * h).sum(dim=0)", "experts combined by their shares")
    d.result = "x + out" if "down" in str(d.layers) and d.chance(0.5) else "out"


def sampling(d: ProblemDraft) -> None:
    """Logits of the next token made ready for sampling: top-k, top-p, min-p, penalties."""
    kind = d.pick("top-k", "top-k", "top-p", "min-p", "greedy")
    sorts = kind in {"top-k", "top-p"}  # candidates: a shortlist of tokens that fits one program
    batch = d.size("batch_size", 16, 24, 32)
    vocabulary = d.size("num_candidates" if sorts else "vocab_size", 500, 1000, 2000)
    d.take("logits", batch, vocabulary)
    if d.chance(0.4):
        d.take("seen", batch, vocabulary, draw="torch.rand({}) < 0.1")
        d.let("lower", "torch.where(logits > 0, logits / 1.2, logits * 1.2)")
        d.let("logits", "torch.where(seen, lower, logits)", "a repetition penalty")
    if d.chance(0.5):
        d.take("temperature", batch, "1", draw="torch.rand({}) + 0.5")
        d.let("logits", "logits / temperature", "a temperature per sequence")
    if kind == "top-k":
        best = d.layer("top_k", d.argument(d.size("top_k", 8, 20, 50)))
        d.let("least", f"torch.topk(logits, {best}, dim=-1).values[:, -1:]")
        d.let("logits", 'logits.masked_fill(logits < least, float("-inf"))', "the best k kept")
        d.result = "torch.softmax(logits, dim=-1)"
    elif kind == "top-p":
        d.let("probs", "torch.softmax(logits, dim=-1)")
        d.let("ordered, order", "torch.sort(probs, dim=-1, descending=True)")
        d.let("before", "torch.cumsum(ordered, dim=-1) - ordered")
        d.let("ordered", "torch.where(before < 0.9, ordered, 0.0)", "a nucleus of 0.9 kept")
        d.let("probs", "torch.zeros_like(probs).scatter(-1, order, ordered)")
        d.result = "probs / probs.sum(dim=-1, keepdim=True)"
    elif kind == "min-p":
        d.let("probs", "torch.softmax(logits, dim=-1)")
        d.let("least", "0.05 * probs.amax(dim=-1, keepdim=True)")
        d.let("probs", "torch.where(probs < least, 0.0, probs)", "what is unlikely left out")
        d.result = "probs / probs.sum(dim=-1, keepdim=True)"
    else:
        d.let("best", "torch.argmax(logits, dim=-1)", "the best token")
        d.let("log_probs", "torch.log_softmax(logits, dim=-1)")
        d.result = "best, log_probs.gather(-1, best[:, None]).squeeze(-1)"
        d.parts.append("its log-probability")
    if kind != "greedy":
        d.parts.append("probabilities")


def hard_examples(d: ProblemDraft) -> None:
    """What the best or worst of a row say: top-k means, sorted distances, inequality."""
    rows, cols = d.size("batch_size", 32, 64, 96), d.size("num_items", 200, 256, 400)
    kind = d.pick("top", "wasserstein", "pooling", "median", "inequality")
    d.take("x", rows, cols)
    best = str(d.pick(4, 8, 16))
    if kind == "top":
        d.take("target", rows, cols)
        d.let("loss", d.pick("(x - target).square()", "(x - target).abs()", "F.softplus(x)"))
        if "target" not in d.body[-1]:
            d.inputs.pop("target")
        d.let("worst", f"torch.topk(loss, {best}, dim=-1).values", f"the {best} largest losses")
        d.result = d.pick("worst.mean(dim=-1)", "worst.mean()", "worst")
    elif kind == "wasserstein":
        d.take("y", rows, cols)
        d.let("x", "torch.sort(x, dim=-1).values")
        d.let("y", "torch.sort(y, dim=-1).values", "both sorted")
        d.result = d.pick("(x - y).abs().mean(dim=-1)", "(x - y).square().mean(dim=-1)")
        d.parts.append("their distance")
    elif kind == "pooling":
        d.let("best", f"torch.topk(x, {best}, dim=-1).values", f"the {best} largest")
        d.let("weights", "torch.softmax(best, dim=-1)", "weighted by their softmax")
        d.result = "(weights * best).sum(dim=-1)"
    elif kind == "median":
        d.let("ordered", "torch.sort(x, dim=-1).values", "sorted rows")
        d.let("low, high", f"ordered[:, {best}:{best} + 1], ordered[:, -{best} - 1 : -{best}]")
        d.result = "torch.clamp(x, low, high)"
        d.parts.append("outliers clamped")
    else:
        d.let("ordered", "torch.sort(x.abs(), dim=-1).values", "sorted magnitudes")
        d.let("ranks", "torch.arange(1, x.shape[-1] + 1, device=x.device) / x.shape[-1]")
        d.let("total", "ordered.sum(dim=-1) + 1e-6")
        d.result = "2.0 * (ranks * ordered).sum(dim=-1) / total - 1.0"
        d.parts.append("their Gini coefficient")


def embedding_lookup(d: ProblemDraft) -> None:
    """Rows of an embedding, summed, averaged, normalised or scored."""
    batch, length = d.size("batch_size", 16, 24, 32), d.size("seq_len", 20, 32, 50)
    vocabulary, dim = d.size("vocab_size", 1000, 2000), d.size("embed_dim", 64, 96, 128)
    d.inputs["tokens"] = f"torch.randint({vocabulary}, ({batch}, {length}))"
    d.layer("embedding", f"nn.Embedding({d.argument(vocabulary)}, {d.argument(dim)})")
    d.let("x", "self.embedding(tokens)", "embedded tokens")
    kind = d.pick("mean", "weighted", "max", "position", "segments", "score")
    d.result = "x"
    if kind == "mean":
        d.let("used", "(tokens != 0).to(x.dtype)[..., None]")
        d.let("x", "(x * used).sum(dim=1) / used.sum(dim=1).clamp(min=1.0)")
        d.parts.append("the mean over what is not padding")
    elif kind == "weighted":
        d.take("weights", batch, length, draw="torch.rand({})")
        d.let("x", "(weights[..., None] * x).sum(dim=1)", "a weighted sum per bag")
    elif kind == "max":
        d.let("x", "x.amax(dim=1)", "the maximum over tokens")
    elif kind == "score":
        d.take("query", batch, dim)
        d.let("x", "(x * query[:, None, :]).sum(dim=-1)", "scores by a query")
    else:
        d.layer("positions", f"nn.Embedding({d.argument(length)}, {dim})")
        d.let("places", "torch.arange(tokens.shape[1], device=tokens.device)")
        d.let("x", "x + self.positions(places)", "positions")
        if kind == "segments":
            d.inputs["segments"] = f"torch.randint(2, ({batch}, {length}))"
            d.layer("kinds", f"nn.Embedding(2, {dim})")
            d.let("x", "x + self.kinds(segments)", "segments")
    if kind in {"position", "segments"} or d.chance(0.4):
        if kind == "score":
            d.let("x", "torch.softmax(x, dim=-1)", "softmax")
        else:
            norm = d.pick("LayerNorm", "RMSNorm")
            d.layer("norm", f"nn.{norm}({dim})")
            d.let("x", "self.norm(x)", "layer norm" if norm == "LayerNorm" else "RMS norm")


def message_passing(d: ProblemDraft) -> None:
    """Messages along the edges of a graph, summed, averaged or attended at their ends."""
    nodes, edges = d.size("num_nodes", 100, 150, 200), d.size("num_edges", 400, 600, 800)
    dim = d.size("features", 32, 48, 64)
    d.take("x", nodes, dim)
    for name in ("source", "target"):
        d.inputs[name] = f"torch.randint({nodes}, ({edges},))"
    d.let("messages", "x[source]", "messages of edges")
    weigh = d.pick("weight", "gate", "")
    if weigh == "weight":
        d.take("weight", edges, draw="torch.rand({})")
        d.let("messages", "weight[:, None] * messages", "weighted")
    elif weigh == "gate":
        d.let("messages", "torch.sigmoid(x[target]) * messages", "gated by the target")
    kind = d.pick("sum", "mean", "max", "difference")
    if kind == "max":
        call = "torch.zeros_like(x).index_reduce(0, target, messages, {})"
        d.let("out", call.format('"amax", include_self=False'), "the maximum at targets")
    else:
        d.let("out", "torch.zeros_like(x.float()).index_add(0, target, messages.float())")
        d.let("out", "out.type_as(x)", "summed at targets in float32")
    if kind == "mean":
        d.let("ones", "torch.ones_like(target).float()")
        d.let("degree", "torch.zeros_like(x[:, 0].float()).index_add(0, target, ones)")
        d.let("out", "out / degree.clamp(min=1.0).type_as(x)[:, None]", "averaged")
    elif kind == "difference":
        d.let("out", "x - 0.1 * out", "taken from the node's own")
    if d.chance(0.5):
        d.layer("linear", f"nn.Linear({d.argument(dim)}, {dim}{d.pick('', ', bias=False')})")
        d.let("out", d.pick("F.relu({})", "F.elu({})").format("self.linear(out)"), "a layer")
    d.result = "out"


def returns(d: ProblemDraft) -> None:
    """Scans along time that reinforcement learning and state spaces need, in closed form."""
    batch, length = d.size("batch_size", 16, 32, 48), d.size("seq_len", 64, 100, 128)
    d.take("x", batch, length)
    kind = d.pick("discounted", "advantage", "normalised", "survival", "segment")
    d.result = "out"
    if kind == "discounted":
        d.let("steps", "torch.arange(x.shape[1], device=x.device)")
        d.let("factors", f"{d.pick('0.99', '0.98')} ** steps")
        d.let("sums", "(x * factors).flip(1).cumsum(dim=1).flip(1)", "sums of discounted rewards")
        d.let("out", "sums / factors", "discounted returns")
        if d.chance(0.5):
            d.take("values", batch, length)
            d.let("out", "out - values", "less a baseline")
    elif kind == "advantage":
        d.take("values", batch, length)
        d.let("future", "x.flip(1).cumsum(dim=1).flip(1)", "rewards to come")
        d.let("out", "future - values", "less a baseline")
        d.let("out", "(out - out.mean()) / (out.std() + 1e-6)", "standardised")
    elif kind == "normalised":
        d.let("steps", "torch.arange(1, x.shape[1] + 1, device=x.device)")
        d.let("mean", "x.cumsum(dim=1) / steps", "running means")
        d.let("power", "x.square().cumsum(dim=1) / steps")
        d.let("out", "(x - mean) * torch.rsqrt(power - mean.square() + 1e-2)")
        d.parts.append("standardised by what came before")
    elif kind == "survival":
        d.let("hazard", "torch.sigmoid(x)", "hazards")
        d.let("log_alive", "torch.log1p(-hazard).cumsum(dim=1)", "survival by a scan")
        d.let("out", "torch.exp(log_alive)")
        d.result = d.pick("out", "out * hazard", "out, out.sum(dim=1)")
    else:
        d.take("starts", batch, length, draw="torch.rand({}) < 0.1")
        d.let("sums", "x.cumsum(dim=1)", "prefix sums")
        d.let("segments", "starts.long().cumsum(dim=1)", "numbers of segments")
        d.result = "sums, segments"


FAMILIES = (
    expert_routing,
    expert_layer,
    sampling,
    hard_examples,
    embedding_lookup,
    message_passing,
    returns,
)
