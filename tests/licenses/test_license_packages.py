"""Packages whose declared license is not that of all their code, at pinned versions."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from curate.licenses.licenses import Licenses
from curate.rows import make_origin, make_row
from curate.sources.index import fetch
from curate.step import Context, Drop

pytestmark = pytest.mark.network

JIT = re.compile(r"^\s*@(?:triton\.)?jit\b", re.M)


def census(name: str, version: str, sha256: str, cache: Path) -> Counter[str]:
    """Return how many Triton functions ended under which license or drop reason."""
    artifact = fetch(name, version, sha256, cache)
    step, context = Licenses(step="licenses"), Context(cache=cache)
    found: Counter[str] = Counter()
    for path in artifact.paths():
        if not path.endswith(".py"):
            continue
        text = artifact.read(path)
        origin = make_origin("pypi", artifact_sha256=sha256, path=path)
        outcome = step.apply(make_row("file", text, origin, text=text), context)
        if isinstance(outcome, Drop):
            label = outcome.reason
        else:
            label = outcome.rows[0]["license"]["expression"]  # type: ignore[union-attr]
        found[label] += len(JIT.findall(text))
    return +found


def test_dlblas_text_and_classifier_disagree(tmp_path: Path) -> None:
    sha256 = "f5c55d41aefae599f036abf9389757030d6c921824a7dfae92889f981b5143f7"
    found = census("dlblas", "0.0.7", sha256, tmp_path)
    assert found == {"Apache-2.0 AND BSD-3-Clause": 237, "BSD-3-Clause AND MIT": 1}


def test_mlstm_kernels_community_license(tmp_path: Path) -> None:
    sha256 = "9e1a3866dc4db964a27d833e6c17fc0da7d74a2ed6aa9d4daf2cbdfbd42a9584"
    assert census("mlstm-kernels", "2.0.6", sha256, tmp_path) == {"license_unknown": 65}


def test_flashlib_damaged_apache_text_that_a_person_read(tmp_path: Path) -> None:
    sha256 = "856008e12dd8e985547258e1069629e68af530faf8bb9bbd33e27937a3fa4c10"
    assert census("flashlib", "0.4.0", sha256, tmp_path) == {"Apache-2.0": 119}


def test_fla_core_header_names_mit_and_points_to_the_license_file(tmp_path: Path) -> None:
    sha256 = "cdd5b7ff6d5c0e5c08fde73f2624d76e0b506f8684af4e316bc7f2d8bfd9a623"
    assert census("fla-core", "0.6.0", sha256, tmp_path) == {"MIT": 540}


@pytest.mark.slow
@pytest.mark.weekly
def test_axolotl_apache_tags_in_a_folder_under_its_community_license(tmp_path: Path) -> None:
    sha256 = "136d623f04c909c5149d7f5dbd4a0e215014ab4c3617cce9d64010b5b8ca609d"
    found = census("axolotl", "0.19.0", sha256, tmp_path)
    assert found == {"Apache-2.0": 29, "license_denied": 66}


def test_mase_triton_metadata_alone_grants_nothing(tmp_path: Path) -> None:
    sha256 = "a3979803670fdace520a07f9151758e61ea68bdc9067957fe9f70cf989f8128f"
    assert census("mase-triton", "0.0.7", sha256, tmp_path) == {"license_unknown": 18}


@pytest.mark.slow
@pytest.mark.weekly
def test_unsloth_agpl_headers_under_apache_metadata(tmp_path: Path) -> None:
    sha256 = "feb40b99bc4f8c543a36cbd0fe6e1410d6e4ac16bd4d0c731f607adce3d63bb0"
    found = census("unsloth", "2026.10.9", sha256, tmp_path)
    # Four of the AGPL functions carry a tag that is not SPDX, so their license is unknown.
    assert found == {"Apache-2.0": 39, "license_denied": 83, "license_unknown": 4}
