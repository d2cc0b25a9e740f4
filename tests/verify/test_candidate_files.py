import dataclasses
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from curate.files import InputError
from curate.verify.files import (
    Entry,
    VerdictFile,
    parse_shard,
    read_jsonl,
    read_programs,
    read_verdicts,
    shard,
    text_sha256,
)
from curate.verify.merge import merge_files, write_entries
from curate.verify.verdict import Candidate, Options, Verdict

A = Candidate("a", "class Model: ...", "class ModelNew: ...")
B = Candidate("b", "class Model: ...", "class ModelNew: pass")
FULL = Verdict(
    "a",
    "correct",
    reason=None,
    caveats=("own_sizes_only",),
    backend="cuda",
    device="NVIDIA H200",
    driver="570.1",
    torch="2.11.0",
    triton="3.6.0",
    trials=8,
    max_abs_error=1e-6,
    error_ratio=0.25,
    evidence={"launches": [{"kernel": "k", "n": 3}]},
    findings=({"rule": "bare_except", "line": 3, "reason": "…"},),
    compile=[{"target": "cuda:90", "ok": True}],
    timing={"median_us": 12.5},
)


def write_lines(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_verdict_survives_json() -> None:
    assert Verdict.from_json(json.loads(json.dumps(FULL.to_json()))) == FULL
    assert Verdict.from_json({"id": "a", "status": "crash"}) == Verdict("a", "crash")


@pytest.mark.parametrize("values", [{"id": "a"}, {"id": "a", "status": "crash", "mood": "good"}])
def test_a_verdict_with_other_fields_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not a verdict"):
        Verdict.from_json(values)


def test_a_status_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValueError, match="there are correct, incorrect"):
        Verdict("a", "fine")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"backend": "tpu"}, "allowed are auto, cpu, cuda, hip, compile"),
        ({"targets": ("cuda:42",)}, "There are cuda:75, cuda:80"),
        ({"trials": 0}, "trials 0: must be greater than 0"),
        ({"timeout_s": float("nan")}, "timeout_s nan: must be greater than 0"),
        ({"memory_mb": -1}, "memory_mb -1"),
        ({"backend": "compile"}, "needs targets"),
        ({"backend": "cpu", "timing": True}, "timing needs a device"),
    ],
)
def test_bad_options_say_what_is_allowed(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Options(**values)


def test_a_line_may_call_the_program_candidate_or_triton(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "in.jsonl",
        {"id": "a", "reference": "r", "candidate": "c", "other": 1},
        {"id": "b", "reference": "r", "triton": "t\u2028x"},
    )
    text = path.read_text().replace("\\u2028", "\u2028")
    path.write_text("\n" + text.rstrip("\n"))
    assert read_jsonl(path) == [Candidate("a", "r", "c"), Candidate("b", "r", "t\u2028x")]


GOOD = '{"id": "a", "reference": "r", "candidate": "c"}'


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "in.jsonl:2: is not JSON"),
        ("[1]", "in.jsonl:2: must be a JSON object"),
        ('{"id": "b", "candidate": "c"}', "in.jsonl:2: has no field 'reference'"),
        ('{"id": "b", "reference": "r"}', "has no field 'candidate' \\(or 'triton'\\)"),
        ('{"id": 7, "reference": "r", "candidate": "c"}', "field 'id' must be text"),
        ('{"id": "b", "reference": "r", "triton": null}', "field 'triton' must be text"),
        ('{"id": "b", "reference": "", "triton": "t"}', "'reference' must be text that is not"),
        ('{"id": "b", "reference": "\\ud800", "triton": "t"}', "is not Unicode text"),
        ('{"id": "b", "reference": "r", "triton": "t", "candidate": "c"}', "has both"),
        (GOOD, "in.jsonl:2: id 'a' is also at .*in.jsonl:1"),
    ],
)
def test_a_bad_line_is_named(line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(f"{GOOD}\n{line}\n")
    with pytest.raises(InputError, match=message):
        read_jsonl(path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.jsonl: cannot be read"):
        read_jsonl(tmp_path / "nowhere.jsonl")
    binary = tmp_path / "binary.jsonl"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"binary\.jsonl: cannot be read"):
        read_jsonl(binary)


def test_programs_are_read_with_their_reference(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("ref.py", "one.py", "two.py")]
    for path in paths:
        path.write_text(path.name)
    reference, one, two = paths
    assert read_programs(reference, [one, two]) == [
        Candidate(one.as_posix(), "ref.py", "one.py"),
        Candidate(two.as_posix(), "ref.py", "two.py"),
    ]
    with pytest.raises(InputError, match="is also at"):
        read_programs(reference, [one, one])


def test_shards_are_parts_and_do_not_depend_on_the_other_candidates() -> None:
    candidates = [Candidate(str(i), "r", "c") for i in range(200)]
    parts = [shard(candidates, i, 4) for i in range(1, 5)]
    assert sorted((c for part in parts for c in part), key=candidates.index) == candidates
    assert all(part == sorted(part, key=candidates.index) for part in parts)
    assert min(map(len, parts)) > 25
    assert shard(candidates[::3], 2, 4) == [c for c in parts[1] if c in candidates[::3]]


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "1/0", "a/b", "1/4/2", "-1/4", ""])
def test_a_bad_shard_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be i/n with i from 1 to n"):
        parse_shard(text)


def test_a_verdict_is_known_again_for_the_same_text_and_options(tmp_path: Path) -> None:
    path = tmp_path / "new" / "out.jsonl"
    options = Options(targets=("cuda:80",))
    with VerdictFile(path, options) as file:
        file.append(A, FULL)
    with VerdictFile(path, options) as file:
        assert file.known(A) == FULL
        assert file.known(B) is None
        assert file.known(dataclasses.replace(A, candidate="other")) is None
        assert file.known(dataclasses.replace(A, reference="other")) is None
    with VerdictFile(path, dataclasses.replace(options, workers=99)) as file:
        assert file.known(A) == FULL
    with VerdictFile(path, dataclasses.replace(options, trials=9)) as file:
        assert file.known(A) is None


def test_a_verdict_of_an_older_judge_is_not_known(tmp_path: Path) -> None:
    with VerdictFile(tmp_path / "out.jsonl", Options()) as file:
        file.append(A, dataclasses.replace(FULL, judge=0))
    with VerdictFile(tmp_path / "out.jsonl", Options()) as file:
        assert file.known(A) is None


def test_the_later_verdict_counts(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    for trials in (3, 8):
        with VerdictFile(path, Options(trials=trials)) as file:
            file.append(A, dataclasses.replace(FULL, trials=trials))
    assert len(path.read_text().splitlines()) == 2
    assert read_verdicts(path)["a"].verdict.trials == 8


def test_a_line_torn_anywhere_is_cut_off_and_judged_again(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with VerdictFile(path, Options()) as file:
        file.append(A, FULL)
        whole = path.read_bytes()
        file.append(B, Verdict("b", "crash"))
    both = path.read_bytes()
    for end in range(len(whole), len(both)):
        path.write_bytes(both[:end])
        assert list(read_verdicts(path)) == ["a"]
        with VerdictFile(path, Options()) as file:
            assert path.read_bytes() == whole
            assert file.known(A) == FULL
            assert file.known(B) is None
            file.append(B, Verdict("b", "crash"))
        assert path.read_bytes() == both


@pytest.mark.parametrize("content", [GOOD, GOOD + "\n", "notes", '{"sha256": "0"}\n', "[]\n"])
def test_another_file_is_refused_and_left_as_it_is(content: str, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(content)
    with pytest.raises(InputError, match=r"in\.jsonl"):
        VerdictFile(path, Options())
    assert path.read_text() == content


def test_whatever_the_evidence_is_the_file_is_strict_json(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    said = {"a": [float("nan"), -float("inf"), 1.5], "b\ud800": "c\udfff", "n": 10**400}
    with VerdictFile(path, Options()) as file:
        file.append(A, dataclasses.replace(FULL, evidence=said))
        file.append(B, Verdict("b", "crash"))
    assert pl.read_ndjson(path)["id"].to_list() == ["a", "b"]
    evidence = read_verdicts(path)["a"].verdict.evidence
    assert evidence["a"] == ["nan", "-inf", 1.5]
    assert evidence["b?"] == "c?"
    assert evidence["n"] == "an integer of more than 64 bits"


def test_two_writers_of_one_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with (
        VerdictFile(path, Options()),
        pytest.raises(InputError, match="another process is writing"),
    ):
        VerdictFile(path, Options())
    VerdictFile(path, Options()).__exit__(None, None, None)


def judged(path: Path, *said: tuple[Candidate, str], options: Options | None = None) -> Path:
    with VerdictFile(path, options or Options()) as file:
        for candidate, status in said:
            file.append(candidate, Verdict(candidate.id, status))
    return path


def test_merged_verdicts_are_in_the_candidates_order(tmp_path: Path) -> None:
    one = judged(tmp_path / "1.jsonl", (B, "crash"))
    two = judged(tmp_path / "2.jsonl", (A, "correct"), (B, "crash"))
    entries = merge_files([A, B], [one, two])
    assert [(e.verdict.id, e.verdict.status) for e in entries] == [("a", "correct"), ("b", "crash")]
    write_entries(tmp_path / "all.jsonl", entries)
    assert [e.verdict for e in merge_files([A, B], [tmp_path / "all.jsonl"])] == [
        e.verdict for e in entries
    ]
    with VerdictFile(tmp_path / "all.jsonl", Options()) as file:
        assert file.known(A) and file.known(B)


def test_candidates_without_a_verdict_are_named(tmp_path: Path) -> None:
    changed = dataclasses.replace(B, candidate="another text")
    path = judged(tmp_path / "1.jsonl", (A, "correct"), (changed, "correct"))
    with pytest.raises(InputError, match=r"1 of 2 candidates have no verdict .*: b$"):
        merge_files([A, B], [path])


@pytest.mark.parametrize(
    ("other", "options", "message"),
    [
        ([(A, "incorrect")], Options(), "1.jsonl:1 and .*2.jsonl:1 disagree on 'a': correct, inc"),
        ([(A, "correct")], Options(trials=3), "other options: trials 8 and 3"),
        ([(Candidate("z", "r", "c"), "correct")], Options(), "no candidate has the id 'z'"),
    ],
)
def test_verdicts_that_do_not_go_together_are_refused(
    other: list[tuple[Candidate, str]], options: Options, message: str, tmp_path: Path
) -> None:
    one = judged(tmp_path / "1.jsonl", (A, "correct"))
    two = judged(tmp_path / "2.jsonl", *other, options=options)
    with pytest.raises(InputError, match=message):
        merge_files([A], [one, two])


def test_the_sha256_tells_reference_and_candidate_apart() -> None:
    texts = [("ab", "c"), ("a", "bc"), ("c", "ab")]
    assert len({text_sha256(Candidate("x", *pair)) for pair in texts}) == 3
    assert text_sha256(Candidate("x", "r", "c")) == text_sha256(Candidate("y", "r", "c"))
    assert Entry("", FULL, "0", {}).line().endswith(b"}\n")
