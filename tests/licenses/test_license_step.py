"""The step on small artifacts made here, with license texts of installed packages."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path

import pytest
import yaml
from license_samples import (
    AGPL_NOTICE,
    APACHE,
    APACHE_NOTICE,
    LESS,
    MIT,
    Judge,
    bsd_text,
    dropped,
    kept,
)
from pydantic import ValidationError

from curate.cache.artifact import Info, store
from curate.cache.texts import load_text, save_text, text_sha256
from curate.licenses.licenses import Licenses
from curate.licenses.optout import OptOutError, parse_optout
from curate.rows import make_origin, make_row
from curate.step import Context, Drop, Keep

CODE = "import torch\n\nx = 1\n"


def test_nearest_license_file_and_its_text(judge: Judge, tmp_path: Path) -> None:
    found = kept(judge({"pkg/a.py": CODE, "LICENSE": MIT, "NOTICE": "Thanks.\n"}))
    assert found["expression"] == found["choice"] == "MIT"
    assert (found["method"], found["path"]) == ("license_file", "LICENSE")
    assert found["confidence"] > 0.99
    assert [load_text(tmp_path, sha) for sha in found["text_sha256"]] == [MIT]
    assert [load_text(tmp_path, sha) for sha in found["notice_sha256"]] == ["Thanks.\n"]
    assert found["copyright"]
    assert not found["conflict"]


def test_nested_license_governs_its_folder_only(judge: Judge) -> None:
    files = {"pkg/a.py": CODE, "pkg/sub/b.py": CODE, "LICENSE": APACHE, "pkg/sub/LICENSE": MIT}
    assert kept(judge(files, "pkg/a.py"))["expression"] == "Apache-2.0"
    assert kept(judge(files, "pkg/sub/b.py"))["expression"] == "MIT"


def test_license_in_dist_info_counts_at_the_root(judge: Judge) -> None:
    files = {"pkg/a.py": CODE, "pkg-1.0.dist-info/licenses/LICENSE": MIT}
    assert kept(judge(files))["expression"] == "MIT"


def test_tag_governs_and_keeps_the_text_that_matches(judge: Judge, tmp_path: Path) -> None:
    text = f"# SPDX-License-Identifier: Apache-2.0\n{CODE}"
    files = {"pkg/a.py": text, "LICENSE": MIT, "LICENSES/LICENSE-Apache.txt": APACHE}
    found = kept(judge(files))
    assert (found["expression"], found["method"]) == ("Apache-2.0", "spdx_tag")
    assert [load_text(tmp_path, sha) for sha in found["text_sha256"]] == [APACHE]


def test_header_notice_joins_the_license_file(judge: Judge) -> None:
    text = f"# Copyright 2024 Ada\n# {APACHE_NOTICE}\n{CODE}"
    found = kept(judge({"pkg/a.py": text, "LICENSE": MIT}))
    assert (found["expression"], found["method"]) == ("Apache-2.0 AND MIT", "header")
    assert "Copyright 2024 Ada" in found["copyright"]


def test_agpl_header_under_an_apache_license(judge: Judge) -> None:
    files = {"pkg/a.py": f"# {AGPL_NOTICE}\n{CODE}", "pkg/b.py": CODE, "LICENSE": APACHE}
    evidence = dropped(judge(files), "license_denied")
    assert evidence["expression"] == "AGPL-3.0-or-later"
    assert evidence["path"] == "pkg/a.py"
    assert kept(judge(files, "pkg/b.py"))["expression"] == "Apache-2.0"


def test_license_and_copying_side_by_side_both_apply(judge: Judge) -> None:
    files = {"pkg/a.py": CODE, "LICENSE": APACHE, "COPYING": AGPL_NOTICE}
    evidence = dropped(judge(files), "license_denied")
    assert evidence["expression"] == "AGPL-3.0-or-later AND Apache-2.0"
    assert (evidence["path"], evidence["conflict"]) == ("COPYING", True)


def test_header_that_names_one_of_several_root_licenses(judge: Judge) -> None:
    text = f"# {APACHE_NOTICE}\n{CODE}"
    both = {"pkg/a.py": text, "LICENSE": APACHE, "COPYING": AGPL_NOTICE}
    assert kept(judge(both))["expression"] == "Apache-2.0"
    only_copying = {"pkg/a.py": text, "COPYING": AGPL_NOTICE}
    assert dropped(judge(only_copying), "license_denied")["conflict"]


def test_invalid_tag_is_unknown_not_ignored(judge: Judge, tmp_path: Path) -> None:
    line = "SPDX-License-Identifier: BSD-3"
    files = {"pkg/a.py": f"# {line}\n{CODE}", "LICENSE": MIT}
    evidence = dropped(judge(files), "license_unknown")
    assert evidence["text_sha256"] == text_sha256(line)
    assert load_text(tmp_path, evidence["text_sha256"]) == line


def test_tag_with_or_and_with(judge: Judge) -> None:
    either = f"# SPDX-License-Identifier: GPL-2.0-only OR MIT\n{CODE}"
    found = kept(judge({"pkg/a.py": either, "LICENSE": MIT}))
    assert (found["expression"], found["choice"]) == ("GPL-2.0-only OR MIT", "MIT")
    proprietary = f"# SPDX-License-Identifier: LicenseRef-Proprietary\n{CODE}"
    dropped(judge({"pkg/a.py": proprietary, "LICENSE": MIT}), "license_denied")


def test_tag_and_another_notice_in_one_header_both_apply(judge: Judge) -> None:
    mit_body = MIT.split("\n\n", 1)[1].replace("\n", "\n# ")
    text = (
        f"# SPDX-License-Identifier: Apache-2.0\n#\n# Copied from https://github.com/o/p\n#\n"
        f"# {mit_body}\n{CODE}"
    )
    row = judge({"pkg/a.py": text, "LICENSE": APACHE})
    assert kept(row)["expression"] == "Apache-2.0 AND MIT"
    assert not isinstance(row, Drop)
    assert row["origin"]["derived_from"] == ["https://github.com/o/p"]


def test_notice_of_borrowed_code_does_not_replace_the_package_license(judge: Judge) -> None:
    text = f'"""Incorporates code from Foo.\n\n{APACHE_NOTICE}\n"""\n{CODE}'
    found = kept(judge({"pkg/a.py": text, "LICENSE": MIT}))
    assert found["expression"] == "Apache-2.0 AND MIT"


def test_notice_further_down_is_joined(judge: Judge) -> None:
    text = f"{CODE}\n# {AGPL_NOTICE}\ndef f():\n    pass\n"
    evidence = dropped(judge({"pkg/a.py": text, "LICENSE": MIT}), "license_denied")
    assert evidence["expression"] == "AGPL-3.0-or-later AND MIT"


def test_header_under_terms_no_template_knows(judge: Judge) -> None:
    text = f"# This file is under the Acme Community License Agreement.\n{CODE}"
    evidence = dropped(judge({"pkg/a.py": text, "LICENSE": APACHE}), "license_unknown")
    assert "Acme Community License" in evidence["why"]


def test_notice_that_points_to_the_license_file(judge: Judge) -> None:
    text = (
        "# Copyright (c) Somebody\n# All rights reserved.\n#\n# This source code is licensed "
        f"under the BSD-style license found in the\n# LICENSE file in the root directory of this "
        f"source tree.\n\n{CODE}"
    )
    assert kept(judge({"pkg/a.py": text, "LICENSE": bsd_text()}))["expression"] == "BSD-3-Clause"
    dropped(judge({"pkg/a.py": text}), "license_unknown")


@pytest.mark.parametrize("restriction", LESS)
def test_license_that_quotes_bsd_and_restricts_it(judge: Judge, restriction: str) -> None:
    text = f"ACME COMMUNITY LICENSE\n\n{bsd_text()}\n{restriction}\n"
    evidence = dropped(judge({"pkg/a.py": CODE, "LICENSE": text}), "license_unknown")
    assert evidence["path"] == "LICENSE"
    assert evidence["text_sha256"] == text_sha256(text)
    assert evidence["recognised"] == "BSD-3-Clause"


def test_override_by_text_hash(judge: Judge, tmp_path: Path) -> None:
    text = f"ACME LICENSE: our name for the license below\n\n{bsd_text()}"
    files = {"pkg/a.py": CODE, "LICENSE": text}
    evidence = dropped(judge(files), "license_unknown")
    overrides = tmp_path / "overrides.toml"
    entry = '[[override]]\nsha256 = "{}"\nexpression = "{}"\nwho = "Ada"\nwhy = "read it"\n'
    overrides.write_text(entry.format(evidence["text_sha256"], "BSD-3-Clause"))
    found = kept(judge(files, overrides=str(overrides)))
    assert (found["expression"], found["method"]) == ("BSD-3-Clause", "override")
    overrides.write_text(entry.format(evidence["text_sha256"], "BSD style"))
    with pytest.raises(ValueError, match=r"overrides\.toml"):
        judge(files, overrides=str(overrides))


@pytest.mark.parametrize(
    ("read_as", "license"), [("BSD-3-Clause", "BSD-3-Clause"), ("MIT", "BSD-3-Clause AND MIT")]
)
def test_a_readme_says_what_a_person_read_in_it(
    judge: Judge, tmp_path: Path, read_as: str, license: str
) -> None:
    readme = "# Adders\n\n## License\n\nThe whole codebase is licensed like our others.\n"
    files = {"pkg/a.py": CODE, "LICENSE": bsd_text(), "README.md": readme}
    evidence = dropped(judge(files), "license_unknown")
    overrides = tmp_path / "overrides.toml"
    overrides.write_text(
        f'[[override]]\nsha256 = "{evidence["text_sha256"]}"\nexpression = "{read_as}"\n'
        'who = "Ada"\nwhy = "as the others are"\n'
    )
    assert kept(judge(files, overrides=str(overrides)))["expression"] == license
    gpl = overrides.read_text().replace(read_as, "GPL-3.0-only")
    overrides.write_text(gpl)
    dropped(judge(files, overrides=str(overrides)), "license_denied")


def test_metadata_never_grants(judge: Judge) -> None:
    evidence = dropped(judge({"pkg/a.py": CODE}, metadata="License: MIT"), "license_unknown")
    assert "metadata alone says MIT" in evidence["why"]


def test_metadata_that_disagrees_applies_too(judge: Judge) -> None:
    files = {"pkg/a.py": CODE, "LICENSE": bsd_text()}
    apache = "Classifier: License :: OSI Approved :: Apache Software License"
    found = kept(judge(files, metadata=apache))
    assert (found["expression"], found["conflict"]) == ("Apache-2.0 AND BSD-3-Clause", True)
    evidence = dropped(judge(files, metadata="License-Expression: GPL-3.0-only"), "license_denied")
    assert evidence["conflict"]
    agrees = "License: BSD\nClassifier: License :: OSI Approved :: BSD License"
    assert not kept(judge(files, metadata=agrees))["conflict"]


@pytest.mark.parametrize("folder", ["third_party", "_vendored", "vendor"])
def test_vendored_code_needs_a_license_of_its_own(judge: Judge, folder: str) -> None:
    path = f"pkg/{folder}/lib/a.py"
    evidence = dropped(judge({path: CODE, "LICENSE": MIT}, path), "license_unknown")
    assert "vendored" in evidence["why"]
    own = {path: CODE, f"pkg/{folder}/lib/LICENSE": bsd_text(), "LICENSE": MIT}
    assert kept(judge(own, path))["expression"] == "BSD-3-Clause"
    header = {path: f"# {APACHE_NOTICE}\n{CODE}", "LICENSE": MIT}
    assert kept(judge(header, path))["expression"] == "Apache-2.0"


def test_license_that_is_not_utf8_is_unknown(judge: Judge, tmp_path: Path) -> None:
    sha256 = "0" * 64
    files = [("a.py", CODE.encode()), ("LICENSE", b"\xff\xfe" + MIT.encode())]
    store(tmp_path, sha256, Info("local"), files)
    row = make_row("file", CODE, make_origin("local", artifact_sha256=sha256, path="a.py"))
    outcome = Licenses(step="licenses").apply({**row, "text": CODE}, Context(cache=tmp_path))
    assert "not UTF-8" in dropped(outcome, "license_unknown")["why"]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "entry",
    [
        "owner: some-owner",
        "repo: some-owner/PKG",
        "repo: git@github.com:some-owner/pkg.git",
        "purl: pkg:pypi/pkg",
        "purl: pkg:pypi/pkg@1.0",
        "path: '*/a.py'",
        f"sha256: {text_sha256(CODE)}",
        "{purl: 'pkg:pypi/pkg', path: 'pkg/*'}",
        "copyright: '*pydantic*contributors*'",  # of the license file
    ],
)
def test_opt_out(judge: Judge, tmp_path: Path, entry: str) -> None:
    optout = tmp_path / "optout.yaml"
    optout.write_text(f"- {entry}\n  why: asked\n" if "{" not in entry else f"- {entry}\n")
    files = {"pkg/a.py": CODE, "LICENSE": MIT}
    evidence = dropped(judge(files, optout=str(optout)), "opted_out")
    assert evidence.pop("why", "asked") == "asked"
    assert evidence == yaml.safe_load(entry)


@pytest.mark.parametrize("entry", ["path: pkg/b.py", f"sha256: {text_sha256(CODE)}", "symbol: A*"])
def test_opt_out_of_what_a_module_was_pulled_from(judge: Judge, tmp_path: Path, entry: str) -> None:
    own = f"{CODE}# more\n"
    row = judge({"pkg/a.py": own, "pkg/b.py": CODE, "LICENSE": MIT})
    assert not isinstance(row, Drop)
    origin = {**row["origin"], "derived_from": ["pkg/b.py:1-3"], "symbol": "Adder"}
    module = make_row("module", own, origin, text=own, license=row["license"])
    optout = tmp_path / "optout.yaml"
    optout.write_text(f"- {entry}\n")
    context = Context(cache=tmp_path)
    assert isinstance(Licenses(step="licenses").apply(module, context), Keep)
    outcome = Licenses(step="licenses", optout=str(optout)).apply(module, context)
    assert isinstance(outcome, Drop)
    assert (outcome.reason, outcome.evidence) == ("opted_out", yaml.safe_load(entry))


def test_the_list_of_the_current_folder_counts_by_default(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"pkg/a.py": CODE, "LICENSE": MIT}
    monkeypatch.chdir(tmp_path)
    kept(judge(files))
    Path("optout.yaml").write_text("- owner: some-owner\n")
    dropped(judge(files), "opted_out")
    assert Licenses(step="licenses").optout == "optout.yaml"
    Path("none.yaml").write_text("")
    kept(judge(files, optout="none.yaml"))
    with pytest.raises(ValidationError, match=r"gone\.yaml"):
        Licenses(step="licenses", optout="gone.yaml")


@pytest.mark.parametrize(
    "entry",
    ["owner: some", "repo: other/pkg", "purl: pkg:pypi/pk", "purl: pkg:pypi/pkg@1", "path: a.py"],
)
def test_opt_out_of_others(judge: Judge, tmp_path: Path, entry: str) -> None:
    optout = tmp_path / "optout.yaml"
    optout.write_text(f"- {entry}\n")
    kept(judge({"pkg/a.py": CODE, "LICENSE": MIT}, optout=str(optout)))


@pytest.mark.parametrize(
    ("entry", "covered"),
    [
        ("purl: pkg:pypi/Flash.Attn", True),
        ("purl: pkg:pypi/flash", False),
        ("repo: https://gitlab.com/group/sub/kernels/-/tree/main", True),
        ("repo: 'git@gitlab.com:group/sub/kernels.git'", True),
        ("owner: group", True),
        ("owner: 'https://gitlab.com/group/sub'", True),
        ("owner: '@sub'", True),
        ("owner: kernels", False),
        ("copyright: '*Jose\u0301*'", True),
    ],
)
def test_a_request_covers_every_spelling(tmp_path: Path, entry: str, covered: bool) -> None:
    origin = make_origin(
        "git", purl="pkg:pypi/flash-attn@2.0", repo="https://gitlab.com/group/sub/kernels", path="a"
    )
    row = make_row("file", "a", origin, text="a")
    row = {**row, "license": {"copyright": ["Copyright 2024 Jos\u00e9"]}}  # type: ignore[assignment]
    assert parse_optout(entry).matches(dict(row), tmp_path) is covered


@pytest.mark.parametrize("entry", ["owner: ''", "repo: /", "{path: '*.py', owner: '-'}"])
def test_a_request_that_names_nobody_is_refused(entry: str) -> None:
    with pytest.raises(OptOutError, match="nothing that a row could have"):
        parse_optout(entry)


def test_opt_out_file_with_a_mistake(judge: Judge, tmp_path: Path) -> None:
    optout = tmp_path / "optout.yaml"
    optout.write_text("- ownr: x\n")
    with pytest.raises(ValueError, match=r"optout\.yaml"):
        judge({"pkg/a.py": CODE, "LICENSE": MIT}, optout=str(optout))


def test_options_follow_the_content_of_the_files(tmp_path: Path) -> None:
    optout = tmp_path / "optout.yaml"
    optout.write_text("- owner: a\n")
    step = Licenses(step="licenses", optout=str(optout))
    before = step.options()
    optout.write_text("# as before\n- owner: a\n")
    assert step.options() == before
    optout.write_text("- owner: b\n")
    assert step.options() != before
    assert "policy" in before


def test_allow_is_checked_with_the_recipe(judge: Judge) -> None:
    with pytest.raises(ValidationError, match="'Apache'"):
        Licenses(step="licenses", allow=["Apache"])
    with pytest.raises(ValidationError, match="keeps nothing"):  # and not the shipped list
        Licenses(step="licenses", allow=[])
    files = {"pkg/a.py": CODE, "LICENSE": MIT}
    dropped(judge(files, allow=["Apache-2.0"]), "license_denied")


def test_same_row_twice_gives_the_same_bytes(judge: Judge) -> None:
    files = {"pkg/a.py": CODE, "LICENSE-MIT": MIT, "LICENSE-APACHE": APACHE}
    first, second = judge(files), judge(files)
    assert json.dumps(first) == json.dumps(second)
    assert kept(first)["expression"] == "Apache-2.0 AND MIT"


@pytest.mark.parametrize("name", ["LICENSE1", "LICENSE2.txt", "COPYING3", "COPYINGv2.md"])
def test_a_license_file_may_have_a_number(judge: Judge, name: str) -> None:
    row = kept(judge({"pkg/a.py": CODE, name: MIT}))
    assert (row["expression"], row["path"]) == ("MIT", name)
    both = kept(judge({"pkg/a.py": CODE, "LICENSE": APACHE, name: MIT}))
    assert both["expression"] == "Apache-2.0 AND MIT"


def test_a_word_that_begins_so_is_no_license_file(judge: Judge) -> None:
    files = {"pkg/a.py": CODE, "LICENSE": APACHE, "LICENSED_BY.md": MIT, "COPYING3way.txt": MIT}
    assert kept(judge(files))["expression"] == "Apache-2.0"


def test_texts_are_saved_once(tmp_path: Path) -> None:
    sha256 = save_text(tmp_path, "one\r\ntwo\n")
    (path,) = (tmp_path / "texts").iterdir()
    written = path.stat().st_mtime_ns
    time.sleep(0.01)
    assert save_text(tmp_path, "one\r\ntwo\n") == sha256
    assert path.stat().st_mtime_ns == written
    assert load_text(tmp_path, sha256) == "one\r\ntwo\n"


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", "MIT"),
        ("# SPDX-License-Identifier: BSD-3-Clause\n", "BSD-3-Clause AND MIT"),
        ("# SPDX-License-Identifier: AGPL-3.0-only\n", "license_denied"),
        ("# SPDX-License-Identifier: Whatever\n", "license_unknown"),
    ],
)
def test_a_module_carries_the_licenses_of_the_files_it_was_pulled_from(
    tmp_path: Path, header: str, expected: str
) -> None:
    files = {"LICENSE": MIT, "pkg/a.py": CODE, "pkg/b.py": header + CODE}
    sha256 = hashlib.sha256(json.dumps(files).encode()).hexdigest()
    context = Context(cache=tmp_path)
    store(tmp_path, sha256, Info("git"), [(name, text.encode()) for name, text in files.items()])
    origin = make_origin("git", artifact_sha256=sha256, path="pkg/a.py")
    step = Licenses(step="licenses")
    kept = step.apply(make_row("file", CODE, origin, text=CODE), context)
    assert isinstance(kept, Keep)
    papers = kept.rows[0]["license"]
    pulled = {**origin, "derived_from": ["https://example.org/b.py", "pkg/b.py:1-3"]}
    module = make_row("module", CODE, pulled, text=CODE, license=papers)
    outcome = step.apply(module, context)
    if isinstance(outcome, Drop):
        assert (outcome.reason, outcome.evidence["file"]) == (expected, "pkg/b.py")
    else:
        assert outcome.rows[0]["license"]["expression"] == expected
