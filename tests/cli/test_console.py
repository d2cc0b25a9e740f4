from __future__ import annotations

import io
import json
from typing import Any

from rich.console import Console

from curate.cli import console
from curate.rows import KERNEL, make_origin, make_row

SIGNATURE = {"types": {"x_ptr": "*fp32", "BLOCK": "constexpr"}, "constants": {"BLOCK": 64}}
RUN = {"status": "ran", "inputs": "double(torch.randn(4))", "message": None}


def printed(width: int = 120, **columns: Any) -> str:
    kernel = dict.fromkeys(field.name for field in KERNEL) | columns.pop("kernel", {})
    row = make_row(
        "kernel",
        "def k(): ...",
        make_origin("local", path="a.py", symbol="k"),
        triton="def k(): ...",
        kernel=kernel,
        license={"choice": "MIT", "expression": "MIT"},
        **columns,
    )
    out = Console(width=width, record=True, file=io.StringIO())
    out.print(console.side_by_side(row))
    return out.export_text()


def test_a_kernel_is_shown_with_what_launches_it_and_its_proof() -> None:
    compiled = [
        {"target": "cuda:90", "ok": True, "registers": 12, "shared": 0},
        {"target": "cuda:75", "ok": False, "error": "shared_memory"},
    ]
    text = printed(
        host_function="def launch(): ...",
        kernel={"signature": json.dumps(SIGNATURE), "run": RUN},
        compile=compiled,
    )
    assert "def k" in text and "def launch" in text
    assert "x_ptr *fp32, BLOCK 64" in text
    assert "cuda:90 12 registers, 0 B shared; cuda:75 shared_memory" in text
    assert "ran; double(torch.randn(4))" in text


def test_programs_stand_side_by_side_only_where_there_is_room() -> None:
    def together(width: int) -> bool:
        lines = printed(width, host_function="def launch(): ...").splitlines()
        return any("def k" in line and "def launch" in line for line in lines)

    assert together(120)
    assert not together(80)
    assert "with a function that launches it" in printed(80, host_function="def launch(): ...")


def test_what_is_not_known_of_a_kernel_is_said() -> None:
    text = printed()
    assert "signature none" in text and "compiled  not yet" in text
    assert "no function to run" in text and "launches it" not in text
