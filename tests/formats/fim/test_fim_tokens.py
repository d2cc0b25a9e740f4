import pytest

from curate.formats.fim.fim_tokens import FAMILIES, MARKERS, find_marker, render_fim

ROW = {"prefix": "P{}", "middle": "M", "suffix": "{S}"}
BAR = "\uff5c"

EXPECTED = {
    ("starcoder2", "psm"): "<fim_prefix>P{}<fim_suffix>{S}<fim_middle>",
    ("starcoder2", "spm"): "<fim_prefix><fim_suffix>{S}<fim_middle>P{}",
    ("qwen-coder", "psm"): "<|fim_prefix|>P{}<|fim_suffix|>{S}<|fim_middle|>",
    ("qwen-coder", "spm"): "<|fim_prefix|><|fim_suffix|>{S}<|fim_middle|>P{}",
    ("deepseek-coder", "psm"): "<|fim▁begin|>P{}<|fim▁hole|>{S}<|fim▁end|>".replace("|", BAR),
    ("deepseek-coder", "spm"): "<|fim▁begin|><|fim▁hole|>{S}<|fim▁end|>P{}".replace("|", BAR),
    ("codellama", "psm"): "<PRE> P{} <SUF>{S} <MID>",
    ("codellama", "spm"): "<PRE> <SUF>{S} <MID> P{}",
    ("codestral", "spm"): "[SUFFIX]{S}[PREFIX]P{}",
}
ENDS = {
    "starcoder2": "<|endoftext|>",
    "qwen-coder": "<|endoftext|>",
    "deepseek-coder": "<|end▁of▁sentence|>".replace("|", BAR),
    "codellama": " <EOT>",
    "codestral": "</s>",
}


def test_every_family_and_mode_is_listed_here() -> None:
    offered = {(name, mode) for name, family in FAMILIES.items() for mode in family.prompt}
    assert offered == EXPECTED.keys()


@pytest.mark.parametrize(("family", "mode"), EXPECTED)
def test_prompt_and_completion(family: str, mode: str) -> None:
    assert render_fim(ROW, family, mode) == {
        "prompt": EXPECTED[family, mode],
        "completion": "M" + ENDS[family],
    }


def test_codestral_has_no_psm() -> None:
    with pytest.raises(ValueError, match="codestral has no mode psm; it has spm"):
        render_fim(ROW, "codestral", "psm")


def test_every_marker_that_is_written_is_looked_for() -> None:
    empty = {"prefix": "", "middle": "", "suffix": ""}
    for family, mode in EXPECTED:
        example = render_fim(empty, family, mode)
        left = example["prompt"] + example["completion"]
        for marker in MARKERS:
            left = left.replace(marker, "")
        assert not left.strip()


@pytest.mark.parametrize("marker", MARKERS)
def test_markers_are_found(marker: str) -> None:
    assert find_marker(f"x = 1  # {marker}\n") == marker


def test_code_is_no_marker() -> None:
    assert find_marker("x = a < b > c  # <prefix>, [prefix], < s>\ny = d[0][SUF]\n") is None
