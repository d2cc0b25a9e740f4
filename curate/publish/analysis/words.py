"""The sentences and paragraphs of the report, of ``ANALYSIS.md`` and of the card."""

from __future__ import annotations

from collections.abc import Iterator

from curate.formats.dataset.leakage import THRESHOLD
from curate.publish.analysis.analysis import Analysis, StepCounts
from curate.publish.analysis.numbers import number, plural, share

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


def headline(a: Analysis) -> list[str]:
    """Return the few sentences that say what a data set is."""
    return [*_what(a), *_licensing(a), *_judged(a), *_run(a), *_compiled(a)]


def trial(a: Analysis) -> str:
    """Return what makes a run a trial, in a sentence with Markdown's code; empty if it is none."""
    said = []
    if a.limit:
        read = f"at most {plural(a.limit, 'row')} of each package, repository or range of operators"
        said.append(f"{read} {'was' if a.limit == 1 else 'were'} read (`--limit {a.limit}`)")
    if a.settings:
        options = ", ".join(f"`--set {setting}`" for setting in a.settings)
        said.append(f"values of the recipe were replaced ({options})")
    return f"A trial run, not the recipe as written: {', and '.join(said)}." if said else ""


def _what(a: Analysis) -> Iterator[str]:
    for kind, n in a.kinds.counts.items():
        meaning = f"; each is {KINDS[kind]}" if kind in KINDS else ""
        yield f"{plural(n, kind)}{meaning}."
    if not a.rows:
        yield "No row is left at the end."


def _licensing(a: Analysis) -> Iterator[str]:
    if not a.rows:
        return
    sources = _named([source.name for source in a.sources if source.rows], "source")
    names = {name for license in a.licenses for name in parts(license.expression)}
    licenses = _named(sorted(names), "license")
    yield f"From {sources}, under {licenses}; every row names both."


def parts(expression: str) -> list[str]:
    """Return the licenses of an SPDX expression that hold together; a choice is one of them."""
    return [expression] if "(" in expression else expression.split(" AND ")


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
        yield f"These compile, of {plural(a.rows, 'row')}: {', '.join(some)}."


def kept_apart(a: Analysis) -> str:
    """Return what is in one split only, and what may be in two."""
    has_graphs = any(step.name == "wiring" for step in a.steps)
    graphs = ", or if their modules have the same graph of operators" if has_graphs else ""
    text = (
        f"The {plural(a.rows, 'row')} form {plural(a.clusters, 'cluster')}, the largest of "
        f"{plural(a.largest_cluster, 'row')}, and no cluster is in two splits. Rows are in one "
        "cluster if they come from one source file or are compositions of one family, if their "
        "programs share most runs of five tokens or have the same statements but for names and "
        f"numbers{graphs}. Programs that compute something else may be in two splits, even if "
        "they share most of their words."
    )
    return " ".join([text, *overlapping(a)])


def overlapping(a: Analysis) -> Iterator[str]:
    """Yield how many rows share most words with one of another split, in the config with most."""
    found = [
        (sum(n.get("split_overlap", {"rows": 0})["rows"] for n in splits.values()), config)
        for config, splits in (a.leakage or {}).items()
        if len(splits) > 1
    ]
    if found:
        alike, config = max(found)
        rows = sum(n["rows"] for n in (a.leakage or {})[config].values())
        yield (
            f"In `{config}`, {number(alike)} of {plural(rows, 'row')} share "
            f"{share(THRESHOLD, 1)} of their words or more with a row of another split "
            "(`split_overlap`)."
        )


def step_line(step: StepCounts) -> str:
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


def reasons_line(step: StepCounts, most: int = 6) -> str:
    """Return why a step lost rows: the most frequent reasons with their numbers."""
    reasons = [f"{name} {number(n)}" for name, n in step.lost.items()]
    more = f", and {len(reasons) - most} more reasons" if len(reasons) > most else ""
    return ", ".join(reasons[:most]) + more


def unknowns(a: Analysis) -> list[str]:
    """Return what the run says nothing about."""
    return [*_unknown_proof(a), *_unknown_code(a), *_unknown_overlap(a)]


def _unknown_proof(a: Analysis) -> Iterator[str]:
    status, run = a.verdicts.status, a.kernels.run
    if status.n:
        yield "A verdict is evidence, not proof: no draw showed a difference."
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
