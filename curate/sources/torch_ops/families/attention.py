"""Families of compositions that attend: prefill, decoding, whole layers, linear attention."""

from __future__ import annotations

from curate.sources.torch_ops.draft import ProblemDraft


def attention_prefill(d: ProblemDraft) -> None:
    """Attention of a whole sequence to itself: full, causal, in a window, with few key heads."""
    batch, heads = d.size("batch_size", 1, 2, 3), d.size("num_heads", 4, 6, 8)
    length, dim = d.size("seq_len", 96, 128, 160), d.size("head_dim", 32, 64, 64, 80, 128)
    grouped = d.chance(0.35)
    shared = _key_heads(d) if grouped else heads
    d.take("q", batch, heads, length, dim)
    d.take("k", batch, shared, length, dim)
    d.take("v", batch, shared, length, dim)
    if grouped:
        _repeat_heads(d)
    if d.chance(0.25):
        _library(d)
        return
    _scores(d, dim)
    if d.chance(0.3):
        cap = d.pick("30.0", "50.0")
        d.let("scores", f"{cap} * torch.tanh(scores / {cap})", "soft-capped")
    if d.chance(0.2):
        d.take("bias", heads, length, length)
        d.let("scores", "scores + bias", "with a position bias")
    _mask(d, d.pick("causal", "causal", "window", "padding", ""))
    _weigh(d)
    _merge(d)


def _key_heads(d: ProblemDraft) -> str:
    """Set a number of key heads that divides that of the query heads."""
    heads = d.sizes["num_heads"]
    return d.size("num_kv_heads", *(n for n in (1, 2, 3, 4) if heads % n == 0 and n < heads))


def _repeat_heads(d: ProblemDraft) -> None:
    d.let("groups", "q.shape[1] // k.shape[1]")
    for name in ("k", "v"):
        d.let(name, f"{name}.repeat_interleave(groups, dim=1)")
    d.parts.append("grouped-query attention")


def _library(d: ProblemDraft) -> None:
    causal = d.chance(0.6)
    call = "F.scaled_dot_product_attention(q, k, v, is_causal=True)"
    d.let("out", call if causal else call.replace(", is_causal=True", ""))
    d.parts.append("causal attention" if causal else "scaled dot-product attention")
    _merge(d)


def _scores(d: ProblemDraft, dim: str) -> None:
    scale = d.pick("attribute", "attribute", "shape")
    if scale == "attribute":
        factor = d.layer("scale", f"{d.argument(dim)} ** -0.5")
        product = f"torch.matmul(q, k.transpose(-2, -1)) * {factor}"
    else:
        product = "torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.shape[-1])"
    d.let("scores", product, "scaled scores")


def _mask(d: ProblemDraft, kind: str) -> None:
    if kind in {"causal", "window"}:
        d.let("rows", "torch.arange(scores.shape[-2], device=scores.device)[:, None]")
        d.let("cols", "torch.arange(scores.shape[-1], device=scores.device)[None, :]")
    if kind == "causal":
        d.let("scores", 'scores.masked_fill(cols > rows, float("-inf"))', "a causal mask")
    elif kind == "window":
        window = d.layer("window", d.argument(d.size("window", 16, 32, 48)))
        d.let("hidden", f"(cols > rows) | (rows - cols >= {window})")
        d.let("scores", 'scores.masked_fill(hidden, float("-inf"))', "a sliding window")
    elif kind == "padding":
        d.inputs["lengths"] = "torch.randint(1, seq_len + 1, (batch_size,))"
        d.let("cols", "torch.arange(scores.shape[-1], device=scores.device)")
        d.let("hidden", "cols >= lengths[:, None, None, None]")
        d.let("scores", 'scores.masked_fill(hidden, float("-inf"))', "padding masked")


def _weigh(d: ProblemDraft) -> None:
    if d.chance(0.2):
        d.let("weights", "torch.softmax(scores.float(), dim=-1).to(q.dtype)", "softmax in float32")
    else:
        d.let("weights", "torch.softmax(scores, dim=-1)", "softmax")
    d.let("out", "torch.matmul(weights, v)", "weighted values")


def _merge(d: ProblemDraft) -> None:
    """Return the result, at times with the heads of a token next to each other."""
    d.result = "out"
    if d.chance(0.4):
        d.let("out", "out.transpose(1, 2).flatten(2)", "heads merged")


def attention_decode(d: ProblemDraft) -> None:
    """Attention of one new token per sequence to a cache of keys and values."""
    batch, heads = d.size("batch_size", 4, 6, 8), d.size("num_heads", 4, 8)
    cached, dim = d.size("cache_len", 128, 192, 256), d.size("head_dim", 32, 64, 128)
    shared = _key_heads(d) if d.chance(0.5) else heads
    d.take("q", batch, heads, "1", dim)
    d.take("k_cache", batch, shared, cached, dim)
    d.take("v_cache", batch, shared, cached, dim)
    if d.chance(0.7):
        d.inputs["lengths"] = f"torch.randint(1, {cached} + 1, ({batch},))"
    if shared != heads:
        d.let("q", "q.view(q.shape[0], k_cache.shape[1], -1, q.shape[-1])")
        d.parts.append("queries that share a key head side by side")
    d.let("scores", "torch.matmul(q, k_cache.transpose(-2, -1)) / math.sqrt(q.shape[-1])")
    d.parts.append("one token's scores against cached keys")
    if "lengths" in d.inputs:
        d.let("places", "torch.arange(scores.shape[-1], device=scores.device)")
        d.let("unused", "places >= lengths[:, None, None, None]")
        d.let("scores", 'scores.masked_fill(unused, float("-inf"))', "unused places masked")
    d.let("weights", "torch.softmax(scores, dim=-1)", "softmax")
    d.let("out", "torch.matmul(weights, v_cache)", "weighted values")
    d.result = d.pick("out", "out.flatten(1)")


def attention_layer(d: ProblemDraft) -> None:
    """A layer of attention with its projections, and what stands around it."""
    batch, length = d.size("batch_size", 2, 3), d.size("seq_len", 64, 96, 128)
    dim, heads = d.size("hidden_size", 128, 192, 256), d.size("num_heads", 4, 8)
    d.argument(dim)
    d.take("x", batch, length, dim)
    d.layer("num_heads", d.argument(heads))
    cross = d.chance(0.3)
    if cross:
        d.take("context", batch, d.size("context_len", 40, 77, 100), dim)
    norm = d.pick("layer", "rms", "")
    if norm:
        d.layer("norm", f"nn.{'LayerNorm' if norm == 'layer' else 'RMSNorm'}({dim})")
        d.let("h", "self.norm(x)", "layer norm" if norm == "layer" else "RMS norm")
    source = "h" if norm else "x"
    bias = d.pick("", ", bias=False")
    if cross:
        d.layer("q_proj", f"nn.Linear({dim}, {dim}{bias})")
        d.layer("kv_proj", f"nn.Linear({dim}, 2 * {dim}{bias})")
        d.let("q", f"self.q_proj({source})")
        d.let("k, v", "self.kv_proj(context).chunk(2, dim=-1)", "cross-attention")
    else:
        d.layer("qkv", f"nn.Linear({dim}, 3 * {dim}{bias})")
        d.let("q, k, v", f"self.qkv({source}).chunk(3, dim=-1)", "self-attention")
    for name in "qkv":
        d.let(name, f"{name}.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)")
    if d.chance(0.3):
        for name in "qk":
            d.let(name, f"F.normalize({name}, dim=-1)")
        d.parts.append("normalised queries and keys")
    causal = ", is_causal=True" if not cross and d.chance(0.5) else ""
    d.let("out", f"F.scaled_dot_product_attention(q, k, v{causal})")
    d.parts[-1] += " with a causal mask" if causal else ""
    d.layer("out_proj", f"nn.Linear({dim}, {dim}{bias})")
    d.let("out", "self.out_proj(out.transpose(1, 2).flatten(2))", "an output projection")
    d.result = "out"
    if d.chance(0.6):
        d.result = "x + out"
        d.parts.append("a residual")


def linear_attention(d: ProblemDraft) -> None:
    """Attention without a softmax over keys: a product of keys and values comes first."""
    batch, heads = d.size("batch_size", 2, 4), d.size("num_heads", 4, 8)
    length, dim = d.size("seq_len", 128, 192, 256), d.size("head_dim", 32, 64)
    for name in "qkv":
        d.take(name, batch, heads, length, dim)
    feature = d.pick("F.elu({}) + 1.0", "F.relu({})", "torch.exp({} - 1.0)", "softmax")
    if feature == "softmax":
        d.let("q", "torch.softmax(q, dim=-1) * q.shape[-1] ** -0.5")
        d.let("k", "torch.softmax(k, dim=-2)")
        d.parts.append("softmax of queries over features and of keys over positions")
    else:
        d.let("q", feature.format("q"))
        d.let("k", feature.format("k"), "feature maps of queries and keys")
    d.let("state", "torch.matmul(k.transpose(-2, -1), v)", "a state of keys and values")
    d.let("out", "torch.matmul(q, state)", "read by queries")
    if feature != "softmax" and d.chance(0.7):
        d.let("total", "torch.matmul(q, k.sum(dim=-2).unsqueeze(-1))")
        d.let("out", "out / (total + 1e-6)", "divided by the sum of weights")
    _merge(d)


FAMILIES = (attention_prefill, attention_decode, attention_layer, linear_attention)
