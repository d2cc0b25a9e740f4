"""What a family's own template makes of stored messages. TRL's wheel carries the templates."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import datasets
import pytest
from test_answers import answer
from test_views import Recipe
from transformers.utils.chat_template_utils import render_jinja_template
from trl.trainer.utils import remove_none_values

from curate.engine.processes.local import LocalExecutor
from curate.engine.run import Walk
from curate.formats.chat import CHAT_FAMILIES, ChatFamilyName, find_chat_marker, messages_for
from curate.formats.dataset.write import write_dataset
from curate.formats.messages import Messages

STORED = [
    {"role": "system", "content": "Write Triton.", "thinking": None},
    {"role": "user", "content": "Add one.", "thinking": None},
    {"role": "assistant", "content": "x + 1", "thinking": "A block adds one."},
]
TEMPLATES: dict[ChatFamilyName, str] = {
    "gpt-oss": "gptoss.jinja",
    "qwen3": "qwen3.jinja",
    "llama3": "llama3.jinja",
}
ANSWERS: dict[ChatFamilyName, str] = {
    "gpt-oss": "<|start|>assistant<|channel|>analysis<|message|>A block adds one.<|end|>"
    "<|start|>assistant<|channel|>final<|message|>x + 1<|return|>",
    "qwen3": "<|im_start|>assistant\n<think>\nA block adds one.\n</think>\n\nx + 1<|im_end|>\n",
    "llama3": "<|start_header_id|>assistant<|end_header_id|>\n\nx + 1<|eot_id|>",
}
INSTRUCTIONS: dict[ChatFamilyName, str] = {
    "gpt-oss": "<|start|>developer<|message|># Instructions\n\nWrite Triton.",
    "qwen3": "<|im_start|>system\nWrite Triton.<|im_end|>",
    "llama3": "<|start_header_id|>system<|end_header_id|>\n\nWrite Triton.<|eot_id|>",
}


def render(messages: list[dict[str, Any]], family: ChatFamilyName) -> str:
    """Render as `transformers` does."""
    found = importlib.util.find_spec("trl")  # not imported: the templates are plain files
    if found is None or found.origin is None:
        pytest.skip("TRL, whose wheel carries the templates, is not installed")
    text = Path(found.origin).with_name("chat_templates").joinpath(TEMPLATES[family]).read_text()
    (shown,), _ = render_jinja_template([messages], chat_template=text, bos_token="")
    return str(shown)


@pytest.mark.parametrize("family", CHAT_FAMILIES)
def test_the_familys_template_shows_everything_it_has_a_place_for(family: ChatFamilyName) -> None:
    text = render(messages_for(STORED, family), family)
    assert INSTRUCTIONS[family] in text
    assert text.endswith(ANSWERS[family])


def test_gpt_oss_fails_on_a_null() -> None:
    thoughtless = [*STORED[:2], {**STORED[2], "thinking": None}]
    with pytest.raises(TypeError):
        render(thoughtless, "gpt-oss")
    assert render(messages_for(thoughtless, "gpt-oss"), "gpt-oss").endswith("x + 1<|return|>")


@pytest.mark.parametrize("family", CHAT_FAMILIES)
def test_nothing_empty_is_left(family: ChatFamilyName) -> None:
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


@pytest.mark.parametrize("family", CHAT_FAMILIES)
def test_a_marker_in_a_text_is_found(family: ChatFamilyName) -> None:
    for marker in CHAT_FAMILIES[family].markers:
        said = [{"role": "user", "content": "?"}, {"role": "user", "content": f"a {marker} b"}]
        assert find_chat_marker(said, family) == marker
    assert find_chat_marker(STORED, family) is None


THOUGHT = "<think>\nA block adds one.\n</think>\n\nx + 1"


def loaded(
    folder: Path, answers: dict[str, str], family: ChatFamilyName | None
) -> datasets.DatasetDict:
    """Return the view of a teacher's answers, one per split, as `datasets` loads it."""
    rows = [
        answer(
            *(None, None),
            triton=None,
            split=split,
            turns=[{"role": "user", "content": "Add one."}, {"role": "assistant", "content": text}],
        )
        for split, text in answers.items()
    ]
    recipe = Recipe([{**row, "id": row["split"]} for row in rows])
    recipe.formats = [Messages(format="messages", system="Write Triton.", family=family)]
    walk = Walk(recipe, folder, LocalExecutor(1))
    write_dataset(walk, walk.run())
    return datasets.load_dataset(str(walk.folder), "messages", cache_dir=str(folder / "hf"))


@pytest.mark.parametrize("family", CHAT_FAMILIES)
def test_a_view_goes_through_the_familys_template_as_it_is(
    family: ChatFamilyName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for name, text in (("thoughts", THOUGHT), ("none", "x + 1")):
        found = loaded(tmp_path / name, {"train": text, "test": text}, family)
        for split in found.values():
            messages = split[0]["messages"]
            shown = render(messages, family)
            if name == "thoughts":
                # The other messages have the key as well, and null there.
                bare = remove_none_values(messages)
                assert render(bare, family) == shown and shown.endswith(ANSWERS[family])
            else:
                assert not {key for turn in messages for key in turn} - {"role", "content"}
                assert shown == render(messages_for(messages, family), family)
            assert INSTRUCTIONS[family] in shown


def test_thoughts_in_one_split_give_all_splits_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    found = loaded(tmp_path, {"train": THOUGHT, "test": "x + 1"}, "gpt-oss")
    assert found["train"][0]["messages"][-1]["thinking"] == "A block adds one."
    stored = found["test"][0]["messages"]
    assert stored[-1] == {"role": "assistant", "content": "x + 1", "thinking": None}
    bare = found["test"].with_transform(remove_none_values)[0]["messages"]
    assert render(bare, "gpt-oss").endswith("x + 1<|return|>")


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
