"""What endpoints say when they give no answer: what it means, and without the key that it shows."""

from __future__ import annotations

TOO_LONG = ("context_length_exceeded", "exceed_context_size_error", "context length")
"""Words by which servers say that a conversation is too long for the model."""

SECRET_LENGTH = 16
"""Characters from which a key is one: a shorter one is a word for servers that ask for none."""


def says_too_long(text: str) -> bool:
    """Tell whether an error's code and message say that a conversation is too long."""
    return any(word in text for word in TOO_LONG)


def hide_key(text: str, key: str) -> str:
    """Return a text with no key in it."""
    return text if len(key) < SECRET_LENGTH else text.replace(key, "[OPENAI_API_KEY]")
