"""Small finished runs to publish."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from steps_for_tests import LICENSE, Given

from curate.cache.texts import save_text
from curate.engine.processes.local import LocalExecutor
from curate.engine.run import Walk
from curate.formats.conversion import Conversion
from curate.formats.dataset.write import write_dataset
from curate.formats.messages import Messages
from curate.formats.pairs import PairsFormat
from curate.rows import Row, make_origin, make_row
from curate.step import Step

REFERENCE = "class Model(torch.nn.Module):\n    def forward(self, x):\n        return x + {}\n"
TRITON = "@triton.jit\ndef add_{}_kernel(x_ptr):\n    pass\n"
VERDICT = {"status": "correct", "caveats": [], "backend": "cpu", "device": "cpu"}
VERDICT |= {"torch": "2.13.0", "triton": "3.7.1", "judge": 2, "trials": 5}


def pair(number: int, **columns: Any) -> Row:
    reference, triton = REFERENCE.format(number), TRITON.format(number)
    origin = make_origin("pypi", purl="pkg:pypi/adders@1.0", path=f"{number}.py")
    known = {
        **{"reference": reference, "triton": triton, "license": LICENSE, "verdict": VERDICT},
        **{"split": "test" if number % 5 == 0 else "train", "cluster": f"{number:020x}"},
        "compile": [{"target": "cuda:90", "ok": True, "registers": 32, "spills": 0, "shared": 0}],
    }
    return make_row("pair", reference + triton, origin, **{**known, **columns})


class Recipe:
    """What `Walk` needs of a recipe whose source is the rows themselves."""

    seed, description = 0, "Modules that add."

    def __init__(
        self,
        rows: list[Row],
        steps: Sequence[Step] = (),
        name: str = "adders",
        formats: Sequence[str] = ("pairs", "messages", "conversion"),
    ) -> None:
        self.name = name
        self.sources, self.steps = [Given(rows=rows)], steps
        known = [PairsFormat(format="pairs"), Messages(format="messages")]
        known.append(Conversion(format="conversion"))
        self.formats = [f for f in known if f.format in formats]

    def model_dump(self, mode: str) -> dict[str, Any]:
        formats = [f.model_dump() for f in self.formats]
        return {"name": self.name, "description": self.description, "formats": formats}


def make(
    output: Path,
    rows: list[Row],
    license_text: str = "",
    steps: Sequence[Step] = (),
    limit: int | None = None,
    settings: tuple[str, ...] = (),
    **of_recipe: Any,
) -> Path:
    """Run a recipe of these rows; return the folder of its data set."""
    if license_text:
        sha = save_text(output / "cache", license_text)
        rows = [{**row, "license": {**row["license"], "text_sha256": [sha]}} for row in rows]
    recipe: Any = Recipe(rows, steps, **of_recipe)
    walk = Walk(recipe, output, LocalExecutor(1), limit, settings=settings)
    write_dataset(walk, walk.run())
    return walk.folder
