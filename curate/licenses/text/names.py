"""Names of people and organisations: where a text has room for them, is anything else said there?

There is no list of all names, so what is around them is listed: the words of which names are made
up in copyright lines, and those by which a license speaks of holders without naming them. What
names cannot hold is a second sentence and a word by which terms are spoken of.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from curate.licenses.text.terms import speaks

_WORD = re.compile(r"[^\W_]+(?:[-'\u2019][^\W_]+)*")
# Words with which a name would be more than that.
TERMS = re.compile(
    r"(?i)\b(?:licen[cs]\w*|commercial\w*|noncommercial\w*|academic(?:s|ally)?|personal"
    r"|educational|purposes?|only|solely|not?|non|none|never|must|may|shall|will|use|uses|used|using|usage"
    r"|permi\w+|prohibit\w*|restrict\w*|proprietary|confidential|under|provided|subject|except\w*"
    r"|exclu\w*|allow\w*|forbid\w*|deny|denied|grant\w*|unless|without|until|if|who|which|whoever"
    r"|whom|pay\w*|paid|fees?|royalt\w*|train\w*|bann\w*|ban|require\w*|reserved? for|limited to"
    r"|terms|conditions?|agree\w*|consent\w*|approv\w*|evaluation|internal|redistribut\w*|sell\w*"
    r"|sale|sold|copy|copies|copying|barr?(?:ed|s)|excepted|members? only|residing|resident)\b"
)
_ADDRESS = re.compile(
    r"<?\S+@[\w.-]+>?|<?https?://[^\s>]+>?|www\.\S+|\S+\.(?:com|org|io|net|ai|dev)\b|\bgithub\S*|\S+/\S+"
    # what nobody filled in
    r"|[<\[{(]+\s*(?:(?:your|the|of|name|full|fullname|year|yyyy|date|author|copyright|owner|holder|company"
    r"|organi[sz]ation|email|e-mail|insert|here|or|and|project|present|s)[\s,()/-]*)+[>\]})]+",
    re.I,
)
_AROUND_NAMES = re.compile(
    r"(?i)\b(?:see|as shown (?:in|by)|listed in)\b[^.]{0,40}\bfile\b(?: for (?:more )?details)?"
    r"|\b(?:see|listed in|as shown (?:in|by)|per"
    r"|in)(?: the)? (?-i:[A-Z_]{5,})(?:\.\w+)?\b(?: file)?"
    r"|\b(?:[A-Za-z]\.){2,}[A-Za-z]?\b\.?|\be\.? ?V\.|\bsee AUTHORS\b.*"
    r"|\bto (?:the )?present\b|\d{4} to \d{4}|\bon behalf of\b|\bin the city of\b"
    r"|\bcontributors to (?:the )?\S+ project\b|\bwith contributions (?:from|by)\b"
    r"|\bin (?:alphabetical order|cooperation with)\b|\bas at\b"
    r"|\bat (?=(?:the )?(?:university|mit|eth|epfl|[a-z]+ (?:university|institute|college|lab)))"
    r"|\b(?:cent(?:er|re)|institute|foundation|society|association|laborator(?:y|ies)|alliance|agency|council"
    r"|department|school|college|organi[sz]ation|academy|group) for\b"
)
_IN_A_NAME = re.compile(
    r"\b(?:Commercial|Noncommercial|Personal|Restricted|Academic|Educational|Internal|Proprietary|Training)"
    r" (?=(?:Systems|Press|Bank|Labs?|Research|Software|Technolog|Solutions|Group|Ltd|Inc"
    r"|Society|Foundation"
    r"|Institute|Company|Corp|Cent|Services|Partners))"
)
# Small words that bind what is said to something; no name has them but those above.
_BOUND = re.compile(
    r"(?i)\b(?:to|for|as|at|in|on|with|under|until|till|after|before|while|during|when|via|per|but|than|nur|nicht|ohne"
    r"|sans|pas|pour|sin|solo|senza|niet|zonder|endast|kun|ikke|tylko|bez)\b"
)
_COPYRIGHT_WORD = re.compile(r"(?i)copyright|all rights(?: reserved)?|spdx-\w+")
_SMALL_WORDS = """
    zur zum fur vom und les los las des delle dei degli dell nella aux au em das bin ibn ten ter
    av och og a an affiliate affiliates aka al all and author authors b by c community company
    contributor contributors copyright d da dal de del della den der details developer
    developers di dos du e el et file foundation from gmbh group holder holders i ii iii inc
    individual institute its js la lab labs later le listed llc ltd many member members more now
    of or org original other others owner owners part parts portions present project reserved
    respective rights rst s see shown team the their txt university van various von y
"""
_SMALL = frozenset(_SMALL_WORDS.split())
"""Words in small letters that stand between names, or for them."""
_HOLDER_WORDS = """
    a above affiliates all also an and any anyone associated author authors automation behalf bv
    by c co collaborators committers community companies company consortium contributing
    contributor contributors copyright corp corporation developer developers employees entity
    every foundation gmbh group holder holders inc incorporated individual individuals
    initial institute institution its lab laboratories laboratory limited listed llc ltd
    maintainer maintainers member members name named names national nor of office or
    organisation organisations organization organizations original other others our owner owners
    parties party person plc present project providers publisher regents respective rights s sa
    school software sponsors subsidiaries suppliers team the their third trustees university
    various
"""
_NO_NAME = frozenset(_HOLDER_WORDS.split())
"""Words by which licenses speak of holders without naming one."""
_END = re.compile(r"(\w*)[.;:!?]\s+(?=\w)")
_SHORT_FORM_WORDS = """
    al bros cie co corp dept dev dr etc gmbh inc intl jr llc ltd plc prof pte pty sr st univ
"""
_SHORT_FORMS = frozenset(_SHORT_FORM_WORDS.split())


def are_names(room: str, holders: frozenset[str]) -> bool:
    """Return whether a room of a license, such as "shall … be liable", holds names and no more.

    They are names of the copyright lines, or words for holders; where there are no such lines, and
    for a project's name, two others at most.

    Args:
        room: what stands there.
        holders: words of the names in the copyright lines around it, in small letters.
    """
    text = _AROUND_NAMES.sub(" ", _ADDRESS.sub(" ", room))
    strange = [w for w in _WORD.findall(text) if w.lower() not in _NO_NAME | holders]
    if _BOUND.search(text) or TERMS.search(" ".join(strange)) or _has_sentences(text):
        return False
    known = len(strange) < len(_WORD.findall(text)) and bool(holders & set(text.lower().split()))
    if _ORGANISATION.search(text) or not holders or not _LIABLE.search(text):
        return len(strange) <= 2
    return len(strange) <= known


_LIABLE = re.compile(r"^[^a-z]*$|\b(?:or|and|OR|AND)\b")
_ORGANISATION = re.compile(
    r"(?i)\b(?:university|institute|corporation|corp|company|inc|ltd|llc|gmbh|foundation|laboratory"
    r"|laboratories|limited|consortium|labs?|college|regents|society|association|academy|agency"
    r"|council|authority|ministry|department|gesellschaft|group|centre|center)\b"
)


def holder_words(lines: Iterable[str]) -> frozenset[str]:
    """Return the words of copyright lines, in small letters."""
    return frozenset(word.lower() for line in lines for word in _WORD.findall(line))


def names_holders(line: str) -> bool:
    """Return whether a copyright line says who holds it and nothing else.

    Names are capitalised; of other words there are few.
    """
    line = _COPYRIGHT_WORD.sub(" ", _AROUND_NAMES.sub(" ", _ADDRESS.sub(" ", line)))
    line = _IN_A_NAME.sub(" ", line)
    if TERMS.search(line) or _BOUND.search(line) or _has_sentences(line) or speaks(line, "code"):
        return False
    known = _SMALL | _NO_NAME
    words = [word for word in _WORD.findall(line) if word[0].isalpha()]
    words = [word for word in words if word.lower() not in known]
    small = {word for word in words if word.isascii() and word.islower()}
    together = re.search(r"(?i)\b(?:authors|contributors|developers|maintainers|team)\b", line)
    # A name in small letters stands alone, or is that of a project.
    return len(small) <= (2 if together or len(small) == len(words) else 0)


def _has_sentences(text: str) -> bool:
    """Whether a point ends a sentence in the middle of a text, and no short form such as "Inc."."""
    ends = (found[1] for found in _END.finditer(text.strip()))
    return any(len(word) > 1 and word.lower() not in _SHORT_FORMS for word in ends)
