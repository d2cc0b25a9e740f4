"""The folder of an evaluation: what its models have in common, and their answers.

=========================  =====================================================================
``settings.json``          what all its models have in common, and the models, in their order
``<label>/samples.jsonl``  a model's answers, one line per answer, appended as they come
``<label>/verdicts.jsonl`` what the judge says of the programs in them, likewise
``results.json``           everything that follows from these, for all models in the folder
``results.md``             the same as tables, and ``results.svg`` as a plot
=========================  =====================================================================
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from curate.evaluate.problems import Problem
from curate.files import InputError, write_atomically
from curate.formats.prompts.question import conversation
from curate.generate.sampling import Sample, Sampling
from curate.journal import json_line, open_journal, whole_lines
from curate.teacher.program import program_of

SAMPLES, VERDICTS = "samples.jsonl", "verdicts.jsonl"

_START = b'{"problem": "'  # of every line of a `SampleFile`


class EvaluationSettings:
    """What all models of an evaluation have in common, and the models.

    Attributes:
        models: the identity of each, by its label, in the order in which they came.
    """

    def __init__(self, path: Path, common: dict[str, Any], models: dict[str, Any]) -> None:
        self.path, self.common, self.models = path, common, models

    @classmethod
    def open(
        cls, folder: Path, problems: Sequence[Problem], sampling: Sampling
    ) -> EvaluationSettings:
        """Return the settings of a folder, which is made if it is not there.

        Raises:
            InputError: the folder holds an evaluation with others, or something else.
        """
        asked = json.dumps([[problem.id, conversation(problem.reference)] for problem in problems])
        common = {
            "problems": len(problems),
            "problems_sha256": hashlib.sha256(asked.encode()).hexdigest(),
            **dataclasses.asdict(sampling),
        }
        path = folder / "settings.json"
        if not path.exists():
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise InputError(f"{folder}: cannot be made: {error}") from error
            if any(folder.iterdir()):
                raise InputError(
                    f"{folder}: is not empty, and no evaluation; give another --output"
                )
            return cls(path, common, {})
        try:
            held = json.loads(path.read_text(encoding="utf-8"))
            models = dict(held.pop("models"))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path}: cannot be read: {error}; give another --output") from error
        changed = [name for name in common if held.get(name) != common[name]]
        if changed:
            was = ", ".join(f"{name} {held.get(name)} and not {common[name]}" for name in changed)
            raise InputError(
                f"{folder}: holds an evaluation with {was}; give the same options, or another "
                "--output"
            )
        return cls(path, common, models)

    def add(self, label: str, identity: dict[str, Any]) -> None:
        """Note a model, on disk too.

        Args:
            label: what it is called.
            identity: ``model``, ``endpoint`` and ``sha256``; see `Contestant.identity`.

        Raises:
            InputError: another one has its label.
        """
        known = self.models.setdefault(label, identity)
        what = "sha256" if identity["sha256"] else "model"  # a path may be written in many ways
        if known[what] != identity[what] or known["endpoint"] != identity["endpoint"]:
            raise InputError(
                f"{self.path.parent / label}: holds answers of another model or of "
                f"other weights ({known['model'] or known['endpoint']}); give a label of its own, "
                "such as --model new=PATH, or another --output"
            )
        text = json.dumps({**self.common, "models": self.models}, indent=2) + "\n"
        write_atomically(self.path, text.encode())


class SampleFile:
    """A model's answers on disk; a context manager, for one process at a time.

    The answers to a problem are written together. What a kill left of the last group is cut off.

    Attributes:
        samples: the answers to each problem that has them all, by its id.

    Raises:
        InputError: the file holds something else, or another process is writing it.
    """

    def __init__(self, path: Path, n: int) -> None:
        self.samples: dict[str, list[Sample]] = {}
        self._journal = open_journal(path, _START, "answers", durable=True)
        with self._journal.closed_on_error():
            lines = whole_lines(path)
            self._journal.cut(lines[: self._read(path, lines, n)])

    def _read(self, path: Path, lines: list[bytes], n: int) -> int:
        """Read the groups that are whole; return how many lines they are."""
        whole = 0
        group: list[Sample] = []
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
                group.append(Sample(row["text"], row["finish"]))
                if row["number"] != len(group) - 1:
                    raise ValueError(f"answer {row['number']} is not in its place")
            except (ValueError, KeyError, TypeError) as error:
                raise InputError(f"{path}:{number}: is no answer: {error}") from error
            if len(group) == n:
                self.samples[row["problem"]] = group
                whole, group = number, []
        return whole

    def append(self, problem: str, samples: list[Sample]) -> None:
        """Write all answers to a problem; when this returns, they are on disk."""
        lines = []
        for number, sample in enumerate(samples):
            row = {
                "problem": problem,
                "number": number,
                "finish": sample.finish,
                "text": sample.text,
                "program": program_of(sample.text),
            }
            lines.append(json_line(row))
        self._journal.append(*lines)
        self.samples[problem] = samples

    def __enter__(self) -> SampleFile:
        return self

    def __exit__(self, *error: object) -> None:
        self._journal.close()
