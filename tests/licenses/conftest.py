"""What becomes of one file of a package that is made in a test."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from license_samples import Decide, Judge

from curate.cache.artifact import Info, store, wanted
from curate.licenses.licenses import Licenses
from curate.rows import Row, make_origin, make_row
from curate.step import Context, Drop, Keep


@pytest.fixture
def decide(tmp_path: Path) -> Decide:
    """Return a function that gives a file's license, or the reason for which it is dropped."""

    def run(files: dict[str, str], path: str = "pkg/a.py", metadata: str = "") -> str:
        if metadata:
            files = {**files, "pkg-1.0.dist-info/METADATA": f"Name: pkg\n{metadata}\n"}
        sha256 = hashlib.sha256(json.dumps(files).encode()).hexdigest()
        kept = [(name, text.encode()) for name, text in files.items() if wanted(name)]
        store(tmp_path, sha256, Info("pypi", purl="pkg:pypi/pkg@1.0"), kept)
        origin = make_origin("pypi", artifact_sha256=sha256, path=path)
        row = make_row("file", files[path], origin, text=files[path])
        outcome = Licenses(step="licenses").apply(row, Context(cache=tmp_path))
        if isinstance(outcome, Drop):
            return outcome.reason
        return str(outcome.rows[0]["license"]["expression"])  # type: ignore[union-attr, index]

    return run


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    """Return a function that files an artifact and judges one of its files."""

    def run(files: dict[str, str | bytes], path: str = "pkg/a.py", **options: Any) -> Row | Drop:
        metadata = options.pop("metadata", None)
        if metadata:
            files = {**files, "pkg-1.0.dist-info/METADATA": f"Name: pkg\n{metadata}\n"}
        sha256 = hashlib.sha256(repr(files).encode()).hexdigest()
        context = Context(cache=tmp_path)
        pairs = [
            (n, text if isinstance(text, bytes) else text.encode()) for n, text in files.items()
        ]
        store(tmp_path, sha256, Info("pypi", purl="pkg:pypi/pkg@1.0"), pairs)
        origin = make_origin(
            "pypi",
            purl="pkg:pypi/pkg@1.0",
            repo="https://github.com/Some-Owner/pkg.git",
            artifact_sha256=sha256,
            path=path,
        )
        step = Licenses(step="licenses", **options)
        step.setup(context)
        outcome = step.apply(make_row("file", files[path], origin, text=files[path]), context)
        if isinstance(outcome, Drop):
            json.dumps(outcome.evidence)
            return outcome
        assert isinstance(outcome, Keep)
        (row,) = outcome.rows
        return row

    return run
