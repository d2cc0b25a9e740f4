"""What a step is.

A step is a typed value whose fields are its options. It turns rows into rows and never loses one
silently: each row that it sees is kept, dropped with a reason and evidence, or failed with an
error. Code that a step needs at run time only (torch, triton) is imported in `setup` or below, so
that loading a recipe stays fast.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationInfo, model_validator

from curate.rows import Row

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Context:
    """What a step may know of its run.

    Attributes:
        seed: the recipe's seed.
        cache: folder of downloads and unpacked artifacts; None inside the sandbox.
        sandbox: whether other people's code runs in a sandbox, as it does unless the user
            forgoes it.
    """

    seed: int = 0
    cache: Path | None = None
    sandbox: bool = True


R = TypeVar("R")


@dataclass(frozen=True)
class Keep(Generic[R]):
    """The rows that a row became: one for most steps, several where a step finds parts."""

    rows: tuple[R, ...]


@dataclass(frozen=True)
class Drop:
    """A row that goes no further.

    Attributes:
        reason: a short code in snake_case, the same for every row lost this way.
        evidence: what shows it: the twin's id, the license's path, the compiler's message.
    """

    reason: str
    evidence: dict[str, Any] = field(default_factory=dict)


Outcome = Keep[Row] | Drop

WEEK_S = 604_800.0
RowSeconds = Annotated[float, Field(gt=0, le=WEEK_S, description="Seconds that one row may take.")]
RowMemory = Annotated[int, Field(gt=0, le=2**24, description="Memory that one row may take, MiB.")]


class Step(BaseModel):
    """The part that all steps share."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: ClassVar[int] = 1
    """Raised when the code changes what the step gives; part of the fingerprint."""
    tools: ClassVar[tuple[str, ...]] = ()
    """Distributions whose versions decide the result; part of the fingerprint."""
    seeded: ClassVar[bool] = False
    """Whether the recipe's seed decides the result; if so, it is part of the fingerprint."""

    takes: ClassVar[frozenset[str]] = frozenset()
    """Kinds of row that the step looks at; others pass by untouched."""
    makes: ClassVar[frozenset[str]] = frozenset()
    """Kinds of row that it makes of them; none where a row keeps its kind."""
    adds: ClassVar[frozenset[str]] = frozenset()
    """Kinds of row that it makes besides the row itself."""
    reads: ClassVar[frozenset[str]] = frozenset()
    """Columns without which it can do nothing with a row."""
    uses: ClassVar[frozenset[str]] = frozenset()
    """Columns that it reads where they are set: no later step may be the first to set them."""
    sets: ClassVar[frozenset[str]] = frozenset()
    """Columns that it fills in the rows that it makes or keeps."""
    spoils: ClassVar[frozenset[str]] = frozenset()
    """Columns that no longer say the truth of the row that it makes, until they are set again."""

    max_error_rate: Annotated[
        float, Field(ge=0, le=1, description="Share of rows that may fail before the run stops.")
    ] = 0.02

    _folder: Path = PrivateAttr(Path())

    @model_validator(mode="after")
    def _keep_folder(self, info: ValidationInfo) -> Self:
        if info.context:
            self._folder = info.context["folder"]
        return self

    @property
    def folder(self) -> Path:
        """The folder of the recipe, where the files lie that come with it."""
        return self._folder

    @property
    def name(self) -> str:
        """The word that selects this step in a recipe."""
        raise NotImplementedError

    @classmethod
    def word(cls) -> tuple[str, str]:
        """Return the key and the word that select this step in a recipe: ``step``, ``wiring``."""
        key = "source" if issubclass(cls, SourceStep) else "step"
        (name,) = get_args(cls.model_fields[key].annotation)
        return key, str(name)

    def needs(self) -> frozenset[str]:
        """Return the columns that it reads with these options."""
        return self.reads

    def setup(self, context: Context) -> None:
        """Import and warm what the work needs: called once in a worker, before it forks."""

    def options(self) -> dict[str, Any]:
        """Return the options that decide the step's result, as JSON values."""
        return self.model_dump(mode="json", exclude={"max_error_rate"})


@dataclass(frozen=True)
class Unit:
    """One independent part of a source: a package, a repository, a range of operators.

    Attributes:
        label: shown to the user.
        key: what pins the unit's content (a hash, a commit); part of the fingerprint.
        spec: whatever `SourceStep.read` needs to know, as JSON values.
    """

    label: str
    key: str
    spec: dict[str, Any]


Place = tuple[str | int, ...]
"""Of a field: its name, and a position from 0 where it is a list."""


class SourceStep(Step):
    """A step that makes rows out of nothing but its options."""

    source: str

    @property
    def name(self) -> str:
        return self.source

    def lacking(self) -> Iterator[tuple[str, str]]:
        """Yield each field that names what this machine does not have, and what is wrong."""
        yield from ()

    def pins(self) -> dict[Place, str]:
        """Return what the source reads, by the place of the field that says so.

        What two places of a recipe have in common would be read twice, so `load_recipe` refuses it.
        """
        return {(): json.dumps(self.options(), sort_keys=True)}

    def units(self, context: Context) -> list[Unit]:
        """Return the source's parts in a fixed order, cheaply and without the network."""
        raise NotImplementedError

    def read(self, unit: Unit, context: Context) -> Iterator[Row | tuple[Row, Drop]]:
        """Yield the unit's rows in a fixed order; a row left out is given with its reason.

        Raises:
            SourceError: the unit cannot be had as the recipe pins it.
        """
        raise NotImplementedError


class SourceError(Exception):
    """A source cannot be had as pinned; the message says what is wrong and what to do."""


class TableError(Exception):
    """A step cannot judge the table as it is; the message says why and what to do."""


class StepError(Exception):
    """A step can do no row as things are; the message says why and what to do.

    `RowStep.setup` and `RowStep.apply` may raise it; from the sandbox it is a failure of the row.
    """


class RowStep(Step):
    """A step that looks at one row at a time, in a forked child that may be killed."""

    sandboxed: ClassVar[bool] = False
    """Whether rows are handled in the sandbox: yes wherever a row's code is run."""
    batch: ClassVar[int] = 1
    """Rows handled by one forked child; 1 where a row's code is run."""

    step: str

    @property
    def name(self) -> str:
        return self.step

    @property
    def gpus(self) -> int:
        """How many GPUs a worker needs to itself."""
        return 0

    @property
    def workers(self) -> int | None:
        """Workers to have on one machine, for a step that waits for others rather than computes, or
        that must be alone; None for as many as the executor has. One that needs no GPU then stays
        on the machine that runs the recipe."""
        return None

    timeout_s: RowSeconds = 60.0
    memory_mb: RowMemory = 8192

    def apply(self, row: Any, context: Context) -> Outcome:
        """Decide on one row. An exception files the row as failed.

        Args:
            row: of a kind that the step takes: its class in `curate.rows` is what a step says.
            context: of the run.
        """
        raise NotImplementedError

    def recall(self, row: Any, made: list[Row]) -> list[Row] | None:
        """Return what the step makes of a row, as a finished data set tells it; None if it cannot.

        For steps that make pairs. The data set is of the same version, options and tools; a pair
        that was dropped since is not in it.

        Args:
            row: of a kind that the step takes.
            made: the pairs of the data set that were made of it, with what later steps filled in.
        """
        return None


class TableStep(Step):
    """A step that needs the whole table, and returns verdicts on ids, never rewritten rows.

    It never sees the rows themselves together: `summarize` takes what matters from one shard's
    rows, in a worker, and `judge` decides on all summaries.
    """

    columns: ClassVar[tuple[str, ...]]
    """Columns that `summarize` reads, besides ``id`` and ``kind``."""

    step: str

    @property
    def name(self) -> str:
        return self.step

    def summarize(self, rows: pl.DataFrame, context: Context) -> pl.DataFrame:
        """Return what `judge` must know of a shard's rows: a line for each, in order, with its id.

        A summary is made once and kept as an Arrow file. By default it is the columns themselves.
        """
        return rows

    def judge(self, table: pl.DataFrame, context: Context) -> pl.DataFrame:
        """Return one verdict per row, in the order of ``table``.

        Args:
            table: all summaries, one after the other, mapped from their files; a shard is a chunk.
            context: of the run.

        Returns:
            A frame with ``id``, ``reason`` (null keeps the row), ``evidence`` (JSON or null) and
            any of the columns ``cluster``, ``split`` and ``selection`` (of ``sample``), which are
            then set in the kept rows.

        Raises:
            TableError: the rows, or what the options name, do not fit together.
        """
        raise NotImplementedError
