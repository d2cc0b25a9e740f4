"""A recipe of a local folder that runs in seconds, and the command as users have it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner, Result

from curate.cli.main import main

LICENSE = Path(__file__).parents[1] / "LICENSE"
KERNEL = """\
import triton
import triton.language as tl


@triton.jit
def {name}_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(out_ptr + at, {formula}, mask=at < n)
"""
RECIPE = """\
name: {name}
sources:
  - source: local
    path: {folder}
steps:
  - step: licenses
  - step: kernels
  - step: closure
  - step: licenses
  - step: dedupe
    column: triton
  - step: split
formats:
  - format: kernels
"""


def make_recipe(folder: Path, name: str = "small") -> Path:
    """Write two files with a kernel each, their license and a recipe; return its path."""
    sources = folder / "sources"
    sources.mkdir(parents=True, exist_ok=True)
    (sources / "LICENSE").write_text(LICENSE.read_text())
    for kernel, formula in {"double": "x + x", "square": "x * x"}.items():
        (sources / f"{kernel}.py").write_text(KERNEL.format(name=kernel, formula=formula))
    recipe = folder / f"{name}.yaml"
    recipe.write_text(RECIPE.format(name=name, folder=sources))
    return recipe


def curate(*arguments: object) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def start(*arguments: object, **variables: str) -> subprocess.Popen[str]:
    """Start the command in a process of its own, in a group of its own."""
    command = [sys.executable, "-m", "curate", *map(str, arguments)]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, **variables},
    )


def data_line(printed: str) -> str:
    """Return the hash of the data that a run has printed."""
    return printed.strip().splitlines()[-1].rpartition("sha256 ")[2]
