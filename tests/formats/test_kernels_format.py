from pathlib import Path

import pyarrow.parquet as pq
from steps_for_tests import LICENSE, Given

from curate.cache.texts import save_text
from curate.engine.processes.local import LocalExecutor
from curate.engine.run import Walk
from curate.formats.dataset.write import write_dataset
from curate.formats.fim.fim import Fim
from curate.formats.kernels import KernelsFormat
from curate.rows import Row, make_origin, make_row

TRITON = """\
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    tl.store(x_ptr + offsets, x + {}, mask=offsets < n)
"""
UNKNOWN = dict.fromkeys(("launches", "signature", "found_by", "attempts", "dtypes", "run"))


def kernel(number: int, **columns: object) -> Row:
    triton = TRITON.format(number)
    origin = make_origin("pypi", path=f"{number}.py", symbol="add_kernel")
    known = {"triton": triton, "entry_point": "add_kernel", "license": LICENSE, "split": "train"}
    return make_row("kernel", triton, origin, **{**known, "kernel": UNKNOWN, **columns})


class Recipe:
    name, seed, description, steps = "small", 0, "Made in a test.", ()

    def __init__(self, rows: list[Row]) -> None:
        self.sources = [Given(rows=rows)]
        self.formats = [Fim(format="fim"), KernelsFormat(format="kernels")]

    def model_dump(self, mode: str) -> dict:
        return {"name": self.name}


def write(tmp_path: Path, rows: list[Row]) -> tuple[Walk, dict]:
    walk = Walk(Recipe(rows), tmp_path, LocalExecutor(1))
    return walk, write_dataset(walk, walk.run())


def test_a_kernel_is_shown_with_its_evidence(tmp_path: Path) -> None:
    evidence = {**UNKNOWN, "found_by": "launch_site", "attempts": 1, "signature": "{}"}
    compiled = {"target": "cuda:90", "ok": True, "registers": 32}
    row = kernel(0, kernel=evidence, compile=[compiled], host_function="def add(x): ...\n")
    walk, _ = write(tmp_path, [row])
    [shown] = pq.read_table(walk.folder / "kernels/train-00000-of-00001.parquet").to_pylist()
    assert (shown["id"], shown["triton"], shown["host_function"]) == (
        *(row["id"], row["triton"]),
        "def add(x): ...\n",
    )
    assert shown["kernel"]["found_by"] == "launch_site"
    assert shown["compile"][0]["registers"] == 32
    assert shown["license"]["expression"] == "MIT"


def test_a_view_counts_what_it_shows_and_why_it_does_not(tmp_path: Path) -> None:
    rows = [kernel(0), kernel(1, triton="x = 1\n"), kernel(2, triton='"""<fim_prefix>"""\n')]
    walk, run = write(tmp_path, rows)
    assert run["configs"]["kernels"] == {"train": 3}
    shown = pq.read_table(walk.folder / "fim/train-00000-of-00001.parquet").to_pylist()
    assert run["configs"]["fim"] == {"train": len(shown)}
    assert len(shown) > 3
    assert {row["id"].partition("-")[0] for row in shown} == {rows[0]["id"]}
    assert run["unwritten"] == {"no_holes_in_fim": 1, "fim_marker_in_fim": 1}


def test_a_kernel_has_no_prompt_and_may_be_in_another_split(tmp_path: Path) -> None:
    walk, run = write(tmp_path, [kernel(0), kernel(0, split="test")])
    [shown] = pq.read_table(walk.folder / "kernels/test-00000-of-00001.parquet").to_pylist()
    assert shown["split_overlap"] == 1
    assert "prompt_overlap" not in shown
    assert set(run["leakage"]["kernels"]["test"]) == {"rows", "split_overlap"}
    holes = pq.read_table(walk.folder / "fim/test-00000-of-00001.parquet").to_pylist()
    assert {hole["split_overlap"] for hole in holes} == {1}, "of the whole file"
    assert all(0 < hole["prompt_overlap"] < 1 for hole in holes)


def test_texts_of_rows_that_no_view_shows_are_not_shipped(tmp_path: Path) -> None:
    class OnlyFim(Recipe):
        def __init__(self, rows: list[Row]) -> None:
            super().__init__(rows)
            self.formats = [Fim(format="fim")]

    shown, left = (save_text(tmp_path / "cache", text) for text in ("shown\n", "left out\n"))
    rows = [
        kernel(0, license={**LICENSE, "text_sha256": [shown]}),
        kernel(1, triton="x = 1\n", license={**LICENSE, "text_sha256": [left]}),
    ]
    walk = Walk(OnlyFim(rows), tmp_path, LocalExecutor(1))
    write_dataset(walk, walk.run())
    assert [path.stem for path in (walk.folder / "licenses").iterdir()] == [shown]
