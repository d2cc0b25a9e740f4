"""Hidden terms: in tags, prose, metadata and papers alongside the license; and harmless texts."""

from __future__ import annotations

from pathlib import Path

import pytest
from license_samples import CODE, MIT, Decide, bsd_text, installed_text

from curate.licenses.licenses import Licenses
from curate.sources.local import Local
from curate.step import Context, Drop


@pytest.mark.parametrize(
    "tag",
    [
        "SPDX-Licence-Identifier: AGPL-3.0-only",
        "SPDX-License: AGPL-3.0-only",
        "SPDX-License-Identifer: MIT",
        "SPDX-License-Identifier MIT",
        "S\u0420DX-License-Identifier: MIT",
        "SPDX-License-Identi\u200bfier: MIT",
        "SPDX-Conditions: ask first",
        "SPDX-FileCopyrightText: 2024 Ada. Commercial use is prohibited.",
        "SPDX-License-Identifier: BSD-3",
    ],
)
@pytest.mark.parametrize("where", ["# {}\n" + CODE, CODE + "\nx = 1  # {}\n"])
def test_a_line_that_looks_like_a_tag_and_is_none_makes_the_license_unknown(
    decide: Decide, tag: str, where: str
) -> None:
    assert decide({"pkg/a.py": where.format(tag), "LICENSE": MIT}) == "license_unknown"


@pytest.mark.parametrize("before", ["", "import os\n", CODE * 500])
def test_a_tag_is_read_wherever_its_comment_stands(decide: Decide, before: str) -> None:
    text = f"{before}# SPDX-License-Identifier: AGPL-3.0-only\n{CODE}"
    assert decide({"pkg/a.py": text, "LICENSE": MIT}) == "license_denied"


@pytest.mark.parametrize(
    "text",
    [
        "T = '''\n{}\n'''\n",
        "T = f'''\n{}\n'''\n",
        'print("""\n{}\n""")\n',
        '"""Adds.\n\n{}\n"""\n',
        '("""\n{}\n""")\n',
        "# head = '{}'\n",
        "# SPDX-SnippetBegin\n{}\n# SPDX-SnippetEnd\n",
        "# REUSE-IgnoreStart\n{}\n# REUSE-IgnoreEnd\n",
    ],
)
def test_a_tag_grants_in_a_comment_only_and_may_restrict_everywhere(
    decide: Decide, text: str
) -> None:
    tag = "# SPDX-License-Identifier: "
    assert decide({"pkg/a.py": text.format(f"{tag}MIT")}) == "license_unknown"
    restricts = {"pkg/a.py": text.format(f"{tag}AGPL-3.0-only"), "LICENSE": MIT}
    assert decide(restricts) in ("license_denied", "license_unknown")


PROSE = [
    "For academic research use only. Commercial use is prohibited.",
    "Unauthorized copying of this file is strictly prohibited.",
    "Offered under CC BY-SA 4.0.",
    "This file may not be used to train AI models.",
    "Companies need a paid license.",
    "Redistribution in any form needs our written consent.",
    "Jede kommerzielle Nutzung dieser Datei ist untersagt.",
    "仅供研究使用, 禁止商业用途。",
    "Pr\u043epri\u0435tary",
    "Non\u200bcommercial use of this file.",
]


@pytest.mark.parametrize("said", PROSE)
@pytest.mark.parametrize(
    "where",
    [
        "# {}\n" + CODE,
        "#!/usr/bin/env python\r\n# {}\r\nimport os\r\n",
        '"""Adds.\n\n{}\n"""\n' + CODE,
        "r'{}'\n" + CODE,
        "from __future__ import annotations\n\n# {}\n" + CODE,
        CODE + "\n\n# {}\n",
        CODE + '\n\nclass A:\n    """Adds.\n\n    {}\n    """\n',
        CODE + "\n\n# {}\ndef f(x):\n    return x\n",
    ],
)
def test_prose_that_speaks_of_terms_is_terms_wherever_it_stands(
    decide: Decide, said: str, where: str
) -> None:
    assert decide({"pkg/a.py": where.format(said), "LICENSE": MIT}) == "license_unknown"


@pytest.mark.parametrize(
    "said",
    [
        "Do not use this function in place; a copy is made.",
        "In training mode dropout is used, in evaluation mode it is not.",
        "The distribution over classes, see torch.distributions.",
        "If permission is denied, the file is skipped.",
        "The payload is reserved, and all of it must be the same for each important component.",
        "按行计算最大值, 然后减去它",
        "Adapted from https://github.com/example/kernels (MIT License)",
    ],
)
def test_comments_on_code_are_harmless(decide: Decide, said: str) -> None:
    text = f'{CODE}\n\n# {said}\ndef f(x):\n    """{said}"""\n    return x\n'
    assert decide({"pkg/a.py": text, "LICENSE": MIT}) == "MIT"


def test_a_comment_that_names_another_license_joins_it(decide: Decide) -> None:
    text = f"{CODE}\n\n# Copied from flash-attention, BSD-3-Clause.\ndef f(x):\n    return x\n"
    assert decide({"pkg/a.py": text, "LICENSE": MIT}) == "BSD-3-Clause AND MIT"


@pytest.mark.parametrize(
    "line", ["Copyright 2024 Ada. No companies.", "(c) 2024 Ada, banks pay double"]
)
def test_a_rider_in_a_copyright_line_is_terms(decide: Decide, line: str) -> None:
    assert decide({"pkg/a.py": f"# {line}\n{CODE}", "LICENSE": MIT}) == "license_unknown"
    rider = MIT.replace("\n\n", f"\n\n{line}\n\n", 1)
    assert decide({"pkg/a.py": CODE, "LICENSE": rider}) == "license_unknown"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("__license__ = 'GPL-3.0-only'", "license_denied"),
        ('__licence__: str = (\n    "AGPLv3"\n)', "license_denied"),
        ("LICENSE = 'Acme Community License'", "license_unknown"),
        ("__license__ = 'MIT License'", "MIT"),
        ("LICENSE = 'a.txt'", "MIT"),
    ],
)
def test_a_license_that_a_module_assigns_can_only_restrict(
    decide: Decide, line: str, expected: str
) -> None:
    assert decide({"pkg/a.py": f"{line}\n{CODE}", "LICENSE": MIT}) == expected
    assert decide({"pkg/a.py": f"{line}\n{CODE}"}) == "license_unknown"


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ("License-Expression: MIT AND GPL-3.0-only", "license_denied"),
        ("License-Expression: MIT OR GPL-3.0-only", "MIT"),
        ("License: GPLv3", "license_denied"),
        ("License: GNU General Public License v3", "license_unknown"),
        ("License: Proprietary", "license_unknown"),
        ("License: Internal use only", "license_unknown"),
        ("License: MIT, GPLv3", "license_denied"),
        ("Classifier: License :: Free for non-commercial use", "license_denied"),
        ("Classifier: License :: Something New", "license_unknown"),
        ("License: The MIT License (MIT)", "MIT"),
        ("License: see LICENSE", "MIT"),
        ("License: UNKNOWN", "MIT"),
        ("License: Apache 2.0", "Apache-2.0 AND MIT"),
    ],
)
def test_metadata_that_adds_to_the_license_applies_too(
    decide: Decide, metadata: str, expected: str
) -> None:
    assert decide({"pkg/a.py": CODE, "LICENSE": MIT}, metadata=metadata) == expected


def test_metadata_that_holds_a_copy_of_the_license_file_agrees(decide: Decide) -> None:
    files = {"pkg/a.py": CODE, "LICENSE": bsd_text()}
    folded = bsd_text().replace("\n", "\n        ")
    assert decide(files, metadata=f"License: {folded}") == "BSD-3-Clause"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pyproject.toml", '[project]\nlicense = {text = "GPLv3"}\n'),
        ("pyproject.toml", '[tool.poetry]\nlicense = "Proprietary"\n'),
        ("pyproject.toml", "[project\nlicense = MIT\n"),
        ("PKG-INFO", "Name: p\nLicense: CC-BY-NC-4.0\n"),
        ("setup.cfg", "[metadata]\nlicense = GPLv3\n"),
        ("setup.py", 'setup(classifiers=["License :: Other/Proprietary License"])\n'),
        ("package.json", '{\n  "license": "UNLICENSED"\n}\n'),
        ("REUSE.toml", '[[annotations]]\npath = "**"\nSPDX-License-Identifier = "GPL-3.0-only"\n'),
        (".reuse/dep5", "Format: x\n\nFiles: *\nCopyright: Ada\nLicense: GPL-3.0-only\n"),
        ("COMMONS-CLAUSE.txt", "The right to sell is withheld.\n"),
        ("TERMS.md", "Companies pay.\n"),
        ("NOTICE", "This work must not be used to train AI models.\n"),
        ("legal/USE_POLICY.md", "No weapons.\n"),
        ("IMPORTANT.txt", "You may not redistribute this code.\n"),
    ],
)
def test_a_folder_with_papers_that_restrict_is_not_kept(
    tmp_path: Path, name: str, text: str
) -> None:
    tree, cache = tmp_path / "tree", tmp_path / "cache"
    for path, content in {"pkg/a.py": CODE, "LICENSE": MIT, name: text}.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(content, "utf-8")
    source = Local(source="local", path=str(tree))
    (unit,) = source.units(Context(cache=cache))
    (row,) = [row for row in source.read(unit, Context(cache=cache)) if isinstance(row, dict)]
    outcome = Licenses(step="licenses").apply(row, Context(cache=cache))
    assert isinstance(outcome, Drop)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("NOTICE", "Example\nCopyright 2024 Ada\n\nThis product includes parts of Foo.\n"),
        ("AUTHORS", "Ada Lovelace\n"),
        ("CONTRIBUTING.md", "You grant us a license.\n"),
        ("SECURITY.md", "Do not publish a hole.\n"),
        ("COPYRIGHT", "Copyright (c) 2024 Ada Lovelace\n"),
        ("tests/EULA.txt", "You accept.\n"),
        ("REUSE.toml", '[[annotations]]\npath = "**"\nSPDX-License-Identifier = "MIT"\n'),
        ("pyproject.toml", '[project]\nlicense = {file = "LICENSE"}\n'),
    ],
)
def test_harmless_papers_beside_the_license(decide: Decide, name: str, text: str) -> None:
    assert decide({"pkg/a.py": CODE, "LICENSE": MIT, name: text}) == "MIT"


@pytest.mark.parametrize(
    "head",
    ["# SPDX-License-Identifier: MIT\n", "# Licensed under the Apache License, Version 2.0\n"],
)
def test_a_license_file_that_cannot_be_read_is_not_overruled(decide: Decide, head: str) -> None:
    files = {"pkg/a.py": head + CODE, "LICENSE": "Companies need a paid license from Acme.\n"}
    assert decide(files) == "license_unknown"


@pytest.mark.parametrize("folder", ["extern", "externals", "external", "deps", "3rd_party"])
def test_more_folders_of_other_peoples_code(decide: Decide, folder: str) -> None:
    path = f"pkg/{folder}/lib/a.py"
    assert decide({path: CODE, "LICENSE": MIT}, path) == "license_unknown"
    own = f"pkg/{folder}ly/a.py"
    assert decide({own: CODE, "LICENSE": MIT}, own) == "MIT"


def test_a_license_file_with_its_appendix_filled_in_is_read(decide: Decide) -> None:
    """Apache-2.0 tells to put a name into its appendix, which parts it from the template."""
    filled = installed_text("datasets").replace(
        "[yyyy] [name of copyright owner]", "2024 Ada, Inc."
    )
    assert decide({"pkg/a.py": CODE, "LICENSE": filled}) == "Apache-2.0"
    rider = filled.replace("2024 Ada, Inc.", "2024 Ada, Inc. Companies pay.")
    assert decide({"pkg/a.py": CODE, "LICENSE": rider}) == "license_unknown"


@pytest.mark.parametrize("slot", ["PROVIDED BY", "name of"])
def test_the_room_for_a_holders_name_holds_no_terms(decide: Decide, slot: str) -> None:
    assert slot in bsd_text()
    named = bsd_text().replace(slot, f"{slot} the Ada Company,", 1)
    assert decide({"pkg/a.py": CODE, "LICENSE": named}) == "BSD-3-Clause"
    rider = bsd_text().replace(slot, f"{slot} Ada, who lets no company use this,", 1)
    assert decide({"pkg/a.py": CODE, "LICENSE": rider}) == "license_unknown"
