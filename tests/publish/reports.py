"""A small finished run with something of everything that a report shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from data_sets import pair
from steps_for_tests import LICENSE, Given

from curate.clean.decontaminate import Decontaminate
from curate.clean.dedupe import Dedupe
from curate.clean.normalize import Normalize
from curate.clean.parse import Parse
from curate.clean.split import Split
from curate.engine.processes.local import LocalExecutor
from curate.engine.run import Walk
from curate.formats.dataset.write import write_dataset
from curate.formats.fim.fim import Fim
from curate.formats.kernels import KernelsFormat as KernelsFormat
from curate.formats.pairs import PairsFormat
from curate.rows import Row, make_origin, make_row

KERNEL = """\
import triton
import triton.language as tl


@triton.jit
def scale_{n}(x_ptr, y_ptr, n_elements, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, x * {n}.0, mask=mask)
"""
HOSTILE = '"""</script><script>alert(1)</script><!-- &lt; </code></pre> ]]> {{ a }} {% x %}"""\n'
RAN = {"status": "ran", "inputs": "scale(torch.ones(4))", "launches": 1, "deterministic": True}
OTHER_LICENSE = {**LICENSE, "expression": "MIT OR GPL-2.0-only", "choice": "MIT", "conflict": True}


def kernel(number: int, code: str | None = None, **columns: Any) -> Row:
    """Return a kernel that no other has."""
    text = code or KERNEL.format(n=number)
    place = make_origin("git", repo="https://example.org/k.git", path=f"k{number}.py", start_line=1)
    known = {
        **{"triton": text, "license": OTHER_LICENSE, "entry_point": f"scale_{number}"},
        "kernel": {"found_by": "search", "dtypes": ["fp32", "bf16"], "run": RAN},
        "compile": [
            {"target": "cuda:80", "ok": True, "registers": 16, "spills": 0, "shared": 256},
            {"target": "hip:gfx942", "ok": False, "error": "shared_memory", "message": "too big"},
        ],
    }
    return make_row("kernel", text, place, **{**known, **columns})


def rows() -> list[Row]:
    """Return pairs, judged in different ways, and kernels, some of them duplicates."""
    static = {"kernels": 1, "lines": 2, "ops": ["aten.add.Tensor", "aten.mul.Scalar"]}
    static |= {"pure_triton": True, "extern_calls": [], "dynamic_dims": 2}
    verdicts = [
        {
            "status": "correct",
            "max_abs_error": 0.0,
            "error_ratio": 0.5,
            "caveats": ["own_sizes_only"],
        },
        {"status": "correct", "max_abs_error": float("inf"), "error_ratio": 0.25, "caveats": []},
        {"status": "unsupported", "reason": "too_large", "caveats": []},
    ]
    verdicts[0]["timing"] = {"candidate_us": 10.0, "eager_us": 30.0, "compile_us": 5.0}
    common = {"backend": "cpu", "device": "cpu", "judge": 2, "torch": "2.13.0"}
    pairs = [
        pair(n, static=static, verdict={**common, **v}, triton=KERNEL.format(n=100 + n))
        for n, v in enumerate(verdicts, 1)
    ]
    pairs.append(pair(4, verdict=None, triton=HOSTILE + KERNEL.format(n=104), compile=None))
    kernels = [kernel(n) for n in range(1, 7)]
    kernels[0]["kernel"] = {"found_by": "launch_site", "dtypes": None, "run": None}
    copies = [kernel(n, code=KERNEL.format(n=1)) for n in (11, 12)]
    renamed = [kernel(13, code=KERNEL.format(n=2).replace("offsets", "places"))]
    broken = [kernel(14, code="def (:")]
    return [*pairs, *kernels, *copies, *renamed, *broken]


class Recipe:
    """What `Walk` needs of a recipe; its source is the rows themselves."""

    def __init__(self, given: list[Row], name: str = "scales", **options: Any) -> None:
        self.name, self.seed, self.description = name, 0, "Kernels & pairs that <scale>."
        self.sources = [Given(rows=given)]
        self.steps = options.pop("steps", None) or [
            Normalize(step="normalize"),
            Parse(step="parse"),
            Dedupe(step="dedupe", column="triton"),
            Decontaminate(step="decontaminate"),
            Split(step="split", test=options.pop("test", 0.3)),
        ]
        self.formats = [
            PairsFormat(format="pairs"),
            KernelsFormat(format="kernels"),
            Fim(format="fim"),
        ]

    def model_dump(self, mode: str) -> dict[str, Any]:
        formats = [f.model_dump() for f in self.formats]
        return {"name": self.name, "description": self.description, "formats": formats}


def make(output: Path, given: list[Row] | None = None, **options: Any) -> Path:
    """Run the recipe; return the folder of its data set."""
    recipe = Recipe(rows() if given is None else given, **options)
    walk = Walk(recipe, output, LocalExecutor(1))  # type: ignore[arg-type]
    write_dataset(walk, walk.run())
    return walk.folder


def hashes(folder: Path) -> dict[str, str]:
    """Return what run.json says of a data set's files."""
    found: dict[str, str] = json.loads((folder / "run.json").read_text())["files"]
    return found
