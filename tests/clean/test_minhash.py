from __future__ import annotations

import random
import re

import numpy as np
import pytest
from datasketch import MinHash
from hypothesis import given
from hypothesis import strategies as st

from curate.clean.minhash import (
    CHUNK,
    SHINGLE,
    Index,
    confirmed_pairs,
    permutation_parameters,
    shingle_hashes,
    sign,
    sketch,
)

TOKEN = re.compile(rb"[\w\x80-\xff]+|[^\w\s\x80-\xff]")
WORDS = st.sampled_from(["a", "b", "x1", "_", "+", "(", ")", "é", "日本", " ", "\n", "\0", "\x80"])
TEXTS = st.lists(st.lists(WORDS, max_size=30).map("".join), max_size=12)


def shingles(text: str) -> set[tuple[bytes, ...]]:
    tokens = TOKEN.findall(text.encode())
    count = max(1, len(tokens) - SHINGLE + 1) if tokens else 0
    return {tuple(tokens[i : i + SHINGLE]) for i in range(count)}


def jaccard(one: str, two: str) -> float:
    a, b = shingles(one), shingles(two)
    return len(a & b) / len(a | b) if a and b else 0.0


def program(rng: random.Random, lines: int = 30) -> list[str]:
    return [f"v{rng.randrange(10**6)} = f{rng.randrange(10**6)}(x, {i})" for i in range(lines)]


def edited(rng: random.Random, lines: list[str], edits: int) -> list[str]:
    lines = list(lines)
    for at in rng.sample(range(len(lines)), edits):
        lines[at] = program(rng, 1)[0]
    return lines


# shingles


@given(TEXTS)
def test_shingles_are_those_of_the_definition(texts: list[str]) -> None:
    sketches = sketch(texts, permutations=2)
    assert sketches.sizes().tolist() == [len(shingles(text)) for text in texts]
    everyone = np.arange(len(texts))
    for i, text in enumerate(texts):
        assert (np.diff(sketches.of(i).astype(np.int64)) > 0).all()
        expected = [jaccard(text, other) for other in texts]
        assert sketches.similarity(i, everyone).tolist() == pytest.approx(expected)


@given(st.lists(st.text(max_size=60), max_size=6))
def test_any_unicode(texts: list[str]) -> None:
    assert sketch(texts, 2).sizes().tolist() == [len(shingles(text)) for text in texts]


def test_a_lone_surrogate_is_a_text_too() -> None:
    assert sketch(["a = '\ud800'"], 2).sizes().tolist() == [1]


def test_short_texts() -> None:
    texts = ["", " \n\t", "x", "x", "x + y", "x + z"]
    sketches = sketch(texts)
    assert sketches.sizes().tolist() == [0, 0, 1, 1, 1, 1]
    assert list(confirmed_pairs(sketches, 0.1)) == [(2, 3, 1.0)]
    assert len(sketch([])) == 0
    assert list(confirmed_pairs(sketch([]), 0.1)) == []
    assert list(confirmed_pairs(sketch([""]), 0.1)) == []


def test_tokens_do_not_run_together() -> None:
    sketches = sketch(["ab", "a b", "ba", "a\nb", "é", "e", "ab\0", "aab"])
    assert list(confirmed_pairs(sketches, 0.01)) == [(1, 3, 1.0)]


def test_a_text_far_above_the_size_of_a_chunk() -> None:
    rng = random.Random(0)
    lines = program(rng, 8 * CHUNK // 100)
    small, huge, other = "\n".join(lines[:20]), "\n".join(lines), "\n".join(program(rng, 20))
    assert len(huge) > 2 * CHUNK
    word = "w" * (3 * CHUNK)
    sketches = sketch([small, huge, word, other, huge + " " + word, word])
    assert sketches.sizes().tolist()[2:4] == [1, len(shingles(other))]
    assert sketches.sizes()[1] == len(shingles(huge))
    found = list(confirmed_pairs(sketches, 0.9))
    assert [(i, j) for i, j, _ in found] == [(1, 4), (2, 5)]
    assert found[0][2] == pytest.approx(jaccard(huge, huge + " " + word))


def test_a_text_is_the_same_whatever_its_neighbours() -> None:
    rng = random.Random(1)
    texts = ["\n".join(program(rng, rng.randrange(60))) for _ in range(200)]
    together = sketch(texts)
    for i in (0, 7, 199):
        alone = sketch([texts[i]])
        assert (alone.signatures[0] == together.signatures[i]).all()
        assert (alone.shingles == together.of(i)).all()


# signatures


@pytest.mark.parametrize("permutations", [128, 256])
def test_signatures_are_those_of_datasketch(permutations: int) -> None:
    rng = random.Random(2)
    texts = ["\n".join(program(rng, lines)).encode() for lines in (1, 2, 10, 300)]
    hashes, counts = shingle_hashes([*texts, b"", b"x"])
    ours = sign(hashes, counts, *permutation_parameters(permutations))
    ends = np.cumsum(counts)
    for i, (start, end) in enumerate(zip(ends - counts, ends, strict=True)):
        oracle = MinHash(num_perm=permutations, seed=1, hashfunc=int, scheme="affine32")
        oracle.update_batch(hashes[start:end].tolist())
        assert ours[i].dtype == oracle.hashvalues.dtype
        assert (ours[i] == oracle.hashvalues).all()


@given(st.lists(st.lists(st.integers(0, 2**32 - 1), unique=True, max_size=9), max_size=9))
def test_signatures_of_any_hashes(sets: list[list[int]]) -> None:
    hashes = np.array([h for one in sets for h in one], np.uint32)
    counts = np.array([len(one) for one in sets], np.int64)
    ours = sign(hashes, counts, *permutation_parameters(16))
    for one, signature in zip(sets, ours, strict=True):
        oracle = MinHash(num_perm=16, seed=1, hashfunc=int, scheme="affine32")
        oracle.update_batch(one)
        assert (signature == oracle.hashvalues).all()


def test_signatures_estimate_the_similarity() -> None:
    rng = random.Random(3)
    lines = program(rng)
    sketches = sketch(["\n".join(lines), "\n".join(edited(rng, lines, 5))], 1024)
    estimate = float((sketches.signatures[0] == sketches.signatures[1]).mean())
    assert estimate == pytest.approx(float(sketches.similarity(0, np.array([1]))[0]), abs=0.06)


# pairs


@given(TEXTS, st.sampled_from([0.3, 0.7, 0.8, 1.0]))
def test_no_pair_is_invented(texts: list[str], threshold: float) -> None:
    for i, j, similarity in confirmed_pairs(sketch(texts), threshold):
        assert i < j
        assert similarity == pytest.approx(jaccard(texts[i], texts[j]))
        assert similarity >= threshold


@given(TEXTS)
def test_equal_texts_are_always_found(texts: list[str]) -> None:
    found = {(i, j) for i, j, _ in confirmed_pairs(sketch(texts), 1.0)}
    same = {
        (i, j)
        for j in range(len(texts))
        for i in range(j)
        if shingles(texts[i]) == shingles(texts[j]) != set()
    }
    assert found == same


def test_planted_pairs_are_found_as_often_as_banding_says() -> None:
    rng = random.Random(4)
    texts, planted = [], {}
    for _ in range(600):
        lines = program(rng)
        texts += ["\n".join(lines), "\n".join(edited(rng, lines, rng.randrange(8)))]
        planted[len(texts) - 2, len(texts) - 1] = jaccard(*texts[-2:])
    found = {(i, j) for i, j, _ in confirmed_pairs(sketch(texts), 0.6)}
    assert found <= planted.keys()
    for low, high in ((0.6, 0.7), (0.7, 0.8), (0.8, 1.01)):
        true = {pair: s for pair, s in planted.items() if low <= s < high}
        assert len(true) > 60
        chances = [1 - (1 - s**8) ** 16 for s in true.values()]
        spread = sum(p * (1 - p) for p in chances) ** 0.5
        assert len(found & true.keys()) == pytest.approx(sum(chances), abs=3 * spread + 1)
    assert {pair for pair, s in planted.items() if s >= 0.9} <= found


def test_the_order_of_texts_does_not_matter() -> None:
    rng = random.Random(5)
    family = program(rng)
    texts = ["\n".join(edited(rng, family, rng.randrange(12))) for _ in range(60)]
    texts += ["\n".join(program(rng)) for _ in range(60)]

    def found(order: list[int]) -> set[tuple[int, int, float]]:
        pairs = confirmed_pairs(sketch(texts[i] for i in order), 0.6)
        return {(*sorted((order[i], order[j])), s) for i, j, s in pairs}  # type: ignore[misc]

    straight = found(list(range(len(texts))))
    assert len(straight) > 20
    assert found(rng.sample(range(len(texts)), len(texts))) == straight


def test_known_pairs_are_passed_over() -> None:
    rng = random.Random(6)
    family = program(rng)
    sketches = sketch("\n".join(edited(rng, family, 1)) for _ in range(100))
    every = list(confirmed_pairs(sketches, 0.8))
    group = list(range(100))

    def known(i: int, j: int) -> bool:
        return group[i] == group[j]

    links = 0
    for i, j, similarity in confirmed_pairs(sketches, 0.8, known):
        assert (i, j, similarity) in every
        group = [group[i] if g == group[j] else g for g in group]
        links += 1
    assert len(set(group)) == 1
    assert 99 <= links < len(every) / 2


def test_only_texts_that_were_added_are_found() -> None:
    index = Index(sketch(["f(x) + 1", "f(x) + 1", "g(y) * 2", "f(x) + 1"]))
    assert index.nearest(3) is None
    index.add(1)
    assert index.nearest(3) == (1, 1.0)
    index.add(0)
    assert index.nearest(3) == (0, 1.0)
    assert index.nearest(2) is None
    assert index.candidates(0).tolist() == [1]
