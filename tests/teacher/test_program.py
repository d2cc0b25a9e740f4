import pytest

from curate.teacher.program import program_of, without_thinking

CODE = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    pass\n"
OTHER = "import triton\n\n\n@triton.jit\ndef kernel(x):\n    pass\n"

STYLES = {
    "python": f"Here you are:\n\n```python\n{CODE}```\nIt is fast.",
    "triton": f"```triton\n{CODE}```",
    "no word": f"```\n{CODE}```",
    "capitals and a title": f'```Python title="new.py"\n{CODE}```',
    "braces": f"```{{.python}}\n{CODE}```",
    "tildes": f"~~~python\n{CODE}~~~",
    "four backticks": f"````python\n{CODE}````\n",
    "not closed": f"```python\n{CODE}",
    "closed on the last line of code": f"```python\n{CODE.rstrip()}```\nDone.",
    "after words": f"Sure! ```python\n{CODE}```",
    "CRLF": f"```python\n{CODE}```\n".replace("\n", "\r\n"),
    "in a list": "1. The code:\n\n   ```python\n"
    + "".join(f"   {line}\n" if line else "\n" for line in CODE.splitlines())
    + "   ```\n",
    "quoted": "".join(f"> {line}\n" for line in f"```python\n{CODE}```".splitlines()),
    "nothing but code": CODE,
    "the second of two": f"```python\n{OTHER}```\nand\n```python\n{CODE}```",
    "the last of two drafts": f"```python\n{CODE}x = 1\n```\nBetter:\n```python\n{CODE}```",
    "a shell command after it": f"```python\n{CODE}```\n```bash\npip install triton\n```",
    "thinking": f"<think>\n```python\nclass ModelNew: 1\n```?\n</think>\n\n```python\n{CODE}```",
    "thinking that began in the prompt": f"I could.\n</think>\n```python\n{CODE}```",
    "a longer fence around a shorter": f"````python\n{CODE}````",
}


@pytest.mark.parametrize("style", STYLES)
def test_the_program_is_found_in_a_fence_of_every_style(style: str) -> None:
    assert program_of(STYLES[style]) == CODE


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "I'm sorry, but I can't help with that.",
        "```bash\npip install triton\n```",
        "```python\n```",
        "Write a class ModelNew that calls a kernel.",
        "<think>```python\nclass ModelNew: pass\n```",
    ],
)
def test_an_answer_without_code_gives_none(answer: str) -> None:
    assert program_of(answer) is None


def test_code_without_the_entry_point_is_for_the_judge_to_find_wanting() -> None:
    assert (
        program_of(f"```python\nx = 1\n```\n```python\n{OTHER}```\n```sh\n{OTHER}{OTHER}```")
        == OTHER
    )


def test_a_shorter_fence_inside_a_program_does_not_close_it() -> None:
    text = f'"""\n```\nexample\n```\n"""\n{CODE}'
    assert program_of(f"````python\n{text}````") == text


def test_an_answer_without_its_thinking_goes_back_into_a_conversation() -> None:
    assert without_thinking("<think>hm</think>\n\nYes.").strip() == "Yes."
    assert without_thinking("<think>hm") == ""
    assert without_thinking("Yes.") == "Yes."
