"""Headers that only name the license beside them, or point to it, agree with it."""

from __future__ import annotations

import pytest
from license_samples import CODE, MIT, Decide

HONEST = [
    "Copyright (c) Foo Corporation. Licensed under the MIT License.",
    "Licensed under the MIT license. See LICENSE file in the project root for license information.",
    "This source code is licensed under the MIT license found in the\nLICENSE file in the root "
    "directory of this source tree.",
    "Copyright 2020 The Foo Authors. All rights reserved.\nUse of this source code is governed by "
    "an MIT-style\nlicense that can be found in the LICENSE file.",
    "For licensing see accompanying LICENSE file.",
    "See LICENSE for details.",
    "Released under the MIT license.",
    "This code is distributed under the terms of the MIT license.",
    "This file is part of Foo, released under the MIT license.",
    "Same license as the project.",
    "License: MIT (see LICENSE for details)",
    "LICENSE HEADER MANAGED BY add-license-header\n\nLicensed under the MIT License.",
    "Author: Ada Lovelace\nLicense: MIT",
    "You may use this code under the terms of the MIT license.",
    "Adapted from the bar project (MIT License), see the LICENSE file.",
]
RIDERS = [
    "Licensed under the MIT license to schools.",
    "MIT license, banks excluded.",
    "Released under the MIT license except for Acme.",
    "Licensed under the Acme Community License.",
    "See LICENSE. Not for sale.",
    "License header managed by add-license-header, not for sale.",
    "Commons Clause applies.",
    "This is for the eyes of the board.",
    "Delete this after the workshop.",
    "You promise to do no harm with it.",
    "Kun til ikke-kommerciel brug.",
    "This code is pro-\nprietary.",
]


@pytest.mark.parametrize("header", HONEST)
@pytest.mark.parametrize("form", ["comment", "docstring"])
def test_a_header_that_names_the_license_agrees(decide: Decide, header: str, form: str) -> None:
    assert decide({"pkg/a.py": written(header, form) + CODE, "LICENSE": MIT}) == "MIT"


@pytest.mark.parametrize("header", RIDERS)
def test_a_header_that_says_more_does_not(decide: Decide, header: str) -> None:
    files = {"pkg/a.py": written(header, "comment") + CODE, "LICENSE": MIT}
    assert decide(files) == "license_unknown"


@pytest.mark.parametrize(
    "docstring",
    [
        "Client of commercial LLMs, such as those behind an API.",
        "A minimal GPT for educational purposes.",
        "Restricted Boltzmann machine, for educational purposes.",
        "Reads the proprietary format of the microscope.",
    ],
)
def test_a_docstring_that_describes_code_is_no_terms(decide: Decide, docstring: str) -> None:
    assert decide({"pkg/a.py": f'"""{docstring}"""\n{CODE}', "LICENSE": MIT}) == "MIT"


def written(header: str, form: str) -> str:
    """Return a header as a comment or a docstring."""
    if form == "docstring":
        return f'"""{header}\n"""\n'
    return "".join(f"# {line}\n" for line in header.splitlines())
