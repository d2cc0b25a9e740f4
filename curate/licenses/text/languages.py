"""What a reader sees in a text, and whether it is in a language other than English.

Nobody here reads every language. Words by which some twenty of them speak of terms are known; what
else is written before the first statement in letters or words that are not English is not taken for
harmless.
"""

from __future__ import annotations

import html
import re
import unicodedata
from functools import lru_cache

# Letters that look like Latin ones, in a word that is otherwise Latin or all of such letters.
_LOOKALIKES = str.maketrans(
    "АВЕЅІЈКМНОРСТХУаеіјорсухѕԁһӏᴄᴏɡΑΒΕΖΗΙΚΜΝΟΡΤΥΧαοινρυκτıłŁđĐøØ",
    "ABESIJKMHOPCTXYaeijopcyxsdhlcogABEZHIKMNOPTYXaoivpuktilLdDoO",
)
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
WORD = re.compile(r"\w+")

# Stems, by which other languages speak of terms; folded as texts are.
_FOREIGN_STEMS = """
    rechte\\b gebrauch forschung forskning investigacion academico recherche\\b ricerca onderzoek
    badan vyzkum kutat tutkimu arastirma penelitian nghien cercetare kibiashara wewnetrzn uso
    interne\\b interno\\b
    kommerciel erhverv fortjeneste tillade
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
    许可 許可 授权 授權 商业 商業 商用 禁止 版权 版權 保密 不得 仅供 僅供 未经 未經 机密 機密 侵权
    盗用 转载 轉載
    著作権 ライセンス 社外秘 無断 転載 再配布 営利 利用規約 使用許諾
    라이선스 라이센스 금지 상업 저작권 허가 무단 비밀 영리
    лиценз запрещ коммерч разреш конфиденц авторск распростран заборон комерц ліценз дозвол
    απαγορ εμπορικ αδεια δικαιωματ ممنوع تجاري ترخيص حقوق محظور سري אסור מסחרי רישיון זכויות
    व्यावसायिक लाइसेंस अनुमति निषिद्ध प्रतिबंधित ห้าม อนุญาต ลิขสิทธิ์ พาณิชย์
"""
_ENGLISH_WORDS = """
    the a an of to is are be for and or in on with this that it as by from not at if which we
    can all use used uses has have was will its you when each one file code module
"""
_ENGLISH = frozenset(_ENGLISH_WORDS.split())
_FOREIGN_WORDS = """
    der die das und ist nicht fur mit von den dem ein eine wird werden auf zu nur ohne le la les
    des et est pas pour dans une du sur avec sans ce cette ne que qui el los las una para por
    con sin se del esta este lo su solo il di che non per della questo gli senza os da em nao
    uso um uma het een van niet voor door zonder en ett och inte ikke og til av ej endast nie
    jest na przez tylko bez ve bu icin degil bir ile ja ei tama vain saa yang dan untuk ini
    tidak dengan oleh nem csak ez nu pentru si hii
"""
_FOREIGN = frozenset(_FOREIGN_WORDS.split())
_NAMED = re.compile(
    r"^[^\w\n]*(?:@?\w*author\w*|by|created|date|e-?mail|maintain\w+|contribut\w+|contact|copyright|作者"
    r"|时间|日期|"
    r"创建\w*|©|\(c\))[^.。]*$",
    re.M,
)
LATIN_END = 0x24F


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
        text = WORD.sub(_unmixed, unicodedata.normalize("NFKC", text))
    return text.lower()


def _visible(letter: re.Match[str]) -> str:
    return "" if unicodedata.category(letter[0]) in ("Mn", "Cf") else letter[0]


def _unmixed(word: re.Match[str]) -> str:
    if word[0].isascii():
        return word[0]
    latin = word[0].translate(_LOOKALIKES)
    return latin if latin.isascii() and len(latin) > 1 else word[0]


@lru_cache(maxsize=1)
def foreign_terms() -> re.Pattern[str]:
    """Return a pattern of the words by which other languages speak of terms, folded."""
    stems = "|".join(sorted(set(fold(_FOREIGN_STEMS).split())))
    others = "|".join(map(re.escape, fold(_OTHER_SCRIPTS).split()))
    return re.compile(rf"\b(?:nicht|niet|non|ikke|inte|icke|nie)?-?(?:{stems})|{others}")


def is_foreign(text: str) -> bool:
    """Return whether a text, folded, has more small words of other languages than English ones."""
    words = re.findall(r"[^\W\d_]+", text)
    foreign, english = len(_FOREIGN.intersection(words)), len(_ENGLISH.intersection(words))
    return foreign > english or sum(ord(letter) > LATIN_END for letter in text) * 2 > len(text)


def is_unreadable(paragraph: str, text: str, in_code: bool, in_comment: bool) -> bool:
    """Return whether a text speaks of terms in another language, or may do so.

    Args:
        paragraph: the text as it stands.
        text: the same, folded.
        in_code: it stands where only known words of terms count.
        in_comment: it stands where strange words are enough.
    """
    text = re.sub(r"(?<!\S)\S+@\S+", " ", text)
    words = re.findall(r"[^\W\d_]+", text)
    foreign = len(_FOREIGN.intersection(words))
    english = len(_ENGLISH.intersection(words))
    alien = not text.isascii() or (english <= 1 and not paragraph.isascii())
    if (foreign >= max(english, in_code) or alien) and foreign_terms().search(text):
        return True
    if in_code:
        return False
    unnamed = re.findall(
        r"[^\W\d_]{3,}", _NAMED.sub("", fold(paragraph))
    )  # shorter: a symbol, a name
    letters = sum(ord(letter) > LATIN_END for word in unnamed for letter in word)
    said = re.findall(r"\w+", _NAMED.sub("", paragraph))
    accented = sum(bool(re.search(r"[^\W\d_\x00-\x7f]", word)) for word in said)
    strange = in_comment and accented >= 2 and not english
    return letters > 3 or strange or (foreign >= 3 and foreign > english)
