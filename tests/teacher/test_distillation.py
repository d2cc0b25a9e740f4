"""The whole flow, from tasks to formats, with planted good and bad answers."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

pytest.importorskip("openai", reason="openai is not installed (pip install '.[teacher]')")

from run_for_tests import Small
from steps_for_tests import LICENSE, Given
from teacher_run import teacher
from teacher_stand_in import KEY, Asked, Reply, StandIn

from curate.engine.processes.local import LocalExecutor
from curate.engine.run import Walk
from curate.formats.dataset.write import write_dataset
from curate.formats.messages import Messages
from curate.formats.negatives import Negatives
from curate.formats.repair import Repair
from curate.publish.analysis.analysis import Run, analyse
from curate.publish.documents.markdown import markdown
from curate.publish.report.report import page as report
from curate.rows import Row, make_origin, make_row
from curate.teacher import page
from curate.teacher.prompts import Prompts
from curate.teacher.select import Select
from curate.teacher.template import fence
from curate.verify.steps.verify import Verify

# Two tasks whose code differs in one sign, so that an answer can be told by what it was asked.
SMALL = page.REFERENCE.replace("batch_size = 48", "batch_size = 4")
TASKS = {sign: SMALL.replace("x + self", f"x {sign} self") for sign in "+-"}
RIGHT = {sign: page.TRITON.replace("x + shift", f"x {sign} shift") for sign in "+-"}
LONGER = RIGHT["+"].replace("One row a program.", "One row of the input is done by one program.")
CHEAT = TASKS["-"].replace("class Model", "class ModelNew")

FIRST = {
    ("+", 0): LONGER,
    ("+", 1): RIGHT["+"],
    ("+", 2): page.WRONG,
    ("-", 0): CHEAT,
    ("-", 1): RIGHT["+"],
    ("-", 2): None,
}
"""First answers, by task and number; None is a refusal in words."""


def script(asked: Asked, times: int) -> Reply:
    first, last = (asked.body["messages"][i]["content"] for i in (0, -1))
    sign = "-" if "x - self.shift" in first else "+"
    if len(asked.body["messages"]) == 1:
        program = FIRST[sign, asked.body["seed"]]
    elif sign == "+":
        program = RIGHT["+"]
    else:
        program = RIGHT["-"] if "launches no Triton kernel" in last else RIGHT["+"]
    text = fence(program) if program else "I would rather not."
    return Reply(text, tokens=(100, len(text)))


def task(sign: str) -> Row:
    origin = make_origin("torch_ops", symbol=f"relu of {sign}")
    known = {"reference": TASKS[sign], "entry_point": "Model", "license": LICENSE}
    return make_row("task", TASKS[sign], origin, **known)


@pytest.mark.slow
@pytest.mark.weekly
def test_rows_land_where_they_should(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    judge = {"step": "verify", "keep_wrong": True, "trials": 2}
    with StandIn(script).serving() as stand_in:
        ask = teacher(stand_in.url, sampling={"seed": 0}, concurrency=2)
        steps = [
            Prompts.model_validate({"step": "prompts", "families": ["convert"], "samples": 3}),
            *(ask, Verify.model_validate(judge)),
            Prompts.model_validate({"step": "prompts", "families": ["repair"]}),
            *(ask, Verify.model_validate(judge)),
            Select.model_validate({"step": "select"}),
        ]
        formats = [Messages(format="messages"), Repair(format="repair")]
        formats.append(Negatives(format="negatives"))
        recipe = Small([Given(rows=[task("+"), task("-")])], steps, formats)
        walk = Walk(recipe, tmp_path, LocalExecutor(1))  # type: ignore[arg-type]
        stages = walk.run()
    run = write_dataset(walk, stages)
    assert run["configs"] == {
        "messages": {"train": 2},
        "repair": {"train": 2},
        "negatives": {"train": 2},
    }

    rows = walk.store.rows("select", stages[-1].manifests[0].key).to_pylist()
    landed = {
        (*asked_of(row), program): (row["verdict"]["status"], row["sample"]["selection"])
        for row in rows
        if row["kind"] == "sample"
        for program in [row["triton"]]
    }
    assert landed == {
        ("+", 1, LONGER): ("correct", "alternative"),
        ("+", 1, RIGHT["+"]): ("correct", "best"),
        ("+", 1, page.WRONG): ("incorrect", "fixed"),
        ("+", 2, RIGHT["+"]): ("correct", "repaired"),
        ("-", 1, CHEAT): ("cheat", "fixed"),
        ("-", 2, RIGHT["-"]): ("correct", "best"),
        ("-", 1, RIGHT["+"]): ("incorrect", "failed"),
        ("-", 2, RIGHT["+"]): ("incorrect", "failed"),
    }
    assert [row["kind"] for row in rows].count("task") == 2
    assert stages[2].reasons("dropped") == {"no_code": 1}
    assert len(stand_in.asked) == 9

    shown = {name: config(walk, name) for name in run["configs"]}
    told = {row["failed"]: row["error"] for row in shown["repair"]}
    assert "An output has wrong values." in told[page.WRONG]
    assert "launches no Triton kernel" in told[CHEAT]
    assert {row["fixed"] for row in shown["repair"]} == {RIGHT["+"], RIGHT["-"]}
    assert {len(row["messages"]) for row in shown["messages"]} == {3, 5}
    assert all(json.loads(row["evidence"])["wrong_share"] > 0 for row in shown["negatives"])

    analysis = analyse(Run(tmp_path, "small"))
    first, second = analysis.pass_rates
    assert (first.questions, first.answers, first.correct) == (2, 6, 2)
    assert first.pass_at == {1: pytest.approx(1 / 3), 2: 0.5}
    assert (second.attempt, second.answers, second.correct) == (2, 3, 2)
    assert "| `convert` | 1 | 2 | 6 | 2 | 33.3% | 50.0% |" in markdown(analysis, {})
    assert "pass@2" in report(Run(tmp_path, "small"), analysis)


def asked_of(row: Row) -> tuple[str, int]:
    return row["origin"]["symbol"][-1], row["sample"]["attempt"]


def config(walk: Walk, name: str) -> list[Row]:
    rows: list[Row] = pq.read_table(walk.folder / name).to_pylist()
    return rows
