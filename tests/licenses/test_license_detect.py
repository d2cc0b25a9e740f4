"""What texts say, on license texts that installed packages carry and on headers written here."""

from __future__ import annotations

import pytest
from license_samples import APACHE_NOTICE, LESS, bsd_text, installed_text

from curate.licenses.detect import (
    cited_urls,
    copyright_lines,
    place,
    terms,
)
from curate.licenses.text.prose import read_source
from curate.licenses.text.tags import read_tags


@pytest.mark.parametrize(
    ("package", "expression"),
    [
        ("pydantic", "MIT"),
        ("licenseclassifier", "BSD-3-Clause"),
        ("tzdata", "Apache-2.0"),
        ("datasets", "Apache-2.0"),
        ("fsspec", "BSD-3-Clause"),
        ("filelock", "MIT"),
    ],
)
def test_places_license_files_of_installed_packages(package: str, expression: str) -> None:
    placed = place(installed_text(package))
    assert placed.expression == expression
    assert placed.whole
    assert placed.coverage > 0.99


def test_compound_text_of_torch_is_not_placed() -> None:
    assert not place(installed_text("torch")).whole


@pytest.mark.parametrize("restriction", LESS)
@pytest.mark.parametrize("where", ["above", "in the copyright line", "under it", "inside", "below"])
def test_text_that_quotes_bsd_and_restricts_it_is_not_placed(restriction: str, where: str) -> None:
    text = bsd_text()
    assert place(text).whole
    first, body = text.split("Redistribution and use", 1)
    holder = "Copyright (c) 2024 Somebody"
    body = f"Redistribution and use{body}"
    restricted = {
        "above": f"{restriction}\n\n{holder}\n\n{body}",
        "in the copyright line": f"{holder}. {restriction}\n\n{body}",
        "under it": f"{holder}\n{restriction}\n\n{body}",
        "inside": f"{holder}\n\n{body.replace('THIS', f'{restriction} THIS', 1)}",
        "below": f"{holder}\n\n{body}\n\n{restriction}\n",
    }[where]
    assert "Copyright" in first
    assert not place(restricted).whole


def test_damaged_license_is_not_placed() -> None:
    text = installed_text("datasets")
    half = len(text) // 2
    damaged = text[:half] + text[half + 200 :]
    assert place(text).whole
    assert not place(damaged).whole


def test_short_apache_notice_is_recognised_by_the_templates() -> None:
    placed = place("Licensed under the Apache License, Version 2.0")
    assert placed.expression == "Apache-2.0"
    assert placed.grants
    assert not terms(placed.leftovers, "edge")


def test_address_alone_is_marked_as_such() -> None:
    placed = place("See https://creativecommons.org/licenses/by-nc/4.0/ for more.")
    assert placed.expression == "CC-BY-NC-4.0"
    assert not placed.grants


def test_notice_without_template_is_left_over() -> None:
    placed = place(f"{APACHE_NOTICE}\n\nParts are under the Acme Community License Agreement.")
    assert placed.expression == "Apache-2.0"
    assert terms(placed.leftovers, "edge") == [
        "Parts are under the Acme Community License Agreement."
    ]
    assert not terms(place("Fast kernels. All sizes are powers of two.").leftovers, "edge")


def test_words_before_a_copyright_line_do_not_hide_in_the_match() -> None:
    placed = place(f"Copyright 2020 A\nTaken from code under a Foo license.\n{APACHE_NOTICE}")
    assert terms(placed.leftovers, "edge") == ["Taken from code under a Foo license."]


def granted(text: str, path: str = "a.py") -> list[str]:
    return read_tags(read_source(text, path)).grants


def test_tags_grant_in_comments_of_the_header_only() -> None:
    assert granted("# SPDX-License-Identifier: MIT\nx = 1") == ["MIT"]
    cuda = "/* SPDX-License-Identifier: MIT OR Apache-2.0 */"
    assert granted(cuda, "a.cu") == ["MIT OR Apache-2.0"]
    below = read_tags(read_source("x = 1\n" * 9000 + "# SPDX-License-Identifier: MIT", "a.py"))
    assert (below.grants, below.further) == ([], ["MIT"])  # about a part
    for string in ('name = "{}"', "T = '''\n{}\n'''", '"""{}"""', "f(f'{}')", '("""\n{}\n""")'):
        text = string.format("# SPDX-License-Identifier: MIT")
        tags = read_tags(read_source(text, "a.py"))
        assert (tags.grants, tags.claims) == ([], ["MIT"]), string


def test_header_is_comments_and_docstring() -> None:
    text = '#!/usr/bin/env python\n# one\n\n"""two\n\nthree"""\n# four\nx = 1  # five\n'
    source = read_source(text, "a.py")
    assert source.header.split()[-4:] == ["one", "two", "three", "four"]
    cuda = "/*\n * one\n */\n// two\n#include <a.h>\n"
    assert read_source(cuda, "a.cu").header.split() == ["one", "two"]


def test_copyright_lines() -> None:
    text = (
        "# Copyright (c) 2024 Ada\n# All rights reserved.\n# SPDX-FileCopyrightText: 2023 Bob\n"
        "# Copyright (c) 2024 Ada\n# 2. Grant of Copyright License.\n# Copyright [yyyy] [name]\n"
    )
    assert copyright_lines(text) == ["Copyright (c) 2024 Ada", "2023 Bob"]


def test_cited_urls() -> None:
    text = (
        "# Adapted from https://github.com/a/b/blob/main/c.py.\n"
        "# based on\n#   (https://github.com/d/e)\n"
        "# see https://example.com/docs\n"
        "# Copied from https://github.com/a/b/blob/main/c.py\n"
    )
    assert cited_urls(text) == ["https://github.com/a/b/blob/main/c.py", "https://github.com/d/e"]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("line", ["#\n", "\n", "# -*-\n", "# (c\n"])
def test_long_empty_header_takes_linear_time(line: str) -> None:
    text = line * 200_000
    assert granted(text) == []
    assert place(read_source(text, "a.py").header).expression is None
