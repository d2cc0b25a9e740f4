import base64
import hashlib
import json
import math
import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from reports import HOSTILE, KERNEL, hashes, kernel, make, rows

from curate import api
from curate.publish.analysis.analysis import Run, analyse
from curate.publish.analysis.numbers import number, share
from curate.publish.report import samples
from curate.publish.report.report import write_report

APACHE = (Path(__file__).parents[3] / "LICENSE").read_text()
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("report")
    make(output)
    return write_report(output, "scales")


class Page(HTMLParser):
    """What a browser would see: elements in their order, and the text of code."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.codes: list[str] = []
        self._depth = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "code":
            self._depth += 1
            self.codes.append("")

    def handle_endtag(self, tag: str) -> None:
        self._depth -= tag == "code"

    def handle_data(self, data: str) -> None:
        if self._depth:
            self.codes[-1] += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def test_a_finished_run_lists_its_report_in_run_json(report: Path) -> None:
    files = hashes(report.parent)
    for path in ("report.html", "ANALYSIS.md", "ANALYSIS.json", "figs/funnel.png"):
        data = (report.parent / path).read_bytes()
        assert files[path] == hashlib.sha256(data).hexdigest()


def test_the_same_run_gives_the_same_bytes_anywhere(report: Path, tmp_path: Path) -> None:
    make(tmp_path)
    again = write_report(tmp_path, "scales")
    assert hashes(again.parent) == hashes(report.parent)
    before = again.read_bytes()
    write_report(tmp_path, "scales")
    assert again.read_bytes() == before


def test_pictures_hold_no_version_and_no_date(report: Path) -> None:
    for picture in (report.parent / "figs").glob("*.png"):
        data = picture.read_bytes()
        for word in (b"tEXt", b"iTXt", b"tIME", b"Software", b"matplotlib"):
            assert word not in data, picture


def test_code_cannot_break_out_of_the_page(report: Path) -> None:
    page = Page(report.read_text())
    assert len(page.all("script")) == 1
    assert "alert(1)" in HOSTILE
    assert any(code.startswith(HOSTILE) for code in page.codes)
    assert "<scale>" not in report.read_text()


def test_the_page_loads_nothing(report: Path) -> None:
    text = report.read_text()
    page = Page(text)
    assert not {"link", "img", "iframe", "object", "embed", "base"} & {t for t, _ in page.tags}
    for _, attributes in page.tags:
        assert not {"src", "srcset", "style", "onclick"} & attributes.keys()
        assert (attributes.get("href") or "#").startswith("#")
    assert "@import" not in text and "url(" not in text


def test_the_policy_allows_this_script_and_this_style_only(report: Path) -> None:
    text = report.read_text()
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
    assert policy
    assert "default-src 'none'" in policy[1] and "unsafe" not in policy[1]
    for tag in ("script", "style"):
        found = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        assert found
        digest = base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy[1]


def test_page_and_markdown_show_the_numbers_of_the_json(report: Path) -> None:
    known = json.loads((report.parent / "ANALYSIS.json").read_text())
    assert known == analyse(Run(report.parent.parent, "scales")).model_dump(mode="json")
    for text in (report.read_text(), (report.parent / "ANALYSIS.md").read_text()):
        for words in (
            "exact_duplicate 2",
            "renamed_duplicate 1",
            "syntax_error 1",
            "own_sizes_only",
        ):
            assert words in text
        assert "2 of 3 pairs judged correct (1 could not be judged)" in text
        assert "5 of 6 kernels ran on the CPU, as Triton lowers them" in text


def test_markdown_names_figures_that_are_there(report: Path) -> None:
    named = set(re.findall(r"\]\((figs/[^)]+)\)", (report.parent / "ANALYSIS.md").read_text()))
    there = {f"figs/{path.name}" for path in (report.parent / "figs").iterdir()}
    assert named == there and len(there) > 5


def test_markdown_tables_have_as_many_cells_as_heads(report: Path) -> None:
    width = 0
    for line in (report.parent / "ANALYSIS.md").read_text().splitlines():
        cells = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        assert not (width and cells) or cells == width, line
        width = cells


def test_headings_leave_no_level_out(report: Path) -> None:
    levels = [
        int(tag[1]) for tag, _ in Page(report.read_text()).tags if re.fullmatch("h[1-6]", tag)
    ]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(b <= a + 1 for a, b in pairwise(levels))


def test_an_empty_run_has_a_report(tmp_path: Path) -> None:
    make(tmp_path, [kernel(1, code="def (:")])
    text = write_report(tmp_path, "scales").read_text()
    assert "No row is left at the end." in text


# --- which rows are shown ---------------------------------------------------------------------


def test_the_rare_are_drawn_before_the_many() -> None:
    many = [kernel(n) for n in range(600)]
    pairs = [row for row in rows() if row["kind"] == "pair"]
    drawn = samples.draw([*many, *pairs])
    assert len(drawn) == samples.MOST_ROWS
    assert {row["id"] for row in pairs} <= {row["id"] for row in drawn}
    assert drawn == samples.draw([*pairs, *reversed(many)])


def test_examples_stay_within_their_bytes() -> None:
    long = "x = 1\n" * 4_000
    drawn = samples.draw(kernel(n, code=long + f"y = {n}\n") for n in range(300))
    assert 50 < len(drawn) < samples.MOST_ROWS
    assert sum(map(samples.code_bytes, drawn)) <= samples.MOST_BYTES
    assert samples.draw([kernel(1, code="x = 1\n" * 20_000)]) == []
    assert samples.draw([kernel(1, code='"' * 20_000)]) == []  # each is five bytes of HTML


def test_a_lost_row_is_never_shown_as_a_sample(tmp_path: Path) -> None:
    secret = KERNEL.format(n=7).replace("scale_7", "secret") + "\n\n"
    given = [*rows(), kernel(77, code=secret + "def (:")]
    make(tmp_path, given)
    assert "secret" not in write_report(tmp_path, "scales").read_text()


def test_a_step_is_shown_before_and_after(tmp_path: Path) -> None:
    code = KERNEL.format(n=1)
    make(tmp_path, [kernel(1, code=code.replace("\n", "\r\n"))])
    found = samples.changes(Run(tmp_path, "scales"))
    (change,) = found["normalize"]
    assert change.before and change.after
    assert change.after == ("triton", code.rstrip("\n"))
    assert found["split"][0].labels.keys() == {"cluster", "split"}
    assert "parse" not in found


def test_long_code_is_cut_around_the_first_difference() -> None:
    lines = [f"x{n} = {n}" for n in range(200)]
    shown = samples.excerpt("\n".join(lines), start=100).splitlines()
    assert shown[0] == "# … 100 lines above" and shown[-1] == "# … 40 more lines"
    assert shown[1:-1] == lines[100:160]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0, "0"),
        (12345, "12,345"),
        (0.5, "0.5"),
        (3.14159, "3.14"),
        (1e-7, "1e-07"),
        (math.inf, "infinite"),
    ],
)
def test_numbers_as_people_read_them(value: float | None, text: str) -> None:
    assert number(value) == text


def test_a_share_is_never_rounded_to_all_or_nothing() -> None:
    assert [share(1, 100_000), share(99_999, 100_000)] == ["<0.1 %", ">99.9 %"]
    assert [share(0, 5), share(5, 5), share(1, 3)] == ["0 %", "100 %", "33.3 %"]


# --- in a browser -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM:
        pytest.skip("no Chromium on this machine")
    with api.sync_playwright() as play:
        # The sandbox of Chromium needs more rights than a container's root has.
        yield play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])


@pytest.fixture
def opened(browser: Any, report: Path) -> Iterator[Any]:
    """The report in a phone's window; nothing may be said on the console, nothing fetched."""
    context = browser.new_context(viewport={"width": 390, "height": 844})
    page, said, asked = context.new_page(), [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(report.as_uri())
    yield page
    assert said == []
    assert asked == [report.as_uri()]
    context.close()


@pytest.mark.browser
def test_the_page_is_no_wider_than_a_phone(opened: Any) -> None:
    opened.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert opened.evaluate("document.documentElement.scrollWidth") == 390


@pytest.mark.browser
def test_the_filter_shows_what_fits(opened: Any) -> None:
    def shown() -> int:
        count: int = opened.locator(".examples > details:visible").count()
        return count

    assert shown() == 10
    opened.select_option("select[name=status]", "correct")
    assert shown() == 2
    opened.fill("input[name=text]", "scale_101 own_sizes_only")
    assert shown() == 1
    assert opened.inner_text("#shown") == "1 of 10 rows shown"
    opened.click("button[type=reset]")
    opened.wait_for_function("document.querySelector('#shown').textContent.startsWith('10')")
    opened.select_option("select[name=operator]", "mul")
    assert shown() == 3
    opened.fill("input[name=text]", "nowhere to be found")
    assert shown() == 0


@pytest.mark.browser
def test_colours_leave_the_text_as_it_is(opened: Any) -> None:
    opened.focus(".examples > details > summary")
    opened.keyboard.press("Enter")
    opened.wait_for_selector(".examples > details[open] code[data-done]")
    opened.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    opened.wait_for_function("!document.querySelector('code.python:not([data-done])')")
    codes = opened.eval_on_selector_all("code.python", "all => all.map((c) => c.textContent)")
    assert any(code.startswith(HOSTILE) for code in codes)
    assert opened.locator(".examples code .k").count() > 10


# --- the whole way ----------------------------------------------------------------------------

RECIPE = """\
name: found
seed: 0
sources: [{source: local, path: code}]
steps:
  - step: licenses
  - step: kernels
  - step: closure
  - step: licenses
  - step: dedupe
    column: triton
  - step: split
formats: [{format: kernels}]
"""


def test_curate_run_ends_with_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code").mkdir()
    for n in (1, 2):
        text = f"# SPDX-License-Identifier: Apache-2.0\n{KERNEL.format(n=n)}"
        (tmp_path / "code" / f"k{n}.py").write_text(text)
    (tmp_path / "code" / "LICENSE").write_text(APACHE)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    done = api.run(tmp_path / "recipe.yaml", output=tmp_path / "out")
    assert done.folder and done.record
    assert done.record["configs"] == {"kernels": {"train": 2}}
    files = hashes(done.folder)
    assert files == done.record["files"]
    there = {p.relative_to(done.folder).as_posix() for p in done.folder.rglob("*") if p.is_file()}
    assert there == {*files, "run.json"}
    assert {"report.html", "ANALYSIS.json", "ANALYSIS.md", "figs/funnel.png"} <= files.keys()
    again = api.run(tmp_path / "recipe.yaml", output=tmp_path / "out")
    assert again.record == done.record
