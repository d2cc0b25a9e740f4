"""How model families write a fill-in-the-middle example: their markers and their order.

PSM is prefix, suffix, middle; SPM is suffix, prefix, middle (Bavarian et al. 2022,
https://arxiv.org/abs/2207.14255). In families with three markers SPM is that paper's second
variant, in which the prefix stands behind the middle's marker so that the model writes on from it.

============== ====================================================================================
starcoder2     https://arxiv.org/abs/2402.19173 and the model card of StarCoder; trained on both
               orders. SPM as in BigCode's trainer and MultiPL-E (``SPMv2``).
qwen-coder     README of Qwen2.5-Coder: PSM. No SPM is published: the order here is StarCoder's.
deepseek-coder README of DeepSeek-Coder, https://arxiv.org/abs/2401.14196: trained on PSM. No SPM
               is published: the order here is StarCoder's. Its markers are called begin, hole and
               end, and the middle follows ``end``.
codellama      llama.com/docs/model-cards-and-prompt-formats/meta-code-llama and
               ``CodeLlamaTokenizer`` of `transformers`: both orders. The spaces are part of the
               markers' SentencePiece pieces; the space that SentencePiece itself puts before a
               text is not written.
codestral      ``encode_fim`` of `mistral-common` 1.13: SPM only, and no marker before the middle.
============== ====================================================================================

A tokenizer adds what begins a text (``<s>``); it must know the markers as single tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

FamilyName = Literal["starcoder2", "qwen-coder", "deepseek-coder", "codellama", "codestral"]
Mode = Literal["psm", "spm"]


@dataclass(frozen=True)
class Family:
    """One family's way to write an example.

    Attributes:
        prompt: the text before the completion, by mode, with ``{prefix}`` and ``{suffix}``.
        end: what the model writes after the middle.
    """

    prompt: Mapping[Mode, str]
    end: str


def _three_markers(prefix: str, suffix: str, middle: str, end: str) -> Family:
    psm = f"{prefix}{{prefix}}{suffix}{{suffix}}{middle}"
    return Family({"psm": psm, "spm": f"{prefix}{suffix}{{suffix}}{middle}{{prefix}}"}, end)


_BAR = "\uff5c"  # DeepSeek writes its markers with the full-width bar
_BEGIN, _HOLE, _END = (f"<{_BAR}fim▁{name}{_BAR}>" for name in ("begin", "hole", "end"))
_STOP = f"<{_BAR}end▁of▁sentence{_BAR}>"

FAMILIES: dict[FamilyName, Family] = {
    "starcoder2": _three_markers(
        "<fim_prefix>", "<fim_suffix>", "<fim_middle>", end="<|endoftext|>"
    ),
    "qwen-coder": _three_markers(
        "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", end="<|endoftext|>"
    ),
    "deepseek-coder": _three_markers(_BEGIN, _HOLE, _END, end=_STOP),
    "codellama": Family(
        {
            "psm": "<PRE> {prefix} <SUF>{suffix} <MID>",
            "spm": "<PRE> <SUF>{suffix} <MID> {prefix}",
        },
        end=" <EOT>",
    ),
    "codestral": Family({"spm": "[SUFFIX]{suffix}[PREFIX]{prefix}"}, end="</s>"),
}

MARKERS = (
    *("<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<fim_pad>", "<file_sep>", "<repo_name>"),
    *("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|fim_pad|>", "<|file_sep|>"),
    *("<|repo_name|>", "<|endoftext|>", _BEGIN, _HOLE, _END, _STOP),
    *("<PRE>", "<SUF>", "<MID>", "<EOT>", "[PREFIX]", "[SUFFIX]", "[MIDDLE]", "<s>", "</s>"),
)
"""Texts that a family's tokenizer reads as a marker; code that holds one is in no view."""


def find_marker(text: str) -> str | None:
    """Return the first of `MARKERS` that a text holds, or None."""
    return next((marker for marker in MARKERS if marker in text), None)


def render_fim(row: Mapping[str, str], family: FamilyName, mode: Mode) -> dict[str, str]:
    """Return an example as a model of this family is trained on it.

    Args:
        row: has ``prefix``, ``middle`` and ``suffix``.

    Returns:
        ``prompt``, and ``completion``: the middle and the family's end marker. TRL adds the
        tokenizer's own end token unless the completion ends with it.

    Raises:
        ValueError: the family has no such mode.
    """
    form = FAMILIES[family]
    if mode not in form.prompt:
        raise ValueError(f"{family} has no mode {mode}; it has {', '.join(form.prompt)}")
    prompt = form.prompt[mode].format(prefix=row["prefix"], suffix=row["suffix"])
    return {"prompt": prompt, "completion": row["middle"] + form.end}
