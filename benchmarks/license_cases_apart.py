"""License cases that are kept apart: situation, files, what is right, where to look.

They are of the classes of license_cases_open.py with other words, names, files and licenses. Who
works on the step reads the counts that license_attacks.py prints for them, and never this file:
else they no longer tell whether a cause was mended, or a case.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from license_cases import CODE, CUDA, GPL
from license_texts import Texts, commented, edit, titled, wrapped

Row = tuple[Any, ...]

LGPL = GPL.replace("General Public", "Lesser General Public").replace("version 3", "version 2.1")

# License, words, words in their place.
ROOMS = [
    (
        "mit",
        "of this software and",
        "of this software by way of a printed catalogue of Delta Corp and",
    ),
    ("mit", "of this software and", "of this software in its unmodified form and"),
    ("mit", "documentation files", "documentation files (the kernels excluded)"),
    (
        "mit",
        "Permission is hereby granted",
        "Permission, which may be withdrawn, is hereby granted",
    ),
    ("mit", "to deal in the Software", "to deal privately in the Software"),
    ("mit", "modify, merge, publish", "merge, publish"),
    ("mit", "sublicense, and/or sell", "sublicense, and/or lend"),
    ("mit", "and to permit persons", "but not to permit persons"),
    ("mit", "copies of the Software, and", "copies of the Software (none of them in a cloud), and"),
    ("mit", "following conditions:", "following conditions, which Delta may change:"),
    ("mit", "shall be included in all", "and a receipt of Delta Corp shall be included in all"),
    ("mit", 'PROVIDED "AS IS"', 'PROVIDED TO CITIZENS OF THE UNION "AS IS"'),
    ("mit", "NO EVENT SHALL THE", "NO EVENT SHALL DELTA CORP, SOLE SELLER OF COPIES, OR THE"),
    ("bsd3", "Redistribution and use", "Redistribution and, for thirty days, use"),
    ("bsd3", "Redistribution and use in", "Private redistribution and use in"),
    ("bsd3", "binary forms, with", "binary forms, though not on servers, with"),
    ("bsd3", "following conditions are met:", "following conditions are met and a fee is paid:"),
    ("bsd3", "nor the names of its", "nor, in trade, this code nor the names of its"),
    ("bsd3", "promote products derived", "promote, or at all in, products derived"),
    ("bsd3", "endorse or promote", "run, endorse or promote"),
    ("bsd3", "PROVIDED BY THE COPYRIGHT HOLDERS", "PROVIDED BY DELTA CORP TO ITS SUBSCRIBERS"),
    (
        "bsd3",
        "SHALL THE COPYRIGHT HOLDER OR",
        "SHALL THE HOLDER, TO WHOM A SHARE OF SALES IS DUE, OR",
    ),
    ("bsd3", "without specific prior written permission", "and sales need written permission"),
    ("bsd2", "Redistribution and use", "Use"),
    ("bsd2", "with or without modification", "with or without small modification by its owner"),
    ("bsd2", "following conditions are", "following conditions, and those of the Delta EULA, are"),
    (
        "bsd2",
        "BY THE COPYRIGHT HOLDERS",
        "BY DELTA CORP, PENSIONERS FIRST AND RIVALS NEVER, HOLDERS",
    ),
    ("bsd2", "OWNER OR CONTRIBUTORS BE", "OWNER, FROM WHOM A SEAT IS BOUGHT, OR CONTRIBUTORS BE"),
    ("isc", "copy, modify, and distribute", "copy, and modify"),
    ("isc", "for any purpose", "for any peaceful purpose"),
    ("isc", "is hereby granted", "is hereby granted to subscribers"),
    ("isc", "in all copies", "in all copies, of which there may be ten"),
    ("isc", "AND THE AUTHOR DISCLAIMS", "TO HOBBYISTS AND THE AUTHOR DISCLAIMS"),
    ("zero_bsd", "with or without fee", "without fee"),
    ("zero_bsd", "and/or distribute", "but not to distribute"),
    ("mit_0", "obtaining a copy", "obtaining a copy in a shop of Delta Corp"),
    ("mit_0", "sublicense, and/or sell", "and/or sublicense"),
    ("zlib", "for any purpose", "for any purpose but gambling"),
    ("zlib", "3. This notice", "3. Sales are reported to the authors.\n  4. This notice"),
    ("zlib", "alter it and redistribute", "redistribute"),
    ("boost", "obtaining a copy", "obtaining for a fee a copy"),
    ("boost", "reproduce, display, distribute", "reproduce, display"),
    ("apache", "sublicense, and distribute the", "and, within the Union, distribute the"),
    (
        "apache",
        "END OF TERMS AND CONDITIONS",
        "10. Clouds. Hosting is reserved.\n\n   END OF TERMS",
    ),
    ("mit", "this software and", "this software as a visitor of our fair and"),
    ("mit", "copy of this", "copy (lent, not owned) of this"),
    ("mit", "and/or sell copies", "and/or give away copies"),
    ("bsd3", "HOLDERS AND CONTRIBUTORS", "HOLDERS TO CLASSROOMS AND CONTRIBUTORS"),
    ("bsd3", "contributors may be", "contributors, nor a rival of ours as its user, may be"),
    ("bsd2", "SHALL THE COPYRIGHT OWNER", "SHALL DELTA, LENDER TO CLASSROOMS, THE OWNER"),
    ("isc", "SHALL THE AUTHOR BE", "SHALL DELTA, LENDER TO MUSEUMS, BE"),
    ("mit_0", "this software and", "this software on loan for the term of a lease and"),
]
ROOMS_EITHER = [
    ("mit", "and associated documentation files", ""),
    ("mit", "NONINFRINGEMENT", "NON-INFRINGEMENT"),
    ("isc", "for any purpose with or without fee", "for any purpose, with or without fee,"),
]
HEADER_ROOMS = [
    ("apache_header", "may not use this file", "may not use this file on a phone"),
    ("apache_header", "express or implied.", "express or implied, nor resale."),
    ("bsd2", "BY THE COPYRIGHT HOLDERS", "BY DELTA CORP TO ONE SCHOOL PER TOWN, BY HOLDERS"),
    ("mit", "of this software and", "of this software without a price tag or buyer and"),
    ("mit", "distribute, sublicense, and/or sell", "and/or distribute"),
]
HOLDERS = {
    "university": "Copyright (c) 2013, The Trustees of Princeton University. All rights reserved.",
    "affiliates": "Copyright 2021 Quux GmbH & Co. KG, its subsidiaries and affiliates",
    "project": "Copyright (c) 2012-2025 The SciPy project developers and the numba team",
    "address": "Copyright (C) 2014 Bob Roe, bob@roe.example, http://roe.example/~bob/",
    "several": (
        "Copyright 2009 Sun Microsystems, Inc.\n(C) 2011-2016 Oracle and/or its affiliates.\n"
        "Copyright (c) 2019 by Eve Poe"
    ),
    "long list": (
        "Copyright (c) 2010 Li Wei, Wang Fang, Zhang Min, Sato Yuki, Kim Min-jun,\n"
        "                   Nguyen Van An, Olga Petrova, José Núñez, and others"
    ),
    "see file": "Copyright (c) 2016 by the contributors listed in CONTRIBUTORS.md",
    "nick name": "Copyright (c) 2022 kernel_wizard42",
    "names of the field": "Copyright (c) 2018 Commercial Vehicles Research Centre, Academic Press",
    "no year": "Copyright (c) Delta Robotics, Inc.",
    "range and dash": ("Copyright © 2015–present Delta Robotics S.p.A. All Rights Reserved"),  # noqa: RUF001
    "unfilled": "Copyright (c) [year] [fullname]",
}
DELTA = "Copyright (c) 2022 Delta Robotics."
HEADERS: list[tuple[str, str, str]] = [
    (
        "Microsoft Research",
        "mit",
        (
            "------------------------------------------\nCopyright (c) Microsoft. All rights"
            " reserved.\nLicensed under the MIT license. See LICENSE file in the project root for"
            " full license information.\n------------------------------------------"
        ),
    ),
    (
        "Microsoft, onnx",
        "mit",
        "Copyright (c) Microsoft Corporation.\nLicensed under the MIT license.",
    ),
    (
        "Facebook, BSD and patents gone",
        "bsd3",
        (
            "Copyright (c) 2017-present, Facebook, Inc.\nAll rights reserved.\n\nThis source code"
            " is licensed under the BSD-style license found in the\nLICENSE file in the root"
            " directory of this source tree."
        ),
    ),
    (
        "Facebook, Apache",
        "apache",
        (
            "Copyright (c) Facebook, Inc. and its affiliates. All Rights Reserved.\n\nThis source"
            " code is licensed under the Apache License, Version 2.0\nfound in the LICENSE file in"
            " the root directory of this source tree."
        ),
    ),
    (
        "Go",
        "bsd3",
        (
            "Copyright 2009 The Go Authors. All rights reserved.\nUse of this source code is"
            " governed by a BSD-style\nlicense that can be found in the LICENSE file."
        ),
    ),
    (
        "Flutter-like, MIT",
        "mit",
        (
            "Copyright 2018 The Foo Authors. Use of this source code is governed by an"
            " MIT-style\nlicense that can be found in the LICENSE file or at"
            " https://opensource.org/licenses/MIT."
        ),
    ),
    (
        "Apple, ml",
        "any",
        "Copyright © 2023-2024 Apple Inc.\n\nSee LICENSE for license information.",
    ),
    (
        "Hugging Face",
        "apache",
        (
            "Copyright 2024 The HuggingFace Team. All rights reserved.\nSPDX-License-Identifier:"
            " Apache-2.0"
        ),
    ),
    (
        "NVIDIA, root",
        "bsd3",
        (
            "Copyright (c) 2021, NVIDIA CORPORATION & AFFILIATES. All rights reserved.\n\nSee"
            " LICENSE in the root of the software repository for license information."
        ),
    ),
    (
        "Intel",
        "bsd3",
        "Copyright (c) 2023 Intel Corporation\n\nSPDX-License-Identifier: BSD-3-Clause",
    ),
    (
        "AMD, ROCm",
        "mit",
        (
            "Modifications Copyright (C) 2025, Advanced Micro Devices, Inc.\nDistributed under the"
            " MIT license, see LICENSE."
        ),
    ),
    (
        "AWS",
        "apache",
        (
            "Copyright 2019 Amazon.com, Inc. or its affiliates.\nThis file is released under the"
            " Apache 2.0 license; a copy is in the LICENSE file."
        ),
    ),
    ("OpenAI, see", "mit", "Copyright 2021 OpenAI. MIT License. See the LICENSE file."),
    (
        "DeepMind",
        "apache",
        (
            "Copyright 2020 DeepMind Technologies Limited.\n\nLicensed under the Apache License,"
            " Version 2.0: see LICENSE in the root folder."
        ),
    ),
    (
        "Baidu",
        "apache",
        "Copyright (c) 2020 PaddlePaddle Authors. All Rights Reserved.\nLicensed under Apache-2.0.",
    ),
    (
        "ByteDance",
        "mit",
        "Copyright (c) 2024 Bytedance Ltd. and/or its affiliates\nLicense: MIT License",
    ),
    (
        "Tencent, BSD",
        "bsd3",
        (
            "Tencent is pleased to support the open source community by making this"
            " available.\nCopyright (C) 2017 THL A29 Limited, a Tencent company. All rights"
            " reserved.\nLicensed under the BSD 3-Clause License."
        ),
    ),
    (
        "university",
        "bsd3",
        (
            "Copyright (c) 2011, EPFL, Switzerland. All rights reserved.\nThis file is part of Bar"
            " and is released under the 3-clause BSD license."
        ),
    ),
    ("individual", "mit", "(c) 2019 Bob Roe <bob@roe.example>, MIT license"),
    ("two authors", "mit", "Authors: Eve Poe, Bob Roe\nLicense: MIT (see LICENSE.txt)"),
    (
        "terms of LICENSE",
        "any",
        f"{DELTA} Distributed under the terms described in the LICENSE file.",
    ),
    ("refer to", "any", "Please refer to the LICENSE file for the terms that apply."),
    ("license: see", "any", f"{DELTA}\nLicense: see LICENSE"),
    (
        "project name",
        "any",
        "This file is part of Bar.\nBar is open source; see the file LICENSE in its root.",
    ),
    (
        "reStructuredText",
        "bsd3",
        (
            "bar.kernels\n~~~~~~~~~~~\n\n:copyright: 2010 by the Bar Team, see AUTHORS.\n:license:"
            " BSD, see LICENSE for details."
        ),
    ),
]
INNOCENT = [
    "Talks to a proprietary compiler through its public interface.",
    "Free energy of a restricted Boltzmann machine with commercial loads.",
    "A toy language model, for illustration purposes only.",
    "Crops license plates and driving licenses.",
    "Not for use outside this module: helpers of the scheduler.",
    "Research code paths of the tuner; not used in production builds.",
    "Keeps a copy of the weights; copying is prohibited while the graph is captured.",
    "Prohibits gradients: no training happens under this context.",
    "Patent classification head, a linear layer over the abstract.",
    "Academic graph: papers, authors and who cites whom.",
    "Tokens are reserved for the user's agreement or refusal.",
]
CLAIMS = {
    "__init__": ("pkg/__init__.py", '"""Bar."""\n\n__license__ = "LGPL-2.1-only"\n'),
    "__version__": ("pkg/__version__.py", '__version__ = "2.0"\n__license__ = "AGPLv3+"\n'),
    "_about": ("pkg/_about.py", '__license__ = "Delta Corp Community License"\n'),
    "metadata": ("pkg/metadata.py", 'LICENSE = "CC BY-NC-ND 4.0"\n'),
    "list": ("pkg/__init__.py", '[__version__, __license__] = ["1", "GPL-3.0-only"]\n'),
    "chained": ("pkg/__init__.py", '__copyright__ = __license__ = "Proprietary. Delta Corp."\n'),
    "except": (
        "pkg/__init__.py",
        (
            "try:\n    import torch\nexcept ImportError:\n    torch = None\nfinally:\n"
            '    __license__ = "EUPL-1.2"\n'
        ),
    ),
    "else": ("pkg/__init__.py", 'if __debug__:\n    pass\nelse:\n    __license__ = "GPL-2.0"\n'),
    "annotated": ("pkg/__init__.py", 'from typing import Final\n__license__: Final = "MPL-2.0"\n'),
    "call": ("pkg/__about__.py", 'about = dict(title="bar", license="CC-BY-NC-4.0")\n'),
    "format": ("pkg/__init__.py", '__license__ = "{}-3.0-only".format("GPL")\n'),
    "docstring": (
        "pkg/__init__.py",
        '"""Bar: kernels of Delta Corp.\n\nUse by third parties is not permitted.\n"""\n',
    ),
    "comment": ("pkg/__about__.py", '# bar as a whole: GPL-3.0-only\n__version__ = "1"\n'),
    "sum": ("pkg/__init__.py", '__license__ = "AGPL" + "-3.0"\n'),
}
HONEST_CLAIMS = {
    "Apache": ("pkg/__about__.py", '__license__ = "Apache License 2.0"\n'),
    "id": ("pkg/__init__.py", '__license__: str = "Apache-2.0"\n'),
    "file": ("pkg/__init__.py", '__license__ = "LICENSE.txt"\n'),
    "chained": ("pkg/__init__.py", '__licence__ = __license__ = "Apache 2.0"\n'),
    "docstring": ("pkg/__init__.py", '"""Bar.\n\nLicensed under the Apache License 2.0.\n"""\n'),
    "list of known ones": ("pkg/ids.py", 'LICENSES = {"gpl": "GPL-3.0", "nc": "CC-BY-NC-4.0"}\n'),
    "example": ("examples/plugin/__init__.py", '__license__ = "Proprietary"\n'),
    "docstring on its subject": (
        "pkg/__init__.py",
        '"""Detects confidential text, and text that prohibits its own redistribution."""\n',
    ),
    "header": ("pkg/__init__.py", "# Copyright 2021 Delta Robotics. Apache License 2.0.\n"),
}
READMES = {
    "README.md": (
        "# bar\n\n## Terms\n\nUniversities may use bar. Firms need a contract with Delta.\n"
    ),
    "README.txt": "bar is not open source: you may read it, and nothing else.\n",
    "README": "bar\n===\nText and data mining of this repository is reserved by its authors.\n",
    "README.rst": ".. note:: bar is dual licensed: AGPL-3.0, or a paid license from Delta Corp.\n",
    "ReadMe.md": "# bar\n\nLicense: [CC BY-NC-SA 4.0](https://creativecommons.org)\n",
    "README.de.md": "# bar\n\nNur für private Zwecke. Gewerbliche Nutzung bedarf einer Lizenz.\n",
    "README.fr.rst": "bar\n---\n\nUtilisation réservée à l'enseignement et à la recherche.\n",
    "pkg/README": "What lies here is lent to us by Delta Corp and must not be passed on.\n",
    "README.adoc": "= bar\n\nProduction use is not allowed before a license key was bought.\n",
}
HONEST_READMES = {
    "badge": (
        "# bar\n\n[![Apache"
        " 2.0](https://img.shields.io/badge/license-Apache%202.0-blue)](LICENSE)\n"
    ),
    "line": "bar\n---\n\nLicense: Apache-2.0\n",
    "section": "## Licensing\n\nbar is distributed under the Apache License 2.0. See `LICENSE`.\n",
    "usage": "# bar\n\n```python\nimport bar\n```\nUse `bar.run` only with contiguous inputs.\n",
    "commercial": (
        "# bar\n\nYou can use bar in research and in commercial products, free of charge.\n"
    ),
    "paper": (
        "# bar\n\nPlease cite our paper when you use bar in academic work:\n\n```bibtex\n```\n"
    ),
    "thanks": "# bar\n\nThanks to the authors of xFormers (BSD) and CUTLASS (BSD-3-Clause).\n",
    "support": "# bar\n\nCommercial support is available from Delta Robotics.\n",
    "rules": "# bar\n\nBe kind. Spam in the issues is prohibited and not allowed in the chat.\n",
    "front matter": "---\ntitle: bar\nlicense: apache-2.0\n---\n# bar\n",
    "permissions": "# bar\n\nIf permission is denied, run with `--user`. Do not use sudo.\n",
    "quality": "# bar\n\nExperimental: not for production yet, interfaces may change.\n",
    "data": "# bar\n\nWe do not distribute the data; download it from its owners.\n",
    "hardware": "# bar\n\nOnly Hopper GPUs may use the `wgmma` path; others must not enable it.\n",
    "copyright": "bar\n\n(c) 2021-2024 Delta Robotics, released under Apache 2.0 (see LICENSE).\n",
    "news": (
        "## News\n\n* 2024-05: bar is free software now! It was proprietary until version 0.9.\n"
    ),
    "users": (
        "## Who uses bar\n\nUniversities, hospitals and companies, for academic and other work.\n"
    ),
    "French": "# bar\n\nNoyaux rapides. Licence : Apache 2.0.\n",
    "folder": "## Layout\n\n`pkg/` kernels, `LICENSE` terms of use, `NOTICE` credits\n",
}
EITHER_READMES = {
    "data": "# bar\n\nCode: Apache 2.0. The data in our paper: CC BY-NC-SA, ask its owners.\n",
    "dependency": "# bar\n\nNeeds cuDNN, which is proprietary software with terms of its own.\n",
}
LEGAL_FILES = {
    "LICENÇA.txt": "Uso comercial proibido.\n",
    "Lizenzbedingungen.md": "Weitergabe an Dritte ist nicht gestattet.\n",
    "licence-fr.txt": "Toute utilisation commerciale est interdite.\n",
    "licentie.txt": "Alleen voor niet-commercieel gebruik.\n",
    "licens.txt": "Endast för forskning.\n",
    "licencja.txt": "Tylko do użytku niekomercyjnego.\n",
    "라이선스.txt": "상업적 이용을 금지합니다.\n",
    "ライセンス.md": "研究目的に限ります。再配布禁止。\n",
    "授权.txt": "未经许可, 不得用于商业用途。\n",
    "lgpl-2.1.txt": LGPL,
    "GPL.md": GPL,
    "unlicensed.txt": "This is unlicensed, closed source.\n",
    "READ_THIS_FIRST.txt": "By opening this folder you agree to buy a seat.\n",
    "legal/terms-of-service.html": "<p>Use needs a subscription.</p>\n",
    "license/EN.txt": "Delta license: a trial of two weeks, then delete it.\n",
    "doc/copying.rst": "Copying\n=======\n\nNobody but Delta's staff may copy bar.\n",
    "LICENSE.pdf.txt": "Personal use only, no redistribution.\n",
    "pkg/license.yml": "spdx: CC-BY-NC-ND-4.0\n",
    "LICENSE.xml": "<license>Educational use only; no resale.</license>\n",
}
METADATA_FILES = {
    "pyproject file": {
        "pyproject.toml": '[project]\nlicense.file = "about/rights.rst"\n',
        "about/rights.rst": "All use is subject to a fee.\n",
    },
    "pyproject license-files": {
        "pyproject.toml": '[project]\nlicense-files = ["LICENSE", "about/**/*.md"]\n',
        "about/x/y.md": "The code may be read by members only.\n",
    },
    "setuptools": {
        "pyproject.toml": '[tool.setuptools]\nlicense-files = ["about/z"]\n',
        "about/z": "No redistribution.\n",
    },
    "setup.cfg license_file": {
        "setup.cfg": "[metadata]\nlicense_file = about/q.txt\n",
        "about/q.txt": "Evaluation copy. Expires.\n",
    },
    "setup.cfg file": {
        "setup.cfg": "[metadata]\nlicense = file: about/r.txt\n",
        "about/r.txt": "Use is restricted to Delta Corp.\n",
    },
    "setup.py variable": {
        "setup.py": "import setuptools\nTERMS = 'LGPL-2.1-only'\nsetuptools.setup(license=TERMS)\n"
    },
    "setup.py joined": {
        "setup.py": "from setuptools import setup\nsetup(license='GNU ' 'AGPL v3')\n"
    },
    "setup.py path": {
        "setup.py": (
            "from pathlib import Path\nfrom setuptools import setup\n"
            'setup(license=Path("about/s.txt").read_text())\n'
        ),
        "about/s.txt": "For customers of Delta Corp only.\n",
    },
    "setup.py dict": {
        "setup.py": (
            'from setuptools import setup\nM = {"name": "b", "license": "SSPL-1.0"}\nsetup(**M)\n'
        )
    },
    "Cargo inherits": {"Cargo.toml": '[workspace.package]\nlicense = "AGPL-3.0-only"\n'},
    "Cargo license-file": {
        "Cargo.toml": '[package]\nname = "b"\nlicense-file = "about/t"\n',
        "about/t": "Not for sale, not for use in firms.\n",
    },
    "poetry table": {"pyproject.toml": '[tool.poetry]\nlicense = {text = "CC-BY-NC-4.0"}\n'},
    "CITATION.cff": {
        "CITATION.cff": "cff-version: 1.2.0\nlicense-url: https://www.gnu.org/licenses/gpl\n"
    },
    "codemeta": {"codemeta.json": '{"license": {"@id": "https://spdx.org/licenses/GPL-3.0"}}\n'},
    "package.json": {
        "package.json": '{"license": "SEE LICENSE IN about/u"}\n',
        "about/u": "Paid.\n",
    },
}
HONEST_METADATA = {
    "pyproject file": {"pyproject.toml": '[project]\nlicense = {file = "./LICENSE"}\n'},
    "pyproject PEP 639": {
        "pyproject.toml": (
            '[project]\nlicense = "Apache-2.0"\nlicense-files = ["LICENSE*", "NOTICE*"]\n'
        )
    },
    "setup.py path": {
        "setup.py": (
            "from pathlib import Path\nfrom setuptools import setup\n"
            'setup(license=Path("LICENSE").read_text())\n'
        )
    },
    "setup.py keyword": {"setup.py": 'from setuptools import setup\nsetup(license="Apache 2.0")\n'},
    "setup.cfg": {
        "setup.cfg": "[metadata]\nlicense = Apache License 2.0\nlicense_file = LICENSE\n"
    },
    "Cargo": {"Cargo.toml": '[package]\nlicense = "MIT OR Apache-2.0"\n'},
    "Cargo license-file": {"Cargo.toml": '[package]\nlicense-file = "LICENSE"\n'},
    "package.json": {"package.json": '{"license": "SEE LICENSE IN LICENSE"}\n'},
    "CITATION.cff": {"CITATION.cff": "cff-version: 1.2.0\nlicense:\n  - Apache-2.0\n"},
    "flit": {"pyproject.toml": '[tool.flit.metadata]\nlicense = "Apache-2.0"\n'},
}
CARDS = {
    "other with a link": "license: other\nlicense_name: apache-2.0\nlicense_link: TERMS_OF_SALE.md",
    "gated prompt": (
        "license: apache-2.0\nextra_gated_prompt: >-\n  Access is for universities; firms"
        " write to sales@delta.example."
    ),
    "gated fields": (
        "license: mit\nextra_gated_fields:\n  I agree to use this for non-commercial use"
        " ONLY: checkbox"
    ),
    "link": (
        "license: apache-2.0\nlicense_link: https://huggingface.co/meta-llama/Llama-2-7b/LICENSE"
    ),
    "second key": "license: mit\nlicense: gpl-3.0",
    "list": "license: [apache-2.0, cc-by-nc-sa-4.0]",
    "openrail": "license: openrail",
    "unknown": "license: unknown",
    "name of its own": "license: other\nlicense_name: delta-community",
    "not YAML": "license: [mit",
}
HONEST_CARDS = {
    "bsd": "license: bsd-3-clause",
    "flow list": "license: [mit]",
    "capitals": "license: MIT",
    "link to its text": (
        "license: apache-2.0\nlicense_link: https://www.apache.org/licenses/LICENSE-2.0"
    ),
    "comment": "license: isc # as upstream",
    "other keys": "pretty_name: Academic kernels\nlicense: mit\nsize_categories:\n- n<1K",
}
FOREIGN = {
    "BUSL": (
        "License text copyright (c) 2020 MariaDB. Business Source License: Change License GPL.\n"
    ),
    "SSPL": "SSPL-1.0\n",
    "Confluent": "Confluent Community License: not for a competing online service.\n",
    "RAIL": "CreativeML Open RAIL++-M. You shall follow paragraph 5, use-based restrictions.\n",
    "Gemma": "Gemma Terms of Use. Use is subject to the prohibited use policy.\n",
    "CC BY-SA": "Creative Commons Attribution-ShareAlike 4.0 International\n",
    "CC BY-ND": "This work is licensed under CC BY-ND 4.0.\n",
    "FSL": "FSL-1.1-Apache-2.0\n\nCompeting use is not permitted for two years.\n",
    "PolyForm": "PolyForm Shield License 1.0.0. Noncompete.\n",
    "research": "Research-only license of Delta Corp. All else is reserved.\n",
    "Prosperity": "The Prosperity Public License 3.0.0: thirty days for firms.\n",
    "name alone": "Apache License 2.0\n",
}
PROSE = [
    "Kun for forskning. Videresalg er ikke tillatt.",
    "Csak kutatási célra, kereskedelmi felhasználása tilos.",
    "Pouze pro nekomerční použití.",
    "Doar pentru uz necomercial.",
    "Hanya untuk penggunaan non-komersial.",
    "ห้ามใช้ในเชิงพาณิชย์",
    "רק לשימוש לא מסחרי",
    "P R O P R I E T A R Y",
    "Use in com-\nmercial products is for-\nbidden.",
    "Only partners of the project hold rights to this; everybody else hands it back.",
    "Your right to use this lapses after one year.",
    "Keep crawlers and language models away from this file.",
    "User-agent: CCBot\nDisallow: /",
    "Whoever uses this swears to harm no animal.",
    "Pr0prietary c0de of Delta.",
    "This was shown to you in confidence.",
    "\u0420roprietary; ask Delta.",
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
    holder = "Copyright (c) 2021 Delta Robotics, Inc."
    for right, rooms in (("drop", ROOMS), ("either", ROOMS_EITHER)):
        for number, (name, old, new) in enumerate(rooms):
            text = titled(edit(getattr(texts, name), old, new), "", holder)
            yield _under(f"room in a license text: {right} {number}", right, text)
    for number, (name, old, new) in enumerate(HEADER_ROOMS):
        text = titled(edit(getattr(texts, name), old, new), "", holder)
        python, cuda = commented(text) + CODE, f"/*\n{commented(text, ' * ')} */\n{CUDA}"
        yield f"room in a header: {number}", {"pkg/a.py": python}, "drop"
        files = {"pkg/k.cu": cuda, "LICENSE": titled(texts.mit, "MIT License")}
        yield f"room in a header: {number}, CUDA", files, "drop", "pkg/k.cu"
    bsd = texts.bsd3
    for place, text in {
        "under the holder": titled(bsd, holder=f"{holder}\nOffered to firms against payment."),
        "in the holder's line": titled(bsd, holder=f"{holder} Rented out, never given away."),
        "between title and holder": titled(
            texts.mit, "MIT License\n\nHobby edition, not for firms"
        ),
        "in a list": titled(edit(bsd, "3. Neither", "3. Profit is shared with us.\n\n4. Neither")),
        "at the end": titled(f"{bsd}\nThese rights end when Delta Robotics says so.\n"),
        "at the end, in capitals": titled(f"{texts.isc}\nNO COMMERCIAL EXPLOITATION.\n"),
        "in markdown": titled(f"{texts.mit}\n> **Note** Students only.\n", "# MIT License"),
        "in Italian": titled(f"{texts.mit}\nÈ vietata la vendita.\n"),
    }.items():
        yield _under(f"line added to a license text: {place}", "drop", text)
    cut = titled(bsd[: bsd.index("THIS SOFTWARE IS")], "BSD 3-Clause License")
    yield _under("line added to a license text: disclaimer taken away", "either", cut)


def _honest_texts(texts: Texts) -> Iterator[Row]:
    def honest(said: str, text: str, right: str = "keep") -> Row:
        return _under(f"honest license text: {said}", right, text)

    for name, holder in HOLDERS.items():
        yield honest(f"MIT, {name}", titled(texts.mit, "The MIT License (MIT)", holder))
        yield honest(f"BSD-2, {name}", titled(texts.bsd2, "BSD 2-Clause License", holder))
    regents = edit(texts.bsd3, "the copyright holder nor", "Delta Robotics, Inc. nor")
    regents = edit(regents, "THE COPYRIGHT HOLDER OR", "DELTA ROBOTICS, INC. OR")
    asterisks = edit(edit(edit(texts.bsd3, "1. ", "- "), "2. ", "- "), "3. ", "- ")
    roman = edit(edit(edit(texts.bsd3, "1. ", "(i) "), "2. ", "(ii) "), "3. ", "(iii) ")
    isc = titled(texts.isc, "ISC License", "Copyright (c) 2018, Bob Roe <bob@roe.example>")
    for said, text in {
        "holder named in the rooms": titled(regents, holder="Copyright 2021 Delta Robotics, Inc."),
        "dashes": titled(asterisks, "The BSD 3-Clause License"),
        "roman numbers": titled(roman, "The 3-Clause BSD License"),
        "ISC, CRLF": isc.replace("\n", "\r\n"),
        "ISC, author named": isc.replace("THE AUTHOR ", "BOB ROE "),
        "BSD-2, width 50": wrapped(titled(texts.bsd2, "BSD 2-Clause License"), 50),
        "ISC, a line per paragraph": wrapped(isc, 9999),
        "Apache, width 120": wrapped(texts.apache, 120),
        "markdown title": f"License\n=======\n\n**MIT**\n\n{titled(texts.mit)}",
        "markdown fence": f"# License\n\n```\n{titled(texts.mit, 'MIT License')}```\n",
        "curly quotes": titled(texts.bsd3).replace('"AS IS"', "“AS IS”"),
        "straight single quotes": titled(texts.mit).replace('"AS IS"', "'AS IS'"),
        "holder in the title": titled(texts.bsd3, holder="BSD License, Copyright 2020 Eve Poe"),
        "holder under the text": f"MIT License\n\n{texts.mit}\nCopyright (c) 2020 Eve Poe\n",
        "comment marks": commented(titled(texts.isc), " * "),
        "tabs": titled(texts.bsd3).replace("   ", "\t"),
        "title in capitals": titled(texts.mit, "THE MIT LICENSE"),
        "title with name": titled(texts.mit, "License for bar (MIT)"),
        "0BSD": titled(texts.zero_bsd, "Zero-Clause BSD\n==============="),
        "Zlib": titled(texts.zlib, "The zlib/libpng License (Zlib)"),
        "Boost, no title": texts.boost,
        "MIT-0": titled(texts.mit_0, "MIT-0"),
        "Apache, boxed notice": titled(texts.apache_header, "", "Copyright 2023 The Bar Authors"),
        "Apache, appendix cut": texts.apache[: texts.apache.index("APPENDIX")].rstrip() + "\n",
        "trailing spaces": titled(texts.mit).replace("\n", "  \n"),
    }.items():
        yield honest(said, text)
    both = f"{titled(texts.bsd2, 'BSD 2-Clause License')}\n\n{titled(texts.mit, 'MIT License')}"
    yield honest("two licenses in one file", both, "either")


def _around(texts: Texts) -> Iterator[Row]:
    base = {"pkg/a.py": CODE, "LICENSE": texts.apache}
    for name, (path, text) in CLAIMS.items():
        yield f"claim for the package: {name}", {**base, path: text}, "drop"
    said = "# bar, (c) Delta Corp, not to be redistributed\nfrom setuptools import setup\n"
    yield "claim for the package: setup.py's comment", {**base, "setup.py": said}, "drop"
    nested = {**base, "src/bar/__init__.py": '__license__ = "GPLv2+"\n', "src/bar/x/y/c.py": CODE}
    yield "claim for the package: under src", nested, "drop", "src/bar/x/y/c.py"
    for name, (path, text) in HONEST_CLAIMS.items():
        yield f"honest claim for the package: {name}", {**base, path: text}, "keep"
    for path, text in READMES.items():
        yield f"README with terms: {path}", {**base, path: text}, "drop"
    paid = "Files of this folder are for holders of an enterprise plan.\n"
    files = {"enterprise/k.py": CODE, "LICENSE": texts.apache, "enterprise/README.rst": paid}
    yield "README with terms: enterprise/README.rst", files, "drop", "enterprise/k.py"
    described = "Summary: bar\n\nbar is licensed for academic use only.\n"
    yield "README with terms: description in the metadata", base, "drop", "pkg/a.py", described
    for name, text in HONEST_READMES.items():
        yield f"honest README: {name}", {**base, "README.md": text}, "keep"
    described = "Summary: bar\n\nbar\n---\n\nApache 2.0, see LICENSE.\n"
    yield "honest README: description in the metadata", base, "keep", "pkg/a.py", described
    other = {**base, "enterprise/README.rst": paid}
    yield "honest README: of another folder", other, "keep"
    for name, text in EITHER_READMES.items():
        yield f"README on other things: {name}", {**base, "README.rst": text}, "either"
    for path, text in LEGAL_FILES.items():
        # A LICENSE alongside a folder license/ is refused as a clash of names, whatever they say.
        names = {name.replace("LICENSE", "LICENSE.md"): said for name, said in base.items()}
        files = {**(names if path.startswith("license/") else base), path: text}
        yield f"terms in a file of another name: {path}", files, "drop"
    for path, text in {
        "LICENSES/Apache-2.0.txt": texts.apache,
        "LICENSE-3rdparty.txt": f"baz\n---\n\n{titled(texts.mit, 'MIT License')}",
        "tests/fixtures/LICENSE": "Proprietary. For the test of the detector only.\n",
        "pkg/license_plates.txt": "M-XY 99\nHH-Z 1\n",
        "docs/copyright.md": "How to write a copyright line.\n",
        "docs/legal_moves.txt": "e2e4\n",
        "pkg/rights.txt": "left\nright\n",
        "licencia.txt": titled(texts.mit, "MIT License"),
        "LEEME.txt": "Núcleos para la GPU.\n",
        "cmake/gpl_test.txt": "set(TEST gpl)\n",
    }.items():
        yield f"honest file of such a name: {path}", {**base, path: text}, "keep"
    for name, files in METADATA_FILES.items():
        yield f"metadata that points or hides: {name}", {**base, **files}, "drop"
    for name, files in HONEST_METADATA.items():
        yield f"honest metadata: {name}", {**base, **files}, "keep"


def _headers(texts: Texts) -> Iterator[Row]:
    licenses = {
        "mit": titled(texts.mit, "MIT License"),
        "bsd3": titled(texts.bsd3, "BSD 3-Clause License"),
        "apache": texts.apache,
    }
    for number, (name, granted, header) in enumerate(HEADERS):
        body = f'"""\n{header}\n"""\n{CODE}' if ":license:" in header else commented(header) + CODE
        for other, text in licenses.items():
            files = {"pkg/a.py": body, "LICENSE": text}
            if granted in (other, "any"):
                yield f"honest company header: {name}, {other}", files, "keep"
            elif "licen" in header.lower() and "SPDX" not in header and number not in (2, 4, 8):
                yield f"header against LICENSE: {name}, {other}", files, "either"
    for number, other in ((3, "apache"), (4, "bsd3"), (0, "mit")):
        for mark, (begin, end) in {"// ": ("", ""), " * ": ("/**\n", " */\n")}.items():
            text = f"{begin}{commented(HEADERS[number][2], mark)}{end}{CUDA}"
            files = {"pkg/k.cu": text, "LICENSE": licenses[other]}
            yield f"honest company header: {number}, CUDA {mark}", files, "keep", "pkg/k.cu"
    for number, said in enumerate(
        (
            "This file is licensed under the LGPL; see the LICENSE file for details.",
            "Licensed under the MIT License to members, under a paid license to others.",
            (
                f"{DELTA}\nThis source code is licensed under the Delta license found in"
                " the\nLICENSE file in the root directory of this source tree."
            ),
            "Use of this source code is governed by the terms in the EULA.",
            "Released under the BSD license for evaluation. Production needs a key.",
            "Copyright (c) Delta. All rights reserved. Do not copy.",
            "MIT License, except that the kernels below may not be resold.",
            "Apache License 2.0 with the Commons Clause. See LICENSE.",
        )
    ):
        files = {"pkg/a.py": commented(said) + CODE, "LICENSE": licenses["mit"]}
        yield f"header that adds terms: {number}", files, "drop"
    isc, bsd = titled(texts.isc), titled(texts.bsd2)
    for said, text in {
        "twice commented ISC": commented(commented(isc), "## "),
        "twice commented BSD": commented(commented(bsd)),
        "twice commented in a class": f'class C:\n    """\n{commented(isc)}    """\n',
        "bytes": f'T = b"""\n{isc}"""\n',
        "list of strings": (
            "HEAD = [\n" + "".join(f"    {i!r},\n" for i in isc.splitlines()) + "]\n"
        ),
        "commented list": commented("".join(f"{i!r},\n" for i in isc.splitlines())),
        "argument": f'check(text="""\n{bsd}""")\n',
        "commented tag": '# T = "SPDX-License-Identifier: ISC"\n',
        "tag in a docstring of a function": 'def f():\n    """SPDX-License-Identifier: MIT"""\n',
        "tag of an example": "# Write for example:\n#     # SPDX-License-Identifier: Apache-2.0\n",
    }.items():
        yield f"grant that is none: {said}", {"pkg/a.py": text + CODE}, "drop"
    for said, path, text in (
        ("BSD", "pkg/a.py", commented(bsd) + CODE),
        ("Zlib in CUDA", "pkg/k.cu", f"/*\n{titled(texts.zlib)}*/\n{CUDA}"),
        ("MIT in CUDA", "pkg/k.cu", f"{commented(titled(texts.mit), '// ')}\n{CUDA}"),
        ("Apache", "pkg/a.py", commented(titled(texts.apache_header)) + CODE),
        ("tag after a holder", "pkg/a.py", f"# {DELTA}\n# SPDX-License-Identifier: ISC\n{CODE}"),
        ("under a shebang", "pkg/a.py", f"#!/usr/bin/env python3\n{commented(isc)}{CODE}"),
    ):
        yield f"honest header that grants: {said}", {path: text}, "keep", path
    for number, said in enumerate((f"Copied from Gimp. {GPL}", f"Based on Qt. {LGPL}")):
        text = f"{CODE}\n\n{commented(said)}def triple(x):\n    return 3 * x\n"
        files = {"pkg/a.py": text, "LICENSE": licenses["bsd3"]}
        yield f"header that adds terms: further down: {number}", files, "drop"
    for number, said in enumerate(INNOCENT):
        files = {"pkg/a.py": f'"""{said}"""\n{CODE}', "LICENSE": licenses["bsd3"]}
        yield f"honest words: {number}", files, "keep"
    for number, said in enumerate(PROSE):
        files = {"pkg/a.py": commented(said) + CODE, "LICENSE": licenses["bsd3"]}
        yield f"prose with terms: {number}", files, "drop"


def _links(texts: Texts) -> Iterator[Row]:
    bsd = titled(texts.bsd3, "BSD 3-Clause License")
    paid = "Against payment only.\n"

    def linked(said: str, right: str, links: dict[str, str], files: dict[str, str]) -> Row:
        return f"link: {said}", {"pkg/a.py": CODE, **files}, right, "pkg/a.py", "", links

    for said, right, links, files in (
        ("COPYING to a text", "keep", {"COPYING": "about/bsd.txt"}, {"about/bsd.txt": bsd}),
        ("LICENSE to COPYING", "keep", {"LICENSE": "COPYING"}, {"COPYING": bsd}),
        ("LICENSE.txt to terms", "drop", {"LICENSE.txt": "about/paid"}, {"about/paid": paid}),
        (
            "LICENCE alongside LICENSE",
            "drop",
            {"LICENCE": "about/paid"},
            {"LICENSE": bsd, "about/paid": paid},
        ),
        (
            "of the folder, by two steps",
            "drop",
            {"pkg/COPYING": "x", "pkg/x": "../p"},
            {"LICENSE": bsd, "p": paid},
        ),
        ("of the folder, to nowhere", "drop", {"pkg/LICENSE.md": "../gone.md"}, {"LICENSE": bsd}),
        ("out of the tree", "drop", {"COPYING.txt": "../../../etc/passwd"}, {"LICENSE": bsd}),
        ("in a circle", "drop", {"LICENSE": "COPYING", "COPYING": "LICENSE"}, {}),
        ("of the folder, to the root's", "keep", {"pkg/COPYING": "../LICENSE"}, {"LICENSE": bsd}),
        ("of a test's data", "keep", {"tests/data/x.bin": "/dev/null"}, {"LICENSE": bsd}),
    ):
        yield linked(said, right, links, files)


def _folders(texts: Texts) -> Iterator[Row]:
    bsd = titled(texts.bsd3, "BSD 3-Clause License")
    for folder in (
        "bower_components",
        "third_party_libs",
        "vendoring",
        "dist-packages",
        "git_modules",
        "_external",
    ):
        path = f"pkg/{folder}/qt/a.py"
        yield f"vendored folder: {folder}", {path: CODE, "LICENSE": bsd}, "drop", path
    path = "subprojects/baz/a.py"
    own = {path: CODE, "LICENSE": bsd, "subprojects/baz/COPYING": titled(texts.isc)}
    yield "honest folder: vendored, with a license of its own", own, "keep", path
    own = {**own, "subprojects/baz/COPYING": "Delta Corp, all rights reserved.\n"}
    yield "vendored folder: with terms of its own", own, "drop", path
    path = "pkg/vendor/baz/a.py"
    dist = {path: CODE, "LICENSE": bsd, "pkg/vendor/baz-2.dist-info/METADATA": "License: GPLv3\n"}
    yield "vendored folder: dist-info with the GPL", dist, "drop", path
    for folder in (
        "thirds",
        "depth",
        "externals_test_utils",
        "packages",
        "party",
        "node_modules_api",
    ):
        path = f"pkg/{folder}/a.py"
        right = "either" if folder.startswith("externals") else "keep"
        yield f"honest folder: {folder}", {path: CODE, "LICENSE": bsd}, right, path


def _cards(texts: Texts) -> Iterator[Row]:
    def card(said: str, right: str, head: str, body: str = "", own: str = "", **files: str) -> Row:
        card = f"---\n{head}\n---\n\n# Bar\n\n{body}"
        tree = {"data/train.parquet": own, "README.md": card, **files}
        return said, tree, right, "data/train.parquet"

    for name, head in CARDS.items():
        yield card(f"data set card: {name}", "drop", head)
    body = "## Licensing Information\n\nFree for students. Others must buy a license.\n"
    yield card("data set card: in the body", "drop", "license: apache-2.0", body)
    body = "## License\n\nCC BY-NC 4.0\n"
    yield card("data set card: another in the body", "drop", "license: mit", body)
    yield card("data set card: the row's own", "drop", "license: mit", own="CC-BY-NC-4.0")
    files = {"LICENSE": "Delta data terms: no commercial use.\n"}
    yield card("data set card: file", "drop", "license: mit", **files)
    for name, head in HONEST_CARDS.items():
        yield card(f"honest data set card: {name}", "keep", head)
    body = "## Licensing Information\n\nApache 2.0.\n\n## Citation\n\nPlease cite us.\n"
    yield card("honest data set card: in the body", "keep", "license: apache-2.0", body)
    body = "Rows come from commercial and academic projects, under permissive licenses only.\n"
    yield card("honest data set card: harmless words", "keep", "license: mit", body)
    yield card("honest data set card: the row's own", "keep", "license: mit", own="BSD-3-Clause")
    files = {"LICENSE": texts.apache}
    yield card("honest data set card: with LICENSE", "keep", "license: apache-2.0", **files)


def _foreign(texts: Texts) -> Iterator[Row]:
    for name, text in FOREIGN.items():
        right = "either" if name == "name alone" else "drop"
        yield _under(f"foreign license: {name}", right, text)
    bsd = titled(texts.bsd3, "BSD 3-Clause License")
    over = f"{bsd}\n\nCommons Clause License Condition v1.0: the right to sell is withheld.\n"
    yield _under("foreign license: Commons Clause under BSD", "drop", over)
    yield _under(
        "foreign license: Gemma beside BSD", "drop", bsd, **{"LICENSE.gemma": FOREIGN["Gemma"]}
    )
    later = f"FSL-1.1-MIT. Two years after release, what follows holds:\n\n{titled(texts.mit)}"
    yield _under("foreign license: MIT after two years", "drop", later)
