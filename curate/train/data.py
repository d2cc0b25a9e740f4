"""Read a data set, and turn its rows into tokens to learn and tokens that are only read.

A row becomes a prompt and a completion, TRL's prompt-completion form, in which loss is taken on the
completion only, whatever the chat template. A conversation's completion is its last message: in a
conversation about a wrong kernel the earlier answers are what must not be learned.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.files import InputError, file_sha256
from curate.formats.fim.fim_tokens import FAMILIES, FamilyName, render_fim
from curate.shipped.find import find_recipe
from curate.teacher.template import fence

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

FORMS = {
    "messages": ("messages",),
    "fim": ("prefix", "middle", "suffix"),
    "conversion": ("prompt", "completion"),
}
"""The columns by which a view is known; the first whose columns are all there counts."""

SUFFIXES = (".jsonl", ".parquet")
"""How files of rows end."""

IGNORED = -100
"""The label of a token on which no loss is taken, as PyTorch's cross entropy has it."""

HOLE = "<MISSING>"
FIM_QUESTION = f"""\
Write the code that stands in place of `{HOLE}` in this file. Answer with that code alone.
"""
"""How a model without markers for it is asked to fill in the middle."""


# --- reading ----------------------------------------------------------------------------------


def find_dataset(path: str, output: str) -> str:
    """Return where a data set is: the folder of a recipe's, or the path or name as it is.

    Args:
        path: a recipe, a folder that `curate run` wrote, a .jsonl or .parquet file, or a name on
            the Hub.
        output: the folder in which `curate run` wrote a recipe's data set.

    Raises:
        InputError: there is no such thing.
    """
    file = Path(path) if Path(path).is_dir() else find_recipe(Path(path))
    if file.suffix not in (".yaml", ".yml"):
        return path
    import yaml

    try:
        recipe = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    if not isinstance(recipe, dict) or not isinstance(recipe.get("name"), str):
        raise InputError(f"{path}: is not a recipe: it has no name")
    folder = Path(output) / recipe["name"]
    if not folder.is_dir():
        raise InputError(f"{path}: {folder} is not there yet; make it with: curate run {path}")
    return str(folder)


def data_files(path: str, config: str, split: str) -> list[Path]:
    """Return the files that hold a split of a local data set, in order; none if it has none."""
    local = Path(path)
    if local.is_file():
        return [local] if split == "train" else []
    return sorted((local / config).glob(f"{split}-*.parquet"))


def read_examples(path: str, config: str, split: str) -> Dataset | None:
    """Return a split with the columns of one of `FORMS` and ``id``; None if it has no rows.

    Args:
        path: as `find_dataset` returns it.
        config: of a data set with several views.
        split: ``train``, ``validation`` or ``test``; a single file is all ``train``.

    Raises:
        InputError: there is no such data set or config, or it cannot be read.
    """
    local = Path(path)
    if local.exists():
        files = data_files(path, config, split)
        if local.is_dir() and not data_files(path, config, "train"):
            raise InputError(f"{path}: has no rows of '{config}' to train on{_configs(local)}")
        rows = _from_files(files) if files else None
    else:
        rows = _from_hub(path, config, split)
    if rows is None or not len(rows):
        return None
    form = next((f for f in FORMS.values() if set(f) <= set(rows.column_names)), None)
    if form is None:
        known = "; ".join(f"{name}: {', '.join(columns)}" for name, columns in FORMS.items())
        raise InputError(f"{path}: '{config}' is nothing to train on. What is, by column: {known}")
    if "id" not in rows.column_names:
        rows = rows.add_column("id", [f"row {number}" for number in range(1, len(rows) + 1)])
    return rows.select_columns(["id", *form])


def _from_files(files: list[Path]) -> Dataset:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from datasets import Dataset

    try:
        if files[0].suffix == ".parquet":
            return Dataset(pa.concat_tables(map(pq.read_table, files)))
        lines = files[0].read_text(encoding="utf-8").split("\n")
        return Dataset.from_list([json.loads(line) for line in lines if line.strip()])
    except (OSError, ValueError, AttributeError, pa.ArrowException) as error:
        raise InputError(f"{files[0]}: is no table of rows: {error}") from error


def _from_hub(path: str, config: str, split: str) -> Dataset | None:
    import datasets

    if path.startswith((".", "/", "~")) or path.count("/") > 1 or path.endswith(SUFFIXES):
        raise InputError(f"{path}: there is no such file or folder")
    try:
        if split not in datasets.get_dataset_split_names(path, config):
            return None
        return datasets.load_dataset(path, config, split=split)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: is not here, and not to be had from the Hub: {error}") from error


def _configs(folder: Path) -> str:
    """Return the configs that a folder has rows of, in words."""
    found = sorted({file.parent.name for file in folder.glob("*/train-*.parquet")})
    return f"; there is {', '.join(found)}" if found else ": no `curate run` wrote this folder"


def read_sha256(path: str, config: str) -> dict[str, str]:
    """Return the sha256 of every file of a local data set that is trained with, by its path."""
    files = [f for split in ("train", "validation") for f in data_files(path, config, split)]
    root = Path(path) if Path(path).is_dir() else Path(path).parent
    return {file.relative_to(root).as_posix(): file_sha256(file) for file in files}


# --- what a model is shown --------------------------------------------------------------------


def as_example(row: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """Return the prompt and the completion that a row becomes: both texts, or both messages.

    Fill-in-the-middle rows are written with the markers of the tokenizer's family, in the first of
    its orders. Where it has no such markers, the model is asked in words.

    Raises:
        InputError: the row is a conversation that does not end with an answer.
    """
    if "messages" in row:
        messages = [{k: v for k, v in turn.items() if v is not None} for turn in row["messages"]]
        if len(messages) < 2 or messages[-1]["role"] != "assistant":
            raise InputError(f"row {row['id']}: its conversation does not end with an answer")
        return {"prompt": messages[:-1], "completion": messages[-1:]}
    if "middle" not in row:
        return {"prompt": row["prompt"], "completion": row["completion"]}
    if family := fim_family(tokenizer):
        return dict(render_fim(row, family, next(iter(FAMILIES[family].prompt))))
    asked = f"{FIM_QUESTION}\n{fence(row['prefix'] + HOLE + row['suffix'])}"
    return {
        "prompt": [{"role": "user", "content": asked}],
        "completion": [{"role": "assistant", "content": row["middle"]}],
    }


def fim_family(tokenizer: PreTrainedTokenizerBase) -> FamilyName | None:
    """Return the family whose markers a tokenizer knows as single tokens; None if there is none."""
    known = tokenizer.get_vocab()
    for name, family in FAMILIES.items():
        prompt = next(iter(family.prompt.values()))
        markers = re.sub(r"\{\w+\}", " ", prompt).split()
        # SentencePiece writes the space before CodeLlama's markers as part of them.
        if all(marker in known or f"\u2581{marker}" in known for marker in markers):
            return name
    return None


def tokenize(rows: Dataset, tokenizer: PreTrainedTokenizerBase) -> Dataset:
    """Return rows as ``id``, ``input_ids`` and ``labels``, as TRL's `SFTTrainer` makes them.

    Two more columns say how many tokens a row has, ``length``, and on how many of them loss is
    taken, ``learned``.

    Raises:
        InputError: rows are conversations, and the tokenizer has no chat template.
    """
    from trl.data_utils import common_prefix_length

    def encode(row: dict[str, Any]) -> dict[str, Any]:
        prompt, whole = _encode(as_example(row, tokenizer), tokenizer)
        read = common_prefix_length(prompt, whole)
        return _measured(whole, [IGNORED] * read + whole[read:])

    columns = [name for name in rows.column_names if name != "id"]
    return rows.map(encode, remove_columns=columns, desc="tokenizing")


def _measured(ids: list[int], labels: list[int]) -> dict[str, Any]:
    learned = sum(label != IGNORED for label in labels)
    return {"input_ids": ids, "labels": labels, "length": len(ids), "learned": learned}


def _encode(
    example: dict[str, Any], tokenizer: PreTrainedTokenizerBase
) -> tuple[list[int], list[int]]:
    """Return the tokens of an example's prompt, and of all of it."""
    prompt, completion = example["prompt"], example["completion"]
    if isinstance(prompt, str):
        end = str(tokenizer.eos_token)
        if not completion.endswith(end):
            completion += end
        return tokenizer(prompt)["input_ids"], tokenizer(prompt + completion)["input_ids"]
    if tokenizer.chat_template is None:
        raise InputError(
            "the model has no chat template, and these rows are conversations; "
            "choose an instruct model, or --config conversion"
        )
    prompt_ids = tokenizer.apply_chat_template(prompt, add_generation_prompt=True)
    return prompt_ids["input_ids"], tokenizer.apply_chat_template(prompt + completion)["input_ids"]


# --- lengths ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fitted:
    """Rows that are no longer than they may be, and what became of those that were.

    Attributes:
        rows: as `tokenize` returns them.
        dropped: tokens of every row that was left out, by id.
        cut: tokens that every row that was cut had before, by id.
    """

    rows: Dataset
    dropped: dict[str, int]
    cut: dict[str, int]

    @property
    def longest(self) -> int:
        """Tokens of the longest row."""
        return int(max(self.rows["length"]))

    @property
    def tokens(self) -> int:
        """Tokens of all rows."""
        return sum(self.rows["length"])

    @property
    def learned(self) -> int:
        """Tokens on which loss is taken, in one pass over the rows."""
        return sum(self.rows["learned"])


def fit(rows: Dataset, max_length: int, truncate: bool) -> Fitted:
    """Leave out rows of more than ``max_length`` tokens; with ``truncate`` cut their ends off.

    A row whose completion would be cut off whole is left out in any case.
    """
    over = {
        name: length
        for name, length in zip(rows["id"], rows["length"], strict=True)
        if length > max_length
    }
    if truncate:
        rows = rows.map(
            lambda row: _measured(row["input_ids"][:max_length], row["labels"][:max_length]),
            desc="cutting",
        )
    kept = rows.filter(lambda row: row["length"] <= max_length and row["learned"])
    left = set(kept["id"])
    return Fitted(
        rows=kept,
        dropped={name: length for name, length in over.items() if name not in left},
        cut={name: length for name, length in over.items() if name in left},
    )
