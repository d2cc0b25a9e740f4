"""What a program's file may not do."""

import pytest

from curate.generator.text.check import check
from curate.generator.unprintable import Unprintable


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import requests", "import requests"),
        ("from curate.step import Step", "import curate.step"),
        ("def f(a):\n    return a + b", "unbound name b"),
        ("def f(:", "syntax error"),
    ],
)
def test_check_refuses(text, message):
    with pytest.raises(Unprintable, match=message):
        check(text)
