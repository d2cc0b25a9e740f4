"""Results of an unfinished shard: an interrupted run goes on after them.

A shard that takes long has its results kept as they come, one per line, in a file that goes when
the shard is written. Failures are not kept, so that they are tried again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from curate.engine.executor import Lost, Result
from curate.files import losing, sealed, unsealed, write_atomically
from curate.journal import Journal, whole_lines
from curate.rows import Loose


class Partial:
    """The results of one shard's rows, by their place in the shard.

    Args:
        path: of the file; it need not be there.
        code: digest of the step's code: results of other code are forgotten.

    Attributes:
        damaged: lines of the file that could not be read; a torn last line does not count.
    """

    def __init__(self, path: Path, code: str) -> None:
        self.path, self.code = path, code
        self.damaged = 0
        self._journal: Journal | None = None

    def read(self, rows: dict[int, Loose]) -> dict[int, Result]:
        """Return the results that are there, of those among the rows that have one."""
        found: dict[int, Result] = {}
        if not self.path.exists():
            return found
        with losing(self.path):
            lines = whole_lines(self.path)
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
        """Write the file anew, with what is known; a torn line is left out."""
        first = sealed({"code": self.code}) + b"\n"
        write_atomically(self.path, first + b"".join(_line(at, known[at]) for at in known))
        self._journal = Journal(self.path)

    @property
    def has_begun(self) -> bool:
        """Whether results are being kept."""
        return self._journal is not None

    def add(self, at: int, result: Result) -> None:
        """Keep one more result, after `begin`."""
        assert self._journal
        self._journal.append(_line(at, result))

    def remove(self) -> None:
        """Forget all of it: the shard is written."""
        if self._journal:
            self._journal.close()
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
