"""Shows how far an evaluation is."""

from __future__ import annotations

from curate.evaluate.evaluate import Watcher
from curate.terminal.progress import ProgressLine
from curate.verify import Tally


class LiveEvaluation(Watcher, ProgressLine):
    """Shows on stderr how many answers there are, and how many are judged."""

    def sampling(self, label: str, done: int, total: int) -> None:
        self.show(f"{label}: {done}/{total} answers", done == total)

    def judging(self, label: str, tally: Tally) -> None:
        self.show_tally(tally, f"{label}: judged ")
