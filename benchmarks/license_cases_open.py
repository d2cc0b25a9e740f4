"""License cases for development: situation, files, what is right, where to look.

The same classes as in license_cases_apart.py, which those who mend the step never read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from license_cases import CODE, CUDA, GPL
from license_texts import Texts, commented, edit, titled, wrapped

Row = tuple[Any, ...]

# What each template has room for: license, words, words in their place.
ROOMS = [
    ("mit", "of this software and", "of this software, for teaching at schools, and"),
    ("mit", "obtaining a copy", "obtaining a copy by mail from Acme against payment"),
    ("mit", "to any person", "to any person enrolled at a university,"),
    ("mit", "associated documentation files", "associated documentation files on one computer"),
    ("mit", "without restriction, including", "without restriction except for sale, including"),
    ("mit", "and/or sell", "and/or, with our consent, sell"),
    ("mit", "publish, distribute, sublicense, and/or sell", "publish and distribute"),
    ("mit", "distribute, sublicense, and/or sell", "distribute, and/or sell"),
    ("mit", "to do so, subject to", "to do so until the end of 2027, subject to"),
    ("mit", "portions of the Software.", "portions of the Software. Banks may not use it."),
    ("mit", "AUTHORS OR COPYRIGHT HOLDERS BE", "AUTHORS, WHO LICENSE IT TO SCHOOLS ALONE, BE"),
    ("mit", "DEALINGS IN THE SOFTWARE.", "DEALINGS IN THE SOFTWARE. Sale needs a contract."),
    ("bsd3", "modification, are permitted", "modification, by non-profit bodies are permitted"),
    ("bsd3", "are permitted provided", "are permitted for evaluation provided"),
    ("bsd3", "with or without modification", "without modification"),
    ("bsd3", "name of the copyright holder", "name of Ada, whose consent every use needs,"),
    ("bsd3", "may be used to endorse", "may be sold with it or used to endorse"),
    ("bsd3", "contributors may be used", "contributors nor this code in a shop may be used"),
    ("bsd3", "prior written permission.", "prior written permission. The same goes for sale."),
    (
        "bsd3",
        "PROVIDED BY THE COPYRIGHT HOLDERS",
        "PROVIDED BY ACME TO CLINICS, INSURERS EXCLUDED,",
    ),
    ("bsd3", "NO EVENT SHALL THE COPYRIGHT HOLDER", "NO EVENT SHALL ACME OR ITS PAYING CUSTOMERS"),
    ("bsd3", "this list of conditions", "this list of conditions, and pay Acme a fee,"),
    ("bsd2", "source and binary forms", "source and binary forms inside one company"),
    ("bsd2", "are permitted provided", "are permitted to hobbyists provided"),
    ("bsd2", "PROVIDED BY THE COPYRIGHT HOLDERS", "PROVIDED BY ADA FOR HOMEWORK"),
    ("bsd2", "with the distribution.", "with the distribution, which Acme must approve first."),
    ("bsd2", "SUCH DAMAGE.", "SUCH DAMAGE. Armies get no rights from this text."),
    ("isc", "for any purpose", "for any non-profit purpose"),
    ("isc", "with or without fee", "without fee"),
    ("isc", "this software for", "this software, but not to sell it, for"),
    ("isc", "in all copies.", "in all copies. Hosting it as a service is excluded."),
    ("isc", "SHALL THE AUTHOR BE", "SHALL THE AUTHOR, WHO ALLOWS NO RESALE, BE"),
    ("zero_bsd", "is hereby granted.", "is hereby granted to private persons."),
    ("zero_bsd", "this software for any purpose", "this software at home for any purpose"),
    ("mit_0", "of this software and", "of this software for charity work and"),
    ("mit_0", "to do so.", "to do so. Clouds must not offer it."),
    ("zlib", "including commercial applications", "excluding commercial applications"),
    ("zlib", "granted to anyone", "granted to any student"),
    ("zlib", "redistribute it freely", "redistribute it freely within the institute"),
    ("boost", "any person or organization", "any person, and to no organization,"),
    ("boost", "execute, and transmit", "execute for research, and transmit"),
    ("apache", "no-charge, royalty-free, irrevocable", "no-charge, revocable, for study"),
    ("apache", "limitations under the License.", "limitations under the License and Acme's rules."),
    ("mit", "copy of this", "copy of the hobby edition, never of the industrial one, of this"),
    ("mit", "this software and", "this software inside one building and"),
    ("mit", "use, copy, modify", "copy, modify"),
    ("bsd3", "SHALL THE COPYRIGHT HOLDER", "SHALL ADA, SUPPLIER OF SCHOOLS ALONE,"),
    ("bsd3", "Neither the name", "Neither resale nor hosting is granted, nor the name"),
    (
        "bsd3",
        "of its contributors may be",
        "of its contributors, nor any part of it in a cloud, may be",
    ),
    ("bsd2", "SHALL THE COPYRIGHT OWNER", "SHALL ADA, WHO RESERVES EVERY SALE, THE OWNER"),
    ("isc", "AND THE AUTHOR DISCLAIMS", "AND ADA, HIRER OF IT BY THE DAY, DISCLAIMS"),
]
ROOMS_EITHER = [
    ("mit", "free of charge, to", "to"),
    ("mit", "without restriction, including without limitation", "including"),
    ("bsd2", "source and binary forms", "source or binary forms"),
]
HEADER_ROOMS = [
    ("apache_header", "may not use this file", "may not use this file at work"),
    ("apache_header", "copy of the License at", "copy of the License and of our price list at"),
    ("apache_header", "under the License.", "under the License. Acme alone may sell it."),
    ("mit", "of this software and", "of this software for one semester and"),
    ("isc", "for any purpose", "for any purpose but resale"),
]
HOLDERS = {
    "university": "Copyright (c) 1998-2005 The Regents of the University of California",
    "affiliates": "Copyright (c) Foo, Inc. and its affiliates. All rights reserved.",
    "contributors": "Copyright (c) 2019-present, the PyTorch contributors",
    "address": "Copyright (c) 2022 Jane Doe <jane.doe@example.org> (https://jane.example.org)",
    "several": (
        "Copyright (c) 2017 Facebook Inc.\nCopyright (c) 2018 NYU (Kyunghyun Cho)\n"
        "Copyright (c) 2020-2024 Idiap Research Institute. All rights reserved."
    ),
    "long list": (
        "Copyright (c) 2001-2015 Ada Lovelace, Grace Hopper, Alan Turing, John von Neumann,\n"
        "Kurt Gödel, Emmy Noether, Sofja Kowalewskaja and Paul Erdős"
    ),
    "see AUTHORS": "Copyright (c) 2020 The Example Authors (see AUTHORS file)",
    "small letters": "Copyright (c) 2023 lucidrains",
    "names of the field": "Copyright (c) 2021 Restricted Systems Ltd. and The Noncommercial Press",
    "unfilled": "Copyright (c) <year> <copyright holders>",
    "sign": "© 2024 Max-Planck-Gesellschaft zur Förderung der Wissenschaften e.V.",
}
HEADERS: list[tuple[str, str, str]] = [
    (
        "Microsoft",
        "mit",
        (
            "Copyright (c) Microsoft Corporation. All rights reserved.\nLicensed under the MIT"
            " License."
        ),
    ),
    (
        "Microsoft, DeepSpeed",
        "apache",
        (
            "Copyright (c) Microsoft Corporation.\n"
            "SPDX-License-Identifier: Apache-2.0\n\nDeepSpeed Team"
        ),
    ),
    (
        "Meta, MIT",
        "mit",
        (
            "Copyright (c) Meta Platforms, Inc. and affiliates.\nAll rights reserved.\n\nThis"
            " source code is licensed under the MIT license found in the\nLICENSE file in the root"
            " directory of this source tree."
        ),
    ),
    (
        "Meta, BSD",
        "bsd3",
        (
            "Copyright (c) Meta Platforms, Inc. and affiliates.\n\nThis source code is licensed"
            " under the BSD license found in the\nLICENSE file in the root directory of this source"
            " tree."
        ),
    ),
    (
        "Meta, any",
        "any",
        (
            "Copyright (c) Facebook, Inc. and its affiliates.\n\nThis source code is licensed under"
            " the license found in the\nLICENSE file in the root directory of this source tree."
        ),
    ),
    (
        "Chromium",
        "bsd3",
        (
            "Copyright 2014 The Chromium Authors. All rights reserved.\nUse of this source code is"
            " governed by a BSD-style license that can be\nfound in the LICENSE file."
        ),
    ),
    (
        "Google, Apache",
        "apache",
        (
            "Copyright 2021 Google LLC\n\nUse of this source code is governed by the Apache 2.0"
            " license\nthat can be found in the LICENSE file."
        ),
    ),
    (
        "Apple",
        "any",
        (
            "For licensing see accompanying LICENSE file.\n"
            "Copyright (C) 2022 Apple Inc. All Rights Reserved."
        ),
    ),
    (
        "NVIDIA",
        "bsd3",
        (
            "SPDX-FileCopyrightText: Copyright (c) 2023 NVIDIA CORPORATION & AFFILIATES."
            " All rights reserved.\nSPDX-License-Identifier: BSD-3-Clause"
        ),
    ),
    (
        "NVIDIA, see",
        "any",
        (
            "Copyright (c) 2020, NVIDIA CORPORATION.  All rights reserved.\n\n"
            "See LICENSE for license information."
        ),
    ),
    (
        "Intel",
        "apache",
        "Copyright (C) 2021-2024 Intel Corporation\nSPDX-License-Identifier: Apache-2.0",
    ),
    (
        "AMD",
        "mit",
        (
            "Copyright (C) 2023-2024, Advanced Micro Devices, Inc. All rights reserved.\n"
            "SPDX-License-Identifier: MIT"
        ),
    ),
    (
        "Amazon",
        "apache",
        (
            "Copyright Amazon.com, Inc. or its affiliates. All Rights Reserved.\n"
            "SPDX-License-Identifier: Apache-2.0"
        ),
    ),
    ("OpenAI", "mit", "Copyright (c) 2023 OpenAI. Released under the MIT license."),
    (
        "Alibaba",
        "apache",
        (
            "Copyright (c) Alibaba, Inc. and its affiliates.\n\n"
            "Licensed under the Apache License 2.0, see the LICENSE file."
        ),
    ),
    (
        "Tencent",
        "mit",
        (
            "Copyright (c) 2022 Tencent.\nThis file is distributed under the terms of the"
            " MIT license, see LICENSE."
        ),
    ),
    ("OpenMMLab", "any", "Copyright (c) OpenMMLab. All rights reserved."),
    (
        "university",
        "bsd3",
        (
            "Copyright (c) 2016, University of Oxford. All rights reserved.\n"
            "Distributed under the BSD 3-Clause license. See LICENSE for details."
        ),
    ),
    ("individual", "mit", "Author: Phil Wang\nLicense: MIT"),
    ("individual, sentence", "mit", "Written by Ada Lovelace, 2021. MIT licensed."),
    ("see for details", "any", "Part of Example Kernels. See LICENSE for details."),
    (
        "see for information",
        "any",
        "See the LICENSE file in the project root for license information.",
    ),
    ("same as project", "any", "This file is under the same license as the project."),
    (
        "root",
        "apache",
        (
            "Licensed under the Apache License, Version 2.0. See License.txt in the project"
            " root for license information."
        ),
    ),
    (
        "title in a docstring",
        "mit",
        (
            "Rotary embeddings.\n\n:copyright: (c) 2023 by Ada Lovelace.\n"
            ":license: MIT, see LICENSE for more details."
        ),
    ),
]
NAMES = {"mit": "MIT", "bsd3": "BSD-3-Clause", "apache": "Apache-2.0"}
INNOCENT = [
    "Client of commercial LLMs, such as those behind an API.",
    "Restricted Boltzmann machine, for educational purposes.",
    "Reads license plates from images.",
    "Reads the proprietary format of the microscope.",
    "Internal use only: not part of the public API.",
    "Private module. Do not import it from outside the package.",
    "A minimal GPT for educational purposes.",
    "The permission bits of a file, and who may use it.",
    "Loss for non-commercial and commercial flights in the traffic data.",
    "Attention is restricted to a window of the past; no other position may be used.",
    "Copyright detection: tells whether a text is a copyright notice.",
]
CLAIMS = {
    "__init__": ("pkg/__init__.py", '__license__ = "CC-BY-NC-SA-4.0"\n'),
    "__about__": ("pkg/__about__.py", '__title__ = "pkg"\n__license__ = "GPL-3.0-or-later"\n'),
    "_version": ("pkg/_version.py", '__version__ = "1.0"\n__license__ = "Proprietary"\n'),
    "tuple": ("pkg/__init__.py", '__author__, __license__ = "Ada", "AGPL-3.0-only"\n'),
    "chained": ("pkg/__init__.py", '__license__ = LICENSE = "SSPL-1.0"\n'),
    "try": (
        "pkg/__init__.py",
        'try:\n    __license__ = "GPL-2.0-only"\nexcept OSError:\n    pass\n',
    ),
    "if": ("pkg/__init__.py", 'import sys\nif sys.version_info:\n    __license__ = "GPLv2"\n'),
    "annotated": ("pkg/__about__.py", '__license__: str = "CC-BY-NC-4.0"\n'),
    "dict": ("pkg/__about__.py", 'ABOUT = {"name": "pkg", "license": "AGPL-3.0-or-later"}\n'),
    "f-string": ("pkg/__init__.py", 'V = 3\n__license__ = f"GPLv{V}"\n'),
    "docstring": (
        "pkg/__init__.py",
        '"""Kernels.\n\nThis package is for non-commercial research use only.\n"""\n',
    ),
    "comment": (
        "pkg/__init__.py",
        "# The package may be used by members of the consortium only.\n",
    ),
    "joined": ("pkg/__init__.py", '__license__ = "GNU " "GPL v3"\n'),
}
HONEST_CLAIMS = {
    "MIT": ("pkg/__init__.py", '__license__ = "MIT"\n'),
    "title": ("pkg/__about__.py", '__license__ = "MIT License"\n__copyright__ = "2024 Ada"\n'),
    "see": ("pkg/__init__.py", '__license__ = "see LICENSE"\n'),
    "tuple": ("pkg/__init__.py", '__version__, __license__ = "1.0", "MIT"\n'),
    "docstring": ("pkg/__init__.py", '"""Fast kernels, released under the MIT license."""\n'),
    "dict": ("pkg/__about__.py", 'ABOUT = {"name": "pkg", "license": "MIT"}\n'),
    "another package's": ("tests/fixtures/__init__.py", '__license__ = "GPL-3.0-only"\n'),
    "docstring on its subject": (
        "pkg/__init__.py",
        '"""Pricing of commercial licenses: a proprietary data model, and who may use it."""\n',
    ),
    "header": ("pkg/__init__.py", "# Copyright (c) 2024 Ada Lovelace. MIT License.\n"),
}
READMES = {
    "README.md": "# pkg\n\nFree for non-commercial use only. Companies: sales@acme.example.\n",
    "README": "pkg\n\nYou may not use this repository to train machine learning models.\n",
    "README.rst": (
        "pkg\n===\n\nLicense\n-------\n\nGPL for open source, else a commercial license.\n"
    ),
    "Readme.txt": "The code is available for academic purposes. Other use requires our consent.\n",
    "readme.md": "## License\n\nThis project is licensed under CC BY-NC 4.0.\n",
    "README_zh.md": "# pkg\n\n## 许可\n\n本项目仅供学术研究使用, 禁止商用。\n",
    "pkg/README.md": (
        "The kernels of this folder are confidential to Acme and must not be copied.\n"
    ),
    "README.markdown": "---\nlicense: cc-by-nc-4.0\n---\n# pkg\n",
}
HONEST_READMES = {
    "badge": "# pkg\n\n![License: MIT](https://img.shields.io/badge/License-MIT-yellow.svg)\n",
    "line": "# pkg\n\nFast kernels.\n\nLicense: MIT\n",
    "section": "# pkg\n\n## License\n\nReleased under the MIT license - see [LICENSE](LICENSE).\n",
    "none": "# pkg\n\npip install pkg\n",
    "commercial": "# pkg\n\nWorks on commercial GPUs and in commercial products alike.\n",
    "citation": "# pkg\n\n## Citation\n\nIf you use this code in your research, please cite us.\n",
    "thanks": "# pkg\n\n## Acknowledgments\n\nBuilt on PyTorch (BSD-3-Clause) and Triton (MIT).\n",
    "academic": "# pkg\n\nWritten at an academic lab for research on attention.\n",
    "contributing": "# pkg\n\nContributions are welcome. You must sign off your commits.\n",
    "front matter": "---\nlicense: mit\n---\n# pkg\n",
    "no AI": "# pkg\n\nThe training script does not train models with dropout.\n",
    "quality": "# pkg\n\nThis is research code; do not expect it to work in production.\n",
    "permission": "# pkg\n\nYou need permission to write to `/dev/nvidia0`.\n",
    "model card": "# pkg\n\nUse of `pkg.compile` is restricted to contiguous tensors.\n",
    "copyright": "# pkg\n\nCopyright (c) 2024 Ada Lovelace. MIT licensed, see LICENSE.\n",
    "table": "| module | use |\n|-|-|\n| `pkg.a` | training only |\n| `pkg.b` | inference only |\n",
    "data sets in use": "# pkg\n\nTrained on a private corpus, evaluated on public benchmarks.\n",
    "Chinese": "# pkg\n\n快速内核, 用于训练和推理。\n\n许可证: MIT\n",
    "two names": "# pkg\n\nParts come from Foo (Apache-2.0), see LICENSE and NOTICE.\n",
}
EITHER_READMES = {
    "data": "# pkg\n\nCode is MIT. The ImageNet data is for non-commercial research only.\n",
    "weights": (
        "# pkg\n\nThe pretrained weights are released under CC BY-NC 4.0; the code is MIT.\n"
    ),
}
LEGAL_FILES = {
    "Lizenz.txt": "Die Nutzung ist nur zu Forschungszwecken gestattet.\n",
    "licencia.txt": "Se prohíbe el uso comercial.\n",
    "licenza.md": "Vietato l'uso a scopo di lucro.\n",
    "许可证.txt": "本软件仅供非商业用途。\n",
    "使用条款.md": "未经授权不得复制或传播。\n",
    "利用規約.txt": "商用利用は禁止されています。\n",
    "лицензия.txt": "Использование в коммерческих целях запрещено.\n",
    "gpl-3.0.txt": GPL,
    "agpl.md": GPL.replace("GNU General", "GNU Affero General"),
    "license.yaml": "license: CC-BY-NC-4.0\n",
    "READMEFIRST": "You accept: no company may run this.\n",
    "legal/license.txt": "Acme Source License: evaluation for 30 days.\n",
    "license/license.txt": "Research only. Anything else needs a contract.\n",
    "LICENSES/house.txt": "Internal to Acme. Do not pass it on.\n",
    "LICENSE.rtf": "{\\rtf1 Non-commercial use only.}\n",
    "doc/LICENSE.html": "<p>Personal, non-commercial use only.</p>\n",
    "LICENSE.json": '{"license": "CC-BY-NC-4.0"}\n',
    "conditions-of-use.txt": "You pay Acme 1 EUR for each use.\n",
}
METADATA_FILES = {
    "pyproject file": {
        "pyproject.toml": '[project]\nlicense = {file = "docs/terms_nc.txt"}\n',
        "docs/terms_nc.txt": "Only for non-commercial use.\n",
    },
    "pyproject license-files": {
        "pyproject.toml": '[project]\nlicense-files = ["meta/house/*"]\n',
        "meta/house/rules.txt": "Only Acme's customers may use this.\n",
    },
    "setup.cfg license_files": {
        "setup.cfg": "[metadata]\nlicense_files =\n    LICENSE\n    meta/b.txt\n",
        "meta/b.txt": "You may not sell this.\n",
    },
    "setup.py variable": {
        "setup.py": 'from setuptools import setup\nL = "GPLv3"\nsetup(name="p", license=L)\n'
    },
    "setup.py long string": {
        "setup.py": 'from setuptools import setup\nsetup(name="p", license="""AGPLv3""")\n'
    },
    "setup.py open": {
        "setup.py": (
            'from setuptools import setup\nsetup(name="p", license=open("meta/c.txt").read())\n'
        ),
        "meta/c.txt": "Proprietary to Acme.\n",
    },
    "setup.py keywords": {
        "setup.py": 'from setuptools import setup\nkw = dict(license="CC-BY-NC-4.0")\nsetup(**kw)\n'
    },
    "Cargo license-file": {
        "Cargo.toml": '[package]\nlicense-file = "d.txt"\n',
        "d.txt": "For internal use only.\n",
    },
    "setuptools dynamic": {
        "pyproject.toml": (
            '[project]\ndynamic = ["license"]\n[tool.setuptools.dynamic]\n'
            'license = {file = "meta/e.txt"}\n'
        ),
        "meta/e.txt": "No commercial use.\n",
    },
    "pdm": {"pyproject.toml": '[tool.pdm]\nlicense = {text = "SSPL-1.0"}\n'},
    "CITATION.cff list": {
        "CITATION.cff": "cff-version: 1.2.0\nlicense:\n  - MIT\n  - GPL-3.0-only\n"
    },
    "codemeta": {"codemeta.json": '{"license": ["https://spdx.org/licenses/AGPL-3.0-only"]}\n'},
    "package.json object": {"package.json": '{"license": {"type": "GPL-3.0", "url": "x"}}\n'},
    "package.json old": {"package.json": '{"licenses": [{"type": "CC-BY-NC-4.0"}]}\n'},
}
HONEST_METADATA = {
    "pyproject file": {"pyproject.toml": '[project]\nlicense = {file = "LICENSE"}\n'},
    "pyproject license-files": {
        "pyproject.toml": '[project]\nlicense = "MIT"\nlicense-files = ["LICEN[CS]E*"]\n'
    },
    "setup.py open": {
        "setup.py": 'from setuptools import setup\nsetup(license=open("LICENSE").read())\n'
    },
    "setup.py variable": {
        "setup.py": 'from setuptools import setup\nL = "MIT License"\nsetup(name="p", license=L)\n'
    },
    "setup.cfg": {"setup.cfg": "[metadata]\nlicense = MIT\nlicense_files = LICENSE\n"},
    "Cargo": {"Cargo.toml": '[package]\nname = "p"\nlicense = "MIT"\n'},
    "package.json": {"package.json": '{"name": "p", "license": "MIT"}\n'},
    "CITATION.cff": {"CITATION.cff": "cff-version: 1.2.0\nlicense: MIT\n"},
    "codemeta": {"codemeta.json": '{"license": "https://spdx.org/licenses/MIT"}\n'},
    "poetry": {"pyproject.toml": '[tool.poetry]\nlicense = "MIT"\n'},
}
CARDS = {
    "other with a link": (
        "license: other\nlicense_name: mit\nlicense_link: https://acme.example/eula"
    ),
    "gated prompt": (
        "license: mit\nextra_gated_prompt: You agree not to use this for commercial purposes."
    ),
    "link": "license: mit\nlicense_link: https://creativecommons.org/licenses/by-nc/4.0/",
    "second key": "license: cc-by-nc-4.0\nlicense: mit",
    "list": "license:\n- mit\n- cc-by-nc-4.0",
    "other": "license: other",
    "none": "language: en",
    "own file": "license: other\nlicense_name: acme-data\nlicense_link: LICENSE",
}
HONEST_CARDS = {
    "mit": "license: mit",
    "list": "license:\n- mit\n- apache-2.0",
    "quoted": 'license: "apache-2.0"',
    "with link to itself": "license: mit\nlicense_link: https://opensource.org/licenses/MIT",
    "tags": "license: mit\ntags:\n- commercial\ntask_categories:\n- text-generation",
}
FOREIGN = {
    "BUSL": (
        "Business Source License 1.1\n\nChange Date: 2029-01-01. Production use needs a license.\n"
    ),
    "SSPL": (
        "Server Side Public License, version 1\n\nWho offers it as a service shares the service.\n"
    ),
    "Elastic": "Elastic License 2.0\n\nYou may not provide the software as a managed service.\n",
    "RAIL": "BigScience OpenRAIL-M License\n\nUse restrictions of Attachment A apply.\n",
    "Llama": (
        "LLAMA 3 COMMUNITY LICENSE AGREEMENT\n\nOver 700 million users need another license.\n"
    ),
    "CC BY-NC": "Attribution-NonCommercial 4.0 International\n",
    "FSL": "Functional Source License, Version 1.1, MIT Future License\n",
    "PolyForm": "PolyForm Noncommercial License 1.0.0\n",
    "empty": "",
    "name alone": "MIT\n",
}
PROSE = [
    "Kun til ikke-kommerciel brug.",
    "Wyłącznie do użytku niekomercyjnego.",
    "Endast för forskning; vidarespridning är förbjuden.",
    "Chỉ dùng cho nghiên cứu, cấm sử dụng thương mại.",
    "केवल गैर-व्यावसायिक उपयोग के लिए",
    "n o n - c o m m e r c i a l   u s e   o n l y",
    "This code is pro-\nprietary.",
    "Provided to members of the consortium; others shall delete it.",
    "The grant ends on 2025-01-01.",
    "Do not fork, mirror or scrape this file.",
    "User-agent: GPTBot\nDisallow: /",
    "You promise to do no harm with it.",
    "N0n-commerc1al use only.",
    "NC use. Ask Acme for anything else.",
    "K\u043emmerzielle Nutzung verboten.",
    "<b>Non</b>commercial <b>use</b> only",
]


def cases(texts: Texts) -> Iterator[Row]:
    """Yield the fields of every case, given the texts of licenses."""
    yield from _rooms(texts)
    yield from _honest_texts(texts)
    yield from _around(texts)
    yield from _headers(texts)
    yield from _links(texts)
    yield from _folders(texts)
    yield from _cards(texts)
    yield from _foreign(texts)


def _under(situation: str, right: str, license_: str, **files: str) -> Row:
    return situation, {"pkg/a.py": CODE, "LICENSE": license_, **files}, right


def _rooms(texts: Texts) -> Iterator[Row]:
    for right, rooms in (("drop", ROOMS), ("either", ROOMS_EITHER)):
        for name, old, new in rooms:
            text = titled(edit(getattr(texts, name), old, new))
            yield _under(f"room in a license text: {name}: {new}", right, text)
    for name, old, new in HEADER_ROOMS:
        text = commented(titled(edit(getattr(texts, name), old, new))) + CODE
        yield f"room in a header: {name}: {new}", {"pkg/a.py": text}, "drop"
        files = {"pkg/a.py": text, "LICENSE": texts.apache}
        yield f"room in a header: {name}: {new}, with LICENSE", files, "drop"
    mit = texts.mit
    for place, text in {
        "line after the holder": titled(mit, holder="Copyright (c) 2024 Ada\nFor Acme's staff."),
        "holder's line": titled(mit, holder="Copyright (c) 2024 Ada, lent to schools"),
        "line over the title": titled(mit, "Valid in Norway.\n\nMIT License"),
        "condition": titled(
            mit.replace("\n\nTHE", "\n\n2. You name Acme in every talk.\n\nTHE", 1)
        ),
        "appendix": titled(f"{mit}\nSection 2. Weights and kernels may not be hosted.\n"),
        "no disclaimer, more terms": titled(
            mit[: mit.index("THE SOFTWARE IS")] + "Do not sell it.\n"
        ),
        "clause 4": titled(
            edit(texts.bsd3, "THIS SOFTWARE", "4. Sale is reserved.\n\nTHIS SOFTWARE")
        ),
        "mention of ads": titled(
            edit(texts.bsd3, "THIS SOFTWARE", "4. All users register with Acme.\n\nTHIS SOFTWARE")
        ),
    }.items():
        yield _under(f"line added to a license text: {place}", "drop", text)
    cut = titled(mit[: mit.index("THE SOFTWARE IS")], "MIT License")
    yield _under("line added to a license text: disclaimer taken away", "either", cut)


def _honest_texts(texts: Texts) -> Iterator[Row]:
    def honest(said: str, text: str, right: str = "keep") -> Row:
        return _under(f"honest license text: {said}", right, text)

    for name, holder in HOLDERS.items():
        yield honest(f"MIT, {name}", titled(texts.mit, "MIT License", holder))
        yield honest(f"BSD-3, {name}", titled(texts.bsd3, holder=holder))
    named = edit(texts.bsd3, "the copyright holder nor", "the University of Oxford nor")
    named = edit(named, "THE COPYRIGHT HOLDERS AND", "THE UNIVERSITY OF OXFORD AND")
    yield honest("BSD-3, a holder named in the rooms", titled(named))
    lettered = texts.bsd3.replace("1. ", "a) ").replace("2. ", "b) ").replace("3. ", "c) ")
    bullets = texts.bsd3.replace("1. ", "* ").replace("2. ", "* ").replace("3. ", "* ")
    mit = titled(texts.mit, "MIT License")
    for said, text in {
        "letters": titled(lettered, "BSD 3-Clause License"),
        "bullets": titled(bullets, "BSD 3-Clause License"),
        "numbers in brackets": titled(
            texts.bsd2.replace("* R", "(1) R", 1).replace("* R", "(2) R")
        ),
        "CRLF": mit.replace("\n", "\r\n"),
        "width 60": wrapped(mit, 60),
        "a line per paragraph": wrapped(mit, 9999),
        "BSD-3, width 100": wrapped(titled(texts.bsd3), 100),
        "markdown": f"# MIT License\n\n## Copyright\n\n{titled(texts.mit)}",
        "markdown quote": commented(mit, "> "),
        "curly quotes": mit.replace('"AS IS"', "“AS IS”").replace('"Software"', "“Software”"),
        "holder with the title": titled(
            texts.mit, holder="The MIT License, Copyright (c) 2024 Ada"
        ),
        "indented": "".join(f"    {line}\n" for line in mit.splitlines()),
        "long title": titled(texts.mit, "The MIT License (MIT)\n====================="),
        "BSD for a product": titled(texts.bsd3, "BSD License\n\nFor Kineto software"),
        "ISC": titled(texts.isc, "ISC License"),
        "0BSD": titled(texts.zero_bsd, "BSD Zero Clause License"),
        "Zlib": titled(texts.zlib),
        "MIT-0": titled(texts.mit_0, "MIT No Attribution"),
        "Boost": titled(
            texts.boost, "Boost Software License - Version 1.0 - August 17th, 2003", ""
        ),
        "Apache, notice alone": titled(texts.apache_header),
        "Apache, holder filled in": edit(
            texts.apache, "Copyright [yyyy] [name of copyright owner]", "Copyright 2024 Ada, Inc."
        ),
        "byte order mark": f"\ufeff{mit}",
    }.items():
        yield honest(said, text)
    both = f"{mit}\n\n-----\n\nParts from Bar:\n\n{titled(texts.bsd3, 'BSD 3-Clause License')}"
    yield honest("two licenses in one file", both, "either")


def _around(texts: Texts) -> Iterator[Row]:
    base = {"pkg/a.py": CODE, "LICENSE": titled(texts.mit, "MIT License")}
    for name, (path, text) in CLAIMS.items():
        yield f"claim for the package: {name}", {**base, path: text}, "drop"
    yield (
        "claim for the package: setup.py's docstring",
        {**base, "setup.py": '"""Proprietary software of Acme."""\nfrom setuptools import setup\n'},
        "drop",
    )
    deep = {**base, "pkg/__init__.py": '__license__ = "GPLv3"\n', "pkg/nn/b.py": CODE}
    yield "claim for the package: file of a sub-package", deep, "drop", "pkg/nn/b.py"
    for name, (path, text) in HONEST_CLAIMS.items():
        yield f"honest claim for the package: {name}", {**base, path: text}, "keep"
    for path, text in READMES.items():
        yield f"README with terms: {path}", {**base, path: text}, "drop"
    ee = {"ee/a.py": CODE, "LICENSE": base["LICENSE"]}
    ee["ee/README.md"] = "This folder needs a commercial license.\n"
    yield "README with terms: ee/README.md", ee, "drop", "ee/a.py"
    described = "Description-Content-Type: text/markdown\n\n# pkg\n\nFor non-commercial use only.\n"
    yield "README with terms: description in the metadata", base, "drop", "pkg/a.py", described
    for name, text in HONEST_READMES.items():
        yield f"honest README: {name}", {**base, "README.md": text}, "keep"
    described = "Description-Content-Type: text/markdown\n\n# pkg\n\nLicensed under MIT.\n"
    yield "honest README: description in the metadata", base, "keep", "pkg/a.py", described
    yield (
        "honest README: ee/README.md of another folder",
        {
            **base,
            "ee/README.md": ee["ee/README.md"],
        },
        "keep",
    )
    for name, text in EITHER_READMES.items():
        yield f"README on other things: {name}", {**base, "README.md": text}, "either"
    for path, text in LEGAL_FILES.items():
        # A LICENSE alongside a folder license/ is refused as a clash of names, whatever they say.
        names = {name.replace("LICENSE", "LICENSE.txt"): said for name, said in base.items()}
        files = {**(names if path.startswith("license/") else base), path: text}
        yield f"terms in a file of another name: {path}", files, "drop"
    for path, text in {
        "LICENSES_bundled.txt": f"pkg bundles bar.\n\nName: bar\nLicense: MIT\n\n{base['LICENSE']}",
        "LICENSES/MIT.txt": base["LICENSE"],
        "data/license_plate.txt": "B-AB 123\n",
        "tests/data/LICENSE.tmpl": "Copyright {{ year }} {{ owner }}. All use is prohibited.\n",
        "docs/licensing.rst": "Licensing\n=========\n\npkg is released under the MIT license.\n",
        "docs/permissions.md": "How the server checks permissions of a user.\n",
        "pkg/terms.txt": "sum\nproduct\nquotient\n",
        "Lizenz.txt": base["LICENSE"],
        "LIESMICH.txt": "Schnelle Kernel.\n",
    }.items():
        yield f"honest file of such a name: {path}", {**base, path: text}, "keep"
    for name, files in METADATA_FILES.items():
        yield f"metadata that points or hides: {name}", {**base, **files}, "drop"
    for name, files in HONEST_METADATA.items():
        yield f"honest metadata: {name}", {**base, **files}, "keep"


def _headers(texts: Texts) -> Iterator[Row]:
    licenses = {name: titled(getattr(texts, name)) for name in ("mit", "bsd3")}
    licenses["apache"] = texts.apache
    for name, granted, header in HEADERS:
        body = f'"""{header}\n"""\n{CODE}' if ":license:" in header else commented(header) + CODE
        for other, text in licenses.items():
            files = {"pkg/a.py": body, "LICENSE": text}
            if granted in (other, "any"):
                yield f"honest company header: {name}, {other}", files, "keep"
            elif "SPDX-Lic" not in header and name != "Meta, BSD":
                yield f"header against LICENSE: {name}, {other}", files, "either"
    cuda = f"/*\n{commented(HEADERS[2][2], ' * ')} */\n{CUDA}"
    files = {"pkg/k.cu": cuda, "LICENSE": licenses["mit"]}
    yield "honest company header: Meta in CUDA", files, "keep", "pkg/k.cu"
    cuda = f"{commented(HEADERS[5][2], '// ')}\n{CUDA}"
    files = {"pkg/k.cu": cuda, "LICENSE": licenses["bsd3"]}
    yield "honest company header: Chromium in CUDA", files, "keep", "pkg/k.cu"
    meta = (
        "Copyright (c) Meta Platforms, Inc. and affiliates.\n\nThis source code is licensed under"
    )
    for said in (
        "Licensed under the GPL. See LICENSE for details.",
        "Licensed under the MIT License for research. Companies see LICENSE.commercial.",
        f"{meta} the CC-BY-NC license found in the\nLICENSE file in the root directory.",
        f"{meta} the license found in the\nMODEL_LICENSE file in the root directory.",
        "Released under the MIT license, except for use in weapons.",
        "Use of this source code is governed by a license that Acme sells.",
        "Copyright (c) 2024 Acme. All rights reserved. Not for redistribution.",
        "Licensed under the AGPL version 3 or, at your option, a paid license.",
    ):
        files = {"pkg/a.py": commented(said) + CODE, "LICENSE": licenses["mit"]}
        yield f"header that adds terms: {said[:60]}", files, "drop"
    mit = titled(texts.mit)
    apache = titled(texts.apache_header)
    for said, text in {
        "twice commented MIT": commented(commented(mit)),
        "twice commented Apache": commented(commented(apache)),
        "string": f'HEAD = """\n{mit}"""\n',
        "string in a call": f"write('''\n{apache}''')\n",
        "commented code": commented(f'HEAD = """\n{mit}"""'),
        "quoted by a generator": f'def head():\n    return """\n{commented(mit)}"""\n',
        "twice commented tag": "# # SPDX-License-Identifier: Apache-2.0\n",
        "tag in a string": 'T = "SPDX-License-Identifier: MIT"\n',
        "docstring of a function": f'def f():\n    """\n{mit}    """\n',
    }.items():
        yield f"grant that is none: {said}", {"pkg/a.py": text + CODE}, "drop"
    for said, text in {
        "MIT": commented(mit),
        "Apache": commented(apache),
        "ISC": commented(titled(texts.isc)),
        "tag": "# SPDX-License-Identifier: BSD-3-Clause\n",
        "in a docstring at the head": f'"""{mit}"""\n',
    }.items():
        yield f"honest header that grants: {said}", {"pkg/a.py": text + CODE}, "keep"
    for said in ("Adapted from Gnome.", "Taken from the Linux kernel."):
        files = {"pkg/a.py": f"{CODE}\n\n{commented(f'{said} {GPL}')}", "LICENSE": licenses["mit"]}
        yield f"header that adds terms: further down: {said}", files, "drop"
    for said in INNOCENT:
        files = {"pkg/a.py": f'"""{said}"""\n{CODE}', "LICENSE": licenses["mit"]}
        yield f"honest words: {said}", files, "keep"
    for said in PROSE:
        files = {"pkg/a.py": commented(said) + CODE, "LICENSE": licenses["mit"]}
        yield f"prose with terms: {said!r}", files, "drop"


def _links(texts: Texts) -> Iterator[Row]:
    mit = titled(texts.mit, "MIT License")
    nc = "For non-commercial research only.\n"

    def linked(said: str, right: str, links: dict[str, str], **files: str) -> Row:
        tree = {"pkg/a.py": CODE, **{k.replace("__", "/"): v for k, v in files.items()}}
        return f"link: {said}", tree, right, "pkg/a.py", "", links

    yield linked("LICENSE to a text of the tree", "keep", {"LICENSE": "legal/mit"}, legal__mit=mit)
    yield linked("LICENSE to terms of the tree", "drop", {"LICENSE": "legal/nc"}, legal__nc=nc)
    yield linked("the folder's to terms", "drop", {"pkg/LICENSE": "../nc"}, LICENSE=mit, nc=nc)
    yield linked("COPYING to terms", "drop", {"COPYING": "docs/b"}, LICENSE=mit, docs__b=nc)
    yield linked("COPYING to nowhere", "drop", {"COPYING": "gone"}, LICENSE=mit)
    yield linked("the folder's out of the tree", "drop", {"pkg/LICENSE": "/etc/hosts"}, LICENSE=mit)
    yield linked("the folder's to the root's", "keep", {"pkg/LICENSE": "../LICENSE"}, LICENSE=mit)
    yield linked("of other files", "keep", {"data": "/tmp", "b.py": "pkg/a.py"}, LICENSE=mit)


def _folders(texts: Texts) -> Iterator[Row]:
    mit = titled(texts.mit, "MIT License")
    for folder in (
        "node_modules",
        "3p",
        "vendorized",
        "site-packages",
        "subprojects",
        "third_party",
    ):
        path = f"pkg/{folder}/gnome/a.py"
        yield f"vendored folder: {folder}", {path: CODE, "LICENSE": mit}, "drop", path
    path = "pkg/node_modules/bar/a.py"
    own = {path: CODE, "LICENSE": mit, "pkg/node_modules/bar/LICENSE": titled(texts.bsd3)}
    yield "honest folder: vendored, with a license of its own", own, "keep", path
    own = {**own, "pkg/node_modules/bar/LICENSE": GPL}
    yield "vendored folder: with the GPL", own, "drop", path
    path = "pkg/_vendor/bar/a.py"
    dist = {path: CODE, "LICENSE": mit, "pkg/_vendor/bar-1.0.dist-info/LICENSE": GPL}
    yield "vendored folder: dist-info with the GPL", dist, "drop", path
    for folder in ("modules", "backends", "externally_tuned", "vendors_of_gpus", "projects", "p3"):
        path = f"pkg/{folder}/a.py"
        yield f"honest folder: {folder}", {path: CODE, "LICENSE": mit}, "keep", path


def _cards(texts: Texts) -> Iterator[Row]:
    def card(said: str, right: str, head: str, body: str = "", own: str = "", **files: str) -> Row:
        card = f"---\n{head}\n---\n# Kernels\n{body}"
        return said, {"data.parquet": own, "README.md": card, **files}, right, "data.parquet"

    for name, head in CARDS.items():
        files = {"LICENSE": "Acme data license: research only.\n"} if name == "own file" else {}
        yield card(f"data set card: {name}", "drop", head, **files)
    said = "\nNon-commercial research use only.\n"
    yield card("data set card: in the body", "drop", "license: mit", said)
    yield card("data set card: the row's own", "drop", "license: mit", own="GPL-3.0-only")
    yield card("data set card: file", "drop", "license: mit", **{"TERMS.md": "Companies pay.\n"})
    for name, head in HONEST_CARDS.items():
        yield card(f"honest data set card: {name}", "keep", head)
    head = "license: bsd-3-clause\nextra_gated_prompt: Please tell us who you are."
    yield card("data set card: a gate that restricts nothing", "either", head)
    said = "\n## Licensing\n\nThe data set is released under the MIT license.\n"
    yield card("honest data set card: in the body", "keep", "license: mit", said)
    yield card("honest data set card: the row's own", "keep", "license: mit", own="Apache-2.0")
    files = {"LICENSE": titled(texts.mit, "MIT License")}
    yield card("honest data set card: with LICENSE", "keep", "license: mit", **files)


def _foreign(texts: Texts) -> Iterator[Row]:
    for name, text in FOREIGN.items():
        right = "either" if name == "name alone" else "drop"
        yield _under(f"foreign license: {name}", right, text)
    mit = titled(texts.mit, "MIT License")
    yield _under("foreign license: Commons Clause over MIT", "drop", f"Commons Clause 1.0\n\n{mit}")
    yield _under(
        "foreign license: RAIL beside MIT", "drop", mit, **{"LICENSE-MODEL": FOREIGN["RAIL"]}
    )
    yield _under(
        "foreign license: MIT after a date",
        "drop",
        f"After 2030-01-01 the MIT License holds:\n\n{mit}",
    )
