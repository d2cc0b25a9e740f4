"""Packages whose declared license is not that of all their code, at pinned versions."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from curate.licenses.step import Licenses
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
    assert found == {"Apache-2.0 AND BSD-3-Clause": 237, "MIT": 1}


def test_mlstm_kernels_community_license(tmp_path: Path) -> None:
    sha256 = "9e1a3866dc4db964a27d833e6c17fc0da7d74a2ed6aa9d4daf2cbdfbd42a9584"
    assert census("mlstm-kernels", "2.0.6", sha256, tmp_path) == {"license_unknown": 65}


def test_flashlib_damaged_apache_text(tmp_path: Path) -> None:
    sha256 = "856008e12dd8e985547258e1069629e68af530faf8bb9bbd33e27937a3fa4c10"
    assert census("flashlib", "0.4.0", sha256, tmp_path) == {"license_unknown": 119}


@pytest.mark.slow
def test_unsloth_agpl_headers_under_apache_metadata(tmp_path: Path) -> None:
    sha256 = "feb40b99bc4f8c543a36cbd0fe6e1410d6e4ac16bd4d0c731f607adce3d63bb0"
    found = census("unsloth", "2026.10.9", sha256, tmp_path)
    # Four of the AGPL functions carry a tag that is not SPDX, so their license is unknown.
    assert found == {"Apache-2.0": 39, "license_denied": 83, "license_unknown": 4}
