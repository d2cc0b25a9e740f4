"""What speaks for a whole package, wherever it stands, holds for all of its files."""

from __future__ import annotations

import pytest
from license_samples import AGPL_NOTICE, CODE, MIT, Decide

BASE = {"pkg/a.py": CODE, "LICENSE": MIT}
NC = "For non-commercial use only."


@pytest.mark.parametrize(
    "path",
    ["pkg/__init__.py", "pkg/__about__.py", "pkg/_version.py", "pkg/package_info.py", "setup.py"],
)
@pytest.mark.parametrize(
    "text",
    [
        '__license__ = "GPL-3.0"\n',
        '__license__: str = "CC-BY-NC-4.0"\n',
        '__version__, __license__ = "1", "AGPL-3.0-only"\n',
        '__licence__ = __license__ = "Proprietary"\n',
        'try:\n    import x\nexcept ImportError:\n    __license__ = "GPLv3"\n',
        '__about__ = {"license": "SSPL-1.0"}\n',
        '__license__ = "GPL v{}".format(3)\n',
        '__doc__ = "For non-commercial use only."\n',
        f'"""Kernels.\n\n{NC}\n"""\n',
        "# Only members of the consortium may use the package.\n",
    ],
)
def test_what_one_file_says_for_all(decide: Decide, path: str, text: str) -> None:
    assert decide({**BASE, path: text}) in ("license_denied", "license_unknown")


def test_what_a_folder_says_holds_for_it_alone(decide: Decide) -> None:
    files = {**BASE, "ee/__init__.py": '__license__ = "Proprietary"\n', "ee/b.py": CODE}
    assert decide(files) == "MIT"
    assert decide(files, "ee/b.py") == "license_unknown"


def test_an_honest_init_changes_nothing(decide: Decide) -> None:
    said = '"""Fast kernels, released under the MIT license."""\n__license__ = "MIT"\n'
    assert decide({**BASE, "pkg/__init__.py": said}) == "MIT"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("Lizenz.txt", "Die Nutzung ist nur zu Forschungszwecken gestattet.\n"),
        ("licencia.txt", "Se proh\u00edbe el uso comercial.\n"),
        (
            "\u8bb8\u53ef\u8bc1.txt",
            "\u672c\u8f6f\u4ef6\u4ec5\u4f9b\u975e\u5546\u4e1a\u7528\u9014\u3002\n",
        ),
        ("gpl-3.0.txt", AGPL_NOTICE),
        ("license.yaml", "license: CC-BY-NC-4.0\n"),
        ("READMEFIRST", "You accept: no company may run this.\n"),
        ("legal/license.txt", "Acme Source License: evaluation for 30 days.\n"),
        ("license/terms.txt", "Research only. Anything else needs a contract.\n"),
        ("LICENSES/house.txt", "Internal to Acme. Do not pass it on.\n"),
        ("doc/LICENSE.html", "<p>Personal, non-commercial use only.</p>\n"),
        ("PROPRIETARY.txt", "Acme's.\n"),
    ],
)
def test_terms_in_files_of_other_names(decide: Decide, path: str, text: str) -> None:
    base = {"pkg/a.py": CODE, "LICENSE.txt": MIT}
    assert decide({**base, path: text}) in ("license_denied", "license_unknown")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("Lizenz.txt", MIT),
        ("pkg/terms.txt", "sum\nproduct\nquotient\n"),
        ("docs/licensing.rst", "Licensing\n=========\n\npkg is released under the MIT license.\n"),
        ("notes.txt", "Kernels are compiled when they are first called.\n"),
        ("LICENSES/MIT.txt", MIT),
    ],
)
def test_honest_files_of_such_names(decide: Decide, path: str, text: str) -> None:
    assert decide({**BASE, path: text}) == "MIT"


@pytest.mark.parametrize(
    "folder", ["node_modules", "3p", "vendorized", "site-packages", "subprojects", "git_modules"]
)
def test_vendored_code_needs_a_license_of_its_own(decide: Decide, folder: str) -> None:
    path = f"pkg/{folder}/b/c.py"
    files = {"LICENSE": MIT, path: CODE}
    assert decide(files, path) == "license_unknown"
    assert decide({**files, f"pkg/{folder}/b/LICENSE": MIT}, path) == "MIT"


def test_the_dist_info_of_vendored_code_is_read(decide: Decide) -> None:
    path = "pkg/_vendor/b/c.py"
    files = {"LICENSE": MIT, path: CODE, "pkg/_vendor/b-1.0.dist-info/LICENSE": MIT}
    assert decide(files, path) == "MIT"
    files["pkg/_vendor/b-1.0.dist-info/LICENSE"] = AGPL_NOTICE
    assert decide(files, path) == "license_denied"
