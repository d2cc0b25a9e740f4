"""Whether prose in a file of code speaks of the terms of its use.

Templates say what a text grants; this module only ever takes away. It errs towards "yes" where
people put terms, before the first statement and after the last one, and asks for more
elsewhere, since comments in code speak of use, copies, training and permission for other reasons.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

from curate.licenses.text.bargain import terms_at
from curate.licenses.text.languages import LATIN_END, WORD, fold, foreign_terms, is_unreadable
from curate.licenses.text.technical import technical_words

Care = Literal["head", "edge", "code"]
"""head: a comment before the first statement or after the last one. edge: a docstring there, or a
comment among the imports; a language that cannot be read is not taken for harmless at both. code:
everywhere else."""

_NEVER = (
    r"(?:no|not|never|nobody|none|cannot|without|forbid\w*|prohibit\w*|unauthori[sz]ed|illegal\w*"
    r"|unlawful\w*|disallow\w*|ban(?:s|ned)?|declines?|refuses?|refrain\w*|objects? to|denied"
    r"|\w+n['\u2019]t\b|opt(?:s|ed|ing)?[- ]?out|off[- ]limits|withh[eo]ld\w*)"
)
_WORK = (
    r"(?:(?:this|these|our|my|such)\s+(?:[\w-]+\s+){0,2}?|the\s+(?=software|programs?\b|source[-"
    r" ]code|repo|material))(?:files?|code|software|programs?|sources?"
    r"|source[- ]code|materials?|work|repositor\w+|repo|packages?|librar\w+|scripts?|documents?"
    r"|notebooks?|contents?|derivatives?|texts?|intellectual property)"
)
_ACT = (
    r"(?:cop(?:y|ies|ied|ying)|(?:re)?distribut\w+|reproduc\w+|shar(?:e|ed|ing)"
    r"|re-?us(?:e|ed|ing)|(?:re)?publi(?:sh\w*|cation)|(?:re)?s(?:ell\w*|old|ale)|modif\w+"
    r"|disclos\w+|disseminat\w+|sublicens\w+|licens\w+|decompil\w+|train\w*|scrap\w+|crawl\w*"
    r"|commerc\w+)"
)
_AI = (
    r"(?:ai|a\.i\.|llms?|artificial intelligence|machine[- ]learning|ml|generative ai"
    r"|(?:large |foundation |language |neural |statistical |ml |ai )models?|copilot)"
)
_FIELD = (
    r"(?:academic\w*|research\w*|educational|education|evaluation|personal|scientific|hobby\w*"
    r"|non-?profit\w*|students?|teaching|classroom|school\w*|universit\w+)"
)
_GAP = r"(?:[^\w.!?]+\w+(?:\.\w+)*){0,%d}?[^\w.!?]+"

_LICENSE_NAMES = (
    r"\b[al]?gpl(?:[-v ]?\d|s?\b|'?e?d\b)|\bgnu (?:general|lesser|affero|library)|\bgnu ?v[23]\b"
    r"|general public licen|\baffero\b|\bmulan ?psl|creativecommons"
    r"|copyleft|creative[- ]commons|\bcc[- ]by\b|\bcc[- ](?:by|nc|sa|nd)\b|mozilla public|\bmpl[-"
    r" ]?v?[12]\b"
    r"|\beupl\b|\bcecill\b|\bbusl\b|\bbsl[- ]?1\.1|business source|\bsspl\b|server side public"
    r"|\bwtfpl\b"
    r"|commons[- ]clause|polyform|\bopen-?rail|\brail[- ][ms]\b|\b(?:cddl|epl|osl|afl|apsl"
    r"|ms-[pr]l|odbl|ofl"
    r"|lppl|qpl|npl|ncsa|nposl|rpl|sgi-b|openldap)[- ]v?\d|\beclipse public|\bartistic[- ]2"
    r"|artistic licen"
    r"|\bnda\b|non-?disclosure|hippocratic|anti-?996|\bprosperity public|parity public|big ?time"
    r" public"
    r"|fair[- ]source|\bfsl-1|functional source|\bbsd-?[0234]|\b[0234]-clause|\bapache[- ]?(?:v?2"
    r"|licen)|\bmit[- ]licen|\(mit\)"
)
_ALWAYS = (
    r"|proprietary|\bconfidential\b(?! (?:comput\w*|vms?|gpus?))|trade secrets?\b|\beulas?\b"
    r"|royalt(?:y|ies)|sublicens|non-?commercial"
    r"|\bcommercial(?:ly|i[sz]\w+)?\b|terms (?:and conditions|of (?:use|service|the licen))|usage"
    r" policy"
    r"|acceptable use|all rights? (?:is|are|not)|intellectual property|\bpatent(?:s|ed)?\b"
    r"|\bwarrant(?:y|ies)\b|(?:remains?|(?:sole|exclusive)) (?:the )?property\b|text[- ]and[- ]data"
    r"|data[- ]?mining|\bundisclosed\b|top secret|(?:paid|valid|active) subscription|\binvoice|per"
    r" seat|\bpaid licen"
    r"|\bitar\b"
)
_COMBINATIONS = "".join(
    f"|{pattern}"
    for pattern in (
        # a permission, and whose
        r"\b(?:written|prior|express\w*|explicit|without|our|authors?'?s?|owners?'?s?|holders?'?s?"
        r"|require\w*|needs?|ask\w*|with)"
        r"\s+(?:(?!file|root|sudo)\w+\s+){0,3}?(?:permission|consent|approval"
        r"|authori[sz]ation)\b(?! (?:error|denied|bits?|check))",
        r"\bpermission(?:s)? (?:to (?:use|copy|modify|distribute|reproduce|run)(?:,| or| and|"
        r" this| it)|of the|is (?:hereby|granted|given|needed|required)|from the (?:author|owner"
        r"|copyright|holder))",
        r"\bask (?:the )?(?:us|me|authors?|owners?|maintainers?|legal)\b (?:before|for|first)",
        # what must not be done with the work
        rf"\b{_NEVER}\b{_GAP % 6}{_ACT}{_GAP % 4}{_WORK}\b(?! (?:in|on|with|for) (?:python|torch"
        rf"|cuda|triton|gpu|cpu))",
        rf"\b{_WORK}{_GAP % 4}{_NEVER}{_GAP % 4}(?:cop(?:y|ied)|(?:re)?distribut\w+|reproduc\w+"
        rf"|shared|(?:re)?publi\w+|(?:re)?sold|disclos\w+|disseminat\w+|used (?:to train|for"
        rf" (?:train|commerc|profit|any)|commercially|without|outside|by (?:compan|anyone|banks))"
        rf"|train\w*)\b",
        rf"\b{_ACT}{_GAP % 8}(?:(?:strictly|expressly|hereby|is|are) (?:prohibited|forbidden"
        rf"|unlawful|illegal)|punish\w*|prosecut\w*)",
        r"\b(?:unauthori[sz]ed|illegal) (?:us|cop|distrib|reprod|redistrib|disclos|shar|dup)\w+",
        r"\b(?:you|users?|one|companies|anyone|nobody|third parties) (?:may|must|shall|can"
        r"|are)(?: ?not|n't| only)? (?:be )?(?:allowed to |permitted to )?(?:copy|redistribut"
        r"|distribut|reproduc|sell|sublicens|publish|resell|disclose|commerc)\w*",
        r"\b(?:not|never|n't|no) (?:\w+ )?(?:for|to be) (?:re-?)?(?:distribut\w+|publi(?:cation"
        r"|shed)|resale|sale|sold|release|disclosure|disclosed|profit|external use)\b(?!"
        r" (?:across|over|among|evenly|on))",
        # machine learning
        rf"\b{_NEVER}\b{_GAP % 8}{_WORK}{_GAP % 5}{_AI}|\bno {_AI}{_GAP % 2}(?:on|of|with) {_WORK}",
        rf"\b{_NEVER}\b{_GAP % 8}{_AI}{_GAP % 3}(?:train\w*|learn\w*|dataset\w*|corp(?:us|ora)"
        rf"|purposes?|use)\b",
        rf"\b(?:{_NEVER}\b{_GAP % 8})(?:train\w*|fine-?tun\w*|learn|ingest\w*|scrap\w*"
        rf"|crawl\w*){_GAP % 3}(?:on|from|with|using|by)\s+{_WORK}",
        rf"\b(?:{_AI}|train\w*|fine-?tun\w*){_GAP % 7}(?:forbidden|prohibited|not (?:allowed"
        rf"|permitted|authori[sz]ed|granted|licensed))\b{_GAP % 4}(?:{_WORK}|without)",
        rf"\b{_AI}{_GAP % 4}{_WORK}{_GAP % 3}(?:forbidden|prohibited|allowed|permitted"
        rf"|authori[sz]ed)",
        rf"\b(?:{_AI} training|training (?:of )?{_AI}|training (?:an?"
        rf" )?{_AI}){_GAP % 5}(?:forbidden|prohibited|not (?:allowed|permitted)|excluded|reserved"
        rf"|require\w*)",
        rf"\b(?:no|not for|never for|opt(?:ed)?[- ]out of) {_AI}[- ](?:model )?(?:training|use)\b",
        # who and what for
        rf"\b(?:only|solely|exclusively|strictly|just|limited to|restricted to|reserved (?:for"
        rf"|to)){_GAP % 5}{_FIELD}\s+(?:use|usage|purposes?|users?|projects?|institutions?)",
        rf"\b{_FIELD}(?:,? (?:and|or|and/or) \w+)? (?:use|usage|purposes?)(?: is| are)?["
        rf" ,]*(?:only|solely|exclusively|permitted|allowed)",
        r"\b(?:only|solely|exclusively) (?:by|for|to|within) (?:\w+ )?(?:members|employees"
        r"|customers|licensees|subscribers|staff|partners|universities|academics|non-?profits)\b",
        r"\b(?:employees|customers|licensees|subscribers|staff|academics|universities"
        r"|non-?profits)(?: of [\w ]{1,30})? only\b",
        r"\binternal use only\b[.,;:! ]+(?:do not|not|no|never|don't)",
        r"\bby (?:using|downloading|opening|reading|running|accessing|installing"
        r"|copying)\b[^.]{0,60}\b(?:you|user) (?:\w+ )?(?:agree|accept|consent)",
        r"\bsubject to (?:the |these |its |their |an? )?(?:\w+ )?(?:terms|agreement|fee|approval"
        r" of|licen)",
        r"\b(?:must|have to|has to|shall|need to|should) (?:pay(?! (?:\w+ )?attention)|purchase"
        r"|buy)\b",
        r"(?:\b(?:eur|usd|gbp)\b|€|£|(?<!\w)\$) ?\d[\d,.]*\s*(?:k\b|per |an? |/)?\s*(?:seat|user"
        r"|year|month|licen|copy|use)",
        r"\b(?:weapons?|military|surveillance|warfare|human rights)\b",
        r"\bunder (?:the )?(?:terms|conditions) of\b",
    )
)
_LICENSED = (
    r"|\blicen[cs](?:e(?!\s*[-_]?\s*(?:plate|key|server|manager|header|check|string|field|column)"
    r"s?\b)|es|ed|ing|or)\b"
)
_NAMES = re.compile(_LICENSE_NAMES)
_STRONG = re.compile(_LICENSE_NAMES + _ALWAYS + _COMBINATIONS + _LICENSED)

_STRICT = re.compile(
    _STRONG.pattern
    + r"|licen[cs]|source[- ]available|\bexport[- ]control|\bpermissions? (?:is|of|from|to|must"
    r"|required|needed|before|by|only|granted)\b"
    + r"|\b(?:with|without|by|written|prior|our|my|ask\w*) (?:\w+ ){0,2}permission|\bpermitted\b"
    r"|\b(?:prohibited|forbidden)\b|\b(?:prohibit|forbid)s? (?:any|the use|all|use|copying)\b"
    r"|unauthori[sz]ed|\bredistribut(?:ed|ion)\b|\bliab(?:le|ility)\b"
    + r"|\bcopyright\w* (?:belongs|is owned|owned|remains|reserved|protected|holder|law|act)"
    r"|\bcopying (?:of|or|is|this|permission|prohib)"
    + r"|\bconsent\b|\binternal(?:ly)? (?:only|use\b)|\bacademic (?:use|purpose|only|work|research)"
    + rf"|\b{_FIELD} (?:use|usage|purposes?|only)\b|\b(?:use|usage|purposes?) only\b"
    + r"|\bdo not (?:copy|distribute|redistribute|publish|train|scrape|crawl|disclose|sell|leak"
    r"|upload|share (?:this|it|with|outside))\b"
    + r"|\b(?:may|must|shall|can)(?: ?not|n't) be (?:copied|distributed|redistributed|shared"
    r"|published|trained|sold|used (?:to train|for (?:train|commerc|profit|any)|commercially"
    r"|without|outside|by (?:any|compan|firms)))"
    + r"|\byou (?:may|must|shall)(?: not)? (?:use|copy|modify|run|share|distribute)\b"
    + rf"|\b{_NEVER}\b{_GAP % 8}{_AI}{_GAP % 3}(?:train|learn|dataset|use|ingest)|\b{_AI}"
    rf" (?:training|use|models?)\b{_GAP % 4}(?:forbidden|prohibited|not (?:allowed|permitted"
    rf"|welcome)|must not|may not)"
    + rf"|\b{_NEVER}\b{_GAP % 3}train(?:ing|ed)? (?:on|data|sets?|with)\b|\btraining (?:data"
    rf"|sets?)\b{_GAP % 5}{_NEVER}\b"
    + r"|\b(?:free (?:of charge )?(?:for|to)|restricted to|reserved for|limited to) (?:\w+"
    r" ){0,2}(?:use\b|students|research|academ|non|personal|individual|school|compan)"
    + r"|\b(?:must|(?<!measured )(?<!shown )to|shall|have to|compan\w+|users?|who)"
    r" (?:have to )?pays?\b(?! attention| for (?:the )?(?:overhead|cost))|\bpayments?\b"
    r"|\b(?:licen[cs]e|annual|monthly|yearly) fees?\b"
    r"|\bfees? (?:of|per|is|are)\b|\bcompan(?:y|ies) (?:need|must|pay|shall|may)|\btrade ?mark"
    r"|\bpublic domain"
    + r"|\brights? reserved by|\breserves? (?:the|all) rights?|\bagrees? to (?:the|these|our|be)\b"
    r"|\bagreement between\b|\bunder (?:an |the |our |my )?(?:\w+ )?agreement\b"
    r"|\bgoverned by\b(?! ``)"
    r"|\bterms (?:apply|of (?:use|this|our|an? ))"
    + r"|\bonly (?:for|by|to) (?:\w+ )?(?:members|employees|customers|students|subscribers"
    r"|partners|people|companies|individuals)"
    + r"|\b(?:following|below|this) (?:licen[cs]e |notice |terms )?appl(?:y"
    r"|ies) (?:only )?to (?!this file|all|every)"
    + r"|\bmay (?:only )?be used (?:by|within|inside)\b|\byou (?:accept|agree|consent)\b"
    r"|\bno (?:compan(?:y|ies)|one|firms?) (?:may|can|shall)\b"
    + r"|\bopt(?:s|ed|ing)?\W+(?:(?:this|it|the|these|my|our|file|code|us|work)\W+){0,3}out\b"
    r"|\b(?:use|access)\b(?:\W+\w+){0,3}?\W+(?:restricted|limited|reserved) (?:to|for)\b"
)

# Any of these in a comment before the first statement: a short text there is rarely about the code.
_WIDE = re.compile(
    r"\b(?:private|closed[- ]source|open[- ]source|contracts? with|staff|sell\w*|sold|compan(?:y"
    r"|ies)|firms?|governments?"
    r"|crawl\w*|no-?(?:image)?ai|tdm\w*|robots|theft|offen[cs]e|criminal|(?:no|and|or)"
    r" derivatives?|share[- ]?alike|attribution"
    r"|no (?:modifications?|copies)|(?:for|see|our|same|these|following) terms|terms apply"
    r"|shareware|freeware|trial version|beer-?ware|nuclear|governed|partners?|copies (?:may|must"
    r"|are)|(?:must|may) not (?:be )?(?:touch|used?\\b|copy|copied|share|leave|see|read|train"
    r"|learn)\\w*"
    r"|shall not|may (?:run|use|be (?:used|read|copied|run))|not for|nobody|no one|property"
    r"|vendors?|exclusive(?:ly)?|uso exclusivo"
    r"|regulations?|by-n[cd]|by-sa|do not use|restricted|not to be|own risk|distribution (?:is|and"
    r"|of this|limited|or|only)|(?:whatever|any|all|other) purposes?|owners?"
    r"|customers?|employees?|keep (?:it|this|out|off)|must stay|rights|eyes only|stud(?:y|ents)"
    r"|deal with|hobby\w*"
    r"|only (?:by|to|within) |(?:never|not|only) (?:be )?(?:run|used?|train\w*)(?=\W*$|\W+(?:this"
    r" (?:file|code|software)|without|outside|for (?:train|ai|ml|commerc)))|train on)\b"
    r"|^\W*(?:\w+\W+){1,6}only\W*$|\bterms: "
)
_SHORT = 40  # words
# In the same place: who may have it, what they owe for it, and until when.
_BARGAIN = re.compile(
    r"\b(?:you|others|anyone|anybody|everyone|everybody|users?|readers?|recipients?|members?|holders?"
    r"|compan(?:y|ies)|people|persons?|those)\b[^.:]{0,40}?\b(?:may|must|shall|agrees?|promises?|accepts?"
    r"|asks?|deletes?|destroys?|returns?|pays?|owes?|swears?|pledges?|undertakes?|refrains?|respects?)\b"
    r"|\b(?:grants?|permission|rights?|offer|access|term)\b[^.]{0,30}\b(?:ends?|expires?|until|lapses?"
    r"|terminates?|revoke[ds]?|withdrawn)\b|\b(?:expires?|until|ends? (?:on|in)) \d{4}"
    r"|\b(?:provided|given|shared|lent|supplied|handed|sent|disclosed|entrusted|released"
    r"|available) to\b"
    r"|\b(?:\w*bot|user-?agent|disallow|noindex|crawlers?|google-extended)\b(?= ?[:,/]|$)"
    r"|\b(?:nc|nd)[- ](?:use|only|licen)|\bask \w+ (?:for|before|first|if|to)\b|\bnon-?comm\b"
    r"|\b(?:no|not|never|cause) (?:any )?harm\b|\bharmless\b|\bevil\b|\b(?:un)?ethical\w*"
    r"|\bconsortium\b"
)
# A description of code has none of these; what binds somebody has.
_BINDING = re.compile(
    r"\b(?:you|your|may|must|shall|can|cannot|only|solely|not|no|never|used?|uses|using|usage|this|these|our|my"
    r"|we|copyright\w*|licen[cs](?:ed?|ing)(?! plates?)|rights?|reserved|property"
    r"|permission|permitted|consent|free|available"
    r"|allowed|forbidden|prohibit\w*|grant\w*|limited|ask|contact|pay|paid|provided|subject|under|unauthori[sz]ed"
    r"|distribut\w*|redistribut\w*|cop(?:y|ies|ying)|owned|owner\w*|agree\w*|terms|disclos\w*|patented)\b"
)
_SENTENCE = re.compile(r"(?<=[.;!?])\s+")
_TECHNICAL = 2  # words of programming that terms may have
_FEW = 5  # words: too short to describe anything
_SPACED = re.compile(r"(?<!\w)\w(?:(?: | ?- ?)\w){5,}(?!\w)")
_HYPHENATED = re.compile(r"(?<=[a-z])-\s+(?=[a-z])")

# Every pattern of _STRONG needs one rare word, or one word of each kind in a group.
_RARE, _NO, _THING, _ACTS, _MACHINE, _LEARN, _LIMIT, _PURPOSE, _WHO, _LEGAL, _CC, _BY = (
    1 << bit for bit in range(12)
)
_HINTS = {
    _RARE: re.compile(
        r"[al]?gpl|gnu(?:v[23])?$|mulan|creativecommons|bsd|clause|apache|mit$|affero|copyleft|commons|mozilla|mpl|eupl|cecill"
        r"|bu?sl\d?$|business|sspl|wtfpl"
        r"|polyform|\w*rail$|openrail|cddl|epl$|osl$|afl$|apsl|odbl|ofl$|lppl|qpl|npl$|ncsa|nposl"
        r"|rpl$|openldap|eclipse"
        r"|artistic|nda$|disclosure|nondisclosure|hippocratic|996|anti996|prosperity|fair$|fsl$"
        r"|proprietary|confidential$"
        r"|secrets?$|eulas?$|royalt|sublicens|commercial|noncommercial|terms$|policy$|acceptable$"
        r"|intellectual|patent|warrant"
        r"|property$|mining|datamining|undisclosed|subscription|invoice|seat$|licen[cs]|itar"
        r"|permission|consent|approval"
        r"|authori[sz]ation|ask$|asks$|prohibit|forbidden|unlawful|illegal|punish|prosecut"
        r"|unauthori|resale|sold$|profit|employees"
        r"|customers|subscribers|staff$|academics|universities|members|agree$|agrees$|accept$"
        r"|subject$|pay$|purchase|buy$|eur$|usd|gbp"
        r"|weapon|military|surveillance|warfare|rights$|publication|conditions$|partners"
        r"|nonprofits|licensees"
    ),
    _NO: re.compile(rf"(?:{_NEVER}|no|t|off)$"),
    _THING: re.compile(
        r"(?:files?|code|software|programs?|sources?|materials?|work|repositor\w+|repo|packages?"
        r"|librar\w+|scripts?"
        r"|documents?|notebooks?|contents?|derivatives?|texts?)$"
    ),
    _ACTS: re.compile(
        r"(?:cop(?:y|ied|ies|ying)|reuse|redistribut|distribut|reproduc|shar|publi|sell|sold|sale"
        r"|resell|disclos|disseminat"
        r"|modif|decompil|train|scrap|crawl|commerc|learn|ingest|finetun|tun(?:e|ing))"
    ),
    _MACHINE: re.compile(
        r"(?:ai|llms?|artificial|machine|ml|generative|models?|copilot|train\w*)$"
    ),
    _LEARN: re.compile(
        r"(?:train|learn|dataset|corp(?:us|ora)|purpose|use$|fine|prohibit|forbid|allowed"
        r"|permitted)"
    ),
    _LIMIT: re.compile(
        r"(?:only|solely|exclusively|strictly|just|limited|restricted|reserved|permitted|allowed)$"
    ),
    _PURPOSE: re.compile(rf"{_FIELD}$"),
    _WHO: re.compile(r"(?:you|users?|one|companies|anyone|nobody|third)$"),
    _LEGAL: re.compile(
        r"(?:cop(?:y|ied)$|redistribut|distribut|reproduc|sell|publish|resell|disclos|commerc)"
    ),
    _CC: re.compile("cc$"),
    _BY: re.compile("(?:by|nc|sa|nd)$"),
}
_GROUPS = (
    _NO | _THING | _ACTS,
    _NO | _MACHINE | _LEARN,
    _MACHINE | _THING | _LEARN,
    _LIMIT | _PURPOSE,
    _WHO | _LEGAL,
    _CC | _BY,
)


def names_license(text: str) -> bool:
    """Return whether a text, folded, names a license that asks for more than a notice."""
    return _NAMES.search(text) is not None


def might_speak(text: str) -> bool:
    """Return whether `speaks` may find anything in a text: quick, and right when it says no."""
    if not text.isascii() or "&" in text:
        text = fold(text)
        if any(ord(letter) > LATIN_END and letter.isalpha() for letter in text):
            return True
    found = 0
    for word in set(WORD.findall(text.lower())):
        found |= _hint(word)
    return bool(found & _RARE) or any(found & group == group for group in _GROUPS)


@lru_cache(maxsize=1 << 17)
def _hint(word: str) -> int:
    known = sum(bit for bit, stems in _HINTS.items() if stems.match(word))
    return known | _RARE if foreign_terms().match(word) else known


# What a tool that writes headers says of itself: the header is what follows.
_OF_A_TOOL = re.compile(r"licen[cs]e header (?:managed|generated|added|inserted) by [\w.-]+")


@lru_cache(maxsize=1 << 16)
def speaks(paragraph: str, care: Care) -> bool:
    """Return whether a paragraph speaks of terms.

    Args:
        paragraph: without comment marks.
        care: where it stands, which says how little suffices.
    """
    if care == "code" and not might_speak(paragraph):
        return False
    text = fold(" ".join(paragraph.split()))
    if _OF_A_TOOL.fullmatch(text):
        return False
    if care != "code":
        text = _joined(text)
    if (_STRONG if care == "code" else _STRICT).search(text):
        return True
    short = care == "head" and text.count(" ") < _SHORT
    if short and (_WIDE.search(text) or _BARGAIN.search(text)):
        return True
    if care != "code" and any(map(_sets_terms, _SENTENCE.split(text))):
        return True
    return is_unreadable(paragraph, text, care == "code", care == "head")


def _sets_terms(sentence: str) -> bool:
    """Whether a sentence sets terms and has too few words of programming to describe code."""
    return terms_at(sentence) is not None and technical_words(sentence) <= _TECHNICAL


def _joined(text: str) -> str:
    """Return a folded text with words as they are read, spaced out or hyphenated ones after it."""
    spaced = " ".join(re.sub(r"[ -]", "", found[0]) for found in _SPACED.finditer(text))
    whole = _HYPHENATED.sub("", text)
    return " ".join(part for part in (text, spaced, whole if whole != text else "") if part)


def binds(paragraph: str) -> bool:
    """Return whether a docstring that speaks of terms may be about its own file.

    "Reads the proprietary format of the microscope" describes code: it speaks to nobody.
    """
    text = fold(" ".join(paragraph.split()))
    if is_unreadable(paragraph, text, in_code=True, in_comment=False):
        return True
    sentences = re.split(r"(?<=[.;:!?])\s+", text)
    said = [sentence for sentence in sentences if speaks(sentence, "edge")] or sentences
    return any(len(one.split()) <= _FEW or _BINDING.search(one) for one in said)
