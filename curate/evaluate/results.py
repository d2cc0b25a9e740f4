"""The results of an evaluation: as JSON, as tables for people, and as a plot."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from curate.evaluate.chart import draw
from curate.evaluate.problems import Problem
from curate.evaluate.scores import ScoredAnswer, Scores, compare, excluded
from curate.evaluate.signals import signals
from curate.files import write_atomically
from curate.generate.sampling import Sampling
from curate.terminal.shown import visible
from curate.verify import STATUSES, Options

PACKAGES = ("kernel-curate", "torch", "triton", "transformers", "vllm", "openai")


def summarize(
    found: Mapping[str, Sequence[ScoredAnswer]],
    problems: Sequence[Problem],
    sampling: Sampling,
    options: Options,
    models: Mapping[str, Any],
) -> dict[str, Any]:
    """Return all results, as JSON values.

    Args:
        found: the judged answers of every model, by label; what the first has gained stands beside
            every other.
        problems: what the models were asked.
        sampling: how answers were drawn; its seed is that of the bootstrap too.
        options: of the judge.
        models: what each label stands for.
    """
    left_out = excluded(found)
    counted = [problem.id for problem in problems if problem.id not in left_out]
    scores = {
        name: Scores(answers, counted, sampling.n, options.timing)
        for name, answers in found.items()
    }
    known = {problem.id: problem.answer for problem in problems}
    values: dict[str, Any] = {
        "problems": [problem.id for problem in problems],
        "excluded": left_out,
        "sampling": dataclasses.asdict(sampling),
        "judge": options.deciding() | _place(found),
        "versions": _versions(),
        "models": {},
        "differences": [],
    }
    for name, score in scores.items():
        programs = ((a.program, known[a.problem]) for a in score.all)
        values["models"][name] = {
            **models[name],
            **(score.to_json(sampling.seed) if counted else {}),
            "signals": signals(programs),
            "by_problem": {
                problem: {
                    "correct": sum(a.correct for a in answers),
                    "compiled": sum(a.compiled for a in answers),
                    "outcomes": [a.outcome for a in answers],
                }
                for problem, answers in score.answers.items()
            },
        }
    base, *others = scores
    for other in others if counted else []:
        gained = compare(scores[base], scores[other], sampling.seed)
        values["differences"].append({"from": base, "to": other, "metrics": gained})
    return values


def _place(found: Mapping[str, Sequence[ScoredAnswer]]) -> dict[str, Any]:
    """Return where programs were judged, as the first verdict says."""
    verdicts = (answer.verdict for answers in found.values() for answer in answers)
    first = next((verdict for verdict in verdicts if verdict), None)
    names = ("backend", "device", "driver", "torch", "triton", "judge")
    return {f"on_{name}": getattr(first, name) for name in names} if first else {}


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue  # not needed for this evaluation
    return found


def write_results(folder: Path, values: dict[str, Any]) -> None:
    """Write ``results.json``, ``results.md`` and ``results.svg`` into a folder."""
    text = json.dumps(values, indent=2, allow_nan=False) + "\n"
    write_atomically(folder / "results.json", text.encode())
    write_atomically(folder / "results.md", visible(markdown(values)).encode())
    if any("metrics" in model for model in values["models"].values()):
        write_atomically(folder / "results.svg", draw(values).encode())


# --- tables -----------------------------------------------------------------------------------

Rows = list[list[str]]


def metric_rows(values: dict[str, Any]) -> Rows:
    """Return the table of metrics: a head, and a row per metric."""
    models = {name: m.get("metrics", {}) for name, m in values["models"].items()}
    gained = values["differences"]
    rows = [["metric", *models, *(f"{d['to']} - {d['from']}" for d in gained)]]
    for metric in dict.fromkeys(name for metrics in models.values() for name in metrics):
        cells = [_estimate(metrics.get(metric)) for metrics in models.values()]
        cells += [_estimate(d["metrics"].get(metric), is_gain=True) for d in gained]
        rows.append([metric, *cells])
    return rows


def class_rows(values: dict[str, Any]) -> Rows:
    """Return the table of what became of the answers: a head, and a row per class."""
    models = {name: m.get("classes", {}) for name, m in values["models"].items()}
    there = {name for classes in models.values() for name in classes}
    known = [status for status in STATUSES if status in there]
    rows = [["answers", *models]]
    for outcome in [*known, *sorted(there - set(known))]:
        rows.append([outcome, *(_count(classes.get(outcome)) for classes in models.values())])
    return rows


def signal_rows(values: dict[str, Any]) -> Rows:
    """Return the table of static signals: a head, and a row per signal."""
    models = {name: m["signals"] for name, m in values["models"].items()}
    rows = [["signals, not proof", *models]]
    for name in ("triton_jit", "tl_load", "masked_store", "token_overlap"):
        shown = [found[name] for found in models.values()]
        if any(value is not None for value in shown):
            rows.append([name, *("-" if v is None else percent(v) for v in shown)])
    return rows


def percent(value: float) -> str:
    """Return a share as people read it; only all is 100 %, and only nothing is 0 %."""
    if value in (0, 1):
        return f"{100 * value:.0f} %"
    return f"{min(max(100 * value, 0.1), 99.9):.1f} %"


def _estimate(estimate: dict[str, float | None] | None, is_gain: bool = False) -> str:
    """Return a share, or a gain in points, with its interval."""
    if not estimate:
        return "-"
    value, sign = float(estimate["value"] or 0), "+" if is_gain else ""
    shown = f"{100 * value:+.1f}" if is_gain else percent(value)
    low, high = estimate["low"], estimate["high"]
    if low is None or high is None:
        return shown
    return f"{shown} ({100 * low:{sign}.1f} to {100 * high:{sign}.1f})"


def _count(found: dict[str, Any] | None) -> str:
    if not found:
        return "0"
    reasons = ", ".join(f"{reason} {n}" for reason, n in found["reasons"].items())
    return f"{found['answers']} ({reasons})" if reasons else str(found["answers"])


def notes(values: dict[str, Any]) -> list[str]:
    """Return what must be known to read the tables, a sentence each."""
    sampling, judge = values["sampling"], values["judge"]
    left = len(values["excluded"])
    counted = len(values["problems"]) - left
    said = [
        f"{counted} problems, {sampling['n']} answers each at temperature "
        f"{sampling['temperature']:g}, top_p {sampling['top_p']:g}, at most "
        f"{sampling['max_tokens']} tokens. In brackets: 95 % intervals, problems being drawn.",
    ]
    if left:
        said.append(
            f"{left} more problems are left out, since the judge can say nothing of them: "
            + "; ".join(f"{name} ({why})" for name, why in values["excluded"].items())
            + "."
        )
    if "on_backend" in judge:
        where = f"backend {judge['on_backend']} on {judge['on_device']}"
        said.append(
            f"Judged with {where}, torch {judge['on_torch']}, triton {judge['on_triton']}, judge "
            f"{judge['on_judge']}, {judge['trials']} draws."
        )
    return said


def markdown(values: dict[str, Any]) -> str:
    """Return the results as a page."""
    parts = ["# Evaluation", "\n\n".join(notes(values))]
    for rows in (metric_rows(values), class_rows(values), signal_rows(values)):
        if len(rows) > 1:
            parts.append(_markdown_table(rows))
    listed = []
    for name, model in values["models"].items():
        where = model["model"] or "its only model"
        at = f" at {model['endpoint']}" if model["endpoint"] else ""
        weights = f", sha256 {model['sha256'][:12]}" if model["sha256"] else ""
        listed.append(f"- {name}: `{where}`{at}{weights}")
    parts.append("\n".join(listed))
    return "\n\n".join(parts) + "\n"


def _markdown_table(rows: Rows) -> str:
    lines = [f"| {' | '.join(cell.replace('|', '¦') for cell in row)} |" for row in rows]
    lines.insert(1, f"|---|{'---:|' * (len(rows[0]) - 1)}")
    return "\n".join(lines)


def tables(values: dict[str, Any]) -> RenderableType:
    """Return the results for a terminal."""
    parts: list[RenderableType] = []
    for rows in (metric_rows(values), class_rows(values), signal_rows(values)):
        if len(rows) > 1:
            parts.append(_table(rows))
    return Group(*parts, *map(escape, notes(values)))


def _table(rows: Rows) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for i, name in enumerate(rows[0]):
        table.add_column(escape(name), justify="right" if i else "left", overflow="fold")
    for row in rows[1:]:
        table.add_row(*map(escape, row))
    return table
