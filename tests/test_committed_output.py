"""The data sets in the repository: they load, agree with their run.json, and rows are right."""

import json
import random
from dataclasses import dataclass
from pathlib import Path

import pytest
from datasets import load_dataset

from curate.files import file_sha256
from curate.publish.check import publishable
from curate.verify import Candidate, Options

pytest_plugins = ["shared_judge"]

OUTPUT = Path(__file__).parents[1] / "output"


@dataclass(frozen=True)
class Committed:
    """A data set of the repository: its folder, configs with the least rows of each, its size."""

    name: str
    configs: dict[str, int]
    megabytes: int  # at most
    words: int  # of the card, at most

    @property
    def folder(self):
        return OUTPUT / self.name

    def run(self):
        return json.loads((self.folder / "run.json").read_text())

    def rows(self, config, cache):
        splits = load_dataset(str(self.folder), config, cache_dir=str(cache))
        return [row for split in splits.values() for row in split]


def of_pairs(count):
    return dict.fromkeys(("messages", "conversion", "pairs"), count)


SMALL = Committed("kernelbook_messages", of_pairs(300), 5, 1200)
LARGE = Committed("kernelbook_large", of_pairs(3000), 60, 1350)
KERNELS = Committed("triton_fim", {"kernels": 3900, "fim": 30_000}, 40, 1200)
each = pytest.mark.parametrize("committed", [SMALL, LARGE, KERNELS], ids=lambda one: one.name)


@each
def test_files_are_those_of_the_run(committed):
    run = committed.run()
    paths = [path for path in publishable(run) if path != "run.json"]
    assert {path: file_sha256(committed.folder / path) for path in paths} == {
        p: run["files"][p] for p in paths
    }
    size = sum((committed.folder / path).stat().st_size for path in paths)
    assert size <= committed.megabytes * 2**20


@each
def test_the_card_is_read_in_minutes(committed):
    words, fence = 0, ""
    for line in (committed.folder / "README.md").read_text().split("---", 2)[2].splitlines():
        marks = line[: len(line) - len(line.lstrip("`"))]
        if fence:
            fence = "" if line == fence else fence
        elif len(marks) >= 3:
            fence = marks
        else:
            words += len(line.split())
    assert 500 < words <= committed.words


@each
def test_it_loads_with_all_rows(committed, tmp_path):
    found = {config: len(committed.rows(config, tmp_path)) for config in committed.configs}
    assert all(found[config] >= least for config, least in committed.configs.items()), found
    if committed is not KERNELS:
        assert len({*found.values()}) == 1, found


@pytest.mark.parametrize(
    ("committed", "count"),
    [
        pytest.param(SMALL, 10, id=SMALL.name),
        pytest.param(
            LARGE, 50, id=LARGE.name, marks=[pytest.mark.weekly, pytest.mark.timeout(1200)]
        ),
    ],
)
def test_rows_drawn_at_random_are_judged_as_before(
    committed, count, tmp_path, warm_judge, monkeypatch
):
    correct = [r for r in committed.rows("pairs", tmp_path) if r["verdict"]["status"] == "correct"]
    drawn = random.SystemRandom().sample(correct, count)
    candidates = [Candidate(row["id"], row["reference"], row["triton"]) for row in drawn]
    for slot in warm_judge.slots:
        slot.forget()
        monkeypatch.setattr(slot, "options", Options(backend="cpu", workers=1, draw_seed=0))
    found = {verdict.id: verdict.status for verdict in warm_judge.run(candidates)}
    assert found == {row["id"]: "correct" for row in drawn}
