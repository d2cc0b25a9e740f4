"""What a report says of teachers and of benchmarks, in a run against the scripted endpoint."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openai", reason="openai is not installed (pip install '.[teacher]')")

from run_for_tests import Small
from steps_for_tests import LICENSE, Given
from teacher_run import PROGRAM, prompt, teacher
from teacher_stand_in import KEY, Asked, Reply, StandIn

from curate import api
from curate.clean.decontaminate import Decontaminate
from curate.engine.processes.local import LocalExecutor
from curate.engine.run import Walk
from curate.formats.dataset.write import write_dataset
from curate.publish.analysis.analysis import Analysis, Run, analyse
from curate.publish.documents.card import card
from curate.publish.documents.markdown import markdown
from curate.publish.report.report import page
from curate.rows import Row, make_origin, make_row
from curate.teacher.answers import answers_file

PRICE = {"prompt": 10.0, "completion": 100.0}


class Recipe(Small):
    """A recipe that says what its steps are, as `curate.recipe.Recipe` does."""

    def model_dump(self, mode: str) -> dict[str, Any]:
        return {"name": self.name, "steps": [step.model_dump(mode=mode) for step in self.steps]}


@dataclass
class Made:
    """A finished run: its numbers and the texts that were written of them."""

    analysis: Analysis
    texts: dict[str, str]


def make(output: Path, rows: list[Row], steps: list[Any]) -> Made:
    walk = Walk(Recipe([Given(rows=rows)], steps), output, LocalExecutor(1))  # type: ignore[arg-type]
    write_dataset(walk, walk.run())
    run = Run(output, "small")
    analysis = analyse(run)
    texts = {"report.html": page(run, analysis), "ANALYSIS.md": markdown(analysis, {})}
    return Made(analysis, {**texts, "README.md": card(walk.folder, run.known, analysis)})


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


# --- what teachers were asked -----------------------------------------------------------------


def script(asked: Asked, times: int) -> Reply:
    """Fail once for one prompt; answer with a program, with words, or without counting tokens."""
    if "fails once" in asked.prompt and times == 1:
        return Reply("oops", status=500)
    if "no program" in asked.prompt:
        return Reply("I would rather not.", tokens=(100, 7))
    if "too long" in asked.prompt:
        return Reply("maximum context length exceeded", status=400)
    counted = None if "not counted" in asked.prompt else (100, 10)
    return Reply(f"```python\n{PROGRAM}```", tokens=counted)


def test_what_a_teacher_was_asked_and_what_it_took(tmp_path: Path) -> None:
    asked = ("fails once", "no program", "too long", "well")
    with StandIn(script).serving() as stand_in:
        options = {"price": PRICE, "sampling": {"max_tokens": 50}, "concurrency": 1}
        ask = teacher(stand_in.url, **options)
        made = make(tmp_path, [prompt(text) for text in asked], [ask])
        (told,) = made.analysis.teachings
        assert (told.model, told.terms) == ("scripted", "Apache-2.0")
        assert f"http://{told.endpoint}/v1" == stand_in.url
        assert (told.prompts, told.kept) == (4, 2)
        assert told.lost == {"no_code": 1, "too_long": 1}
        assert told.used and told.used == told.used_by_all
        assert (told.used.requests, told.used.repeated, told.used.answers) == (5, 1, 3)
        assert (told.used.prompt_tokens, told.used.completion_tokens) == (300, 27)
        assert told.used.cost == pytest.approx((300 * 10 + 27 * 100) / 1e6)
        for text in made.texts.values():
            assert told.endpoint in text and "no_code 1, too_long 1" in text
            assert KEY not in text
        assert "All runs" not in made.texts["ANALYSIS.md"]

        # Another recipe asks for two more; what is known of the first two is not asked again.
        rows = [prompt(text) for text in ("well", "fails once", "not counted", "new")]
        again = make(tmp_path, rows, [ask])
        (told,) = again.analysis.teachings
        assert told.used and told.used_by_all
        assert (told.used.requests, told.used.repeated, told.used.uncounted) == (5, 1, 1)
        assert (told.used_by_all.requests, told.used_by_all.answers) == (7, 5)
        assert len(stand_in.asked) == 7
    assert (
        "sent scripted 7 requests for 5 answers: 400 tokens in, 37 out"
        in (again.texts["ANALYSIS.md"])
    )
    assert "did not count the tokens of 1 answer:" in again.texts["report.html"]
    answers_file(tmp_path / "cache").unlink()
    assert analyse(Run(tmp_path, "small")).teachings[0].used is None


def test_each_step_counts_its_own_prompts_and_no_price_is_no_cost(tmp_path: Path) -> None:
    with StandIn(script).serving() as stand_in:
        first, other = (
            teacher(stand_in.url, model=m, concurrency=1) for m in ("scripted", "other")
        )
        made = make(tmp_path, [prompt("well"), prompt("no program")], [first, other])
    one, two = made.analysis.teachings
    assert one.used and (one.prompts, one.used.requests, one.used.cost) == (2, 2, 0)
    assert two.used and (two.prompts, two.used.requests) == (0, 0)
    line, _ = [s for s in made.texts["ANALYSIS.md"].splitlines() if "| Apache-2.0 |" in s]
    assert line.endswith("| 2 | 0 | 200 | 17 | - |")


# --- a planted benchmark ----------------------------------------------------------------------

PROBLEM = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, channels: int, groups: int, shrink: float) -> None:
        super().__init__()
        self.mix = nn.Conv2d(channels, channels, kernel_size=3, padding=1)
        self.norm = nn.GroupNorm(groups, channels)
        self.shrink = shrink

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mixed = self.norm(self.mix(x))
        gate = torch.sigmoid(mixed.mean(dim=(2, 3), keepdim=True))
        return torch.clamp(mixed * gate - self.shrink, min=0.0) + x


def get_inputs():
    return [torch.rand(16, 32, 24, 24)]


def get_init_inputs():
    return [32, 8, 0.25]
"""
KERNEL = """\
import triton
import triton.language as tl


@triton.jit
def shrink_rows(x_ptr, gate_ptr, out_ptr, n_cols, shrink, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    inside = cols < n_cols
    x = tl.load(x_ptr + row * n_cols + cols, mask=inside, other=0.0)
    gate = tl.sigmoid(tl.load(gate_ptr + row))
    kept = tl.maximum(x * gate - shrink, 0.0)
    tl.store(out_ptr + row * n_cols + cols, kept + tl.sum(kept, axis=0), mask=inside)
"""
RENAMED = KERNEL.replace("shrink_rows", "_soft_k").replace("gate", "g").replace("kept", "v")
ANSWER = PROBLEM.replace("Model(", "ModelNew(").replace("mixed", "hidden")
OWN = """\
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return {}
"""


def cuda_pair(code: str) -> Row:
    origin = make_origin("pypi", purl="pkg:pypi/kernels@1.0", path="k.cu")
    return make_row(
        "cuda", code, origin, cuda="__global__ void k() {}", triton=code, license=LICENSE
    )


def test_a_planted_benchmark_problem_is_dropped_and_named_wherever_it_is(tmp_path: Path) -> None:
    bench = tmp_path / "bench"
    bench.mkdir()
    (bench / "1_GatedShrink.py").write_text(PROBLEM)
    (bench / "2_shrink_rows.py").write_text(KERNEL)
    file = tmp_path / "ours.json"
    api.fingerprint([bench], name="ours", version="abc123", output=file)
    check = Decontaminate(step="decontaminate", against=(str(file), "kernelbench"))
    rows = [
        prompt("planted", reference=PROBLEM),
        prompt("gives the problem away", reference=OWN.format("x + 1")),
        prompt("well", reference=OWN.format("x * 2")),
        cuda_pair(RENAMED),
        cuda_pair(KERNEL[: KERNEL.index("@")] + "@triton.jit\ndef copy(x_ptr):\n    pass\n"),
    ]

    def answer(asked: Asked, times: int) -> Reply:
        program = ANSWER if "away" in asked.prompt else PROGRAM
        return Reply(f"```python\n{program}```")

    with StandIn(answer).serving() as stand_in:
        made = make(tmp_path / "out", rows, [check, teacher(stand_in.url, concurrency=1), check])
        assert "planted" not in {asked.prompt for asked in stand_in.asked}

    found = made.analysis.contamination
    items = {name: (b.version, b.items) for b in found.benchmarks if (name := b.name)}
    assert items["ours"] == ("abc123", 2) and items["kernelbench"][1] == 270
    assert [(c.label, c.kind, c.seen, c.dropped) for c in found.checks] == [
        ("decontaminate#1", "cuda", 2, 1),
        ("decontaminate#1", "prompt", 3, 1),
        ("decontaminate#2", "cuda", 1, 0),
        ("decontaminate#2", "sample", 2, 1),
    ]
    dropped = {(c.label, c.kind): (c.benchmark, c.item, c.column) for c in found.copies}
    assert dropped == {
        ("decontaminate#1", "prompt"): ("ours", "1_GatedShrink.py", "reference"),
        ("decontaminate#1", "cuda"): ("ours", "2_shrink_rows.py", "triton"),
        ("decontaminate#2", "sample"): ("ours", "1_GatedShrink.py", "triton"),
    }
    assert found.dropped == {"ours": 3}
    assert found.items == {"ours: 1_GatedShrink.py": 2, "ours: 2_shrink_rows.py": 1}
    kept = next(c for c in found.checks if (c.label, c.kind) == ("decontaminate#2", "sample"))
    assert kept.overlap.n + kept.overlap.unknown == 1
    for name in ("report.html", "ANALYSIS.md"):
        text = made.texts[name]
        assert "ours: 1_GatedShrink.py" in text and "ours: 2_shrink_rows.py" in text
        assert "abc123" in text and "decontaminate#2" in text
    assert (
        "3 rows that held a part of one, or computed an item of one, were dropped"
        in made.texts["README.md"]
    )
    assert made.analysis.rows == 2  # a sample and a CUDA pair

    file.unlink()  # the run stays what it is; which benchmark that was is not known any more
    gone = analyse(Run(tmp_path / "out", "small")).contamination.benchmarks
    assert {b.name for b in gone} == {None, "kernelbench"}
