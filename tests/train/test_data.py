from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from rows import conversation, conversations, write_dataset
from transformers import PreTrainedTokenizerBase
from trl import SFTConfig, SFTTrainer

from curate.files import InputError
from curate.generate.models import load_model, load_tokenizer
from curate.train import data

HOLE = {"id": "hole", "prefix": "x = tl.load(p", "middle": " + i", "suffix": ")\n"}


@pytest.fixture
def tokenizer(tiny: str) -> PreTrainedTokenizerBase:
    return load_tokenizer(tiny)


def learned(row: dict[str, Any], tokenizer: PreTrainedTokenizerBase) -> str:
    """Return the text on which loss is taken, and check that the labels are the tokens."""
    pairs = [(i, x) for i, x in zip(row["input_ids"], row["labels"], strict=True) if x != -100]
    assert all(token == label for token, label in pairs)
    return tokenizer.decode([label for _, label in pairs])


# --- reading ----------------------------------------------------------------------------------


def test_a_split_is_all_its_files_in_order(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path, train=conversations(2))
    more = write_dataset(tmp_path / "more", train=[conversation("last", "a", "b")])
    (more / "messages/train-00000-of-00001.parquet").rename(
        folder / "messages/train-00001-of-00002.parquet"
    )
    rows = data.read_examples(str(folder), "messages", "train")
    assert rows is not None and rows["id"] == ["row0", "row1", "last"]
    assert data.read_examples(str(folder), "messages", "validation") is None


def test_a_recipe_names_its_data_set(tmp_path: Path) -> None:
    recipe = tmp_path / "r.yaml"
    recipe.write_text("name: kernels\nsources: []\n")
    with pytest.raises(InputError, match="make it with: curate run"):
        data.find_dataset(str(recipe), str(tmp_path))
    (tmp_path / "kernels").mkdir()
    assert data.find_dataset(str(recipe), str(tmp_path)) == str(tmp_path / "kernels")


@pytest.mark.parametrize("text", ["a: [", "- a\n", "named: x\n"])
def test_what_is_no_recipe_is_refused(tmp_path: Path, text: str) -> None:
    recipe = tmp_path / "r.yaml"
    recipe.write_text(text)
    with pytest.raises(InputError, match=r"r\.yaml"):
        data.find_dataset(str(recipe), str(tmp_path))


def test_a_file_of_rows_is_all_train_and_rows_without_id_are_numbered(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"prompt": "a", "completion": "b\u2028c"}, ensure_ascii=False))
    rows = data.read_examples(str(file), "messages", "train")
    assert rows is not None
    assert rows[0] == {"id": "row 1", "prompt": "a", "completion": "b\u2028c"}
    assert data.read_examples(str(file), "messages", "validation") is None
    expected = hashlib.sha256(file.read_bytes()).hexdigest()
    assert data.read_sha256(str(file), "messages") == {"rows.jsonl": expected}


def test_a_config_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    folder = write_dataset(tmp_path, train=conversations(1))
    with pytest.raises(InputError, match="no rows of 'fim' to train on; there is messages"):
        data.read_examples(str(folder), "fim", "train")


@pytest.mark.parametrize(
    ("content", "says"),
    [("{", "is no table of rows"), ("[1]", "is no table of rows"), ('{"a": 1}', "by column")],
)
def test_a_file_that_holds_no_rows_is_refused(tmp_path: Path, content: str, says: str) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(content)
    with pytest.raises(InputError, match=says):
        data.read_examples(str(file), "messages", "train")


@pytest.mark.parametrize("path", ["/nowhere", "./nowhere", "a/b/c", "nowhere.parquet"])
def test_a_path_that_is_not_there_is_not_looked_for_on_the_hub(path: str) -> None:
    with pytest.raises(InputError, match="no such file or folder"):
        data.read_examples(path, "messages", "train")


# --- what is learned --------------------------------------------------------------------------


def test_loss_is_taken_on_the_last_answer_only(tokenizer: PreTrainedTokenizerBase) -> None:
    row = conversation("repair", "Write it.", "wrong")
    row["messages"] += [
        {"role": "user", "content": "It fails."},
        {"role": "assistant", "content": "right"},
    ]
    [tokens] = data.tokenize(Dataset.from_list([row]), tokenizer)
    assert learned(tokens, tokenizer) == "right<|im_end|>\n"
    assert "wrong" in tokenizer.decode(tokens["input_ids"])
    assert tokens["length"] == len(tokens["input_ids"])
    assert tokens["learned"] == sum(label != -100 for label in tokens["labels"])


def test_plain_completions_end_with_the_end_token(tokenizer: PreTrainedTokenizerBase) -> None:
    rows = Dataset.from_list([{"id": "a", "prompt": "PyTorch:\n", "completion": "Triton\n"}])
    [tokens] = data.tokenize(rows, tokenizer)
    assert learned(tokens, tokenizer) == "Triton\n<|im_end|>"


def test_holes_are_asked_for_in_words_without_markers(tokenizer: PreTrainedTokenizerBase) -> None:
    [tokens] = data.tokenize(Dataset.from_list([HOLE]), tokenizer)
    assert learned(tokens, tokenizer) == " + i<|im_end|>\n"
    assert "x = tl.load(p<MISSING>)" in tokenizer.decode(tokens["input_ids"])


@pytest.mark.parametrize(
    ("markers", "family", "prompt"),
    [
        (
            ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"],
            "qwen-coder",
            "<|fim_prefix|>x = tl.load(p<|fim_suffix|>)\n<|fim_middle|>",
        ),
        (["[SUFFIX]", "[PREFIX]"], "codestral", "[SUFFIX])\n[PREFIX]x = tl.load(p"),
        (["\u2581<PRE>", "\u2581<SUF>", "\u2581<MID>"], "codellama", "<PRE> x = tl.load(p <SUF>"),
    ],
)
def test_holes_are_marked_as_the_model_knows_them(
    tokenizer: PreTrainedTokenizerBase, markers: list[str], family: str, prompt: str
) -> None:
    tokenizer.add_special_tokens({"additional_special_tokens": markers})
    assert data.fim_family(tokenizer) == family
    example = data.as_example(HOLE, tokenizer)
    assert example["prompt"].startswith(prompt)
    assert example["completion"].startswith(" + i")


def test_a_conversation_without_an_answer_is_refused(tokenizer: PreTrainedTokenizerBase) -> None:
    row = conversation("unanswered", "Write it.", "")
    row["messages"].pop()
    with pytest.raises(InputError, match="row unanswered"):
        data.as_example(row, tokenizer)


def test_conversations_need_a_chat_template(tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer.chat_template = None
    with pytest.raises(InputError, match="no chat template"):
        data.tokenize(Dataset.from_list(conversations(1)), tokenizer)


def test_tokens_and_labels_are_those_of_trl(
    tiny: str, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    plain = [{"id": "a", "prompt": "PyTorch:\n", "completion": "Triton\n"}]
    for rows in (Dataset.from_list(conversations(2)), Dataset.from_list(plain)):
        ours = data.tokenize(rows, tokenizer)
        examples = Dataset.from_list([data.as_example(row, tokenizer) for row in rows])
        config = SFTConfig(str(tmp_path), max_length=None, use_cpu=True, bf16=False)
        theirs = SFTTrainer(
            load_model(tiny), config, train_dataset=examples, processing_class=tokenizer
        ).train_dataset
        assert ours["input_ids"] == theirs["input_ids"]
        assert ours["labels"] == theirs["labels"]


# --- lengths ----------------------------------------------------------------------------------


def test_rows_that_are_too_long_are_left_out_and_named(tokenizer: PreTrainedTokenizerBase) -> None:
    rows = [*conversations(2), conversation("long", "Write it.", "x" * 300)]
    tokens = data.tokenize(Dataset.from_list(rows), tokenizer)
    limit = max(tokens["length"][:2])
    fitted = data.fit(tokens, limit, truncate=False)
    assert fitted.rows["id"] == ["row0", "row1"]
    assert fitted.dropped == {"long": tokens["length"][2]} and not fitted.cut
    assert fitted.longest == limit
    assert fitted.tokens == sum(tokens["length"][:2])


def test_rows_are_cut_where_that_is_asked_for(tokenizer: PreTrainedTokenizerBase) -> None:
    rows = [
        *conversations(1),
        conversation("long answer", "Write it.", "x" * 300),
        conversation("long question", "x" * 300, "No."),
    ]
    tokens = data.tokenize(Dataset.from_list(rows), tokenizer)
    lengths = tokens["length"]
    limit = lengths[0]
    fitted = data.fit(tokens, limit, truncate=True)
    assert fitted.rows["length"] == [limit, limit]
    assert fitted.cut == {"long answer": lengths[1]}
    assert fitted.dropped == {"long question": lengths[2]}, "there is nothing of it to learn"
    assert fitted.learned == sum(x != -100 for labels in fitted.rows["labels"] for x in labels)
