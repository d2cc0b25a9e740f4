"""One run at a time writes an output folder, and the others say who it is."""

import fcntl
import json
import os
import socket
from pathlib import Path

import pytest
from recipe_for_tests import curate, data_line, make_recipe, start

from curate.engine.lock import Busy, hold


def test_of_runs_on_one_output_one_ends_well_and_the_others_name_it(tmp_path: Path) -> None:
    recipe = make_recipe(tmp_path)
    alone = curate("run", recipe, "--output", tmp_path / "alone")
    output = tmp_path / "together"
    runs = [start("run", recipe, "--output", output, "--workers", 1) for _ in range(3)]
    ended = [(run.communicate(), run.returncode, run.pid) for run in runs]
    won = [(said, pid) for said, code, pid in ended if code == 0]
    lost = [said[1] for said, code, _ in ended if code == 2]
    assert (len(won), len(lost)) == (1, 2), ended
    (said, pid), *_ = won
    assert data_line(said[0]) == data_line(alone.output)
    for words in lost:
        assert f"process {pid} on {socket.gethostname()}" in words
        assert "Traceback" not in words and len(words.strip().splitlines()) == 1


def test_a_lock_of_a_dead_process_is_none(tmp_path: Path) -> None:
    child = os.fork()
    if not child:
        with hold(tmp_path):
            os._exit(0)
    os.waitpid(child, 0)
    assert json.loads((tmp_path / "cache/lock").read_text())["pid"] == child
    with hold(tmp_path):
        assert json.loads((tmp_path / "cache/lock").read_text())["pid"] == os.getpid()


def test_processes_of_one_run_share_the_lock_and_a_whole_run_does_not(tmp_path: Path) -> None:
    with (
        hold(tmp_path, shared=True),
        hold(tmp_path, shared=True),
        pytest.raises(Busy, match=f"process {os.getpid()} on"),
        hold(tmp_path),
    ):
        pass
    with hold(tmp_path), pytest.raises(Busy), hold(tmp_path, shared=True):
        pass


def test_a_report_is_not_written_into_a_run(tmp_path: Path) -> None:
    recipe, output = make_recipe(tmp_path), tmp_path / "output"
    assert curate("run", recipe, "--output", output).exit_code == 0
    with (output / "cache/lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ran = curate("report", "--output", output)
    assert ran.exit_code == 2 and "is writing it" in ran.output


def test_what_dead_processes_have_left_is_swept(tmp_path: Path) -> None:
    recipe, output = make_recipe(tmp_path), tmp_path / "output"
    assert curate("run", recipe, "--output", output).exit_code == 0
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    step = next((output / "cache/steps").glob("split"))
    host = socket.gethostname()
    dead = [
        step / f"0.parquet.tmp-{host}-{child}",
        output / "cache/runs" / f"small.json.tmp-another-host-{child}",
        output / "cache/artifacts" / f".0123.tmp-{host}-{child}.abc12345",
    ]
    alive = step / f"0.parquet.tmp-{host}-{os.getpid()}"
    for path in (*dead[:2], alive):
        path.write_bytes(b"half")
    dead[2].mkdir()
    (dead[2] / "file").write_bytes(b"half")
    assert curate("run", recipe, "--output", output).exit_code == 0
    assert [path.exists() for path in (*dead, alive)] == [False, False, False, True]
