"""Answers of language models: from weights on this machine, or from an OpenAI-compatible server."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from curate.generate.models import ModelError, load_model, load_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from curate.generate.decode import Decoder, Request

Key = TypeVar("Key")
Result = TypeVar("Result")

Message = dict[str, str]
"""A turn of a conversation: its ``role`` and its ``content``."""

ENGINES = ("auto", "transformers", "vllm")
"""What runs a model on this machine; ``auto`` is vLLM where it is installed."""

TOO_LONG = "too_long"

CONCURRENT = 16  # requests to an endpoint at the same time
REQUEST_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Sampling:
    """How answers are drawn.

    Attributes:
        n: answers to each conversation.
        temperature: the logits are divided by it; 0 takes the likeliest token.
        top_p: drawn from are the likeliest tokens that have this probability together.
        max_tokens: of one answer.
        seed: the same seed gives the same answers on the same machine.

    Raises:
        ValueError: a value is not allowed.
    """

    n: int
    temperature: float = 1.0
    top_p: float = 0.97
    max_tokens: int = 4096
    seed: int = 0

    def __post_init__(self) -> None:
        if self.n < 1 or self.max_tokens < 1:
            raise ValueError("n and max_tokens must be at least 1")
        if self.temperature < 0:
            raise ValueError(f"temperature {self.temperature}: must be at least 0")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p {self.top_p}: must be above 0 and at most 1")


@dataclass(frozen=True)
class Sample:
    """One answer.

    Attributes:
        text: without the tokens that end it.
        finish: ``stop``, or ``length`` where it was cut, or ``too_long`` where the question leaves
            no room for an answer, which is then empty.
    """

    text: str
    finish: str


Progress = Callable[[int, list[Sample]], None]
"""Told of every conversation when all its answers are there: its number, and the answers."""


Stream = Generator[str, None, Sample]
"""An answer piece by piece; what it returns is the whole."""


class Sampler(Protocol):
    """Whatever answers conversations.

    Attributes:
        name: of the model.
    """

    name: str

    def sample(
        self,
        conversations: Sequence[Sequence[Message]],
        sampling: Sampling,
        progress: Progress = lambda index, samples: None,
        each: Callable[[], None] = lambda: None,
    ) -> list[list[Sample]]:
        """Return ``sampling.n`` answers to each conversation.

        Args:
            conversations: each ends with the user's turn.
            sampling: how to draw.
            progress: told of the answers as they come, in any order of the conversations.
            each: called for every single answer, before its conversation is told of.

        Raises:
            ModelError: the model cannot answer; the message says why.
        """
        ...

    def stream(self, conversation: Sequence[Message], sampling: Sampling) -> Stream:
        """Yield the pieces of the first answer that `sample` would give, as they are written.

        Returns:
            The whole answer.

        Raises:
            ModelError: the model cannot answer; the message says why.
        """
        ...


def make_sampler(
    model: str | None = None, endpoint: str | None = None, engine: str = "auto"
) -> Sampler:
    """Return what answers for a model.

    Args:
        model: what `load_model` takes, or the model's name at the endpoint.
        endpoint: base URL of an OpenAI-compatible server; None runs the model here.
        engine: one of `ENGINES`.

    Raises:
        ModelError: there is no such model, or the engine is not installed.
    """
    if endpoint:
        return EndpointSampler(endpoint, model)
    if not model:
        raise ModelError("no model: give a path, or the URL of an endpoint")
    has_vllm = find_spec("vllm") is not None
    if engine == "vllm" and not has_vllm:
        raise ModelError("engine vllm: vLLM is not installed here; pip install vllm")
    if engine == "transformers" or not has_vllm:
        return TransformersSampler(model)
    return VllmSampler(model)


def sample_seed(seed: int, conversation: Sequence[Message], number: int) -> int:
    """Return the seed of one answer, in 63 bits, whatever else is asked with it."""
    text = json.dumps([seed, list(conversation), number], sort_keys=True)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


class TransformersSampler:
    """A model in this process, which answers many conversations at the same time.

    What is drawn for an answer depends on the seed, the conversation and the answer's number alone,
    so that batches of another size, or what is left after a stop, give the same answers, as far as
    the rounding of sums does not decide.
    """

    def __init__(self, path: str) -> None:
        self.name = path
        self.tokenizer = load_tokenizer(path)  # says what to install where transformers is not
        _check_template(path, self.tokenizer)
        from curate.generate.decode import Decoder

        self.decoder: Decoder = Decoder(load_model(path), self.tokenizer)

    def sample(
        self,
        conversations: Sequence[Sequence[Message]],
        sampling: Sampling,
        progress: Progress = lambda index, samples: None,
        each: Callable[[], None] = lambda: None,
    ) -> list[list[Sample]]:
        found: list[dict[int, Sample]] = [{} for _ in conversations]
        requests = {}
        for i, conversation in enumerate(conversations):
            for number in range(sampling.n):
                requests[i, number] = self._request(conversation, sampling, number)
        for (i, number), tokens in self.decoder.run(requests, sampling):
            found[i][number] = self._read(tokens)
            each()
            if len(found[i]) == sampling.n:
                progress(i, _in_order(found[i]))
        return [_in_order(samples) for samples in found]

    def stream(self, conversation: Sequence[Message], sampling: Sampling) -> Stream:
        shown, sample = "", Sample("", TOO_LONG)
        request = self._request(conversation, sampling, 0)
        for tokens in self.decoder.steps(request, sampling):
            sample = self._read(tokens)
            if not sample.text.endswith("\N{REPLACEMENT CHARACTER}"):  # a letter's first bytes
                yield sample.text[len(shown) :]
                shown = sample.text
        if sample.text != shown:
            yield sample.text[len(shown) :]
        return sample

    def _request(self, conversation: Sequence[Message], sampling: Sampling, number: int) -> Request:
        from curate.generate.decode import Request

        tokens = prompt_tokens(self.tokenizer, conversation)
        return Request(tokens, sample_seed(sampling.seed, conversation, number))

    def _read(self, tokens: list[int] | None) -> Sample:
        if tokens is None:
            return Sample("", TOO_LONG)
        text = self.tokenizer.decode(
            tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        ended = bool(tokens) and tokens[-1] in self.decoder.ends
        return Sample(text, "stop" if ended else "length")


def _in_order(samples: dict[int, Sample]) -> list[Sample]:
    return [sample for _, sample in sorted(samples.items())]


def _check_template(path: str, tokenizer: PreTrainedTokenizerBase) -> None:
    if tokenizer.chat_template is None:
        raise ModelError(
            f"{path}: its tokenizer has no chat template, so it cannot be asked a question: "
            "use the instruct model, or one that `curate train` made"
        )


def prompt_tokens(tokenizer: PreTrainedTokenizerBase, conversation: Sequence[Message]) -> list[int]:
    """Return a conversation as the model reads it, up to where its answer begins."""
    text = tokenizer.apply_chat_template(
        [dict(turn) for turn in conversation], add_generation_prompt=True, tokenize=False
    )
    tokens: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return tokens


class VllmSampler:
    """A model that vLLM runs, in this process."""

    def __init__(self, path: str) -> None:
        import vllm

        self.name = path
        self.tokenizer = load_tokenizer(path)
        _check_template(path, self.tokenizer)
        self.model = vllm.LLM(model=path, tokenizer=path, enable_prefix_caching=True)

    def sample(
        self,
        conversations: Sequence[Sequence[Message]],
        sampling: Sampling,
        progress: Progress = lambda index, samples: None,
        each: Callable[[], None] = lambda: None,
    ) -> list[list[Sample]]:
        room = self.model.llm_engine.model_config.max_model_len
        found = [[Sample("", TOO_LONG)] * sampling.n for _ in conversations]
        prompts = [prompt_tokens(self.tokenizer, one) for one in conversations]
        fitting = [i for i, prompt in enumerate(prompts) if len(prompt) < room]
        outputs = self.model.generate(
            [{"prompt_token_ids": prompts[i]} for i in fitting],
            [self._parameters(conversations[i], sampling) for i in fitting],
        )
        for i, output in zip(fitting, outputs, strict=True):
            found[i] = [
                Sample(said.text, "length" if said.finish_reason == "length" else "stop")
                for said in output.outputs
            ]
        for i, samples in enumerate(found):
            for _ in samples:
                each()
            progress(i, samples)
        return found

    def stream(self, conversation: Sequence[Message], sampling: Sampling) -> Stream:
        ((sample, *_),) = self.sample([conversation], sampling)
        yield sample.text  # vLLM's offline engine shows an answer when it is whole
        return sample

    def _parameters(self, conversation: Sequence[Message], sampling: Sampling) -> Any:
        import vllm

        return vllm.SamplingParams(
            n=sampling.n,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            max_tokens=sampling.max_tokens,
            seed=sample_seed(sampling.seed, conversation, 0),
        )


class EndpointSampler:
    """A model behind an OpenAI-compatible server; the key is that of OPENAI_API_KEY, if any.

    Each answer is a request of its own, since many servers pass over ``n``.
    """

    def __init__(
        self,
        url: str,
        model: str | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if find_spec("openai") is None:
            raise ModelError("an endpoint needs the package openai: pip install openai")
        # Imported here and below: models on this machine run where pydantic is not installed.
        from curate.teacher.openai_client import Client

        self.url = url
        key = os.environ.get("OPENAI_API_KEY") or "none"  # local servers ask for none
        self.client = Client(url, key, REQUEST_TIMEOUT_S, sleep)
        self._wants_new_limit = False
        self.name = model or self._only_model()

    def _only_model(self) -> str:
        from curate.teacher.answers import request_key

        with self._errors():
            names = self.client.until_done(self.client.models, request_key(self.url, {}, 0))
        if len(names) == 1:
            return names[0]
        listed = ", ".join(sorted(names)) or "none"
        raise ModelError(f"{self.url}: name one of its models; it has {listed}")

    def sample(
        self,
        conversations: Sequence[Sequence[Message]],
        sampling: Sampling,
        progress: Progress = lambda index, samples: None,
        each: Callable[[], None] = lambda: None,
    ) -> list[list[Sample]]:
        found: list[dict[int, Sample]] = [{} for _ in conversations]
        places = [(i, number) for i in range(len(conversations)) for number in range(sampling.n)]

        def ask(place: tuple[int, int]) -> Sample:
            i, number = place
            return self._ask(conversations[i], sampling, number)

        for (i, number), sample in _in_threads(ask, places):
            found[i][number] = sample
            each()
            if len(found[i]) == sampling.n:
                progress(i, _in_order(found[i]))
        return [_in_order(samples) for samples in found]

    def stream(self, conversation: Sequence[Message], sampling: Sampling) -> Stream:
        pieces = self._send(self.client.open_stream, self._body(conversation, sampling, 0))
        if pieces is None:
            return Sample("", TOO_LONG)
        text, finish = "", None
        with self._errors():
            for piece, ended in pieces:
                text, finish = text + piece, ended or finish
                yield piece
        return Sample(text, "length" if finish == "length" else "stop")

    def _ask(self, conversation: Sequence[Message], sampling: Sampling, number: int) -> Sample:
        found = self._send(self.client.complete, self._body(conversation, sampling, number))
        if found is None:
            return Sample("", TOO_LONG)
        _, answer = found
        return Sample(answer.text, "length" if answer.finish == "length" else "stop")

    def _send(
        self, send: Callable[[dict[str, Any], str], Result], body: dict[str, Any]
    ) -> Result | None:
        """Return what the server answers; None if the conversation is too long for the model."""
        from curate.teacher.answers import request_key
        from curate.teacher.openai_client import NotAnswered, UseNewLimit, with_new_limit

        key = request_key(self.url, body, 0)

        def attempt() -> Result:
            try:
                return send(with_new_limit(body) if self._wants_new_limit else body, key)
            except UseNewLimit:
                self._wants_new_limit = True
                raise

        with self._errors():
            try:
                return self.client.until_done(attempt, key)
            except NotAnswered as error:
                if error.reason == TOO_LONG:
                    return None
                raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn errors of the client into the user's."""
        from curate.teacher.openai_client import EndpointRefused, GaveUp, NotAnswered, TryAgain

        try:
            yield
        except (EndpointRefused, GaveUp) as error:
            raise ModelError(str(error)) from None
        except (NotAnswered, TryAgain) as error:  # the latter from a stream that broke off
            raise ModelError(f"{self.url}: {error}") from None

    def _body(
        self, conversation: Sequence[Message], sampling: Sampling, number: int
    ) -> dict[str, Any]:
        return {
            "model": self.name,
            "messages": [dict(turn) for turn in conversation],
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
            "seed": sample_seed(sampling.seed, conversation, number) >> 32,
        }


def _in_threads(call: Callable[[Key], Sample], keys: Sequence[Key]) -> Iterator[tuple[Key, Sample]]:
    """Yield every key with what a call returns for it, as they come.

    The threads are daemons: one that stops, by Ctrl-C or an error, waits for no request.
    """
    todo: SimpleQueue[Key] = SimpleQueue()
    done: SimpleQueue[tuple[Key, Sample | BaseException]] = SimpleQueue()
    stopped = threading.Event()
    for key in keys:
        todo.put(key)

    def work() -> None:
        while not stopped.is_set():
            try:
                key = todo.get_nowait()
            except Empty:
                return
            try:
                done.put((key, call(key)))
            except BaseException as error:
                done.put((key, error))

    for _ in range(min(CONCURRENT, len(keys))):
        threading.Thread(target=work, daemon=True).start()
    try:
        for _ in keys:
            key, result = done.get()
            if isinstance(result, BaseException):
                raise result
            yield key, result
    finally:
        stopped.set()
