"""The data set in the repository: it loads, agrees with its run.json, and its rows are right."""

import json
import random
from pathlib import Path

from datasets import load_dataset

from curate.files import file_sha256
from curate.publish.check import publishable
from curate.verify import Candidate, Options

pytest_plugins = ["shared_judge"]

FOLDER = Path(__file__).parents[1] / "output/kernelbook_messages"
RUN = json.loads((FOLDER / "run.json").read_text())
CONFIGS = ("messages", "conversion", "pairs")


def rows(config, cache):
    splits = load_dataset(str(FOLDER), config, cache_dir=str(cache))
    return [row for split in splits.values() for row in split]


def test_files_are_those_of_the_run():
    paths = [path for path in publishable(RUN) if path != "run.json"]
    assert {path: file_sha256(FOLDER / path) for path in paths} == {
        p: RUN["files"][p] for p in paths
    }
    assert sum((FOLDER / path).stat().st_size for path in paths) <= 5 * 2**20


def test_the_card_is_read_in_minutes():
    words, fence = 0, ""
    for line in (FOLDER / "README.md").read_text().split("---", 2)[2].splitlines():
        marks = line[: len(line) - len(line.lstrip("`"))]
        if fence:
            fence = "" if line == fence else fence
        elif len(marks) >= 3:
            fence = marks
        else:
            words += len(line.split())
    assert 500 < words <= 1200


def test_it_loads_with_a_row_of_each_pair(tmp_path):
    found = {config: len(rows(config, tmp_path)) for config in CONFIGS}
    assert found["messages"] == found["conversion"] == found["pairs"] >= 300


def test_ten_rows_drawn_at_random_are_judged_as_before(tmp_path, warm_judge, monkeypatch):
    correct = [r for r in rows("pairs", tmp_path) if r["verdict"]["status"] == "correct"]
    drawn = random.SystemRandom().sample(correct, 10)
    candidates = [Candidate(row["id"], row["reference"], row["triton"]) for row in drawn]
    for slot in warm_judge.slots:
        slot.forget()
        monkeypatch.setattr(slot, "options", Options(backend="cpu", workers=1, draw_seed=0))
    found = {verdict.id: verdict.status for verdict in warm_judge.run(candidates)}
    assert found == {row["id"]: "correct" for row in drawn}
