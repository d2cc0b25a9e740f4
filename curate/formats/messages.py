"""The ``messages`` format: one conversation per row, as TRL's conversational form wants it.

Messages are plain structs (role, content): every `datasets` from 4.0 on loads them, and no chat
template meets a key that it does not know. With a ``family`` they have that family's role of
instructions and its key of thoughts (`curate.formats.chat`). A config in which no row has thoughts
lacks the key (`curate.formats.dataset.write`).
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import pyarrow as pa
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from curate.formats.chat import CHAT_FAMILIES, ChatFamilyName, find_chat_marker, messages_for
from curate.formats.described import DESCRIBED, described
from curate.formats.format import PROOF, FormatWithExamples, View, proof
from curate.formats.prompts.question import SYSTEM, asked, question
from curate.rows import TURN, Loose, PairRow, SampleRow
from curate.step import Drop, Keep
from curate.teacher.program import split_thinking
from curate.teacher.template import fence


class Messages(FormatWithExamples):
    """System, user and assistant turns: the PyTorch module in, the Triton program out.

    A teacher's best answer to each question is shown in its own words, and so is text, which
    nothing judges.
    """

    version: ClassVar[int] = 5
    kinds: ClassVar[frozenset[str]] = frozenset({"pair", "sample"})
    keeps_empty: ClassVar[bool] = False

    format: Literal["messages"]
    system: Annotated[str, Field(description="The system message; empty leaves it out.")] = SYSTEM
    instruction: Annotated[
        str | None,
        Field(
            description="What stands above the PyTorch code in the user's message; by default one "
            "of a dozen wordings or KernelBench's order, drawn by the row's id, with what its "
            "program keeps to, and in half of the rows a program of another operator."
        ),
    ] = None
    family: Annotated[
        ChatFamilyName | None,
        Field(
            description="Writes roles and thoughts as this family of models expects them; gpt-oss "
            "is OpenAI's Harmony. Thoughts in tags go under the family's key, or are left out "
            "where it has none. By default answers stay as they are."
        ),
    ] = None

    @model_serializer(mode="wrap")
    def _dump(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out a family that is not given: the identity of such data sets has none."""
        fields: dict[str, Any] = dump(self)
        return fields if self.family else {k: v for k, v in fields.items() if k != "family"}

    def columns(self) -> pa.Schema:
        thinking = CHAT_FAMILIES[self.family].thinking if self.family else None
        turn = pa.struct([*TURN, (thinking, pa.string())]) if thinking else TURN
        return pa.schema([("messages", pa.list_(turn)), *PROOF, *DESCRIBED])

    def render(self, row: PairRow | SampleRow) -> View:
        example = None
        if row["kind"] == "sample":
            if row["triton"] is not None and row["sample"]["selection"] != "best":
                return Drop("not_best")
            turns = row["turns"]
        else:
            if self.instruction:
                prompt = question(row["reference"], self.instruction)
            else:
                example = self._examples.for_row(row)
                prompt = asked(row, example)
            turns = [
                {"role": "user", "content": prompt},
                {"role": "assistant", "content": fence(row["triton"])},
            ]
        system = [{"role": "system", "content": self.system}] if self.system else []
        messages: list[Loose] = [*system, *map(dict, turns)]
        if self.family:
            messages = [_with_thoughts(turn) for turn in messages]
            if not messages[-1]["content"].strip():
                return Drop("thoughts_only")
            if marker := find_chat_marker(messages, self.family):
                return Drop("chat_marker", {"marker": marker})
            messages = list(messages_for(messages, self.family))
        facts = described(row, messages, example)
        return Keep(({"messages": messages, **proof(row, example), **facts},))


def _with_thoughts(turn: Loose) -> Loose:
    """Return a turn with the thoughts of an assistant apart from what follows them."""
    if turn["role"] != "assistant":
        return turn
    thoughts, content = split_thinking(turn["content"])
    if not thoughts and content == turn["content"]:
        return turn
    return {**turn, "content": content.lstrip("\n"), "thinking": thoughts}
