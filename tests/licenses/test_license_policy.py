"""The allow list against SPDX expressions."""

from __future__ import annotations

import pytest

from curate.licenses.policy import (
    UnknownLicense,
    burden,
    conjoin,
    default_policy,
    evaluate,
    license_ids,
    make_policy,
)


@pytest.mark.parametrize(
    ("expression", "choice"),
    [
        ("MIT", "MIT"),
        ("mit", "MIT"),
        ("GPL-3.0-only OR MIT", "MIT"),
        ("Apache-2.0 OR MIT", "Apache-2.0"),
        ("MIT AND Apache-2.0", "MIT AND Apache-2.0"),
        ("BSD-3-Clause AND (GPL-2.0-only OR MIT)", "BSD-3-Clause AND MIT"),
        ("GPL-2.0-only OR (MIT AND Zlib)", "MIT AND Zlib"),
        ("Apache-2.0 WITH LLVM-exception", "Apache-2.0 WITH LLVM-exception"),
    ],
)
def test_allows_what_the_list_covers(expression: str, choice: str) -> None:
    decision = evaluate(expression, default_policy())
    assert decision.allowed
    assert decision.choice == choice
    assert decision.reason == ""


@pytest.mark.parametrize(
    ("expression", "term"),
    [
        ("AGPL-3.0-only", "AGPL-3.0-only"),
        ("MIT AND GPL-3.0-only", "GPL-3.0-only"),
        ("GPL-2.0-only OR LGPL-3.0-only", "LGPL-3.0-only"),
        ("CC-BY-NC-4.0", "CC-BY-NC-4.0"),
        ("MPL-2.0", "MPL-2.0"),
        ("LicenseRef-NvidiaProprietary", "LicenseRef-NvidiaProprietary"),
        ("Apache-2.0 WITH Classpath-exception-2.0", "Classpath-exception-2.0"),
        ("GPL-2.0-only WITH LLVM-exception", "GPL-2.0-only"),
        ("MIT AND (GPL-2.0-only OR AGPL-3.0-only)", "AGPL-3.0-only"),
    ],
)
def test_denies_the_rest_and_names_the_term(expression: str, term: str) -> None:
    decision = evaluate(expression, default_policy())
    assert not decision.allowed
    assert term in decision.reason


@pytest.mark.parametrize(
    "expression",
    ["", "BSD-3", "MIT AND", "(MIT", "GNU Affero General Public License v3.0", "MIT, Apache-2.0"],
)
def test_refuses_what_is_not_spdx(expression: str) -> None:
    with pytest.raises(UnknownLicense):
        evaluate(expression, default_policy())


def test_own_list_replaces_the_shipped_one() -> None:
    policy = make_policy(["MPL-2.0"])
    assert evaluate("MPL-2.0", policy).allowed
    assert not evaluate("MIT", policy).allowed
    with pytest.raises(UnknownLicense, match="'Apache'"):
        make_policy(["Apache"])


def test_conjoin_simplifies() -> None:
    assert conjoin("MIT") == "MIT"
    assert conjoin("MIT", "BSD-3-Clause AND MIT") == "BSD-3-Clause AND MIT"
    assert conjoin("Apache-2.0", "BSD-3-Clause") == conjoin("BSD-3-Clause", "Apache-2.0")
    both = conjoin("MIT OR GPL-2.0-only", "BSD-3-Clause")
    assert evaluate(both, default_policy()).choice == "BSD-3-Clause AND MIT"
    assert conjoin("MIT", "Apache-2.0 WITH LLVM-exception").count("WITH") == 1
    with pytest.raises(UnknownLicense):
        conjoin()
    with pytest.raises(UnknownLicense):
        conjoin("MIT", "no license")


def test_license_ids_leave_exceptions_aside() -> None:
    found = license_ids("MIT OR (Apache-2.0 WITH LLVM-exception AND GPL-3.0)")
    assert found == {"MIT", "Apache-2.0", "GPL-3.0-only"}


def test_what_asks_for_more_weighs_more() -> None:
    order = ["Unlicense", "MIT", "BSD-3-Clause", "Apache-2.0", "Apache-2.0 AND MIT", "GPL-3.0-only"]
    weights = [burden(expression) for expression in order]
    assert weights == sorted(set(weights))
