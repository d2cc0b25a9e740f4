"""The ``decontaminate`` step: no row may hold a part of a benchmark that models are measured with.

Every text of a row is compared with every item of the benchmarks (`curate.clean.fingerprint`): its
columns of code, its conversation, and programs inside these texts (`curate.clean.snippets`). A row
is dropped by the first tier that finds a copy:

1. ``structure``: a kernel, a class, a function or the whole program is the same but for names,
   comments, docstrings, formatting, annotations and imports;
2. ``overlap``: most runs of 13 tokens of an item's part are in the row, whatever its names and
   numbers (`curate.clean.forms.overlap`): a copy that was renamed and edited;
3. ``resemblance``: the texts are nearly the same as sets of 5 tokens
   (`curate.clean.similar.minhash`);
4. ``wiring``: the row's graph, which step `wiring` finds out, is an item's, or holds it
   (`curate.clean.computed`): a copy in other words.

Some items are building blocks, such as ReLU or a matrix product, which many write without knowing
the benchmark. A problem that computes one, by the same graph or by the same ``values`` on small
inputs, is dropped for a reason of its own, `computes_benchmark_item`, or marked.

A row that is kept says which item it is nearest to and how near, in the column ``contamination``;
what the two scores are and what they do not show is said in `curate.clean.nearest`.

The default of ``overlap`` was chosen by reading (`benchmarks/contamination.py` finds the pairs). Of
4,745 kernels in packages 77 had an overlap from 0.6 to 0.7 with an item and no structure in common:
31 were other versions of it, 35 variants that compute something else, and 11 had only the frame of
elementwise kernels or of a matmul in common with it, all but one of them below 0.63.

Names are resolved through the imports of the code, so the step belongs behind ``closure``, where
code stands alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, cast

from pydantic import Field, field_validator

from curate.clean.fingerprint import FORM, find_file, read_benchmark, shipped_names
from curate.clean.normalize import COLUMNS
from curate.files import InputError, file_sha256
from curate.rows import Loose, Nearest, Row, select
from curate.step import Context, Drop, Keep, Outcome, RowStep

if TYPE_CHECKING:
    from curate.clean.computed import ComputedItem
    from curate.clean.nearest import Evaluation


class Decontaminate(RowStep):
    """Drops rows that hold a benchmark's item, renamed, edited or as it is; names the item."""

    version: ClassVar[int] = 4
    takes: ClassVar[frozenset[str]] = frozenset(
        {"task", "pair", "kernel", "module", "prompt", "sample", "cuda"}
    )
    uses: ClassVar[frozenset[str]] = frozenset({"wiring"})
    sets: ClassVar[frozenset[str]] = frozenset({"contamination"})
    tools: ClassVar[tuple[str, ...]] = ("numpy",)
    batch: ClassVar[int] = 64

    step: Literal["decontaminate"]
    against: Annotated[
        tuple[str, ...],
        Field(
            min_length=1,
            description="Benchmarks: names of fingerprint files that the package ships, or paths "
            "of files that `curate fingerprint` made. By default all that are shipped.",
        ),
    ] = tuple(shipped_names())
    overlap: Annotated[
        float | None,
        Field(
            gt=0,
            le=1,
            description="Share of a part's runs of 13 tokens, rare ones weighing more, from which "
            "a row that holds them is a copy; null drops no row for it. Of problems renamed and "
            "changed by one or three edits, 0.63 finds 97.3 % of KernelBench's and 93.2 % of "
            "TritonBench-G's; most functions of TritonBench-T are too small to be found without "
            "their tests. Functions that compute something else in an item's way reach it too.",
        ),
    ] = 0.63
    resemblance: Annotated[
        float | None,
        Field(
            gt=0,
            le=1,
            description="Estimated Jaccard similarity of token 5-grams of two texts from which a "
            "row is a copy; null drops no row for it. Renaming lowers it below any use, and "
            "problems written after one template reach 0.7.",
        ),
    ] = 0.8

    wiring: Annotated[
        float | None,
        Field(
            gt=0,
            le=1,
            description="Share of the neighbourhoods of an item's graph, rare ones weighing more, "
            "from which a problem that holds them is a copy, whatever its words; null drops no "
            "row for holding an item. Needs the step `wiring` before this one.",
        ),
    ] = 0.9
    computes: Annotated[
        Literal["drop", "mark"],
        Field(
            description="What becomes of a problem that computes a building block of a benchmark, "
            "such as ReLU or a matrix product, in words of its own: `drop` loses the row with the "
            "reason `computes_benchmark_item`; `mark` keeps the row and names the item in "
            "`contamination.computes`. Needs the step `wiring` before this one."
        ),
    ] = "drop"

    @field_validator("against")
    @classmethod
    def _can_be_read(cls, against: tuple[str, ...]) -> tuple[str, ...]:
        for name in against:
            try:
                read_benchmark(find_file(name))
            except InputError as error:
                raise ValueError(str(error)) from error
        return against

    def options(self) -> dict[str, Any]:
        """Return the options; a file counts by its content, wherever it lies."""
        files = {file_sha256(find_file(name)) for name in self.against}
        return {**super().options(), "against": sorted(files), "form": FORM}

    def setup(self, context: Context) -> None:
        import curate.clean.snippets  # noqa: F401  imported once, before workers fork
        from curate.clean.nearest import load_evaluation

        load_evaluation(self.against).compare("pass")  # which imports datasketch

    def apply(self, row: Row, context: Context) -> Outcome:
        from curate.clean.nearest import find_match, find_nearest, load_evaluation
        from curate.clean.snippets import snippets

        evaluation = load_evaluation(self.against)
        comparisons = []
        for column, text in _texts(row):
            for snippet in snippets(text):
                comparison = evaluation.compare(snippet.text)
                comparisons.append(comparison)
                if match := find_match(comparison, self.overlap, self.resemblance):
                    found = _named(evaluation, match.item)
                    found |= {"tier": match.tier, "score": match.score, "column": column}
                    found |= {"inside": snippet.where} if snippet.where else {}
                    found |= {"part": match.part} if match.part else {}
                    found |= {"lines": list(match.lines)} if match.lines else {}
                    return Drop("contaminated", found)
        computes = None
        if row["wiring"]:
            computations, wiring = evaluation.computations, cast(Loose, row["wiring"])
            if copied := computations.copied(wiring, self.wiring):
                found = _named(evaluation, copied.item)
                return Drop("contaminated", found | _shown(copied))
            if (computed := computations.computed(wiring)) is not None:
                found = _named(evaluation, computed.item)
                if self.computes == "drop":
                    return Drop("computes_benchmark_item", found | _shown(computed))
                computes = found
        nearest = find_nearest(comparisons) if comparisons else None
        if nearest is None and computes is None:
            return Keep(({**row, "contamination": None},))
        number, overlap, resemblance = nearest or (None, 0.0, 0.0)
        item = _named(evaluation, number) if number is not None else computes or {}
        scores = {"overlap": overlap, "resemblance": resemblance}
        what = f"{computes['benchmark']} {computes['item']}" if computes else None
        contamination = cast(Nearest, {**item, **scores, "computes": what})
        return Keep(({**row, "contamination": contamination},))


def _texts(row: Row) -> Iterator[tuple[str, str]]:
    """Yield every text of a row that may hold a program, with its column."""
    for column, text in select(row, (*COLUMNS, "cuda")).items():
        if text is not None:
            yield column, text
    for turn in row["turns"] or ():
        yield "turns", turn["content"]


def _named(evaluation: Evaluation, number: int) -> dict[str, Any]:
    benchmark, item = evaluation.items[number]
    return {"benchmark": benchmark, "item": item}


def _shown(found: ComputedItem) -> dict[str, Any]:
    return {"tier": found.tier, "score": found.score, "column": "reference"}
