"""A data set replaces the one before it whole, and keeps what the user put there."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from run_for_tests import walk
from steps_for_tests import Act, Double

from curate.engine.run import Progress, Walk
from curate.files import Damaged, sealed
from curate.formats.dataset.replace import InTheWay, new_folder, recover
from curate.formats.dataset.write import data_sha256, read_run, write_dataset


class Heard(Progress):
    """Keeps what is warned of."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, message: str) -> None:
        self.warnings.append(message)


def other(output: Path) -> Walk:
    return walk(output, steps=[Act(), Double(word="other")])


def write(made: Walk) -> str:
    return data_sha256(write_dataset(made, made.run()))


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that holds the shards of both walks, so that a test only writes them."""
    output = tmp_path_factory.mktemp("shards")
    for made in (walk(output), other(output)):
        made.run()
    return output / "cache"


@pytest.fixture
def output(tmp_path: Path, shards: Path) -> Path:
    """A folder with that cache and no data set."""
    shutil.copytree(shards, tmp_path / "cache")
    return tmp_path


def test_a_finished_file_that_was_changed_is_written_again(output: Path) -> None:
    first = walk(output)
    expected = write(first)
    file = next((first.folder / "pairs").iterdir())
    whole = file.read_bytes()
    for bad in (whole[:-1], whole + b"x", b""):
        file.write_bytes(bad)
        again = walk(output)
        again.progress = heard = Heard()
        assert write(again) == expected
        assert file.read_bytes() == whole
        assert len(heard.warnings) == 1 and str(file) in heard.warnings[0]


@pytest.mark.parametrize("text", ["", "{}", '{"files": {}}'])
def test_a_run_json_that_was_changed_is_written_again(output: Path, text: str) -> None:
    first = walk(output)
    expected = write(first)
    (first.folder / "run.json").write_text(text)
    with pytest.raises(Damaged, match=r"run\.json"):
        read_run(first.folder)
    assert write(walk(output)) == expected


def test_what_a_user_put_into_the_folder_stays(output: Path) -> None:
    first = walk(output)
    write(first)
    (first.folder / "MYNOTES.md").write_text("mine")
    (first.folder / "pairs/more").mkdir()
    (first.folder / "pairs/more/a.txt").write_text("mine too")
    (first.folder / "link").symlink_to(output / "cache", target_is_directory=True)
    second = other(output)
    write(second)
    assert (first.folder / "MYNOTES.md").read_text() == "mine"
    assert (first.folder / "pairs/more/a.txt").read_text() == "mine too"
    assert (first.folder / "link").is_symlink() and (output / "cache/steps").is_dir()
    files = {p.relative_to(first.folder).as_posix() for p in first.folder.rglob("*.parquet")}
    assert files - {p for p in files if p.startswith("link/")} == {
        path for path in read_run(first.folder)["files"] if path.endswith(".parquet")
    }


class Killed(BaseException):
    """Stands for a process that ends where it is."""


@pytest.mark.parametrize("after", [0, 1])
def test_cut_short_between_renames_the_next_run_mends_it(
    output: Path, shards: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    first = walk(output)
    before = write(first)
    (first.folder / "MYNOTES.md").write_text("mine")
    expected = write(other(shards.parent))
    rename, done = Path.rename, []

    def cut(self: Path, target: Path) -> Path:
        if self.parent == output:
            if len(done) == after:
                raise Killed
            done.append(self)
        return rename(self, target)

    second = other(output)
    stages = second.run()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", cut)
        with pytest.raises(Killed):
            write_dataset(second, stages)
    recover(first.folder)
    assert data_sha256(read_run(first.folder)) == before, "the old one is whole until then"
    assert write(other(output)) == expected
    assert (first.folder / "MYNOTES.md").read_text() == "mine"
    assert not [path for path in output.iterdir() if path.name.startswith(".small")]


def test_cut_short_while_the_old_one_is_removed_nothing_is_lost(
    output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = walk(output)
    write(first)
    (first.folder / "MYNOTES.md").write_text("mine")

    def cut(path: Path) -> None:
        (path / "pairs").rename(path / "gone")
        raise Killed

    second = other(output)
    stages = second.run()
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", cut)
        with pytest.raises(Killed):
            write_dataset(second, stages)
    run = read_run(first.folder)
    assert all((first.folder / path).exists() for path in run["files"])
    write(other(output))
    assert (first.folder / "MYNOTES.md").read_text() == "mine"


def test_what_describes_a_data_set_is_in_it_before_it_has_its_name(output: Path) -> None:
    made = walk(output)
    seen = []

    def describe(folder: Path) -> None:
        seen.append((folder, made.folder.exists()))
        (folder / "report.html").write_text("report")

    write_dataset(made, made.run(), describe)
    assert seen == [(new_folder(made.folder), False)]
    assert (made.folder / "report.html").exists()


def test_a_description_that_cannot_be_written_leaves_the_old_data_set(output: Path) -> None:
    first = walk(output)
    before = write(first)

    def full(folder: Path) -> None:
        raise OSError(28, "No space left on device")

    second = other(output)
    with pytest.raises(OSError, match="make room"):
        write_dataset(second, second.run(), full)
    assert data_sha256(read_run(first.folder)) == before
    assert not new_folder(first.folder).exists()


@pytest.mark.parametrize("what", ["a link", "a file"])
def test_something_else_in_the_place_of_the_folder_is_refused(output: Path, what: str) -> None:
    made = walk(output)
    stages = made.run()
    (output / "real").mkdir()
    if what == "a link":
        made.folder.symlink_to(output / "real", target_is_directory=True)
    else:
        made.folder.write_text("mine")
    with pytest.raises(InTheWay, match=what):
        write_dataset(made, stages)
    assert list((output / "real").iterdir()) == []


def test_a_folder_that_no_run_wrote_is_left_alone(output: Path) -> None:
    """A user's own folder of the recipe's name, with --output beside it."""
    made = walk(output)
    stages = made.run()
    made.folder.mkdir()
    (made.folder / "model.py").write_text("mine")
    with pytest.raises(InTheWay, match="no run wrote it"):
        write_dataset(made, stages)
    assert (made.folder / "model.py").read_text() == "mine"
    (made.folder / "model.py").unlink()
    write_dataset(made, stages)  # an empty one is nobody's


def test_files_whose_owner_is_unknown_are_kept_aside(output: Path) -> None:
    first = walk(output)
    write(first)
    (first.folder / "MYNOTES.md").write_text("mine")
    (first.folder / "run.json").write_text("")
    write(other(output))
    assert (output / "small.kept/MYNOTES.md").read_text() == "mine"
    assert read_run(first.folder)["files"].keys() >= {"index.parquet", "README.md"}


def test_other_rows_under_the_same_keys_are_written(output: Path) -> None:
    """As code gives them that has changed without a new version."""
    expected, one, two = write(walk(output)), walk(output).run()[-1], other(output).run()[-1]
    steps = output / f"cache/steps/{one.step.name}"
    for old, new in zip(one.manifests, two.manifests, strict=True):
        (steps / f"{old.key}.parquet").write_bytes((steps / f"{new.key}.parquet").read_bytes())
        (steps / f"{old.key}.json").write_bytes(sealed(vars(replace(new, key=old.key))))
    assert write(walk(output)) != expected
