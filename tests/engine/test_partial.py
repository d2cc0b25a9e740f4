"""The part of a shard that an interrupted run left is checked like a worker's results."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from run_for_tests import walk
from steps_for_tests import Act, Double, Numbers

from curate.engine.identity import code_digest
from curate.engine.run import Progress, Walk
from curate.files import sealed
from curate.formats.dataset.write import data_sha256, write_dataset

COUNT = 10


class Heard(Progress):
    """Keeps what is warned of."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, message: str) -> None:
        self.warnings.append(message)


def small(output: Path) -> Walk:
    made = walk(output, sources=[Numbers(count=COUNT)], steps=[Act(), Double()])
    made.progress = Heard()
    return made


def first_line() -> bytes:
    return sealed({"code": code_digest(Double)})


def line(row: dict[str, Any], **changes: Any) -> bytes:
    known = {"at": 0, "kept": [row], "dropped": [], "cpu_s": 0.0, "peak_mb": 0}
    return sealed({**known, **changes})


def half_flipped(row: dict[str, Any]) -> bytes:
    return line(row).replace(b"number 0", b"number 1")


LINES = {
    "no field": lambda row: b"{}",
    "a list": lambda row: b"[1, 2]",
    "no JSON": lambda row: b'{"at": 0',
    "no UTF-8": lambda row: b"\xff\xfe",
    "no seal": lambda row: json.dumps({"at": 0, "kept": [], "dropped": []}).encode(),
    "nothing kept and nothing dropped": lambda row: line(row, kept=[]),
    "both kept and dropped": lambda row: line(row, dropped=[["why", {}]]),
    "dropped twice": lambda row: line(row, kept=[], dropped=[["a", {}], ["b", {}]]),
    "no row": lambda row: line(row, kept=[{"id": 1, "colour": "red"}]),
    "a changed text": half_flipped,
}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The hash of what a run gives that nothing stopped."""
    whole = small(tmp_path_factory.mktemp("whole"))
    return data_sha256(write_dataset(whole, whole.run()))


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of a run that has not come to its last step."""
    output = tmp_path_factory.mktemp("stopped")
    small(output).run(until="act")
    return output


@pytest.mark.parametrize("what", LINES)
def test_a_line_that_no_worker_could_have_given_is_done_again(
    tmp_path: Path, expected: str, stopped: Path, what: str
) -> None:
    cut = small(shutil.copytree(stopped, tmp_path / "cut"))
    (shard,) = cut.known_shards(cut.stages()[0], [])
    (source,) = cut.known_shards(cut.stages()[1], [shard])
    (target,) = cut.known_shards(cut.stages()[2], [source])
    row = cut.store.rows(source.step, source.key).to_pylist()[0]
    path = cut.store.partial_path("double", target.key)
    path.parent.mkdir(parents=True)
    path.write_bytes(first_line() + b"\n" + LINES[what](row) + b"\n")
    stages = cut.run()
    assert stages[-1].total("emitted") == 2 * COUNT
    assert data_sha256(write_dataset(cut, stages)) == expected
    assert isinstance(cut.progress, Heard)
    assert [str(path) in warning for warning in cut.progress.warnings] == [True]


def test_a_line_that_was_cut_short_is_no_damage(tmp_path: Path, stopped: Path) -> None:
    cut = small(shutil.copytree(stopped, tmp_path / "cut"))
    (shard,) = cut.known_shards(cut.stages()[0], [])
    (source,) = cut.known_shards(cut.stages()[1], [shard])
    (target,) = cut.known_shards(cut.stages()[2], [source])
    row = cut.store.rows(source.step, source.key).to_pylist()[0]
    path = cut.store.partial_path("double", target.key)
    path.parent.mkdir(parents=True)
    path.write_bytes(first_line() + b"\n" + line(row)[:-9])
    assert cut.run()[-1].total("emitted") == 2 * COUNT
    assert isinstance(cut.progress, Heard) and cut.progress.warnings == []
