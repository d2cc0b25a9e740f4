"""Answers: the same as `generate` gives, drawn as they should be, whatever the batch."""

from __future__ import annotations

import functools
import json
import threading
import traceback
from pathlib import Path
from typing import Any

import pytest
import torch
from teacher_stand_in import KEY, Asked, Reply, StandIn
from tiny import CONTEXT, make_tiny_model

from curate.generate import decode
from curate.generate.decode import LIKELIEST, Request, choose
from curate.generate.models import ModelError
from curate.generate.sampling import (
    EndpointSampler,
    Message,
    Sample,
    Sampling,
    Stream,
    TransformersSampler,
    make_sampler,
)


def ask(text: str) -> list[Message]:
    return [{"role": "system", "content": "Be short."}, {"role": "user", "content": text}]


CONVERSATIONS = [ask("hello " * times) for times in (1, 7, 30, 3)]
LONG = Sampling(n=3, max_tokens=150)


@pytest.fixture(scope="module")
def sampler(tmp_path_factory: pytest.TempPathFactory) -> TransformersSampler:
    made = TransformersSampler(str(make_tiny_model(tmp_path_factory.mktemp("tiny"))))
    # In single precision two batches differ in the last digit, and of tokens that are as likely as
    # in a random model another one is drawn now and then.
    made.decoder.model.double()
    return made


@pytest.fixture(scope="module")
def drawn(sampler: TransformersSampler) -> list[list[Sample]]:
    return sampler.sample(CONVERSATIONS, LONG)


def test_greedy_answers_are_those_of_generate(sampler: TransformersSampler) -> None:
    _check_greedy(sampler)


def _check_greedy(sampler: TransformersSampler) -> None:
    found = sampler.sample(CONVERSATIONS, Sampling(n=1, temperature=0, max_tokens=40))
    for conversation, (sample,) in zip(CONVERSATIONS, found, strict=True):
        inputs = sampler.tokenizer.apply_chat_template(
            conversation, add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        whole = sampler.decoder.model.generate(**inputs, do_sample=False, max_new_tokens=40)
        alone = whole[0, inputs["input_ids"].shape[1] :]
        assert sample.text == sampler.tokenizer.decode(alone, skip_special_tokens=True)


def test_an_answer_does_not_depend_on_its_batch(
    sampler: TransformersSampler,
    drawn: list[list[Sample]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Some answers end early, and wait for the others.
    assert {sample.finish for samples in drawn for sample in samples} == {"stop", "length"}
    assert len({sample.text for samples in drawn for sample in samples}) == 12
    monkeypatch.setattr(sampler.decoder, "batch", 5)
    told: dict[int, list[Sample]] = {}
    assert sampler.sample(CONVERSATIONS, LONG, told.__setitem__) == drawn
    assert told == dict(enumerate(drawn))
    assert sampler.sample(CONVERSATIONS[1:2], LONG) == drawn[1:2]
    assert "".join(sampler.stream(CONVERSATIONS[1], LONG)) == drawn[1][0].text


def test_what_a_models_configuration_adds_is_left_out(
    tmp_path: Path, drawn: list[list[Sample]], capfd: pytest.CaptureFixture[str]
) -> None:
    folder = make_tiny_model(tmp_path / "model")
    file = folder / "generation_config.json"
    own = {"do_sample": True, "temperature": 0.1, "top_k": 2, "repetition_penalty": 5.0}
    file.write_text(json.dumps(json.loads(file.read_text()) | own | {"max_length": 90}))
    sampler = TransformersSampler(str(folder))
    sampler.decoder.model.double()
    capfd.readouterr()
    assert sampler.sample(CONVERSATIONS, LONG) == drawn
    assert "".join(sampler.stream(CONVERSATIONS[1], LONG)) == drawn[1][0].text
    assert capfd.readouterr().err == ""  # nor does transformers warn of it
    assert sampler.decoder.model.generation_config.repetition_penalty == 5.0


def test_layers_that_forget_answer_as_generate_does(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    own = {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 16}
    (folder / "config.json").write_text(json.dumps(config | own))
    sampler = TransformersSampler(str(folder))
    _check_greedy(sampler)
    greedy = Sampling(n=1, temperature=0, max_tokens=40)
    ((whole,),) = sampler.sample(CONVERSATIONS[2:3], greedy)
    assert "".join(sampler.stream(CONVERSATIONS[2], greedy)) == whole.text


def test_another_seed_gives_other_answers(
    sampler: TransformersSampler, drawn: list[list[Sample]]
) -> None:
    other = Sampling(n=3, max_tokens=150, seed=1)
    assert sampler.sample(CONVERSATIONS[:1], other) != drawn[:1]


@pytest.mark.weekly
def test_when_memory_runs_out_batches_get_smaller(
    sampler: TransformersSampler, drawn: list[list[Sample]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler.decoder, "batch", 12)
    sizes = []

    def limited(model: torch.nn.Module, args: Any, given: dict[str, Any], most: int = 4) -> None:
        rows, tokens = given["input_ids"].shape
        if tokens > 1:  # a prompt
            sizes.append(rows)
        elif rows > most:
            raise torch.OutOfMemoryError("CUDA out of memory")

    with sampler.decoder.model.register_forward_pre_hook(limited, with_kwargs=True):
        assert sampler.sample(CONVERSATIONS, LONG) == drawn
    assert sizes == [12, 6, 3, 3, 3, 3]

    never = functools.partial(limited, most=0)
    with (
        sampler.decoder.model.register_forward_pre_hook(never, with_kwargs=True),
        pytest.raises(ModelError, match="not enough memory for one answer"),
    ):
        sampler.sample(CONVERSATIONS, LONG)


def test_a_batch_is_as_large_as_memory_allows(
    sampler: TransformersSampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitting = []
    for free in (0.0, 1e7, 1e8):
        monkeypatch.setattr(decode, "free_memory", lambda device, free=free: free)
        fitting.append((sampler.decoder._fitting(500, 500), sampler.decoder._fitting(50, 50)))
    (least, _), (one, more), (ten, _) = fitting
    # Keys and values alone: 2 layers of 2 heads of 16 numbers, each of 8 bytes, for 1000 tokens.
    assert least == 1 and one < more and one <= 1e7 / (2 * 2 * 2 * 16 * 8 * 1000)
    assert ten // 10 in (one, one - 1)


def test_a_question_without_room_for_an_answer_is_not_cut(sampler: TransformersSampler) -> None:
    short, long = ask("hello"), ask("hello " * CONTEXT)
    found = sampler.sample([long, short], Sampling(n=2, max_tokens=3))
    assert found[0] == [Sample("", "too_long")] * 2
    assert [sample.finish for sample in found[1]] == ["length", "length"]


def test_an_answer_ends_where_the_context_does(
    sampler: TransformersSampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = (9, 40, 44, 40, 43)
    requests = {i: Request(list(range(5, 5 + n)), seed=i) for i, n in enumerate(lengths)}
    monkeypatch.setattr(sampler.decoder, "context", 44)
    monkeypatch.setattr(sampler.decoder, "ends", set())
    found = dict(sampler.decoder.run(requests, Sampling(n=1, max_tokens=20)))
    assert [tokens and len(tokens) for tokens in found.values()] == [None, 1, 4, 4, 20]
    for i, request in requests.items():
        assert list(sampler.decoder.steps(request, Sampling(n=1, max_tokens=20)))[-1] == found[i]


def test_tokens_are_drawn_with_the_probabilities_of_the_nucleus() -> None:
    probabilities = torch.tensor([0.1, 0.5, 0.05, 0.3, 0.05])
    logits = probabilities.log().expand(1000, -1) * 2  # divided by the temperature below
    draws = torch.arange(1000) / 1000
    chosen = choose(logits, draws, temperature=2.0, top_p=0.85)
    # 0.5 + 0.3 < 0.85 <= 0.5 + 0.3 + 0.1
    counts = torch.bincount(chosen, minlength=5) / 1000
    assert counts == pytest.approx(torch.tensor([1, 5, 0, 3, 0]) / 9, abs=2e-3)
    assert choose(logits, draws, temperature=2.0, top_p=1.0).unique().tolist() == [0, 1, 2, 3, 4]
    assert choose(logits, draws, temperature=2.0, top_p=0.4).unique().tolist() == [1]
    assert choose(logits, draws, temperature=0, top_p=1.0).unique().tolist() == [1]


@pytest.mark.parametrize("top_p", [0.9999, 1.0])
def test_flat_distributions_are_drawn_from_as_a_whole(top_p: float) -> None:
    n = 3 * LIKELIEST
    logits = torch.zeros(2, n)
    logits[1, 7] = 50.0  # this row is not flat
    chosen = torch.stack(
        [choose(logits, torch.full((2,), (u + 0.5) / n), 1.0, top_p) for u in range(0, n, 9)]
    )
    assert chosen[:, 0].unique().numel() == len(chosen)
    assert chosen[:, 1].unique().tolist() == [7]


def test_a_tokenizer_without_a_template_is_the_users_fault(
    tmp_path: Path, sampler: TransformersSampler
) -> None:
    folder = make_tiny_model(tmp_path / "model")
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(ModelError, match="no chat template"):
        make_sampler(str(folder), engine="transformers")


def test_values_that_make_no_sense_are_refused() -> None:
    for wrong in ({"n": 0}, {"n": 1, "temperature": -1}, {"n": 1, "top_p": 0}):
        with pytest.raises(ValueError, match="must be"):
            Sampling(**wrong)  # type: ignore[arg-type]


# --- an endpoint ------------------------------------------------------------------------------


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def test_every_answer_of_an_endpoint_is_a_request_with_a_seed_of_its_own(key: None) -> None:
    def script(asked: Asked, times: int) -> Reply:
        if "hello hello" in asked.prompt:
            return Reply("cut", finish="length")
        return Reply(f"answer {asked.body['seed']}")

    with StandIn(script).serving() as server:
        endpoint = EndpointSampler(server.url, "some-model")
        found = endpoint.sample(CONVERSATIONS[:2], Sampling(n=3, max_tokens=9))
    assert {sample.finish for sample in found[0]} == {"stop"}
    assert len({sample.text for sample in found[0]}) == 3
    assert found[1] == [Sample("cut", "length")] * 3
    bodies: list[dict[str, Any]] = [asked.body for asked in server.asked]
    assert len(bodies) == 6
    assert {(b["model"], b["temperature"], b["top_p"], b["max_tokens"]) for b in bodies} == {
        ("some-model", 1.0, 0.97, 9)
    }


def test_an_endpoint_is_asked_again_when_it_is_busy(key: None) -> None:
    replies = iter([Reply("busy", status=503, headers={"retry-after": "0.01"}), Reply("there")])
    with StandIn(lambda asked, times: next(replies)).serving() as server:
        found = EndpointSampler(server.url, "m").sample(CONVERSATIONS[:1], Sampling(n=1))
    assert found == [[Sample("there", "stop")]]


def test_an_endpoint_is_given_the_time_that_it_asks_for(key: None) -> None:
    slow_down = Reply("slow down", status=429, headers={"Retry-After": "7"})
    replies, waits = iter([slow_down, slow_down, Reply("there")]), list[float]()
    with StandIn(lambda asked, times: next(replies)).serving() as server:
        endpoint = EndpointSampler(server.url, "m", waits.append)
        found = endpoint.sample(CONVERSATIONS[:1], Sampling(n=1))
    assert found == [[Sample("there", "stop")]] and waits == [7, 7]
    assert len({asked.key for asked in server.asked}) == 1
    later = Reply("daily limit", status=429, headers={"Retry-After": "86400"})
    with StandIn(lambda asked, times: later).serving() as server:
        with pytest.raises(ModelError, match=r"wait 86400 seconds: .*daily limit"):
            EndpointSampler(server.url, "m").sample(CONVERSATIONS[:1], Sampling(n=1))
        assert len(server.asked) == 1


def test_an_endpoint_that_refuses_max_tokens_is_asked_by_the_new_name(key: None) -> None:
    said = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens'."

    def script(asked: Asked, times: int) -> Reply:
        return Reply(said, status=400) if "max_tokens" in asked.body else Reply("there")

    with StandIn(script).serving() as server:
        endpoint = EndpointSampler(server.url, "m")
        drawn = Sampling(n=1, max_tokens=9)
        assert endpoint.sample(CONVERSATIONS[:1], drawn) == [[Sample("there", "stop")]]
        assert heard(endpoint.stream(CONVERSATIONS[1], drawn)) == (
            ["there", ""],
            Sample("there", "stop"),
        )
    assert [asked.body.get("max_completion_tokens") for asked in server.asked] == [None, 9, 9]


def test_an_endpoint_that_finds_a_question_too_long_says_so(key: None) -> None:
    too_long = Reply("This model's maximum context length is 8 tokens", status=400)
    with StandIn(lambda asked, times: too_long).serving() as server:
        found = EndpointSampler(server.url, "m").sample(CONVERSATIONS[:1], Sampling(n=1))
    assert found == [[Sample("", "too_long")]]


@pytest.mark.parametrize("reply", [Reply("No.", status=404), Reply(raw='{"choices": []}')])
def test_what_no_retry_helps_is_one_message(key: None, reply: Reply) -> None:
    with StandIn(lambda asked, times: reply).serving() as server:
        endpoint = EndpointSampler(server.url, "m", lambda seconds: None)
        with pytest.raises(ModelError, match=server.url):
            endpoint.sample(CONVERSATIONS[:1], Sampling(n=1))


def test_a_wrong_key_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-other-0123456789")
    with StandIn(lambda asked, times: Reply()).serving() as server:
        endpoint = EndpointSampler(server.url, "m")
        with pytest.raises(ModelError, match="OPENAI_API_KEY"):
            endpoint.sample(CONVERSATIONS[:1], Sampling(n=1))


def test_no_message_shows_the_key(key: None) -> None:
    with StandIn(lambda asked, times: Reply(f"{KEY} may not", status=403)).serving() as server:
        endpoint = EndpointSampler(server.url, "m")
        with pytest.raises(ModelError, match="may not") as raised:
            endpoint.sample(CONVERSATIONS[:1], Sampling(n=1))
    shown = "".join(traceback.format_exception(raised.value))
    assert KEY not in shown and "[OPENAI_API_KEY] may not" in shown


def test_an_endpoint_is_heard_as_it_writes(key: None) -> None:
    replies = [
        Reply("one two three four", finish="length"),
        Reply("context length exceeded", status=400),
    ]
    with StandIn(lambda asked, times: replies.pop(0)).serving() as server:
        endpoint = EndpointSampler(server.url, "m")
        pieces, sample = heard(endpoint.stream(CONVERSATIONS[0], Sampling(n=1)))
        assert len(pieces) > 1 and "".join(pieces) == "one two three four"
        assert sample == Sample("one two three four", "length")
        assert heard(endpoint.stream(CONVERSATIONS[0], Sampling(n=1))) == (
            [],
            Sample("", "too_long"),
        )


def test_a_stream_that_breaks_off_is_one_message(key: None) -> None:
    with StandIn(lambda asked, times: Reply("one two " * 99, cut=True)).serving() as server:
        endpoint = EndpointSampler(server.url, "m")
        with pytest.raises(ModelError, match=server.url):
            heard(endpoint.stream(CONVERSATIONS[0], Sampling(n=1)))


def test_what_stops_the_asking_waits_for_no_request(key: None) -> None:
    stopped = threading.Event()

    def script(asked: Asked, times: int) -> Reply:
        if "hello hello" in asked.prompt:
            return Reply("No.", status=404)
        assert stopped.wait(250)
        return Reply()

    with StandIn(script).serving() as server:
        endpoint = EndpointSampler(server.url, "m")
        with pytest.raises(ModelError, match="No"):
            endpoint.sample(CONVERSATIONS[:2], Sampling(n=1))
        stopped.set()


def heard(stream: Stream) -> tuple[list[str], Sample]:
    """Return the pieces of a stream, and what it returns."""
    pieces = []
    while True:
        try:
            pieces.append(next(stream))
        except StopIteration as end:
            return pieces, end.value
