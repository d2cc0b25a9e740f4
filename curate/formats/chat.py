"""Conversations in the words of one family of models, for its chat template.

Data sets hold messages as plain structs (role, content and, where a teacher thought aloud,
thinking), in which a field that a message lacks is null. Templates differ in the role that
instructions have and in the key under which they look for thoughts, and they read a key that they
do not know, or a null, in ways of their own: gpt-oss fails on ``thinking: None`` and leaves out
``reasoning_content``; Qwen3 writes an empty thought for ``thinking``. So this is the last step
before a template, never before storage::

    text = tokenizer.apply_chat_template(messages_for(row["messages"], "gpt-oss"), tokenize=False)

=======  ========================================================================================
gpt-oss  https://cookbook.openai.com/articles/openai-harmony: instructions are the developer's, the
         thoughts of the last turn alone are shown, on the channel ``analysis``
qwen3    https://huggingface.co/docs/transformers/main/chat_templating: ``reasoning_content``
llama3   https://www.llama.com/docs/model-cards-and-prompt-formats: no place for thoughts
=======  ========================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

FamilyName = Literal["gpt-oss", "qwen3", "llama3"]


@dataclass(frozen=True)
class Family:
    """What one family's chat template reads.

    Attributes:
        system: the role of instructions.
        thinking: the key of thoughts; None where there is none.
        markers: texts that its tokenizer reads as the end or the start of a message.
    """

    system: str
    thinking: str | None
    markers: tuple[str, ...]


FAMILIES: dict[FamilyName, Family] = {
    "gpt-oss": Family(
        system="developer",
        thinking="thinking",
        markers=(
            *("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>"),
            *("<|return|>", "<|call|>"),
        ),
    ),
    "qwen3": Family(
        system="system",
        thinking="reasoning_content",
        markers=("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>"),
    ),
    "llama3": Family(
        system="system",
        thinking=None,
        markers=(
            *("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>"),
            *("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"),
        ),
    ),
}


def messages_for(
    messages: Iterable[Mapping[str, str | None]], family: FamilyName
) -> list[dict[str, str]]:
    """Return messages with the roles and keys of a family, and no key that is empty.

    Thoughts are left out where the family has no place for them.

    Raises:
        ValueError: a text holds one of the family's markers, which its tokenizer would obey.
    """
    form = FAMILIES[family]
    keys = {"role": "role", "content": "content", "thinking": form.thinking}
    shown = []
    for message in messages:
        given = {keys.get(key, key): value for key, value in message.items() if value}
        kept = {key: value for key, value in given.items() if key is not None}
        for text in kept.values():
            if marker := next((marker for marker in form.markers if marker in text), None):
                raise ValueError(f"a message holds {marker}, which {family} reads as a marker")
        if kept["role"] == "system":
            kept["role"] = form.system
        shown.append(kept)
    return shown
