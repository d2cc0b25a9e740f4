"""Labels for leakage: a prompt that gives its completion away, a row that another split has too.

Both are Jaccard similarities of sets of words, where a word is a run of ``\\w`` characters:

- ``prompt_overlap``: of a row's prompt and its completion;
- ``split_overlap``: of a row, prompt and completion together, and the row most like it in the
  other splits of its config, ``split_overlap_id``. Null where none reaches `THRESHOLD`.

These are words only: what computes the same in other words is kept in one split by step `split`.

Rows of other splits are found without comparing all with all, and none is missed. With all words
in one order, rarest first, two sets of n and m words that have similarity t or more share l of
their first n - ceil(t n) + l and m - ceil(t m) + l words, and t n <= m <= n / t (Bayardo, Ma and
Srikant, "Scaling up all pairs similarity search", 2007, for l = 1; Wang, Li and Feng, "Can we beat
the prefix filtering?", 2012). Pairs that do are compared.

No text is kept. A row takes some 80 bytes; a distinct set of words, which all the holes of one
file share, 130 and 4 a word, 15 a word more while pairs are looked for; a word of the vocabulary
120. For 100,000 distinct rows of 115 words, that is 250 MB.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from curate.clean.similar.minhash import U32, Indices, spans

LABELS = ("prompt_overlap", "split_overlap")
THRESHOLD = 0.8
EXAMPLES = 5  # ids that a report names
BLOCK = 4096  # sets that are compared at a time
SHARED = 4  # rare words that two sets must share before they are compared

WORD = re.compile(r"\w+")

F64 = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass
class _Rows:
    """What is kept of a split's rows, in their order."""

    ids: list[str] = field(default_factory=list)
    prompt_overlaps: array[float] = field(default_factory=lambda: array("f"))
    sets: array[int] = field(default_factory=lambda: array("I"))  # numbers of their sets of words


class Leakage:
    """Takes in the rows of one config, then returns their labels."""

    def __init__(self, has_prompt: bool) -> None:
        self._has_prompt = has_prompt
        self._splits: dict[str, _Rows] = {}
        self._vocabulary: dict[str, int] = {}
        self._set_numbers: dict[bytes, int] = {}  # by digest
        self._words, self._sizes = array("I"), array("I")

    def add(self, split: str, row_id: str, prompt: str, completion: str) -> None:
        """Take in the next row of a split."""
        asked, answered = set(WORD.findall(prompt)), set(WORD.findall(completion))
        rows = self._splits.setdefault(split, _Rows())
        rows.ids.append(row_id)
        rows.prompt_overlaps.append(jaccard(asked, answered))
        rows.sets.append(self._set_number(asked | answered))

    def _set_number(self, words: set[str]) -> int:
        known = self._vocabulary
        numbers = array("I", [known.setdefault(word, len(known)) for word in sorted(words)])
        key = hashlib.blake2b(numbers.tobytes(), digest_size=16).digest()
        number = self._set_numbers.setdefault(key, len(self._set_numbers))
        if number == len(self._sizes):
            self._words.extend(numbers)
            self._sizes.append(len(numbers))
        return number

    def labels(self) -> dict[str, pa.Table]:
        """Return a table for every split: `id` and the labels of its rows, in their order."""
        splits = list(self._splits.values())
        first = np.full((len(self._sizes), len(splits)), -1, np.int64)  # row that has the set
        for split, rows in enumerate(splits):
            numbers, at = np.unique(rows.sets, return_index=True)
            first[numbers, split] = at
        sets = WordSets(np.asarray(self._words, np.uint32), np.asarray(self._sizes, np.int64))
        similarity, nearest = nearest_elsewhere(sets, first >= 0)

        def twin_id(of: int, split: int) -> str | None:
            """Return the id of the first row elsewhere that has the set nearest to a set."""
            if nearest[of, split] < 0:
                return None
            found: list[int] = first[nearest[of, split]].tolist()
            other = next(o for o, row in enumerate(found) if row >= 0 and o != split)
            return splits[other].ids[found[other]]

        return {
            name: self._table(
                rows, similarity[rows.sets, split], [twin_id(s, split) for s in rows.sets]
            )
            for split, (name, rows) in enumerate(self._splits.items())
        }

    def _table(self, rows: _Rows, similarity: F64, twins: list[str | None]) -> pa.Table:
        columns = {"id": pa.array(rows.ids, pa.string())}
        if self._has_prompt:
            columns["prompt_overlap"] = pa.array(np.array(rows.prompt_overlaps), pa.float32())
        below = similarity < THRESHOLD
        columns["split_overlap"] = pa.array(similarity, pa.float32(), mask=below)
        columns["split_overlap_id"] = pa.array(twins, pa.string())
        return pa.table(columns)


def jaccard(a: set[str], b: set[str]) -> float:
    """Return the share of two sets' members that are in both; 0 where both are empty."""
    return len(a & b) / (len(a | b) or 1)


def report(labels: pa.Table) -> dict[str, Any]:
    """Return how many rows of a split were looked at, and how many each label marks.

    A row is marked from `THRESHOLD` on; the first few are named.
    """
    found: dict[str, Any] = {"rows": len(labels)}
    for name in LABELS:
        if name in labels.column_names:
            marked = labels.filter(pc.greater_equal(labels[name], THRESHOLD))["id"]
            found[name] = {"rows": len(marked), "ids": marked[:EXAMPLES].to_pylist()}
    return found


def nearest_elsewhere(sets: WordSets, member: Bools) -> tuple[F64, Indices]:
    """Return how like each set the nearest set in another split is, and which that is.

    Args:
        sets: the sets of words.
        member: whether a split (column) has rows with a set (row).

    Returns:
        Two arrays of the shape of ``member``: of a set as a row of that split has it, the greatest
        similarity to a set that rows of other splits have, which may be the same, and that set's
        number; 0 and -1 where none reaches `THRESHOLD`.
    """
    similarity, nearest = np.zeros(member.shape), np.full(member.shape, -1)
    elsewhere = member.sum(axis=1, keepdims=True) > member  # in a split other than this one

    def note(of: Indices, split: int, other: Indices, values: F64) -> None:
        better = values > similarity[of, split]
        similarity[of[better], split] = values[better]
        nearest[of[better], split] = other[better]

    # If two sets are in different splits, one is outside the largest split.
    largest = member.sum(axis=0).argmax()
    for query in np.flatnonzero(elsewhere[:, largest]).tolist():
        others, values = sets.alike(query)
        for split in range(member.shape[1]):
            if elsewhere[query, split]:
                note(others, split, np.full(len(others), query), values)
            there = np.flatnonzero(elsewhere[others, split])
            if len(there):
                best = there[values[there].argmax()]
                note(np.array([query]), split, others[[best]], values[[best]])
    return similarity, nearest


class WordSets:
    """Sets of words, and for each the sets that are alike."""

    def __init__(self, words: U32, sizes: Indices) -> None:
        """Index the sets: ``words`` has the numbers of the words of one after the other."""
        self._sizes, self._ends = sizes, np.cumsum(sizes)
        self._begins = self._ends - sizes
        counts = np.bincount(words)
        rank = np.empty(len(counts), np.uint32)
        rank[np.argsort(counts, kind="stable")] = np.arange(len(counts))
        self._words: U32 = rank[words]
        for begin, end in zip(self._begins.tolist(), self._ends.tolist(), strict=True):
            self._words[begin:end].sort()
        # The product may be a little more than the whole number that it should be.
        self._least = np.ceil(THRESHOLD * sizes - 1e-6).astype(np.int64)
        self._prefixes = np.minimum(sizes - self._least + SHARED, sizes)
        starts = self._words[spans(self._begins, self._prefixes)]
        order = np.argsort(starts, kind="stable")
        self._owners = np.repeat(np.arange(len(sizes), dtype=np.uint32), self._prefixes)[order]
        self._lists = np.searchsorted(starts[order], np.arange(len(counts) + 1))
        self._marks = np.zeros(len(counts), bool)

    def alike(self, number: int) -> tuple[Indices, F64]:
        """Return the sets whose similarity to a set reaches `THRESHOLD`, itself too, and it."""
        begin, size = self._begins[number], self._sizes[number]
        lists = self._words[begin : begin + self._prefixes[number]]
        found = [self._owners[self._lists[word] : self._lists[word + 1]] for word in lists]
        if not found:
            return np.zeros(0, np.int64), np.zeros(0)
        owners, shared = np.unique(np.concatenate(found), return_counts=True)
        least, limits = self._least[number], self._least[owners]
        fits = (self._sizes[owners] >= least) & (limits <= size)
        enough = shared >= np.minimum(np.minimum(least, limits), SHARED)
        others = owners[fits & enough].astype(np.int64)
        blocks = np.array_split(others, len(others) // BLOCK + 1)
        common = np.concatenate([self._common(number, block) for block in blocks])
        similarity = common / (self._sizes[others] + size - common)
        reached = similarity >= THRESHOLD
        return others[reached], similarity[reached]

    def _common(self, number: int, others: Indices) -> Indices:
        """Return how many words of a set others share with it; none of them is empty."""
        own = self._words[self._begins[number] : self._ends[number]]
        sizes = self._sizes[others]
        self._marks[own] = True
        shared = self._marks[self._words[spans(self._begins[others], sizes)]]
        self._marks[own] = False
        common: Indices = np.add.reduceat(shared, np.cumsum(sizes) - sizes, dtype=np.int64)
        return common
