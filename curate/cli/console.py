"""What a person sees in the terminal: progress, the ledger, a row's programs side by side."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from textwrap import indent
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.markup import escape
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from curate.engine.history import Losses, RowEvent
from curate.engine.plan import PlanLine
from curate.engine.run import Progress, Stage
from curate.rows import Compiled, Loose, place
from curate.terminal import progress
from curate.terminal.safe_console import SafeConsole
from curate.terminal.shown import visible
from curate.verify import CAVEATS, FAMILIES, STATUSES, Verdict

if TYPE_CHECKING:
    from curate.licenses.relicensing import Checked
    from curate.licenses.relicensing import TermsChange as TermsChange
    from curate.publish.diff import Diff, Difference
    from curate.publish.removal import Removal


console = SafeConsole(highlight=False)
errors = SafeConsole(stderr=True, highlight=False)


WIDE = 110
"""Columns from which two programs are shown side by side."""


class Live(Progress):
    """Progress bars on a terminal; elsewhere a line per finished step, and lines for slow ones."""

    def __init__(self) -> None:
        self.bars = Bars(
            TextColumn("{task.description:<12}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]:>12}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[lost]}"),
            console=errors,
            disable=not errors.is_terminal,
        )
        self.seconds: dict[str, float] = {}

    def begin(self, label: str, total: int | None, cached: int) -> None:
        self.started, self.cached, self.gone = time.monotonic(), cached, 0
        self.label, self.said = label, self.started
        self.task = self.bars.add_task(label, total=total, completed=cached, rate="", lost="")

    def advance(self, rows: int, lost: int) -> None:
        self.gone += lost
        done = self.bars.tasks[self.task].completed + rows - self.cached
        rate = done / max(time.monotonic() - self.started, 1e-3)
        self.bars.update(
            self.task,
            advance=rows,
            rate=f"{rate:.1f} rows/s",
            lost=f"{self.gone} lost" if self.gone else "",
        )
        if not errors.is_terminal and time.monotonic() - self.said >= progress.QUIET_S:
            self.said = time.monotonic()
            errors.print(self._line(rate), soft_wrap=True)

    def _line(self, rate: float) -> str:
        """Return how far the step is, such as ``closure: 3 of 10 done, 0.5/s, 1 lost, 0:00:14
        left``; of a source, units are counted."""
        task = self.bars.tasks[self.task]
        parts = [f"{task.completed:g} of {task.total:g} done" if task.total else ""]
        parts += [f"{rate:.1f}/s" if rate >= 1 else f"{rate:.1g}/s"]
        parts += [f"{self.gone} lost" if self.gone else ""]
        if rate and task.remaining:
            parts += [f"{timedelta(seconds=round(task.remaining / rate))} left"]
        return f"{self.label}: {', '.join(filter(None, parts))}"

    def end(self, stage: Stage) -> None:
        self.seconds[stage.label] = time.monotonic() - self.started
        if not errors.is_terminal:
            seen, kept = stage.total("seen"), stage.total("kept")
            took = self.seconds[stage.label]
            errors.print(f"{stage.label}: saw {seen} rows, kept {kept} ({took:.1f} s)")

    def warn(self, message: str) -> None:
        errors.print(f"[yellow]warning:[/] {escape(message)}", soft_wrap=True)  # paths stay whole


def ledger_table(stages: list[Stage], seconds: dict[str, float]) -> RenderableType:
    """Return the table of what each step kept, dropped and failed, and below it why."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("step")
    for name in ("seen", "kept", "dropped", "failed", "out", "seconds"):
        table.add_column(name, justify="right")
    why = Table(box=None, pad_edge=False, show_header=False)
    for stage in stages:
        dropped, failed = stage.reasons("dropped"), stage.reasons("failed")
        counts = [
            stage.total("seen") - stage.total("untouched"),
            stage.total("kept") - stage.total("untouched"),
            sum(dropped.values()),
            sum(failed.values()),
            stage.total("emitted") - stage.total("untouched"),
        ]
        took = f"{seconds[stage.label]:.1f}" if stage.label in seconds else ""
        table.add_row(stage.label, *map(str, counts), took)
        reasons = [*dropped.items(), *failed.items()]
        if reasons:
            why.add_row(stage.label, escape(", ".join(f"{reason} {n}" for reason, n in reasons)))
    if not why.row_count:
        return table
    return Group(table, Text("why rows were lost", style="bold"), why)


def plan_table(lines: list[PlanLine]) -> Table:
    """Return the table of what is cached, what will run, and why."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("step", "shards done", "to run", "why"):
        table.add_column(name, justify="right" if name in ("shards done", "to run") else "left")
    for line in lines:
        todo = "?" if line.todo is None else str(line.todo)
        table.add_row(line.label, str(line.done), todo, line.why)
    return table


def print_history(events: list[RowEvent], row_id: str) -> None:
    """Print what every step made of a row and its relatives.

    Lines are not broken to fit the terminal: ids stay whole, to be copied and searched for.
    """
    head = ("step", "row", "kind")
    rows = [(event.step, event.row_id, event.kind) for event in events]
    wide = [max(map(len, cells)) for cells in zip(head, *rows, strict=True)]

    def cells(row: tuple[str, ...]) -> list[str]:
        return [escape(cell.ljust(width)) for cell, width in zip(row, wide, strict=True)]

    console.print("  ".join([*cells(head), "what happened"]), style="bold", soft_wrap=True)
    for event, row in zip(events, rows, strict=True):
        step, known, kind = cells(row)
        what = escape(f"{event.fate}: {event.reason}" if event.reason else event.fate)
        known = f"[bold]{known}[/]" if event.row_id == row_id else known
        style = STYLE_OF_FATE.get(event.fate, "")
        console.print("  ".join([step, known, kind, what]), style=style, soft_wrap=True)
        if event.evidence:
            console.print(escape(indent(facts(event.evidence), "    ")), soft_wrap=True)


STYLE_OF_FATE = {"dropped": "yellow", "failed": "red"}


def losses_table(steps: list[Losses]) -> Table:
    """Return the table of how many rows each step lost, and why."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("step", no_wrap=True)
    table.add_column("lost", justify="right")
    table.add_column("reasons", overflow="fold")
    for step in steps:
        why = ", ".join(f"{reason} {n}" for reason, n in step.reasons.items())
        table.add_row(step.step, str(step.rows), escape(why))
    return table


def facts(evidence: dict[str, Any]) -> str:
    """Return evidence as lines ``name: value``."""
    return "\n".join(f"{name}: {str(value)[:500]}" for name, value in evidence.items())


def print_lost(rows: list[Loose]) -> None:
    """Print lost rows one below the other, each with its reason and evidence, in whole lines."""
    for row in rows:
        head = f"[bold]{row['id']}[/]  [yellow]{escape(row['reason'])}[/]  {escape(place(row))}"
        console.print(head, soft_wrap=True)
        evidence = indent(facts(json.loads(row["evidence"])), "    ")
        console.print(escape(evidence), soft_wrap=True)


def side_by_side(row: Loose) -> RenderableType:
    """Return a row's two programs, or a kernel and its launch, with the proof below."""
    if row["kind"] == "kernel":
        shown = {"kernel": row["triton"], "with a function that launches it": row["host_function"]}
        proof = _kernel_proof(row)
    else:
        shown = {"PyTorch": row["reference"], "Triton": row["triton"]}
        if row["kind"] == "sample" and row["triton"] is None:
            shown["answer"] = row["turns"][-1]["content"]
        proof = _proof(row)
    programs = _Programs({title: text for title, text in shown.items() if text})
    return Panel(
        Group(programs, proof), title=escape(f"{row['id']}  {place(row)}"), title_align="left"
    )


class _Programs:
    """Programs by their titles: in columns if there is room, and otherwise one above the other."""

    def __init__(self, texts: dict[str, str]) -> None:
        self.texts = texts

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if options.max_width < WIDE:
            for title, text in self.texts.items():
                yield Rule(escape(title), align="left", style="dim")
                yield _code(text)
            yield Rule(style="dim")
            return
        table = Table(box=box.SIMPLE_HEAD, expand=True, pad_edge=False)
        for title in self.texts:
            table.add_column(title, ratio=1)
        table.add_row(*map(_code, self.texts.values()))
        yield table


def _kernel_proof(row: Loose) -> str:
    known, run = row["kernel"] or {}, (row["kernel"] or {}).get("run") or {}
    signature = json.loads(known.get("signature") or "{}")
    kinds = {**signature.get("types", {}), **signature.get("constants", {})}
    ran = [run["status"], run["inputs"], run["message"]] if run else ["no function to run"]
    lines = [
        f"license   {row['license']['choice'] or row['license']['expression']}",
        f"signature {', '.join(f'{name} {kind}' for name, kind in kinds.items()) or 'none'}",
        f"compiled  {_targets(row)}",
        f"launch    {'; '.join(filter(None, ran))}",
        f"split     {row['split'] or '-'}",
    ]
    return escape("\n".join(lines))


def _targets(row: Loose) -> str:
    found = [
        f"{c['target']} {c['registers']} registers, {c['shared']} B shared"
        if c["ok"]
        else f"{c['target']} {c['error']}"
        for c in row["compile"] or []
    ]
    return "; ".join(found) or "not yet"


def _code(text: str | None) -> Syntax:
    return Syntax(visible(text or ""), "python", theme="ansi_dark", word_wrap=True)


def _proof(row: Loose) -> str:
    verdict, static = row["verdict"] or {}, row["static"] or {}
    status = verdict.get("status") or "not judged"
    reason = f" ({verdict['reason']})" if verdict.get("reason") else ""
    backend = f" on {verdict['backend']}" if verdict.get("backend") else ""
    draws = f", {verdict['trials']} draws" if verdict.get("trials") else ""
    lines = [
        *_answer_line(row["sample"]),
        f"license   {row['license']['choice'] or row['license']['expression']}",
        f"verdict   {status}{reason}{backend}{draws}",
        *([f"caveats   {_indented(_meanings(verdict['caveats'])) or 'none'}"] if verdict else []),
        f"compiled  {_targets(row)}",
        f"kernels   {static.get('kernels')}, extern calls {static.get('extern_calls') or 'none'}",
        f"split     {row['split'] or '-'}",
    ]
    return escape("\n".join(lines))


def _answer_line(sample: Loose | None) -> list[str]:
    if sample is None:
        return []
    chosen = sample["selection"] or "not selected"
    return [f"answer    {chosen}, to {sample['template']}, attempt {sample['attempt']}"]


# --- the judge --------------------------------------------------------------------------------


STATUS_STYLE = {"correct": "green", "unsupported": "yellow", "degenerate": "yellow"}


def status_table(verdicts: list[Verdict]) -> RenderableType:
    """Return the table of how many candidates have which status, and with which reasons."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("status")
    table.add_column("candidates", justify="right")
    table.add_column("reasons and caveats", overflow="fold")
    for status in STATUSES:
        those = [verdict for verdict in verdicts if verdict.status == status]
        why = Counter(code for v in those for code in (v.reason, *v.caveats) if code)
        codes = ", ".join(f"{code} {n}" for code, n in why.most_common())
        if those:
            style = STATUS_STYLE.get(status, "red")
            table.add_row(status, str(len(those)), escape(codes), style=style)
    table.add_section()
    table.add_row("all", str(len(verdicts)))
    caveats = sorted({caveat for verdict in verdicts for caveat in verdict.caveats})
    if not caveats:
        return table
    meanings = escape("\n".join(_meanings(caveats)))
    return Group(table, Text("what the caveats mean", style="bold"), meanings)


def _meanings(caveats: Iterable[str]) -> list[str]:
    """Return each caveat with what it says."""
    return [f"{caveat}: {CAVEATS[caveat]}" if caveat in CAVEATS else caveat for caveat in caveats]


def _indented(lines: list[str]) -> str:
    """Return lines one below the other, to the right of a name such as ``caveats``."""
    return f"\n{' ' * 10}".join(lines)


def verdict_panels(verdicts: list[Verdict]) -> RenderableType:
    """Return what the judge says of each candidate, with all that shows it."""
    return Group(*map(_verdict_panel, verdicts))


def _verdict_panel(verdict: Verdict) -> Panel:
    style = STATUS_STYLE.get(verdict.status, "red")
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    reason = f": {verdict.reason}" if verdict.reason else ""
    table.add_row("verdict", f"[bold {style}]{escape(verdict.status + reason)}[/]")
    for name, text in _verdict_facts(verdict):
        if text:
            table.add_row(name, escape(text))
    return Panel(table, title=escape(verdict.id), title_align="left", border_style=style)


def _verdict_facts(verdict: Verdict) -> list[tuple[str, str]]:
    """Return what a verdict rests on, as pairs of a name and a text; empty where it has none."""
    versions = (("driver", verdict.driver), ("torch", verdict.torch), ("triton", verdict.triton))
    place = [f"{verdict.backend} on {verdict.device}"] if verdict.backend else []
    place += [f"{name} {version}" for name, version in versions if version]
    error = ""
    if verdict.max_abs_error is not None and verdict.error_ratio is not None:
        error = f"at most {verdict.max_abs_error:.3g}, {verdict.error_ratio:.2f} of what is allowed"
    family = (verdict.evidence.get("trial") or {}).get("family")
    return [
        ("caveats", "\n".join(_meanings(verdict.caveats))),
        ("ran", ", ".join([*place, f"judge {verdict.judge}"])),
        ("draws", f"{verdict.trials} compared" if verdict.trials else ""),
        ("error", error),
        ("evidence", _evidence(verdict.evidence)),
        ("family", f"{family}: {FAMILIES[family]}" if family in FAMILIES else ""),
        (
            "source",
            "\n".join(f"line {f['line']} {f['rule']}: {f['reason']}" for f in verdict.findings),
        ),
        ("compiled", "\n".join(map(_compiled, verdict.compile))),
        ("timing", _evidence(verdict.timing or {})),
    ]


def _evidence(values: dict[str, Any]) -> str:
    """Return a line for each value that says something; a dict is a line of names and values."""
    shown = {
        name: ", ".join(f"{k} {v}" for k, v in value.items() if v is not None)
        if isinstance(value, dict)
        else value
        for name, value in values.items()
        if value not in (None, [], {}, "")
    }
    return facts(shown)


def _compiled(result: Compiled) -> str:
    if not result["ok"]:
        return f"{result['target']}: {result['error']}: {result['message']}"
    return (
        f"{result['target']}: {result['registers']} registers, {result['spills']} B spilled, "
        f"{result['shared']} B shared"
    )


# --- licenses ---------------------------------------------------------------------------------

OUTCOME_STYLE = {"denied": "red", "stricter": "red", "same": "green"}


def terms_table(found: list[Checked]) -> RenderableType:
    """Return the table of what became of the terms of every source, and below it what changed."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("source", "name", "pinned", "newest", "terms"):
        table.add_column(name, overflow="fold")
    why = Table(box=None, pad_edge=False, show_header=False)
    for checked in found:
        newest = "" if checked.newest == checked.pinned else _short(checked.newest or "-")
        cells = (checked.source, checked.name, _short(checked.pinned), newest, checked.outcome)
        table.add_row(*map(escape, cells), style=OUTCOME_STYLE.get(checked.outcome, "yellow"))
        for line in filter(None, [*map(_changed_terms, checked.changes), checked.note]):
            why.add_row(escape(checked.name), escape(line))
    if not why.row_count:
        return table
    return Group(table, Text("what changed, and what could not be told", style="bold"), why)


def _changed_terms(change: TermsChange) -> str:
    place = f"for {change.folder}/, " if change.folder != "." else ""
    return f"{change.old} -> {change.new} ({place}by {change.file})"


def _short(version: str) -> str:
    """Return a version as it is, and a commit's first digits."""
    return version[:12] if re.fullmatch(r"[0-9a-f]{40}", version) else version


# --- removal ----------------------------------------------------------------------------------


def removal_table(removal: Removal) -> RenderableType:
    """Return how many rows would go, by entry, source and config, and which entries are new."""
    parts: list[RenderableType] = [f"{removal.rows} of {removal.total} rows would go"]
    if removal.covered:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for name in ("entry", "source"):
            table.add_column(name, overflow="fold")
        for name in ("rows", *removal.configs):
            table.add_column(name, justify="right")
        for found in removal.covered:
            counts = [found.rows, *(found.views.get(name, 0) for name in removal.configs)]
            table.add_row(escape(found.entry.text()), escape(found.source), *map(str, counts))
        parts.append(table)
    if removal.path is not None:
        added = "\n".join(f"  {entry.text()}" for entry in removal.added)
        what = f"has new entries:\n{added}" if added else "has these entries already"
        parts.append(escape(f"{removal.path} {what}"))
    return Group(*parts)


# --- two runs ---------------------------------------------------------------------------------


def diff_tables(diff: Diff) -> RenderableType:
    """Return what changed from one run to another: settings, counts, configs and rows."""
    parts: list[RenderableType] = [f"from {escape(diff.old)}\nto   {escape(diff.new)}"]
    titles = {
        "what decides the result": diff.settings,
        "rows of a step": diff.counts,
        "rows of a config": diff.configs,
    }
    for title, changes in titles.items():
        if changes:
            parts.append(_changes_table(title, changes))
    if diff.rows is None:
        parts.append("rows: not compared, a run has no index.parquet")
    else:
        parts.append(escape("\n".join(diff.rows.lines())))
    if diff.same_data:
        parts.append("The data files are the same, byte for byte.")
    return Group(*parts)


def _changes_table(title: str, changes: list[Difference]) -> Table:
    table = Table(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False
    )
    for name in ("of", "value", "from", "to"):
        table.add_column(name, overflow="fold")
    for change in changes:
        values = ("-" if value is None else str(value) for value in (change.old, change.new))
        table.add_row(*map(escape, (change.step, change.name, *values)))
    return table
