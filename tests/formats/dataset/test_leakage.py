import random
from typing import Any

import pyarrow as pa
import pytest

from curate.formats.dataset.leakage import THRESHOLD, Leakage, jaccard, report

Given = tuple[str, set[str]]
"""A row's split and its words."""


def labelled(rows: list[Given]) -> list[dict[str, Any]]:
    """Return the labels of rows whose ids are their numbers, in their order."""
    leakage = Leakage(has_prompt=False)
    for number, (split, words) in enumerate(rows):
        leakage.add(split, str(number), "", " ".join(sorted(words)))
    found = [row for table in leakage.labels().values() for row in table.to_pylist()]
    return sorted(found, key=lambda row: int(row["id"]))


def by_comparing_all(rows: list[Given]) -> list[float]:
    """Return each row's greatest similarity to a row of another split, or 0 below the threshold."""
    nearest = [
        max((jaccard(words, others) for elsewhere, others in rows if elsewhere != split), default=0)
        for split, words in rows
    ]
    return [value if value >= THRESHOLD else 0 for value in nearest]


def drawn_rows(seed: int, count: int, vocabulary: int, splits: tuple[str, ...]) -> list[Given]:
    """Return rows of which many are edited copies of others; some are of few words, or none."""
    draw = random.Random(seed)
    words = [f"w{n}" for n in range(vocabulary)]
    rows: list[Given] = []
    for _ in range(count):
        size = draw.choice([0, 1, 2, 3, 5, 10, 20, 40])
        chosen = set(draw.choices(words, k=size))
        if rows and draw.random() < 0.7:
            chosen = set(draw.choice(rows)[1])
            for _ in range(draw.randrange(1 + len(chosen) // 3)):
                chosen.discard(draw.choice(sorted(chosen)))
                chosen.add(draw.choice(words))
        rows.append((draw.choice(splits), chosen))
    return rows


@pytest.mark.parametrize("vocabulary", [8, 60, 1000])
@pytest.mark.parametrize("splits", [("train",) * 8 + ("validation", "test"), ("test", "train")])
def test_every_row_finds_its_nearest_in_another_split(
    vocabulary: int, splits: tuple[str, ...]
) -> None:
    noted = 0
    for seed in range(5):
        rows = drawn_rows(seed, 200, vocabulary, splits)
        labels, truth = labelled(rows), by_comparing_all(rows)
        assert [x["split_overlap"] or 0 for x in labels] == pytest.approx(truth, rel=1e-6)
        for (split, words), label in zip(rows, labels, strict=True):
            if label["split_overlap"] is None:
                assert label["split_overlap_id"] is None
                continue
            noted += 1
            elsewhere, others = rows[int(label["split_overlap_id"])]
            assert elsewhere != split
            assert jaccard(words, others) == pytest.approx(label["split_overlap"], rel=1e-6)
    assert noted > 50


@pytest.mark.parametrize("common", [*range(1, 12), 28, 64, 100, 1000])
def test_the_threshold_itself_is_found(common: int) -> None:
    """Of 5 `common` words, both rows have 4 `common`; then of one word more."""
    shared = {f"s{n}" for n in range(4 * common)}
    fewer = {f"f{n}" for n in range(common)}
    at = labelled([("train", shared), ("test", shared | fewer)])
    assert [x["split_overlap"] for x in at] == pytest.approx([0.8, 0.8])
    below = labelled([("train", shared), ("test", shared | fewer | {"one"})])
    assert [x["split_overlap"] for x in below] == [None, None]


def test_rows_of_one_split_do_not_count() -> None:
    words = {"a", "b", "c"}
    assert [x["split_overlap"] for x in labelled([("train", words)] * 3)] == [None] * 3
    labels = labelled([("train", words), ("train", words), ("test", words)])
    assert [x["split_overlap_id"] for x in labels] == ["2", "2", "0"]


def test_rows_without_words_are_not_alike() -> None:
    assert [x["split_overlap"] for x in labelled([("train", set()), ("test", set())])] == [None] * 2


def test_the_order_and_number_of_words_do_not_count() -> None:
    leakage = Leakage(has_prompt=True)
    leakage.add("train", "a", "def f(x): return x", "")
    leakage.add("test", "b", "", "return x + x; def f")
    test = leakage.labels()["test"]
    assert test["split_overlap"].to_pylist() == [1.0]


def prompts(*texts: tuple[str, str]) -> pa.Table:
    leakage = Leakage(has_prompt=True)
    for number, (prompt, completion) in enumerate(texts):
        leakage.add("train", str(number), prompt, completion)
    return leakage.labels()["train"]


def test_a_prompt_that_gives_its_completion_away_is_marked() -> None:
    labels = prompts(("a b c d", "a, b, c, d"), ("a b c d", "a b c d e"), ("a b", "b c"), ("", ""))
    assert labels["prompt_overlap"].to_pylist() == pytest.approx([1, 0.8, 1 / 3, 0])
    assert report(labels) == {
        "rows": 4,
        "prompt_overlap": {"rows": 2, "ids": ["0", "1"]},
        "split_overlap": {"rows": 0, "ids": []},
    }


def test_a_view_without_prompts_has_no_such_label() -> None:
    leakage = Leakage(has_prompt=False)
    leakage.add("train", "a", "", "x = 1")
    labels = leakage.labels()["train"]
    assert labels.column_names == ["id", "split_overlap", "split_overlap_id"]
    assert set(report(labels)) == {"rows", "split_overlap"}


def test_a_report_names_a_few() -> None:
    labels = prompts(*[("a", "a")] * 20)
    assert report(labels)["prompt_overlap"] == {"rows": 20, "ids": ["0", "1", "2", "3", "4"]}
