"""What is known of a training before the model is loaded: its rows, their lengths, its memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.files import InputError, write_atomically
from curate.generate.models import check_four_bits, default_device, load_tokenizer
from curate.train import data, memory
from curate.train.memory import Facts, MemoryEstimate
from curate.train.options import TrainOptions

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

RECORD = "training.json"
"""The file in a trained model's folder that says how it came about."""

ROUND = 64
"""The longest row's tokens are rounded up to a multiple of this."""

NAMED = 5
"""Rows that a line names; `RECORD` names all."""


@dataclass(frozen=True)
class Prepared:
    """A training that can start.

    Attributes:
        options: as they were given.
        device: where it runs, such as ``cuda:0``.
        tokenizer: of the model.
        facts: of the model.
        rows: fitted rows by split: ``train``, and ``validation`` where there are some.
        max_length: tokens that a sequence may have.
        longest: tokens of the longest sequence that there is.
        sha256: of the data set's files, by path; empty for one on the Hub.
        estimate: of the memory that it takes.
    """

    options: TrainOptions
    device: str
    tokenizer: PreTrainedTokenizerBase
    facts: Facts
    rows: dict[str, data.Fitted]
    max_length: int
    longest: int
    sha256: dict[str, str]
    estimate: MemoryEstimate

    def lines(self) -> Iterator[str]:
        """Yield what is going to be trained on and what it takes, in words."""
        for split, fitted in self.rows.items():
            yield (
                f"{split}: {len(fitted.rows):,} rows of up to {fitted.longest:,} tokens, "
                f"{fitted.tokens:,} in all; loss on {fitted.learned:,} of them"
            )
            if fitted.dropped:
                yield f"  left out, longer than {self.max_length:,}: {_names(fitted.dropped)}"
            if fitted.cut:
                lost = sum(fitted.cut.values()) - len(fitted.cut) * self.max_length
                yield f"  cut at {self.max_length:,}, {lost:,} tokens lost: {_names(fitted.cut)}"
        if "validation" not in self.rows:
            yield "validation: no rows; the last checkpoint is kept, not the best"
        yield f"memory on {self.device}, estimated: {self.estimate.line()}"


def _names(rows: dict[str, int]) -> str:
    """Return the number of rows and the names of some, with their tokens."""
    names = [f"{name} ({length:,})" for name, length in list(rows.items())[:NAMED]]
    more = f" and {len(rows) - NAMED:,} more" if len(rows) > NAMED else ""
    return f"{len(rows):,} rows: {', '.join(names)}{more}"


def prepare(options: TrainOptions) -> Prepared:
    """Read and measure what a training needs.

    Raises:
        ModelError: there is no such model, or its training would not fit into memory.
        InputError: there is no such data set, or no row of it can be trained on.
    """
    if options.method == "qlora":
        check_four_bits(options.model)
    facts = memory.model_facts(options.model)
    device = default_device()
    tokenizer = load_tokenizer(options.model)
    source = data.find_dataset(options.dataset, options.data)
    tokens = {}
    for split in ("train", "validation"):
        examples = data.read_examples(source, options.config, split)
        if examples is not None:
            tokens[split] = data.tokenize(examples, tokenizer)
    if "train" not in tokens:
        raise InputError(f"{source}: the split train of '{options.config}' has no rows")
    limit = _max_length(options, facts, max(max(t["length"]) for t in tokens.values()))
    rows = {split: data.fit(t, limit, options.truncate) for split, t in tokens.items()}
    if not len(rows["train"].rows):
        raise InputError(f"{source}: every row has more than {limit:,} tokens")
    rows = {split: fitted for split, fitted in rows.items() if len(fitted.rows)}
    longest = limit if options.packing else max(f.longest for f in rows.values())
    return Prepared(
        options=options,
        device=device,
        tokenizer=tokenizer,
        facts=facts,
        rows=rows,
        max_length=limit,
        longest=longest,
        sha256=data.read_sha256(source, options.config),
        estimate=memory.check(facts, options, longest, device, memory.free_bytes(device)),
    )


def _max_length(options: TrainOptions, facts: Facts, longest: int) -> int:
    """Return the tokens that a row may have."""
    if options.max_length is None:
        return min(-(-longest // ROUND) * ROUND, facts.context)
    if options.max_length > facts.context:
        raise InputError(
            f"{options.model}: reads at most {facts.context:,} tokens, "
            f"--max-length {options.max_length:,} is more"
        )
    return options.max_length


# --- the folder -------------------------------------------------------------------------------


def claim(folder: Path, begun: dict[str, Any]) -> dict[str, Any] | None:
    """Take a training's folder; return its record if it is finished already, and None if not.

    Args:
        folder: what `TrainOptions.output` says.
        begun: what makes this training no other, as `identity` returns it.

    Raises:
        InputError: the folder holds something else, or a training of other options or rows.
    """
    from accelerate import PartialState

    with PartialState().main_process_first():  # where several train together
        return _claim(folder, begun)


def _claim(folder: Path, begun: dict[str, Any]) -> dict[str, Any] | None:
    if (folder / RECORD).is_file():
        record: dict[str, Any] = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        if changed := list(_changes(record, begun)):
            raise InputError(
                f"{folder}: holds another training ({', '.join(changed)}); choose another folder"
            )
        return record if "seconds" in record else None
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder}: is not empty, and holds no training; choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    write_record(folder, begun)
    return None


def identity(prepared: Prepared) -> dict[str, Any]:
    """Return what makes a training this one and no other, as JSON values."""
    options = prepared.options.to_json()
    del options["output"]  # a folder may be moved
    return {"options": options, "files": prepared.sha256}


def write_record(folder: Path, record: dict[str, Any]) -> None:
    """Write a training's record; one that is there is replaced at once or not at all."""
    text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
    write_atomically(folder / RECORD, text.encode())


def _changes(record: dict[str, Any], begun: dict[str, Any]) -> Iterator[str]:
    """Yield, in words, how a training that begins differs from one that is recorded."""
    if record.get("files") != begun["files"]:
        yield "other rows"
    old = record.get("options", {})
    for name, value in begun["options"].items():
        if old.get(name) != value:
            yield f"{name} {old.get(name)}, not {value}"
