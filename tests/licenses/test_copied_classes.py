"""Classes copied from copyleft projects; the table's own code is in no test."""

import re

import pytest
from license_samples import APACHE, Judge

from curate.licenses.text import copies
from curate.step import Drop

CLASS = '''
class Mix(nn.Module):
    """Mixes two inputs."""

    def __init__(self, width, depth=2, gain=1.0):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.gain = gain  # of the second input

    def forward(self, x, y):
        for layer in self.layers:
            x = layer(x) + self.gain * torch.roll(y, 1, dims=-1)
        return x * torch.sigmoid(y) + torch.softmax(x - y, dim=-1)
'''
HEAD = "# Licensed under the Apache License, Version 2.0\nimport torch\nfrom torch import nn\n"


@pytest.fixture
def table(monkeypatch):
    ((digest, name),) = copies.class_digests(CLASS)
    original = copies.Original(name, "https://example.org/mix", "GPL-3.0-only")
    monkeypatch.setattr(copies, "_table", lambda: {digest: original})
    monkeypatch.setattr(copies, "_names", lambda: frozenset({name}))
    return original


@pytest.mark.parametrize(
    "text",
    [
        CLASS,
        HEAD + CLASS,
        CLASS.replace('    """Mixes two inputs."""\n', "    # mixes\n"),
        CLASS.replace("width, depth=2, gain=1.0", "\n        width,\n        depth=2, gain=1.0"),
    ],
)
def test_layout_and_words_do_not_count(table, text):
    assert copies.originals(text) == [table]


@pytest.mark.parametrize(
    "text",
    [
        CLASS.replace("Mix", "Blend"),
        CLASS.replace("depth=2", "depth=3"),
        CLASS + ")",
        "class Mix(nn.Module):\n    pass\n",
        "__global__ void k() {} // class Mix\n",
        "",
    ],
)
def test_another_class_is_no_copy(table, text):
    assert copies.originals(text) == []


def test_the_license_of_the_original_joins(table, judge: Judge):
    dropped = judge({"LICENSE": APACHE, "pkg/a.py": HEAD + CLASS})
    assert isinstance(dropped, Drop)
    assert dropped.reason == "license_denied"
    assert dropped.evidence["expression"] == "Apache-2.0 AND GPL-3.0-only"
    assert dropped.evidence["copied"] == ["class Mix of https://example.org/mix"]
    kept = judge({"LICENSE": APACHE, "pkg/a.py": HEAD + CLASS.replace("Mix", "Blend")})
    assert not isinstance(kept, Drop)
    assert kept["license"] and kept["license"]["expression"] == "Apache-2.0"


def test_the_shipped_table():
    lines = copies.TABLE.read_text().splitlines()
    assert len(lines) == len({line.split("\t")[0] for line in lines}) > 100
    assert lines == sorted(lines)
    form = re.compile(r"[0-9a-f]{16}\t\w+\thttps://github\.com/\S+\tA?GPL-3\.0-only")
    assert all(form.fullmatch(line) for line in lines)
