"""Near-duplicates of texts: sets of token 5-grams, MinHash, banding, and exact confirmation.

The resemblance of two texts is the Jaccard similarity of their sets of shingles, runs of `SHINGLE`
tokens (Broder, "On the resemblance and containment of documents", 1997). A token is what
``[\\w\\x80-\\xff]+|[^\\w\\s\\x80-\\xff]`` finds in the text's UTF-8 bytes: a word, or one sign that
is no white space; every byte beyond ASCII belongs to a word. A text of one to four tokens has one
shingle, all of it; a text without tokens has none and resembles nothing.

Pairs that may be alike are found without comparing all with all: a text's MinHash signature is the
minimum of its shingles' hashes under each of some random permutations. The probability that two
texts agree in a permutation is their similarity (Broder et al., "Min-wise independent
permutations", 1998). Texts are candidates when they agree in all permutations of any band (Indyk
and Motwani, "Approximate nearest neighbors", 1998; Leskovec, Rajaraman and Ullman, "Mining of
massive datasets", chapter 3). With 16 bands of 8, a pair of similarity s is found with probability
1 - (1 - s^8)^16: 0.61 at 0.7, 0.95 at 0.8, 0.9999 at 0.9. Every candidate is then confirmed on the
shingles themselves, so that a pair is missed at times and never invented.

The permutations are h -> a*h + b modulo 2^32 with odd a, on hashes that went through MurmurHash3's
finalizer: those of `datasketch.MinHash` (scheme ``affine32``, its default since 2.0), whose
signatures ours equal bit for bit given the same hashes of shingles. The bands are those that
`datasketch.MinHashLSH` chooses for 128 permutations, a threshold of 0.7 and weights of 0.4 and 0.6
(false positives, false negatives), and the candidates are those that it finds. Its own index is not
used: it is slower than `Index` from ten texts on (5 to 43 times from 100 to 33,000 functions), and
its import takes 0.6 s.

A signature is kept as one 32-bit key per band. Texts whose keys are equal share a bucket; different
bands have the same key once in 2^32, which costs a comparison and no more.

**Memory.** Texts are read in chunks of `CHUNK` bytes; the work on one takes some 30 times its size,
and a longer text is a chunk of its own. A text keeps 4 bytes per band, 4 per distinct shingle and
24 for their place; `gather` puts bands and shingles into unnamed files where they take more than
`IN_MEMORY` bytes. An `Index` adds at most 14 bytes per band and text, and candidates are compared
`PAIRS` at a time.

**Work.** Nothing is capped: every pair that shares a bucket is compared, except pairs that cannot
change the result. An `Index` compares a text with added texts and with texts of the same block: if
one of n copies in a bucket is added, each copy costs at most the square root of 2 * `PAIRS`; `link`
compares texts that are not joined yet. Texts that share a bucket and are not alike are compared all
with all.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import polars as pl

SHINGLE = 5  # tokens
PERMUTATIONS = 128
BANDS = 16
CHUNK = 1 << 17  # bytes: larger is no faster, and its arrays still fit a processor's cache
IN_MEMORY = 1 << 29  # bytes of bands and shingles; more of them go into files
PAIRS = 1 << 14  # candidates that are compared together
BLOCK = 1 << 14  # texts that are looked at together at most
COMPARED = 1 << 17  # shingles that are compared together

U32 = NDArray[np.uint32]
U64 = NDArray[np.uint64]
Indices = NDArray[np.int64]

_SPACE, _WORD, _SIGN = 0, 1, 2
_HALF, _LOW = np.uint64(32), np.uint64(2**32 - 1)  # two numbers of 32 bits are sorted as one
_NONE = np.uint32(2**32 - 1)


def _byte_classes() -> bytes:
    classes = np.full(256, _SIGN, np.uint8)
    classes[list(b" \t\n\r\f\v")] = _SPACE
    classes[[c for c in range(256) if c >= 128 or c == ord("_") or chr(c).isalnum()]] = _WORD
    return classes.tobytes()


_CLASS = _byte_classes()
_RANDOM = np.random.RandomState(0x5EED)  # a fixed stream: these numbers are part of every hash
_BYTE: U64 = _RANDOM.randint(0, 2**64, 256, dtype=np.uint64)
_PLACE: U64 = _RANDOM.randint(0, 2**64, SHINGLE, dtype=np.uint64) | np.uint64(1)
_BASE = 0x9E3779B97F4A7C15  # odd, so that it has an inverse modulo 2^64


class SimilarPairs(NamedTuple):
    """Pairs of texts and the Jaccard similarity of each."""

    ones: Indices
    others: Indices
    similarities: NDArray[np.float64]


@dataclass(frozen=True)
class Sketches:
    """What is kept of texts.

    Attributes:
        bands: one row per band, one column per stored text: the key of its bucket.
        shingles: the hashes of distinct shingles, sorted within each text.
        stored: the column of each text in ``bands``.
        begins: where each text's shingles begin.
        sizes: the number of distinct shingles of each text.
    """

    bands: U32
    shingles: U32
    stored: Indices
    begins: Indices
    sizes: Indices

    def __len__(self) -> int:
        return len(self.stored)

    def select(self, texts: Indices) -> Sketches:
        """Return the sketches of some texts, in the order given; bands and shingles stay put."""
        chosen = (self.stored[texts], self.begins[texts], self.sizes[texts])
        return Sketches(self.bands, self.shingles, *chosen)

    def of(self, text: int) -> U32:
        """Return the hashes of one text's shingles, sorted."""
        return self.shingles[self.begins[text] : self.begins[text] + self.sizes[text]]

    def similarities(self, ones: Indices, others: Indices) -> NDArray[np.float64]:
        """Return the Jaccard similarity of each of some texts to another; 0 where one is empty.

        It is exact except for shingles with the same 32-bit hash: two texts of n shingles share
        n^2 / 2^32 too many on average, 0.002 for n = 3,000.
        """
        sizes = self.sizes[ones] + self.sizes[others]
        common = np.zeros(len(ones), np.int64)
        for part in slices(sizes, COMPARED):
            common[part] = self._common(ones[part], others[part])
        return np.asarray(common / np.maximum(sizes - common, 1), np.float64)

    def _common(self, ones: Indices, others: Indices) -> Indices:
        """Return how many shingles the texts of each pair have in common."""
        texts = np.stack((ones, others), 1).ravel()
        sizes = self.sizes[texts]
        keys = np.repeat(np.arange(len(texts), dtype=np.uint64) >> np.uint64(1), sizes) << _HALF
        keys |= self.shingles[spans(self.begins[texts], sizes)]
        keys.sort(kind="stable")  # Timsort, which merges sorted parts
        twice = keys[1:][keys[1:] == keys[:-1]] >> _HALF
        return np.bincount(twice.astype(np.int64), minlength=len(ones))

    def alike(self, ones: Indices, others: Indices, threshold: float) -> SimilarPairs:
        """Return those of some pairs that reach a threshold above 0."""
        small = np.minimum(self.sizes[ones], self.sizes[others])
        large = np.maximum(self.sizes[ones], self.sizes[others])
        possible = small >= threshold * large * (1 - 1e-9)  # what they could have in common
        ones, others = ones[possible], others[possible]
        similarities = self.similarities(ones, others)
        enough = similarities >= threshold
        return SimilarPairs(ones[enough], others[enough], similarities[enough])

    def shared(self, band: int) -> tuple[Indices, Indices]:
        """Return the buckets of a band that several texts share.

        Returns:
            The texts, bucket by bucket and rising within each, and the sizes of the buckets.
        """
        texts = np.flatnonzero(self.sizes)
        keyed = self.bands[band][self.stored[texts]].astype(np.uint64) << _HALF
        keyed |= texts.astype(np.uint64)
        keyed.sort()
        sizes = runs(keyed >> _HALF)
        several = sizes > 1
        members = (keyed & _LOW)[np.repeat(several, sizes)]
        return members.astype(np.int64), sizes[several]


def sketch(texts: Iterable[str]) -> Sketches:
    """Return the sketches of texts, in their order and in memory."""
    keys, shingles = [np.zeros((BANDS, 0), np.uint32)], [np.zeros(0, np.uint32)]
    sizes = [np.zeros(0, np.int64)]
    for chunk in _chunks(texts):
        hashes, counts = shingle_hashes(chunk)
        keys.append(band_keys(sign(hashes, counts)))
        shingles.append(hashes)
        sizes.append(counts)
    return stored(np.concatenate(keys, 1), np.concatenate(shingles), np.concatenate(sizes))


def stored(bands: U32, shingles: U32, sizes: Indices) -> Sketches:
    """Return the sketches of texts whose bands and shingles are stored in the order of the texts.

    Args:
        bands: as in `Sketches`.
        shingles: as in `Sketches`.
        sizes: the number of distinct shingles of each text.
    """
    return Sketches(bands, shingles, np.arange(len(sizes)), np.cumsum(sizes) - sizes, sizes)


def sketch_columns(texts: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Return the columns ``bands`` and ``shingles`` of texts; a null has no shingles."""
    import polars as pl
    import pyarrow as pa

    sketches = sketch(texts.fill_null("").to_list())
    ends = np.append(0, np.cumsum(sketches.sizes))
    shingles = pa.LargeListArray.from_arrays(pa.array(ends), pa.array(sketches.shingles))
    bands = pl.Series("bands", np.ascontiguousarray(sketches.bands.T))
    return bands, pl.Series("shingles", shingles)


def gather(table: pl.DataFrame, folder: Path | None = None) -> Sketches:
    """Return the sketches that a table holds in its columns ``bands`` and ``shingles``.

    Args:
        table: of any number of chunks, which are read one after the other.
        folder: where files go if they are needed; by default where temporary files lie.
    """
    counts = table["shingles"].list.len().to_numpy().astype(np.int64)
    total, texts = int(counts.sum()), len(counts)
    on_disk = 4 * (BANDS * texts + total) > IN_MEMORY
    bands, shingles = (_array(s, folder, on_disk) for s in ((BANDS, texts), (total,)))
    keys, hashes = (
        [chunk.to_arrow().flatten().to_numpy() for chunk in table[name].get_chunks()]
        for name in ("bands", "shingles")
    )
    np.concatenate([part.reshape(-1, BANDS).T for part in keys], axis=1, out=bands)
    np.concatenate(hashes, out=shingles)
    return stored(bands, shingles, counts)


def _array(shape: tuple[int, ...], folder: Path | None, on_disk: bool) -> U32:
    """Return an array; on disk, in a file that is deleted with it."""
    if not on_disk:
        return np.empty(shape, np.uint32)
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as file:
        return np.memmap(file, np.uint32, "w+", shape=shape)


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
    hashes = (mix64(windows[index]) >> np.uint64(32)).astype(np.uint32)
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
    data = b"\n".join([*texts, b""])
    joined = np.frombuffer(data, np.uint8)
    classes = np.frombuffer(data.translate(_CLASS), np.uint8)
    sign = classes == _SIGN
    word = classes == _WORD
    begins, stops = sign | word, sign | word
    begins[1:] &= ~(word[1:] & word[:-1])
    stops[:-1] &= ~(word[:-1] & word[1:])
    first, last = np.flatnonzero(begins), np.flatnonzero(stops)

    size = max(len(joined), 2 * CHUNK)  # of most chunks the same
    sums = _BYTE[joined]
    sums *= _powers(_BASE, size)[: len(joined)]
    np.cumsum(sums, out=sums)
    hashes = sums[last]
    hashes[first > 0] -= sums[first[first > 0] - 1]
    hashes *= _powers(pow(_BASE, -1, 2**64), size)[first]

    text_ends = np.cumsum([len(text) + 1 for text in texts])
    counts = np.diff(np.searchsorted(first, text_ends), prepend=0)
    return mix64(hashes), counts


@lru_cache(2)
def _powers(base: int, count: int) -> U64:
    """Return the first ``count`` powers of a number modulo 2^64."""
    powers: U64 = np.full(count, base, np.uint64)
    powers[0] = 1
    return np.cumprod(powers, out=powers)


def mix64(values: U64) -> U64:
    """Return what MurmurHash3's 64-bit finalizer makes of values: every bit decides every bit."""
    values = (values ^ (values >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    values = (values ^ (values >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return values ^ (values >> np.uint64(33))


# signatures


def sign(hashes: U32, counts: Indices, permutations: int = PERMUTATIONS) -> U32:
    """Return one signature per text, as `datasketch.MinHash` has it for its seed, 1.

    A text without shingles has the largest number throughout.
    """
    random = np.random.RandomState(1)
    factors = random.randint(0, 2**31, permutations, dtype=np.uint32) * np.uint32(2) + np.uint32(1)
    offsets = random.randint(0, 2**32, permutations, dtype=np.uint32)
    signatures = np.full((permutations, len(counts)), 2**32 - 1, np.uint32)
    filled = counts > 0
    begins = (np.cumsum(counts) - counts)[filled]
    mixed = _mix32(hashes)
    permuted = np.empty_like(mixed)
    for i, (factor, offset) in enumerate(zip(factors, offsets, strict=True)):
        np.multiply(mixed, factor, out=permuted)
        np.add(permuted, offset, out=permuted)
        signatures[i, filled] = np.minimum.reduceat(permuted, begins)
    return signatures.T


def _mix32(values: U32) -> U32:
    """Return what MurmurHash3's 32-bit finalizer makes of values."""
    values = (values ^ (values >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    values = (values ^ (values >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return values ^ (values >> np.uint32(16))


def band_keys(signatures: U32, bands: int = BANDS) -> U32:
    """Return the key of each band of signatures: one row per band, one column per text."""
    width = signatures.shape[1] // bands
    factors = np.random.RandomState(2).randint(0, 2**64, width, dtype=np.uint64) | np.uint64(1)
    numbers = signatures.T.reshape(bands, width, len(signatures))
    keys: U64 = (numbers * factors[:, None]).sum(1)
    return (mix64(keys) >> _HALF).astype(np.uint32)


# candidates


class Index:
    """Finds texts like others, going through texts in order.

    The caller of `walk` decides between two blocks which texts of the first are found from then on,
    and adds them.
    """

    def __init__(self, sketches: Sketches) -> None:
        self._sketches = sketches
        self._buckets = np.full((len(sketches), len(sketches.bands)), _NONE, np.uint32)
        sizes = [np.zeros(0, np.int64)]
        total = 0
        for band in range(len(sketches.bands)):
            members, counts = sketches.shared(band)
            numbers = np.arange(total, total + len(counts), dtype=np.uint32)
            self._buckets[members, band] = np.repeat(numbers, counts)
            sizes.append(counts)
            total += len(counts)
        counts = np.concatenate(sizes)
        self._begins = np.cumsum(counts) - counts  # of each bucket's members
        self._members = np.empty(int(counts.sum()), np.uint32)
        self._filled = np.zeros(total, np.uint32)  # members that each bucket has by now

    def lone(self) -> NDArray[np.bool_]:
        """Return which texts share no bucket with any other."""
        return np.asarray((self._buckets == _NONE).all(1))

    def walk(self, texts: Indices, threshold: float) -> Iterator[tuple[Indices, SimilarPairs]]:
        """Yield texts block by block, with their likenesses to texts before them.

        Args:
            texts: which to go through, rising.
            threshold: the least similarity of a pair.

        Yields:
            Some texts, and the pairs of each (``ones``) with texts (``others``) that were added
            or that stand before it in the same block, sorted.
        """
        begin, count = 0, BLOCK
        while begin < len(texts):
            block = texts[begin : begin + count]
            used, ones, others = self._candidates(block)
            yield block[:used], self._sketches.alike(ones, others, threshold)
            begin += used
            count = min(2 * used, BLOCK)

    def add(self, texts: Indices) -> None:
        """Let texts be found from now on."""
        bucket, at, before, _ = self._entries(texts)
        place = self._begins[bucket] + self._filled[bucket] + before
        self._members[place] = texts[at]
        np.add.at(self._filled, bucket, 1)

    def _entries(self, texts: Indices) -> tuple[Indices, Indices, Indices, Indices]:
        """Return which buckets texts are in, sorted by bucket.

        Returns:
            The bucket; which of the texts is in it; how many of the texts before that are in it
            too; and where the bucket's entries begin.
        """
        buckets = self._buckets[texts]
        at, band = np.nonzero(buckets != _NONE)
        keyed = buckets[at, band].astype(np.uint64) << _HALF
        keyed |= at.astype(np.uint64)
        keyed.sort()
        bucket = (keyed >> _HALF).astype(np.int64)
        sizes = runs(bucket)
        begins = np.repeat(np.cumsum(sizes) - sizes, sizes)
        return bucket, (keyed & _LOW).astype(np.int64), np.arange(len(keyed)) - begins, begins

    def _candidates(self, block: Indices) -> tuple[int, Indices, Indices]:
        """Return how many of some texts have `PAIRS` candidates together, and the pairs."""
        bucket, at, before, begins = self._entries(block)
        added = self._filled[bucket].astype(np.int64)
        found = np.bincount(at, before + added, minlength=len(block))
        used = max(int(np.searchsorted(np.cumsum(found), PAIRS, "right")), 1)
        mine = np.flatnonzero(at < used)
        before, added = before[mine], added[mine]
        others = (
            block[at[spans(begins[mine], before)]],
            self._members[spans(self._begins[bucket[mine]], added)],
        )
        ones = block[at[mine]]
        keyed = np.concatenate((np.repeat(ones, before), np.repeat(ones, added))) << 32
        keyed = np.unique(keyed | np.concatenate(others))
        return used, keyed >> 32, keyed & 0xFFFFFFFF


def link(
    sketches: Sketches,
    threshold: float,
    group: Callable[[Indices], Indices],
    join: Callable[[int, int], None],
) -> None:
    """Join the groups of all texts that are candidates and reach a threshold.

    Args:
        sketches: of the texts.
        threshold: the least similarity of a pair.
        group: returns the number of the group that each of some texts is in.
        join: makes one group of those that two texts are in.
    """

    def link_pairs(ones: Indices, others: Indices) -> None:
        apart = group(ones) != group(others)
        pairs = sketches.alike(ones[apart], others[apart], threshold)
        for one, other in zip(pairs.ones.tolist(), pairs.others.tolist(), strict=True):
            join(one, other)

    for band in range(len(sketches.bands)):
        members, sizes = sketches.shared(band)
        ends = np.repeat(np.cumsum(sizes), sizes)  # of each member's bucket
        # Neighbours first: most of a large bucket is then one group, whose pairs are never formed.
        inner = np.flatnonzero(np.arange(1, len(members) + 1) < ends)
        for part in slices(np.ones(len(inner), np.int64), PAIRS):
            link_pairs(members[inner[part]], members[inner[part] + 1])
        groups = group(members)
        order = np.lexsort((groups, ends))
        members, groups = members[order], groups[order]
        lengths = runs(groups, ends)
        run_ends = np.repeat(np.cumsum(lengths), lengths)
        counts = ends - run_ends
        for part in slices(counts, PAIRS):
            others = members[spans(run_ends[part], counts[part])]
            link_pairs(np.repeat(members[part], counts[part]), others)


def runs(*columns: Indices | U64) -> Indices:
    """Return the lengths of runs of equal rows."""
    new = np.ones(len(columns[0]) + 1, bool)
    new[1:-1] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return np.diff(np.flatnonzero(new))


def spans(begins: Indices, counts: Indices) -> Indices:
    """Return the numbers from each beginning on, as many as are counted, one after the other."""
    ends = np.cumsum(counts)
    places: Indices = np.repeat(begins - (ends - counts), counts)
    places += np.arange(len(places))
    return places


def slices(sizes: Indices, limit: int) -> Iterator[slice]:
    """Yield slices of a sequence whose sizes add up to a limit at most, or of one member."""
    ends = np.cumsum(sizes)
    begin = done = 0
    while begin < len(sizes):
        end = max(int(np.searchsorted(ends, done + limit, "right")), begin + 1)
        yield slice(begin, end)
        begin, done = end, int(ends[end - 1])
