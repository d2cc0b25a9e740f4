"""Sentences that set terms: what may be done with a work, by which rule, and for whom.

No list of restrictions is complete, so this reads for the parts that every one of them has. It is
for places where people put terms and little else that sounds like them: README, and the first lines
of a file.
"""

from __future__ import annotations

import re

from curate.licenses.text.technical import describes

# Terms have three parts: what is done with the work, a rule, and whom the rule is for. A sentence
# with all of them, or a short one with the last two, is taken to speak of terms.
_DONE = re.compile(
    r"\b(?:re-?)?(?:us(?:e|ed|es|ing|age)|cop(?:y|ies|ied|ying)|distribut\w*|reproduc\w*|publish\w*|sell\w*"
    r"|sold|resale|shar(?:e|ed|ing)|modif\w*|fork(?:s|ed|ing)?|mirror(?:s|ed|ing)?|train(?:s|ed|ing)?|mine|mining"
    r"|scrap(?:e|ed|ing)|crawl\w*|commerciali[sz]\w*|monetis\w*|monetiz\w*|disclos\w*|ingest\w*|licen[cs]\w*)\b"
)
_RULE = re.compile(
    r"\b(?:only|not|never|without|unless|except\w*|must|shall|solely|exclusively|strictly|limited|prohibit\w*"
    r"|restricted|forbid\w*|forbidden|disallow\w*|banned|permitted|allowed|have to"
    r"|subject to|reserved|buy"
    r"|owned by|belongs? to|purchase|pay|pays|paid|fees?|agreements?|contracts?|permission"
    r"|consent|approval"
    r"|free (?:of charge )?(?:for|to)|talk to|write to|ask(?! questions)|contact|agree|accept"
    r"|before you"
    r"|lawyers?|royalt\w*"
    r"|needs? (?:an?|our|your|to (?:buy|pay|ask))|requires? (?:an?|our|your|prior|written"
    r"|separate)|may|can be used"
    r"|(?:given|provided|available|licen[cs]ed|offered|released|intended|meant) (?:to|for)"
    r"|no)\b|n't\b"
)
_WHO = re.compile(
    r"\b(?:compan(?:y|ies)|firms?|corporat(?:e|ions?)|businesses|commercial\w*|non-?commercial\w*|academics?"
    r"|academi[ac]\w* (?:use\w*|purposes?|projects?|institutions?|research)"
    r"|research(?= *[,.;]| only| purposes?)|products?\b(?= *[,.;])|profit|competitors"
    r"|researchers only|only researchers|research (?:use|purposes?)"
    r"|students|teachers|teaching|educational|universit(?:y|ies)|schools|non-?profits?"
    r"|non-?profit \w+|members|staff"
    r"|employees|customers|partners|licensees|subscribers|hobby\w*|(?:personal|private|internal|in-house|production"
    r"|industrial|governmental) (?:use\w*|projects?|purposes?)|in (?:a|your|any) products?"
    r"|evaluation (?:only|purposes?|period|licen\w+)|military|weapons?"
    r"|surveillance|government|lawyers|everybody else|everyone else|anyone else|all others"
    r"|the public|industry"
    r"|third parties|individuals)\b"
)
_NO_TRAINING = re.compile(
    r"\b(?:not|never|no|n't|without|prohibit\w*|forbid\w*|forbidden|disallow\w*|opt\w* out"
    r"|off[- ]limits|refuse\w*)\b"
    r"(?:\W+\w+){0,8}?\W+(?:(?:to|for|be) (?:train|fine-?tun|min|scrap|crawl|ingest|harvest)\w*"
    r"|training (?:of|on|with|data)|(?:min|scrap|crawl|ingest|harvest)(?:ing|ed|e)"
    r"|(?:in|into|for|by|part of) (?:an? |any )?(?:ai|llms?|machine[- ]learning"
    r"|(?:training )?data ?sets?|corp(?:us|ora)))\b"
    r"|\b(?:train|min|scrap|crawl|ingest|harvest)(?:ing|e)?\b(?:\W+\w+){0,8}?\W+"
    r"(?:not (?:allowed|permitted|welcome)|prohibited|forbidden|disallowed)\b"
)
_THIS = re.compile(
    r"\b(?:this|our|the) (?:\w+ )?(?:software|code(?:base)?|repository|repo|package|library"
    r"|project|program|sources?"
    r"|folder|directory|work|material|content|files?|kernels?)\b|\bit\b"
)
_NOT_TERMS = re.compile(
    r"\bcommercial (?:support|products?|gpus?|software|solvers?|services?|llms?|models?"
    r"|apis?)\b|\bresearch and\b"
    r"|\bfor evaluation (?:of|on|and|scripts?)|\bcode for evaluation\b(?! *[.;])"
    r"|\bpublic (?:api|interface)\b"
    r"|\bnot an official\w*(?: supported)? \w+ product\b|\btrademarks?\b.*"
)
_SHORT = 14  # words in which a rule for somebody is one without saying what it is about
_PLAINLY = re.compile(
    r"\b(?:folders?|directory|directories|files?|part) (?:\w+ ){0,3}(?:is"
    r"|are) (?:only )?for (?!python|cuda|gpu|torch|the\b|an?\b"
    r"|\d|test|convenience|use\b|internal\b|develop|debug|example)|\bpatent(?:ed"
    r"|s)?\b.{0,60}\blicen[cs]e\b|\btrade secret|\b(?:is|are|and) confidential\b"
    r"|\bconfidential to\b"
    r"|\b(?:must|may|shall|should|can) ?(?:not|never) be (?:cop(?:y|ied)|shared"
    r"|(?:re)?distributed|published|used (?:by"
    r" |to train)|modified|sold|disclosed|forked|mirrored|quoted|passed on|given|cited)\b"
    r"|\btrade secret|\b(?:is|are|remains?) (?:the |sole |exclusive )*property of\b"
    r"|\bno part of\b|\beula\b|\bnot open[- ]source\b"
    r"|\bunder (?:an? )?nda\b|\blicen[cs]e key\b|\b(?:paid|commercial|enterprise"
    r"|proprietary) licen[cs]\w+"
    r"|\bnon-?commercial\b|\b(?:by|when) (?:using|downloading|installing"
    r"|cloning)\b[^.]{0,60}\b(?:agree|accept|consent)\b"
    r"|\bsource[- ]available\b|(?<!\bwe )(?<!\bthey )\b(?:do not|don't|must not|may not"
    r"|never) (?:(?:re)?(?:distribute|sell)\b"
    r"|(?:share|copy|publish) (?:it|this|the (?:code|software|files?)|any)\b)"
    r"|\b(?:redistribution|distribution|copying|resale|training)\b[^.]{0,40}\b(?:prohibited|forbidden|disallowed"
    r"|not (?:allowed|permitted))\b"
)


# In a sentence without a word of programming, less is enough.
_FOR_SOME = re.compile(
    r"\b(?:prohibited|forbidden|disallowed|excluded|not (?:allowed|permitted)|confidential"
    r"|proprietary|nda|embargo\w*"
    r"|permission(?! (?:is |was )?(?:denied|error))|consent|(?:must|may|shall) not (?:be )?(?:used?"
    r"|cop\w+|shar\w+|pass\w*|publish\w*|quoted?|cited?|leave)|purchase|subscription"
    r"|no licen[cs]e|closed beta|for sale|classified"
    r"|do not (?:share|publish|pass|forward|leak|cite|quote|copy)|(?:obliged|obligated"
    r"|required) to (?:cite|credit|pay|ask"
    r"|share)|trial (?:version|period|ends)|academic licen\w+|not touch)\b|"
    r"\b(?:only|solely|exclusively|strictly|never|not) (?:to be \w+ |intended "
    r"|meant )?(?:for|by|to|within)\b"
)


_KEEPS = re.compile(
    r"\b(?:reserv\w+|retains?|remains? (?:with|the|of)|exclusive\w*|owns|owned|belongs?"
    r"|is up to|(?:sole|all) rights?"
    r"|right of|decides?|alone)\b"
)


def terms_at(plain: str) -> int | None:
    """Return where a sentence, folded, begins to set terms; None where it sets none."""
    if plain.rstrip().endswith(":"):
        return None  # a heading of what follows
    plain = _NOT_TERMS.sub(lambda found: " " * len(found[0]), plain)
    telling = _PLAINLY.search(plain)
    if not telling and _NO_TRAINING.search(plain):
        telling = _THIS.search(plain)
    who = _WHO.search(plain)
    if not telling and who and _RULE.search(plain):
        telling = _DONE.search(plain) or (who if len(plain.split()) <= _SHORT else None)
    if not telling and not describes(plain, comment=False):
        telling = _FOR_SOME.search(plain)
    return telling.start() if telling else None


def keeps_rights(plain: str) -> re.Match[str] | None:
    """Return where a sentence, folded, keeps something that is done with a work for its owners."""
    return _KEEPS.search(plain) if _DONE.search(plain) else None
