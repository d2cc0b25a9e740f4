"""What is done of a shard that is not: an interrupted run goes on after it.

A shard that takes long has its results kept as they come, one per line, in a file that goes when
the shard is written. Failures are not kept, so that they are tried again.
"""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any

from curate.engine.executor import Lost, Result
from curate.files import read_whole, sealed, unsealed, write_atomically, writing
from curate.rows import Loose


class Partial:
    """The results of one shard's rows, by their place in the shard.

    Args:
        path: of the file; it need not be there.
        code: digest of the step's code: results of other code are forgotten.

    Attributes:
        damaged: lines of the file that could not be read; one that was cut short by the end of
            a run is none.
    """

    def __init__(self, path: Path, code: str) -> None:
        self.path, self.code = path, code
        self.damaged = 0
        self._file: IO[bytes] | None = None

    def read(self, rows: dict[int, Loose]) -> dict[int, Result]:
        """Return the results that are there, of those among the rows that have one."""
        found: dict[int, Result] = {}
        if not self.path.exists():
            return found
        *lines, _ = read_whole(self.path).split(b"\n")  # the last is empty, or was cut short
        for number, line in enumerate(lines):
            try:
                known = unsealed(line)
                if number == 0 and known != {"code": self.code}:
                    return found
                if number and known["at"] in rows:
                    found[known["at"]] = _result(known, rows[known["at"]])
            except (ValueError, KeyError, TypeError):
                self.damaged += 1
                if number == 0:
                    return found  # whose results these are is not known
        return found

    def begin(self, known: dict[int, Result]) -> None:
        """Write the file anew, with what is known: a line that was cut short is left out."""
        first = sealed({"code": self.code}) + b"\n"
        write_atomically(self.path, first + b"".join(_line(at, known[at]) for at in known))
        with writing(self.path):
            self._file = self.path.open("ab")

    @property
    def has_begun(self) -> bool:
        """Whether results are being kept."""
        return self._file is not None

    def add(self, at: int, result: Result) -> None:
        """Keep one more result, after `begin`."""
        assert self._file
        with writing(self.path):
            self._file.write(_line(at, result))
            self._file.flush()

    def remove(self) -> None:
        """Forget all of it: the shard is written."""
        if self._file:
            self._file.close()
        self.path.unlink(missing_ok=True)


def _result(known: dict[str, Any], row: Loose) -> Result:
    lost = [Lost(row, "dropped", reason, evidence) for reason, evidence in known["dropped"]]
    return Result(known["kept"], lost, known["cpu_s"], known["peak_mb"])


def _line(at: int, result: Result) -> bytes:
    """Return the line of a result; a failure has none."""
    if any(lost.fate == "failed" for lost in result.lost):
        return b""
    line = {
        "at": at,
        "kept": result.kept,
        "dropped": [(lost.reason, lost.evidence) for lost in result.lost],
        "cpu_s": result.cpu_s,
        "peak_mb": result.peak_mb,
    }
    return sealed(line) + b"\n"
