"""Near-duplicates of texts: sets of token 5-grams, MinHash, banding, and exact confirmation.

The resemblance of two texts is the Jaccard similarity of their sets of shingles, runs of `SHINGLE`
tokens (Broder, "On the resemblance and containment of documents", 1997). A token is what
``[\\w\\x80-\\xff]+|[^\\w\\s\\x80-\\xff]`` finds in the text's UTF-8 bytes: a word, or one sign that
is no white space; every byte beyond ASCII belongs to a word. A text of one to four tokens has one
shingle, all of it; a text without tokens has none and resembles nothing.

Pairs that may be alike are found without comparing all with all: a text's MinHash signature is the
minimum of its shingles' hashes under each of some random permutations, two texts agree in a
permutation with the probability that is their similarity (Broder et al., "Min-wise independent
permutations", 1998), and texts are candidates when they agree in all permutations of any band
(Indyk and Motwani, "Approximate nearest neighbors", 1998; Leskovec, Rajaraman and Ullman, "Mining
of massive datasets", chapter 3). With 16 bands of 8, a pair of similarity s is found with
probability 1 - (1 - s^8)^16: 0.61 at 0.7, 0.95 at 0.8, 0.9999 at 0.9. Every candidate is then
confirmed on the shingles themselves, so that a pair is missed at times and never invented.

The permutations are h -> a*h + b modulo 2^32 with odd a, on hashes that went through MurmurHash3's
finalizer: those of `datasketch.MinHash` (scheme ``affine32``, its default since 2.0), whose
signatures ours equal bit for bit given the same hashes of shingles.

A text takes 4 bytes a permutation and 4 a distinct shingle: about 1 KiB for a function of 20
lines, beside 4 bytes a band while candidates are looked for. Texts are read in chunks of `CHUNK`
bytes; the work on one takes some 30 times its size, and a longer text is a chunk of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SHINGLE = 5  # tokens
PERMUTATIONS = 128
BANDS = 16
CHUNK = 1 << 17  # bytes: larger is no faster, and its arrays still fit a processor's cache

U32 = NDArray[np.uint32]
U64 = NDArray[np.uint64]
Indices = NDArray[np.int64]

_SPACE, _WORD, _SIGN = 0, 1, 2


def _byte_classes() -> NDArray[np.uint8]:
    classes = np.full(256, _SIGN, np.uint8)
    classes[list(b" \t\n\r\f\v")] = _SPACE
    classes[[c for c in range(256) if c >= 128 or c == ord("_") or chr(c).isalnum()]] = _WORD
    return classes


_CLASS = _byte_classes()
_RANDOM = np.random.RandomState(0x5EED)  # a fixed stream: these numbers are part of every hash
_BYTE: U64 = _RANDOM.randint(0, 2**64, 256, dtype=np.uint64)
_PLACE: U64 = _RANDOM.randint(0, 2**64, SHINGLE, dtype=np.uint64) | np.uint64(1)
_BASE = 0x9E3779B97F4A7C15  # odd, so that it has an inverse modulo 2^64


@dataclass(frozen=True)
class Sketches:
    """What is kept of texts.

    Attributes:
        signatures: one row a text, one column a permutation.
        shingles: the hashes of all texts' distinct shingles, sorted within each text.
        ends: where each text's shingles end; they begin where those of the text before end.
    """

    signatures: U32
    shingles: U32
    ends: Indices

    def __len__(self) -> int:
        return len(self.ends)

    def sizes(self) -> Indices:
        """Return the number of distinct shingles of each text."""
        return np.diff(self.ends, prepend=0)

    def of(self, text: int) -> U32:
        """Return the hashes of one text's shingles, sorted."""
        return self.shingles[self.ends[text - 1] if text else 0 : self.ends[text]]

    def similarity(self, text: int, others: Indices) -> NDArray[np.float64]:
        """Return the Jaccard similarity of a text to each of others; 0 where one is empty.

        It is exact but for shingles whose 32-bit hashes meet: two texts of n shingles share n^2
        / 2^32 too many on average, 0.002 for n = 3,000.
        """
        own = self.of(text)
        if not len(others) or not len(own):
            return np.zeros(len(others))
        parts = [self.of(int(other)) for other in others]
        sizes = np.array([len(part) for part in parts])
        theirs = np.concatenate(parts)
        at = np.minimum(np.searchsorted(own, theirs), len(own) - 1)
        found = np.concatenate(([0], np.cumsum(own[at] == theirs)))
        ends = np.cumsum(sizes)
        common = found[ends] - found[ends - sizes]
        return np.asarray(common / (sizes + len(own) - common), np.float64)


def sketch(texts: Iterable[str], permutations: int = PERMUTATIONS) -> Sketches:
    """Return the signatures and shingles of texts, in their order."""
    factors, offsets = permutation_parameters(permutations)
    signatures, shingles, sizes = [], [], []
    for chunk in _chunks(texts):
        hashes, counts = shingle_hashes(chunk)
        shingles.append(hashes)
        sizes.append(counts)
        signatures.append(sign(hashes, counts, factors, offsets))
    if not sizes:
        empty = np.zeros(0, np.uint32)
        return Sketches(empty.reshape(0, permutations), empty, np.zeros(0, np.int64))
    ends = np.cumsum(np.concatenate(sizes))
    return Sketches(np.concatenate(signatures), np.concatenate(shingles), ends)


def _chunks(texts: Iterable[str]) -> Iterator[list[bytes]]:
    """Yield texts as UTF-8, a few at a time."""
    chunk: list[bytes] = []
    size = 0
    for text in texts:
        chunk.append(text.encode("utf-8", "surrogatepass"))
        size += len(chunk[-1])
        if size >= CHUNK:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


# shingles


def shingle_hashes(texts: list[bytes]) -> tuple[U32, Indices]:
    """Return the hashes of texts' distinct shingles, sorted within each, and how many each has."""
    tokens, counts = _token_hashes(texts)
    number = np.arange(len(texts))
    gap = SHINGLE - 1
    # Each text is followed by empty tokens: windows that begin in it then never see the next.
    padded = np.zeros(len(tokens) + gap * len(texts) + gap, np.uint64)
    padded[np.arange(len(tokens)) + gap * np.repeat(number, counts)] = tokens
    windows = np.zeros(len(padded) - gap, np.uint64)
    for place, factor in enumerate(_PLACE):
        windows += padded[place : place + len(windows)] * factor
    used = np.where(counts > 0, np.maximum(counts - gap, 1), 0)
    begin = np.cumsum(counts + gap) - (counts + gap)
    ends = np.cumsum(used)
    index: Indices = np.arange(used.sum()) + np.repeat(begin - (ends - used), used)
    hashes = (_mix64(windows[index]) >> np.uint64(32)).astype(np.uint32)
    for start, end in zip((ends - used).tolist(), ends.tolist(), strict=True):
        hashes[start:end].sort()
    new = np.ones(len(hashes), bool)
    new[1:] = hashes[1:] != hashes[:-1]
    new[(ends - used)[used > 0]] = True
    distinct = np.concatenate(([0], np.cumsum(new)))
    return hashes[new], distinct[ends] - distinct[ends - used]


def _token_hashes(texts: list[bytes]) -> tuple[U64, Indices]:
    """Return a hash of each token of texts, in order, and how many tokens each text has.

    A token's hash is a polynomial in its bytes modulo 2^64, as a difference of running sums.
    """
    joined = np.frombuffer(b"\n".join(texts) + b"\n", np.uint8)
    classes = _CLASS[joined]
    sign = classes == _SIGN
    word = classes == _WORD
    begins, stops = sign | word, sign | word
    begins[1:] &= ~(word[1:] & word[:-1])
    stops[:-1] &= ~(word[:-1] & word[1:])
    first, last = np.flatnonzero(begins), np.flatnonzero(stops)

    sums = _BYTE[joined]
    sums *= _powers(_BASE, len(joined))
    np.cumsum(sums, out=sums)
    hashes = sums[last]
    hashes[first > 0] -= sums[first[first > 0] - 1]
    hashes *= _powers(pow(_BASE, -1, 2**64), len(joined))[first]

    text_ends = np.cumsum([len(text) + 1 for text in texts])
    counts = np.diff(np.searchsorted(first, text_ends), prepend=0)
    return _mix64(hashes), counts


_known_powers: dict[int, U64] = {}


def _powers(base: int, count: int) -> U64:
    """Return the first ``count`` powers of a number modulo 2^64; those of a chunk are kept."""
    known = _known_powers.get(base)
    if known is not None and len(known) >= count:
        return known[:count]
    size = max(count, 2 * CHUNK)
    powers: U64 = np.full(size, base, np.uint64)
    powers[0] = 1
    np.cumprod(powers, out=powers)
    if size == 2 * CHUNK:
        _known_powers[base] = powers
    return powers[:count]


def _mix64(values: U64) -> U64:
    """Return what MurmurHash3's 64-bit finalizer makes of values: every bit decides every bit."""
    values = (values ^ (values >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    values = (values ^ (values >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return values ^ (values >> np.uint64(33))


# signatures


def permutation_parameters(permutations: int) -> tuple[U32, U32]:
    """Return the odd factors and the offsets of datasketch's permutations for its seed, 1."""
    random = np.random.RandomState(1)
    factors = random.randint(0, 2**31, permutations, dtype=np.uint32) * np.uint32(2) + np.uint32(1)
    return factors, random.randint(0, 2**32, permutations, dtype=np.uint32)


def sign(hashes: U32, counts: Indices, factors: U32, offsets: U32) -> U32:
    """Return one signature a text; a text without shingles has the largest number throughout."""
    signatures = np.full((len(counts), len(factors)), 2**32 - 1, np.uint32)
    filled = counts > 0
    if not filled.any():
        return signatures
    begins = (np.cumsum(counts) - counts)[filled]
    mixed = _mix32(hashes)
    permuted = np.empty_like(mixed)
    minima = np.empty((len(factors), len(begins)), np.uint32)
    for i, (factor, offset) in enumerate(zip(factors, offsets, strict=True)):
        np.multiply(mixed, factor, out=permuted)
        np.add(permuted, offset, out=permuted)
        np.minimum.reduceat(permuted, begins, out=minima[i])
    signatures[filled] = minima.T
    return signatures


def _mix32(values: U32) -> U32:
    """Return what MurmurHash3's 32-bit finalizer makes of values."""
    values = (values ^ (values >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    values = (values ^ (values >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return values ^ (values >> np.uint32(16))


# candidates


class Index:
    """Finds the texts, of those that were added, that agree with a text in a band."""

    def __init__(self, sketches: Sketches, bands: int = BANDS) -> None:
        self._sketches = sketches
        self._buckets = _shared_buckets(sketches, bands)
        self._members: dict[int, list[int]] = {}

    def add(self, text: int) -> None:
        """Let a text be found from now on."""
        for bucket in self._buckets.get(text, ()):
            self._members.setdefault(bucket, []).append(text)

    def candidates(self, text: int) -> Indices:
        """Return the texts that were added and that may be like this one, in rising order."""
        buckets = self._buckets.get(text, ())
        found = {other for bucket in buckets for other in self._members.get(bucket, ())}
        found.discard(text)
        return np.array(sorted(found), np.int64)

    def nearest(self, text: int) -> tuple[int, float] | None:
        """Return the most similar candidate, the first of equals, and its exact similarity."""
        others = self.candidates(text)
        if not len(others):
            return None
        similarities = self._sketches.similarity(text, others)
        best = int(similarities.argmax())
        return int(others[best]), float(similarities[best])


def _shared_buckets(sketches: Sketches, bands: int) -> dict[int, list[int]]:
    """Return the numbers of the buckets of each text that shares one with another text."""
    width = sketches.signatures.shape[1] // bands
    texts = np.flatnonzero(sketches.sizes())
    factors = np.random.RandomState(2).randint(0, 2**64, width, dtype=np.uint64) | np.uint64(1)
    shared: dict[int, list[int]] = {}
    total = 0
    for band in range(bands):
        keys = np.zeros(len(texts), np.uint64)
        for place, factor in enumerate(factors):
            keys += _mix64(sketches.signatures[texts, band * width + place] * factor)
        _, bucket, sizes = np.unique(keys, return_inverse=True, return_counts=True)
        several = sizes[bucket] > 1
        for text, number in zip(
            texts[several].tolist(), (bucket[several] + total).tolist(), strict=True
        ):
            shared.setdefault(text, []).append(number)
        total += len(sizes)
    return shared


def confirmed_pairs(
    sketches: Sketches, threshold: float, known: Callable[[int, int], bool] | None = None
) -> Iterator[tuple[int, int, float]]:
    """Yield i < j and the similarity of texts that are candidates and reach the threshold.

    Args:
        sketches: of the texts.
        threshold: the least similarity of a pair.
        known: tells that a pair need not be looked at any more. It is asked between pairs: who
            joins texts to clusters has no use for the pairs within one, which are as many as its
            size squared.
    """
    index = Index(sketches)
    for j in range(len(sketches)):
        others = index.candidates(j)
        size = 1  # and doubled: the first pair often makes the others known
        while len(others):
            block, others = others[:size], others[size:]
            size *= 2
            if known:
                block = block[[not known(i, j) for i in block.tolist()]]
            for i, similarity in zip(block, sketches.similarity(j, block), strict=True):
                if similarity >= threshold:
                    yield int(i), j, float(similarity)
        index.add(j)
