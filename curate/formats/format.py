"""What a format is: a view of finished rows that a trainer reads."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Self

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from curate.formats.prompts.examples import Examples, WorkedExample
from curate.rows import Loose, ProvenRow
from curate.step import Drop, Keep

Shown = dict[str, Any]
"""A row of a view."""

View = Keep[Shown] | Drop
"""The rows of a view that show a row, or why there is none."""


class Format(BaseModel):
    """The part that all formats share: each writes one config of the data set."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: ClassVar[int] = 2
    kinds: ClassVar[frozenset[str]]
    """Kinds of row that the format shows."""
    reads: ClassVar[frozenset[str]] = frozenset({"license"})
    """Columns without which the format can show nothing."""
    has_prompt: ClassVar[bool] = True
    """Whether a row of the view is a prompt and its completion."""
    keeps_empty: ClassVar[bool] = True
    """Whether the view has the columns that are null in all of its rows."""

    format: str
    config: Annotated[
        str | None,
        Field(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
            max_length=100,
            description="Name of the data set's config, and of the folder that it lies in; the "
            "format's own name by default.",
        ),
    ] = None

    def begin(self) -> Self:
        """Return the format for one data set: it has looked at no row."""
        return type(self)(**self.model_dump())

    def look_at(self, row: Loose) -> None:
        """Take note of a row: a format is shown all rows of a data set before it renders one."""

    def columns(self) -> pa.Schema:
        """Return the columns that `render` fills."""
        raise NotImplementedError

    def render(self, row: Any) -> View:
        """Return the rows of the view that show a row, or why there is none."""
        raise NotImplementedError

    def prompt_and_completion(self, row: Any, shown: Shown) -> tuple[str, str]:
        """Return the texts whose words tell of leakage (`curate.formats.dataset.leakage`).

        They are code alone: an instruction that all rows share would hide a completion that its
        prompt gives away, and make all rows alike. A view without prompts has an empty one.

        Args:
            row: the row that is shown.
            shown: one of the rows of the view that `render` made of it.
        """
        return row["reference"] or "", row["triton"] or ""


class FormatWithExamples(Format):
    """A format whose prompts may show another row as a worked example."""

    _examples: Examples = PrivateAttr(default_factory=Examples)

    def look_at(self, row: Loose) -> None:
        self._examples.add(row)


PROOF = [
    ("id", pa.string()),
    ("license", pa.string()),
    ("source", pa.string()),
    ("path", pa.string()),
    ("symbol", pa.string()),
    ("pure_triton", pa.bool_()),
    ("specialised", pa.list_(pa.string())),
    ("targets", pa.list_(pa.string())),
    ("verdict", pa.string()),
    ("verdict_reason", pa.string()),
    ("caveats", pa.list_(pa.string())),
    ("teacher", pa.string()),
    ("teacher_terms", pa.string()),
]
"""Columns that every view ends with: enough to trust a row, or to look it up."""


def proof(row: ProvenRow, example: WorkedExample | None = None) -> Shown:
    """Return the `PROOF` columns of a row, which is used under an example's license as well."""
    origin, verdict, static, teacher = (
        row["origin"],
        row["verdict"],
        row["static"],
        row["origin"]["teacher"],
    )
    return {
        "id": row["id"],
        "license": _license(row, example),
        "source": origin["purl"] or origin["repo"] or origin["source"],
        "path": origin["path"],
        "symbol": origin["symbol"],
        "pure_triton": static and static["pure_triton"],
        "specialised": static and static["specialised"],
        "targets": [c["target"] for c in row["compile"] or [] if c["ok"]],
        "verdict": verdict and verdict["status"],
        "verdict_reason": verdict and verdict["reason"],
        "caveats": verdict and verdict["caveats"],
        "teacher": teacher and teacher["model"],
        "teacher_terms": teacher and teacher["terms"],
    }


def _license(row: ProvenRow, example: WorkedExample | None) -> str:
    own = row["license"]["choice"] or row["license"]["expression"]
    if example is None or example.license == own:
        return own
    parts = dict.fromkeys((*own.split(" AND "), *example.license.split(" AND ")))
    return " AND ".join(f"({part})" if " OR " in part else part for part in parts)
