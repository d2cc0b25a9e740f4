from pathlib import Path

import datasets
import pyarrow.parquet as pq
import pytest
from steps_for_tests import LICENSE, Given

from curate.cache.texts import save_text
from curate.engine.processes.local import LocalExecutor
from curate.engine.run import Walk
from curate.formats.conversion import Conversion
from curate.formats.dataset.write import data_sha256, write_dataset
from curate.formats.messages import Messages
from curate.formats.pairs import PairsFormat
from curate.rows import Row, make_origin, make_row
from curate.teacher.template import fence

REFERENCE = "class Model(torch.nn.Module):\n    def forward(self, x):\n        return x + {}\n"
TRITON = "@triton.jit\ndef add_{}_kernel(x_ptr):\n    pass\n"


def pair(number: int, **columns: object) -> Row:
    reference, triton = REFERENCE.format(number), TRITON.format(number)
    origin = make_origin("local", path=f"{number}.py", symbol=f"Add{number}")
    known = {"reference": reference, "triton": triton, "license": LICENSE, "split": "train"}
    return make_row("pair", reference + triton, origin, **{**known, **columns})


class Recipe:
    name, seed, description, steps = "small", 0, "Made in a test.", ()

    def __init__(self, rows: list[Row]) -> None:
        self.sources = [Given(rows=rows)]
        formats = (Messages(format="messages"), Conversion(format="conversion"))
        self.formats = [*formats, PairsFormat(format="pairs")]

    def model_dump(self, mode: str) -> dict:
        return {"name": self.name}


def write(tmp_path: Path, rows: list[Row]) -> tuple[Walk, dict]:
    walk = Walk(Recipe(rows), tmp_path, LocalExecutor(1))
    return walk, write_dataset(walk, walk.run())


def shown_rows(walk: Walk, config: str, split: str) -> list[Row]:
    path = walk.folder / config / f"{split}-00000-of-00001.parquet"
    return pq.read_table(path).to_pylist()


def test_datasets_opens_every_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    rows = [pair(i, split="test" if i == 0 else "train") for i in range(5)]
    walk, run = write(tmp_path, rows)
    cache = str(tmp_path / "hf")
    messages = datasets.load_dataset(str(walk.folder), "messages", cache_dir=cache)
    assert {name: len(split) for name, split in messages.items()} == {"train": 4, "test": 1}
    first = messages["test"][0]
    assert [turn["role"] for turn in first["messages"]] == ["system", "user", "assistant"]
    assert rows[0]["reference"].strip() in first["messages"][1]["content"]
    assert rows[0]["triton"].strip() in first["messages"][2]["content"]
    assert (first["id"], first["license"]) == (rows[0]["id"], "MIT")
    conversion = datasets.load_dataset(str(walk.folder), "conversion", cache_dir=cache)
    assert conversion["train"][0]["completion"] == fence(rows[1]["triton"])
    pairs = datasets.load_dataset(str(walk.folder), "pairs", cache_dir=cache)
    assert pairs["train"][0]["origin"]["symbol"] == "Add1"
    assert run["configs"]["pairs"] == {"test": 1, "train": 4}


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    rows = [pair(i) for i in range(3)]
    first = data_sha256(write(tmp_path / "a", rows)[1])
    assert data_sha256(write(tmp_path / "b", rows)[1]) == first
    assert data_sha256(write(tmp_path / "c", rows[:2])[1]) != first


def test_a_row_without_a_license_is_not_written(tmp_path: Path) -> None:
    _, run = write(tmp_path, [pair(0), pair(1, license=None)])
    assert run["configs"]["messages"] == {"train": 1}
    assert run["unwritten"] == {"no_license_or_origin": 1}


def test_license_texts_are_shipped(tmp_path: Path) -> None:
    sha = save_text(tmp_path / "cache", "the text of a license\n")
    walk, _ = write(tmp_path, [pair(0, license={**LICENSE, "text_sha256": [sha]})])
    assert (walk.folder / f"licenses/{sha}.txt").read_text() == "the text of a license\n"


def test_a_fence_in_the_code_does_not_end_the_block() -> None:
    assert fence('x = """```"""\n') == '````python\nx = """```"""\n````\n'


def test_rows_say_how_much_they_overlap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("curate.formats.dataset.write.GROUP_ROWS", 2)
    one, other = ("".join(f"{name}_{n} = 0\n" for n in range(50)) for name in ("a", "b"))
    given_away = pair(4, reference=one, triton=one + "more = 0\n")
    seen = pair(5, triton=other)
    asked = pair(5, triton=other + "more = 0\n", split="test")
    rows = [*(pair(i) for i in range(4)), given_away, seen, asked]
    walk, run = write(tmp_path, rows)
    for config in ("messages", "conversion", "pairs"):
        shown = [x for s in ("train", "test") for x in shown_rows(walk, config, s)]
        assert [x["id"] for x in shown] == [row["id"] for row in rows]
        assert [x["prompt_overlap"] >= 0.8 for x in shown] == [x is given_away for x in rows]
        twins = [None] * 5 + [asked["id"], seen["id"]]
        assert [x["split_overlap_id"] for x in shown] == twins
        assert shown[5]["split_overlap"] == shown[6]["split_overlap"] > 0.9
        assert run["leakage"][config]["test"] == {
            "rows": 1,
            "prompt_overlap": {"rows": 0, "ids": []},
            "split_overlap": {"rows": 1, "ids": [asked["id"]]},
        }
        names = {path.name for path in (walk.folder / config).iterdir()}
        assert names == {"train-00000-of-00001.parquet", "test-00000-of-00001.parquet"}
