"""Steps that behave badly on purpose, for tests of what runs them."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from curate.engine.store import digest
from curate.rows import Row, make_origin, make_row
from curate.step import (
    Context,
    Drop,
    Keep,
    Outcome,
    RowStep,
    SourceStep,
    StepError,
    TableStep,
    Unit,
)

if TYPE_CHECKING:
    import polars as pl

LICENSE = {
    "expression": "MIT",
    "choice": "MIT",
    "method": "header",
    "confidence": 1.0,
    "path": None,
    "text_sha256": [],
    "notice_sha256": [],
    "copyright": [],
    "conflict": False,
}


class Numbers(SourceStep):
    """Rows whose text is what `words` says, by turns, in units of ten."""

    source: Literal["numbers"] = "numbers"
    count: int = 50
    words: dict[int, str] = Field(default={})

    def units(self, context: Context) -> list[Unit]:
        starts = range(0, self.count, 10)
        return [
            Unit(f"{i}", f"{i}", {"start": i, "words": self.model_dump()["words"]}) for i in starts
        ]

    def read(self, unit: Unit, context: Context) -> Iterator[Row]:
        for i in range(unit.spec["start"], min(unit.spec["start"] + 10, self.count)):
            text = self.words.get(i, f"number {i}")
            origin = make_origin("numbers", path=f"{i}.py", artifact_sha256="0" * 64)
            yield make_row("file", text, origin, text=text, license=LICENSE)


class Given(SourceStep):
    """The rows that it is given."""

    source: Literal["given"] = "given"
    rows: list[dict[str, Any]] = Field(default=[])

    def units(self, context: Context) -> list[Unit]:
        return [Unit("all", digest(self.rows), {})]

    def read(self, unit: Unit, context: Context) -> Iterator[Row]:
        yield from self.rows


def act(text: str) -> None:
    """Do what the text says."""
    if text == "segfault":
        ctypes.string_at(0)
    elif text == "hang":
        time.sleep(600)
    elif text.startswith("hang at "):
        Path(text.removeprefix("hang at ")).write_text(str(os.getpid()))
        time.sleep(600)
    elif text == "eat memory":
        held = []
        while True:
            held.append(bytearray(64 * 2**20))
    elif text == "die quietly":
        os._exit(0)
    elif text == "raise":
        raise ValueError("as asked")
    elif text == "stop":
        raise StepError("as asked")
    elif text == "fork bomb":
        while True:
            os.fork()
    elif text == "open socket":
        socket.create_connection(("1.1.1.1", 80), timeout=2)
    elif text == "write outside":
        Path("/usr/planted").write_text("x")
    elif text == "read home":
        Path("/root/.bashrc").read_text()
    elif text == "fill disk":
        with Path("/tmp/big").open("wb") as file:
            while True:
                file.write(b"\0" * 2**24)
    elif text == "leave process":
        if os.fork() == 0:
            os.setsid()
            time.sleep(600)
    elif text == "leave file":
        Path("/tmp/left").write_text("x")
    elif text == "find file":
        assert not Path("/tmp/left").exists(), "a file of another row is still there"
    elif text == "leave closed folder":
        Path("/tmp/closed/left").mkdir(parents=True)
        Path("/tmp/closed").chmod(0)
    elif text == "find closed folder":
        assert not Path("/tmp/closed").exists(), "a folder of another row is still there"
    elif text == "lower limits":
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (soft - 1, hard))
    elif text == "lower the first process's limits":
        soft, hard = resource.prlimit(1, resource.RLIMIT_NOFILE)
        resource.prlimit(1, resource.RLIMIT_NOFILE, (soft - 1, hard))
    elif text == "kill the first process":
        os.kill(1, signal.SIGKILL)
        os.kill(1, signal.SIGSTOP)
    elif text.startswith("has limit "):
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == int(text.split()[-1])


class Act(RowStep):
    """Does what each row's text says."""

    takes: ClassVar[frozenset[str]] = frozenset({"file"})
    batch: ClassVar[int] = 8

    step: Literal["act"] = "act"
    timeout_s: float = 2.0
    memory_mb: int = 512

    def apply(self, row: Row, context: Context) -> Outcome:
        if row["text"] == "drop":
            return Drop("asked_to", {"text": row["text"]})
        if row["text"] == "odd numbers":
            return Drop("odd_numbers", {"ratio": float("nan"), "most": float("inf")})
        act(row["text"])
        return Keep((row,))


class Harvest(RowStep):
    """Makes a kernel of every file whose text asks for it."""

    takes: ClassVar[frozenset[str]] = frozenset({"file"})
    makes: ClassVar[frozenset[str]] = frozenset({"kernel"})

    step: Literal["harvest"] = "harvest"

    def apply(self, row: Row, context: Context) -> Outcome:
        if row["text"] == "empty":
            return Drop("no_kernel")
        act(row["text"] or "")
        found = [f"{row['text']}, {which}" for which in ("first", "second")]
        columns = {"entry_point": "k", "license": LICENSE}
        kernels = [make_row("kernel", t, row["origin"], triton=t, **columns) for t in found]
        return Keep(tuple(kernels))


class Answer(RowStep):
    """Makes a program of every task."""

    takes: ClassVar[frozenset[str]] = frozenset({"task"})
    makes: ClassVar[frozenset[str]] = frozenset({"pair"})

    step: Literal["answer"] = "answer"

    def apply(self, row: Row, context: Context) -> Outcome:
        text = f"answer to {row['reference']}"
        names = ("reference", "entry_point", "license")
        columns = {name: row[name] for name in names}
        return Keep(
            (make_row("pair", text, row["origin"], parent_ids=[row["id"]], triton=text, **columns),)
        )

    def recall(self, row: Row, made: list[Row]) -> list[Row] | None:
        (pair,) = self.apply(row, Context()).rows
        return [pair] if [one["id"] for one in made] == [pair["id"]] else None


class Size(RowStep):
    """Fills ``compile`` with the length of the program, a fact that takes long to find."""

    takes: ClassVar[frozenset[str]] = frozenset({"pair"})
    sets: ClassVar[frozenset[str]] = frozenset({"compile"})

    step: Literal["size"] = "size"
    target: str = "cuda:80"

    def apply(self, row: Row, context: Context) -> Outcome:
        if row["triton"] == "drop":
            return Drop("asked_to")
        found = {"target": self.target, "ok": True, "registers": len(row["triton"] or "")}
        names = ("kernels", "spills", "shared", "error", "message", "signature")
        return Keep(({**row, "compile": [{**dict.fromkeys(names), **found}]},))


class Gather(RowStep):
    """Fills ``cluster``, which a step before it must not have known."""

    takes: ClassVar[frozenset[str]] = frozenset({"pair"})
    sets: ClassVar[frozenset[str]] = frozenset({"cluster"})

    step: Literal["gather"] = "gather"

    def apply(self, row: Row, context: Context) -> Outcome:
        return Keep(({**row, "cluster": f"of {row['triton']}"},))


class ActInSandbox(Act):
    """The same, one row a child, inside the sandbox."""

    sandboxed: ClassVar[bool] = True
    batch: ClassVar[int] = 1

    step: Literal["act_in_sandbox"] = "act_in_sandbox"


class Meet(RowStep):
    """Waits for three rows to be under way at a time, and has three workers for it."""

    takes: ClassVar[frozenset[str]] = frozenset({"file"})
    step: Literal["meet"] = "meet"
    timeout_s: float = 30.0

    @property
    def workers(self) -> int:
        return 3

    def apply(self, row: Row, context: Context) -> Outcome:
        assert context.cache
        (context.cache / row["id"]).touch()
        while len(list(context.cache.iterdir())) < self.workers:
            time.sleep(0.01)
        return Keep((row,))


class NotReady(Act):
    """Cannot do any row, and knows it before the first."""

    step: Literal["not_ready"] = "not_ready"

    def setup(self, context: Context) -> None:
        raise StepError("not ready")


class Note(Act):
    """Tells which processes it was forked from; fails to start where another step has been."""

    step: Literal["note"] = "note"

    def setup(self, context: Context) -> None:
        assert os.environ.get("STEP_BEFORE") is None, "a step finds what another has set"
        os.environ["STEP_BEFORE"] = "note"

    def apply(self, row: Row, context: Context) -> Outcome:
        server = os.getppid()
        worker = Path(f"/proc/{server}/stat").read_text().split()[3]
        return Drop("forked", {"server": server, "worker": int(worker)})


class Forge(RowStep):
    """Changes a row's license inside the sandbox."""

    takes: ClassVar[frozenset[str]] = frozenset({"file"})
    sandboxed: ClassVar[bool] = True
    step: Literal["forge"] = "forge"

    def apply(self, row: Row, context: Context) -> Outcome:
        return Keep(({**row, "license": {**row["license"], "choice": "CC0-1.0"}},))


class Double(RowStep):
    """Makes two rows of one."""

    takes: ClassVar[frozenset[str]] = frozenset({"file"})
    batch: ClassVar[int] = 4
    step: Literal["double"] = "double"
    word: str = "twin"

    def apply(self, row: Row, context: Context) -> Outcome:
        text = f"{row['text']} {self.word}"
        origin = {**row["origin"], "symbol": self.word}
        twin = make_row(
            "file", text, origin, text=text, license=row["license"], parent_ids=[row["id"]]
        )
        return Keep((row, twin))


class Odd(TableStep):
    """Drops odd numbers; or says nothing of most rows."""

    takes: ClassVar[frozenset[str]] = frozenset({"file"})
    columns: ClassVar[tuple[str, ...]] = ("text",)

    step: str = "odd"
    forget: bool = False

    def judge(self, table: pl.DataFrame, context: Context) -> pl.DataFrame:
        import polars as pl  # not above: every worker would load it

        number = pl.col("text").str.extract(r"(\d+)").cast(int)
        odd = pl.when(number % 2 == 1)
        frame = table.select(
            "id",
            odd.then(pl.lit("is_odd")).alias("reason"),
            odd.then(pl.lit('{"of": 2}')).alias("evidence"),
            pl.lit("all").alias("cluster"),
        )
        return frame.head(3) if self.forget else frame
