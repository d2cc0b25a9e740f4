"""Claims: what names a license without granting it. They are compared, and can only take away.

Package metadata, a tag in a string, ``__license__`` and a sentence that names a license are claims.
One that names what the license texts grant changes nothing. One that names more applies as well;
one that cannot be read makes the license unknown.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from curate.licenses.detect import place
from curate.licenses.policy import (
    UnknownLicense,
    conjoin,
    evaluate,
    license_ids,
    make_policy,
    normalize,
)
from curate.licenses.text.languages import fold
from curate.licenses.text.names import TERMS
from curate.licenses.text.terms import Care, names_license, speaks

_BSD = "BSD-3-Clause OR BSD-2-Clause OR 0BSD"
_ALIASES = {
    "mit": "MIT",
    "expat": "MIT",
    "mit expat": "MIT",
    "mit 0": "MIT-0",
    "apache": "Apache-2.0",
    "apache 2": "Apache-2.0",
    "apache 2 0": "Apache-2.0",
    "apache2": "Apache-2.0",
    "apache2 0": "Apache-2.0",
    "asl 2": "Apache-2.0",
    "asl 2 0": "Apache-2.0",
    "al2": "Apache-2.0",
    "bsd": _BSD,
    "0 clause bsd": "0BSD",
    "bsd 2 clause": "BSD-2-Clause",
    "2 clause bsd": "BSD-2-Clause",
    "simplified bsd": "BSD-2-Clause",
    "freebsd": "BSD-2-Clause",
    "bsd 2": "BSD-2-Clause",
    "bsd 3 clause": "BSD-3-Clause",
    "bsd 3": "BSD-3-Clause",
    "3 clause bsd": "BSD-3-Clause",
    "new bsd": "BSD-3-Clause",
    "modified bsd": "BSD-3-Clause",
    "revised bsd": "BSD-3-Clause",
    "new revised bsd": "BSD-3-Clause",
    "apache 2 0 with llvm exceptions": "Apache-2.0 WITH LLVM-exception",
    "apache 2 0 with llvm exception": "Apache-2.0 WITH LLVM-exception",
    "bsd style": _BSD,
    "mit style": "MIT",
    "isc": "ISC",
    "iscl": "ISC",
    "zlib": "Zlib",
    "zlib libpng": "Zlib",
    "boost": "BSL-1.0",
    "boost 1 0": "BSL-1.0",
    "unlicense": "Unlicense",
    "cc0": "CC0-1.0",
    "cc0 1 0": "CC0-1.0",
    "cc0 1 0 universal": "CC0-1.0",
    "psf": "PSF-2.0 OR Python-2.0 OR Python-2.0.1",
    "python foundation": "PSF-2.0 OR Python-2.0 OR Python-2.0.1",
    "gplv2": "GPL-2.0-only",
    "gplv3": "GPL-3.0-only",
    "gpl 2": "GPL-2.0-only",
    "gpl 3": "GPL-3.0-only",
    "agplv3": "AGPL-3.0-only",
    "lgplv3": "LGPL-3.0-only",
}
_FILLING_WORDS = """
    the a license licence licenses licensed version v software open source opensource approved
    osi
"""
_FILLERS = frozenset(_FILLING_WORDS.split())
_PARTS = re.compile(r"(?i)\s*(?:[,;/&+|]|\band\b|\bor\b)\s*")
_SAYS_NOTHING = re.compile(
    r"(?i)\W*(?:|unknown|none|n/?a|(?:file:? *|please )?(?:see |in )*(?:the"
    r" )?(?:\.?/?)(?:un)?(?:licen[cs]e|copying)s?"
    r"(?:\.(?:txt|md|rst))?(?: file| for details)*)\W*"
)


@dataclass(frozen=True)
class Claim:
    """What names a license without granting it.

    Attributes:
        text: as it stands.
        path: file where it stands.
        expression: SPDX; None where it could not be read.
    """

    text: str
    path: str
    expression: str | None

    def agrees(self, granted: str) -> bool:
        """Return whether the claim asks for no more than ``granted``, which may be an AND."""
        return self.expression is not None and bool(
            evaluate(self.expression, make_policy(license_ids(granted))).allowed
        )


def read_claim(text: str, path: str) -> Claim | None:
    """Return the claim that free text makes; None where it says nothing ("see LICENSE")."""
    value = " ".join(text.split())
    if _SAYS_NOTHING.fullmatch(value):
        return None
    return Claim(value, path, _expression(text))


def _expression(text: str) -> str | None:
    value = " ".join(text.split())
    for reading in (_spdx, named_license, _several):
        expression = reading(value)
        if expression is not None:
            return expression
    placed = place(text)
    return placed.expression if placed.whole and placed.grants else None


_SPDX_PAGE = re.compile(
    r"https?://(?:www\.)?(?:(?:spdx|opensource)\.org/licenses?|choosealicense\.com/licenses"
    r"|apache\.org/licenses(?=/LICENSE-2))/(?:LICENSE(?=-2))?([\w.+-]+?)(?:\.html|\.json|\.txt|\.php)?/?"
)


def _spdx(value: str) -> str | None:
    page = _SPDX_PAGE.fullmatch(value)
    value = page[1].replace("-license", "") if page else value
    value = "Apache-2.0" if page and value == "-2.0" else value
    try:
        return normalize(value)
    except UnknownLicense:
        return None


def named_license(value: str) -> str | None:
    """Return the SPDX id of a license by one of its usual names, such as "Apache 2"."""
    plain = re.sub(r"\bv(?=\d)", "", fold(value))
    words = [word for word in re.findall(r"[^\W_]+", plain) if word not in _FILLERS]
    half = len(words) // 2
    if words[:half] == words[half:]:  # "MIT License (MIT)"
        words = words[:half]
    return _ALIASES.get(" ".join(words))


def _several(value: str) -> str | None:
    """Return the AND of a list of names, such as "MIT/Apache-2.0"."""
    parts = _PARTS.split(value)
    found = [_spdx(part) or named_license(part) for part in parts]
    return conjoin(*map(str, found)) if len(parts) > 1 and all(found) else None


# Prose


_LICENSED_AS = re.compile(
    r"(?:the )?(?:original )?(?:apache(?: software)?(?:,? licen[cs]e)?,?[- ]?(?:version ?|v\.?"
    r" ?)?2(?:\.0)?(?: licen[cs]e)?(?: with llvm exceptions?)?|apache licen[cs]e"
    r"|(?:mit|expat)(?:/expat|[- ]style)?(?:[- ]licen[cs]e[ds]?)?"
    r"|(?:new |modified |revised |simplified )?bsd[-"
    r" ][023](?:[- ]clause)?(?:[- ]licen[cs]e[ds]?)?"
    r"|[023][- ]clause bsd(?: licen[cs]ed?)?|(?:new |modified |revised |simplified )?bsd(?:[-"
    r" ]style)?(?:[- ]licen[cs]e[ds]?)?|isc licen[cs]e|zlib licen[cs]e"
    r"|boost(?: software)? licen[cs]e(?: 1\.0)?|(?:the )?unlicense|cc0(?:[- ]1\.0)?(?:"
    r" universal)?)\b"
)
_PHRASES = re.compile(
    r"https?://\S+|\bwww\.\S+"
    r"|\ball rights reserved\b|\b(?:(?:can|may|could) be (?:found|read|seen|obtained)"
    r"|refer to|according to|licensed to you"
    r"|unless (?:otherwise )?(?:stated|noted|specified|indicated|mentioned)(?: otherwise)?"
    r"|available to you(?= under)|(?:covers|applies to) (?:all|the|every)"
    r"|(?:at )?your (?:choice|option)"
    r"|(?:is|are) pleased to \w+.{0,80}?available|re-?distributed (?:here )?(?=under)"
    r"|(?:this \w+ )?may be used and distributed (?:according to|in accordance with) the terms of"
    r"|you may use this (?:file|code|software|work) (?=under the terms)"
    r"|to view a copy of (?:this|the) licen[cs]e,? (?:see|visit)"
    r"|you (?:may|can) (?:obtain|find|get) a copy of (?:this|the) licen[cs]e (?:in|at)"
    r"|(?:the|of) [\w.-]+ (?=(?:library|project|package|repository|repo|framework|toolkit"
    r"|authors)\b)"
    r"|(?:name|version|home-?page|url|author): \S+"
    r"|free (?:and|&|/) open[- ]source(?: software)?|free software|\bfoss\b"
    r"|subject to (?:the )?(?:terms|conditions|licen[cs]e)|with(?:out)? modifications?"
    r"|for (?:the )?(?:more |further |full |complete |licen[cs]e |licensing )*"
    r"(?:details?|information|terms|conditions|texts?|licen[cs]e|licensing|copyright)"
    r"(?: and (?:terms|details|copyright|information))?"
    r"|(?:you )?may not use this (?:file|software|code) except in compliance with the licen[cs]e"
    r"|(?:un)?licen[cs]es?\.(?:txt|md|rst)|copying\.(?:txt|md)|notice\.(?:txt|md)|readme\.\w+)"
)
"""Phrases that only point somewhere, one of whose words would say more elsewhere."""
_POINTING_WORDS = """
    both either dual portions derived adapted vendored upstream above following retained
    described distribution attribution a all also an and are as at attached author authors
    available base be because been below beside bsd-style by c clause code comes complete
    contained copy copying copyright covered details directory distributed docs documentation
    file files folder found from full given governed had has here herein in included including
    information into is it its kind library licence licences licenced licencing license licensed
    licenses licensing located made main mentioned module more notice of on open-source
    opensource or original our package parent part please program project project's provided
    published read readme release released repo repository repository's root same script see
    software source spdx spdx-license-identifier style subject system term terms text that the
    their these this top top-level tree under underlying use used using version was we were
    where which with within work accompanying conditions applies apply applicable header headers
    identical identifier info shared bundled reference referenced respective open repositories
    texts originally publicly
"""
_POINTING = frozenset(_POINTING_WORDS.split())
"""Words that a sentence which merely names a license or points to one is made of."""
_BINDING_WORDS = """
    to for if when while after before until within against between but
"""
_BOUNDS = frozenset(_BINDING_WORDS.split())
"""Small words that bind a permission to somebody or something; no part of a name here."""
_BOUNDS_IN = re.compile(rf"\b(?:{'|'.join(_BINDING_WORDS.split())})\b|{TERMS.pattern[4:]}")
_SUBJECT = re.compile(
    r"([^.;:]{0,120}?)\b(?:is |are )?(?:re)?(?:leased|licen[cs]ed|distributed|available|provided"
    r"|published) under\b"
)
_POINTERS = re.compile(
    r"\bunder (?:the )?(?:same )?(?:terms|conditions)(?: and conditions)? (?:of|as)\b"
    r"|\b(?:un)?licen[cs]\w*"
    r"|\bcopy(?:right|ing)\w*|\bterms(?: and conditions)?|\bconditions|\bgoverned by\b|\bnotices?\b"
)
_NUMBER = re.compile(r"[\d.]+")
_OF_A_LICENSE = re.compile(
    r"(?<![\w.'-])([\w.'-]+)\s+(?:public |software |community )*licen[cs]e\b(?![.:])"
)
_UNDER = re.compile(r"\bunder (?:the |an? |its |their )?([\w.'-]+)")
_ORIGIN = re.compile(
    r"\b(?:adapt|adopt|based|borrow|cop(?:y|ied)|deriv|fork|from|implementation|inspired|modif|origin"
    r"|port(?:ed)?\b|reimplement|simplif|taken|thanks|courtesy|by)\w*"
)
_SENTENCE = re.compile(r"(?<=[.;!?])\s+(?=\S)")
_ADDRESS = re.compile(r"(?:https?://|\bwww\.)[^\s<>()\[\]{}'\"`]+")
_LEGAL_ADDRESS = re.compile(
    r"(?i)licen[cs]|copying|copyleft|eula|terms|legal|creativecommons|bsl11"
)
_GRANTING = re.compile(r"(?i)apache|bsd|\bmit\b")
LICENSED_AT = re.compile(  # what stands before the address of what something is licensed under
    r"\b(?:licen[cs]\w*|terms|conditions|under)(?: (?:is|are|at|in|of|under|by|to|the|this|these"
    r"|see|found|here|text|file|agreement|version|available|from|as|per))*\W*$"
)
_FOR_ITS_LICENSE = re.compile(
    r"\W*(?:for|has|holds|contains)\b[^.]{0,40}\b(?:licen[cs]|terms|conditions)"
)
_ITSELF = re.compile(r"\b(?:this|the|our) (?:software|product|project|package|library|code|work)\b")


def named_in(
    paragraph: str,
    path: str,
    care: Care,
    names: frozenset[str] = frozenset(),
    credits: bool = False,
    beside: bool = False,
) -> list[Claim] | None:
    """Return the licenses that a paragraph merely names, as claims; None where it says more.

    "Adapted from flash-attention, BSD-3-Clause, see the LICENSE file" merely names one, and "See
    LICENSE" none. Every sentence that speaks of terms has to be made of words that point: what else
    may be said of terms is not listed, since no such list is ever complete.

    Args:
        paragraph: the text.
        path: where it stands.
        care: how little suffices there for a text to speak of terms.
        names: of the project that speaks, in small letters.
        credits: it stands where other people's parts are described, each under its license.
        beside: a license's own text stands beside it.
    """
    text = " ".join(paragraph.split())
    sentences = _SENTENCE.split(text)
    about = [one for one in sentences if speaks(one, care) or _LICENSED_AS.search(fold(one))]
    if not about or not all(_points(one, care, names, credits) for one in about):
        return None
    licenses = [found[0] for one in about for found in _LICENSED_AS.finditer(fold(one))]
    claims = [Claim(name, path, named_license(name)) for name in dict.fromkeys(licenses)]
    for one in about:
        if not (credits and licenses) and not (credits and _ITSELF.search(fold(one)) is None):
            claims += addressed_in(one, path, names, named=beside or bool(licenses))
    return None if any(claim.expression is None for claim in claims) else claims


def addressed_in(
    sentence: str, path: str, names: frozenset[str] = frozenset(), named: bool = False
) -> list[Claim]:
    """Return the licenses that a sentence about terms gives the address of, as claims.

    An address of the project's own, or of the text of a license that is named beside it, says
    nothing more.

    Args:
        sentence: the text.
        path: where it stands.
        names: of the project that speaks, in small letters.
        named: a license is named beside it.
    """
    claims: list[Claim] = []
    own = {re.sub(r"[\W_]", "", name) for name in names} - {""}
    for found in _ADDRESS.finditer(sentence):
        url = found[0].rstrip(".,;:")
        page = _spdx(url) if _SPDX_PAGE.fullmatch(url) else None
        asks = names_license(fold(url)) and not _GRANTING.search(url)
        if page is not None or asks:
            claims.append(Claim(url, path, page))
        elif not named and own.isdisjoint(re.sub(r"[\W_]", "", s).lower() for s in url.split("/")):
            before, after = fold(sentence[: found.start()]), fold(sentence[found.end() :])
            points = LICENSED_AT.search(before) or _FOR_ITS_LICENSE.match(after)
            if points or _LEGAL_ADDRESS.search(url):
                claims.append(Claim(url, path, None))
    return claims


def _points(sentence: str, care: Care, names: frozenset[str], credits: bool) -> bool:
    """Whether a sentence names licenses, points to them or says where code is from, and no more."""
    plain = fold(sentence)
    stern: Care = "head" if care == "head" else "edge"
    subject = _SUBJECT.match(plain)  # what is licensed, such as "Fast kernels, released under"
    if subject and not (_BOUNDS_IN.search(subject[1]) or speaks(subject[1], stern)):
        plain = plain[subject.end(1) :]
    rest = _PHRASES.sub(" ", _LICENSED_AS.sub(" ", plain))
    as_written = {fold(word): word for word in re.findall(r"[\w'./@-]+", sentence)}
    words = [word.strip("./'-") for word in re.findall(r"[\w'./@-]+", rest)]
    known = _POINTING | names
    strange = [word for word in words if word and word not in known and not _NUMBER.fullmatch(word)]
    others = " ".join(strange)
    if TERMS.search(others) or speaks(others, stern):
        return False
    if _named_unknown(rest, known) or speaks(_POINTERS.sub(" ", rest), "edge"):
        return False
    if credits and "://" in plain:  # what a part does is said there too, before its license
        behind = _PHRASES.sub(" ", _LICENSED_AS.split(plain)[-1])
        return _BOUNDS.isdisjoint(re.findall(r"\w+", behind))
    small = [word for word in strange if as_written.get(word, word).islower() and word.isalpha()]
    origin = _ORIGIN.search(rest)
    bound = not _BOUNDS.isdisjoint(strange)
    return not bound and len(small) <= (4 if origin else 0) and len(strange) <= 8


def _named_unknown(rest: str, known: frozenset[str]) -> bool:
    """Whether a sentence without its known licenses still names one: "the Acme License"."""
    before = [found[1] for found in _OF_A_LICENSE.finditer(rest)]
    under = [found[1] for found in _UNDER.finditer(rest)]
    return any(word not in known for word in (*before, *under))
