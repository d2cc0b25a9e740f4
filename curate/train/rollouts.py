"""Answers for GRPO, written by `decode` with a copy of the weights that are being trained.

`GRPOTrainer` on its own has the model that it trains write them, in that model's precision. The
copy, for the price of its memory, writes as the model will when it is evaluated: in the same
precision, and drawn by the same code.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from curate.generate.decode import Decoder, Request
from curate.generate.sampling import Message, Sampling, prompt_tokens

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase
    from trl import GRPOTrainer


class Rollouts:
    """What TRL calls a ``rollout_func``: it answers each of a process's prompts once.

    Seeds come from PyTorch's generator, whose state is in the trainer's checkpoints.
    """

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, sampling: Sampling
    ) -> None:
        self.tokenizer, self.sampling = tokenizer, sampling
        self.decoder = Decoder(model, tokenizer)

    def __call__(
        self, prompts: Sequence[Sequence[Message]], trainer: GRPOTrainer
    ) -> dict[str, Any]:
        copy_weights(trainer.accelerator.unwrap_model(trainer.model), self.decoder.model)
        seeds = torch.randint(1 << 62, (len(prompts),)).tolist()
        asked = [prompt_tokens(self.tokenizer, prompt) for prompt in prompts]
        requests = {i: Request(asked[i], seeds[i]) for i in range(len(prompts))}
        answers = dict(self.decoder.run(requests, self.sampling))
        # Without their probabilities: the trainer finds those of the weights that it trains.
        written = [answers[i] for i in requests]
        return {"prompt_ids": asked, "completion_ids": written, "logprobs": None}


def copy_weights(trained: torch.nn.Module, copy: torch.nn.Module) -> None:
    """Give the copy the trained weights, in its own precision and where its weights are."""
    with torch.no_grad():
        for name, weight in trained.named_parameters():
            copy.get_parameter(name).copy_(weight)


def is_sharded() -> bool:
    """Return whether accelerate spreads one model's weights over several devices."""
    kinds = ("ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED")
    return any(os.environ.get(kind, "").lower() in ("1", "true") for kind in kinds)
