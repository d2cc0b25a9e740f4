"""Conversations in the form that one family of models, and its chat template, expects.

Templates differ in the role of instructions and in the key of thoughts, and read a key that they
do not know, or a null, in their own ways: gpt-oss fails on ``thinking: None`` and leaves out
``reasoning_content``; Qwen3 writes an empty thought for ``thinking``. Newer releases of
`transformers` rename the key, others do not.

=======  ========================================================================================
gpt-oss  OpenAI's Harmony, https://cookbook.openai.com/articles/openai-harmony: instructions are the
         developer's; only the thoughts of the last turn are shown, on the channel ``analysis``
qwen3    https://huggingface.co/docs/transformers/main/chat_templating: ``reasoning_content``
llama3   https://www.llama.com/docs/model-cards-and-prompt-formats: no place for thoughts
=======  ========================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

ChatFamilyName = Literal["gpt-oss", "qwen3", "llama3"]


@dataclass(frozen=True)
class ChatFamily:
    """What one family's chat template reads.

    Attributes:
        system: the role of instructions.
        thinking: the key of thoughts; None where there is none.
        markers: texts that its tokenizer reads as the end or the start of a message.
    """

    system: str
    thinking: str | None
    markers: tuple[str, ...]


CHAT_FAMILIES: dict[ChatFamilyName, ChatFamily] = {
    "gpt-oss": ChatFamily(
        system="developer",
        thinking="thinking",
        markers=(
            *("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>"),
            *("<|return|>", "<|call|>"),
        ),
    ),
    "qwen3": ChatFamily(
        system="system",
        thinking="reasoning_content",
        markers=("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>"),
    ),
    "llama3": ChatFamily(
        system="system",
        thinking=None,
        markers=(
            *("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>"),
            *("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"),
        ),
    ),
}


def find_chat_marker(
    messages: Iterable[Mapping[str, str | None]], family: ChatFamilyName
) -> str | None:
    """Return a marker of a family that a message holds and its tokenizer would obey, or None."""
    texts = [text for message in messages for text in message.values() if text]
    markers = CHAT_FAMILIES[family].markers
    return next((m for m in markers if any(m in text for text in texts)), None)


def messages_for(
    messages: Iterable[Mapping[str, str | None]], family: ChatFamilyName
) -> list[dict[str, str]]:
    """Return messages with the roles and keys of a family, and no key that is empty.

    Thoughts, under ``thinking``, are left out where the family has no place for them.
    """
    form = CHAT_FAMILIES[family]
    keys = {"role": "role", "content": "content", "thinking": form.thinking}
    shown = []
    for message in messages:
        given = {keys.get(key, key): value for key, value in message.items() if value}
        kept = {key: value for key, value in given.items() if key is not None}
        if kept["role"] == "system":
            kept["role"] = form.system
        shown.append(kept)
    return shown
