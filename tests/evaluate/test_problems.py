from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curate.evaluate.problems import read_problems
from curate.files import InputError
from curate.formats.prompts.question import conversation
from curate.problem.problem import EXAMPLE

REFERENCE, RIGHT = EXAMPLE


def make_folder(root: Path, *names: str) -> Path:
    for name in names:
        file = root / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(REFERENCE)
    return root


def ids(path: Path, **options: object) -> list[str]:
    return [problem.id for problem in read_problems(path, **options)]  # type: ignore[arg-type]


def test_problems_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    make_folder(tmp_path, "level1/10_B", "level1/2_A", "level2/1_C", "b", "a")
    assert ids(tmp_path) == ["a", "b", "level1/2_A", "level1/10_B", "level2/1_C"]
    assert ids(tmp_path, levels=(1,)) == ["level1/2_A", "level1/10_B"]
    assert ids(tmp_path / "level1") == ["2_A", "10_B"]


def test_of_a_checkout_only_its_problems_count(tmp_path: Path) -> None:
    make_folder(tmp_path, "KernelBench/level1/1_A", "src/prompts/example")
    assert ids(tmp_path) == ["level1/1_A"]


def test_files_without_the_three_names_are_passed_over(tmp_path: Path) -> None:
    make_folder(tmp_path, "good", ".hidden/other")
    (tmp_path / "half.py").write_text("class Model: ...\ndef get_inputs(): ...\n")
    (tmp_path / "broken.py").write_text("class Model(:\n")
    assert ids(tmp_path) == ["good"]


def test_a_limit_takes_the_same_problems_again_and_keeps_them_as_it_grows(tmp_path: Path) -> None:
    make_folder(tmp_path, *(f"{i}_P" for i in range(30)))
    few, more = ids(tmp_path, limit=5), ids(tmp_path, limit=10)
    assert len(few) == 5 and set(few) < set(more)
    assert few == ids(tmp_path, limit=5)
    assert few != ids(tmp_path, limit=5, seed=1)
    assert few != [f"{i}_P" for i in range(5)]


ROWS = [{"id": f"r{i}", "reference": REFERENCE, "triton": RIGHT, "other": 1} for i in range(3)]


def test_rows_may_bring_a_right_answer(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "rows.parquet")
    bare = [{"id": row["id"], "reference": row["reference"]} for row in ROWS]
    pq.write_table(pa.Table.from_pylist(bare), tmp_path / "bare.parquet")
    for name, answer in (("rows.jsonl", RIGHT), ("rows.parquet", RIGHT), ("bare.parquet", None)):
        problems = read_problems(tmp_path / name)
        assert [p.id for p in problems] == ["r0", "r1", "r2"]
        assert {p.answer for p in problems} == {answer}


def test_a_data_set_gives_one_split(tmp_path: Path) -> None:
    pairs = tmp_path / "pairs"
    pairs.mkdir()
    table = pa.Table.from_pylist(ROWS)
    pq.write_table(table.slice(0, 1), pairs / "test-00000-of-00001.parquet")
    pq.write_table(table.slice(1), pairs / "train-00000-of-00001.parquet")
    assert ids(tmp_path) == ["r0"]
    assert ids(tmp_path, split="train") == ["r1", "r2"]
    with pytest.raises(InputError, match="no split 'dev'; it has test, train"):
        read_problems(tmp_path, split="dev")


def test_bad_input_says_what_and_where(tmp_path: Path) -> None:
    for name, text, message in (
        ("no.jsonl", '{"id": "a"}\n', r"no\.jsonl:1: field 'reference'"),
        (
            "twice.jsonl",
            2 * (json.dumps({"id": "a", "reference": "x"}) + "\n"),
            r"twice\.jsonl:2: id 'a' is also at .*:1",
        ),
        ("words.jsonl", "words\n", "is not JSON"),
        ("not.parquet", "words", "cannot be read"),
        ("text.txt", "words", "must be a folder"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(InputError, match=message):
            read_problems(tmp_path / name)
    with pytest.raises(InputError, match="holds no problem"):
        read_problems(tmp_path)


def test_a_model_is_asked_as_rows_of_messages_are() -> None:
    from curate.formats.messages import Messages
    from curate.formats.prompts.question import INSTRUCTION
    from curate.rows import make_origin, make_row
    from curate.step import Keep

    license = {"choice": "MIT", "expression": "MIT"}
    columns = {"reference": REFERENCE, "triton": RIGHT, "license": license}
    row = make_row("pair", RIGHT, make_origin("local", purl="p"), **columns)
    outcome = Messages(format="messages", instruction=INSTRUCTION).render(row)
    assert isinstance(outcome, Keep)
    assert outcome.rows[0]["messages"][:-1] == conversation(REFERENCE)
