from __future__ import annotations

import ast
import itertools
import os
import random
import re
import subprocess
import sys
import textwrap
import xml.etree.ElementTree as ElementTree
import zipfile
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path[:0] = [str(BENCHMARKS), str(BENCHMARKS / "peers")]

from charts import Bar, Line, bar_chart, line_chart  # noqa: E402
from corpus import EDITS, corpus_files, functions_of, make_corpus, read_functions, vary  # noqa: E402
from dedupe import Contestant, Truth, Unavailable, judge, measure  # noqa: E402
from exact_pairs import PATTERNS, exact_pairs, make_sets  # noqa: E402
from processes import Watch, tree  # noqa: E402

STATEMENTS = ("total = total + {a} * {b}", "{a} = call({b}, {c})", "if {a} > {b}:\n        {c} = 1")


def functions(count: int) -> list[str]:
    """Return functions that are all different, of 5 to 20 statements."""
    rng = random.Random(3)
    names = ["alpha", "beta", "gamma", "delta", "rows", "table", "value", "index"]
    made = []
    for number in range(count):
        lines = [f"def make_{number}(rows, table):"]
        for _ in range(rng.randint(5, 20)):
            a, b, c = rng.choices(names, k=3)
            lines.append("    " + rng.choice(STATEMENTS).format(a=a, b=b, c=c))
        made.append("\n".join([*lines, "    return total\n"]))
    return made


def test_functions_are_those_of_the_parser_without_their_indentation() -> None:
    source = textwrap.dedent(
        """
        class A:
            def long(self):
                a = 1

                return a

            def short(self):
                return 2
        """
    )
    assert list(functions_of(source.encode())) == ["def long(self):\n    a = 1\n\n    return a\n"]


@pytest.mark.parametrize("source", [b"def f(:\n", b"\xff\xfe", b"a = 1\x00"])
def test_a_file_that_is_not_python_has_no_functions(source: bytes) -> None:
    assert list(functions_of(source)) == []


def test_functions_of_a_wheel_are_read_from_its_python_files(tmp_path: Path) -> None:
    one, two = functions(2)
    with zipfile.ZipFile(tmp_path / "a-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("a/one.py", one)
        wheel.writestr("a/data.txt", two)
    assert read_functions(tmp_path / "a-1-py3-none-any.whl") == [one]


def test_a_corpus_is_the_same_each_time_and_knows_its_copies() -> None:
    given = functions(100)
    texts, copies = make_corpus(given, 100, seed=1)
    assert (texts, copies) == make_corpus(given, 100, seed=1)
    assert texts != make_corpus(given, 100, seed=2)[0]
    assert len(texts) == 100 and len(copies) == 20
    originals = set(given)
    for copy, original, kind in copies:
        assert texts[original] in originals and texts[copy] not in originals
        if kind == "space":
            assert texts[copy].split() == texts[original].split()


def test_a_corpus_needs_enough_functions() -> None:
    with pytest.raises(SystemExit, match="100 documents need 80 of 79 functions"):
        make_corpus(functions(79), 100, seed=0)


def test_a_corpus_is_made_once(tmp_path: Path) -> None:
    (tmp_path / "functions.jsonl").write_text(
        "".join(f'{{"id": {i}, "text": "def f{i}(): ...\\na\\nb\\n"}}\n' for i in range(8))
    )
    documents, copies = corpus_files(tmp_path, 10, seed=0)
    before = documents.stat().st_mtime_ns, copies.read_text()
    assert len(documents.read_text().splitlines()) == 10
    assert corpus_files(tmp_path, 10, seed=0) == (documents, copies)
    assert (documents.stat().st_mtime_ns, copies.read_text()) == before


@pytest.mark.parametrize("kind", EDITS)
def test_an_edit_changes_a_text(kind: str) -> None:
    for number, text in enumerate(functions(20)):
        assert EDITS[kind](text, random.Random(number)) != text


def test_a_variation_is_other_code_that_still_parses() -> None:
    for number, text in enumerate(functions(20)):
        varied = vary(text, random.Random(number))
        assert varied != text
        ast.parse(varied)


@pytest.mark.parametrize("kind", PATTERNS)
def test_exact_pairs_are_those_of_comparing_all_with_all(kind: str) -> None:
    texts, _ = make_corpus(functions(160), 200, seed=0)
    texts += ["", "a", "a b", "é è à ê", texts[0]]
    pattern = re.compile(r"\w+" if kind == "words" else r"\w+|[^\w\s]")

    def shingles(text: str) -> set[tuple[str, ...]]:
        found = pattern.findall(text)
        return {tuple(found[i : i + 5]) for i in range(max(1, len(found) - 4))} if found else set()

    sets = [shingles(text) for text in texts]
    expected = {}
    for (i, one), (j, other) in itertools.combinations(enumerate(sets), 2):
        if one and other and len(one & other) / len(one | other) >= 0.7:
            expected[i, j] = len(one & other) / len(one | other)
    first, second, similarity = exact_pairs(make_sets(texts, PATTERNS[kind]))
    found = dict(zip(zip(first.tolist(), second.tolist(), strict=True), similarity, strict=True))
    assert len(expected) > 20
    assert found == pytest.approx(expected)


def test_a_decision_is_judged_by_the_exact_pairs() -> None:
    # 0 and 1 are alike, 1 and 2 too; 3 and 4 are alike at 0.8; 5 is like nothing; 6 is renamed.
    truth = Truth(np.array([0, 1, 3]), np.array([1, 2, 4]), np.array([0.7, 0.75, 0.9]))
    figures = {"dropped": [1, 2, 5, 6], "reasons": [None, None, None, "renamed_duplicate"]}
    right = judge(figures, truth, 7, [(1, 0, "space"), (4, 3, "edit"), (6, 5, "edit")])
    assert right["dropped"] == 4 and right["renamed"] == 1
    assert right["recall_0.7"] == pytest.approx(2 / 3, abs=1e-4)  # 3 and 4 are both kept
    assert right["recall_0.8"] == 0
    assert right["no_kept_twin"] == pytest.approx(2 / 3, abs=1e-4)  # 2's twin is dropped too
    assert right["no_twin"] == pytest.approx(1 / 3, abs=1e-4)
    assert right["copies"] == {"edit": 0, "space": 1}  # 6 is too unlike 5 to be asked for


@pytest.fixture
def contestant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Contestant:
    """A contestant that drops the documents whose numbers the corpus holds."""
    (tmp_path / "with_ours.py").write_text(
        f"import sys; sys.path.insert(0, {str(BENCHMARKS / 'peers')!r})\n"
        "from contest import contest\n"
        "given = contest()\n"
        "drop = [int(word) for word in given.corpus.read_text().split()]\n"
        "given.measure(lambda: drop, {}, 'as told')\n"
    )
    monkeypatch.setattr("dedupe.PEERS", tmp_path)
    return Contestant("ours", "ours")


def test_a_contestant_is_measured_in_a_process_of_its_own(
    contestant: Contestant, tmp_path: Path
) -> None:
    (tmp_path / "corpus").write_text("3 1")
    figures = measure(contestant, 1, tmp_path / "corpus", tmp_path, tmp_path / "result.json")
    assert figures["dropped"] == [1, 3] and figures["how"] == "as told"
    assert figures["seconds"] >= 0 and figures["cpu_s"] >= 0 and figures["peak_mb"] > 1
    assert (tmp_path / "result.json").exists()


def test_a_contestant_that_fails_has_no_result(contestant: Contestant, tmp_path: Path) -> None:
    (tmp_path / "corpus").write_text("three")
    with pytest.raises(Unavailable, match=r"(?s)exit code 1: .*ValueError: .*three"):
        measure(contestant, 1, tmp_path / "corpus", tmp_path, tmp_path / "result.json")
    assert not (tmp_path / "result.json").exists()


def test_charts_are_svg_with_every_label() -> None:
    bars = bar_chart("Speed", [Bar("us", 100, "fast & small", True), Bar("b", 1, "", False)], "-")
    lines = line_chart("Growth", [Line("parse", [(10, 0.5), (1000, 70)])], "rows", "seconds", "-")
    assert {"Speed", "us", "fast & small"} <= set(ElementTree.fromstring(bars).itertext())
    assert {"Growth", "parse", "1,000", "0.1"} <= set(ElementTree.fromstring(lines).itertext())


def test_a_peak_of_memory_is_told_once() -> None:
    watch = Watch(os.getpid())
    watch.take()
    block = bytearray(os.urandom(1 << 20)) * 200
    del block
    first, second = watch.take(), watch.take()
    assert first["own_mb"] >= second["own_mb"] + 150


def test_a_tree_holds_the_processes_below() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        assert {os.getpid(), child.pid} <= set(tree(os.getpid()))
        child.kill()
