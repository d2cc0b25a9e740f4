"""The report of a run, alongside its data.

<output>/<recipe>/report.html     one page that loads nothing, with rows to read
<output>/<recipe>/ANALYSIS.json   every number on it
<output>/<recipe>/ANALYSIS.md     the same, as GitHub and the Hub show it
<output>/<recipe>/figs/*.png      the same, drawn
<output>/<recipe>/PROVENANCE.md   where rows come from, and what is owed to their authors
<output>/<recipe>/croissant.json  the data set as programs look for it
<output>/<recipe>/README.md       the card, which has some of it

Numbers are those of `curate.publish.analysis.analysis`, rows those of
`curate.publish.report.samples`. No file holds a date or a machine's name: the same run gives the
same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from jinja2 import DictLoader, Environment, StrictUndefined, Template
from markupsafe import Markup, escape

from curate.files import write_atomically
from curate.formats.dataset.write import check_data, record_files
from curate.publish.analysis.analysis import (
    Analysis,
    Run,
    StepCounts,
    analyse,
    license_name,
    operator_name,
    place_name,
)
from curate.publish.analysis.counts import ranked
from curate.publish.analysis.numbers import number, plural, summary
from curate.publish.analysis.sections import Cell, sections
from curate.publish.analysis.words import RIGHT, headline, reasons_line, step_line, trial
from curate.publish.documents.card import write_card
from curate.publish.documents.croissant import CROISSANT_FILE, croissant
from curate.publish.documents.markdown import markdown
from curate.publish.documents.provenance import PROVENANCE_PAGE, collect, provenance_page
from curate.publish.report.charts import figures, histogram
from curate.publish.report.samples import (
    FAIR_SHARE,
    LONGEST_ROW,
    MOST_BYTES,
    MOST_ROWS,
    Before,
    LostSample,
    changes,
    draw,
    losses,
    row_status,
    shown_code,
)
from curate.rows import Loose, place
from curate.terminal.shown import visible

REPORT_FILE = "report.html"
MOST_CHARACTERS = 300  # of one value of evidence
LONGEST_FACT = 1500  # characters
MOST_CHARTS = 9  # of one kind that are shown at once
MOST_CHOICES = 40  # operators that the filter offers


def write_report(output: Path, name: str, folder: Path | None = None) -> Path:
    """Write report and card of a run alongside its data, and their sha256 to ``run.json``.

    Args:
        output: folder for data and cache.
        name: of the run's recipe.
        folder: of the data set, where it does not have its name yet.

    Returns:
        The path of ``report.html``.

    Raises:
        NoRun: there is no such run, or it is not finished.
        Damaged: a file of it is not as it was written.
    """
    run = Run(output, name, folder)
    check_data(run.folder, run.known)
    analysis = analyse(run)
    drawn = figures(sections(analysis))
    files = {f"figs/{name}.png": png for name, (_, png) in drawn.items()}
    titles = {name: title for name, (title, _) in drawn.items()}
    files["ANALYSIS.json"] = analysis.to_json().encode()
    files["ANALYSIS.md"] = visible(markdown(analysis, titles)).encode()
    files[REPORT_FILE] = visible(page(run, analysis)).encode()
    sources = collect(run)
    files[PROVENANCE_PAGE] = visible(provenance_page(run, sources)).encode()
    files[CROISSANT_FILE] = croissant(run, analysis, sources).encode()
    for path, data in files.items():
        write_atomically(run.folder / path, data)
    record_files(run.folder, run.known, files)
    write_card(run.folder, analysis)
    return run.folder / REPORT_FILE


def page(run: Run, analysis: Analysis) -> str:
    """Return the text of ``report.html``."""
    css, js = _resource("report.css"), _resource("report.js")
    examples = [example(row) for row in draw(run.final_rows())]
    return _template().render(
        a=analysis,
        headline=headline(analysis),
        trial=trial(analysis),
        sections=sections(analysis),
        most_charts=MOST_CHARTS,
        steps=_steps(run, analysis),
        most_rows=max(step.emitted + sum(step.lost.values()) for step in analysis.steps),
        examples=examples,
        choices=_choices(examples),
        rule=_rule(analysis, len(examples)),
        css=Markup(css),
        js=Markup(js),
        css_hash=_csp_hash(css),
        js_hash=_csp_hash(js),
    )


@cache
def _template() -> Template:
    environment = Environment(
        loader=DictLoader({"report.html": _resource("report.html")}),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    for function in (histogram, plural, summary):
        environment.globals[function.__name__] = function
    environment.filters |= {"number": number, "inline": inline}
    return environment.get_template("report.html")


def _resource(name: str) -> str:
    return (resources.files("curate.publish.report") / name).read_text(encoding="utf-8")


def _csp_hash(text: str) -> str:
    """Return the hash by which the page's policy allows one style sheet and one script."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def inline(cell: Cell) -> Markup:
    """Return a cell or a line of Markdown as HTML."""
    text = cell if isinstance(cell, str) else number(cell)
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


# --- steps ------------------------------------------------------------------------------------


def _steps(run: Run, analysis: Analysis) -> list[dict[str, Any]]:
    shown = changes(run)
    return [
        _step(step, losses(run, record), shown.get(step.label, []))
        for step, record in zip(analysis.steps, run.records, strict=True)
    ]


def _step(step: StepCounts, lost: dict[str, LostSample], shown: list[Before]) -> dict[str, Any]:
    return {
        "label": step.label,
        "what": step.what,
        "told": step_line(step),
        "emitted": step.emitted,
        "lost_rows": sum(step.lost.values()),
        "why": reasons_line(step),
        "losses": [
            {
                "reason": reason if reason in step.dropped else f"failed: {reason}",
                "n": n,
                "where": lost[reason].where,
                "evidence": evidence_line(lost[reason].evidence),
            }
            for reason, n in step.lost.items()
        ],
        "changes": [_change(change) for change in shown],
    }


def _change(change: Before) -> dict[str, Any]:
    return {
        "where": f"{change.where} → {change.row_id}",
        "before": change.before,
        "after": change.after,
        "labels": as_text(change.labels),
    }


def evidence_line(evidence: dict[str, Any]) -> str:
    """Return evidence in one line, without what is empty, long values cut."""
    return "; ".join(f"{name}: {_cut(value)}" for name, value in _known(evidence).items())


def _cut(value: Any, most: int = MOST_CHARACTERS) -> str:
    text = str(value)
    return text if len(text) <= most else f"{text[:most]} …"


def as_text(labels: dict[str, Any]) -> str:
    """Return labels as YAML without what is null or empty; "" if there are none."""
    known = _known(labels)
    return str(yaml.safe_dump(known, sort_keys=False, allow_unicode=True)) if known else ""


def _known(value: Any) -> Any:
    if isinstance(value, dict):
        pairs = {name: _known(inner) for name, inner in value.items()}
        return {name: inner for name, inner in pairs.items() if inner not in (None, [], {}, "")}
    if isinstance(value, list):
        return [_known(inner) for inner in value]
    return _cut(value) if isinstance(value, str) else value


# --- examples ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Example:
    """A final row as the page shows it.

    Attributes:
        good: whether the status speaks for the row.
        codes: titles and texts, side by side.
        facts: names and values of the evidence.
    """

    id: str
    kind: str
    title: str
    status: str
    good: bool
    source: str
    license: str
    operators: list[str]
    split: str
    codes: list[tuple[str, str]]
    facts: list[tuple[str, str]]


def example(row: Loose) -> Example:
    """Return a row as the page shows it."""
    operators = (row["static"] or {}).get("ops") or []
    status = row_status(row)
    return Example(
        id=row["id"],
        kind=row["kind"],
        title=row["origin"]["symbol"] or row["entry_point"] or row["id"],
        status=status,
        good=status in RIGHT,
        source=place_name(row["origin"]),
        license=license_name(row),
        operators=sorted({operator_name(operator) for operator in operators}),
        split=row["split"] or "train",
        codes=shown_code(row),
        facts=[(name, _cut(text, LONGEST_FACT)) for name, text in _facts(row) if text],
    )


def _facts(row: Loose) -> list[tuple[str, str]]:
    static, license = row["static"] or {}, row["license"] or {}
    method = (license.get("method") or "").replace("_", " ")
    where = f", {license['path']}" if license.get("path") else ""
    return [
        ("id", row["id"]),
        ("from", place(row)),
        ("license", f"{license_name(row)} ({method or 'method not known'}{where})"),
        ("copyright", "; ".join(license.get("copyright") or [])),
        *_verdict_facts(row["verdict"] or {}),
        *_run_facts((row["kernel"] or {}).get("run") or {}),
        ("compiled", "; ".join(_compiled(result) for result in row["compile"] or [])),
        ("operators", ", ".join(static.get("ops") or [])),
        ("kernels", str(static["kernels"]) if static.get("kernels") is not None else ""),
        ("extern calls", ", ".join(static.get("extern_calls") or [])),
        ("most like", _contamination(row.get("contamination") or {})),
        ("split", f"{row['split'] or 'none'}, cluster {row['cluster'] or 'none'}"),
    ]


def _verdict_facts(verdict: Loose) -> list[tuple[str, str]]:
    if not verdict.get("status"):
        return []
    reason = f": {verdict['reason']}" if verdict["reason"] else ""
    ran = [
        f"{verdict['backend']} on {verdict['device']}" if verdict["backend"] else "",
        f"torch {verdict['torch']}" if verdict["torch"] else "",
        f"triton {verdict['triton']}" if verdict["triton"] else "",
        f"judge {verdict['judge']}" if verdict["judge"] else "",
    ]
    error = ""
    if verdict["max_abs_error"] is not None and verdict["error_ratio"] is not None:
        error = (
            f"{number(verdict['max_abs_error'])} at most, "
            f"{number(verdict['error_ratio'])} of what is allowed"
        )
    return [
        ("verdict", f"{verdict['status']}{reason}"),
        ("caveats", ", ".join(verdict["caveats"] or [])),
        ("ran", ", ".join(filter(None, ran))),
        ("draws", f"{verdict['trials']} compared" if verdict["trials"] else ""),
        ("error", error),
        ("work done by", (verdict["kind"] or "").replace("_", " ")),
        ("deterministic", {True: "yes", False: "no"}.get(verdict["deterministic"], "")),
        ("source findings", ", ".join(verdict["findings"] or [])),
        ("timing", evidence_line(verdict["timing"] or {})),
    ]


def _run_facts(run: Loose) -> list[tuple[str, str]]:
    if not run:
        return []
    message = f": {run['message']}" if run["message"] else ""
    return [
        ("run", f"{run['status']}{message}"),
        ("call", _cut(run["inputs"] or "")),
        ("deterministic", {True: "yes", False: "no"}.get(run["deterministic"], "")),
    ]


def _compiled(result: Loose) -> str:
    if not result["ok"]:
        return f"{result['target']} {result['error']}: {_cut(result['message'] or '')}"
    return (
        f"{result['target']} {number(result['registers'])} registers, "
        f"{number(result['spills'])} B spilled, {number(result['shared'])} B shared"
    )


def _contamination(found: Loose) -> str:
    if not found.get("benchmark"):
        return ""
    degrees = f"overlap {number(found['overlap'])}, resemblance {number(found['resemblance'])}"
    return f"{found['benchmark']} {found['item']}: {degrees}"


def _choices(examples: list[Example]) -> dict[str, dict[str, int]]:
    """Return what the filter offers, with the examples that each choice leaves."""
    names = ("status", "kind", "source", "license", "split")
    found = {name: ranked(Counter(getattr(e, name) for e in examples)) for name in names}
    operators = ranked(Counter(op for e in examples for op in e.operators))
    return {**found, "operator": dict(sorted(list(operators.items())[:MOST_CHOICES]))}


def _rule(analysis: Analysis, shown: int) -> str:
    if shown == analysis.rows:
        return "all of them."
    return (
        f"drawn by a hash of the id, up to {FAIR_SHARE} of each kind, status and license first, "
        f"then all alike; at most {MOST_ROWS} rows and {MOST_BYTES / 1e6:.1f} MB of code, and none "
        f"of more than {LONGEST_ROW // 1000} kB."
    )
