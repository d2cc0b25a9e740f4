"""Steps that Ray's actors suffer from, and a recipe for a cluster to work on."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any, ClassVar, Literal

from run_for_tests import Small

from curate.clean.dedupe import Dedupe
from curate.clean.normalize import Normalize
from curate.clean.parse import Parse
from curate.formats.kernels import KernelsFormat as KernelsFormat
from curate.harvest.closure import Closure
from curate.harvest.kernels.kernels import Kernels
from curate.licenses.licenses import Licenses
from curate.rows import Row
from curate.sources.local import Local
from curate.step import Context, Keep, Outcome, RowStep

KERNEL = '''\
import triton
import triton.language as tl


@triton.jit
def scale_{i}(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Multiply by {i}."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(y_ptr + offsets, x * {value}, mask=offsets < n)
'''


class Slow(RowStep):
    """Takes its time, so that there is a middle of the run."""

    takes: ClassVar[frozenset[str]] = frozenset({"kernel"})
    batch: ClassVar[int] = 4
    step: Literal["slow"] = "slow"

    def apply(self, row: Row, context: Context) -> Outcome:
        time.sleep(0.2)
        return Keep((row,))


class Assassin(RowStep):
    """Kills the actor above its worker where a row's text asks for it."""

    takes: ClassVar[frozenset[str]] = frozenset({"file"})
    batch: ClassVar[int] = 2
    step: Literal["assassin"] = "assassin"
    folder: str

    def apply(self, row: Row, context: Context) -> Outcome:
        done = Path(self.folder, "killed")
        if row["text"] == "kill" or (row["text"] == "kill once" and not done.exists()):
            done.touch()
            os.kill(parent_of(os.getppid()), signal.SIGKILL)
            time.sleep(600)
        return Keep((row,))


class OnGpu(RowStep):
    """Says which GPUs it may use."""

    takes: ClassVar[frozenset[str]] = frozenset({"file"})
    step: Literal["on_gpu"] = "on_gpu"

    @property
    def gpus(self) -> int:
        return 1

    def apply(self, row: Row, context: Context) -> Outcome:
        return Keep(({**row, "text": os.environ["CUDA_VISIBLE_DEVICES"]},))


class Breaks(Slow):
    """Cannot be set up."""

    step: Literal["breaks"] = "breaks"

    def setup(self, context: Context) -> None:
        raise ValueError("as asked")


def parent_of(pid: int) -> int:
    """Return the pid of a process's parent."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def kernels_recipe(folder: Path) -> Any:
    """Return a recipe over new packages of kernels in ``folder``, some of them copies."""
    sources = []
    for package in range(3):
        place = folder / f"package{package}"
        place.mkdir(parents=True)
        (place / "LICENSE").write_text(MIT)
        for i in range(16):
            text = KERNEL.format(i=i, value=i // 2 + 8 * package)
            (place / f"scale_{i}.py").write_text(text)
        sources.append(Local(source="local", path=str(place)))
    licenses = Licenses(step="licenses")
    steps = [
        *(licenses, Kernels(step="kernels"), Closure(step="closure"), licenses),
        *(Normalize(step="normalize"), Slow(), Parse(step="parse")),
        Dedupe(step="dedupe", column="triton"),
    ]
    return Small(sources, steps, [KernelsFormat(format="kernels")])


MIT = """\
MIT License

Copyright (c) 2026 A Test

Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
in the Software without restriction, including without limitation the rights
to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE.
"""
