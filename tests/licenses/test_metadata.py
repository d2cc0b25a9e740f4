"""Metadata in all its forms, and the files that it points to."""

from __future__ import annotations

import pytest
from license_samples import CODE, MIT, Decide

BASE = {"pkg/a.py": CODE, "LICENSE": MIT}
SETUP = "from setuptools import setup\n"


@pytest.mark.parametrize(
    "files",
    [
        {"pyproject.toml": '[project]\nlicense = {file = "docs/terms_nc.txt"}\n'},
        {
            "pyproject.toml": '[project]\nlicense = {file = "docs/terms_nc.txt"}\n',
            "docs/terms_nc.txt": "Only for non-commercial use.\n",
        },
        {"pyproject.toml": '[project]\nlicense-files = ["meta/house/*"]\n'},
        {
            "pyproject.toml": "[tool.setuptools.dynamic]\nlicense = {file = 'LICENSE-nc.md'}\n",
            "LICENSE-nc.md": "No commercial use.\n",
        },
        {"setup.cfg": "[metadata]\nlicense_files =\n    LICENSE\n    meta/b.txt\n"},
        {"setup.py": f'{SETUP}L = "GPLv3"\nsetup(name="p", license=L)\n'},
        {"setup.py": f'{SETUP}setup(name="p", license="""AGPLv3""")\n'},
        {"setup.py": f'{SETUP}kw = dict(license="CC-BY-NC-4.0")\nsetup(**kw)\n'},
        {"setup.py": f'{SETUP}setup(license=open("meta/c.txt").read())\n'},
        {"Cargo.toml": '[package]\nlicense-file = "d.txt"\n', "d.txt": "For internal use only.\n"},
        {"CITATION.cff": "cff-version: 1.2.0\nlicense:\n  - MIT\n  - GPL-3.0-only\n"},
        {"codemeta.json": '{"license": ["https://spdx.org/licenses/AGPL-3.0-only"]}\n'},
        {"package.json": '{"license": {"type": "GPL-3.0", "url": "x"}}\n'},
        {"package.json": '{"license": "SEE LICENSE IN house.txt"}\n'},
    ],
)
def test_what_metadata_says_or_points_to_counts(decide: Decide, files: dict[str, str]) -> None:
    assert decide({**BASE, **files}) in ("license_denied", "license_unknown")


@pytest.mark.parametrize(
    "files",
    [
        {"pyproject.toml": '[project]\nlicense = {file = "LICENSE"}\n'},
        {"pyproject.toml": '[project]\nlicense = "MIT"\nlicense-files = ["LICEN[CS]E*"]\n'},
        {"setup.py": f'{SETUP}setup(license=open("LICENSE").read())\n'},
        {"setup.py": f'{SETUP}L = "MIT License"\nsetup(name="p", license=L)\n'},
        {"setup.cfg": "[metadata]\nlicense = MIT\nlicense_files = LICENSE\n"},
        {"codemeta.json": '{"license": "https://spdx.org/licenses/MIT"}\n'},
        {"package.json": '{"license": "SEE LICENSE IN LICENSE"}\n'},
        {"setup.py": 'print "of Python 2"\nsetup(license="MIT")\n'},
    ],
)
def test_metadata_that_agrees_changes_nothing(decide: Decide, files: dict[str, str]) -> None:
    assert decide({**BASE, **files}) == "MIT"
