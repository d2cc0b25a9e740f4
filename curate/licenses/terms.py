"""Whether prose in a file of code speaks of the terms of its use.

Templates say what a text grants; this module only ever takes away. It errs towards "yes" where
people put terms, before the first statement and after the last one, and asks for more
elsewhere, since comments in code speak of use, copies, training and permission for other reasons.
"""

from __future__ import annotations

import html
import re
import unicodedata
from functools import lru_cache
from typing import Literal

Care = Literal["head", "edge", "code"]
"""head: a comment before the first statement or after the last one. edge: a docstring there, or a
comment among the imports; a language that cannot be read is not taken for harmless at both. code:
everywhere else."""

# Letters that look like Latin ones, in a word that is otherwise Latin or all of such letters.
_LOOKALIKES = str.maketrans(
    "АВЕЅІЈКМНОРСТХУаеіјорсухѕԁһӏᴄᴏɡΑΒΕΖΗΙΚΜΝΟΡΤΥΧαοινρυκτıłŁđĐøØ",
    "ABESIJKMHOPCTXYaeijopcyxsdhlcogABEZHIKMNOPTYXaoivpuktilLdDoO",
)
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_LOOKALIKE_WORD = re.compile(r"\w+")

_NEVER = (
    r"(?:no|not|never|nobody|none|cannot|without|forbid\w*|prohibit\w*|unauthori[sz]ed|illegal\w*"
    r"|unlawful\w*|disallow\w*|ban(?:s|ned)?|declines?|refuses?|objects? to|denied"
    r"|\w+n['’]t\b|opt(?:s|ed|ing)?[- ]?out|off[- ]limits|withh[eo]ld\w*)"
)
_WORK = (
    r"(?:(?:this|these|our|my|such)\s+(?:[\w-]+\s+){0,2}?|the\s+(?=software|programs?\b|source[- ]code|repo|material))(?:files?|code|software|programs?|sources?"
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
    r"\b[al]?gpl(?:[-v ]?\d|s?\b)|\bgnu (?:general|lesser|affero|library)|general public licen|\baffero\b"
    r"|copyleft|creative[- ]commons|\bcc[- ]by\b|\bcc[- ](?:by|nc|sa|nd)\b|mozilla public|\bmpl[- ]?v?[12]\b"
    r"|\beupl\b|\bcecill\b|\bbusl\b|\bbsl[- ]?1\.1|business source|\bsspl\b|server side public|\bwtfpl\b"
    r"|commons[- ]clause|polyform|\bopen-?rail|\brail[- ][ms]\b|\b(?:cddl|epl|osl|afl|apsl|ms-[pr]l|odbl|ofl"
    r"|lppl|qpl|npl|ncsa|nposl|rpl|sgi-b|openldap)[- ]v?\d|\beclipse public|\bartistic[- ]2|artistic licen"
    r"|\bnda\b|non-?disclosure|hippocratic|anti-?996|\bprosperity public|parity public|big ?time public"
    r"|fair[- ]source|\bfsl-1|functional source|\bbsd-?[0234]|\b[0234]-clause|\bapache[- ]?(?:v?2|licen)|\bmit[- ]licen|\(mit\)"
)
_ALWAYS = (
    r"|proprietary|\bconfidential\b(?! (?:comput\w*|vms?|gpus?))|trade secrets?\b|\beulas?\b|royalt(?:y|ies)|sublicens|non-?commercial"
    r"|\bcommercial(?:ly|i[sz]\w+)?\b|terms (?:and conditions|of (?:use|service|the licen))|usage policy"
    r"|acceptable use|all rights? (?:is|are|not)|intellectual property|\bpatent(?:s|ed)?\b"
    r"|\bwarrant(?:y|ies)\b|(?:remains?|(?:sole|exclusive)) (?:the )?property\b|text[- ]and[- ]data"
    r"|data[- ]?mining|\bundisclosed\b|top secret|(?:paid|valid|active) subscription|\binvoice|per seat|\bpaid licen"
    r"|\bitar\b"
)
_COMBINATIONS = "".join(
    f"|{pattern}"
    for pattern in (
        # a permission, and whose
        r"\b(?:written|prior|express\w*|explicit|without|our|authors?'?s?|owners?'?s?|holders?'?s?|require\w*|needs?|ask\w*|with)"
        r"\s+(?:(?!file|root|sudo)\w+\s+){0,3}?(?:permission|consent|approval|authori[sz]ation)\b(?! (?:error|denied|bits?|check))",
        r"\bpermission(?:s)? (?:to (?:use|copy|modify|distribute|reproduce|run)(?:,| or| and| this| it)|of the|is (?:hereby|granted|given|needed|required)|from the (?:author|owner|copyright|holder))",
        r"\bask (?:the )?(?:us|me|authors?|owners?|maintainers?|legal)\b (?:before|for|first)",
        # what must not be done with the work
        rf"\b{_NEVER}\b{_GAP % 6}{_ACT}{_GAP % 4}{_WORK}\b(?! (?:in|on|with|for) (?:python|torch|cuda|triton|gpu|cpu))",
        rf"\b{_WORK}{_GAP % 4}{_NEVER}{_GAP % 4}(?:cop(?:y|ied)|(?:re)?distribut\w+|reproduc\w+|shared|(?:re)?publi\w+|(?:re)?sold|disclos\w+|disseminat\w+|used (?:to train|for (?:train|commerc|profit|any)|commercially|without|outside|by (?:compan|anyone|banks))|train\w*)\b",
        rf"\b{_ACT}{_GAP % 8}(?:(?:strictly|expressly|hereby|is|are) (?:prohibited|forbidden|unlawful|illegal)|punish\w*|prosecut\w*)",
        r"\b(?:unauthori[sz]ed|illegal) (?:us|cop|distrib|reprod|redistrib|disclos|shar|dup)\w+",
        r"\b(?:you|users?|one|companies|anyone|nobody|third parties) (?:may|must|shall|can|are)(?: ?not|n't| only)? (?:be )?(?:allowed to |permitted to )?(?:copy|redistribut|distribut|reproduc|sell|sublicens|publish|resell|disclose|commerc)\w*",
        r"\b(?:not|never|n't|no) (?:\w+ )?(?:for|to be) (?:re-?)?(?:distribut\w+|publi(?:cation|shed)|resale|sale|sold|release|disclosure|disclosed|profit|external use)\b(?! (?:across|over|among|evenly|on))",
        # machine learning
        rf"\b{_NEVER}\b{_GAP % 8}{_AI}{_GAP % 3}(?:train\w*|learn\w*|dataset\w*|corp(?:us|ora)|purposes?|use)\b",
        rf"\b(?:{_NEVER}\b{_GAP % 8})(?:train\w*|fine-?tun\w*|learn|ingest\w*|scrap\w*|crawl\w*){_GAP % 3}(?:on|from|with|using|by)\s+{_WORK}",
        rf"\b(?:{_AI}|train\w*|fine-?tun\w*){_GAP % 7}(?:forbidden|prohibited|not (?:allowed|permitted|authori[sz]ed|granted|licensed))\b{_GAP % 4}(?:{_WORK}|without)",
        rf"\b{_AI}{_GAP % 4}{_WORK}{_GAP % 3}(?:forbidden|prohibited|allowed|permitted|authori[sz]ed)",
        rf"\b(?:{_AI} training|training (?:of )?{_AI}|training (?:an? )?{_AI}){_GAP % 5}(?:forbidden|prohibited|not (?:allowed|permitted)|excluded|reserved|require\w*)",
        rf"\b(?:no|not for|never for|opt(?:ed)?[- ]out of) {_AI}[- ](?:model )?(?:training|use)\b",
        # who and what for
        rf"\b(?:only|solely|exclusively|strictly|just|limited to|restricted to|reserved (?:for|to)){_GAP % 5}{_FIELD}\s+(?:use|usage|purposes?|users?|projects?|institutions?)",
        rf"\b{_FIELD}(?:,? (?:and|or|and/or) \w+)? (?:use|usage|purposes?)(?: is| are)?[ ,]*(?:only|solely|exclusively|permitted|allowed)",
        r"\b(?:only|solely|exclusively) (?:by|for|to|within) (?:\w+ )?(?:members|employees|customers|licensees|subscribers|staff|partners|universities|academics|non-?profits)\b",
        r"\b(?:employees|customers|licensees|subscribers|staff|academics|universities|non-?profits)(?: of [\w ]{1,30})? only\b",
        r"\binternal use only\b[.,;:! ]+(?:do not|not|no|never|don't)",
        r"\bby (?:using|downloading|opening|reading|running|accessing|installing|copying)\b[^.]{0,60}\b(?:you|user) (?:\w+ )?(?:agree|accept|consent)",
        r"\bsubject to (?:the |these |its |their |an? )?(?:\w+ )?(?:terms|agreement|fee|approval of|licen)",
        r"\b(?:must|have to|has to|shall|need to|should) (?:pay(?! (?:\w+ )?attention)|purchase|buy)\b",
        r"(?:\b(?:eur|usd|gbp)\b|€|£|(?<!\w)\$) ?\d[\d,.]*\s*(?:k\b|per |an? |/)?\s*(?:seat|user|year|month|licen|copy|use)",
        r"\b(?:weapons?|military|surveillance|warfare|human rights)\b",
        r"\bunder (?:the )?(?:terms|conditions) of\b",
    )
)
_LICENSED = r"|\blicen[cs](?:e(?!\s*[-_]?\s*(?:plate|key|server|manager|header|check|string|field|column)s?\b)|es|ed|ing|or)\b"
_STRONG = re.compile(_LICENSE_NAMES + _ALWAYS + _COMBINATIONS + _LICENSED)

_STRICT = re.compile(
    _STRONG.pattern
    + r"|licen[cs]|source[- ]available|\bexport[- ]control|\bpermissions? (?:is|of|from|to|must|required|needed|before|by|only|granted)\b"
    + r"|\b(?:with|without|by|written|prior|our|my|ask\w*) (?:\w+ ){0,2}permission|\bpermitted\b|\b(?:prohibited|forbidden)\b|\b(?:prohibit|forbid)s? (?:any|the use|all|use|copying)\b|unauthori[sz]ed|\bredistribut(?:ed|ion)\b|\bliab(?:le|ility)\b"
    + r"|\bcopyright\w* (?:belongs|is owned|owned|remains|reserved|protected|holder|law|act)|\bcopying (?:of|or|is|this|permission|prohib)"
    + r"|\bconsent\b|\binternal(?:ly)? (?:only|use\b)|\bacademic (?:use|purpose|only|work|research)"
    + rf"|\b{_FIELD} (?:use|usage|purposes?|only)\b|\b(?:use|usage|purposes?) only\b"
    + r"|\bdo not (?:copy|distribute|redistribute|publish|train|scrape|crawl|disclose|sell|leak|upload|share (?:this|it|with|outside))\b"
    + r"|\b(?:may|must|shall|can)(?: ?not|n't) be (?:copied|distributed|redistributed|shared|published|trained|sold|used (?:to train|for (?:train|commerc|profit|any)|commercially|without|outside|by (?:any|compan|firms)))"
    + r"|\byou (?:may|must|shall)(?: not)? (?:use|copy|modify|run|share|distribute)\b"
    + rf"|\b{_NEVER}\b{_GAP % 8}{_AI}{_GAP % 3}(?:train|learn|dataset|use|ingest)|\b{_AI} (?:training|use|models?)\b{_GAP % 4}(?:forbidden|prohibited|not (?:allowed|permitted|welcome)|must not|may not)"
    + rf"|\b{_NEVER}\b{_GAP % 3}train(?:ing|ed)? (?:on|data|sets?|with)\b|\btraining (?:data|sets?)\b{_GAP % 5}{_NEVER}\b"
    + r"|\b(?:free (?:of charge )?(?:for|to)|restricted to|reserved for|limited to) (?:\w+ ){0,2}(?:use|students|research|academ|non|personal|individual|school|compan)"
    + r"|\b(?:must|to|shall|have to|compan\w+|users?|who) (?:have to )?pays?\b(?! attention| for (?:the )?(?:overhead|cost))|\bpayments?\b|\b(?:licen[cs]e|annual|monthly|yearly) fees?\b|\bfees? (?:of|per|is|are)\b|\bcompan(?:y|ies) (?:need|must|pay|shall|may)|\btrade ?mark|\bpublic domain"
    + r"|\brights? reserved by|\breserves? (?:the|all) rights?|\bagrees? to (?:the|these|our|be)\b|\bagreement between\b|\bunder (?:an |the |our |my )?(?:\w+ )?agreement\b|\bgoverned by\b|\bterms (?:apply|of (?:use|this|our|an? ))"
    + r"|\bonly (?:for|by|to) (?:\w+ )?(?:members|employees|customers|students|subscribers|partners|people|companies|individuals)"
    + r"|\bopt(?:s|ed|ing)?\W+(?:(?:this|it|the|these|my|our|file|code|us|work)\W+){0,3}out\b|\b(?:use|access)\b(?:\W+\w+){0,3}?\W+(?:restricted|limited|reserved) (?:to|for)\b"
)

# Any of these in a comment before the first statement: a short text there is rarely about the code.
_WIDE = re.compile(
    r"\b(?:private|closed[- ]source|open[- ]source|contracts? with|staff|sell\w*|sold|compan(?:y|ies)|firms?|governments?"
    r"|crawl\w*|no-?(?:image)?ai|tdm\w*|robots|theft|offen[cs]e|criminal|(?:no|and|or) derivatives?|share[- ]?alike|attribution"
    r"|no (?:modifications?|copies)|(?:for|see|our|same|these|following) terms|terms apply|shareware|freeware|trial version|beer-?ware|nuclear|governed|partners?|copies (?:may|must|are)|(?:must|may) not (?:be )?(?:touch|used?\\b|copy|copied|share|leave|see|read|train|learn)\\w*"
    r"|shall not|may (?:run|use|be (?:used|read|copied|run))|not for|nobody|no one|property|vendors?|exclusive(?:ly)?|uso exclusivo"
    r"|regulations?|by-n[cd]|by-sa|do not use|restricted|not to be|own risk|distribution (?:is|and|of this|limited|or|only)|(?:whatever|any|all|other) purposes?|owners?"
    r"|customers?|employees?|keep (?:it|this|out|off)|must stay|rights|eyes only|stud(?:y|ents)|deal with|hobby\w*"
    r"|only (?:by|to|within) |(?:never|not|only) (?:be )?(?:run|used?|train\w*)(?=\W*$|\W+(?:this (?:file|code|software)|without|outside|for (?:train|ai|ml|commerc)))|train on)\b"
    r"|^\W*(?:\w+\W+){1,6}only\W*$|\bterms: "
)
_SHORT = 40  # words

# Every pattern of _STRONG needs one rare word, or one word of each kind in a group.
_RARE, _NO, _THING, _ACTS, _MACHINE, _LEARN, _LIMIT, _PURPOSE, _WHO, _LEGAL, _CC, _BY = (
    1 << bit for bit in range(12)
)
_HINTS = {
    _RARE: re.compile(
        r"[al]?gpl|gnu$|bsd|clause|apache|mit$|affero|copyleft|commons|mozilla|mpl|eupl|cecill|bu?sl\d?$|business|sspl|wtfpl"
        r"|polyform|\w*rail$|openrail|cddl|epl$|osl$|afl$|apsl|odbl|ofl$|lppl|qpl|npl$|ncsa|nposl|rpl$|openldap|eclipse"
        r"|artistic|nda$|disclosure|nondisclosure|hippocratic|996|anti996|prosperity|fair$|fsl$|proprietary|confidential$"
        r"|secrets?$|eulas?$|royalt|sublicens|commercial|noncommercial|terms$|policy$|acceptable$|intellectual|patent|warrant"
        r"|property$|mining|datamining|undisclosed|subscription|invoice|seat$|licen[cs]|itar|permission|consent|approval"
        r"|authori[sz]ation|ask$|asks$|prohibit|forbidden|unlawful|illegal|punish|prosecut|unauthori|resale|sold$|profit|employees"
        r"|customers|subscribers|staff$|academics|universities|members|agree$|agrees$|accept$|subject$|pay$|purchase|buy$|eur$|usd|gbp"
        r"|weapon|military|surveillance|warfare|rights$|publication|conditions$|partners|nonprofits|licensees"
    ),
    _NO: re.compile(rf"(?:{_NEVER}|no|t|off)$"),
    _THING: re.compile(
        r"(?:files?|code|software|programs?|sources?|materials?|work|repositor\w+|repo|packages?|librar\w+|scripts?"
        r"|documents?|notebooks?|contents?|derivatives?|texts?)$"
    ),
    _ACTS: re.compile(
        r"(?:cop(?:y|ied|ies|ying)|reuse|redistribut|distribut|reproduc|shar|publi|sell|sold|sale|resell|disclos|disseminat"
        r"|modif|decompil|train|scrap|crawl|commerc|learn|ingest|finetun|tun(?:e|ing))"
    ),
    _MACHINE: re.compile(
        r"(?:ai|llms?|artificial|machine|ml|generative|models?|copilot|train\w*)$"
    ),
    _LEARN: re.compile(
        r"(?:train|learn|dataset|corp(?:us|ora)|purpose|use$|fine|prohibit|forbid|allowed|permitted)"
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

# Stems, by which other languages speak of terms; folded as texts are.
_FOREIGN_STEMS = """
    rechte\\b gebrauch forschung forskning investigacion academico recherche\\b ricerca onderzoek badan
    vyzkum kutat tutkimu arastirma penelitian nghien cercetare kibiashara wewnetrzn uso interne\\b interno\\b
    verbot untersagt kommerziell gewerblich lizenz vertraulich urheberrecht vervielfaltig weitergabe
    genehmigung zustimmung forschungszweck lehrzweck eigentum unzulassig nutzungs gestattet
    interdit licence autorisation confidentiel droits proprietaire gebruik verspreid
    prohibid comercial licencia permiso autoriza derechos prohibi confidencial investigacion
    proibid licenc permissao direitos pesquisa vietat licenz permesso diritti consenso
    riservat verboden commercieel commerciele toestemming vertrouwelijk zabron licencj komercyjn
    zgody forbjud kommersiel tillat tilladt forbudt konfidentiel kielletty kaupalli lupaa lisenssi
    yasak ticari izinsiz lisans izni tilos kereskedelmi engedely interzis comerciale zakaz komerc
    licenci povolen dilarang komersial lisensi
"""
_OTHER_SCRIPTS = """
    许可 許可 授权 授權 商业 商業 商用 禁止 版权 版權 保密 不得 仅供 僅供 未经 未經 机密 機密 侵权 盗用 转载 轉載
    著作権 ライセンス 社外秘 無断 転載 再配布 営利 利用規約 使用許諾
    라이선스 라이센스 금지 상업 저작권 허가 무단 비밀 영리
    лиценз запрещ коммерч разреш конфиденц авторск распростран заборон комерц ліценз дозвол
    απαγορ εμπορικ αδεια δικαιωματ ممنوع تجاري ترخيص حقوق محظور سري אסור מסחרי רישיון זכויות
    व्यावसायिक लाइसेंस अनुमति निषिद्ध प्रतिबंधित ห้าม อนุญาต ลิขสิทธิ์ พาณิชย์
"""
_ENGLISH = frozenset(
    ["the", "a", "an", "of", "to", "is", "are", "be", "for", "and", "or", "in", "on", "with", "this", "that", "it", "as", "by", "from", "not", "at", "if", "which", "we", "can", "all", "use", "used", "uses", "has", "have", "was", "will", "its", "you", "when", "each", "one", "file", "code", "module"]
)
_FOREIGN = frozenset(
    ["der", "die", "das", "und", "ist", "nicht", "fur", "mit", "von", "den", "dem", "ein", "eine", "wird", "werden", "auf", "zu", "nur", "ohne", "le", "la", "les", "des", "et", "est", "pas", "pour", "dans", "une", "du", "sur", "avec", "sans", "ce", "cette", "ne", "que", "qui", "el", "los", "las", "una", "para", "por", "con", "sin", "no", "se", "del", "esta", "este", "lo", "su", "y", "solo", "il", "di", "che", "non", "per", "con", "una", "della", "questo", "e", "gli", "solo", "senza", "o", "os", "da", "do", "em", "nao", "uso", "um", "uma", "het", "een", "van", "niet", "voor", "door", "zonder", "en", "ett", "och", "inte", "for", "ikke", "og", "til", "av", "ej", "endast", "nie", "jest", "na", "przez", "tylko", "bez", "ve", "bu", "icin", "degil", "bir", "ile", "ja", "ei", "tama", "vain", "saa", "yang", "dan", "untuk", "ini", "tidak", "dengan", "oleh", "nem", "csak", "ez", "nu", "este", "pentru", "si", "hii", "la"]
) - {"a", "on", "for", "in", "no", "do", "e", "y", "o"}
_NAMED = re.compile(
    r"^\W*(?:@?\w*author\w*|by|created|date|e-?mail|maintain\w+|contribut\w+|contact|copyright|作者|时间|日期|"
    r"创建\w*|©|\(c\))[^.。]*$",
    re.M,
)
_LATIN_END = 0x24F


def fold(text: str) -> str:
    """Return ``text`` as a reader sees it: one form of each letter, nothing invisible, lower case.

    Full-width letters, ligatures, accents, zero-width characters, HTML entities and letters of
    other alphabets that look like Latin ones are what a search for words would not see through.
    """
    if "&" in text:
        text = html.unescape(text)
    if not text.isascii():
        text = unicodedata.normalize("NFKD", text)
        text = _NOT_ASCII.sub(_visible, text)
        text = _LOOKALIKE_WORD.sub(_unmixed, unicodedata.normalize("NFKC", text))
    return text.lower()


def _visible(letter: re.Match[str]) -> str:
    return "" if unicodedata.category(letter[0]) in ("Mn", "Cf") else letter[0]


def _unmixed(word: re.Match[str]) -> str:
    if word[0].isascii():
        return word[0]
    latin = word[0].translate(_LOOKALIKES)
    return latin if latin.isascii() and len(latin) > 1 else word[0]


@lru_cache(maxsize=1)
def _foreign() -> re.Pattern[str]:
    stems = "|".join(sorted(set(fold(_FOREIGN_STEMS).split())))
    others = "|".join(map(re.escape, fold(_OTHER_SCRIPTS).split()))
    return re.compile(rf"\b(?:{stems})|{others}")


def might_speak(text: str) -> bool:
    """Return whether `speaks` may find anything in a text: quick, and right when it says no."""
    if not text.isascii() or "&" in text:
        text = fold(text)
        if any(ord(letter) > _LATIN_END and letter.isalpha() for letter in text):
            return True
    found = 0
    for word in set(_LOOKALIKE_WORD.findall(text.lower())):
        found |= _hint(word)
    return bool(found & _RARE) or any(found & group == group for group in _GROUPS)


@lru_cache(maxsize=1 << 17)
def _hint(word: str) -> int:
    known = sum(bit for bit, stems in _HINTS.items() if stems.match(word))
    return known | _RARE if _foreign().match(word) else known


def speaks(paragraph: str, care: Care) -> bool:
    """Return whether a paragraph speaks of terms.

    Args:
        paragraph: without comment marks.
        care: where it stands, which says how little suffices.
    """
    if care == "code" and not might_speak(paragraph):
        return False
    text = fold(" ".join(paragraph.split()))
    if (_STRONG if care == "code" else _STRICT).search(text):
        return True
    if care == "head" and text.count(" ") < _SHORT and _WIDE.search(text):
        return True
    return _in_another_language(paragraph, text, care)


def _in_another_language(paragraph: str, text: str, care: Care) -> bool:
    text = re.sub(r"\S+@\S+", " ", text)
    words = re.findall(r"[^\W\d_]+", text)
    foreign = len(_FOREIGN.intersection(words))
    english = len(_ENGLISH.intersection(words))
    if (foreign >= max(english, care == "code") or not text.isascii()) and _foreign().search(text):
        return True
    if care == "code":
        return False
    unnamed = re.findall(
        r"[^\W\d_]{3,}", _NAMED.sub("", fold(paragraph))
    )  # shorter: a symbol, a name
    letters = sum(ord(letter) > _LATIN_END for word in unnamed for letter in word)
    accented = len(re.findall(r"\w*[^\W\d_\x00-\x7f]\w*", _NAMED.sub("", paragraph)))
    strange = care == "head" and accented >= 2 and not english
    return letters > 3 or strange or (foreign >= 3 and foreign > english)
