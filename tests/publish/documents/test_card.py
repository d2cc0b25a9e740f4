import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pytest
import yaml
from data_sets import make, pair
from hub_stand_in import mistakes
from huggingface_hub import DatasetCard, DatasetCardData
from steps_for_tests import LICENSE

from curate.files import file_sha256
from curate.formats.dataset.front_matter import features
from curate.formats.fim.fim import Fim
from curate.formats.kernels import KernelsFormat
from curate.formats.messages import Messages
from curate.formats.pairs import PairsFormat
from curate.publish.analysis.analysis import Run, analyse
from curate.publish.documents.card import recipe_sha256, write_card
from curate.publish.documents.markdown import table
from curate.rows import Row
from curate.verify import CAVEATS


def under(license: str) -> Row:
    return {**LICENSE, "expression": license, "choice": license}


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., tuple[str, dict[str, Any]]]:
    def write(*rows: Row) -> tuple[str, dict[str, Any]]:
        make(tmp_path, list(rows))
        write_card(tmp_path / "adders", analyse(Run(tmp_path, "adders")))
        text = (tmp_path / "adders/README.md").read_text()
        head = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
        assert head
        return text, yaml.safe_load(head[1])

    return write


Write = Callable[..., tuple[str, dict[str, Any]]]


def test_the_head_passes_the_clients_and_the_hubs_rules(written: Write) -> None:
    text, head = written(*(pair(i) for i in range(10)))
    card = DatasetCard(text)
    assert isinstance(card.data, DatasetCardData)
    assert card.data.to_dict() == head, "the client knows every field and loses none"
    assert list(mistakes(head)) == []
    assert head["license"] == "mit"
    assert head["size_categories"] == ["n<1K"]
    assert head["source_datasets"] == ["original"]


def test_the_first_config_is_the_first_that_is_not_nested(written: Write) -> None:
    _, head = written(pair(1))
    assert [c["config_name"] for c in head["configs"]] == ["messages", "pairs", "conversion"]
    assert [c.get("default") for c in head["configs"]] == [True, None, None]


def test_datasets_reads_the_head_as_it_would_write_it(written: Write, tmp_path: Path) -> None:
    _, head = written(*(pair(i) for i in range(10)))
    for told in head["dataset_info"]:
        config = told["config_name"]
        known = datasets.load_dataset_builder(str(tmp_path / "adders"), config).info
        own = datasets.Features.from_arrow_schema(
            pa.parquet.read_schema(tmp_path / f"adders/{config}/train-00000-of-00001.parquet")
        )
        assert known.features == own, config
        assert {n: s.num_examples for n, s in known.splits.items()} == {"train": 8, "test": 2}
        size = sum(p.stat().st_size for p in (tmp_path / "adders" / config).iterdir())
        assert told["download_size"] == size


@pytest.mark.parametrize(
    "format", [Fim(format="fim"), KernelsFormat(format="kernels"), PairsFormat(format="pairs")]
)
def test_columns_are_told_as_datasets_tells_them(format: Any) -> None:
    told = list(features(format.columns()))
    own = datasets.Features.from_arrow_schema(format.columns())
    assert datasets.Features._from_yaml_list(told) == own
    assert told == own._to_yaml_list()


def test_configs_that_are_flat() -> None:
    assert not [f for f in Messages(format="messages").columns() if pa.types.is_struct(f.type)]


@pytest.mark.parametrize(
    ("licenses", "told", "counted"),
    [
        (
            ["MIT", "MIT AND BSD-3-Clause"],
            {"license": ["bsd-3-clause", "mit"]},
            {"MIT": 2, "BSD-3-Clause": 1},
        ),
        (
            ["MIT", "0BSD"],
            {"license": "other", "license_name": "spdx-id-per-row"},
            {"MIT": 1, "0BSD": 1},
        ),
        (["not one"], {"license": "other"}, {"not one": 1}),
    ],
)
def test_licenses_under_the_hubs_names_and_how_many_rows_are_under_each(
    written: Write, licenses: list[str], told: dict[str, Any], counted: dict[str, int]
) -> None:
    text, head = written(*(pair(i, license=under(x)) for i, x in enumerate(licenses)))
    assert told.items() <= head.items()
    assert list(mistakes(head)) == []
    for license, n in counted.items():
        assert f"| {license} | {n} |" in text


def test_what_the_card_tells(written: Write, tmp_path: Path) -> None:
    correct = pair(2)["verdict"]
    unsupported = {**correct, "status": "unsupported", "reason": "random"}
    rows = [*(pair(i) for i in range(5, 10)), pair(4, verdict=unsupported)]
    text, _ = written(*rows)
    run = json.loads((tmp_path / "adders/run.json").read_text())
    assert "# adders\n\nModules that add.\n" in text
    assert "as TRL takes it | 5 | 0 | 1 | 6 |" in text
    assert "| `correct` | 5 | 83.3 % |\n| `unsupported` | 1 | 16.7 % |" in text
    assert "Every row compiles for cuda:90." in text
    assert 'load_dataset("<user>/adders", "messages", split="train")' in text
    assert "- `targets`: GPUs that" in text and "`middle`" not in text
    assert "[`index.parquet`](index.parquet)" in text and "report.html" not in text
    assert "From pkg:pypi/adders@1.0, under MIT" in text
    assert recipe_sha256(run) in text
    assert "judged correct (1 could not be judged), on a CPU, from Triton's IR." in text
    assert "what depends on its timing does not show" in text
    assert "**not** compared with any benchmark" in text
    assert "lost/" not in text, "what is not published"


def test_the_card_says_what_the_splits_share(written: Write) -> None:
    code = "".join(f"name_{n} = 0\n" for n in range(50))
    text, _ = written(pair(1, triton=code), pair(2), pair(5, triton=code + "more = 0\n"))
    said = " ".join(text.split())
    assert "form 3 clusters of near copies, each in one split" in said
    assert "In `pairs`, 2 of 3 rows share 80 % of their words or more with" in said


def test_questions_are_answered_in_the_order_in_which_they_are_asked(written: Write) -> None:
    text, _ = written(*(pair(i) for i in range(5)))
    heads = re.findall("^## (.*)$", text, re.MULTILINE)
    first = ["One row", "Is it for me?", "What to filter", "Limits"]
    assert heads[:4] == first


def test_an_example_is_whole(written: Write) -> None:
    row = pair(2)
    text, _ = written(row)
    shown = text.split("## One row")[1].split("## Is it for me?")[0]
    for code in (row["reference"], row["triton"]):
        assert code.strip() in shown
    assert f'id: "{row["id"]}"' in shown and 'license: "MIT"' in shown


@pytest.mark.parametrize("config", ["messages", "pairs"])
def test_each_caveat_comes_with_the_code_that_leaves_it_out(tmp_path: Path, config: str) -> None:
    narrow = {**pair(2)["verdict"], "caveats": ["own_ranks_only", "finite_only"]}
    wrong = {**pair(2)["verdict"], "status": "incorrect"}
    rows = [pair(1), pair(2, verdict=narrow), pair(3, verdict=wrong), pair(4, verdict=None)]
    make(tmp_path, rows, formats=[config])
    write_card(tmp_path / "adders", analyse(Run(tmp_path, "adders")))
    text = (tmp_path / "adders/README.md").read_text()
    found = re.findall(r"^- \*\*(\d+) rows?\*\*: .*\. `(.*)`$", text, re.MULTILINE)
    assert [int(n) for n, _ in found] == [2, 1, 1]
    ds = datasets.Dataset.from_parquet(
        str(tmp_path / f"adders/{config}/train-00000-of-00001.parquet"),
        cache_dir=str(tmp_path / "hf"),
    )
    for n, code in found:
        left = ds.filter(eval(f"lambda r: {code}"))
        assert len(ds) - len(left) == int(n), code


def test_the_card_is_short(written: Write) -> None:
    caveats = [*CAVEATS]
    every = [pair(i, verdict={**pair(2)["verdict"], "caveats": caveats}) for i in range(5)]
    text, _ = written(*every)
    body = text.split("---\n", 2)[2]
    said = re.sub(r"^(```+).*?^\1$", "", body, flags=re.MULTILINE | re.DOTALL)
    assert all(f'"{caveat}"' in said for caveat in caveats)
    assert len(said.split()) <= 1200


def test_figures_are_shown_and_the_run_knows_the_card(written: Write, tmp_path: Path) -> None:
    written(pair(1))
    figures = tmp_path / "adders/figs"
    figures.mkdir()
    (figures / "rows_by_step.png").write_bytes(b"png")
    path = tmp_path / "adders/README.md"
    write_card(path.parent, analyse(Run(tmp_path, "adders")))
    assert "rows_by_step" not in path.read_text(), "ANALYSIS.md shows it"
    run = json.loads((path.parent / "run.json").read_text())
    assert run["files"]["README.md"] == file_sha256(path)
    before = path.read_bytes()
    write_card(path.parent, analyse(Run(tmp_path, "adders")))
    assert path.read_bytes() == before


def test_a_table_without_lines_is_none() -> None:
    assert list(table(("a", "b"), [])) == []
    assert list(table(("a", "b"), [(1234, None)])) == ["| a | b |", "|-:|-|", "| 1,234 | - |", ""]
