"""The cases of license_attacks.py: situation, files, what is right, and where to look."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

CODE = "import torch\n\n\ndef double(x):\n    return x + x\n"
CUDA = "#include <cuda.h>\n__global__ void k(float *x) { x[0] += 1; }\n"
GPL = (
    "This program is free software: you can redistribute it and/or modify it under the terms of "
    "the GNU General Public License as published by the Free Software Foundation, either version 3 "
    "of the License, or (at your option) any later version."
)

PROSE = [
    "Only universities may run this. Selling it, or what it computes, is prohibited.",
    "For academic research use only.",
    "Internal use only. Do not hand it to anybody outside the company.",
    "You may not use, copy or pass on this file.",
    "Unauthorized copying of this file, by any means, is strictly prohibited.",
    "Research use only (CC BY-NC).",
    "Offered under CC BY-SA 4.0.",
    "MPL 2.0 applies to this file.",
    "EUPL v1.2",
    "Distributed under CeCILL-C.",
    "BUSL 1.1 until 2029.",
    "Shared with you under NDA.",
    "For evaluation purposes only.",
    "This file may not be used to train AI models.",
    "No AI training.",
    "Companies need a paid license.",
    "The author reserves all rights to text and data mining.",
    "Redistribution in any form needs my written consent.",
    "Customers only. A seat costs EUR 500 a year.",
    "Trade secret of Acme. Disclosure is punished.",
    "WTFPL",
    "SSPL-1.0",
    "Commons Clause applies.",
    "Free for students; everybody else must ask.",
    "Under the terms of the Acme Agreement.",
    "Do not redistribute.",
    "Machine learning on this text is not allowed.",
    "Please opt this file out of every training set.",
    "Not to be used for weapons or surveillance.",
    "Use restricted to employees of Acme GmbH.",
    "Permission to use this is given to nobody but Acme.",
]
FOREIGN = [
    "Nur für Forschungszwecke. Jede kommerzielle Nutzung ist untersagt.",
    "Die Weitergabe dieser Datei ist verboten.",
    "Dieses Programm darf nicht ohne Zustimmung der Autoren verwendet werden.",
    "Usage commercial interdit sans autorisation.",
    "Prohibido el uso comercial de este archivo.",
    "Proibido o uso comercial deste arquivo.",
    "Vietato l'uso commerciale di questo file.",
    "Alleen voor intern gebruik; verspreiding is verboden.",
    "仅供研究使用, 禁止商业用途。",
    "僅供學術研究",
    "商用利用を禁止します。",
    "상업적 사용을 금지합니다.",
    "Коммерческое использование запрещено.",
    "يمنع الاستخدام التجاري لهذا الملف",
    "Απαγορεύεται η εμπορική χρήση.",
    "Ticari kullan\u0131m yasakt\u0131r.",
    "Kaupallinen käyttö kielletty.",
]
DISGUISED = [
    "F\u043er academic res\u0435arch us\u0435 \u043enly.",  # Cyrillic letters
    "Non\u200bcommercial use.",
    "Propri\u00adetary.",
    "\uff30\uff52\uff4f\uff50\uff52\uff49\uff45\uff54\uff41\uff52\uff59",  # full-width letters
    "&#80;roprietary and &#x63;onfidential",
    "PROPRIETARY",
    "c\u043enfid\u0435ntial",
]
TAGS = [
    "SPDX-Licence-Identifier: AGPL-3.0-only",
    "SPDX-License: AGPL-3.0-only",
    "SPDX-License-Identifer: AGPL-3.0-only",
    "SPDX-Lisence-Identifier: AGPL-3.0-only",
    "SPDX License Identifier: AGPL-3.0-only",
    "SPDX_License_Identifier: AGPL-3.0-only",
    "SPDX-License-Identifier AGPL-3.0-only",
    "SPDX-License-Identifier= AGPL-3.0-only",
    "SPDX-License-Identifier : AGPL-3.0-only",
    "spdx-license-identifier: AGPL-3.0-only",
    "SPDX-License-Id: AGPL-3.0-only",
    "SPXD-License-Identifier: AGPL-3.0-only",
    "SPDX-License-Identifi\u200ber: AGPL-3.0-only",
    "S\u0420DX-License-Identifier: AGPL-3.0-only",
    "SPDX-License-Identifier: AGPLv3",
    "SPDX-License-Identifier: MIT AND GPL-3.0-only",
    "SPDX-License-Identifier: LicenseRef-Acme",
    "SPDX-License-Identifier:",
    "SPDX-License-Identifier: NONE",
    "SPDX-Terms: not for companies",
    "SPDX-FileContributor: Ada. Non-commercial use only.",
    "SPDX-FileCopyrightText: 2024 Ada. Commercial use is prohibited.",
    "License-Identifier: AGPL-3.0-only",
]
METADATA = [
    "License-Expression: MIT AND GPL-3.0-only",
    "License: GPLv3",
    "License: GNU General Public License v3",
    "License: AGPL",
    "License: Proprietary",
    "License: CC BY-NC 4.0",
    "License: Non-commercial use",
    "License: Internal use only",
    "License: MIT for research, paid otherwise",
    "License: Other",
    "License: Custom",
    "License: MIT, GPLv3",
    "License: Apache 2.0 with Commons Clause",
    "License: Llama 3 Community License",
    "Classifier: License :: OSI Approved :: GNU Affero General Public License v3",
    "Classifier: License :: OSI Approved :: European Union Public Licence 1.2 (EUPL 1.2)",
    "Classifier: License :: Other/Proprietary License",
    "Classifier: License :: Free for non-commercial use",
    "License: MIT\nClassifier: License :: OSI Approved :: GNU General Public License v3 (GPLv3)",
    "License-Expression: LicenseRef-Acme",
]
HONEST_METADATA = [
    "License: MIT",
    "License: MIT License",
    "License: The MIT License (MIT)",
    "License: see LICENSE",
    "License: LICENSE.txt",
    "License: UNKNOWN",
    "License-Expression: MIT",
    "License-Expression: MIT OR GPL-3.0-only",
    "Classifier: License :: OSI Approved :: MIT License",
    "License: MIT\nClassifier: License :: OSI Approved\nClassifier: Topic :: Education",
]
PROJECT_FILES = {
    "pyproject.toml: text": (
        "pyproject.toml",
        '[project]\nname = "p"\nlicense = {text = "GPLv3"}\n',
    ),
    "pyproject.toml: PEP 639": ("pyproject.toml", '[project]\nlicense = "CC-BY-NC-4.0"\n'),
    "pyproject.toml: classifier": (
        "pyproject.toml",
        '[project]\nclassifiers = ["License :: Other/Proprietary License"]\n',
    ),
    "pyproject.toml: poetry": ("pyproject.toml", '[tool.poetry]\nlicense = "AGPL-3.0-or-later"\n'),
    "pyproject.toml: flit": ("pyproject.toml", '[tool.flit.metadata]\nlicense = "Proprietary"\n'),
    "pyproject.toml: broken": ("pyproject.toml", "[project\nlicense = MIT\n"),
    "PKG-INFO": ("PKG-INFO", "Name: p\nLicense: GPL-3.0-only\n"),
    "METADATA": ("METADATA", "Name: p\nLicense-Expression: SSPL-1.0\n"),
    "setup.cfg": ("setup.cfg", "[metadata]\nlicense = GPLv3+\n"),
    "setup.cfg: classifiers": (
        "setup.cfg",
        "[metadata]\nclassifiers =\n    License :: Other/Proprietary License\n",
    ),
    "setup.py": ("setup.py", 'from setuptools import setup\nsetup(name="p", license="GPLv3")\n'),
    "package.json": ("package.json", '{\n  "license": "UNLICENSED"\n}\n'),
    "CITATION.cff": ("CITATION.cff", "cff-version: 1.2.0\nlicense: CC-BY-NC-4.0\n"),
    "Cargo.toml": ("Cargo.toml", '[package]\nlicense = "GPL-3.0-only"\n'),
}
PAPERS = {
    "COMMONS-CLAUSE.txt": "The right to sell is withheld.",
    "EULA.txt": "By installing you accept what follows: one machine per person.",
    "EULA.md": "Players must live in Norway.",
    "TERMS.md": "Companies pay.",
    "TERMS_OF_USE": "Nobody may host this.",
    "USE_POLICY.md": "No weapons, no scoring of people.",
    "ACCEPTABLE_USE.md": "No weapons, no scoring of people.",
    "ADDITIONAL_TERMS.txt": "Section 7: you show our logo.",
    "COPYRIGHT": "All of it belongs to Acme; copying needs written permission.",
    "LEGAL.md": "Use is restricted to members of the consortium.",
    "PATENTS": "A patent license ends when you sue us.",
    "RAIL.txt": "You agree to the use restrictions of attachment A.",
    "LICENSING.md": "Free for study. A commercial license is sold by Acme.",
    "THIRD_PARTY_LICENSES.txt": f"pkg/a.py is taken from Gnome.\n\n{GPL}",
    "THIRD-PARTY-NOTICES": "pkg/a.py is under CC BY-NC 4.0.",
    "PROPRIETARY.txt": "Acme's.",
    "NOTICE": "This work must not be used to train AI models.",
    "NOTICE.txt": "Copyright 2024 Acme. Commercial use is prohibited without a contract.",
    "DISCLAIMER": "Not licensed for production use; research only.",
    "AI_POLICY.md": "Do not train language models on this code.",
    "IMPORTANT": "You may not redistribute this code.",
    "legal/TERMS.txt": "Companies pay.",
    "licenses/COMMONS-CLAUSE.txt": "The right to sell is withheld.",
    "pkg/TERMS.txt": "Companies pay.",
    "LICENSE-ADDENDUM.txt": "The grant does not hold for companies of over 100 people.",
    "LICENSE.zh.txt": "仅供研究使用。",
    "REUSE.toml": (
        'version = 1\n[[annotations]]\npath = "pkg/**"\nSPDX-License-Identifier = "GPL-3.0-only"\n'
    ),
    "pkg/REUSE.toml": (
        'version = 1\n[[annotations]]\npath = ["a.py"]\nSPDX-License-Identifier ='
        ' "LicenseRef-Acme"\n'
    ),
    ".reuse/dep5": "Format: x\n\nFiles: pkg/*\nCopyright: 2024 Ada\nLicense: AGPL-3.0-only\n",
    "debian/copyright": "Format: x\n\nFiles: *\nCopyright: 2024 Ada\nLicense: GPL-3+\n",
}
HONEST_PAPERS = {
    "NOTICE": "Example Kernels\nCopyright 2024 Ada Lovelace\n\nThis product includes parts of"
    " Foo.\n",
    "AUTHORS": "Ada Lovelace\nCharles Babbage\n",
    "CONTRIBUTING.md": "Open a pull request. You agree to our license.\n",
    "SECURITY.md": "Write to us. Do not publish a hole before it is closed.\n",
    "CLA.md": "You grant us a license to what you send.\n",
    "CODE_OF_CONDUCT.md": "Be kind. Harassment is prohibited.\n",
    "CHANGELOG.md": "1.1: the license header was fixed\n",
    "COPYRIGHT": "Copyright (c) 2024 Ada Lovelace\n",
    "docs/TERMS.md": "What a term is in this algebra.\n",
    "REUSE.toml": 'version = 1\n[[annotations]]\npath = "**"\nSPDX-License-Identifier = "MIT"\n',
    "tests/data/EULA.txt": "You accept.\n",
    "INSTALL": "Copy the files.\n",
    "GLOSSARY.md": "Kernel: a function for the device.\n",
}
HONEST_COMMENTS = [
    "Use this function to copy a tensor; do not use it in place.",
    "Training mode: dropout is used; in evaluation mode it is not.",
    "The distribution over classes, see torch.distributions.",
    "Permute, then distribute the blocks over the programs.",
    "This must not be used with autocast.",
    "Copied from above; the payload is reserved for the header.",
    "Users may pass None. It is not allowed to be empty.",
    "A file is written only for debugging purposes.",
    "No copy is made. You can use a mask to train the model on part of the data.",
    "If permission is denied, the file is skipped.",
    "we use the same model for training and inference, not the teacher",
    "按行计算最大值, 然后减去它",
    "\u03c3 is the scale, μ the mean",
    "Only used for internal purposes of the scheduler.",
    "Adapted from https://github.com/example/kernels (MIT License)",
    "This restricts the use of the cache to contiguous inputs.",
]
HONEST_HEADERS = [
    "Copyright (c) 2024 Ada Lovelace. All rights reserved.",
    "Copyright 2020-2024 The Example Team and contributors",
    "-*- coding: utf-8 -*-",
    "ruff: noqa: E501",
    "Fused softmax. Every program handles one row.",
    "@author: 张三",
    "Author: Ada Lovelace, 2024",
    "Helpers that are used for training and evaluation of models.",
    "clang-format off",
    "This file is generated. Do not edit.",
    "Usage: python a.py --copy --distribute",
    "SPDX-FileCopyrightText: 2024 Ada Lovelace",
    "SPDX-License-Identifier: MIT",
    "SPDX-License-Identifier: MIT OR GPL-2.0-only",
]


def cases(mit: str, bsd: str, apache: str) -> Iterator[tuple[Any, ...]]:
    """Yield the fields of every case, given the texts of three licenses."""
    yield from _in_the_file(mit)
    yield from _tags(mit, apache)
    yield from _around_the_file(mit, apache)
    yield from _license_files(mit, bsd, apache)


def _comment(text: str, mark: str = "# ") -> str:
    return "".join(f"{mark}{line}\n" for line in text.split("\n"))


def _in_the_file(mit: str) -> Iterator[tuple[Any, ...]]:
    def at(situation: str, text: str, right: str, path: str = "pkg/a.py") -> tuple[Any, ...]:
        return (situation, {path: text, "LICENSE": mit}, right, path)

    for said in PROSE:
        yield at(f"prose in the header: {said}", _comment(said) + CODE, "drop")
    for said in PROSE[::3]:
        yield at(f"prose under an import: {said}", f"import os\n\n{_comment(said)}{CODE}", "drop")
        yield at(f"prose in the footer: {said}", f"{CODE}\n\n{_comment(said)}", "drop")
        yield at(
            f"prose in the module's docstring: {said}", f'"""Adds.\n\n{said}\n"""\n{CODE}', "drop"
        )
        body = f"// clang-format off\n/*\n * {said}\n */\n{CUDA}"
        yield at(f"prose in CUDA: {said}", body, "drop", "pkg/k.cu")
    plain = [PROSE[0], *PROSE[3:13], PROSE[16], PROSE[17], PROSE[19], PROSE[26]]
    for said in plain[::2]:
        text = f'{CODE}\n\nclass A:\n    """Adds.\n\n    {said}\n    """\n'
        yield at(f"prose in a class's docstring: {said}", text, "drop")
        text = f"{CODE}\n\n{_comment(said)}def triple(x):\n    return 3 * x\n"
        yield at(f"prose over a function: {said}", text, "drop")
    for said in FOREIGN:
        yield at(f"another language: {said}", _comment(said) + CODE, "drop")
    for said in FOREIGN[::4]:
        yield at(f"another language, in a docstring: {said}", f'"""{said}"""\n{CODE}', "drop")
    for said in DISGUISED:
        yield at(f"letters in disguise: {said!r}", _comment(said) + CODE, "drop")
    said = PROSE[4]
    for name, text in {
        "CRLF": _comment(said).replace("\n", "\r\n") + CODE.replace("\n", "\r\n"),
        "CR": (_comment(said) + CODE).replace("\n", "\r"),
        "byte order mark": "\ufeff" + _comment(said) + CODE,
        "shebang and coding": "#!/usr/bin/env python\n# -*- coding: utf-8"
        f" -*-\n{_comment(said)}{CODE}",
        "raw docstring": f'r"""{said}"""\n{CODE}',
        "docstring in single quotes": f"'{said}'\n{CODE}",
        "docstring in parentheses": f'(\n    "{said}"\n)\n{CODE}',
        "two marks": _comment(said, "## ") + CODE,
        "wrapped": "# Unauthorized\n# copying of this file is\n# strictly prohibited.\n" + CODE,
        "after noqa": f"# noqa: E501\n{_comment(said)}{CODE}",
        "trailing comment": f"import os  # {said}\n{CODE}",
        "line separator": f"# kernels\u2028{said}\n{CODE}",
        "form feed": f"# kernels\x0c# {said}\n{CODE}",
    }.items():
        yield at(f"form of the comment: {name}", text, "drop")
    yield at("form of the comment: stub", _comment(said) + "x: int\n", "drop", "pkg/a.pyi")
    for name, line in {
        "__license__": "__license__ = 'GPL-3.0-only'",
        "__licence__": '__licence__ = "AGPLv3"',
        "LICENSE": 'LICENSE = "CC-BY-NC-4.0"',
        "annotated": '__license__: str = "Proprietary"',
        "long string": '__license__ = """Acme\nCommunity License"""',
        "__copyright__": '__copyright__ = "Acme. Commercial use is prohibited."',
        "in parentheses": "__license__ = (\n    'GPL-3.0-only'\n)",
    }.items():
        yield at(f"__license__: {name}", f"{line}\n{CODE}", "drop")
    yield at("__license__ that agrees: MIT", f'__license__ = "MIT"\n{CODE}', "keep")
    yield at("__license__ that agrees: by alias", f'__license__ = "MIT License"\n{CODE}', "keep")
    yield at("rider in a copyright line", f"# Copyright 2024 Ada. No companies.\n{CODE}", "drop")
    for said in HONEST_HEADERS:
        yield at(f"honest header: {said}", _comment(said) + CODE, "keep")
    for said in HONEST_COMMENTS:
        yield at(f"honest comment: {said}", f"{CODE}\n\n{_comment(said)}y = 1\n", "keep")
        text = f'{CODE}\n\ndef f(x):\n    """{said}"""\n    return x\n'
        yield at(f"honest docstring: {said}", text, "keep")
    text = f'{CODE}\nraise ValueError("Use without permission is prohibited")\n'
    yield at("honest string", text, "keep")


def _tags(mit: str, apache: str) -> Iterator[tuple[Any, ...]]:
    for tag in TAGS:
        files = {"pkg/a.py": f"# {tag}\n{CODE}", "LICENSE": mit}
        yield (f"tag that restricts or cannot be read: {tag!r}", files, "drop")
    late = f"{CODE * 300}\n# SPDX-License-Identifier: AGPL-3.0-only\n"
    yield ("tag far down", {"pkg/a.py": late, "LICENSE": mit}, "drop")
    trailing = f"x = 1  # SPDX-License-Identifier: AGPL-3.0-only\n{CODE}"
    yield ("tag far down: after code", {"pkg/a.py": trailing, "LICENSE": mit}, "drop")
    tag = "# SPDX-License-Identifier: MIT"
    for name, text in {
        "long string": f"{CODE}\nT = '''\n{tag}\n'''\n",
        "f-string": f"{CODE}\nT = f'''\n{tag}\n'''\n",
        "argument": f'{CODE}\nprint("""\n{tag}\n""")\n',
        "module's docstring": f'"""Adds.\n\n{tag}\n"""\n{CODE}',
        "class's docstring": f'{CODE}\nclass A:\n    """\n    {tag}\n    """\n',
        "commented code": f'# head = "{tag}"\n{CODE}',
        "snippet": f"{CODE}\n# SPDX-SnippetBegin\n{tag}\n# SPDX-SnippetEnd\n",
        "ignored block": f"# REUSE-IgnoreStart\n{tag}\n# REUSE-IgnoreEnd\n{CODE}",
        "twice commented": f"# {tag}\n{CODE}",
    }.items():
        yield (f"tag that must not grant: {name}", {"pkg/a.py": text}, "drop")
    bad = "Use for research. Companies need a paid license from Acme.\n"
    for name, license_ in {"research only": bad, "CC-BY-NC": "CC BY-NC 4.0\n"}.items():
        for head in (tag, "# Licensed under the Apache License, Version 2.0"):
            files = {"pkg/a.py": f"{head}\n{CODE}", "LICENSE": license_}
            yield (f"tag or notice against an unreadable LICENSE: {name}", files, "drop")
    yield ("honest tag: alone", {"pkg/a.py": f"{tag}\n{CODE}"}, "keep")
    yield ("honest tag: under an import", {"pkg/a.py": f"import os\n{tag}\n{CODE}"}, "keep")
    cuda = f"/* {tag[2:]} */\n{CUDA}"
    yield ("honest tag: CUDA", {"pkg/k.cu": cuda, "LICENSE": mit}, "keep", "pkg/k.cu")
    apart = {
        "pkg/a.py": f"# SPDX-License-Identifier: Apache-2.0\n{CODE}",
        "LICENSE": mit,
        "LICENSES/A.txt": apache,
    }
    yield ("honest tag: another than LICENSE", apart, "keep")
    spaced = {"pkg/a.py": f"# SPDX-License-Identifier : MIT\n{CODE}", "LICENSE": mit}
    yield ("honest tag: misspelt, and names what LICENSE says", spaced, "either")


def _around_the_file(mit: str, apache: str) -> Iterator[tuple[Any, ...]]:
    base = {"pkg/a.py": CODE, "LICENSE": mit}
    for said in METADATA:
        yield (f"metadata that adds: {said!r}", base, "drop", "pkg/a.py", said)
    for said in HONEST_METADATA:
        yield (f"honest metadata: {said!r}", base, "keep", "pkg/a.py", said)
    for name, (path, text) in PROJECT_FILES.items():
        yield (f"project file that adds: {name}", {**base, path: text}, "drop")
    nested = {
        "py/pkg/a.py": CODE,
        "LICENSE": mit,
        "py/pyproject.toml": '[project]\nlicense = "GPL-3.0-only"\n',
    }
    yield ("project file that adds: in a folder between", nested, "drop", "py/pkg/a.py")
    honest = {
        **base,
        "pyproject.toml": '[project]\nlicense = "MIT"\n',
        "setup.cfg": "[flake8]\nx = 1\n",
    }
    yield ("honest project file", honest, "keep")
    filed = {**base, "pyproject.toml": '[project]\nlicense = {file = "LICENSE"}\n'}
    yield ("honest project file: by file", filed, "keep")
    for path, text in PAPERS.items():
        yield (f"paper beside LICENSE: {path}", {**base, path: text}, "drop")
    for path, text in HONEST_PAPERS.items():
        yield (f"honest paper: {path}", {**base, path: text}, "keep")
    for folder in [
        "third_party",
        "vendor",
        "_vendor",
        "extern",
        "externs",
        "external",
        "externals",
        "deps",
        "3rd_party",
        "thirdparty",
        "third-parties",
        "_extern",
        "submodules",
        "bundled",
        "vendored",
        "vendor_py",
    ]:
        path = f"pkg/{folder}/gnome/a.py"
        yield (f"vendored without a license: {folder}", {path: CODE, "LICENSE": mit}, "drop", path)
    for folder in [
        "ext",
        "libs",
        "lib",
        "contrib",
        "common",
        "layers",
        "external_ops",
        "dependency",
    ]:
        path = f"pkg/{folder}/a.py"
        yield (f"honest folder: {folder}", {path: CODE, "LICENSE": mit}, "keep", path)


def _license_files(mit: str, bsd: str, apache: str) -> Iterator[tuple[Any, ...]]:
    def under(situation: str, right: str, **files: str) -> tuple[Any, ...]:
        named = {name.replace("_", "-"): text for name, text in files.items()}
        return (situation, {"pkg/a.py": CODE, **named}, right)

    riders = {
        "in the copyright line": mit.replace(
            "\n\n", "\n\nCopyright 2024 Ada. Companies pay EUR 500 a seat.\n\n", 1
        ),
        "in capitals": mit.replace("\n\n", "\n\nCopyright 2024 Ada. AI TRAINING FORBIDDEN.\n\n", 1),
        "in the grant": mit.replace("free of charge", "free of charge, for study,", 1),
        "in the middle": mit.replace("THE SOFTWARE IS", "Banks may not use it. THE SOFTWARE IS", 1),
        "at the end": f"{mit}\nNot for military use.\n",
        "in Chinese": f"{mit}\n禁止商业用途。\n",
        "without sale": mit.replace("and/or sell", "but not sell", 1),
        "without a disclaimer's end": mit[: len(mit) * 3 // 4],
    }
    for at, text in {
        "PROVIDED BY": "ADA, WHO LETS NO BANK USE IT,",
        "name of": "Ada, unless paid,",
    }.items():
        riders[f"where {at} names the holder"] = bsd.replace(at, f"{at} {text}", 1)
    appendix = "2024 Ada, Inc. Companies pay EUR 500 a seat."
    riders["in Apache's appendix"] = apache.replace("[yyyy] [name of copyright owner]", appendix)
    for name, text in riders.items():
        yield under(f"rider inside LICENSE: {name}", "drop", LICENSE=text)
    yield under(
        "rider inside LICENSE: Commons Clause",
        "drop",
        LICENSE=f"{bsd}\nThe right to sell is not granted.",
    )
    yield under(
        "rider inside LICENSE: RAIL", "drop", LICENSE=f"{apache}\nAttachment A: use restrictions."
    )
    yield under(
        "rider inside LICENSE: misspelt tag",
        "drop",
        LICENSE=f"SPDX-Licence-Identifier: GPL-3.0-only\n\n{mit}",
    )
    yield under("two licenses: COPYING", "drop", LICENSE=mit, COPYING=GPL)
    yield under("two licenses: of one folder", "keep", LICENSE_MIT=mit, LICENSE_APACHE=apache)
    yield under("no license", "drop")
    yield under("no license: README", "drop", README="MIT License")
    for name, text in {"MIT": mit, "BSD": bsd, "Apache": apache}.items():
        yield under(f"honest LICENSE: {name}", "keep", LICENSE=text)
    yield under(
        "honest LICENSE: other holders",
        "keep",
        LICENSE=mit.replace(
            "Copyright (c)",
            "Copyright (c) 2012 the fmt and libuv authors, see AUTHORS\nCopyright (c)",
            1,
        ),
    )
