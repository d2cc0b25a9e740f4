"""What a family's own template makes of stored messages. TRL's wheel carries the templates."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import datasets
import jinja2
import pytest
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from curate.formats.chat import FAMILIES, FamilyName, messages_for

STORED = [
    {"role": "system", "content": "Write Triton.", "thinking": None},
    {"role": "user", "content": "Add one.", "thinking": None},
    {"role": "assistant", "content": "x + 1", "thinking": "A block adds one."},
]
TEMPLATES: dict[FamilyName, str] = {
    "gpt-oss": "gptoss.jinja",
    "qwen3": "qwen3.jinja",
    "llama3": "llama3.jinja",
}
ANSWERS: dict[FamilyName, str] = {
    "gpt-oss": "<|start|>assistant<|channel|>analysis<|message|>A block adds one.<|end|>"
    "<|start|>assistant<|channel|>final<|message|>x + 1<|return|>",
    "qwen3": "<|im_start|>assistant\n<think>\nA block adds one.\n</think>\n\nx + 1<|im_end|>\n",
    "llama3": "<|start_header_id|>assistant<|end_header_id|>\n\nx + 1<|eot_id|>",
}
INSTRUCTIONS: dict[FamilyName, str] = {
    "gpt-oss": "<|start|>developer<|message|># Instructions\n\nWrite Triton.",
    "qwen3": "<|im_start|>system\nWrite Triton.<|im_end|>",
    "llama3": "<|start_header_id|>system<|end_header_id|>\n\nWrite Triton.<|eot_id|>",
}


def render(messages: list[dict[str, Any]], family: FamilyName) -> str:
    """Render as `transformers` does: its settings of Jinja, and the functions that it gives."""
    found = importlib.util.find_spec("trl")  # not imported: the templates are plain files
    if found is None or found.origin is None:
        pytest.skip("TRL, whose wheel carries the templates, is not installed")
    text = Path(found.origin).with_name("chat_templates").joinpath(TEMPLATES[family]).read_text()
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.globals["strftime_now"] = lambda form: "2026-01-01"
    environment.globals["raise_exception"] = _raise
    return environment.from_string(text).render(messages=messages, bos_token="")


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_familys_template_shows_everything_it_has_a_place_for(family: FamilyName) -> None:
    text = render(messages_for(STORED, family), family)
    assert INSTRUCTIONS[family] in text
    assert text.endswith(ANSWERS[family])


def test_the_traps_are_real() -> None:
    """As stored, messages fail or lose their thoughts: what `messages_for` is there for."""
    thoughtless = [*STORED[:2], {**STORED[2], "thinking": None}]
    with pytest.raises(TypeError):
        render(thoughtless, "gpt-oss")
    assert render(messages_for(thoughtless, "gpt-oss"), "gpt-oss").endswith("x + 1<|return|>")
    assert "A block adds one." not in render(STORED, "qwen3")


@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_empty_is_left(family: FamilyName) -> None:
    shown = messages_for([{"role": "user", "content": "?", "thinking": "", "name": None}], family)
    assert shown == [{"role": "user", "content": "?"}]


def test_datasets_give_back_the_nulls_that_are_stripped() -> None:
    stored = datasets.Dataset.from_list([{"messages": STORED}])[0]["messages"]
    assert stored == STORED
    assert [sorted(message) for message in messages_for(stored, "qwen3")] == [
        ["content", "role"],
        ["content", "role"],
        ["content", "reasoning_content", "role"],
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_marker_in_a_text_is_refused(family: FamilyName) -> None:
    for marker in FAMILIES[family].markers:
        with pytest.raises(ValueError, match="reads as a marker"):
            messages_for([{"role": "user", "content": f"a {marker} b"}], family)


def test_openai_harmony_reads_what_the_template_writes() -> None:
    harmony = pytest.importorskip("openai_harmony")
    try:
        encoding = harmony.load_harmony_encoding("HarmonyGptOss")
    except harmony.HarmonyError as error:
        pytest.skip(f"the vocabulary is fetched from OpenAI: {error}")
    answer = ANSWERS["gpt-oss"].removeprefix("<|start|>assistant")
    tokens = encoding.encode(answer, allowed_special="all")
    parsed = encoding.parse_messages_from_completion_tokens(tokens, role=harmony.Role.ASSISTANT)
    assert [(m.channel, m.content[0].text) for m in parsed] == [
        ("analysis", "A block adds one."),
        ("final", "x + 1"),
    ]
