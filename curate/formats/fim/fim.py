"""The ``fim`` format: kernels with parts left out, to be filled in from what stands around them.

A row is shown several times, each time with another hole (`curate.formats.fim.holes`). In a
kernel's row, holes lie in its ``@triton.jit`` functions: the entry point and its helpers. In a
pair's row, they lie in any function or method, since there the launch code is part of the answer.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

import pyarrow as pa
from pydantic import Field, model_validator

from curate.formats.fim.fim_tokens import FAMILIES, FamilyName, Mode, find_marker, render_fim
from curate.formats.fim.holes import HOLE_KINDS, Hole, HoleKind, find_holes
from curate.formats.format import PROOF, Format, Shown, View, proof
from curate.rows import KernelRow, PairRow
from curate.step import Drop, Keep

HOLES: dict[HoleKind, int] = {"body": 1, "block": 2, "statement": 2, "expression": 2, "memory": 1}

TOKEN = re.compile(r"\d[\w.]*|\w+|[^\w\s]")


class Fim(Format):
    """Prefix, middle and suffix: holes that follow the syntax, drawn by the row's id.

    Sizes are counted without a tokenizer: a name, a number and any other visible character are
    one token each, and space is none.
    """

    kinds: ClassVar[frozenset[str]] = frozenset({"kernel", "pair"})
    reads: ClassVar[frozenset[str]] = frozenset({"license", "triton"})

    format: Literal["fim"]
    holes: Annotated[
        dict[HoleKind, Annotated[int, Field(ge=1)]],
        Field(
            description="How many holes of each kind a row gives at most. body: all after "
            "a function's signature and docstring, the row's entry point first; block: a loop's or "
            "branch's body, or a few statements; statement; expression; memory: arguments of a "
            "masked load or store. Holes of one kind do not overlap."
        ),
    ] = HOLES
    min_tokens: Annotated[
        int, Field(ge=1, description="Smallest middle, in names, numbers and signs.")
    ] = 3
    max_tokens: Annotated[
        int, Field(ge=1, description="Largest middle, in names, numbers and signs.")
    ] = 2048
    max_row_tokens: Annotated[
        int, Field(ge=1, description="Largest row that is shown, in names, numbers and signs.")
    ] = 4096
    family: Annotated[
        FamilyName | None,
        Field(
            description="Adds `prompt` and `completion` with the markers of this family of models."
        ),
    ] = None
    mode: Annotated[
        Mode | None,
        Field(
            description="Order of `prompt`: psm (prefix, suffix, middle) or spm (suffix, prefix, "
            "middle). Needed with a family; codestral has spm only."
        ),
    ] = None

    @model_validator(mode="after")
    def _check_mode(self) -> Fim:
        if (self.family is None) != (self.mode is None):
            raise ValueError("family and mode go together: give both or neither")
        if self.family and self.mode not in FAMILIES[self.family].prompt:
            raise ValueError(f"{self.family} has no mode {self.mode}")
        return self

    def columns(self) -> pa.Schema:
        texts = ["prefix", "middle", "suffix", *(["prompt", "completion"] if self.family else [])]
        return pa.schema(
            [
                *((name, pa.string()) for name in texts),
                ("hole", pa.string()),  # its kind
                ("node", pa.string()),  # tree-sitter's type of what was left out
                ("start_line", pa.int32()),  # of the middle, 1-based, inclusive
                ("end_line", pa.int32()),
                *PROOF,  # `id` is the row's id, a dash and the hole's number
            ]
        )

    def render(self, row: PairRow | KernelRow) -> View:
        text: str = row["triton"]
        if marker := find_marker(text):
            return Drop("fim_marker", {"marker": marker})
        if (tokens := count_tokens(text)) > self.max_row_tokens:
            return Drop("too_long", {"tokens": tokens})
        code = text.encode()
        try:
            found = find_holes(code, row["entry_point"] if row["kind"] == "kernel" else None)
        except SyntaxError:
            return Drop("syntax_error")
        drawn = self._draw(found, row, code)
        if not drawn:
            return Drop("no_holes")
        return Keep(tuple(self._show(row, code, n, hole) for n, hole in enumerate(drawn)))

    def prompt_and_completion(self, row: PairRow | KernelRow, shown: Shown) -> tuple[str, str]:
        return f"{shown['prefix']}\n{shown['suffix']}", shown["middle"]

    def _draw(self, found: list[Hole], row: PairRow | KernelRow, code: bytes) -> list[Hole]:
        """Return the holes to show, in the order in which they stand in the code."""
        drawn: list[Hole] = []
        for kind in HOLE_KINDS:
            chosen: list[Hole] = []
            for hole in shuffled([h for h in found if h.kind == kind], row):
                if len(chosen) == self.holes.get(kind, 0):
                    break
                apart = all(hole.end <= c.start or c.end <= hole.start for c in chosen)
                if apart and self._fits(code[hole.start : hole.end].decode()):
                    chosen.append(hole)
            drawn += chosen
        return sorted(drawn, key=lambda hole: (hole.start, -hole.end))

    def _fits(self, middle: str) -> bool:
        return self.min_tokens <= count_tokens(middle) <= self.max_tokens

    def _show(self, row: PairRow | KernelRow, code: bytes, number: int, hole: Hole) -> Shown:
        parts = (code[: hole.start], code[hole.start : hole.end], code[hole.end :])
        prefix, middle, suffix = (part.decode() for part in parts)
        first = code.count(b"\n", 0, hole.start) + 1
        view = {"prefix": prefix, "middle": middle, "suffix": suffix}
        if self.family and self.mode:
            view |= render_fim(view, self.family, self.mode)
        return {
            **view,
            "hole": hole.kind,
            "node": hole.node,
            "start_line": first,
            "end_line": first + middle.count("\n"),
            **proof(row),
            "id": f"{row['id']}-{number}",
        }


def count_tokens(code: str) -> int:
    """Return how many names, numbers and other visible characters code has."""
    return len(TOKEN.findall(code))


def shuffled(holes: list[Hole], row: PairRow | KernelRow) -> Iterator[Hole]:
    """Yield holes in an order that only the row's id and the holes decide.

    Node types take turns, so that sums and runs, of which there are most, leave room for what is
    rare; statements are drawn as they are, or each kernel would show its one store. The entry
    point's body comes before other bodies.
    """
    by_type: dict[str, list[tuple[str, Hole]]] = defaultdict(list)
    for hole in holes:
        key = f"{row['id']}:{hole.kind}:{hole.start}:{hole.end}"
        group = hole.kind if hole.kind == "statement" else hole.node
        by_type[group].append((hashlib.sha256(key.encode()).hexdigest(), hole))
    turns = [
        (hole.kind == "body" and hole.function != row["entry_point"], turn, point, hole)
        for group in by_type.values()
        for turn, (point, hole) in enumerate(sorted(group, key=lambda entry: entry[0]))
    ]
    for *_, hole in sorted(turns, key=lambda entry: entry[:3]):
        yield hole
