import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from reports import make, rows
from rich.console import Console

from curate.clean.dedupe import Dedupe
from curate.clean.normalize import Normalize
from curate.clean.split import Split
from curate.cli.console import diff_tables
from curate.cli.main import main
from curate.publish.analysis.errors import NoRun
from curate.publish.diff import diff


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("old"))


def test_a_run_does_not_differ_from_itself(old: Path, tmp_path: Path) -> None:
    found = diff(old, make(tmp_path))
    assert found.same_data
    assert not (found.counts or found.settings or found.configs)
    assert found.rows and found.rows.title() == "rows: no change"


def test_rows_added_removed_and_relabelled_are_named(tmp_path: Path) -> None:
    given = rows()
    changed = [dict(row) for row in given[1:]]
    changed[0]["verdict"] = {**changed[0]["verdict"], "status": "incorrect"}
    old, new = make(tmp_path / "a", given[:-5]), make(tmp_path / "b", changed)
    found = diff(old, new)
    assert found.rows and not found.same_data
    assert found.rows.removed == [given[0]["id"]]
    assert found.rows.relabelled["verdict"] == [changed[0]["id"]]
    assert given[9]["id"] in found.rows.added
    counts = {(c.step, c.name): (c.old, c.new) for c in found.counts}
    assert counts["dedupe", "dropped renamed_duplicate"] == (None, 1)
    assert counts["given", "rows out"] == (9, 13)


def test_options_and_steps_that_changed_are_named(old: Path, tmp_path: Path) -> None:
    steps = [Normalize(step="normalize"), Dedupe(step="dedupe", column="reference")]
    new = make(tmp_path, steps=[*steps, Split(step="split", test=0.5)])
    found = {(c.step, c.name): (c.old, c.new) for c in diff(old, new).settings}
    assert found["dedupe", "options.column"] == ("triton", "reference")
    assert found["split", "options.test"] == (0.3, 0.5)
    assert found["parse", "name"] == ("parse", None)
    assert ("normalize", "version") not in found


def test_the_text_tells_what_the_json_tells(old: Path, tmp_path: Path) -> None:
    found = diff(old, make(tmp_path, rows()[2:]))
    console = Console(width=160)
    with console.capture() as capture:
        console.print(diff_tables(found))
    text = capture.get()
    assert "2 removed" in text and "pairs" in text
    assert json.loads(json.dumps(found.to_json()))["rows"]["removed"] == found.rows.removed  # type: ignore[union-attr]


def test_the_commands_take_names_and_folders(tmp_path: Path) -> None:
    make(tmp_path, name="old")
    folder = make(tmp_path, rows()[1:], name="new")
    run = CliRunner().invoke(main, ["diff", "old", str(folder), "--output", str(tmp_path)])
    assert run.exit_code == 0 and "1 removed" in run.output
    told = CliRunner().invoke(main, ["diff", "old", "new", "--output", str(tmp_path), "--json"])
    assert len(json.loads(told.output)["rows"]["removed"]) == 1
    report = CliRunner().invoke(main, ["report", "--run", "old", "--output", str(tmp_path)])
    assert report.exit_code == 0 and Path(report.output.strip()).exists()


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoRun, match="holds no finished run"):
        diff(tmp_path, tmp_path)
    result = CliRunner().invoke(main, ["diff", "a", "b", "--output", str(tmp_path)])
    assert result.exit_code == 2 and "no finished run or data set 'a'" in result.output
