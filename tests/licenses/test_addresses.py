"""Licenses by their address alone, notices below the header, and where else terms may stand."""

import pytest
from license_samples import APACHE, CODE, MIT, Judge, dropped, kept

from curate.licenses.claims import addressed_in
from curate.licenses.detect import place
from curate.licenses.text.templates import plain_text, templated

GPL = "https://www.gnu.org/licenses/gpl-3.0.html"
RUSSIAN = "Коммерческое использование запрещено."
HELPER = "\n\n# The helper is from fastlib.\n{}\ndef helper(x):\n    return x\n"


def comment(text: str) -> str:
    return "".join(f"# {line}".rstrip() + "\n" for line in text.splitlines())


@pytest.mark.parametrize(
    "url",
    [
        GPL,
        "https://spdx.org/licenses/AGPL-3.0-only.html",
        "https://polyformproject.org/licenses/noncommercial/1.0.0",
        "https://acme.example/eula",
        "https://mariadb.com/bsl11/",
    ],
)
@pytest.mark.parametrize(
    "files",
    [
        {"pkg/a.py": "# Licensed under {}\n" + CODE},
        {"pkg/a.py": "# See {} for the license.\n" + CODE},
        {"pkg/a.py": '"""Doubles.\n\nLicense: {}\n"""\n' + CODE},
        {"README.md": "# pkg\n\nThis project is licensed under [these terms]({}).\n"},
        {"pkg-1.dist-info/METADATA": "Name: pkg\nProject-URL: License, {}\n"},
        {"pyproject.toml": '[project]\nname = "pkg"\n[project.urls]\nLicense = "{}"\n'},
    ],
    ids=["under", "see", "docstring", "readme", "metadata", "pyproject"],
)
def test_the_address_of_a_license_counts(judge: Judge, files: dict[str, str], url: str) -> None:
    said = {path: text.replace("{}", url) for path, text in files.items()}
    outcome = judge({"LICENSE": MIT, "pkg/a.py": CODE, **said})
    assert outcome.reason in ("license_unknown", "license_denied")


def test_the_address_of_the_license_that_is_there_changes_nothing(judge: Judge) -> None:
    header = "# MIT License, see https://github.com/own/pkg/blob/main/LICENSE\n"
    readme = "# pkg\n\nSee [LICENSE](https://github.com/own/pkg/blob/main/LICENSE).\n"
    page = "# License: https://opensource.org/licenses/MIT\n"
    for text in (header + CODE, page + CODE):
        files = {"LICENSE": MIT, "README.md": readme, "pkg/a.py": text}
        assert kept(judge(files))["expression"] == "MIT"
    assert (
        addressed_in("License: https://github.com/own/my.pkg/LICENSE", "", frozenset({"my-pkg"}))
        == []
    )


def test_a_tag_further_down_joins(judge: Judge) -> None:
    tagged = CODE + HELPER.format("# SPDX-License-Identifier: BSD-3-Clause")
    found = kept(judge({"LICENSE": APACHE, "pkg/a.py": tagged}))
    assert found["expression"] == "Apache-2.0 AND BSD-3-Clause"
    assert len(found["text_sha256"]) == 2  # that of BSD is not in the package
    assert dropped(judge({"pkg/a.py": tagged}), "license_unknown")


def test_a_notice_further_down_is_carried_with_its_holder(judge: Judge) -> None:
    notice = MIT.replace("Copyright (c)", "Copyright (c) 2024 Jane Doe\nCopyright (c)", 1)
    found = kept(judge({"LICENSE": APACHE, "pkg/a.py": CODE + HELPER.format(comment(notice))}))
    assert found["expression"] == "Apache-2.0 AND MIT"
    assert len(found["text_sha256"]) == 2
    assert "Copyright (c) 2024 Jane Doe" in found["copyright"]


@pytest.mark.parametrize("said", ["Contains code by Jane Doe.", "Based upon fastlib."])
def test_a_borrowed_header_does_not_replace_the_license(judge: Judge, said: str) -> None:
    text = comment(f"{said}\n\n{MIT}") + CODE
    assert kept(judge({"LICENSE": APACHE, "pkg/a.py": text}))["expression"] == "Apache-2.0 AND MIT"


def test_every_license_of_the_list_has_a_text_of_its_own() -> None:
    for license_id in templated():
        assert place(plain_text(license_id) or "").expression == license_id


@pytest.mark.parametrize(
    "files",
    [
        {"README.md": "# pkg\n\nNot to be used for commercial purposes.\n".encode("utf-16")},
        {"README.md": f"# pkg\n\n{RUSSIAN}\n".encode("cp1251")},
        {"EULA.txt": RUSSIAN.encode("cp1251")},
        {"pkg-1.dist-info/METADATA": "Name: pkg\nSummary: Free for academic use only\n"},
        {"pyproject.toml": '[project]\nname = "p"\ndescription = "For research use only"\n'},
        {"README.md": f"# pkg\n\n[![GPL](https://x.y/badge/GPL-v3-b.svg)]({GPL})\n"},
        {"README.md": "# pkg\n\n## License\n\n```\nNon-commercial use only.\n```\n"},
        {"pkg/a.py": "# noqa: this file is licensed under the GPL-3.0\n" + CODE},
        {"pkg/a.py": CODE + "# copied from a GPLed project\ndef g(x):\n    return x\n"},
        {"pkg/forks/foo/a.py": CODE},
    ],
)
def test_other_places_of_terms(judge: Judge, files: dict[str, str | bytes]) -> None:
    path = next((path for path in files if path.endswith("a.py")), "pkg/a.py")
    assert dropped(judge({"LICENSE": MIT, "pkg/a.py": CODE, **files}, path), "license_unknown")


def test_a_readme_that_shows_odd_letters_is_read(judge: Judge) -> None:
    readme = "# pkg\n\nPrints \ufffd\ufffd\ufffd for what it cannot decode.\n"
    assert kept(judge({"LICENSE": MIT, "README.md": readme, "pkg/a.py": CODE}))
    latin = "# pkg\n\nBy Société Générale.\n".encode("latin-1")
    assert kept(judge({"LICENSE": MIT, "README.md": latin, "pkg/a.py": CODE}))


def test_long_words_and_empty_lines_take_time_by_their_length(judge: Judge) -> None:
    """They took its square: minutes for half a megabyte, and the package was lost."""
    picture = f'<img src="data:image/png;base64,{"QUJD" * 40_000}">'
    readme = "# pkg\n" + "\n" * 100_000 + picture + "\n"
    files = {"LICENSE": MIT, "README.md": readme, "pkg/a.py": f"# {'x' * 300_000}\n{CODE}"}
    assert kept(judge(files))
