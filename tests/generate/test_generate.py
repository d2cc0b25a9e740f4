"""`generate_triton` with a scripted model and the real judge, on the CPU."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import datasets
import pyarrow.parquet as pq
import pytest
from scripted_model import (
    BROKEN,
    CHEAT,
    NEARLY,
    OPTIONS,
    REFERENCE,
    RIGHT,
    WRONG,
    Scripted,
    programs,
)

from curate.files import InputError
from curate.formats.repair import Repair
from curate.generate import generate as module
from curate.generate.generate import Answered, Asking, Event, Piece, check_module, generate_triton
from curate.generate.sampling import Message, Sampling, Stream, TransformersSampler
from curate.generate.trace import Attempt, TraceFile, read_trace
from curate.teacher.program import program_of
from curate.teacher.template import fence
from curate.train.traces import repair_table, sample_row
from curate.verify import Candidate, CannotJudge, Options, Verdict

pytest_plugins = ["shared_judge"]

# --- rounds -----------------------------------------------------------------------------------


def test_the_judges_evidence_goes_back_until_a_program_is_right(
    judge: list[str], tmp_path: Path
) -> None:
    model = Scripted(programs(BROKEN), programs(WRONG), programs(RIGHT), ["never asked"])
    trace = tmp_path / "t.jsonl"
    events: list[Event] = []
    found = generate_triton(
        REFERENCE,
        sampler=model,
        k=1,
        rounds=9,
        options=OPTIONS,
        trace=trace,
        on_event=events.append,
    )
    assert found.program == program_of(fence(RIGHT))
    assert [attempt.status for attempt in found.attempts] == [
        "compile_error",
        "incorrect",
        "correct",
    ]
    assert found.best is found.attempts[2] and found.speedup == {}
    ((first,), (second,), (third,)) = model.asked
    assert [turn["role"] for turn in first] == ["system", "user"]
    assert second[:2] == first and third[:4] == second
    assert second[2]["content"] == programs(BROKEN)[0]
    compiler, values = second[-1]["content"], third[-1]["content"]
    assert "It cannot be compiled." in compiler and "SyntaxError: invalid syntax" in compiler
    evidence = found.attempts[1].verdict.evidence
    assert "An output has wrong values." in values
    assert f"at index {evidence['index']}, {evidence['expected']:.6g} was expected" in values
    assert f"{evidence['got']:.6g} came" in values
    assert "100.0% of the values are wrong" in values

    assert [event.round for event in events if isinstance(event, Asking)] == [1, 2, 3]
    heard = "".join(event.text for event in events if isinstance(event, Piece))
    assert heard == "".join(programs(BROKEN, WRONG, RIGHT))
    assert [event for event in events if isinstance(event, Attempt)] == found.attempts
    assert read_trace(trace) == found.attempts


def test_every_wrong_answer_goes_on_in_a_conversation_of_its_own(judge: list[str]) -> None:
    model = Scripted(programs(BROKEN, WRONG, WRONG), programs(WRONG, WRONG, NEARLY))
    events: list[Event] = []
    found = generate_triton(
        REFERENCE, sampler=model, k=3, rounds=2, options=OPTIONS, on_event=events.append
    )
    assert found.best is None and found.program is None
    assert [(a.round, a.number, a.status) for a in found.attempts] == [
        (1, 0, "compile_error"),
        (1, 1, "incorrect"),
        (1, 2, "incorrect"),
        (2, 0, "incorrect"),
        (2, 1, "incorrect"),
        (2, 2, "incorrect"),
    ]
    assert found.closest is found.attempts[5]  # 1 % of its values are wrong
    # Two conversations are the same: asked for one by one they would have the same answer.
    assert [len(talks) for talks in model.asked] == [1, 1, 1]
    assert judge == [program_of(fence(text)) for text in (BROKEN, WRONG, NEARLY)]
    assert max(event.done for event in events if isinstance(event, Answered)) == 3
    assert model.seeds[0] != model.seeds[1]


def test_without_a_second_round_nothing_is_asked_again(judge: list[str]) -> None:
    model = Scripted(programs(WRONG, RIGHT))
    found = generate_triton(REFERENCE, sampler=model, k=2, options=OPTIONS)
    assert found.program == program_of(fence(RIGHT)) and not model.rounds
    model = Scripted(programs(WRONG, WRONG))
    found = generate_triton(REFERENCE, sampler=model, k=2, options=OPTIONS)
    assert found.program is None and not model.rounds


def test_right_values_that_pytorch_computed_are_not_accepted(judge: list[str]) -> None:
    model = Scripted(programs(CHEAT), ["I am sorry, I cannot do better."])
    found = generate_triton(REFERENCE, sampler=model, k=1, rounds=2, options=OPTIONS)
    assert [attempt.status for attempt in found.attempts] == ["cheat", "no_code"]
    assert found.program is None and found.closest is found.attempts[0]
    said = model.asked[1][0][-1]["content"]
    assert "it launches no Triton kernel: PyTorch computed them" in said
    assert "PyTorch operators that computed something: add." in said


def test_an_answer_without_a_program_is_told_so(judge: list[str]) -> None:
    model = Scripted(["I am sorry."], programs(RIGHT))
    found = generate_triton(REFERENCE, sampler=model, k=1, rounds=2, options=OPTIONS)
    assert found.program
    assert "The answer holds no program" in model.asked[1][0][-1]["content"]


def test_a_model_on_this_machine_is_heard_as_it_writes(judge: list[str], tiny: str) -> None:
    model = TransformersSampler(tiny)
    heard: list[Event] = []
    drawn = Sampling(n=1, max_tokens=40)
    found = generate_triton(
        REFERENCE, sampler=model, k=1, options=OPTIONS, sampling=drawn, on_event=heard.append
    )
    (attempt,) = found.attempts
    assert attempt.status == "no_code"
    pieces = [event.text for event in heard if isinstance(event, Piece)]
    assert len(pieces) > 1 and "".join(pieces) == attempt.messages[-1]["content"]
    ((whole,),) = model.sample([attempt.messages[:-1]], drawn)
    assert (whole.text, whole.finish) == (attempt.messages[-1]["content"], attempt.finish)


def test_every_answer_is_counted(judge: list[str], tiny: str) -> None:
    heard: list[Event] = []
    drawn = Sampling(n=1, max_tokens=4)
    generate_triton(
        REFERENCE,
        sampler=TransformersSampler(tiny),
        k=3,
        options=OPTIONS,
        sampling=drawn,
        on_event=heard.append,
    )
    counts = [event.done for event in heard if isinstance(event, Answered)]
    assert counts == [1, 2, 3]


# --- what is timed ----------------------------------------------------------------------------
# Timing needs a device, so here the judge's verdicts are made up.


def timed(us: float, compiled: float = 20.0) -> Verdict:
    times = {"candidate_us": us, "eager_us": 40.0, "compile_us": compiled, "spread": 0.01}
    ratios = {"speedup_eager": 40.0 / us, "speedup_compile": compiled / us}
    return Verdict("", "correct", timing=times | ratios)


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> dict[str, Verdict]:
    """Verdicts by a word in the program."""
    known: dict[str, Verdict] = {}

    class Knows:
        def run(self, candidates: Sequence[Candidate]) -> Iterator[Verdict]:
            for candidate in candidates:
                word = next(word for word in known if word in candidate.candidate)
                values = known[word].to_json() | {"id": candidate.id}
                yield Verdict.from_json(values)

    @contextmanager
    def open_stub(options: Options) -> Iterator[Knows]:
        yield Knows()

    monkeypatch.setattr(module, "open_judge", open_stub)
    return known


def named(*words: str) -> list[str]:
    return programs(*(f"class ModelNew:  # {word}\n    pass\n" for word in words))


def test_a_right_program_is_sent_back_until_it_is_faster_than_both_baselines(
    times: dict[str, Verdict],
) -> None:
    times |= {"slow": timed(50), "middling": timed(25), "fast": timed(10), "bad": timed(99)}
    model = Scripted(named("slow", "bad"), named("bad", "middling"), named("middling", "fast"))
    found = generate_triton(REFERENCE, sampler=model, k=2, rounds=9)
    assert "fast" in found.program
    assert found.speedup == {"eager": 4.0, "compile": 2.0}
    said = model.asked[1][0][-1]["content"]
    assert said.startswith("The program is right. It takes 50 us; eager PyTorch takes 40 us")
    assert "torch.compile takes 20 us (a speedup of 0.4)" in said and "Make it faster" in said
    assert [attempt.template for attempt in found.attempts[:3]] == ["question"] * 2 + ["faster@1"]


def test_the_fastest_is_the_best_and_an_earlier_one_stays(times: dict[str, Verdict]) -> None:
    times |= {"slow": timed(50), "spoilt": Verdict("", "incorrect", "value")}
    model = Scripted(named("slow"), named("spoilt"))
    found = generate_triton(REFERENCE, sampler=model, k=1, rounds=2)
    assert found.best is found.attempts[0]


def test_what_cannot_be_judged_is_not_argued_with(times: dict[str, Verdict]) -> None:
    times["odd"] = Verdict("", "degenerate", "constant")
    model = Scripted(named("odd", "odd"))
    found = generate_triton(REFERENCE, sampler=model, k=2, rounds=9)
    assert found.program is None and not model.rounds


# --- the module -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def f(:\n", "net.py, line 1: is not Python"),
        ("import torch\n\nclass Net(torch.nn.Module): ...\n", "defines no Model, no get_inputs"),
        ("class Model: ...\nget_inputs = list\n", "defines no get_init_inputs"),
        ("x = 1\0", "is not Python"),
    ],
)
def test_what_is_no_module_is_refused_with_an_example(code: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        check_module(code, "net.py")
    assert message in str(refused.value)
    if "defines" in message:
        _, _, example = str(refused.value).partition("\n\n")
        check_module(example)
    with pytest.raises(InputError):
        generate_triton(code, sampler=Scripted(), options=OPTIONS)


def test_where_nothing_can_be_judged_no_model_is_asked() -> None:
    model = Scripted()
    with pytest.raises(CannotJudge, match="this machine has"):
        generate_triton(REFERENCE, sampler=model, options=Options(backend="hip"))
    assert not model.asked


# --- the trace --------------------------------------------------------------------------------


def test_a_trace_becomes_rows_of_the_repair_format(judge: list[str], tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    for rounds in ((programs(BROKEN), programs(RIGHT)), (programs(RIGHT),), (programs(CHEAT),)):
        generate_triton(
            REFERENCE,
            sampler=Scripted(*rounds),
            k=1,
            rounds=len(rounds),
            options=OPTIONS,
            trace=trace,
        )
    assert len(read_trace(trace)) == 4
    table = repair_table(trace)
    assert table.schema == Repair(format="repair").columns()
    pq.write_table(table, tmp_path / "repair.parquet")
    rows = datasets.load_dataset(
        "parquet", data_files=str(tmp_path / "repair.parquet"), cache_dir=str(tmp_path / "cache")
    )
    (row,) = rows["train"]
    assert row["failed"] == program_of(fence(BROKEN)) and row["fixed"] == program_of(fence(RIGHT))
    assert "SyntaxError" in row["error"] and row["attempt"] == 2
    assert (row["verdict"], row["teacher"], row["license"]) == ("correct", "scripted", None)
    roles = [turn["role"] for turn in row["messages"]]
    assert roles == ["system", "user", "assistant", "user", "assistant"]


def test_rows_name_a_model_on_this_machine_without_its_place() -> None:
    names = {"/home/ada/out/model": "model", "org/model": "org/model", "./a.gguf": "a.gguf"}
    for given, shown in names.items():
        attempt = Attempt(REFERENCE, given, 1, 0, "question", [], "stop", None, None)
        assert sample_row(attempt)["origin"]["teacher"]["model"] == shown


def test_a_faster_program_is_no_repair(times: dict[str, Verdict], tmp_path: Path) -> None:
    times |= {"slow": timed(50), "fast": timed(10)}
    trace = tmp_path / "t.jsonl"
    model = Scripted(named("slow"), named("fast"))
    generate_triton(REFERENCE, sampler=model, k=1, rounds=2, trace=trace)
    assert len(read_trace(trace)) == 2 and not repair_table(trace).num_rows


def test_an_interrupted_trace_holds_what_was_judged(judge: list[str], tmp_path: Path) -> None:
    class Interrupted(Scripted):
        def stream(self, conversation: Sequence[Message], sampling: Sampling) -> Stream:
            if len(conversation) > 2:
                yield "half an "
                raise KeyboardInterrupt
            return (yield from super().stream(conversation, sampling))

    trace = tmp_path / "t.jsonl"
    for n in (1, 2):
        model = Interrupted(programs(BROKEN))
        with pytest.raises(KeyboardInterrupt):
            generate_triton(REFERENCE, sampler=model, k=1, rounds=3, options=OPTIONS, trace=trace)
        assert [attempt.status for attempt in read_trace(trace)] == ["compile_error"] * n


def test_what_is_no_trace_is_left_alone(judge: list[str], tmp_path: Path) -> None:
    path = tmp_path / "notes"
    for content in ("no end", "{}\n", '{"verdict": null}\n', "[]\n"):
        path.write_text(content)
        with pytest.raises(InputError, match="notes"):
            TraceFile(path)
        assert path.read_text() == content
    path.unlink()
    with TraceFile(path), pytest.raises(InputError, match="another process"):
        TraceFile(path)


def test_a_torn_line_of_a_trace_is_passed_over_and_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    attempt = Attempt(REFERENCE, "m", 1, 0, "question", [], "stop", None, None)
    path.write_bytes(attempt.line() + attempt.line()[:40])
    assert read_trace(path) == [attempt]
    with TraceFile(path) as file:
        file.add(attempt)
    assert path.read_bytes() == attempt.line() * 2


def test_traces_are_strict_json(tmp_path: Path) -> None:
    evidence = {"got": float("nan"), "expected": float("inf")}
    verdict = Verdict("a", "incorrect", evidence=evidence)
    attempt = Attempt(REFERENCE, "m", 1, 0, "question", [], "stop", WRONG, verdict)
    text = attempt.line().decode()
    json.loads(text, parse_constant=lambda word: pytest.fail(word))
