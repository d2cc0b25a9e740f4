"""What is done of a shard that is not: an interrupted run goes on after it.

A shard that takes long has its results kept as they come, one a line, in a file that goes when the
shard is written. Failures are not kept, so that they are tried again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO

from curate.execute.protocol import Lost, Result
from curate.files import write_atomically
from curate.rows import Row


class Partial:
    """The results of one shard's rows, by their place in the shard.

    Args:
        path: of the file; it need not be there.
        code: digest of the step's code: results of other code are forgotten.
    """

    def __init__(self, path: Path, code: str) -> None:
        self.path, self.code = path, code
        self._file: IO[str] | None = None

    def read(self, rows: dict[int, Row]) -> dict[int, Result]:
        """Return the results that are there, of those among the rows that have one."""
        found: dict[int, Result] = {}
        if not self.path.exists():
            return found
        for number, line in enumerate(self.path.read_text(encoding="utf-8").splitlines()):
            try:
                known = json.loads(line)
            except ValueError:
                break  # the run was killed while it wrote this line
            if number == 0 and known != self.code:
                break
            if number and known["at"] in rows:
                lost = [Lost(rows[known["at"]], "dropped", *why) for why in known["dropped"]]
                found[known["at"]] = Result(known["kept"], lost, known["cpu_s"], known["peak_mb"])
        self.begin(found)
        return found

    def begin(self, known: dict[int, Result]) -> None:
        """Write the file anew, with what is known: a line that was cut short is left out."""
        lines = [json.dumps(self.code) + "\n", *(_line(at, known[at]) for at in known)]
        write_atomically(self.path, "".join(lines).encode())
        self._file = self.path.open("a", encoding="utf-8")

    @property
    def has_begun(self) -> bool:
        """Whether results are being kept."""
        return self._file is not None

    def add(self, at: int, result: Result) -> None:
        """Keep one more result, after `begin`."""
        assert self._file
        self._file.write(_line(at, result))
        self._file.flush()

    def remove(self) -> None:
        """Forget all of it: the shard is written."""
        if self._file:
            self._file.close()
        self.path.unlink(missing_ok=True)


def _line(at: int, result: Result) -> str:
    """Return the line of a result; a failure has none."""
    if any(lost.fate == "failed" for lost in result.lost):
        return ""
    line = {
        "at": at,
        "kept": result.kept,
        "dropped": [(lost.reason, lost.evidence) for lost in result.lost],
        "cpu_s": result.cpu_s,
        "peak_mb": result.peak_mb,
    }
    return json.dumps(line) + "\n"
