"""License texts for the tables of cases, taken out of installed packages, without title and holder.

They keep their line ends, because a case may edit a line; the holder and the title are the case's.
"""

from __future__ import annotations

import re
import textwrap
from importlib.metadata import files as files_of
from typing import NamedTuple


class Texts(NamedTuple):
    """License texts as their packages wrap them, from the first word of the grant on.

    Attributes:
        apache: the full text, with its appendix.
        apache_header: the notice of the appendix, from "Licensed under" on.
        mit_0: MIT without its condition.
    """

    mit: str
    mit_0: str
    bsd2: str
    bsd3: str
    isc: str
    zero_bsd: str
    zlib: str
    boost: str
    apache: str
    apache_header: str


def load_texts() -> Texts:
    """Read the texts of the packages that are installed for the tests."""
    mit = _text("pydantic", "Permission is hereby granted")
    apache = _text("datasets", "")
    condition = mit.index("The above copyright notice")
    notice = apache[apache.rindex("Licensed under the Apache") :]
    header = "\n".join(line.strip() for line in notice.strip().splitlines())
    return Texts(
        mit=mit,
        mit_0=mit[:condition].replace(", subject to the following conditions:", ".")
        + mit[mit.index("THE SOFTWARE IS") :],
        bsd2=_text("Pygments", "Redistribution and use"),
        bsd3=_text("licenseclassifier", "Redistribution and use"),
        isc=_text("shellingham", "Permission to use"),
        zero_bsd=_text("numpy", "Permission to use, copy", "Zero Clause"),
        zlib=_text("numpy", "This software is provided 'as-is'", "zlib License"),
        boost=_text("pandas", "Permission is hereby granted", "Boost Software License"),
        apache=apache,
        apache_header=header,
    )


def _text(package: str, begin: str, holding: str = "") -> str:
    """Return the first license text of a package that holds both, from ``begin`` on."""
    for file in files_of(package) or ():
        if not file.name.upper().startswith(("LICEN", "COPYING")) or file.suffix == ".py":
            continue
        text = file.read_text("utf-8")
        if begin in text and holding in text:
            return text[text.index(begin) if begin else 0 :].rstrip() + "\n"
    raise LookupError(f"{package}: no license text with {begin!r}; install it")


def titled(text: str, title: str = "", holder: str = "Copyright (c) 2024 Ada Lovelace") -> str:
    """Return a license as it stands in a file: title, holder, text."""
    return "\n\n".join(part for part in (title, holder, text) if part)


def edit(text: str, old: str, new: str) -> str:
    """Return the text with words replaced once, wherever its lines end within them.

    Raises:
        ValueError: the text does not hold the words, so that the case would be another one.
    """
    found = re.search(r"\s+".join(map(re.escape, old.split())), text)
    if found is None:
        raise ValueError(f"no {old!r} in {text[:60]!r}")
    broken = "\n" in found[0]
    words = new.rsplit(" ", 1) if broken else [new]
    return text[: found.start()] + "\n".join(words) + text[found.end() :]


def wrapped(text: str, width: int) -> str:
    """Return the paragraphs of a text, wrapped to another width."""
    paragraphs = re.split(r"\n[ \t]*\n", text)
    return "\n\n".join(textwrap.fill(" ".join(part.split()), width) for part in paragraphs) + "\n"


def commented(text: str, mark: str = "# ") -> str:
    """Return the text as a comment."""
    return "".join(f"{mark}{line}".rstrip() + "\n" for line in text.strip("\n").split("\n"))
