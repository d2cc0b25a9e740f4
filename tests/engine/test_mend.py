"""Whatever of the cache is damaged is named and made again, and the data stay the same."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from recipe_for_tests import curate, data_line, make_recipe

from curate.formats.dataset.write import data_sha256


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str]:
    """A recipe, the output of its run, and the data's hash."""
    folder = tmp_path_factory.mktemp("whole")
    recipe, output = make_recipe(folder), folder / "output"
    ran = curate("run", recipe, "--output", output)
    assert ran.exit_code == 0, ran.output
    return recipe, output, data_line(ran.output)


def copied(output: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(output, tmp_path / "output"))


def one(output: Path, pattern: str) -> Path:
    return sorted((output / "cache").glob(pattern))[0]


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def gone(path: Path) -> None:
    path.unlink()


def add_field(path: Path) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), "foreign": 1}))


def lower_a_count(path: Path) -> None:
    text = path.read_text()
    assert '"emitted": 2' in text
    path.write_text(text.replace('"emitted": 2', '"emitted": 3'))


def check_healed(recipe: Path, output: Path, sha256: str, damaged: Path) -> None:
    ran = curate("run", recipe, "--output", output)
    assert ran.exit_code == 0, ran.output
    assert data_line(ran.output) == sha256
    flat = "".join(ran.output.split())
    assert str(damaged) in flat and "madeagain" in flat
    known = json.loads((output / "small/run.json").read_bytes())
    assert data_sha256(known) == sha256
    again = curate("run", recipe, "--output", output)
    assert again.exit_code == 0 and "made again" not in again.output


@pytest.mark.parametrize("harm", [flip, gone])
@pytest.mark.parametrize("what", ["split/*[0-9a-f].parquet", "closure/*[0-9a-f].parquet"])
def test_a_shard_that_is_read_is_compared_with_its_hash(
    whole: tuple[Path, Path, str], tmp_path: Path, harm: Callable[[Path], None], what: str
) -> None:
    recipe, pristine, sha256 = whole
    output = copied(pristine, tmp_path)
    shard = next(p for p in sorted(output.glob(f"cache/steps/{what}")) if "lost" not in p.name)
    harm(shard)
    shutil.rmtree(output / "small")
    if what.startswith("closure"):
        for later in ("licenses", "dedupe", "split"):
            shutil.rmtree(output / "cache/steps" / later)
    check_healed(recipe, output, sha256, shard)


@pytest.mark.parametrize(
    ("step", "harm"),
    [
        *(("kernels", harm) for harm in (flip, cut, empty, add_field, lower_a_count)),
        ("local", flip),
        ("split", flip),
    ],
)
def test_a_manifest_that_is_damaged_counts_as_none(
    whole: tuple[Path, Path, str], tmp_path: Path, harm: Callable[[Path], None], step: str
) -> None:
    recipe, pristine, sha256 = whole
    output = copied(pristine, tmp_path)
    steps = sorted((output / "cache/steps" / step).glob("*.json"))
    manifest = next(p for p in steps if p.name.count(".") == 1)
    harm(manifest)
    check_healed(recipe, output, sha256, manifest)


@pytest.mark.parametrize("harm", [flip, cut, empty])
def test_a_unit_that_is_damaged_is_read_again(
    whole: tuple[Path, Path, str], tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    recipe, pristine, sha256 = whole
    output = copied(pristine, tmp_path)
    unit = one(output, "steps/local/*.unit.json")
    harm(unit)
    check_healed(recipe, output, sha256, unit)


def test_a_unit_whose_shard_has_no_manifest_is_read_again(
    whole: tuple[Path, Path, str], tmp_path: Path
) -> None:
    recipe, pristine, sha256 = whole
    output = copied(pristine, tmp_path)
    for manifest in (output / "cache/steps/local").glob("*.json"):
        if manifest.name.count(".") == 1:
            manifest.unlink()
    ran = curate("run", recipe, "--output", output)
    assert (ran.exit_code, data_line(ran.output)) == (0, sha256)


@pytest.mark.parametrize("harm", [flip, cut, empty, gone])
def test_a_summary_that_is_damaged_is_made_again(
    whole: tuple[Path, Path, str], tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    recipe, pristine, sha256 = whole
    output = copied(pristine, tmp_path)
    summary = one(output, "steps/dedupe/*.summary.arrow")
    harm(summary)
    for manifest in (output / "cache/steps/dedupe").glob("*.json"):
        if manifest.name.count(".") == 1:
            manifest.unlink()
    check_healed(recipe, output, sha256, summary)


@pytest.mark.parametrize("harm", [flip, gone])
@pytest.mark.parametrize("what", ["double.py", "LICENSE"])
def test_an_unpacked_file_that_is_damaged_is_unpacked_again(
    whole: tuple[Path, Path, str], tmp_path: Path, harm: Callable[[Path], None], what: str
) -> None:
    recipe, pristine, sha256 = whole
    output = copied(pristine, tmp_path)
    file = one(output, f"artifacts/*/files/{what}")
    harm(file)
    for step in ("licenses", "local"):  # which read it, in workers of their own
        shutil.rmtree(output / "cache/steps" / step)
    check_healed(recipe, output, sha256, file)


@pytest.mark.parametrize("harm", [flip, gone])
def test_an_artifact_is_made_again_though_its_rows_are_there(
    whole: tuple[Path, Path, str], tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    recipe, pristine, sha256 = whole
    output = copied(pristine, tmp_path)
    index = one(output, "artifacts/*/index.json")
    harm(index)
    shutil.rmtree(output / "cache/steps/licenses")
    ran = curate("run", recipe, "--output", output)
    assert (ran.exit_code, data_line(ran.output)) == (0, sha256), ran.output
    assert str(index.parent) in "".join(ran.output.split())


@pytest.mark.parametrize("harm", [flip, cut, gone])
def test_a_license_text_that_is_damaged_is_saved_again(
    whole: tuple[Path, Path, str], tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    recipe, pristine, sha256 = whole
    output = copied(pristine, tmp_path)
    text = one(output, "texts/*.txt")
    harm(text)
    shutil.rmtree(output / "small")
    check_healed(recipe, output, sha256, text)
    shipped = output / "small/licenses" / text.name
    assert shipped.read_bytes() == (pristine / "small/licenses" / text.name).read_bytes()


@pytest.mark.parametrize("what", ["runs/small.json", "steps/split/*.json"])
@pytest.mark.parametrize(
    "command", [("why", "0"), ("show",), ("lost", "dedupe"), ("report",), ("plan", "RECIPE")]
)
def test_commands_that_only_read_name_the_file_and_the_remedy(
    whole: tuple[Path, Path, str], tmp_path: Path, what: str, command: tuple[str, ...]
) -> None:
    recipe, pristine, _ = whole
    output = copied(pristine, tmp_path)
    names = sorted((output / "cache").glob(what))
    file = next(p for p in names if p.name.count(".") == 1)
    empty(file)
    if command[0] == "lost":
        command = ("lost", "split")
    words = [recipe if word == "RECIPE" else word for word in command]
    ran = curate(*words, "--output", output)
    assert ran.exit_code == 2, ran.output
    assert str(file) in ran.output and "curate run RECIPE" in ran.output


def test_a_file_that_is_damaged_again_ends_the_run(
    whole: tuple[Path, Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, pristine, _ = whole
    output = copied(pristine, tmp_path)
    for manifest in (output / "cache/steps/split").glob("*[0-9a-f].json"):
        manifest.unlink()
    monkeypatch.setattr("curate.engine.store.sealed", lambda value: b"{}")
    ran = curate("run", recipe, "--output", output)
    assert ran.exit_code == 1
    assert "although it was made again" in ran.output
