"""What a kernel's name says that it computes, whoever wrote it and in whichever language."""

from __future__ import annotations

import re

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_VERSION = re.compile(r"v\d+")

_SAY_NOTHING = frozenset(
    (
        *("kernel", "kernels", "triton", "cuda", "gpu", "device", "global", "jit"),
        *("fn", "func", "function", "op", "ops", "impl", "inner", "wrapper", "template"),
        *("launch", "launcher", "launchers", "invoke", "call", "caller", "run", "execute"),
        *("dispatch", "main", "fused", "opt", "optimized", "fast", "generic", "t"),
        *("and", "the", "of", "on", "with", "for", "by"),
    )
)

_SPELLINGS = {
    "forward": "fwd",
    "backward": "bwd",
    "grad": "bwd",
    "bprop": "bwd",
    "fprop": "fwd",
    "attention": "attn",
    "quantize": "quant",
    "quantized": "quant",
    "quantization": "quant",
    "dequantize": "dequant",
    "dequantization": "dequant",
    "convolution": "conv",
    "embedding": "emb",
    "embeddings": "emb",
    "experts": "expert",
    "tokens": "token",
    "states": "state",
    "indices": "index",
    "blocks": "block",
    "blockwise": "block",
    "voxels": "voxel",
    "features": "feature",
    "weights": "weight",
    "grouped": "group",
    "multiply": "mul",
    "activation": "act",
    "float8": "fp8",
    "float4": "fp4",
}
_PHRASES = {
    "rms_norm": "rmsnorm",
    "layer_norm": "layernorm",
    "group_norm": "groupnorm",
    "batch_norm": "batchnorm",
    "soft_max": "softmax",
    "top_k": "topk",
    "top_p": "topp",
    "cross_entropy": "crossentropy",
    "rotary_emb": "rope",
    "rotary_pos_emb": "rope",
    "rotary": "rope",
    "mat_mul": "matmul",
}


def words_of(name: str) -> frozenset[str]:
    """Return the words of a name, in one spelling, without those that say nothing.

    ``rmsNormFwdKernel`` and ``_rms_norm_forward`` give the same two words.
    """
    split = [word for word in _CAMEL.sub("_", name).lower().split("_") if word]
    spelt = "_".join(_SPELLINGS.get(word, word) for word in split)
    for phrase, word in _PHRASES.items():
        spelt = re.sub(rf"(?<![a-z0-9]){phrase}(?![a-z0-9])", word, spelt)
    return frozenset(
        word
        for word in spelt.split("_")
        if word not in _SAY_NOTHING and not _VERSION.fullmatch(word)
    )
