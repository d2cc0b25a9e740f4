"""Answers of transformers' models, many at once with `generate`, each drawn on its own.

`generate` draws all of a batch from one generator, so that an answer depends on its neighbours.
Here each answer has random numbers of its own: a `LogitsProcessor` leaves `generate` the token that
they choose, and no other. Whoever wants more answers per second has vLLM or an endpoint.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList
from transformers.cache_utils import Cache

from curate.generate.models import ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from curate.generate.sampling import Sampling

Key = TypeVar("Key", bound=Hashable)

MOST_SEQUENCES = 256
"""Sequences in one batch, which has its answers when the last of them has ended."""

MEMORY_SHARE = 0.8
"""Share of the device's free memory that one batch may take; half of it for the host's."""

LIKELIEST = 512
"""Tokens that are sorted first; the others only where these have less than ``top_p`` together."""


@dataclass(frozen=True)
class Request:
    """A prompt and the seed of its answer."""

    prompt: list[int]
    seed: int


class Decoder:
    """A model that answers prompts.

    Attributes:
        ends: tokens that end an answer.
        context: tokens that the model can read, of a prompt and its answer together.
    """

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        self.model = model
        self.pad = int(tokenizer.pad_token_id or 0)
        own = model.generation_config.eos_token_id if model.generation_config else None
        listed = own if isinstance(own, list) else [own]
        self.ends = {int(t) for t in [*listed, tokenizer.eos_token_id] if t is not None}
        config = model.config.get_text_config(decoder=True)
        self.context: int = getattr(config, "max_position_embeddings", None) or 1 << 20
        self.batch = MOST_SEQUENCES  # sequences; less once the device's memory did not do

    def run(
        self, requests: Mapping[Key, Request], sampling: Sampling
    ) -> Iterator[tuple[Key, list[int] | None]]:
        """Yield the tokens of every answer, with the one that ends it; None if there is no room.

        Raises:
            ModelError: the device has not enough memory for one sequence.
        """
        rooms = {key: self._room(request, sampling) for key, request in requests.items()}
        yield from ((key, None) for key, room in rooms.items() if room <= 0)
        # The longest first, so that what does not fit shows at once. Answers of a batch have the
        # same room, since all of it goes on until the last has ended.
        todo = sorted(
            (key for key, room in rooms.items() if room > 0),
            key=lambda key: (-len(requests[key].prompt), requests[key].prompt),
        )
        while todo:
            longest, room = len(requests[todo[0]].prompt), rooms[todo[0]]
            most = min(self.batch, self._fitting(longest, room))
            now = [key for key in todo[:most] if rooms[key] == room]
            answers: list[list[int]] = []
            try:
                answers = self._answers([requests[key] for key in now], room, sampling)
            except torch.OutOfMemoryError as error:
                if len(now) == 1:
                    raise ModelError(
                        f"not enough memory for one answer of {longest + room} tokens: {error}"
                    ) from error
                self.batch = len(now) // 2
            _free_memory()
            yield from zip(now, answers, strict=False)  # there are none where memory ran out
            todo = todo[len(answers) :]

    def steps(self, request: Request, sampling: Sampling) -> Iterator[list[int] | None]:
        """Yield the tokens of one answer so far, after every token."""
        room = self._room(request, sampling)
        if room <= 0:
            yield None
            return
        draws = _uniforms([request.seed], room).to(self.model.device)
        read = torch.tensor([request.prompt], device=self.model.device)
        held: dict[str, Any] = {}
        tokens: list[int] = []
        while len(tokens) < room and not self.ends.intersection(tokens[-1:]):
            with torch.no_grad():
                output: Any = self.model(input_ids=read, use_cache=True, logits_to_keep=1, **held)
            # Releases of transformers differ in what they call the cache.
            held = {name: value for name, value in output.items() if isinstance(value, Cache)}
            logits = output.logits[:, -1].float()
            chosen = choose(logits, draws[:, len(tokens)], sampling.temperature, sampling.top_p)
            tokens.append(int(chosen))
            yield list(tokens)
            read = chosen[:, None]

    def _room(self, request: Request, sampling: Sampling) -> int:
        """Return how many tokens an answer may have."""
        return min(sampling.max_tokens, self.context - len(request.prompt))

    def _answers(
        self, requests: Sequence[Request], room: int, sampling: Sampling
    ) -> list[list[int]]:
        """Return the answers to prompts that all leave so much room."""
        device = self.model.device
        widest = max(len(request.prompt) for request in requests)
        ids = torch.full((len(requests), widest), self.pad)
        mask = torch.zeros_like(ids)
        for row, request in enumerate(requests):
            ids[row, widest - len(request.prompt) :] = torch.tensor(request.prompt)
            mask[row, widest - len(request.prompt) :] = 1
        draws = _uniforms([request.seed for request in requests], room).to(device)
        # `generate` takes what it is not told from the model's own configuration, such as a penalty
        # for what was said before.
        own, self.model.generation_config = self.model.generation_config, GenerationConfig()
        try:
            written: torch.Tensor = self.model.generate(
                input_ids=ids.to(device),
                attention_mask=mask.to(device),
                do_sample=False,
                max_new_tokens=room,
                eos_token_id=sorted(self.ends) or None,
                pad_token_id=self.pad,
                logits_processor=LogitsProcessorList([_Draw(draws, widest, sampling)]),
            )
        finally:
            self.model.generation_config = own
        return [self._ended(row) for row in written[:, widest:].tolist()]

    def _ended(self, tokens: list[int]) -> list[int]:
        """Return tokens up to the first that ends an answer; `generate` fills rows up."""
        end = next((i for i, token in enumerate(tokens) if token in self.ends), len(tokens))
        return tokens[: end + 1]

    def _fitting(self, prompt: int, room: int) -> int:
        """Return how many prompts and answers of a length fit in what memory is free."""
        config = self.model.config.get_text_config(decoder=True)
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
        layers, width = config.num_hidden_layers, self.model.dtype.itemsize
        groups = config.num_attention_heads // heads
        # A layer's keys and values may be repeated for every head of a group while it is at work,
        # and are copied at every token.
        cache = 2 * heads * size * width * (prompt + room) * (layers + groups + 1)
        # Every prompt is read for itself: a layer's states, the norm's in single precision, a mask.
        states = width * (4 * config.hidden_size + 3 * inner) + 8 * config.hidden_size
        reading = prompt * states + prompt * prompt * (width + 1)
        logits = 28 * config.vocab_size  # in single precision, copied, sorted, summed
        return max(1, int(free_memory(self.model.device) / (cache + max(reading, logits))))


class _Draw(LogitsProcessor):
    """Leaves of every row's tokens the one that the row's own random number chooses."""

    def __init__(self, draws: torch.Tensor, prompt: int, sampling: Sampling) -> None:
        self.draws, self.prompt, self.sampling = draws, prompt, sampling

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        draws = self.draws[:, input_ids.shape[1] - self.prompt]
        chosen = choose(scores, draws, self.sampling.temperature, self.sampling.top_p)
        return torch.full_like(scores, -torch.inf).scatter_(1, chosen[:, None], 0.0)


def free_memory(device: torch.device) -> float:
    """Return the bytes of memory that a batch may take on a device."""
    if device.type == "cuda":
        return MEMORY_SHARE * int(torch.cuda.mem_get_info(device)[0])
    return 0.5 * os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _free_memory() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def choose(
    logits: torch.Tensor, draws: torch.Tensor, temperature: float, top_p: float
) -> torch.Tensor:
    """Return the token that a random number chooses, by row.

    It is drawn from the fewest likeliest tokens that have the probability ``top_p`` together
    (Holtzman et al., "The Curious Case of Neural Text Degeneration", 2020), by the inverse of their
    cumulative distribution.

    Args:
        logits: of every token, rows by tokens.
        draws: in [0, 1), by row.
        temperature: 0 chooses the likeliest.
        top_p: above 0, at most 1.
    """
    if temperature == 0:
        return logits.argmax(-1)
    probabilities = torch.softmax(logits.float() / temperature, dim=-1)
    if top_p == 1:  # no need to sort
        every = torch.arange(probabilities.shape[-1], device=logits.device)
        return _nucleus(probabilities, every.expand_as(probabilities), draws, top_p)
    values, order = probabilities.topk(min(LIKELIEST, probabilities.shape[-1]), dim=-1)
    chosen = _nucleus(values, order, draws, top_p)
    flat = (values.sum(-1) < top_p).nonzero()[:, 0]
    if len(flat):
        values, order = probabilities[flat].sort(dim=-1, descending=True)
        chosen[flat] = _nucleus(values, order, draws[flat], top_p)
    return chosen


def _nucleus(
    values: torch.Tensor, order: torch.Tensor, draws: torch.Tensor, top_p: float
) -> torch.Tensor:
    """Draw from the first probabilities that have ``top_p`` together; ``order`` has the tokens."""
    sums = values.cumsum(-1)
    last = (sums < top_p).sum(-1, keepdim=True).clamp(max=sums.shape[-1] - 1)
    target = draws[:, None] * sums.gather(-1, last)
    place = torch.minimum(torch.searchsorted(sums, target, right=True), last)
    return order.gather(-1, place)[:, 0]


def _uniforms(seeds: Sequence[int], n: int) -> torch.Tensor:
    """Return n random numbers in [0, 1) for every seed; rows of more begin with those of fewer."""
    return torch.stack(
        [torch.rand(n, generator=torch.Generator().manual_seed(seed)) for seed in seeds]
    )
