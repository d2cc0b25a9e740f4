"""What a format is: a view of finished rows that a trainer reads."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from curate.rows import ProvenRow
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


def proof(row: ProvenRow) -> Shown:
    """Return the `PROOF` columns of a row."""
    origin, verdict, static, teacher = (
        row["origin"],
        row["verdict"],
        row["static"],
        row["origin"]["teacher"],
    )
    return {
        "id": row["id"],
        "license": row["license"]["choice"] or row["license"]["expression"],
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
