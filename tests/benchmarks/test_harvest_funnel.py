from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curate.engine.store import LOST
from curate.formats.kernels import KernelsFormat
from curate.rows import Row, make_origin, make_row

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

from harvest import markdown, summarize  # noqa: E402


def kernel(name: str, package: str, **columns: Any) -> Row:
    origin = make_origin("pypi", purl=f"pkg:pypi/{package}", path="a.py", symbol=name)
    return make_row("kernel", name, origin, entry_point=name, **columns)


def finished(name: str, package: str, ok: bool, status: str | None) -> Row:
    run = None if status is None else {"status": status}
    facts = {"attempts": 2, "found_by": "data_flow", "run": run}
    results = [{"target": "cuda:90", "ok": True}, {"target": "hip:gfx942", "ok": ok}]
    wrapper = None if status is None else "def f(): ..."
    return kernel(name, package, kernel=facts, compile=results, host_function=wrapper)


def lose(folder: Path, label: str, row: Row, reason: str) -> None:
    (folder / "lost").mkdir(exist_ok=True)
    table = pa.Table.from_pylist([{**row, "fate": "dropped", "reason": reason}], schema=LOST)
    pq.write_table(table, folder / f"lost/{label}.parquet")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run that found five kernels in two packages and has three of them left."""
    folder = tmp_path / "recipe"
    (folder / "kernels").mkdir(parents=True)
    rows = [
        finished("one", "a@1", True, "ran"),
        finished("two", "a@1", False, "raised"),
        finished("three", "b@2", True, None),
    ]
    view = KernelsFormat(format="kernels")
    shown = [shown for row in rows for shown in view.render(row).rows]
    table = pa.Table.from_pylist(shown, schema=view.columns())
    pq.write_table(table, folder / "kernels/train-00000-of-00001.parquet")
    text = "import triton\n\n@triton.jit\ndef f(): ...\n\n@triton.jit\ndef g(): ...\n"
    file = make_row("file", text, make_origin("pypi", purl="pkg:pypi/b@2", path="b.py"), text=text)
    lose(folder, "licenses#1", file, "license_denied")
    lose(folder, "closure", kernel("four", "b@2"), "unknown_name")
    lose(folder, "signature", kernel("five", "a@1"), "no_signature")
    emitted = {"licenses#1": 2, "kernels": 5, "closure": 4, "signature": 3, "compile": 3}
    emitted = {**emitted, "decontaminate": 4}
    order = ["licenses#1", "kernels", "closure", "decontaminate", "signature", "compile"]
    ledger = [{"step": label, "emitted": emitted[label]} for label in order]
    (folder / "run.json").write_text(json.dumps({"ledger": ledger}))
    return folder


def test_funnel_counts_what_is_left_after_each_step(folder: Path) -> None:
    facts = summarize(folder)
    assert facts["packages"]["a@1"] == {
        "refused": 0,
        "found": 3,
        "sliced": 3,
        "clean": 3,
        "signature": 2,
        "cuda:90": 2,
        "hip:gfx942": 1,
        "wrapped": 2,
        "ran": 1,
    }
    assert facts["packages"]["b@2"]["refused"] == 2
    assert facts["packages"]["b@2"]["found"] == 2
    assert facts["packages"]["b@2"]["sliced"] == 1
    assert facts["total"]["found"] == 5
    assert facts["search"]["found_by"] == {"data_flow": 3}
    lost = {(loss["step"], loss["reason"]): loss["packages"] for loss in facts["losses"]}
    assert lost["signature", "no_signature"] == {"a@1": 1}


def test_shares_are_of_the_slices(folder: Path) -> None:
    assert "|cuda:90|3|75.0 %|" in markdown(summarize(folder))


def test_counts_that_differ_from_the_ledger_are_refused(folder: Path) -> None:
    run = json.loads((folder / "run.json").read_text())
    run["ledger"][1]["emitted"] = 6
    (folder / "run.json").write_text(json.dumps(run))
    with pytest.raises(SystemExit, match="kernels: 5 kernels here, 6 in the run"):
        summarize(folder)
