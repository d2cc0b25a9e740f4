"""What a README says of its project's license: front matter, its section on licenses, restrictions.

A README grants nothing, and most of it is about other things: its data, its rivals, how to cite it.
So what it says counts where it speaks of the project: in a section on licenses every sentence about
terms, elsewhere a sentence that licenses or restricts the project itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import yaml

from curate.licenses.claims import LICENSED_AT, Claim, addressed_in, named_in, read_claim
from curate.licenses.detect import place
from curate.licenses.text.bargain import keeps_rights, terms_at
from curate.licenses.text.languages import fold, is_foreign, is_unreadable
from curate.licenses.text.terms import Care, names_license, speaks

_FENCED = re.compile(r"(?ms)^[ \t]*(```|~~~).*?(?:^[ \t]*\1|\Z)")
_HTML = re.compile(r"(?s)<!--|-->|<[^<>]{1,400}>")
_IMAGE = re.compile(
    r"!\[[^\]]*\]\([^)]*\)|^[ \t]*\.\. image::.*$(?:\n[ \t]+:.*$)*|^[ \t]*\.\. \|.*$", re.M
)
_LINK = re.compile(r"\[([^\[\]]*)\]\([^()\s]*\)|`([^`<]*) <[^>]*>`__?")
_ADDRESSED = re.compile(r"\[([^\[\]]*)\]\((https?://[^()\s]*)\)")
_NEAR = 200  # characters before a link in which its sentence begins
_MARKUP = re.compile(r"(?<!\w)[*_]{1,3}|[*_]{1,3}(?!\w)|[`|>]")
_HEADING = re.compile(
    r"^[ \t]*#{1,6}[ \t]*(?P<atx>.+?)[ \t#]*$|^(?P<over>\S[^\n]*)\n[=\-~^*\"'+]{3,}[ \t]*$", re.M
)
_LICENSE_HEADING = re.compile(
    r"(?i)\b(?:licen[cs]\w*|copyright|legal|terms|rights|usage policy|permissions?|disclaimers?"
    r"|lizenz\w*|licencia|licenza|licença)\b|许可|授权|版权|ライセンス|라이선스|лиценз"
)
_SENTENCE = re.compile(r"(?<=[.;!?。])\s+(?=\S)|\s[-*+•]\s+(?=\S)")
_GRANTS = re.compile(
    r"\blicen[cs](?:ed?|ing) ?(?:under|to|:|is|=)|\bunder (?:the "
    r"|an? )?(?:terms of )?[^.]{0,60}\blicen[cs]e"
    r"|\bdual[- ]licen[cs]|\brelicens|\bgoverned by\b[^.]{0,60}\blicen[cs]"
    r"|\bno longer (?:mit|apache|bsd)\b"
    r"|\b(?:moved|switched|changed) to (?:the |an? )?(?:gnu|[al]?gpl|bsl|bu?sl|mpl|sspl)\b"
    r"|\b(?:released|distributed|published|available|provided) under\b"
)
# The word for a license in other languages: "许可证: MIT" names one and says no more.
_LICENSE_WORD = re.compile(
    r"(?i)许可(?:证|協議|协议)?|授权协议|ライセンス|라이선스|лицензи[яи]|lizenz|licen[czç](?:ia|e|a)\b"
)
_BADGE = re.compile(r"(?i)badge/licen[cs]e[-:_]+([^)\s]+?)-[a-z0-9]+(?:\.svg)?(?=[)?\s])")
_BADGE_TEXT = re.compile(r"(?i)!\[licen[cs]e\s*[:\-]\s*([^\]]+)\]")
_URL = re.compile(r"https?://[^\s<>()\[\]{}'\"`]+")
# A link or a reference whose words speak of the license: "[license]: https://…".
_LICENSE_LINK = re.compile(
    r"(?i)(?:\blicen[cs]ed?\b[^\n\]]{0,30}\](?:\(|:\s*)|\blicen[cs]e (?:is|can be found"
    r"|text)? ?\[[^\]]*\]\()"
    r"(https?://[^\s<>()\[\]]+)"
)
_TERMS_PAGE = re.compile(r"(?i)terms|eula|agreement|licen[cs]|legal|copying|creativecommons|bsl1")
_KNOWN_PAGE = re.compile(
    r"(?i)opensource\.org|spdx\.org|apache\.org|choosealicense|mit-license|creativecommons|shields\.io|badge"
    r"|git(?:hub|lab)|bitbucket|readthedocs"
)
# What is done to the project, whatever else the sentence names: "training of models on this code".
_ON_IT = re.compile(
    r"\b(?:train|fine-?tun|min|scrap|crawl|harvest|ingest)\w*\b(?:\W+\w+){0,5}?"
    r"\W+(?:of|on|with|from) (?:this|our|the|these) "
    r"(?:project|code|software|repo|package"
    r"|work|files)"
)
_FEW = 5  # words that a sentence has that names a license and nothing else
# What a README may say of other things than its project.
_OTHERS = re.compile(
    r"\b(?:data(?:sets?)?|weights?|checkpoints?|pre-?trained|corpus|corpora|benchmarks?|images?|logos?"
    r"|figures?|models?|fonts?|assets|documentation|docs|third[- ]party|dependenc\w+"
    r"|bundled|vendored"
    r"|other (?:projects?|packages?|libraries)|contributions?|contributors?|contributing"
    r"|pull requests?|trademarks?|these files|optional|some (?:files|parts)|other content"
    r"|certain (?:files|components)|imagenet(?:-\w+)? (?:is|was|has))\b"
)
# What it says of them and of itself in one breath: "the models and the code are …".
_ITSELF = re.compile(r"\b(?:code|software|librar(?:y|ies))\b")


def readme_claims(text: str, path: str, own_names: frozenset[str] = frozenset()) -> list[Claim]:
    """Return what a README claims of its project's license.

    Args:
        text: Markdown, reStructuredText or plain.
        path: where it stands.
        own_names: what the project is called, in small letters.
    """
    front = front_matter(text)
    found = list(card_claims(front[0], path)) if front else []
    body = front[1] if front else text
    sections = list(_sections(_plain(body)))
    names = frozenset(word for heading, _ in sections[:2] for word in fold(heading).split())
    found += _badges(body, path, names | own_names)
    for heading, block in sections:
        said = _LICENSE_HEADING.search(heading) is not None
        placed = place(f"{heading}\n\n{block}")
        if placed.grants and placed.expression:
            found.append(Claim(placed.found, path, placed.expression))
        found += [Claim(f"{one.id}, but {one.differs}", path, None) for one in placed.edited]
        for sentence in [one for left in placed.leftovers for one in _sentences(left)]:
            if _is_about_it(sentence, said):
                care: Care = "head" if said else "edge"
                worded = _LICENSE_WORD.sub("license", sentence)
                named = named_in(worded, path, care, names | own_names)
                found += [Claim(sentence, path, None)] if named is None else named
    return list(dict.fromkeys(found))


def _badges(text: str, path: str, own_names: frozenset[str]) -> Iterator[Claim]:
    """Yield the licenses of badges, and those that a section on licenses has the address of."""
    values = [unquote(found[1]).replace("--", "-") for found in _BADGE.finditer(text)]
    values += [found[1] for found in _BADGE_TEXT.finditer(text)]
    for value in values:
        claim = read_claim(value.replace("_", " "), path)
        if claim is not None and (claim.expression or names_license(fold(value))):
            yield claim
    for heading, block in _sections(text):
        for url in _URL.findall(block) if _LICENSE_HEADING.search(heading) else ():
            placed = place(url)
            if placed.expression:
                yield Claim(url, path, placed.expression)
            elif _TERMS_PAGE.search(url) and not _KNOWN_PAGE.search(url):
                yield Claim(url, path, None)
    words = _IMAGE.sub("", text)
    for link in _ADDRESSED.finditer(words):
        before = _SENTENCE.split(words[max(0, link.start() - _NEAR) : link.start()])[-1]
        said = fold(f"{before}{link[1]} ")
        licensed = _GRANTS.search(said) and LICENSED_AT.search(said) and not _is_of_others(said)
        if licensed or not link[1].strip():
            yield from addressed_in(f"{said}{link[2]}", path, own_names, named=not licensed)
    for found in _LICENSE_LINK.finditer(text):
        placed = place(found[1])
        if placed.expression:
            yield Claim(found[1], path, placed.expression)


def _sentences(paragraph: str) -> list[str]:
    """Return the sentences of a paragraph; one in another language is read as a whole."""
    return [paragraph] if is_foreign(fold(paragraph)) else _SENTENCE.split(paragraph)


def _is_about_it(sentence: str, said: bool) -> bool:
    """Whether a sentence speaks of the project's own terms; in a section on licenses, most do."""
    plain = fold(sentence)
    granted = _GRANTS.search(plain)
    if said and speaks(sentence, "head"):
        return not _is_of_others(plain[: granted.start()] if granted else plain)
    at = terms_at(plain)
    if at is None and names_license(plain) and len(plain.split()) <= _FEW:
        at = 0
    if at is None and speaks(plain, "code"):
        kept = granted or keeps_rights(plain)
        at = kept.start() if kept else None
    if at is None:
        return is_unreadable(sentence, plain, in_code=True, in_comment=False)
    if _ON_IT.search(plain):
        return True
    return not _is_of_others(plain[:at])


def _is_of_others(text: str) -> bool:
    """Whether the words before what is granted or restricted name other things alone."""
    return _OTHERS.search(text) is not None and _ITSELF.search(text) is None


def _plain(text: str) -> str:
    """Return a README's prose without code, pictures, tags and the addresses of links."""
    text = _IMAGE.sub(" ", _FENCED.sub(_kept_block, text))
    text = _LINK.sub(lambda link: link[1] or link[2] or "", _IMAGE.sub(" ", text))
    return _MARKUP.sub(" ", _HTML.sub(" ", text))


def _kept_block(block: re.Match[str]) -> str:
    """Return a block of code that holds a notice and no code; of others nothing."""
    said = block[0].strip("`~ \n")
    notice = re.search(r"(?i)copyright|\(c\)|©", said) or terms_at(fold(said)) is not None
    return f"\n\n{said}\n\n" if notice and not re.search(r"[=;{]", said) else "\n\n"


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """Yield each heading, empty for the first, and the text below it."""
    heading, position = "", 0
    for found in _HEADING.finditer(text):
        yield heading, text[position : found.start()]
        heading, position = found["atx"] or found["over"], found.end()
    yield heading, text[position:]


# Front matter: https://huggingface.co/docs/hub/datasets-cards


def front_matter(text: str) -> tuple[str, str] | None:
    """Return the YAML at a file's head, and the text below it; None where there is none."""
    found = re.match(r"\ufeff?---[ \t]*\r?\n(.*?\n)---[ \t]*(?:\r?\n|\Z)", text, re.S)
    return (found[1], text[found.end() :]) if found else None


def card_claims(head: str, path: str) -> Iterator[Claim]:
    """Yield what the front matter of a card claims, every key of it that may hold terms.

    YAML takes the last of two keys with one name; a reader may see the other.
    """
    try:
        data = yaml.safe_load(head)
    except yaml.YAMLError as error:
        yield Claim(f"{path}'s front matter cannot be read: {error}"[:300], path, None)
        return
    twice = re.findall(r"(?m)^licen[cs]e[ \t]*:[ \t]*(\S.*?)[ \t]*$", head)
    values = [*(twice if len(twice) > 1 else ()), *_values(data)]
    for value in values:
        claim = read_claim(value.strip("\"'"), path)
        if claim is not None:
            yield claim


def _values(data: Any) -> Iterator[str]:
    if not isinstance(data, dict):
        return
    named = data.get("license_name")
    for key, value in data.items():
        if key in ("license", "licence", "license_name"):
            listed = value if isinstance(value, list) else [value]
            yield from (str(one) for one in listed if one and not (one == "other" and named))
        elif key == "license_link" or (str(key).startswith("extra_gated") and _gates(value)):
            yield str(value)


def _gates(value: Any) -> bool:
    """Whether what a reader has to accept on the Hub sets terms."""
    text = str(value)
    return speaks(text, "edge") or terms_at(fold(text)) is not None
