"""Ask a teacher many prompts: ``python teacher_run.py OUTPUT URL COUNT CONCURRENCY``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, ClassVar

from run_for_tests import Small
from steps_for_tests import LICENSE, Given

from curate.engine.processes.local import LocalExecutor
from curate.engine.run import Stage, Walk
from curate.rows import SAMPLE, Row, make_origin, make_row
from curate.teacher.teacher import Teacher

PROGRAM = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    pass\n"


def prompt(text: str, number: int = 0, **columns: Any) -> Row:
    origin = make_origin("torch_ops", path="ops", artifact_sha256="0" * 64)
    sample = dict.fromkeys(field.name for field in SAMPLE)
    sample |= {"family": "implement", "template": "implement@1", "attempt": 1, "number": number}
    turns = [{"role": "user", "content": text}]
    columns = {"license": LICENSE, "parent_ids": ["task"], "sample": sample, **columns}
    return make_row("prompt", f"{text} {number}", origin, turns=turns, **columns)


def teacher(url: str, **options: Any) -> Teacher:
    known = {"step": "teacher", "model": "scripted", "base_url": url, "terms": "Apache-2.0"}
    return Teacher.model_validate(known | options)


def run(output: Path, step: Teacher, rows: list[Row]) -> tuple[Walk, Stage]:
    """Return a finished walk and its teacher's stage."""
    walk = Walk(Small([Given(rows=rows)], [step]), output, LocalExecutor(1))  # type: ignore[arg-type]
    return walk, walk.run()[-1]


class Fast(Teacher):
    """Asks ten prompts in one child: a child costs far more than an answer from loopback."""

    batch: ClassVar[int] = 10


def main() -> None:
    folder, address, count, concurrency = sys.argv[1:]
    prompts = [prompt(f"number {i}") for i in range(int(count))]
    options = teacher(address, concurrency=int(concurrency)).model_dump()
    _, stage = run(Path(folder), Fast.model_validate(options), prompts)
    print(stage.total("emitted"), [manifest.output_sha256 for manifest in stage.manifests])


if __name__ == "__main__":
    import teacher_run  # workers find its class by this name

    teacher_run.main()
