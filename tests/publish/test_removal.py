"""Opting out: what `curate optout` shows, the next run drops, and `curate push` refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from data_sets import make, pair
from hub_stand_in import Hub
from licenses.license_samples import installed_text
from steps_for_tests import LICENSE

from curate import api
from curate.cli.main import main
from curate.formats.dataset.write import read_run
from curate.licenses.licenses import Licenses
from curate.licenses.optout import OptOutError, load_optouts
from curate.publish.analysis.analysis import Run
from curate.publish.analysis.errors import NoRun, PushRefused

KERNEL = """\
import triton
import triton.language as tl

{pull}
@triton.jit
def {name}(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, {body}, mask=i < n)
"""
HELPER = """\
import triton


@triton.jit
def twice(x):
    return x + x
"""
RECIPE = """\
name: kernels_here
sources:
  - {source: local, path: src}
steps:
  - step: licenses
  - step: kernels
  - step: closure
  - step: licenses
formats:
  - format: kernels
"""


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with a recipe over two folders of kernels, one of which pulls from a third
    file."""
    files = {
        "recipe.yaml": RECIPE,
        "src/LICENSE": installed_text("pydantic"),
        "src/ada/one.py": KERNEL.format(name="one_kernel", pull="", body="1"),
        "src/ada/two.py": KERNEL.format(name="two_kernel", pull="", body="2"),
        "src/bob/__init__.py": "",
        "src/bob/helper.py": HELPER,
        "src/bob/four.py": KERNEL.format(
            name="four_kernel", pull="from .helper import twice\n", body="twice(2)"
        ),
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def symbols() -> list[str]:
    return sorted(row["origin"]["symbol"] for row in api.show(count=9))


def test_the_whole_loop(workplace: Path) -> None:
    recipe = Path("recipe.yaml")
    api.run(recipe)
    assert symbols() == ["four_kernel", "one_kernel", "two_kernel"]

    pattern = "path: bob/helper.py"
    before = {p: p.stat().st_mtime_ns for p in workplace.rglob("*") if p.is_file()}
    found = api.optout([pattern])
    assert (found.rows, found.total) == (1, 3)  # it pulled a function from that file
    assert [f.views for f in found.covered] == [{"kernels": 1}]
    assert {p: p.stat().st_mtime_ns for p in workplace.rglob("*") if p.is_file()} == before

    written = api.optout([pattern], write=True)
    assert written.path == Path("optout.yaml")
    with pytest.raises(PushRefused, match=r"1 row .* opted out by `path: bob/helper.py`"):
        api.push("alice/kernels", dry_run=True)

    api.run(recipe)
    assert symbols() == ["one_kernel", "two_kernel"]
    steps = ("licenses#1", "licenses#2")
    lost = [row for step in steps for row in api.lost(step, reason="opted_out")]
    assert [row["origin"]["path"] for row in lost] == ["bob/helper.py", "bob/four.py"]
    assert {row["evidence"] for row in lost} == {'{"path": "bob/helper.py"}'}

    pages = [p for p in Path("output/kernels_here").glob("*.*") if p.suffix != ".parquet"]
    told = [page.name for page in pages if re.search("bob/(helper|four)", page.read_text())]
    assert told == []  # nothing that is published says who asked

    helper = Path("src/bob/helper.py")  # another version of the source
    helper.write_text(helper.read_text().replace("x + x", "2 * x"))
    api.run(recipe)
    assert symbols() == ["one_kernel", "two_kernel"]


def test_what_no_step_could_know_is_left_out_of_the_data(workplace: Path) -> None:
    Path("optout.yaml").write_text("- path: 3.py\n")
    make(workplace, [pair(i) for i in range(5)], steps=[Licenses(step="licenses")])
    run = read_run(workplace / "adders")
    assert run
    assert run["unwritten"] == {"opted_out": 1}
    assert run["configs"]["pairs"] == {"test": 1, "train": 3}
    shown = [row["origin"]["path"] for row in Run(workplace, "adders").final_rows()]
    assert sorted(shown) == ["0.py", "1.py", "2.py", "4.py"]  # what the report draws from


# --- what is shown ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of ten pairs of one package and one of another, whose author is named."""
    output = tmp_path_factory.mktemp("output")
    license_ = {**LICENSE, "copyright": ["Copyright (c) 2024 Ada Lovelace"]}
    origin = {**pair(11)["origin"], "purl": "pkg:pypi/other@2.0", "symbol": "Added"}
    origin["repo"] = "https://github.com/Ada/other"
    make(output, [*(pair(i) for i in range(10)), pair(11, license=license_) | {"origin": origin}])
    return output


@pytest.mark.parametrize(
    ("pattern", "rows"),
    [
        ("purl: pkg:pypi/adders", 10),
        ("purl: pkg:pypi/adders@1.0", 10),
        ("purl: pkg:pypi/adders@2.0", 0),
        ("purl: pkg:pypi/add", 0),
        ("path: '[0-4].py'", 5),
        ("repo: ada/other", 1),
        ("owner: ADA", 1),
        ("symbol: Add*", 1),
        ("copyright: '*ada lovelace*'", 1),
        ("copyright: ada lovelace", 0),
        ("{purl: pkg:pypi/adders, path: 3.py}", 1),
        ("{purl: pkg:pypi/other, path: 3.py}", 0),
    ],
)
def test_an_entry_covers(output: Path, pattern: str, rows: int) -> None:
    found = api.optout([pattern], output=output)
    assert (found.rows, found.total) == (rows, 11)


def test_rows_are_counted_by_entry_source_and_config(output: Path) -> None:
    arguments = ["optout", "path: '?.py'", "owner: ada", "path: 3.py", "--output", str(output)]
    shown = CliRunner().invoke(main, arguments)
    assert shown.exit_code == 0
    assert "11 of 11 rows would go" in shown.output
    told = json.loads(CliRunner().invoke(main, [*arguments, "--json"]).output)
    views = {"pairs": 10, "messages": 10, "conversion": 10}
    one = dict.fromkeys(views, 1)
    assert told["covered"] == [
        {"entry": {"path": "?.py"}, "source": "pkg:pypi/adders@1.0", "rows": 10, "views": views},
        {"entry": {"owner": "ada"}, "source": "pkg:pypi/other@2.0", "rows": 1, "views": one},
    ]


@pytest.mark.parametrize("pattern", ["ada", "ownr: ada", "why: no reason", "[owner: ada]", "{", ""])
def test_what_is_no_entry_gets_a_message(output: Path, pattern: str) -> None:
    result = CliRunner().invoke(main, ["optout", pattern, "--output", str(output)])
    assert result.exit_code == 2
    assert "no entry of an opt-out list" in result.output
    assert "owner, repo, purl" in result.output
    assert "ownr" not in pattern or "there is no field `ownr`" in result.output


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- owner: bob\n- {ownr: ada}\n", "entry 2: there is no field `ownr`; an entry may have"),
        ("- owner: 3\n", "entry 1: `owner` must be text: put 3 in quotes"),
        ("- sha256: abc\n", "entry 1: `sha256` must be 64 digits of 0-9 and a-f, and is 'abc'"),
        ("- why: asked by mail\n", "entry 1: it names nothing that a row could have"),
        ("- ada\n", "entry 1: an entry is `field: value`, and this is 'ada'"),
        ("owner: bob\n", "entries must begin with a dash, and it is {'owner': 'bob'}"),
    ],
)
def test_a_wrong_list_is_told_where_and_what(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "optout.yaml"
    path.write_text(text)
    with pytest.raises(OptOutError) as error:
        load_optouts(path)
    assert str(error.value).startswith(f"{path}: ") and said in str(error.value)
    assert "owner, repo, purl" in str(error.value) and "valid" not in str(error.value)


def test_a_recipe_without_the_step_has_no_list_to_write(output: Path) -> None:
    with pytest.raises(NoRun, match="no step `licenses`"):
        api.optout(["owner: ada"], output=output, write=True)


# --- the list -----------------------------------------------------------------------------------


def test_entries_are_appended_once_and_the_rest_stays(workplace: Path) -> None:
    api.run(Path("recipe.yaml"))
    path = Path("optout.yaml")
    path.write_text("# Ours.\n- owner: bob # as he asked")
    entries = ["owner: bob", "{symbol: one_*, why: asked by mail}", "symbol: one_*"]
    assert [e.symbol for e in api.optout(entries, write=True).added] == ["one_*"]
    text = path.read_text()
    assert text.startswith("# Ours.\n- owner: bob # as he asked\n")
    assert [e.owner or e.symbol for e in load_optouts(path)] == ["bob", "one_*"]
    api.optout(entries, write=True)
    assert path.read_text() == text

    path.write_text("[{owner: bob}]\n")
    with pytest.raises(OptOutError, match="nothing can be appended"):
        api.optout(["symbol: x"], write=True)
    assert path.read_text() == "[{owner: bob}]\n"


def test_a_push_needs_the_list_that_the_recipe_names(
    alice: Hub, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("ours.yaml").write_text("- owner: bob\n")
    steps = "steps.0.optout=ours.yaml"
    api.run(Path("recipe.yaml"), settings=(steps,))
    api.push("alice/kernels", dry_run=True)
    Path("ours.yaml").unlink()
    with pytest.raises(PushRefused, match=r"opt-out list .* ours\.yaml"):
        api.push("alice/kernels", dry_run=True)
