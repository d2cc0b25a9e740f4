"""What a run has to show, as one list of sections: ``ANALYSIS.md`` and the report render all of it,
the card a part, and ``figs/`` what can be drawn.

Texts and cells are lines of Markdown with no markup but `code`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from curate.formats.dataset.leakage import THRESHOLD
from curate.publish.analysis.analysis import Analysis
from curate.publish.analysis.counts import Distribution, ValueCounts
from curate.publish.analysis.numbers import number, plural, share
from curate.publish.analysis.teaching import PassRate, Teaching
from curate.publish.analysis.words import judged_word, kept_apart, reasons_line, unknowns
from curate.verify import CAVEATS

Cell = str | int | float | None
Loose = Sequence[Cell]

MOST_VALUES = 16  # of a property that a table lists
MOST_SOURCES = 60  # that `ANALYSIS.md` lists
TIERS = ("exact_duplicate", "renamed_duplicate", "near_duplicate")


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str
    kind: ClassVar = "text"


@dataclass(frozen=True)
class Lines:
    """A list of sentences."""

    lines: list[str]
    kind: ClassVar = "lines"


@dataclass(frozen=True)
class Table:
    """Rows of cells.

    Attributes:
        key: by which a rendering picks the table, and the name of its figure.
        title: above the table; "" if it needs none.
        bars: a bar for every row, as lengths by class: `kept`, `lost` or `rest`.
        whole: what the length of all of a bar stands for.
        figure: title of the picture that shows the bars; "" if there is none.
        single: all that the table says, if that fits in a line.
        most: rows that Markdown lists; None lists all.
        note: below the table.
    """

    key: str
    title: str
    heads: Sequence[str]
    rows: Sequence[Loose]
    bars: list[dict[str, int]] = field(default_factory=list)
    whole: int = 0
    figure: str = ""
    single: str = ""
    most: int | None = None
    note: str = ""
    kind: ClassVar = "table"

    @property
    def numeric(self) -> list[bool]:
        """Which columns hold numbers, and stand to the right."""
        columns = zip(*self.rows, strict=True)
        return [any(map(_is_number, column)) for column in columns]


@dataclass(frozen=True)
class Spreads:
    """How quantities are spread over rows.

    Attributes:
        key: the name of the figure.
        title: above them, and of the figure.
        items: distributions by heading.
    """

    key: str
    title: str
    items: list[tuple[str, Distribution]]
    kind: ClassVar = "spreads"


Block = Text | Lines | Table | Spreads


@dataclass(frozen=True)
class Section:
    """One section of a document.

    Attributes:
        key: its anchor.
        lead: what it is about.
    """

    key: str
    title: str
    lead: str
    blocks: list[Block]


def sections(a: Analysis) -> list[Section]:
    """Return every section that an analysis has something for."""
    made = [
        Section(key, title, lead, [block for block in blocks(a) if not _is_empty(block)])
        for key, (title, lead, blocks) in SECTIONS.items()
    ]
    return [section for section in made if section.blocks]


def blocks_of(a: Analysis) -> dict[str, Table | Spreads]:
    """Return the tables and distributions of all sections, by key."""
    found = (block for section in sections(a) for block in section.blocks)
    return {block.key: block for block in found if isinstance(block, Table | Spreads)}


def _is_empty(block: Block) -> bool:
    if isinstance(block, Table):
        return not block.rows
    return isinstance(block, Spreads) and not block.items


def _tally(key: str, title: str, tally: ValueCounts, of: str = "rows", note: str = "") -> Table:
    """Return how many rows have which value, and of how many it is not known."""
    counts = dict(list(tally.counts.items())[:MOST_VALUES])
    rows: list[Loose] = [(f"`{v}`", n, share(n, tally.n)) for v, n in counts.items()]
    bars = [{"kept": n} for n in counts.values()]
    is_single = [*counts.values()] == [tally.n]
    single = f"`{next(iter(counts))}` (all {number(tally.n)} {of})" if is_single else ""
    if len(tally.counts) > MOST_VALUES:
        first = f"The {MOST_VALUES} most frequent of {number(len(tally.counts))}"
        note = f"{first}; `ANALYSIS.json` has them all. {note}".strip()
    if tally.unknown:
        rows.append(("not known", tally.unknown, share(tally.unknown, tally.n)))
        bars.append({"rest": tally.unknown})
    heads = ("value", "rows", f"of {number(tally.n)} {of}")
    return Table(key, title, heads, rows, bars, tally.n, single=single, note=note)


def _caveats(tally: ValueCounts, of: str) -> Table:
    """Return how many rows have which caveat, and what it says."""
    table = _tally("caveats", "Caveats: what a verdict does not cover", tally, of)
    said = [CAVEATS.get(str(row[0]).strip("`"), "") for row in table.rows]
    rows = [(*row, one) for row, one in zip(table.rows, said, strict=True)]
    return replace(table, heads=(*table.heads, "what it says"), rows=rows)


def _drawn(table: Table, title: str, n: int) -> Table:
    """Return a table with a picture of its bars."""
    return replace(table, figure=f"{title}, n = {number(n)}")


def _is_number(cell: Cell) -> bool:
    return isinstance(cell, int | float) or (isinstance(cell, str) and cell.endswith(" %"))


def _spreads(key: str, title: str, items: Iterable[tuple[str, Distribution]]) -> Spreads:
    return Spreads(key, title, [(heading, spread) for heading, spread in items if spread.n])


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {number(n)}" for name, n in counts.items())


# --- what each section shows --------------------------------------------------------------------


def _contents(a: Analysis) -> Iterator[Block]:
    splits = [s for s in ("train", "validation", "test") if any(s in c for c in a.configs.values())]
    rows: list[Loose] = [
        (f"`{config}`", *(counts.get(s, 0) for s in splits), sum(counts.values()))
        for config, counts in a.configs.items()
    ]
    yield Table("configs", "", ("config", *splits, "rows"), rows)
    if not rows:
        yield Text("No config was written.")
    for reason, n in a.unwritten.items():
        yield Text(f"Not written: {plural(n, 'row')}, `{reason}`.")
    yield _tally("kinds", "Kind of row", a.kinds)
    if a.clusters:
        yield Text(kept_apart(a))


def _steps(a: Analysis) -> Iterator[Block]:
    rows = []
    for s in a.steps:
        counts = (s.seen - s.untouched, s.emitted - s.untouched, s.emitted, sum(s.lost.values()))
        rows.append((f"`{s.label}`", s.what, *counts, reasons_line(s)))
    heads = ("step", "what it does", "rows in", "rows out", "rows after it", "lost", "why")
    bars = [{"kept": s.emitted, "lost": sum(s.lost.values())} for s in a.steps]
    whole = max(sum(bar.values()) for bar in bars)
    title = "Rows after each step, and rows lost in it"
    yield Table("funnel", "", heads, rows, bars, whole, figure=title)


def _proof(a: Analysis) -> Iterator[Block]:
    v, many = a.verdicts, f"{judged_word(a)}s"
    if v.status.n:
        status = _tally("verdicts", "Verdict", v.status, many)
        yield _drawn(status, f"Verdicts on {many}", v.status.n)
        yield _tally("reasons", "Reason given with a verdict", v.reason, f"{many} that have one")
        yield _caveats(v.caveats, many)
        yield _tally("ran_on", f"Where {many} ran", v.ran_on, many)
        yield _tally("work", "What did the work, as it ran", v.kind, many)
        yield _tally("deterministic", "Same bits when run again", v.deterministic, many)
        yield _tally("judge", "Versions of the judge", v.judge, many)
    yield from _kernels(a)
    rows = [
        (f"`{t.target}`", t.rows, t.ok, share(t.ok, t.rows), _counted(t.errors) or "none")
        for t in a.targets
    ]
    bars = [{"kept": t.ok, "lost": t.rows - t.ok} for t in a.targets]
    most = max((t.rows for t in a.targets), default=0)
    heads = ("target", "rows", "compile", "share", "errors")
    figure = f"Rows that compile, of {number(a.rows)}, and errors"
    yield Table("compile", "Compiled ahead of time", heads, rows, bars, most, figure)
    if not rows:
        yield Text("No row was compiled.")


def _kernels(a: Analysis) -> Iterator[Block]:
    kernels = a.kernels
    if kernels.run.n:
        title = "Kernels run on the CPU, as Triton lowers them, by a function of their package"
        run = _tally("launches", title, kernels.run, "kernels", note=RUN_NOTE)
        yield _drawn(run, "Runs of kernels on the CPU", kernels.run.n)
        yield _tally("found_by", "How the signature was found", kernels.found_by, "kernels")
        of = "kernels; one may have several"
        yield _tally("dtypes", "Element types that kernels compile with", kernels.dtypes, of)


def _answers(a: Analysis) -> Iterator[Block]:
    yield Table("teachings", "", TEACHING_HEADS, [_teaching_row(t) for t in a.teachings])
    if a.teachings:
        yield from map(Text, _teaching_notes(a))
    ks = sorted({k for rate in a.pass_rates for k in rate.pass_at})
    heads = ("prompts", "attempt", "questions", "answers", "correct", *(f"pass@{k}" for k in ks))
    rows: list[Loose] = [
        (
            *(f"`{rate.family}`", rate.attempt, rate.questions, rate.answers, rate.correct),
            *(pass_cell(rate, k) for k in ks),
        )
        for rate in a.pass_rates
    ]
    yield Table("pass_rates", "How often answers are right", heads, rows, note=PASS_NOTE)
    yield _tally("selections", "What answers were kept as", a.selections, "answers")


def pass_cell(rate: PassRate, k: int) -> str:
    """Return pass@k as a percentage, and of how many questions where not of all; "" if of none."""
    if k not in rate.pass_at:
        return ""
    of = rate.questions_at[k]
    return f"{rate.pass_at[k]:.1%}" + (f" ({of})" if of < rate.questions else "")


def _teaching_row(t: Teaching) -> Loose:
    asked = (f"`{t.label}`", t.model, t.terms, t.endpoint, t.prompts, t.kept, _counted(t.lost))
    if (used := t.used) is None:
        return *asked, *"-----"
    tokens = (used.prompt_tokens, used.completion_tokens)
    return *asked, used.requests, used.repeated, *tokens, used.cost or "-"


def _teaching_notes(a: Analysis) -> Iterator[str]:
    yield TEACHING_NOTE
    uncounted = sum(t.used.uncounted for t in a.teachings if t.used)
    if uncounted:
        yield (
            f"The endpoint did not count the tokens of {plural(uncounted, 'answer')}: the cost is "
            "the most that these may have taken."
        )
    for t in {(t.model, t.endpoint): t for t in a.teachings}.values():
        if (by_all := t.used_by_all) and by_all != t.used:
            cost = f", at a cost of {number(by_all.cost)}" if by_all.cost else ""
            yield (
                f"All runs in the output folder together sent {t.model} "
                f"{plural(by_all.requests, 'request')} for {plural(by_all.answers, 'answer')}: "
                f"{number(by_all.prompt_tokens)} tokens in, {number(by_all.completion_tokens)} "
                f"out{cost}."
            )


def _code(a: Analysis) -> Iterator[Block]:
    code = a.code
    spreads = (
        ("PyTorch, lines", code.reference_lines),
        ("Triton, lines", code.triton_lines),
        ("PyTorch, tokens", code.reference_tokens),
        ("Triton, tokens", code.triton_tokens),
        ("Kernels per program", code.kernels),
        ("Launches per forward", code.launches),
        ("Sizes as arguments", code.dynamic_dims),
    )
    yield _spreads("lengths", "Lengths of programs, and kernels in them", spreads)
    of, n = "rows; one may have several", code.operators.n - code.operators.unknown
    if n:
        title = "Operators of the reference"
        yield _drawn(_tally("operators", title, code.operators, of), title, n)
    title = "All computing done by Triton, from the source"
    if code.pure_triton.counts:
        yield _tally("pure_triton", title, code.pure_triton)
    if code.extern_calls.counts:
        yield _tally("extern_calls", "Calls that compute outside Triton", code.extern_calls)
    yield _tally("generators", "Who wrote the Triton code", code.generators)
    for h in a.holes:
        of = "rows of the config"
        yield _tally(f"{h.config} holes", f"Config `{h.config}`: what is left out", h.hole, of)
        node = f"Config `{h.config}`: syntax node left out"
        yield _tally(f"{h.config} nodes", node, h.node, of)
        size = f"Config `{h.config}`: size of the hole"
        yield _spreads("", size, [("Lines left out", h.lines)])


def _cost(a: Analysis) -> Iterator[Block]:
    v = a.verdicts
    costs = [
        (f"`{t.target}`: {what}", spread)
        for t in a.targets
        for what, spread in (
            ("registers", t.registers),
            ("shared memory", t.shared),
            ("spills", t.spills),
        )
    ]
    yield _spreads("registers", "Registers, shared memory and spills by target", costs)
    errors = (("Error over what is allowed", v.error_ratio), ("Absolute error", v.error))
    yield _spreads("error", "Error against the float64 result", errors)
    speeds = (("Over eager", v.speedup_eager), ("Over torch.compile", v.speedup_compile))
    yield _spreads("speedup", "Speedup of the candidate", speeds)


def _licensing(a: Analysis) -> Iterator[Block]:
    licenses = [
        (x.expression, x.rows, x.sources, _counted(x.methods).replace("_", " "), x.conflicts)
        for x in a.licenses
    ]
    yield Table(
        "licenses",
        "Licenses",
        ("license (SPDX)", "rows", "sources", "found by", "conflicts"),
        licenses,
        [{"kept": x.rows} for x in a.licenses],
        a.rows,
        f"Licenses, n = {number(a.rows)} rows",
        note=CONFLICT_NOTE,
    )
    sources = [(x.name, _each(x.licenses), x.rows, x.read) for x in a.sources]
    yield Table(
        "sources",
        "Sources",
        ("source", "licenses", "final rows", "files or problems read"),
        sources,
        [{"kept": x.rows} for x in a.sources],
        max((x.rows for x in a.sources), default=0),
        f"Sources, n = {number(a.rows)} rows",
        most=MOST_SOURCES,
        note="Read: files of a package or repository, or problems of a generator. A file may hold "
        "several rows, or none.",
    )


def _each(counts: dict[str, int]) -> str:
    """Return names with their counts; one name alone needs no count."""
    return _counted(counts) if len(counts) > 1 else "".join(counts)


def _duplicates(a: Analysis) -> Iterator[Block]:
    if not a.duplicates:
        yield Text("The recipe has no `dedupe` step: duplicates were not looked for.")
    tiers = [*TIERS, *sorted({tier for d in a.duplicates for tier in d.tiers} - {*TIERS})]
    rows: list[Loose] = [
        (
            *(f"`{d.label}`", d.column, d.seen),
            *(d.tiers.get(tier, 0) for tier in tiers),
            ", ".join(f"{number(n)} of {size}" for size, n in d.sizes.items()),
        )
        for d in a.duplicates
    ]
    kinds = (tier.replace("_duplicate", "") for tier in tiers)
    heads = ("step", "compared", "rows", *kinds, "groups, by size")
    yield Table("duplicates", "", heads, rows)
    for d in a.duplicates:
        if d.largest:
            groups = ", ".join(f"{g.dropped + 1} rows around `{g.of}`" for g in d.largest[:3])
            yield Text(f"`{d.label}`, largest groups: {groups}.")


def _contamination(a: Analysis) -> Iterator[Block]:
    if a.contamination.checked:
        yield from _compared(a)
        yield from _nearest(a)
    else:
        yield Text("The recipe has no `decontaminate` step: benchmarks were not looked for.")
    labels = ("prompt_overlap", "split_overlap")
    rows = [
        (config, split, n["rows"], *(n[x]["rows"] if x in n else None for x in labels))
        for config, splits in (a.leakage or {}).items()
        for split, n in splits.items()
    ]
    heads = ("config", "split", "rows", "prompt overlap", "split overlap")
    yield Table("overlaps", "Overlap inside the data set", heads, rows, note=OVERLAP_NOTE)


def _compared(a: Analysis) -> Iterator[Block]:
    found = a.contamination
    dropped = sum(found.dropped.values())
    yield Text(
        f"{number(found.seen)} times a row was compared with the benchmarks; "
        f"{number(dropped) if dropped else 'none'} held a part of one"
        f"{' and were dropped' if dropped else ''}."
    )
    benchmarks = [
        (
            b.name or f"sha256 {b.sha256[:16]}, whose file is gone",
            b.version or "not known",
            "-" if b.items is None else b.items,
        )
        for b in found.benchmarks
    ]
    yield Table("benchmarks", "", ("benchmark", "version", "items"), benchmarks)
    checks = [
        (
            *(f"`{c.label}`", c.kind, c.seen, c.dropped),
            *(c.overlap.median, c.overlap.p95, c.overlap.maximum),
            *(c.resemblance.median, c.resemblance.p95, c.resemblance.maximum),
        )
        for c in found.checks
    ]
    yield Table("checks", "", CHECK_HEADS, checks, note=CHECK_NOTE)
    yield Table("items", "", ("benchmark: item", "rows dropped"), [*found.items.items()])
    copies = [
        (
            *(f"`{c.id}`", c.kind, f"`{c.label}`", c.column),
            *(f"{c.benchmark}: {c.item}" + (f", {c.part}" if c.part else ""), c.tier, c.score),
        )
        for c in found.copies
    ]
    heads = ("dropped row", "kind", "step", "column", "benchmark: item", "found by", "score")
    yield Table("copies", "", heads, copies)


def _nearest(a: Analysis) -> Iterator[Block]:
    found = a.contamination
    spreads = (("Overlap", found.overlap), ("Resemblance", found.resemblance))
    yield _spreads("contamination", "Final rows, and the item each is most like", spreads)
    if not (found.overlap.n or found.resemblance.n):
        yield Text("How much the rows that stayed are like the benchmarks was not measured.")
    closest = [
        (f"`{m.id}`", f"{m.benchmark}: {m.item}", m.overlap, m.resemblance) for m in found.closest
    ]
    heads = ("row", "benchmark: item", "overlap", "resemblance")
    yield Table("closest", "The rows most like an item", heads, closest)


def _unknown(a: Analysis) -> Iterator[Block]:
    yield Lines(unknowns(a))


# --- words ----------------------------------------------------------------------------------------

RUN_NOTE = (
    "A run shows that a kernel starts and ends. It is no proof that its result is right: kernels "
    "have no reference to compare with. Not known: no function was found that launches the kernel."
)
TEACHING_HEADS = (
    *("step", "model", "terms of use", "endpoint", "prompts", "answers kept", "not kept"),
    *("requests", "repeated", "tokens in", "tokens out", "cost"),
)
TEACHING_NOTE = (
    "Requests, tokens and cost are what the answers to these prompts took, whichever run asked for "
    "them first. A request is repeated where an endpoint fails, or wants another form. The cost is "
    "by the prices that the recipe named then; a dash where it named none."
)
PASS_NOTE = (
    "pass@k is the chance that one of k answers to a question is right (the unbiased estimate of "
    "Chen et al., 2021). An answer that held no program was wrong; one that nothing could judge "
    "does not count. In brackets: questions with k answers, where not all have so many."
)
CONFLICT_NOTE = (
    "Conflicts: rows where tag, file and metadata disagree; the most restrictive statement won."
)
CHECK_HEADS = (
    *("step", "kind", "rows compared", "dropped", "overlap: median", "95 %", "most"),
    *("resemblance: median", "95 %", "most"),
)
CHECK_NOTE = (
    "Overlap and resemblance are those of the rows that a step kept, with the item that each is "
    "most like. Overlap is the share of the item's runs of 13 tokens that are in the row whatever "
    "its names, rare ones weighing more; resemblance is the Jaccard similarity of the texts' runs "
    "of 5 tokens."
)
OVERLAP_NOTE = (
    "Overlap is the Jaccard similarity of sets of words, whatever their order: of prompt and "
    "completion, or with a row of another split. The table counts the rows that reach "
    f"{THRESHOLD}. They are kept and labelled: programs of one generator share most of their words."
)

SECTIONS: dict[str, tuple[str, str, Callable[[Analysis], Iterator[Block]]]] = {
    "contents": (
        "Contents",
        "Each config shows the final rows in another form, so one row may be in several, and in "
        "one several times.",
        _contents,
    ),
    "steps": ("Steps", "Every row that was read, and where it went.", _steps),
    "proof": (
        "Proof",
        "What shows that a row is right, and where that was found out. A label holds for the "
        "backend, device and versions named with it.",
        _proof,
    ),
    "answers": ("Answers of the teacher", "What was asked, and what came of it.", _answers),
    "code": (
        "Code",
        "Lengths of whole programs. Tokens are names, numbers and other visible characters, "
        "counted without a tokenizer; a model's tokenizer will give more.",
        _code,
    ),
    "cost": (
        "Cost and error",
        "What compiled kernels need of each target, the largest of any kernel of a row; and, where "
        "pairs were judged, how far they were from the float64 result.",
        _cost,
    ),
    "licensing": (
        "Sources and licenses",
        "Every final row has an origin and a license. The texts that licenses ask for are in "
        "`licenses/`.",
        _licensing,
    ),
    "duplicates": (
        "Duplicates",
        "Exact: the same text. Renamed: the same code but for names, comments and formatting. "
        "Near: nearly the same text. One row of each group stays.",
        _duplicates,
    ),
    "contamination": (
        "Contamination",
        "Parts of benchmarks that models are measured with. Rows that hold one are dropped.",
        _contamination,
    ),
    "unknown": ("What is not known", "", _unknown),
}
