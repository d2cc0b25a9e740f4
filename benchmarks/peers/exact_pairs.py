"""All pairs of a corpus whose Jaccard similarity reaches a threshold, exactly.

    python exact_pairs.py CORPUS RESULT.npz words|tokens

A document is its set of runs of five words (``\\w+``), or of five tokens as
`curate.clean.similar.minhash` has them. The join is a prefix filter (Bayardo, Ma and Srikant,
"Scaling up all pairs similarity search", 2007): with the shingles of every document in one order,
the rarest first, two sets of similarity t or more share one of the first n - ceil(t n) + 1 of each.
The shared shingles of every such pair are then counted. It uses no MinHash and nothing of this
project. Shingles are told apart by 64 bits: among 40 million, the probability that any two are
confused is 4e-5.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SHINGLE = 5
THRESHOLD = 0.7
PATTERNS = {
    "words": re.compile(r"\w+"),
    "tokens": re.compile(r"[\w\x80-\U0010ffff]+|[^\w\s\x80-\U0010ffff]", re.ASCII),
}
BLOCK = 1 << 24  # candidate pairs after which those found several times are made one

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Sets:
    """The shingles of all documents as numbers, the rarest lowest, sorted within each document."""

    items: NDArray[np.uint32]
    ends: Indices

    def __len__(self) -> int:
        return len(self.ends)

    def sizes(self) -> Indices:
        """Return how many shingles each document has."""
        return np.diff(self.ends, prepend=0)

    def of(self, document: int) -> NDArray[np.uint32]:
        """Return the shingles of a document."""
        return self.items[self.ends[document - 1] if document else 0 : self.ends[document]]


def make_sets(texts: list[str], pattern: re.Pattern[str]) -> Sets:
    """Return the documents as sets of shingles."""
    shingles = list(_shingles(texts, pattern))
    sizes = np.array([len(part) for part in shingles])
    _, inverse, counts = np.unique(
        np.concatenate(shingles), return_inverse=True, return_counts=True
    )
    rank = np.empty(len(counts), np.uint64)
    rank[np.argsort(counts, kind="stable")] = np.arange(len(counts), dtype=np.uint64)
    keys = rank[inverse]
    keys |= np.repeat(np.arange(len(texts), dtype=np.uint64) << np.uint64(32), sizes)
    keys.sort()
    return Sets(keys.astype(np.uint32), np.cumsum(sizes))


def _shingles(texts: list[str], pattern: re.Pattern[str]) -> Iterator[NDArray[np.uint64]]:
    """Yield the hashes of each document's distinct shingles."""
    random = np.random.RandomState(7)
    factors = random.randint(0, 2**64, SHINGLE, dtype=np.uint64) | np.uint64(1)
    known: dict[str, int] = {}
    for text in texts:
        tokens = [known.setdefault(t, len(known)) for t in pattern.findall(text)]
        values = mix(np.array(tokens, np.uint64) + np.uint64(1))
        count = max(1, len(values) - SHINGLE + 1) if len(values) else 0
        sums = np.zeros(count, np.uint64)
        for place, factor in enumerate(factors):
            part = values[place : place + count] * factor
            sums[: len(part)] += part
        yield np.unique(mix(sums))


def mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return what the SplitMix64 generator makes of values: different ones stay different."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def candidates(sets: Sets, threshold: float) -> Indices:
    """Return the pairs i < j, as i * n + j, that share an item of their prefixes; sorted."""
    sizes, n = sets.sizes(), len(sets)
    prefix = np.where(sizes > 0, sizes - np.ceil(threshold * sizes - 1e-9).astype(int) + 1, 0)
    document = np.repeat(np.arange(n), prefix)
    within = np.arange(prefix.sum()) - np.repeat(np.cumsum(prefix) - prefix, prefix)
    item = sets.items[np.repeat(sets.ends - sizes, prefix) + within]
    order = np.lexsort((document, sizes[document], item))
    item, document = item[order], document[order]
    size = sizes[document]

    found, waiting, pairs = 0, [], np.zeros(0, np.int64)
    left, distance = np.arange(len(item)), 0
    while len(left):  # each entry with the next of its item, then with the one after that …
        distance += 1
        left = left[left + distance < len(item)]
        right = left + distance
        # Sizes rise within an item, so that an entry once without a partner has none further on.
        left = left[(item[left] == item[right]) & (size[left] >= threshold * size[right] - 1e-9)]
        a, b = document[left], document[left + distance]
        waiting.append(np.minimum(a, b) * n + np.maximum(a, b))
        found += len(left)
        if found > BLOCK or not len(left):
            pairs, waiting, found = np.unique(np.concatenate([pairs, *waiting])), [], 0
    return pairs


def exact_pairs(
    sets: Sets, threshold: float = THRESHOLD
) -> tuple[Indices, Indices, NDArray[np.float64]]:
    """Return all pairs i < j of a similarity that reaches the threshold, and the similarity."""
    n, sizes = len(sets), sets.sizes()
    keys = candidates(sets, threshold)
    first, second = keys // n, keys % n
    common = np.empty(len(keys), np.int64)
    marked = np.zeros(int(sets.items.max(initial=0)) + 1, bool)
    starts = np.flatnonzero(np.diff(first, prepend=-1))
    for start, stop in zip(starts, [*starts[1:], len(keys)], strict=True):
        own, others = sets.of(first[start]), second[start:stop]
        marked[own] = True
        theirs = [np.count_nonzero(marked[sets.of(other)]) for other in others]
        common[start:stop] = theirs
        marked[own] = False
    similarity = common / (sizes[first] + sizes[second] - common)
    good = similarity >= threshold - 1e-12
    return first[good], second[good], similarity[good]


def main() -> None:
    corpus, result, kind = sys.argv[1:]
    with Path(corpus).open(encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in lines]
    first, second, similarity = exact_pairs(make_sets(texts, PATTERNS[kind]))
    np.savez(result, first=first, second=second, similarity=similarity)


if __name__ == "__main__":
    main()
