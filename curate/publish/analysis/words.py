"""What an analysis says in sentences: in the report, in ``ANALYSIS.md`` and on the card."""

from __future__ import annotations

from collections.abc import Iterator

from curate.publish.analysis.analysis import Analysis, Step
from curate.publish.analysis.charts import number, share
from curate.publish.analysis.contamination import Benchmark, Check
from curate.publish.analysis.teaching import PassRate, Teaching

KINDS = {
    "pair": "a PyTorch module and the Triton program that answers it",
    "kernel": "a Triton kernel that stands alone",
    "task": "a PyTorch problem",
    "module": "an nn.Module class",
    "file": "a source file",
    "record": "a row of another data set",
    "prompt": "a question to a teacher model",
    "sample": "a teacher model's answer",
    "cuda": "a CUDA kernel and the Triton kernel named as its counterpart",
}
NAMED = 2  # names that a sentence has room for
CPU = "a CPU, from Triton's IR"
RIGHT = ("correct", "ran")  # statuses that speak for a row

REMOVAL = """\
Whoever wrote a part of a row can have it taken out: open a discussion in the data set's repository
and name the package, the repository, the file, the copyright line or the ids of rows. Whoever
publishes the data set adds it to the opt-out list with `curate optout`, and no later version has
it, whatever version of its source is read. Earlier versions stay in the history of the repository
until that is rewritten.
"""


PASS_NOTE = (
    "pass@k is the chance that one of k answers to a question is right (the unbiased estimate of "
    "Chen et al., 2021). An answer that held no program was wrong; one that nothing could judge "
    "does not count. In brackets: questions with k answers, where not all have so many."
)


TEACHING_HEADS = (
    *("step", "model", "endpoint", "prompts", "answers kept", "not kept"),
    *("requests", "of them again", "tokens in", "tokens out", "cost"),
)
TEACHING_NOTE = (
    "Requests, tokens and cost are what the answers to these prompts took, whichever run asked for "
    "them first; a request is sent again where an endpoint fails, or wants another form. The cost "
    "is by the prices that the recipe named then; a dash where it named none."
)
CHECK_HEADS = (
    *("step", "kind", "rows", "dropped", "overlap: median", "95 %", "most"),
    *("resemblance: median", "95 %", "most"),
)
CHECK_NOTE = (
    "Of the rows that a step kept, with the item that each is most like. Overlap is the share of "
    "the item's runs of 13 tokens that are in the row whatever its names, rare ones weighing more; "
    "resemblance the Jaccard similarity of the texts' runs of 5 tokens."
)
BENCHMARK_HEADS = ("benchmark", "version", "items")


def plural(n: int, word: str) -> str:
    """Return a number and a noun: 1 row, 2 rows."""
    return f"{number(n)} {word}" if n == 1 else f"{number(n)} {word}s"


def headline(a: Analysis) -> list[str]:
    """Return the few sentences that say what a data set is."""
    return [*_what(a), *_papers(a), *_judged(a), *_run(a), *_compiled(a)]


def _what(a: Analysis) -> Iterator[str]:
    for kind, n in a.kinds.counts.items():
        meaning = f"; each is {KINDS[kind]}" if kind in KINDS else ""
        yield f"{plural(n, kind)}{meaning}."
    if not a.rows:
        yield "No row is left at the end."


def _papers(a: Analysis) -> Iterator[str]:
    if not a.rows:
        return
    sources = _named([source.name for source in a.sources if source.rows], "source")
    licenses = _named([license.expression for license in a.licenses], "license")
    yield f"From {sources}, under {licenses}; every row names both."


def _named(names: list[str], word: str) -> str:
    """Return one or two names, or how many there are."""
    return " and ".join(names) if len(names) <= NAMED else plural(len(names), word)


def judged_word(a: Analysis) -> str:
    """Return what the rows that a verdict may have are called: pair, answer, or program if both."""
    kinds = a.kinds.counts.keys() & {"pair", "sample"}
    return {"pair": "pair", "sample": "answer"}[kinds.pop()] if len(kinds) == 1 else "program"


def ran_on(a: Analysis) -> str:
    """Return where programs were judged, in words."""
    places = [place.replace("cpu on cpu", CPU) for place in a.verdicts.ran_on.counts]
    return " and ".join(places) or "an unknown place"


def _judged(a: Analysis) -> Iterator[str]:
    status = a.verdicts.status
    judged = status.n - status.unknown
    if not judged:
        return
    right = status.counts.get("correct", 0)
    rest = [
        f"{number(n)} could not be judged" if name == "unsupported" else f"{number(n)} {name}"
        for name, n in status.counts.items()
        if name != "correct"
    ]
    tail = f" ({', '.join(rest)})" if rest else ""
    programs = plural(judged, judged_word(a))
    yield f"{number(right)} of {programs} judged correct{tail}, on {ran_on(a)}."


def _run(a: Analysis) -> Iterator[str]:
    run = a.kernels.run
    if run.n:
        ran = run.counts.get("ran", 0)
        yield (
            f"{number(ran)} of {plural(run.n, 'kernel')} ran on the CPU, as Triton lowers them "
            f"({share(ran, run.n)}), {number(run.unknown)} have nothing that launches them."
        )


def _compiled(a: Analysis) -> Iterator[str]:
    whole = [t.target for t in a.targets if t.ok == t.rows == a.rows]
    some = [f"{number(t.ok)} for {t.target}" for t in a.targets if t.target not in whole]
    if whole:
        yield f"Every row compiles for {', '.join(whole)}."
    if some:
        yield f"Of {plural(a.rows, 'row')}, these compile: {', '.join(some)}."


def step_line(step: Step) -> str:
    """Return what a step did, in one line."""
    looked = step.seen - step.untouched
    kept, made = step.kept - step.untouched, step.emitted - step.untouched
    line = f"It looked at {plural(looked, 'row')}, kept {number(kept)}"
    if made != kept:
        line += f" and made {number(made)} of them"
    if step.untouched:
        line += f"; {number(step.untouched)} of other kinds passed by"
    kinds = ", ".join(plural(n, kind) for kind, n in step.kinds.items())
    return f"{line}. Out: {kinds}." if kinds else f"{line}."


def reasons_line(step: Step, most: int = 6) -> str:
    """Return why a step lost rows: the most frequent reasons with their numbers."""
    reasons = [f"{name} {number(n)}" for name, n in step.lost.items()]
    more = f", and {len(reasons) - most} more reasons" if len(reasons) > most else ""
    return ", ".join(reasons[:most]) + more


def pass_ks(a: Analysis) -> list[int]:
    """Return every k for which pass@k is known of some prompts."""
    return sorted({k for rate in a.pass_rates for k in rate.pass_at})


def pass_cell(rate: PassRate, k: int) -> str:
    """Return pass@k as a percentage, and of how many questions where not of all; "" if of none."""
    if k not in rate.pass_at:
        return ""
    of = rate.questions_at[k]
    return f"{rate.pass_at[k]:.1%}" + (f" ({of})" if of < rate.questions else "")


Cells = list[str | int | float]


def teaching_cells(t: Teaching) -> Cells:
    """Return what a step asked of a teacher, under `TEACHING_HEADS`; a dash is not known."""
    lost = ", ".join(f"{reason} {number(n)}" for reason, n in t.lost.items())
    cells: Cells = [t.label, t.model, t.endpoint, t.prompts, t.kept, lost]
    if (used := t.used) is None:
        return [*cells, *"-----"]
    tokens = (used.prompt_tokens, used.completion_tokens)
    return [*cells, used.requests, used.repeated, *tokens, used.cost or "-"]


def teaching_notes(a: Analysis) -> list[str]:
    """Return what is to be known about the table of teachers."""
    notes = [TEACHING_NOTE]
    uncounted = sum(t.used.uncounted for t in a.teachings if t.used)
    if uncounted:
        notes.append(
            f"The endpoint did not count the tokens of {plural(uncounted, 'answer')}: the cost is "
            "the most that these may have taken."
        )
    for t in {(t.model, t.endpoint): t for t in a.teachings}.values():
        if (by_all := t.used_by_all) and by_all != t.used:
            cost = f", at a cost of {number(by_all.cost)}" if by_all.cost else ""
            notes.append(
                f"All runs in the output folder together sent {t.model} "
                f"{plural(by_all.requests, 'request')} for {plural(by_all.answers, 'answer')}: "
                f"{number(by_all.prompt_tokens)} tokens in, {number(by_all.completion_tokens)} "
                f"out{cost}."
            )
    return notes


def check_cells(check: Check) -> Cells:
    """Return what a step compared with benchmarks, under `CHECK_HEADS`."""
    degrees = [
        "-" if value is None else value
        for spread in (check.overlap, check.resemblance)
        for value in (spread.median, spread.p95, spread.maximum)
    ]
    return [check.label, check.kind, check.seen, check.dropped, *degrees]


def benchmark_cells(benchmark: Benchmark) -> Cells:
    """Return what rows were compared with, under `BENCHMARK_HEADS`."""
    name = benchmark.name or f"sha256 {benchmark.sha256[:16]}, whose file is gone"
    items = "-" if benchmark.items is None else benchmark.items
    return [name, benchmark.version or "not known", items]


def unknowns(a: Analysis) -> list[str]:
    """Return what the run says nothing about."""
    return [*_unknown_proof(a), *_unknown_code(a), *_unknown_overlap(a)]


def _unknown_proof(a: Analysis) -> Iterator[str]:
    status, run = a.verdicts.status, a.kernels.run
    if status.n:
        yield (
            "A verdict of correct says that no draw showed a difference beyond what was allowed. "
            "It is evidence, not a mathematical proof."
        )
    if status.unknown:
        yield f"{plural(status.unknown, judged_word(a))} were not judged."
    if run.n:
        yield "Whether kernels compute the right thing: they have no reference to compare with."
    if not any(place.startswith(("cuda", "hip")) for place in a.verdicts.ran_on.counts):
        yield "Whether programs run on a GPU: none was run on one."
    if not (a.verdicts.speedup_eager.n or a.verdicts.speedup_compile.n):
        yield "How fast programs are: none was timed."
    if not a.targets:
        yield "Whether programs compile: none was compiled."


def _unknown_code(a: Analysis) -> Iterator[str]:
    operators, kernels = a.code.operators.unknown, a.code.kernels.unknown
    if operators:
        yield f"Which operators they compute, for {number(operators)} of {plural(a.rows, 'row')}."
    if kernels:
        yield f"How many kernels they have, for {number(kernels)} of {plural(a.rows, 'row')}."
    unlicensed = next((x.rows for x in a.licenses if x.expression == "unknown"), 0)
    if unlicensed:
        yield f"The license of {plural(unlicensed, 'row')}."


def _unknown_overlap(a: Analysis) -> Iterator[str]:
    if not a.contamination.checked:
        yield "Whether rows hold parts of benchmarks: they were not compared with any."
    elif not a.contamination.overlap.n:
        yield (
            "How like the rows that stayed are to benchmarks: only the structure of whole "
            "functions, classes and kernels was compared, and no degree was measured."
        )
    if not a.duplicates:
        yield "How many rows are copies of each other: the recipe does not look for duplicates."
    if a.leakage is None:
        yield "How much rows of different splits overlap: it was not measured."
