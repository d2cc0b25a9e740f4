"""Batched decoding with transformers' models: many answers at once, each drawn on its own.

`generate` of transformers keeps ended sequences in its batch, copies the whole cache at every
token, and draws from one generator, so that an answer depends on its neighbours. Here ended
sequences leave the batch, keys and values are written in place, a prompt is read once for all its
answers, each answer has random numbers of its own, and a GPU is given the kernels of a token as one
CUDA graph: those of a small model are done before Python has launched the next.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from curate.generate.kv_cache import CachePosition, RoomyLayer, make_cache
from curate.generate.models import ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from curate.generate.sampling import Sampling

Key = TypeVar("Key", bound=Hashable)

MOST_SEQUENCES = 1024
"""Sequences in one batch; beyond it a GPU gains nothing, and answers come late."""

MEMORY_SHARE = 0.8
"""Share of the device's free memory that one batch may take; half of it for the host's."""

LOOK_EVERY = 16
"""Tokens between two looks at which sequences have ended."""

LEAVE_SHARE = 0.125
"""Share of a batch that must have ended before the rest is moved together, which copies it."""

READ_EVERY = 256
"""Attention reads a multiple of so many tokens, of which the last may be masked."""

STEADY = ("sdpa", "eager")
"""Implementations of attention that take a mask with a number for every key."""

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
        records: whether the model's kernels are recorded as a CUDA graph.
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
        self.records = model.device.type == "cuda"

    def run(
        self, requests: Mapping[Key, Request], sampling: Sampling
    ) -> Iterator[tuple[Key, list[int] | None]]:
        """Yield the tokens of every answer, with the one that ends it; None if there is no room.

        Raises:
            ModelError: the device has not enough memory for one sequence.
        """
        fitting = []
        for key, request in requests.items():
            if len(request.prompt) < self.context:
                fitting.append(key)
            else:
                yield key, None
        # Prompts of one length side by side need no padding; the longest first, so that what does
        # not fit shows at once.
        todo = sorted(fitting, key=lambda key: (-len(requests[key].prompt), requests[key].prompt))
        while todo:
            longest = len(requests[todo[0]].prompt) + sampling.max_tokens
            now = todo[: min(self.batch, self._fitting(longest))]
            done = set()
            decoding: Decoding | None = None
            try:
                decoding = Decoding(self, [requests[key] for key in now], sampling)
                for row, tokens in decoding.answers():
                    done.add(now[row])
                    yield now[row], tokens
            except torch.OutOfMemoryError as error:
                if len(now) == 1:
                    raise ModelError(
                        f"not enough memory for one answer of {longest} tokens: {error}"
                    ) from error
                self.batch = len(now) // 2
            del decoding  # its cache goes before the next one comes
            _free_memory()
            todo = [key for key in todo if key not in done]

    def steps(self, request: Request, sampling: Sampling) -> Iterator[list[int] | None]:
        """Yield the tokens of one answer so far, after every token."""
        if len(request.prompt) >= self.context:
            yield None
            return
        decoding = Decoding(self, [request], sampling)
        while True:
            decoding.step()
            yield decoding.tokens(0)
            if decoding.ended.item():
                return
            decoding.advance()

    def _fitting(self, length: int) -> int:
        """Return how many sequences of a length fit in what memory is free."""
        config = self.model.config.get_text_config(decoder=True)
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        layers, width = config.num_hidden_layers, self.model.dtype.itemsize
        groups = config.num_attention_heads // heads
        # A layer's keys and values may be repeated for every head of a group while it is at work.
        cache = 2 * heads * size * width * length * (layers + groups)
        logits = 24 * config.vocab_size  # in single precision, sorted, summed
        return max(1, int(free_memory(self.model.device) / (cache + logits)))


def free_memory(device: torch.device) -> float:
    """Return the bytes of memory that a batch may take on a device."""
    if device.type == "cuda":
        return MEMORY_SHARE * int(torch.cuda.mem_get_info(device)[0])
    return 0.5 * os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _free_memory() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


STATE = ("mask", "positions", "limits", "draws", "written", "ended", "rows", "logits")
"""Tensors of a `Decoding` that have a row for every sequence."""


class Decoding:
    """A batch of sequences on their way; a row of it is one sequence.

    Attributes:
        ended: bool, by row: whether it is at its end.
    """

    def __init__(self, decoder: Decoder, requests: Sequence[Request], sampling: Sampling) -> None:
        self.decoder, self.model, self.sampling = decoder, decoder.model, sampling
        device = self.model.device
        prompts = list(dict.fromkeys(tuple(request.prompt) for request in requests))
        widest = max(map(len, prompts))
        most = min(sampling.max_tokens, decoder.context - min(map(len, prompts)))
        ids = torch.full((len(prompts), widest), decoder.pad)
        mask = torch.zeros(len(prompts), widest + most, dtype=torch.long)
        for row, prompt in enumerate(prompts):
            ids[row, widest - len(prompt) :] = torch.tensor(prompt)
            mask[row, widest - len(prompt) :] = 1
        owner_of = {prompt: row for row, prompt in enumerate(prompts)}
        owners = torch.tensor([owner_of[tuple(request.prompt)] for request in requests])

        self.place = CachePosition.after(widest, device)
        self.cache = make_cache(self.model, self.place, widest + most)
        self.mask = mask.to(device)
        self.positions = self.mask[:, :widest].sum(-1, keepdim=True) - 1
        first = (self.mask[:, :widest].cumsum(-1) - 1).clamp(min=0)
        self.logits = self._forward(ids.to(device), self.mask[:, :widest], first)

        lengths = torch.tensor([len(request.prompt) for request in requests])
        self.limits = (decoder.context - lengths).clamp(max=most).to(device)
        self.draws = _uniforms([request.seed for request in requests], most).to(device)
        self.ends = torch.tensor(sorted(decoder.ends), dtype=torch.long, device=device)
        self.written = torch.full((len(requests), most), decoder.pad, device=device)
        self.count = 0
        self.ended = torch.zeros(len(requests), dtype=torch.bool, device=device)
        self.rows = torch.arange(len(requests), device=device)
        self._select(owners.to(device), ("mask", "positions", "logits"))  # until here by prompt

    def _select(self, rows: torch.Tensor, names: Sequence[str]) -> None:
        """Put some rows in the place of all, in the cache and in the tensors that are named."""
        self.cache.batch_select_indices(rows)
        for name in names:
            setattr(self, name, getattr(self, name)[rows])
        self.bias: torch.Tensor | None = None
        self.graph: torch.cuda.CUDAGraph | None = None
        own = all(type(layer) is RoomyLayer for layer in self.cache.layers)
        if own and self.model.config._attn_implementation in STEADY:
            seen = self.mask.bool()
            seen[:, self.place.width :] = False
            self.bias = torch.zeros_like(seen, dtype=self.model.dtype)
            self.bias.masked_fill_(~seen, torch.finfo(self.model.dtype).min)
            self.token = torch.empty_like(self.positions)

    def step(self) -> None:
        """Draw the next token of every row."""
        draws = self.draws[:, self.count]
        chosen = choose(self.logits, draws, self.sampling.temperature, self.sampling.top_p)
        self.written[:, self.count] = chosen
        self.count += 1
        self.ended |= torch.isin(chosen, self.ends) | (self.limits <= self.count)

    def advance(self) -> None:
        """Have the model read the tokens that were drawn last."""
        self.place.move()
        self.positions += 1
        token = self.written[:, self.count - 1 : self.count]
        if self.bias is None:
            self.place.end = self.place.width
            mask = self.mask[:, : self.place.width]
            self.logits = self._forward(token, mask, self.positions)
            return
        # From here on all tensors stay where they are, for the sake of the recording.
        self.token.copy_(token)
        self.bias[:, self.place.width - 1] = 0
        end = min(-(-self.place.width // READ_EVERY) * READ_EVERY, self.bias.shape[1])
        if end != self.place.end:
            self.place.end, self.graph = end, None
        if self.decoder.records and self.graph is None:
            self._record()
        if self.graph is None:
            self.logits = self._read()
        else:
            self.graph.replay()

    def _read(self) -> torch.Tensor:
        """Return the logits after `token`, by row; where it is read, `place` and `bias` say."""
        assert self.bias is not None
        return self._forward(self.token, self.bias[:, None, None, : self.place.end], self.positions)

    def _record(self) -> None:
        """Record the reading of a token, to be replayed; some models cannot be recorded."""
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
            self.logits = self._read()  # once before: libraries choose their kernels now
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.stream(torch.cuda.current_stream()), torch.cuda.graph(graph):
                self.logits = self._read()
            self.graph = graph
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:  # it looks at values on the way, or waits
            self.decoder.records = False

    def _forward(
        self, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor
    ) -> torch.Tensor:
        """Return the logits after the last of ``ids``, by row."""
        with torch.no_grad():
            output: Any = self.model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=self.cache,
                use_cache=True,
                logits_to_keep=1,
            )
        logits: torch.Tensor = output.logits[:, -1]
        return logits

    def answers(self) -> Iterator[tuple[int, list[int]]]:
        """Yield the place of every request and its answer, when it has ended."""
        while True:
            self.step()
            if self.count % LOOK_EVERY == 0 or self.count == self.written.shape[1]:
                ended = int(self.ended.sum())
                if ended >= max(1, LEAVE_SHARE * len(self.ended)):
                    yield from self._leave()
                if not len(self.ended):
                    return
            self.advance()

    def _leave(self) -> list[tuple[int, list[int]]]:
        """Take the rows that have ended out of the batch, and return them."""
        gone = self.ended.nonzero()[:, 0].tolist()
        found = [(int(self.rows[row]), self.tokens(row)) for row in gone]
        self._select((~self.ended).nonzero()[:, 0], STATE)
        return found

    def tokens(self, row: int) -> list[int]:
        """Return what is written of a row, up to its end."""
        limit = min(self.count, int(self.limits[row]))
        tokens: list[int] = self.written[row, :limit].tolist()
        ends = set(self.ends.tolist())
        end = next((i for i, token in enumerate(tokens) if token in ends), limit)
        return tokens[: end + 1]


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
