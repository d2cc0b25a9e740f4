"""Whatever ends a process that writes a journal, the lines in it stay whole, and one writes it."""

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from curate.files import CannotWrite
from curate.journal import Journal, Locked, NotAJournal, json_line, whole_lines

START = b'{"number": '
LINES = [json_line({"number": number, "text": "é\n\u2028" * 3}) for number in range(3)]


def forked(work: Callable[[], object]) -> int:
    """Do some work in a process of its own, and return how that ended."""
    child = os.fork()
    if not child:
        try:
            work()
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1]


def numbers(path: Path) -> list[int]:
    return [json.loads(line)["number"] for line in whole_lines(path, START)]


@pytest.mark.parametrize("durable", [True, False])
def test_what_is_appended_is_read(durable: bool, tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.jsonl"
    with Journal(path, START, durable=durable) as journal:
        journal.append(LINES[0])
        assert path.read_bytes() == LINES[0], "a line is there when append returns"
        journal.append(*LINES[1:])
        journal.append()
    assert path.read_bytes() == b"".join(LINES)
    assert whole_lines(path, START) == [line[:-1] for line in LINES]
    with Journal(path, START) as journal:
        journal.append(LINES[0])
    assert numbers(path) == [0, 1, 2, 0]


def test_a_line_torn_anywhere_is_passed_over_and_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    for end in range(len(LINES[1])):
        path.write_bytes(LINES[0] + LINES[1][:end])
        assert numbers(path) == [0]
        assert path.stat().st_size == len(LINES[0]) + end, "who reads changes nothing"
        with Journal(path, START) as journal:
            assert path.read_bytes() == LINES[0]
            journal.append(LINES[1])
        assert path.read_bytes() == LINES[0] + LINES[1]


@pytest.mark.parametrize("end", [b"notes", b'{"name', b"\xff\x00"])
def test_another_end_is_left_alone(end: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(LINES[0] + end)
    with pytest.raises(NotAJournal):
        Journal(path, START)
    with pytest.raises(NotAJournal):
        whole_lines(path, START)
    assert path.read_bytes() == LINES[0] + end


def test_lines_that_do_not_belong_together_are_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"".join(LINES))
    with Journal(path, START) as journal:
        journal.cut(whole_lines(path)[:1])
        journal.append(LINES[2])
    assert numbers(path) == [0, 2]


def test_a_kill_in_the_middle_of_a_line_costs_that_line_only(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    limit = len(LINES[0]) + 20

    def write() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        with Journal(path, START) as journal:
            journal.append(LINES[0])
            journal.append(LINES[1])  # the system takes 20 bytes, and then kills

    assert os.WTERMSIG(forked(write)) == signal.SIGXFSZ
    assert path.read_bytes() == LINES[0] + LINES[1][:20]
    with Journal(path, START) as journal:
        journal.append(LINES[2])
    assert numbers(path) == [0, 2]


def test_a_full_disk_is_said_and_costs_the_last_line_only(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"

    def write() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        with Journal(path, START) as journal:
            for line in LINES * 9:
                try:
                    journal.append(line)
                except CannotWrite as error:
                    os._exit(2 if "a.jsonl: cannot be written" in str(error) else 3)

    assert os.waitstatus_to_exitcode(forked(write)) == 2
    assert path.stat().st_size == 100 and numbers(path) == [0]


WRITER = """
import sys
from pathlib import Path
from curate.journal import Journal, json_line
with Journal(Path(sys.argv[1]), b'{"number": ') as journal:
    for number in range(10**9):
        journal.append(json_line({"number": number, "text": "x" * 10**6}))
        print(number, flush=True)
"""


def test_killed_at_any_moment_no_line_that_was_appended_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    for appended in (1, 2, 7):
        path.unlink(missing_ok=True)
        command = [sys.executable, "-c", WRITER, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout
            for _ in range(appended):
                writer.stdout.readline()
            with pytest.raises(Locked) as caught:
                Journal(path, START)
            writer.kill()
        assert f"process {writer.pid} (`{sys.executable} -c" in str(caught.value)
        found = numbers(path)
        assert found == [*range(len(found))] and len(found) >= appended
        with Journal(path, START) as journal:
            journal.append(LINES[0])
        assert numbers(path) == [*found, 0]


def test_one_writes_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with Journal(path, START) as journal:
        journal.append(LINES[0])
        with pytest.raises(Locked, match=rf"a\.jsonl: process {os.getpid()} .* is writing it"):
            Journal(path, START)
        with pytest.raises(Locked):
            Journal(path, START, shared=True)
        journal.append(LINES[1])
    with Journal(path, shared=True), Journal(path, shared=True), pytest.raises(Locked):
        Journal(path, START)
    assert numbers(path) == [0, 1]


def test_a_file_that_is_refused_is_not_held(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    journal = Journal(path, START)
    with pytest.raises(ValueError, match="refused"), journal.closed_on_error():
        raise ValueError("refused")
    Journal(path, START).close()


def test_a_folder_is_no_journal(tmp_path: Path) -> None:
    with pytest.raises(CannotWrite, match="directory"):
        Journal(tmp_path)


def test_a_line_is_strict_json() -> None:
    with pytest.raises(ValueError, match="JSON"):
        json_line({"number": float("nan")})
