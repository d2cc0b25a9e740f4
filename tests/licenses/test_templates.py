"""A license grants where its text stands word for word; its rooms hold names and nothing else."""

from __future__ import annotations

import re

import pytest
from license_samples import CODE, MIT, Decide, bsd_text, installed_text

from curate.licenses.detect import place
from curate.licenses.policy import default_policy, license_ids
from curate.licenses.text.templates import templated

RIDERS = ["for noncommercial research", "TO SCHOOLS, BANKS EXCLUDED,", "Who Signed The Contract"]


def put(text: str, words: str, added: str) -> str:
    """Return a text with something added behind words of it."""
    found = re.search(re.escape(words).replace(r"\ ", r"\s+"), text)
    assert found is not None
    return f"{text[: found.end()]} {added}{text[found.end() :]}"


def test_every_license_of_the_allow_list_has_its_text() -> None:
    exceptions = {"LLVM-exception"}
    assert templated() == default_policy().allow - exceptions


@pytest.mark.parametrize("rider", RIDERS)
@pytest.mark.parametrize(
    ("package", "words"),
    [
        ("pydantic", "obtaining a copy of this software"),
        ("pydantic", "IN NO EVENT SHALL THE"),
        ("pydantic", "to permit persons"),
        ("licenseclassifier", "PROVIDED BY"),
        ("licenseclassifier", "IN NO EVENT SHALL THE"),
        ("licenseclassifier", "prior written permission"),
        ("licenseclassifier", "Redistribution and use"),
        ("datasets", "royalty-free"),
        ("shellingham", "this software"),
    ],
)
def test_a_rider_in_a_license_makes_it_another(
    decide: Decide, package: str, words: str, rider: str
) -> None:
    text = installed_text(package)
    (granted,) = license_ids(str(place(text).expression))
    assert decide({"pkg/a.py": CODE, "LICENSE": text}) == granted
    assert decide({"pkg/a.py": CODE, "LICENSE": put(text, words, rider)}) == "license_unknown"


@pytest.mark.parametrize("words", ["sublicense,", "without restriction,", "free of charge,"])
def test_words_that_are_taken_away_are_missed(decide: Decide, words: str) -> None:
    text = " ".join(MIT.split())
    assert words in text
    less = MIT.replace(words, "") if words in MIT else text.replace(words, "")
    assert decide({"pkg/a.py": CODE, "LICENSE": less}) == "license_unknown"


def test_evidence_shows_what_differs() -> None:
    placed = place(put(MIT, "obtaining a copy of this software", "inside one building"))
    assert (placed.expression, [one.id for one in placed.edited]) == (None, ["MIT"])
    assert "inside one building" in placed.differs


@pytest.mark.parametrize(
    "line",
    [
        "Copyright (c) 1998-2005 The Regents of the University of California",
        "Copyright (c) 2017 Foo, Inc. and its affiliates. All rights reserved.",
        "Copyright (c) 2001 Ada Lovelace, John von Neumann,\nKurt G\u00f6del and Paul Erd\u0151s",
        "Copyright (c) 2023 lucidrains",
        "Copyright (c) 2020 The Example Authors (see AUTHORS file)",
        "Copyright (c) <year> <copyright holders>",
        "The MIT License, Copyright (c) 2024 Ada Lovelace",
        "\u00a9 2024 Max-Planck-Gesellschaft zur F\u00f6rderung der Wissenschaften e.V.",
        "SPDX-FileCopyrightText: Copyright contributors to the vLLM project",
    ],
)
@pytest.mark.parametrize("license_text", [MIT, bsd_text()])
def test_usual_holders_change_nothing(decide: Decide, license_text: str, line: str) -> None:
    start = re.search(r"Permission is|Redistribution and use", license_text)
    assert start is not None
    whole = f"{line}\n\n{license_text[start.start() :]}"
    granted = decide({"pkg/a.py": CODE, "LICENSE": license_text})
    assert decide({"pkg/a.py": CODE, "LICENSE": whole}) == granted


@pytest.mark.parametrize(
    "line",
    [
        "Copyright (c) 2024 Ada Lovelace, lent to schools",
        "Copyright (c) 2024 Ada Lovelace FOR HOSPITALS",
        "Copyright (c) 2024 Ada Lovelace. Only Students.",
        "Copyright (c) 2024 Ada Lovelace <non commercially>",
        "Copyright (c) 2024 Ada Lovelace, until 2030",
    ],
)
def test_a_copyright_line_that_says_more_is_no_copyright_line(decide: Decide, line: str) -> None:
    whole = f"{line}\n\n{MIT[MIT.index('Permission is') :]}"
    assert decide({"pkg/a.py": CODE, "LICENSE": whole}) == "license_unknown"


def test_a_notice_that_is_commented_out_or_quoted_grants_nothing(decide: Decide) -> None:
    comment = "".join(f"# {line}".rstrip() + "\n" for line in MIT.splitlines())
    assert decide({"pkg/a.py": comment + CODE}) == "MIT"
    twice = "".join(f"# {line}" for line in comment.splitlines(keepends=True))
    literal = "".join(f'# "{line}",\n' for line in MIT.splitlines())
    for text in (twice, literal, f'"""Adds."""\n"""\n{MIT}"""\n', f'"""Writes:\n\n{MIT}"""\n'):
        assert decide({"pkg/a.py": text + CODE}) == "license_unknown", text[:60]
