"""Whether a text is about code.

Before the first statement of a file people say what it holds, or under which terms. What restricts
is said in words without end; what describes code has words of programming in it. A text there that
has none is not understood, and what is not understood is not taken for harmless.
"""

from __future__ import annotations

import re

_STEMS = """
    abstract accelerat accum activ adapt add algorithm alias align alloc api appl arch arg array
    assert async atomic attention attr audio auto autograd axis backend backward base bash batch
    bench benchmark bert bias bind bit block boltzmann bound broadcast buffer bug builder cache
    call cast channel check checkpoint chunk class cluster cmake cnn code collect color column
    combin command comment common compar compat compil complex comput concat config const
    construct contain context conv convert core count cpu create created cuda custom data
    dataset debug decod decode decor default defin deprecat dequant descriptor design detail dev
    device dict diffus dim dispatch divid doc dot dropout dtype dummy dump dynamic element embed
    empty enabl encod engine entry enum env error eval example except execut experiment explicit
    export extend extension feature file filter fix flag flash float flow format forward fp
    fragment frame function functor fus gan gate gather gemm generat generic global gpt gpu grad
    gradient graph grid group guard handle hardware hash header helper hidden hook host http id
    image implement import includ index infer init inline inner input insert inspect install
    instance instruct int integ interface invok io item iterat json kernel key kv label language
    latency launch layer layout lazy length level lib line linear link lint list llm load local
    lock log logic loop loss low lstm machine macro main map mask math matmul matrix max mean
    memory merg meta method metric migrat min mixin ml mlp mode model modif module moe mul multi
    mutex mypy name namespace native nest network neural node noise norm null num nvidia object
    op oper optim option orchestrat order output overload overrid pack pad page parallel param
    pars part pass patch path perf performance persist pipelin pipeline pixel placeholder plot
    plug point pool port pos predict prefill prefix preproc print process profiler prompt proto
    proxy pseudocode pull push pybind pyre python pytorch quant quer queue random range rank
    read readme record recurs reduc ref refactor region regist registr regular render repeat
    replac repo request reset residual resnet resolv result return reuse rewrit rms rnn rope
    rotary rout row rule runtime sampl save scal scan schedul schema scheme scope scor script
    search section seed segment select self sequence serial server setting setup shape shard
    shared shim simulat sinkhorn size skip slice slot smem softmax sort source spars sparse spec
    speech split stack stage state static step store strategy stream stride string struct stub
    style sub sudo suite sum swap switch symbol sync syntax system table tag target task
    template tensor test text thread tile time tip tmp todo token tool top torch total trace
    track train transform transpose triton tune tuple type unet unit update upstream url util
    utilit vae value variable variant vector verif video virtual vision vit vocab wait warmup
    warp weight width window work workflow wrap write yaml zero
"""
_ENDINGS = """
    ied dings ders s es ed d ing er ers r or ors ion ions ation ations e able ible ity al ly
    ment ments ized ised ize ise izing y ies ive ance ence ant ent ness ic ics ned ning ted ting
    ped ping ged ging ms ine ines ure ures ur
"""
_TECHNICAL = re.compile(
    rf"\b(?:re|de|un|pre|post|sub|multi|non)?-?(?:{'|'.join(_STEMS.split())})"
    rf"(?:{'|'.join(_ENDINGS.split())})?\b"
)
_SYMBOL = re.compile(
    r"\d+x\d+|\d\.\d|::|\w_\w|\w\(|https?:|\w\.(?:py|com|org|md|txt|h|cu|cpp|io)\b"
    r"|[a-z][A-Z]\w|@\w+|=|\$ |\w/\w"
    r"|\b[A-Z]{2,}\d|(?i:\b(?:author|date|created|written|by|maintainer|email)s?\s*(?::|by\b|on\b))"
    r"|(?i:\b(?:based on|adapted|taken from|derived from|borrowed from|forked from"
    r"|inspired by|thanks to)\b)"
)
_WORD = re.compile(r"[^\W\d_]{2,}")
_CREDIT = re.compile(
    r"(?i)\b(?:modified|maintained|supported|written|developed|contributed|implemented|created|added)"
    r" (?:and \w+ )?by\b"
)
_TITLE = 3  # words
_FEW = 6  # words for which one of programming is enough


def describes(text: str, comment: bool) -> bool:
    """Return whether a text before the first statement is about code, by its words.

    Args:
        text: one paragraph.
        comment: it is a comment, where terms stand more often than in a docstring.
    """
    words = _WORD.findall(text)
    sentence = text.rstrip()[-1:] in ".!" and len(words) > _TITLE
    if len(words) < 2 or text.rstrip().endswith(":") or not (comment or sentence):
        return True  # a name, a line of dashes, a heading
    if _CREDIT.search(text):
        return True
    return technical_words(text) >= (2 if comment and len(words) > _FEW else 1)


def technical_words(text: str) -> int:
    """Return how many different words of programming, and signs of code, a text has."""
    found = {match[0] for match in _TECHNICAL.finditer(text.lower())}
    return len(found) + len(_SYMBOL.findall(text))
