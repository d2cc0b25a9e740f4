from __future__ import annotations

import random
import re
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from datasketch import LeanMinHash, MinHash, MinHashLSH
from hypothesis import given, settings
from hypothesis import strategies as st
from similar_pairs import confirmed_pairs

from curate.clean.forms import overlap
from curate.clean.forms.overlap import text_signature
from curate.clean.similar import minhash
from curate.clean.similar.minhash import (
    BANDS,
    CHUNK,
    PERMUTATIONS,
    SHINGLE,
    Index,
    Sketches,
    band_keys,
    gather,
    link,
    shingle_hashes,
    sign,
    sketch,
    sketch_columns,
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


@settings(deadline=None)
@given(TEXTS)
def test_shingles_are_those_of_the_definition(texts: list[str]) -> None:
    sketches = sketch(texts)
    assert sketches.sizes.tolist() == [len(shingles(text)) for text in texts]
    everyone = np.arange(len(texts))
    for i, text in enumerate(texts):
        assert (np.diff(sketches.of(i).astype(np.int64)) > 0).all()
        expected = [jaccard(text, other) for other in texts]
        similarities = sketches.similarities(np.full(len(texts), i), everyone)
        assert similarities.tolist() == pytest.approx(expected)


@settings(deadline=None)
@given(st.lists(st.text(max_size=60), max_size=6))
def test_any_unicode(texts: list[str]) -> None:
    assert sketch(texts).sizes.tolist() == [len(shingles(text)) for text in texts]


def test_a_lone_surrogate_is_a_text_too() -> None:
    assert sketch(["a = '\ud800'"]).sizes.tolist() == [1]


def test_short_texts() -> None:
    texts = ["", " \n\t", "x", "x", "x + y", "x + z"]
    sketches = sketch(texts)
    assert sketches.sizes.tolist() == [0, 0, 1, 1, 1, 1]
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
    assert sketches.sizes.tolist()[2:4] == [1, len(shingles(other))]
    assert sketches.sizes[1] == len(shingles(huge))
    found = list(confirmed_pairs(sketches, 0.9))
    assert [(i, j) for i, j, _ in found] == [(1, 4), (2, 5)]
    assert found[0][2] == pytest.approx(jaccard(huge, huge + " " + word))


def test_a_text_is_the_same_whatever_its_neighbours() -> None:
    rng = random.Random(1)
    texts = ["\n".join(program(rng, rng.randrange(60))) for _ in range(200)]
    together = sketch(texts)
    for i in (0, 7, 199):
        alone = sketch([texts[i]])
        assert (alone.bands[:, 0] == together.bands[:, i]).all()
        assert (alone.shingles == together.of(i)).all()


# signatures


@pytest.mark.parametrize("permutations", [128, 256])
def test_signatures_are_those_of_datasketch(permutations: int) -> None:
    rng = random.Random(2)
    texts = ["\n".join(program(rng, lines)).encode() for lines in (1, 2, 10, 300)]
    hashes, counts = shingle_hashes([*texts, b"", b"x"])
    ours = sign(hashes, counts, permutations)
    ends = np.cumsum(counts)
    for i, (start, end) in enumerate(zip(ends - counts, ends, strict=True)):
        oracle = MinHash(num_perm=permutations, seed=1, hashfunc=int, scheme="affine32")
        oracle.update_batch(hashes[start:end].tolist())
        assert ours[i].dtype == oracle.hashvalues.dtype
        assert (ours[i] == oracle.hashvalues).all()


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 2**32 - 1), unique=True, max_size=9), max_size=9))
def test_signatures_of_any_hashes(sets: list[list[int]]) -> None:
    hashes = np.array([h for one in sets for h in one], np.uint32)
    counts = np.array([len(one) for one in sets], np.int64)
    ours = sign(hashes, counts, 16)
    for one, signature in zip(sets, ours, strict=True):
        oracle = MinHash(num_perm=16, seed=1, hashfunc=int, scheme="affine32")
        oracle.update_batch(one)
        assert (signature == oracle.hashvalues).all()


@settings(deadline=None)
@given(st.text(max_size=60) | TEXTS.map("".join))
def test_the_signature_of_one_text_is_the_same(text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overlap, "BLOCK", 3)
        signature = text_signature(text)
    assert signature.dtype == np.uint32
    assert (signature == sign(*shingle_hashes([text.encode("utf-8")]))[0]).all()


def test_signatures_estimate_the_similarity() -> None:
    rng = random.Random(3)
    lines = program(rng)
    texts = ["\n".join(lines), "\n".join(edited(rng, lines, 5))]
    hashes, counts = shingle_hashes([text.encode() for text in texts])
    one, two = sign(hashes, counts, 1024)
    assert float((one == two).mean()) == pytest.approx(jaccard(*texts), abs=0.06)


def test_texts_that_agree_in_a_band_share_a_key() -> None:
    random_numbers = np.random.RandomState(0)
    signatures = random_numbers.randint(0, 2, (300, 12), dtype=np.uint32)
    keys = band_keys(signatures, 4)
    assert keys.shape == (4, 300)
    for band in range(4):
        part = signatures[:, 3 * band : 3 * band + 3]
        same = (part[:, None] == part[None]).all(2)
        assert ((keys[band][:, None] == keys[band][None]) == same).all()


def test_bands_are_those_that_datasketch_chooses() -> None:
    chosen = MinHashLSH(threshold=0.7, num_perm=PERMUTATIONS, weights=(0.4, 0.6))
    assert (chosen.b, chosen.b * chosen.r) == (BANDS, PERMUTATIONS)


def test_candidates_are_those_of_datasketch() -> None:
    rng = random.Random(10)
    families = [program(rng) for _ in range(20)]
    texts = ["\n".join(edited(rng, rng.choice(families), rng.randrange(9))) for _ in range(300)]
    hashes, counts = shingle_hashes([text.encode() for text in texts])
    index = MinHashLSH(num_perm=PERMUTATIONS, params=(BANDS, PERMUTATIONS // BANDS))
    expected = set()
    for number, signature in enumerate(sign(hashes, counts)):
        lean = LeanMinHash(seed=1, hashvalues=signature, scheme="affine32")
        expected |= {(other, number) for other in index.query(lean)}
        index.insert(number, lean)
    assert len(expected) > 500
    found = confirmed_pairs(sketch(texts), 1e-9)  # all candidates
    assert {(one, other) for one, other, _ in found} == expected


# tables


@pytest.mark.parametrize("in_memory", [0, minhash.IN_MEMORY])
@pytest.mark.parametrize("shard", [1, 3, 50])
def test_sketches_go_through_tables(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, in_memory: int, shard: int
) -> None:
    monkeypatch.setattr(minhash, "IN_MEMORY", in_memory)
    rng = random.Random(7)
    texts = ["\n".join(program(rng, rng.randrange(9))) for _ in range(20)] + ["", "x"]
    parts = [sketch_columns(pl.Series([*texts[i : i + shard], None])) for i in range(0, 22, shard)]
    for number, columns in enumerate(parts):
        pl.DataFrame(columns).write_ipc(tmp_path / f"{number:02}", compression="uncompressed")
    files = [pa.memory_map(str(path)) for path in sorted(tmp_path.iterdir())]
    table = pa.concat_tables([pa.ipc.open_file(file).read_all() for file in files])
    frame = pl.from_arrow(table, rechunk=False)
    assert isinstance(frame, pl.DataFrame)
    read = gather(frame, tmp_path)
    assert len(read) == 22 + len(parts)
    made = sketch(texts)
    present = np.array([i for i in range(len(read)) if i % (shard + 1) != shard][:22])
    chosen = read.select(present)
    assert (chosen.bands[:, chosen.stored] == made.bands).all()
    assert all((chosen.of(i) == made.of(i)).all() for i in range(22))
    assert read.sizes[np.setdiff1d(np.arange(len(read)), present)].tolist() == [0] * len(parts)
    assert isinstance(read.shingles, np.memmap) == (not in_memory)


# pairs


@settings(deadline=None)
@given(TEXTS, st.sampled_from([0.3, 0.7, 0.8, 1.0]))
def test_no_pair_is_invented(texts: list[str], threshold: float) -> None:
    for i, j, similarity in confirmed_pairs(sketch(texts), threshold):
        assert i < j
        assert similarity == pytest.approx(jaccard(texts[i], texts[j]))
        assert similarity >= threshold


@settings(deadline=None)
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


@pytest.mark.parametrize("pairs", [1, 100, minhash.PAIRS])
def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch, pairs: int) -> None:
    rng = random.Random(8)
    lines = program(rng)
    texts = ["\n".join(edited(rng, lines, rng.randrange(4))) for _ in range(60)]
    expected = list(confirmed_pairs(sketch(texts), 0.7))
    assert len(expected) > 500
    monkeypatch.setattr(minhash, "PAIRS", pairs)
    monkeypatch.setattr(minhash, "COMPARED", pairs)
    assert list(confirmed_pairs(sketch(texts), 0.7)) == expected


def test_only_texts_that_were_added_are_found() -> None:
    index = Index(sketch(["f(x) + 1", "f(x) + 1", "g(y) * 2", "f(x) + 1"]))
    assert index.lone().tolist() == [False, False, True, False]

    def found(*texts: int) -> list[tuple[int, int, float]]:
        (pairs,) = [pairs for _, pairs in index.walk(np.array(texts), 0.5)]
        return list(zip(*(column.tolist() for column in pairs), strict=True))

    assert found(3) == []
    index.add(np.array([1]))
    assert found(3) == [(3, 1, 1.0)]
    index.add(np.array([0]))
    assert found(3) == [(3, 0, 1.0), (3, 1, 1.0)]
    assert found(2) == []


# groups


class Groups:
    def __init__(self, count: int) -> None:
        self.groups = np.arange(count)
        self.joined = 0

    def of(self, texts: np.ndarray) -> np.ndarray:
        return self.groups[texts]

    def join(self, one: int, other: int) -> None:
        groups = sorted((self.groups[one], self.groups[other]))
        self.groups[self.groups == groups[1]] = groups[0]
        self.joined += 1


@settings(deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([1, 50, minhash.PAIRS]))
def test_groups_are_what_pairs_connect(seed: int, pairs: int) -> None:
    rng = random.Random(seed)
    families = [program(rng, 12) for _ in range(4)]
    texts = ["\n".join(edited(rng, rng.choice(families), rng.randrange(5))) for _ in range(40)]
    expected = Groups(40)
    for i, j, _ in confirmed_pairs(sketch(texts), 0.7):
        expected.join(i, j)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(minhash, "PAIRS", pairs)
        groups = Groups(40)
        link(sketch(texts), 0.7, groups.of, groups.join)
    assert groups.groups.tolist() == expected.groups.tolist()


def compared(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts the pairs that are compared from now on."""
    counts: list[int] = []
    similarities = Sketches.similarities

    def counting(self: Sketches, ones: np.ndarray, others: np.ndarray) -> np.ndarray:
        counts.append(len(ones))
        return similarities(self, ones, others)

    monkeypatch.setattr(Sketches, "similarities", counting)
    return counts


def test_a_bucket_of_many_copies_does_not_cost_its_square(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minhash, "PAIRS", 2000)
    rng = random.Random(9)
    lines = program(rng)
    made = sketch("\n".join([*lines, f"x = {i}"]) for i in range(3000))
    counts = compared(monkeypatch)
    groups = Groups(3000)
    link(made, 0.8, groups.of, groups.join)
    assert groups.groups.max() == 0
    assert sum(counts) < 3000 * 16

    counts.clear()
    index = Index(made)
    for texts, pairs in index.walk(np.arange(3000), 0.8):
        assert set(pairs.ones.tolist()) == set(texts.tolist()) - {0}
        index.add(texts[texts == 0])
    assert sum(counts) < 3000 * (2 * 2000) ** 0.5
