from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from rows import conversation, conversations, write_dataset

from curate.files import InputError
from curate.generate.models import ModelError, load_model, load_tokenizer
from curate.train.options import TrainOptions
from curate.train.train import train


def options(dataset: Path, model: str, output: Path, **changed: Any) -> TrainOptions:
    values: dict[str, Any] = {
        "method": "full",
        "learning_rate": 3e-3,
        "batch_size": 4,
        "accumulation": 1,
        "epochs": 1.0,
        "evaluations": 2,
        "checkpointing": False,
    }
    return TrainOptions(str(dataset), model, output, **values | changed)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = conversations(8)
    folder = tmp_path_factory.mktemp("data") / "doubled"
    return write_dataset(folder, train=rows, validation=rows[:2])


def weights(folder: Path) -> torch.Tensor:
    return torch.cat([weight.detach().flatten() for weight in load_model(str(folder)).parameters()])


@pytest.fixture(scope="module")
def trained(tiny: str, dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model that has seen eight rows four times, one update a pass."""
    folder = tmp_path_factory.mktemp("trained") / "model"
    train(options(dataset, tiny, folder, epochs=4.0, batch_size=8, evaluations=4))
    return folder


def record(folder: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((folder / "training.json").read_text())
    return read


def test_loss_falls_where_rows_are_seen_again(trained: Path) -> None:
    found = record(trained)
    assert found["updates"] == 4
    assert found["validation_loss"][-1][1] < found["validation_loss"][0][1] - 0.1
    assert found["loss"][-1][1] < found["loss"][0][1]


def test_the_record_says_what_was_trained_on_what(trained: Path, dataset: Path) -> None:
    found = record(trained)
    rows = found["rows"]["train"]
    assert rows["used"] == 8 and not rows["dropped"]
    assert found["tokens"] == 4 * rows["tokens"]
    assert 0 < rows["learned_tokens"] < rows["tokens"]
    assert set(found["files"]) == {
        f"messages/{split}-00000-of-00001.parquet" for split in ("train", "validation")
    }
    assert found["options"]["dataset"] == str(dataset)
    assert found["versions"]["trl"] and found["seconds"] > 0 and found["peak_bytes"] > 0


def test_the_folder_is_a_model_and_no_more_than_that(trained: Path, tiny: str) -> None:
    assert {path.name for path in trained.iterdir()} == {
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "loss.svg",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "training.json",
    }
    assert load_tokenizer(str(trained)).chat_template == load_tokenizer(tiny).chat_template


def test_what_is_finished_is_not_done_again(trained: Path, tiny: str, dataset: Path) -> None:
    before = (trained / "model.safetensors").stat().st_mtime_ns
    same = options(dataset, tiny, trained, epochs=4.0, batch_size=8, evaluations=4)
    assert train(same).record == record(trained)
    assert (trained / "model.safetensors").stat().st_mtime_ns == before
    with pytest.raises(InputError, match=r"another training \(seed 0, not 1\)"):
        train(dataclasses.replace(same, seed=1))


def test_a_folder_with_other_things_is_left_alone(tiny: str, dataset: Path) -> None:
    with pytest.raises(InputError, match="holds no training"):
        train(options(dataset, tiny, dataset))


class Stopped(Exception):
    """Stands for Ctrl-C."""


def test_a_training_that_was_stopped_goes_on_to_the_same_weights(
    tiny: str, dataset: Path, trained: Path, tmp_path: Path
) -> None:
    def stop(line: str) -> None:
        if line.startswith("update 3"):
            raise Stopped

    halved = options(dataset, tiny, tmp_path / "out", epochs=4.0, batch_size=8, evaluations=4)
    with pytest.raises(Stopped):
        train(halved, stop)
    assert not (tmp_path / "out/model.safetensors").exists()
    (tmp_path / "out/checkpoints/checkpoint-3").mkdir()  # torn: a kill came while it was written
    lines: list[str] = []
    train(halved, lines.append)
    assert next(line for line in lines if line.startswith("update")).startswith("update 3 of 4")
    torch.testing.assert_close(weights(tmp_path / "out"), weights(trained), rtol=0, atol=0)
    found, whole = record(tmp_path / "out"), record(trained)
    assert found["started_at"] == 2 and found["tokens"] == whole["tokens"] / 2
    assert found["loss"] == whole["loss"] and found["chosen"] == whole["chosen"]


def test_the_checkpoint_with_the_lowest_validation_loss_is_kept(tiny: str, tmp_path: Path) -> None:
    """What is learned here, that every answer is `a`, is wrong for the validation rows."""
    learned = [conversation(f"row{n}", f"{n}", "a" * 40) for n in range(8)]
    other = [conversation(f"other{n}", f"{n}", "tl.load(x)" * 4) for n in range(2)]
    data = write_dataset(tmp_path / "data", train=learned, validation=other)
    train(options(data, tiny, tmp_path / "out", epochs=4.0, evaluations=4, learning_rate=1e-2))
    found = record(tmp_path / "out")
    losses = dict(found["validation_loss"])
    assert found["chosen"] == min(losses, key=losses.__getitem__) < found["updates"] == 8
    again = options(data, str(tmp_path / "out"), tmp_path / "same", learning_rate=1e-12)
    train(dataclasses.replace(again, max_steps=1, evaluations=1))
    assert record(tmp_path / "same")["validation_loss"][0][1] == pytest.approx(
        losses[found["chosen"]], abs=1e-4
    )


def test_an_adapter_is_saved_and_merged_when_it_is_loaded(
    tiny: str, dataset: Path, tmp_path: Path
) -> None:
    found = train(options(dataset, tiny, tmp_path / "out", method="lora", lora_rank=4)).record
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert "adapter_model.safetensors" in names and not {"model.safetensors", "README.md"} & names
    merged = weights(tmp_path / "out")
    assert merged.shape == weights(Path(tiny)).shape
    assert not torch.equal(merged, weights(Path(tiny)))
    assert found["options"]["lora_rank"] == 4


def test_rows_that_are_too_long_are_named_before_training(tiny: str, tmp_path: Path) -> None:
    rows = [*conversations(4), conversation("huge", "Write it.", "x" * 4000)]
    data = write_dataset(tmp_path / "data", train=rows)
    lines: list[str] = []
    done = train(options(data, tiny, tmp_path / "out", max_steps=1), lines.append)
    tokens = done.record["rows"]["train"]["dropped"]["huge"]
    assert tokens > 2048
    assert f"  left out, longer than 2,048: 1 rows: huge ({tokens:,})" in lines
    assert "validation: no rows; the last checkpoint is kept, not the best" in lines
    lines.clear()
    cut = options(data, tiny, tmp_path / "cut", max_steps=1, max_length=256, truncate=True)
    assert train(cut, lines.append).record["rows"]["train"]["cut"] == {"huge": tokens}
    assert f"  cut at 256, {tokens - 256:,} tokens lost: 1 rows: huge ({tokens:,})" in lines


def test_packing_leaves_no_token_out(tiny: str, dataset: Path, tmp_path: Path) -> None:
    packed = options(dataset, tiny, tmp_path / "out", packing=True, max_length=512, batch_size=1)
    found = train(packed).record
    assert found["tokens"] == found["rows"]["train"]["tokens"]
    assert found["updates"] < found["rows"]["train"]["used"]


def test_a_training_that_does_not_fit_is_refused_before_anything_is_written(
    tiny: str, dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("curate.train.memory.free_bytes", lambda device: 6_000_000)
    with pytest.raises(ModelError, match="It fits with --batch-size"):
        train(options(dataset, tiny, tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"model": "/nowhere"}, "/nowhere: there is no such folder"),
        ({"dataset": "/nowhere"}, "/nowhere: there is no such file or folder"),
        ({"config": "pairs"}, "there is messages"),
        ({"max_length": 4096}, "reads at most 2,048 tokens"),
        ({"max_length": 8}, "every row has more than 8 tokens"),
        ({"method": "qlora"}, "bitsandbytes"),
    ],
)
def test_what_cannot_be_trained_is_refused(
    tiny: str, dataset: Path, tmp_path: Path, changed: dict[str, Any], says: str
) -> None:
    wrong = dataclasses.replace(options(dataset, tiny, tmp_path / "out"), **changed)
    with pytest.raises((ModelError, InputError), match=says):
        train(wrong)


def test_a_split_without_rows_is_refused(tiny: str, tmp_path: Path) -> None:
    data = write_dataset(tmp_path / "data", train=conversations(1))
    file = data / "messages/train-00000-of-00001.parquet"
    pq.write_table(pq.read_table(file).slice(0, 0), file)
    with pytest.raises(InputError, match="the split train of 'messages' has no rows"):
        train(options(data, tiny, tmp_path / "out"))
