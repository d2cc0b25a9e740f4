"""Where rows come from: `provenance.jsonl` and `PROVENANCE.md` of real runs over folders."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from data_sets import make, pair
from hub_stand_in import Hub
from steps_for_tests import LICENSE

from curate import api
from curate.cache.texts import save_text
from curate.files import file_sha256
from curate.formats.dataset.provenance import read_provenance
from curate.publish.analysis.analysis import Run
from curate.publish.analysis.errors import NoRun
from curate.publish.check import problems, publishable
from curate.publish.documents.provenance import LossReason, collect, provenance_page
from curate.rows import Row, make_origin

APACHE = (Path(__file__).parents[3] / "LICENSE").read_text()
NOTICE = "Adders\nCopyright 2026 Ada | Lovelace `and` <b>others</b>\n"
KERNEL = """\
# Copyright (c) 2025 Grace Hopper
import triton
import triton.language as tl


@triton.jit
def add_{0}(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n) + {0}, mask=at < n)
"""
FILES = {
    "LICENSE": APACHE,
    "NOTICE": NOTICE,
    "one.py": KERNEL.format(1),
    "two.py": KERNEL.format(2),
    "copyleft.py": "# SPDX-License-Identifier: GPL-3.0-only\n" + KERNEL.format(3),
    "vendor/else.py": KERNEL.format(4),
    "asked.py": KERNEL.format(5),
}
RECIPE = """\
name: adders
sources:
  - {source: local, path: code}
steps:
  - {step: licenses, optout: optout.yaml}
  - {step: kernels}
  - {step: closure}
  - {step: licenses, optout: optout.yaml}
  - {step: split}
formats: [{format: kernels}, {format: fim}]
"""


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The output folder of a run over files that may be used and files that may not."""
    folder = tmp_path_factory.mktemp("provenance")
    for path, text in FILES.items():
        (folder / "code" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "code" / path).write_text(text)
    (folder / "recipe.yaml").write_text(RECIPE)
    (folder / "optout.yaml").write_text("- path: asked.py\n  why: Mallory asked by mail\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        api.run(Path("recipe.yaml"))
        yield folder / "output"


def known(output: Path) -> dict[str, Any]:
    run: dict[str, Any] = json.loads((output / "adders/run.json").read_text())
    return run


def test_every_published_row_has_a_line(output: Path) -> None:
    lines = list(read_provenance(output / "adders"))
    index = pq.read_table(output / "adders/index.parquet").to_pylist()
    assert [(line["id"], line["kind"]) for line in lines] == [(r["id"], r["kind"]) for r in index]
    assert sorted(line["origin"]["path"] for line in lines) == ["one.py", "two.py"]
    rows = pq.read_table(output / "adders/kernels").to_pylist()
    by_id = {row["id"]: row for row in rows}
    for line in lines:
        origin, license = line["origin"], line["license"]
        assert (origin, license) == (by_id[line["id"]]["origin"], by_id[line["id"]]["license"])
        assert (origin["start_line"], origin["end_line"]) == (6, 9)
        assert len(origin["artifact_sha256"]) == 64
        for sha in (*license["text_sha256"], *license["notice_sha256"]):
            assert file_sha256(output / f"adders/licenses/{sha}.txt") == sha


def test_a_line_counts_the_rows_that_show_it_in_each_file(output: Path) -> None:
    folder = output / "adders"
    for line in read_provenance(folder):
        assert {files.split("/")[0] for files in line["files"]} == {"kernels", "fim"}
        for files, n in line["files"].items():
            ids = [i for path in folder.glob(files) for i in pq.read_table(path)["id"].to_pylist()]
            assert len([i for i in ids if i.partition("-")[0] == line["id"]]) == n > 0


def test_the_page_pins_sources_and_gives_their_authors_credit(output: Path) -> None:
    text = (output / "adders/PROVENANCE.md").read_text()
    line = next(read_provenance(output / "adders"))
    pin = line["origin"]["artifact_sha256"]
    assert f"| `local` | sha256 `{pin}` | `Apache-2.0` | 5 | 2 |" in text
    notice, (license, *_) = line["license"]["notice_sha256"][0], line["license"]["text_sha256"]
    assert f"(licenses/{notice}.txt) | notice | `Adders` | 1 |" in text
    assert f"(licenses/{license}.txt) | license | `Apache License` | 1 |" in text
    assert "\n    Copyright (c) 2025 Grace Hopper\n" in text
    assert (output / f"adders/licenses/{notice}.txt").read_text() == NOTICE


def test_the_page_says_what_was_left_out_and_not_who_asked(output: Path) -> None:
    found = collect(Run(output, "adders"))
    assert found.losses == {
        LossReason("license_denied", "GPL-3.0-only"): {"local": 1},
        LossReason("license_unknown", "vendored in vendor/ without a license of its own"): {
            "local": 1
        },
        LossReason("opted_out", ""): {"": 1},
    }
    text = (output / "adders/PROVENANCE.md").read_text()
    assert "| `license_denied` | `GPL-3.0-only` | `local` | 1 |" in text
    assert "| `opted_out` |  |  | 1 |" in text
    assert "Mallory" not in text and "asked.py" not in text
    assert "curate optout" in text


def test_the_files_travel_and_may_not_be_changed(output: Path) -> None:
    run, folder = known(output), output / "adders"
    wanted = {"PROVENANCE.md", "provenance.jsonl", "croissant.json"}
    assert wanted < set(publishable(run))
    assert problems(folder, run) == []
    card = (folder / "README.md").read_text()
    for name in wanted:
        assert f"[`{name}`]({name})" in card
        before = (folder / name).read_bytes()
        (folder / name).write_bytes(before + b" ")
        assert [told.partition(";")[0] for told in problems(folder, run)] == [
            f"{name} was changed after the run"
        ]
        (folder / name).write_bytes(before)


def test_a_push_takes_them_along_and_another_makes_no_commit(alice: Hub, output: Path) -> None:
    api.push("alice/adders", output=output)
    there = alice.files("alice/adders", "main")
    for name in ("PROVENANCE.md", "provenance.jsonl", "croissant.json"):
        assert there[name] == (output / "adders" / name).read_bytes()
    assert any(path.startswith("licenses/") for path in there)
    api.report(output=output)
    again = api.push("alice/adders", output=output)
    assert not (again.adds or again.deletes)


def test_a_data_set_of_an_older_version_is_refused(output: Path) -> None:
    run = known(output)
    del run["files"]["provenance.jsonl"]
    assert "provenance.jsonl is missing" in problems(output / "adders", run)[0]
    older = Run(output, "adders")
    older.known = run
    with pytest.raises(NoRun, match="`curate run RECIPE` writes it anew"):
        collect(older)


# --- rows given ---------------------------------------------------------------------------------


def placed(row: Row, purl: str, sha256: str, **more: Any) -> Row:
    place = {"path": "a.py", "version": purl.rpartition("@")[2], "artifact_sha256": sha256}
    return {**row, "origin": make_origin("pypi", purl=purl, **place, **more)}


def given(output: Path) -> str:
    """Write a data set of two versions of a package and one other; return its page."""
    tool = {"name": "inductor", "tools": ["torch 2.13.0"]}
    hostile = ["Copyright ```\n# Ada </code> | x", "Copyright 2024 Ada"]
    notice = save_text(output / "cache", "``` | <b>NOTICE</b>\n")
    licensed = {**LICENSE, "copyright": hostile, "notice_sha256": [notice]}
    rows = [
        placed(pair(0, license=licensed), "pkg:pypi/a@1", "1" * 64, generator=tool),
        placed(pair(1), "pkg:pypi/a@2", "2" * 64, generator=tool),
        placed(pair(2), "pkg:pypi/a@2", "2" * 64),
        pair(3, license={**LICENSE, "expression": None, "choice": None}),
    ]
    make(output, rows, "MIT License\n")
    run = Run(output, "adders")
    return provenance_page(run, collect(run))


def test_versions_of_a_package_are_told_apart(tmp_path: Path) -> None:
    text = given(tmp_path)
    sources = re.findall(r"^\| `(.*?)` \| (.*?) \|.*?\| (\d+) \| (\d+) \|$", text, re.M)
    assert sources == [
        ("pkg:pypi/a@2", f"version 2, sha256 `{'2' * 64}`", "2", "2"),
        ("pkg:pypi/a@1", f"version 1, sha256 `{'1' * 64}`", "1", "1"),
        ("pkg:pypi/adders@1.0", "no hash", "1", "1"),
    ]
    assert "| inductor, torch 2.13.0 | 2 |" in text
    assert text == given(tmp_path / "again")


def test_nothing_in_other_peoples_lines_ends_a_block_or_a_cell(tmp_path: Path) -> None:
    text = given(tmp_path)
    assert "\n\n    Copyright 2024 Ada\n    Copyright ``` # Ada </code> | x\n" in text
    assert "| notice | `''' / <b>NOTICE</b>` | 1 |" in text
    assert not re.search(r"^# Ada", text, re.M)
