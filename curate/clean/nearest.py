"""How near a program is to the items of benchmarks: the scores of `decontaminate`.

Overlap is the share of a part's grams (`curate.clean.forms.overlap`) that are found in the
program, each weighed by what it says: by log((n + 1) / m), where m of the n items of all the
benchmarks have it (inverse document frequency; Spärck Jones, 1972). So the frame that all problems
of a benchmark have in common weighs little, and what only one of them has decides. It is 1 for a
copy, whatever is around it.

Resemblance is the Jaccard similarity of token 5-grams of two whole texts
(`curate.clean.similar.minhash`), estimated from 128 permutations: its standard error is at most
0.045. It tells copies whose edits lie everywhere, and code that is not Python, but no renamed ones.

Neither says that two programs compute the same thing, as `curate.clean.computed` does for problems.
Who writes a kernel anew shares nothing; two functions of one family, such as softmax forward and
backward, may share half.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from curate.clean.computed import Computations
from curate.clean.fingerprint import Computation, FingerprintFile, find_file, read_benchmark
from curate.clean.forms.overlap import grams, text_signature
from curate.clean.forms.parts import Part, PlainProgram
from curate.clean.similar.grams import GramIndex, Scores, from_base64
from curate.clean.similar.minhash import PERMUTATIONS, U32, Indices


@dataclass(frozen=True)
class Label:
    """A part of an item.

    Attributes:
        item: the item's number.
        part: the kind and the name of the part.
    """

    item: int
    part: str


@dataclass(frozen=True)
class Comparison:
    """What a program has in common with benchmarks.

    Attributes:
        copied: the first part of the program that an item has too, and that item's; None if there
            is none.
        overlap: of each item, the highest of its parts.
        part: of each item, the part with that overlap; empty where no part is compared.
        resemblance: of each item, the highest of its programs.
    """

    copied: tuple[Part, Label] | None
    overlap: Scores
    part: list[str]
    resemblance: Scores


class Evaluation:
    """Benchmarks, ready to be compared with.

    Attributes:
        items: the name of the benchmark and of the item, by number.
        computations: what the items compute.
    """

    def __init__(self, benchmarks: Sequence[FingerprintFile]) -> None:
        self.items: list[tuple[str, str]] = []
        self._copied: dict[str, Label] = {}
        labels: list[Label] = []
        hashes: list[U32] = []
        signatures: list[U32] = []
        signed: list[int] = []
        computations: list[tuple[int, Computation]] = []
        for benchmark in benchmarks:
            for name, item in sorted(benchmark.items.items()):
                number = len(self.items)
                self.items.append((benchmark.name, name))
                signatures += map(from_base64, item.signatures)
                signed += [number] * len(item.signatures)
                computations += [(number, computation) for computation in item.computes]
                for part in item.parts:
                    label = Label(number, f"{part.kind} {part.name}".strip())
                    self._copied.setdefault(part.ast, label)
                    if part.grams:
                        labels.append(label)
                        hashes.append(from_base64(part.grams))
        self._labels = labels
        self._owners = np.array([label.item for label in labels], np.int64)
        self._grams = GramIndex(hashes, self._owners, len(self.items))
        self._signatures = np.array(signatures, np.uint32).reshape(-1, PERMUTATIONS)
        self._signed = np.array(signed, np.int64)
        self.computations = Computations(computations, len(self.items))

    def compare(self, code: str) -> Comparison:
        """Return what a program has in common with each item.

        Code that is not Python has no parts and no grams, and is compared as text.
        """
        copied: tuple[Part, Label] | None = None
        overlap = np.zeros(len(self._labels))
        try:
            program = PlainProgram(code)
            known = (p for p in program.parts() if p.ast in self._copied)
            if part := next(known, None):
                copied = part, self._copied[part.ast]
            overlap = self._grams.overlap(grams(program, program.body))
        except (SyntaxError, ValueError, RecursionError):
            pass  # it is for `parse` to say what is not Python
        same = (self._signatures == text_signature(code)).mean(axis=1)
        names = [""] * len(self.items)
        for number in np.argsort(overlap, kind="stable"):  # the highest last, and so it stays
            names[self._labels[number].item] = self._labels[number].part
        return Comparison(
            copied, self._highest(overlap, self._owners), names, self._highest(same, self._signed)
        )

    def _highest(self, scores: Scores, owners: Indices) -> Scores:
        """Return the highest score that belongs to each item."""
        highest = np.zeros(len(self.items))
        np.maximum.at(highest, owners, scores)
        return highest


@lru_cache
def load_evaluation(against: tuple[str, ...]) -> Evaluation:
    """Return the benchmarks of fingerprint files, given by name or path.

    Raises:
        InputError: a file cannot be read, or is no fingerprint file.
    """
    return Evaluation([read_benchmark(find_file(name)) for name in against])


@dataclass(frozen=True)
class ItemMatch:
    """An item that a program is too near to.

    Attributes:
        tier: ``structure``, ``overlap`` or ``resemblance``.
        score: what was found; 1 for an equal structure.
        item: the item's number.
        part: the item's part, where one was compared.
        lines: the first and last line of the program's part that has the same structure.
    """

    tier: str
    score: float
    item: int
    part: str | None = None
    lines: tuple[int, int] | None = None


def find_match(
    comparison: Comparison, overlap: float | None, resemblance: float | None
) -> ItemMatch | None:
    """Return why a program is a copy: the first tier that says so, at these thresholds."""
    if comparison.copied:
        part, label = comparison.copied
        return ItemMatch("structure", 1.0, label.item, label.part, part.lines)
    item = int(comparison.overlap.argmax())
    if overlap is not None and (score := comparison.overlap[item]) >= overlap:
        return ItemMatch("overlap", round(float(score), 4), item, comparison.part[item])
    item = int(comparison.resemblance.argmax())
    if resemblance is not None and (score := comparison.resemblance[item]) >= resemblance:
        return ItemMatch("resemblance", round(float(score), 4), item)
    return None


def find_nearest(comparisons: Sequence[Comparison]) -> tuple[int, float, float] | None:
    """Return the number, overlap and resemblance of the item nearest to several programs.

    That is the item with the highest overlap, and of several with the same the one with the
    highest resemblance; None where nothing is shared with any item.
    """
    overlap = np.max([c.overlap for c in comparisons], axis=0).round(4)
    resemblance = np.max([c.resemblance for c in comparisons], axis=0).round(4)
    item = int(np.lexsort((-np.arange(len(overlap)), resemblance, overlap))[-1])
    if not overlap[item] and not resemblance[item]:
        return None
    return item, float(overlap[item]), float(resemblance[item])
