"""``ANALYSIS.md``: the numbers of ``ANALYSIS.json`` as GitHub and the Hub show them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from curate.publish.analysis.analysis import Analysis
from curate.publish.analysis.charts import number, share
from curate.publish.analysis.contamination import Copy
from curate.publish.analysis.counts import Distribution, Tally
from curate.publish.analysis.words import (
    BENCHMARK_HEADS,
    CHECK_HEADS,
    CHECK_NOTE,
    PASS_NOTE,
    TEACHING_HEADS,
    benchmark_cells,
    check_cells,
    headline,
    judged_word,
    pass_cell,
    pass_ks,
    plural,
    reasons_line,
    teaching_cells,
    teaching_notes,
    unknowns,
)

MOST_VALUES = 15  # of a property that a table lists
MOST_SOURCES = 60


def markdown(a: Analysis, figures: dict[str, str]) -> str:
    """Return the text of ``ANALYSIS.md``.

    Args:
        a: the numbers.
        figures: what is drawn in each file of ``figs/``, by the file's name without ``.png``.
    """
    lines = [f"# {a.name} in numbers", ""]
    lines += [_plain(a.description), ""] if a.description else []
    lines += [f"- {line}" for line in headline(a)]
    if a.limit:
        lines += ["", f"A trial, limited to {plural(a.limit, 'row')} of every unit of a source."]
    for part in (
        _contents,
        _steps,
        _proof,
        _answers,
        _code,
        _cost,
        _papers,
        _duplicates,
        _contamination,
    ):
        if section := part(a):
            lines += ["", *section, *_figures(part.__name__[1:], figures)]
    lines += ["", "## What is not known", "", *(f"- {line}" for line in unknowns(a)), ""]
    lines += ["`ANALYSIS.json` holds the same numbers, `report.html` shows rows as well."]
    lines += ["Quantities are rounded to three digits."]
    return "\n".join(lines) + "\n"


PLACES = {
    "steps": ("funnel",),
    "proof": ("verdicts", "compile"),
    "code": ("lengths", "operators"),
    "cost": ("registers", "error", "speedup"),
    "papers": ("licenses", "sources"),
    "contamination": ("contamination",),
}
"""Which figures stand in which section."""


def _figures(section: str, figures: dict[str, str]) -> Iterator[str]:
    for name in PLACES.get(section, ()):
        if name in figures:
            yield ""
            yield f"![{figures[name]}](figs/{name}.png)"


def _plain(text: str) -> str:
    return " ".join(text.split())


def table(heads: list[str], rows: Iterable[Iterable[object]]) -> list[str]:
    """Return a Markdown table; numbers stand to the right."""
    body = [list(row) for row in rows]
    numeric = [
        bool(body) and all(isinstance(row[i], int | float) or row[i] == "" for row in body)
        for i in range(len(heads))
    ]
    rule = "|".join("-:" if right else "-" for right in numeric)
    lines = [f"| {' | '.join(heads)} |", f"|{rule}|"]
    return lines + [f"| {' | '.join(map(_cell, row))} |" for row in body]


def _cell(value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number(value)
    return str(value).replace("|", "\\|").replace("\n", " ")


def _tally(heading: str, tally: Tally, of: str) -> list[str]:
    if not tally.counts:
        return []
    shown = list(tally.counts.items())[:MOST_VALUES]
    rows: list[tuple[object, ...]] = [(f"`{v}`", n, share(n, tally.n)) for v, n in shown]
    if tally.unknown:
        rows.append(("not known", tally.unknown, share(tally.unknown, tally.n)))
    more = len(tally.counts) - len(shown)
    note = [f"\n{more} more in `ANALYSIS.json`."] if more else []
    head = f"of {number(tally.n)} {of}"
    return ["", f"**{heading}**", "", *table(["value", "rows", head], rows), *note]


SPREAD = ["", "n", "not known", "min", "5 %", "25 %", "median", "75 %", "95 %", "max"]


def _spreads(spreads: Iterable[tuple[str, Distribution]]) -> list[str]:
    rows = [
        (
            f"{name}: {d.what}" if name else d.what,
            *(d.n, d.unknown + d.not_finite),
            *(number(v) for v in (d.minimum, d.p05, d.p25, d.median, d.p75, d.p95, d.maximum)),
        )
        for name, d in spreads
        if d.n
    ]
    return ["", *table(SPREAD, rows)] if rows else []


def _contents(a: Analysis) -> list[str]:
    splits = [s for s in ("train", "validation", "test") if any(s in c for c in a.configs.values())]
    rows = [
        (f"`{config}`", *(counts.get(s, 0) for s in splits), sum(counts.values()))
        for config, counts in a.configs.items()
    ]
    lines = ["## Contents", "", *table(["config", *splits, "rows"], rows)]
    lines += [f"\nNot written: {n} rows, `{reason}`." for reason, n in a.unwritten.items()]
    if a.clusters:
        lines += ["", f"{number(a.rows)} final rows in {number(a.clusters)} clusters (rows of one"]
        lines += ["file, or whose code is nearly the same); no cluster is divided between splits."]
    return lines


def _steps(a: Analysis) -> list[str]:
    rows = [
        (
            *(f"`{step.label}`", step.seen - step.untouched, step.emitted),
            *(sum(step.lost.values()), reasons_line(step)),
        )
        for step in a.steps
    ]
    heads = ["step", "looked at", "rows after it", "lost", "why"]
    return ["## Steps", "", *table(heads, rows)]


def _proof(a: Analysis) -> list[str]:
    verdicts, kernels, many = a.verdicts, a.kernels, f"{judged_word(a)}s"
    lines = ["## Proof"]
    lines += _tally("Verdict", verdicts.status, many)
    lines += _tally("Reason given with a verdict", verdicts.reason, f"{many} that have one")
    if verdicts.caveats.counts:
        lines += _tally("Caveats", verdicts.caveats, many)
    lines += _tally(f"Where {many} ran", verdicts.ran_on, many)
    lines += _tally("What did the work", verdicts.kind, many)
    lines += _tally("Kernels run on the CPU, as Triton lowers them", kernels.run, "kernels")
    lines += _tally("How the signature was found", kernels.found_by, "kernels")
    if a.targets:
        rows = [
            (f"`{t.target}`", t.rows, t.ok, ", ".join(f"`{e}` {n}" for e, n in t.errors.items()))
            for t in a.targets
        ]
        lines += ["", "**Compiled ahead of time**", ""]
        lines += table(["target", "rows", "compile", "errors"], rows)
    return lines


def _answers(a: Analysis) -> list[str]:
    if not (a.teachings or a.pass_rates or a.selections.n):
        return []
    lines = ["## Answers of the teacher", ""]
    if a.teachings:
        lines += table([*TEACHING_HEADS], map(teaching_cells, a.teachings))
        for note in teaching_notes(a):
            lines += ["", note]
        lines.append("")
    if a.pass_rates:
        ks = pass_ks(a)
        heads = [
            "prompts",
            "attempt",
            "questions",
            "answers",
            "correct",
            *(f"pass@{k}" for k in ks),
        ]
        rows = [
            (
                *(f"`{rate.family}`", rate.attempt, rate.questions, rate.answers, rate.correct),
                *(pass_cell(rate, k) for k in ks),
            )
            for rate in a.pass_rates
        ]
        lines += [*table(heads, rows), "", PASS_NOTE]
    return lines + _tally("What answers were kept as", a.selections, "answers")


def _code(a: Analysis) -> list[str]:
    code = a.code
    spreads = (
        *(code.reference_lines, code.triton_lines, code.reference_tokens, code.triton_tokens),
        *(code.kernels, code.launches, code.dynamic_dims),
    )
    lines = ["## Code", *_spreads(("", d) for d in spreads)]
    lines += _tally("Operators (a row may have several)", code.operators, "rows")
    lines += _tally("All computing done by Triton", code.pure_triton, "rows")
    lines += _tally("Who wrote the Triton code", code.generators, "rows")
    for holes in a.holes:
        lines += _tally(f"`{holes.config}`: what is left out", holes.hole, "rows of the config")
        lines += _spreads([("", holes.lines)])
    return lines


def _cost(a: Analysis) -> list[str]:
    spreads = [
        (f"`{t.target}`", d) for t in a.targets for d in (t.registers, t.spills, t.shared) if d.n
    ]
    v = a.verdicts
    judged = (v.error_ratio, v.error, v.speedup_eager, v.speedup_compile)
    spreads += [("", d) for d in judged]
    return ["## Cost and error", *(_spreads(spreads) or ["", "Nothing was measured."])]


def _papers(a: Analysis) -> list[str]:
    licenses = [
        (
            *(x.expression, x.rows, x.sources),
            ", ".join(f"{name.replace('_', ' ')} {n}" for name, n in x.methods.items()),
            x.conflicts,
        )
        for x in a.licenses
    ]
    sources = [(s.name, s.read, s.rows, ", ".join(s.licenses)) for s in a.sources[:MOST_SOURCES]]
    heads = ["license", "rows", "sources", "found by", "conflicts"]
    lines = ["## Sources and licenses", "", *table(heads, licenses), ""]
    lines += table(["source", "files or problems read", "final rows", "licenses"], sources)
    more = len(a.sources) - len(sources)
    return lines + ([f"\n{more} more in `ANALYSIS.json`."] if more else [])


def _duplicates(a: Analysis) -> list[str]:
    lines = ["## Duplicates", ""]
    if not a.duplicates:
        return [*lines, "The recipe does not look for duplicates."]
    tiers = ("exact_duplicate", "renamed_duplicate", "near_duplicate")
    rows = [
        (
            *(f"`{d.label}`", d.column, d.seen, *(d.tiers.get(tier, 0) for tier in tiers)),
            ", ".join(f"{number(n)} of {size}" for size, n in d.sizes.items()),
        )
        for d in a.duplicates
    ]
    heads = ["step", "compared", "rows", "exact", "renamed", "near", "groups, by size"]
    return lines + table(heads, rows)


def _contamination(a: Analysis) -> list[str]:
    found = a.contamination
    lines = ["## Contamination", ""]
    if not found.checked:
        return [*lines, "Rows were not compared with benchmarks."]
    lines += [
        f"{number(found.seen)} times a row was compared with the benchmarks; "
        f"{number(sum(found.dropped.values()))} held a part of one and were dropped.",
        "",
        *table([*BENCHMARK_HEADS], map(benchmark_cells, found.benchmarks)),
        "",
        *table([*CHECK_HEADS], map(check_cells, found.checks)),
        "",
        CHECK_NOTE,
    ]
    if found.items:
        lines += ["", *table(["benchmark: item", "rows dropped"], found.items.items())]
    if found.copies:
        rows = [(c.label, c.kind, f"`{c.id}`", *_copied(c)) for c in found.copies]
        heads = ["step", "kind", "dropped row", "column", "benchmark: item", "found by", "score"]
        lines += ["", *table(heads, rows)]
    return lines + _spreads([("final rows", found.overlap), ("final rows", found.resemblance)])


def _copied(c: Copy) -> tuple[str, str, str, float]:
    part = f", {c.part}" if c.part else ""
    return c.column, f"{c.benchmark}: {c.item}{part}", c.tier, c.score
