"""The data set's card, ``README.md``: what the Hub shows, and the first thing that people read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from curate.formats.dataset.front_matter import SPLITS, Config, front_matter, read_configs
from curate.formats.dataset.leakage import THRESHOLD
from curate.formats.dataset.write import read_run, record_files
from curate.publish.analysis.analysis import Analysis
from curate.publish.analysis.numbers import number, plural
from curate.publish.analysis.sections import Cell, blocks_of
from curate.publish.analysis.words import headline, overlapping, trial, unknowns
from curate.publish.documents.card_rows import (
    example,
    filters,
    licenses,
    read_rows,
    sizes,
)
from curate.publish.documents.markdown import render, table
from curate.rows import Loose
from curate.terminal.shown import visible

USE = """\
It teaches a model to write Triton from PyTorch, and has problems with checked answers for
reinforcement learning. It is no library of kernels, and no benchmark.
"""
ABOUT_FILTERS = "*It* is a row's program. `ds.filter(lambda r: CODE)` leaves a line's rows out."
PAIRED = frozenset({"messages", "conversion", "pairs", "kernelbook"})
"""Formats of which `USE` speaks."""

ABOUT = {
    "messages": "a conversation of system, user and assistant, as TRL takes it",
    "conversion": "`prompt` and `completion`, as TRL takes them",
    "fim": "kernels with a hole: `prefix`, `middle` and `suffix`",
    "pairs": "modules and programs with all their evidence",
    "kernels": "kernels with all their evidence",
    "kernelbook": "pairs under the columns of KernelBook",
    "preference": "`prompt`, the faster of two programs as `chosen`, the other as `rejected`",
    "repair": "conversations in which a wrong program was put right",
    "negatives": "conversations whose program is wrong, with the judge's evidence",
}

COLUMNS = {
    "messages": "`role` and `content` of every turn",
    "prompt": "what the model is asked",
    "completion": "what it should answer",
    "reference": "the PyTorch module",
    "triton": "the Triton program",
    "failed": "the program that was wrong",
    "error": "what was said of it",
    "fixed": "the program that was judged correct",
    "evidence": "what the judge saw, as JSON",
    "attempt": "1 for a first answer, 2 for its repair and so on",
    "prefix": "code before the hole",
    "middle": "code that was left out",
    "suffix": "code after the hole",
    "hole": "kind of hole: body, block, statement, expression or memory access",
    "node": "tree-sitter's type of what was left out",
    "id": "the row's name in every config and in `index.parquet`; of a hole, with its number",
    "license": "SPDX expression under which the row is used",
    "source": "package or repository that it comes from",
    "path": "file in the source",
    "symbol": "class or function in the file",
    "pure_triton": "true if no library call computes any part of the result",
    "specialised": "arguments, with the values that the program asserts",
    "level": "operators in the module: 1, 2-5, 6-20, 21-60 or 61+",
    "family": "what kind of computing it is, by its operators",
    "kernels": "kernels in the program",
    "lines": "lines of the program",
    "tokens": "names, numbers and signs of all messages; a tokenizer makes more of them",
    "shapes": "of the inputs, as in 8x100x192",
    "dtypes": "types of the inputs",
    "schedule": "what each program of a kernel does, by the kernels' docstrings",
    "program_us": "microseconds of a call at the module's sizes, the median; null if not timed",
    "eager_us": "the same of the module in eager PyTorch",
    "compile_us": "the same of the module under `torch.compile`",
    "chosen": "the faster program",
    "chosen_us": "microseconds of a call, the median",
    "rejected": "the slower program, which is correct as well",
    "rejected_us": "the same of the slower program",
    "rejected_id": "the slower program's row",
    "example_id": "the row whose program the prompt shows as an example; null if none",
    "targets": "GPUs that every kernel compiles for, ahead of time",
    "verdict": "what the judge says; null if it was not judged",
    "verdict_reason": "why, where there is a reason",
    "caveats": "what the verdict does not cover",
    "teacher": "the model that wrote the answer; null if none did",
    "teacher_terms": "terms of use of that model's answers: an SPDX id or a url",
    "prompt_overlap": "likeness of prompt and completion, 0 to 1",
    "split_overlap": f"likeness to the nearest row in another split, from {THRESHOLD}; else null",
    "split_overlap_id": "that row's id",
}

PLAIN = (
    *("messages", "prompt", "completion", "id", "license", "source", "path", "symbol", "level"),
    *("family", "kernels", "lines", "tokens", "shapes", "dtypes", "example_id", "verdict"),
    *("verdict_reason", "caveats", "split_overlap_id"),
)
"""Columns that need no words of their own: the example, the counts or the filters explain them."""

DOCUMENTS = {
    "report.html": "examples side by side",
    "ANALYSIS.md": "all counts, and what each step dropped",
    "PROVENANCE.md": "sources and attribution",
    "provenance.jsonl": "origin and license of every row",
    "croissant.json": "Croissant 1.1 metadata",
    "index.parquet": "one line per row",
}

JUDGED = """\
`correct` means that the program's own kernels ran, and that every output agreed with the module's
on every draw: as closely as float64 shows that the module's own precision allows, not within a
constant. Draws vary inputs, parameters and, where the module leaves them free, sizes.
"""
UNSUPPORTED = "`unsupported` only means that the program could not be judged.\n"
NOT_JUDGED = (
    "`correct` covers `forward` in eval mode, without gradients, unless a caveat says otherwise.",
)
ON_CPU = (
    "A CPU executed the kernels, from Triton's IR. A device adds in another order; what "
    "depends on its timing does not show."
)
LAUNCHED = """\
What is known of a kernel: the argument types with which it compiles, for each target, and where a
function launches it, whether that ran on the CPU, as Triton lowers it.
"""


def write_card(folder: Path, analysis: Analysis) -> None:
    """Write the card of a finished data set alongside its data, and its sha256 to ``run.json``.

    Args:
        folder: of the data set; the card names the figures and documents that are there.
        analysis: of its run.
    """
    run = read_run(folder)
    assert run is not None  # or there was nothing to analyse
    text = visible(card(folder, run, analysis))
    (folder / "README.md").write_text(text, encoding="utf-8")
    record_files(folder, run, ["README.md"])


def card(folder: Path, run: dict[str, Any], analysis: Analysis) -> str:
    """Return the text of a data set's card.

    Args:
        folder: has the data, and figures in ``figs/`` if there are any.
        run: what ``run.json`` holds.
        analysis: of the same run.
    """
    configs = read_configs(folder, run)
    rows = read_rows(folder, configs[0]) if configs else []
    parts = [
        _opening(analysis, configs),
        _example(folder, configs),
        _use(run, configs, rows),
        _filters(rows, configs),
        _limits(analysis),
        _overlap(analysis),
        _columns(analysis, configs[:1]),
        _licensing(folder, rows),
        _making(folder, run, analysis),
    ]
    text = "\n\n".join("\n".join(lines).strip() for lines in parts)
    return f"{front_matter(folder, run)}\n{text}\n"


def _opening(a: Analysis, configs: list[Config]) -> Iterator[str]:
    yield f"# {a.name}\n"
    if a.description:
        yield f"{a.description}\n"
    if told := trial(a):
        yield f"**{told}**\n"
    yield from (f"- {line}" for line in headline(a))
    yield ""
    for config in configs[:1]:
        yield "```python\nfrom datasets import load_dataset\n"
        words = f'"<user>/{a.name}", "{config.name}", split="{config.splits[0]}"'
        yield f"ds = load_dataset({words})\n```\n"


def _example(folder: Path, configs: list[Config]) -> Iterator[str]:
    for config in configs[:1]:
        yield f"## One row\n\nA short row of `{config.name}`, whole.\n"
        yield from example(folder, config)


def _use(run: dict[str, Any], configs: list[Config], rows: list[Loose]) -> Iterator[str]:
    yield "## Is it for me?\n"
    formats = {f["config"] or f["format"]: f["format"] for f in run["recipe"].get("formats", [])}
    told: list[tuple[Cell, ...]] = [
        (f"`{c.name}`", ABOUT.get(formats.get(c.name, ""), ""), *map(c.count, SPLITS), c.rows)
        for c in configs
    ]
    yield from table(("config", "what a row is", *SPLITS, "rows"), told)
    if PAIRED & set(formats.values()):
        yield USE
    yield from sizes(rows)


def _filters(rows: list[Loose], configs: list[Config]) -> Iterator[str]:
    yield "## What to filter\n"
    found = filters(rows, any(config.is_nested for config in configs[:1]))
    yield f"{ABOUT_FILTERS}\n" if found else "No row has a caveat.\n"
    yield from (f"- **{plural(n, 'row')}**: {words}. `{code}`" for words, n, code in found)


def _limits(a: Analysis) -> Iterator[str]:
    yield "## Limits\n"
    status = a.verdicts.status
    if status.n - status.unknown:
        yield JUDGED
        if "unsupported" in status.counts:
            yield UNSUPPORTED
        if len(status.counts) > 1:
            yield from _shown(a, "verdicts")
    if a.kernels.run.n:
        yield LAUNCHED
        yield from _shown(a, "launches")
    if any(target.ok < a.rows for target in a.targets):
        yield from _shown(a, "compile")
    yield "Not known, or not covered:\n"
    yield from (f"- {limit}" for limit in limits(a))


def limits(a: Analysis) -> list[str]:
    """Return what a run's labels say nothing about."""
    found = [*unknowns(a)]
    if a.verdicts.status.n - a.verdicts.status.unknown:
        found += NOT_JUDGED
        if any(place.startswith("cpu") for place in a.verdicts.ran_on.counts):
            found.append(ON_CPU)
    if set(a.code.generators.counts) == {"generator"}:
        found.append("One generator printed all programs, so they share one style.")
    return found


def _overlap(a: Analysis) -> Iterator[str]:
    yield "## Benchmarks and splits\n"
    found = a.contamination
    if found.checked:
        names = ", ".join(benchmark.name for benchmark in found.benchmarks if benchmark.name)
        dropped = plural(sum(found.dropped.values()), "row")
        yield f"Rows were compared, whatever their names, with {names or 'unknown benchmarks'}:"
        yield f"{dropped} that held a part of one, or computed an item of one, were dropped."
        yield "An edited copy may remain.\n"
    else:
        yield "Rows were **not** compared with any benchmark.\n"
    if a.clusters:
        yield f"The rows form {plural(a.clusters, 'cluster')} of near copies, each in one split."
        yield " ".join(overlapping(a)) + "\n"


def _shown(a: Analysis, *keys: str) -> Iterator[str]:
    """Yield the blocks of these keys that there are."""
    blocks = blocks_of(a)
    yield from (line for key in keys if key in blocks for line in render(blocks[key]))


def _columns(a: Analysis, configs: list[Config]) -> Iterator[str]:
    yield "## Columns\n"
    for config in configs:
        told = [name for name in COLUMNS if name in config.columns and name not in PLAIN]
        yield from (f"- `{name}`: {COLUMNS[name]}" for name in told)
        yield ""
    if a.unwritten:
        reasons = ", ".join(f"{reason} {number(n)}" for reason, n in a.unwritten.items())
        yield f"Finished rows that no config has, or that one lacks: {reasons}.\n"


def _licensing(folder: Path, rows: list[Loose]) -> Iterator[str]:
    yield "## Licenses and attribution\n"
    yield "A row is under all licenses that it names, those of the example in its prompt included."
    yield "There is no license for the whole."
    if (folder / "licenses").exists():
        yield "With rows, pass on the texts and notices in [`licenses`](licenses)."
    yield ""
    yield from licenses(rows)
    yield "To have your part of a row taken out of all later versions, open a discussion in the"
    yield "data set's repository that names package, file or ids."


def _making(folder: Path, run: dict[str, Any], a: Analysis) -> Iterator[str]:
    yield "## How it was made\n"
    tools = ", ".join(f"{name} {version}" for name, version in sorted(a.tools.items()))
    yield "By the recipe in [`run.json`](run.json) (sha256"
    yield f"`{recipe_sha256(run)}`, seed {a.seed}), with"
    yield f"{tools or 'no tools that decide the result'}. The same again gives the same bytes.\n"
    if a.teachings:
        yield "Answers came from a language model; `ANALYSIS.md` has how often they were right:\n"
        yield from _shown(a, "teachings")
    documents = {path: what for path, what in DOCUMENTS.items() if (folder / path).exists()}
    yield from (f"- [`{path}`]({path}): {what}" for path, what in documents.items())
    yield "\nCite the revision that you used (`load_dataset(…, revision=…)`).\n"
    yield f"```bibtex\n{citation(run)}\n```"


def recipe_sha256(run: dict[str, Any]) -> str:
    """Return the sha256 of a run's recipe, as JSON with sorted keys."""
    text = json.dumps(run["recipe"], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def citation(run: dict[str, Any]) -> str:
    """Return how to cite a data set, for BibTeX."""
    name = run["recipe"]["name"]
    made = f"Made by curate; recipe sha256 {recipe_sha256(run)[:16]}, run {run['key']}"
    return f"@misc{{{name},\n  title = {{{name}}},\n  note = {{{made}}}\n}}"
