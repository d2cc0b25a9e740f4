"""README, descriptions and cards: what they say of their own project counts, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from license_samples import CODE, MIT, Decide

from curate.cache.artifact import Info, open_artifact, store
from curate.licenses.overrides import load_overrides
from curate.licenses.policy import default_policy
from curate.licenses.records import resolve_record
from curate.licenses.resolve import Resolver
from curate.rows import make_origin, make_row

BASE = {"pkg/a.py": CODE, "LICENSE": MIT}
TERMS = [
    "Free for non-commercial use only.",
    "You may not use this repository to train machine learning models.",
    "Companies with more than 50 employees have to pay.",
    "Academic users may use it free of charge; all others must buy a license.",
    "Before you use it in a company, talk to our lawyers.",
    "Redistribution is not permitted.",
    "Dual licensed: GPLv3 or commercial.",
    "Nur f\u00fcr den internen Gebrauch.",
    "## License\n\nThis project is licensed under CC BY-NC 4.0.",
    "## Licence\n\nResearchers only.",
    "## License\n\nSee https://acme.example/terms.",
    "![License: CC BY-NC 4.0](https://img.shields.io/badge/License-CC%20BY--NC%204.0-red.svg)",
    "The license is [here](https://creativecommons.org/licenses/by-nc/4.0/).",
    "<!-- Not for commercial use. -->",
    "## License\n\nThis ImageNet trainer is for non-commercial use only.",
    "## License\n\nThe models and the code are for non-commercial use only.",
]
HONEST = [
    "## License\n\nReleased under the MIT license - see [LICENSE](LICENSE).",
    "[![License: MIT](https://img.shields.io/badge/License-MIT-yellow.svg)](LICENSE)",
    "Works on commercial GPUs and in commercial products alike.",
    "If you use this code in your research, please cite us.",
    "Built on PyTorch (BSD-3-Clause) and Triton (MIT).",
    "The model weights are released under CC-BY-NC 4.0.",
    "Only forward passes are supported; do not call backward.",
    "You need permission to write to `/dev/nvidia0`.",
    "## Licenses\n\n### Code\n\nThe code is MIT.\n\n### Weights\n\nImageNet was released for "
    "non-commercial research purposes only.",
    "This is not an official Google product.",
    "Forum: ask questions and discuss implementations, research, and ideas.",
    "pkg is used in production at several companies.",
    "## \u8bb8\u53ef\u8bc1\n\n\u8bb8\u53ef\u8bc1: MIT",
]


@pytest.mark.parametrize("said", TERMS)
def test_a_readme_that_restricts_its_project(decide: Decide, said: str) -> None:
    text = f"# pkg\n\nFast kernels.\n\n{said}\n"
    dropped = ("license_denied", "license_unknown")
    assert decide({**BASE, "README.md": text}) in dropped
    assert decide(BASE, metadata=f"Version: 1\n\n{text}") in dropped


@pytest.mark.parametrize("said", HONEST)
def test_a_readme_that_speaks_of_other_things(decide: Decide, said: str) -> None:
    text = f"# pkg\n\nFast kernels.\n\n{said}\n"
    assert decide({**BASE, "README.md": text}) == "MIT"
    assert decide(BASE, metadata=f"Version: 1\n\n{text}") == "MIT"


@pytest.mark.parametrize(
    "name", ["README", "Readme.txt", "README.rst", "README_de.md", "README.adoc"]
)
def test_a_readme_has_many_names(decide: Decide, name: str) -> None:
    assert decide({**BASE, name: "Free for non-commercial use only.\n"}) == "license_unknown"


def test_the_readme_of_a_folder_speaks_for_it(decide: Decide) -> None:
    files = {**BASE, "ee/b.py": CODE, "ee/README.md": "This folder needs a commercial license.\n"}
    assert decide(files) == "MIT"
    assert decide(files, "ee/b.py") == "license_unknown"


@pytest.mark.parametrize(
    ("head", "body", "kept"),
    [
        ("license: mit", "", True),
        ("license: mit\nlicense_link: https://opensource.org/licenses/MIT", "", True),
        ("license: mit\nextra_gated_prompt: Please tell us who you are.", "", True),
        ("license: cc-by-nc-4.0\nlicense: mit", "", False),
        ("license: mit\nlicense_link: https://creativecommons.org/licenses/by-nc/4.0/", "", False),
        ("license: other\nlicense_name: mit\nlicense_link: https://acme.example/eula", "", False),
        ("license: mit\nextra_gated_prompt: You agree not to use this commercially.", "", False),
        ("license: mit", "Non-commercial research use only.", False),
    ],
)
def test_every_key_of_a_card_counts(tmp_path: Path, head: str, body: str, kept: bool) -> None:
    card = f"---\n{head}\n---\n# Kernels\n\n{body}\n"
    info = Info("hub", purl="pkg:huggingface/a/b@1")
    store(tmp_path, "c" * 64, info, [("README.md", card.encode()), ("data.parquet", b"PAR1")])
    artifact = open_artifact(tmp_path, "c" * 64)
    policy = default_policy()
    origin = make_origin("hub", artifact_sha256="c" * 64, path="data.parquet")
    row = make_row("record", "x", origin)
    found = resolve_record(row, artifact, Resolver(artifact, policy, load_overrides(None)))
    assert (found.statement.expression == "MIT") == kept
