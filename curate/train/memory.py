"""How much memory a training takes at its peak, told before anything large is loaded.

Parameters, gradients and the two moments of Adam are counted as in Rajbhandari et al. 2019
(https://arxiv.org/abs/1910.02054, section 3.1); activations per layer as in Korthikanti et al. 2022
(https://arxiv.org/abs/2205.05198, section 4.1), for what today's decoders are made of: RMSNorm in
float32, a gated MLP, no dropout, attention that does not keep its scores. The last layer's logits
are often the largest single thing of a small model, tokens times vocabulary; TRL computes them in
tiles (``trl.kernels.chunked_logprob``), so it is a tile that is counted.

What is not counted: what the device's driver takes for itself, fragments between tensors, and
copies of gradients that several processes exchange.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from curate.generate.models import ModelError, default_dtype, load_config
from curate.train.options import TrainOptions

FLOAT32, BFLOAT16, BOOL, FOUR_BITS = 4.0, 2.0, 1.0, 0.52
"""Bytes per number; four bits include the scales of NF4, themselves in eight bits (QLoRA, 3)."""

TILE_TOKENS, TILE_VOCABULARY = 4096, 32768
"""What TRL computes logits of at a time."""

HOST_TILES = 9
"""Tensors of a tile's shape, in float32, that TRL's loss holds on a device without Triton."""

MARGIN = 1.1
"""A training is refused that would not fit if it took this many times its estimate."""


@dataclass(frozen=True)
class Facts:
    """What the memory of a model's training depends on.

    Attributes:
        parameters: weights in all.
        linear: those in layers that adapters and four bits apply to.
        sides: sum of those layers' inputs and outputs; adapters of rank r have r times as many
            parameters.
        layers, hidden, intermediate, vocabulary: of the configuration.
        query: width of all heads.
        context: tokens that the model can read.
    """

    parameters: int
    linear: int
    sides: int
    layers: int
    hidden: int
    intermediate: int
    vocabulary: int
    query: int
    context: int


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes on one device at the peak.

    Attributes:
        parameters: weights, adapters and the copies of weights that mixed precision makes.
        gradients: of what is trained.
        optimizer: Adam's two moments of what is trained.
        activations: what the forward pass leaves for the backward pass.
        logits: a tile of logits and what the loss makes of it; or, if that is more, what the
            backward pass of one layer takes, and where layers are computed twice the layer. The
            two do not meet.
    """

    parameters: float
    gradients: float
    optimizer: float
    activations: float
    logits: float

    @property
    def total(self) -> float:
        """The sum."""
        return float(sum(dataclasses.astuple(self)))

    def line(self) -> str:
        """Return the estimate in words."""
        parts = (f"{name} {gb(value)}" for name, value in dataclasses.asdict(self).items())
        return f"{gb(self.total)}: {', '.join(parts)}"


class DoesNotFit(ModelError):
    """A training would take more memory than there is."""


def model_facts(path: str) -> Facts:
    """Return the facts of a model; its weights are not read.

    Raises:
        ModelError: there is no such model, or it is none that writes text.
    """
    import torch
    from transformers import AutoModelForCausalLM

    config = load_config(path)
    try:
        with torch.device("meta"):
            model: Any = AutoModelForCausalLM.from_config(config)
    except ValueError as error:
        raise ModelError(f"{path}: is no causal language model: {error}") from error
    head = model.get_output_embeddings()
    linear = [m for m in model.modules() if isinstance(m, torch.nn.Linear) and m is not head]
    text = config.get_text_config()
    heads = text.num_attention_heads
    width = getattr(text, "head_dim", None) or text.hidden_size // heads
    return Facts(
        parameters=model.num_parameters(),
        linear=sum(layer.weight.numel() for layer in linear),
        sides=sum(layer.in_features + layer.out_features for layer in linear),
        layers=text.num_hidden_layers,
        hidden=text.hidden_size,
        intermediate=getattr(text, "intermediate_size", None) or 4 * text.hidden_size,
        vocabulary=text.vocab_size,
        query=heads * width,
        context=text.max_position_embeddings,
    )


def estimate(facts: Facts, options: TrainOptions, length: int, device: str) -> MemoryEstimate:
    """Return what a training takes on one device.

    Args:
        facts: of the model.
        options: batch size, method and whether activations are computed twice count.
        length: tokens of the longest sequence.
        device: ``cpu``, or one with bfloat16 or without.
    """
    mixed = default_dtype(device) == "bfloat16"
    number = BFLOAT16 if mixed else FLOAT32  # of what is computed
    full = options.method in ("full", "grpo")
    trained = facts.parameters if full else options.lora_rank * facts.sides
    if full:
        parameters = facts.parameters * (FLOAT32 + (BFLOAT16 if mixed else 0))
    else:
        linear = FOUR_BITS if options.method == "qlora" else number
        parameters = facts.linear * linear + (facts.parameters - facts.linear) * number
        parameters += trained * FLOAT32
    stream = FLOAT32 if full else number  # between layers; mixed precision leaves it in float32
    tokens = options.batch_size * length
    # Rows are padded to one length, so attention is given a mask, of which every layer keeps a copy
    # in the numbers that it computes with.
    mask = tokens * length if options.batch_size > 1 else 0
    layer = tokens * _layer_bytes(facts, stream, number, full) + mask * number
    passing = tokens * (3 * facts.intermediate * number + 2 * facts.hidden * stream)
    if options.checkpointing:
        kept, again = tokens * facts.layers * facts.hidden * stream, layer + passing
    else:
        kept, again = facts.layers * layer, passing
    return MemoryEstimate(
        parameters=parameters,
        gradients=trained * FLOAT32,
        optimizer=trained * 2 * FLOAT32,
        activations=kept + mask * BOOL,
        logits=max(again, _loss_bytes(facts, tokens, number, host=device == "cpu")),
    )


def _layer_bytes(facts: Facts, stream: float, number: float, full: bool) -> float:
    """Return what one layer keeps of one token.

    Two norms keep their input in float32, the input scaled, and the output; attention its queries,
    keys and values, these two repeated for every head as they are where a batch is padded, and its
    output; the gated MLP two projections, the activation and their product. In mixed precision
    every projection keeps a copy of its own of what it reads, the first of which is counted with
    the norms; where adapters are trained it is they that keep it.
    """
    norms = 2 * facts.hidden * (FLOAT32 + stream + number)
    attention = 4 * facts.query * number
    mlp = 4 * facts.intermediate * number
    copies = 3 * facts.hidden if full else 5 * facts.hidden + facts.query + facts.intermediate
    return norms + attention + mlp + (copies * number if number < FLOAT32 else 0.0)


def _loss_bytes(facts: Facts, tokens: int, number: float, host: bool) -> float:
    """Return what the loss takes: a tile of logits, and the last layer's output and gradient."""
    rows = min(tokens, TILE_TOKENS)
    if host:  # no Triton kernel works on the tile in place
        tiles = HOST_TILES * FLOAT32 * rows * min(facts.vocabulary, TILE_VOCABULARY)
    else:
        tiles = number * rows * TILE_VOCABULARY
    return tiles + tokens * facts.hidden * 2 * FLOAT32 + facts.vocabulary * facts.hidden * number


def free_bytes(device: str) -> int:
    """Return the memory that is free on a device, or for ``cpu`` on the host."""
    if device == "cpu":
        import psutil

        return int(psutil.virtual_memory().available)
    import torch

    return int(torch.cuda.mem_get_info(device)[0])


def check(
    facts: Facts, options: TrainOptions, length: int, device: str, free: int
) -> MemoryEstimate:
    """Return the estimate of a training that fits.

    Raises:
        DoesNotFit: it does not; the message has the numbers, and what to change.
    """
    needed = estimate(facts, options, length, device)
    if needed.total * MARGIN <= free:
        return needed
    raise DoesNotFit(
        f"this training does not fit into the {gb(free)} that are free on {device}; it would take "
        f"about {needed.line()}.\n{advice(facts, options, length, device, free)}"
    )


def advice(facts: Facts, options: TrainOptions, length: int, device: str, free: float) -> str:
    """Return, in words, the first change of options that makes a training fit."""
    for changed in _smaller(options, length):
        shorter = min(length, changed.max_length or length)
        tried = estimate(facts, changed, shorter, device).total
        if tried * MARGIN <= free:
            return f"It fits with {_changes(options, changed)}: about {gb(tried)}."
    return "No option makes it fit: choose a smaller model."


def _smaller(options: TrainOptions, length: int) -> Iterator[TrainOptions]:
    """Yield options that take less and less: the same training first, then others."""
    if not options.checkpointing:
        options = dataclasses.replace(options, checkpointing=True)
        yield options
    while options.batch_size > 1:
        half = options.batch_size // 2
        more = round(options.batch_size * options.accumulation / half)
        options = dataclasses.replace(options, batch_size=half, accumulation=more)
        yield options
    if options.method == "full":
        options = dataclasses.replace(options, method="lora")
        yield options
    while length > 512:
        length //= 2
        options = dataclasses.replace(options, max_length=length)
        yield options


def _changes(old: TrainOptions, new: TrainOptions) -> str:
    """Return the options of the command line that turn one training into another."""
    words = []
    for name, value in new.to_json().items():
        if value != old.to_json()[name]:
            flag = f"--{name.replace('_', '-')}"
            words.append(flag if value is True else f"{flag} {value}")
    return " ".join(words)


def gb(size: float) -> str:
    """Return bytes in gigabytes."""
    return f"{size / 1e9:.2f} GB"
