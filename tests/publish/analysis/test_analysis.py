import json
from pathlib import Path

import pytest
from reports import KERNEL, make, rows

from curate import api
from curate.clean.decontaminate import Decontaminate
from curate.clean.split import Split
from curate.engine.records import read_records, write_records
from curate.files import Damaged
from curate.publish.analysis.analysis import Analysis, Run, analyse, purposes
from curate.publish.analysis.errors import NoRun


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("analysis"))


@pytest.fixture(scope="module")
def a(folder: Path) -> Analysis:
    return analyse(Run(folder.parent, "scales"))


def test_the_numbers_are_those_of_the_rows(a: Analysis) -> None:
    assert (a.rows, a.kinds.counts) == (10, {"kernel": 6, "pair": 4})
    assert a.configs["kernels"].keys() <= {"train", "validation", "test"}
    assert sum(a.configs["pairs"].values()) == 4
    assert a.verdicts.status.counts == {"correct": 2, "unsupported": 1}
    assert (a.verdicts.status.n, a.verdicts.status.unknown) == (4, 1)
    assert a.verdicts.caveats.counts == {"own_sizes_only": 1}
    assert a.verdicts.reason.counts == {"too_large": 1}
    assert (a.verdicts.speedup_eager.median, a.verdicts.speedup_compile.median) == (3.0, 0.5)
    assert (a.verdicts.error.n, a.verdicts.error.not_finite) == (1, 1)
    assert a.kernels.run.counts == {"ran": 5} and a.kernels.run.unknown == 1
    assert a.code.operators.counts == {"add": 3, "mul": 3}
    assert a.code.triton_lines.n == 10
    assert [(x.expression, x.rows, x.conflicts) for x in a.licenses] == [("MIT", 10, 6)]
    assert [(s.name, s.read, s.rows) for s in a.sources] == [
        ("https://example.org/k.git", 10, 6),
        ("pkg:pypi/adders@1.0", 4, 4),
    ]


def test_every_lost_row_has_its_step_and_reason(a: Analysis) -> None:
    lost = {step.label: step.lost for step in a.steps if step.lost}
    assert lost == {
        "parse": {"syntax_error": 1},
        "dedupe": {"exact_duplicate": 2, "renamed_duplicate": 1},
    }
    for step in a.steps:
        assert step.kept + sum(step.lost.values()) == step.seen
    assert a.steps[-1].emitted == a.rows


def test_duplicates_are_grouped_around_the_row_that_stayed(a: Analysis) -> None:
    (found,) = a.duplicates
    assert found.tiers == {"exact_duplicate": 2, "renamed_duplicate": 1}
    assert found.sizes == {"2": 1, "3": 1}
    assert [group.dropped for group in found.largest] == [2, 1]
    assert found.similarity.median == 1.0


def test_targets_are_counted_with_their_errors(a: Analysis) -> None:
    found = {t.target: (t.rows, t.ok, t.errors) for t in a.targets}
    assert found == {
        "cuda:80": (6, 6, {}),
        "cuda:90": (3, 3, {}),
        "hip:gfx942": (6, 0, {"shared_memory": 6}),
    }


def test_likeness_to_a_benchmark_is_counted(tmp_path: Path) -> None:
    make(tmp_path, rows())
    kept = [row["contamination"] for row in Run(tmp_path, "scales").final_rows()]
    nearest = max(kept, key=lambda found: max(found["overlap"], found["resemblance"]))
    found = analyse(Run(tmp_path, "scales")).contamination
    assert found.checked and found.seen == len(kept) == 10 and found.dropped == {}
    assert (found.overlap.n, found.overlap.unknown) == (10, 0)
    highest = max(row["overlap"] for row in kept)
    assert found.overlap.maximum == pytest.approx(highest, abs=1e-3) and highest > 0
    assert (found.closest[0].benchmark, found.closest[0].item) == (
        *(nearest["benchmark"], nearest["item"]),
    )


def test_holes_are_counted_by_kind(folder: Path, a: Analysis) -> None:
    (found,) = a.holes
    run = json.loads((folder / "run.json").read_text())
    assert found.rows == sum(run["configs"]["fim"].values()) == found.lines.n
    assert found.hole.counts["body"] >= 6


def test_nothing_left_is_an_analysis_too(tmp_path: Path) -> None:
    broken = [row for row in rows() if row["triton"] == "def (:"]
    make(tmp_path, broken)
    a = analyse(Run(tmp_path, "scales"))
    assert (a.rows, a.steps[2].lost) == (0, {"syntax_error": 1})


def test_every_value_survives_json(folder: Path, a: Analysis) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    assert json.loads(a.to_json(), parse_constant=refuse)["rows"] == 10
    assert a.to_json() == analyse(Run(folder.parent, "scales")).to_json()


def test_a_run_that_is_not_there_or_not_finished_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoRun, match="holds no finished run"):
        analyse(Run(tmp_path, "scales"))
    make(tmp_path)
    records = read_records(tmp_path, "scales")
    write_records(tmp_path, "scales", records[:-1])
    with pytest.raises(NoRun, match="stopped before its end"):
        analyse(Run(tmp_path, "scales"))
    write_records(tmp_path, "scales", records)
    manifest = tmp_path / "cache" / "steps" / "split" / f"{records[-1].shards[0]}.json"
    manifest.unlink()
    with pytest.raises(Damaged, match=manifest.name):
        analyse(Run(tmp_path, "scales"))


def test_every_step_says_what_it_is_for() -> None:
    assert all(purposes().values())
    assert {"pypi", "dedupe", "verify"} <= purposes().keys()


def test_rows_taken_from_a_benchmark_are_counted_by_item(tmp_path: Path) -> None:
    (tmp_path / "scaling.py").write_text(KERNEL.format(n=3))
    benchmark = tmp_path / "bench.json"
    api.fingerprint([tmp_path / "scaling.py"], name="bench", output=benchmark)
    steps = [
        Decontaminate(step="decontaminate", against=(str(benchmark),)),
        Split(step="split"),
    ]
    make(tmp_path, rows()[4:10], steps=steps)
    found = analyse(Run(tmp_path, "scales")).contamination
    assert (found.seen, found.dropped) == (6, {"bench": 1})
    assert found.items == {"bench: scaling.py": 1}
    (copy,) = found.copies
    assert (copy.kind, copy.column, copy.tier) == ("kernel", "triton", "structure")
    assert copy.part and "scale" in copy.part
