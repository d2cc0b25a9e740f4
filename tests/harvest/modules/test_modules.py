from pathlib import Path

import pytest

from curate.harvest.modules.modules import Modules
from curate.harvest.python import package as packages
from curate.harvest.python.package import Package
from curate.rows import Row, make_origin, make_row
from curate.step import Context, Drop, Keep


def file_row(path: str, text: str) -> Row:
    return make_row("file", text, make_origin("local", path=path), text=text)


def found(text: str) -> list[tuple[str, int, int]]:
    outcome = Modules(step="modules").apply(file_row("a.py", text), Context())
    assert isinstance(outcome, Keep), outcome
    return [
        (r["origin"]["symbol"], r["origin"]["start_line"], r["origin"]["end_line"])
        for r in outcome.rows
    ]


def test_finds_bases_through_every_kind_of_import() -> None:
    text = """\
import torch
import torch.nn as tnn
from torch import nn as layers
from torch.nn import Module as Base, Sequential

class A(torch.nn.Module):
    def forward(self, x): return x
class B(tnn.Linear):
    def forward(self, x): return x
class C(layers.Module):
    def forward(self, x): return x
class D(Base):
    def forward(self, x): return x
class E(D):
    def forward(self, x): return x
"""
    assert [name for name, _, _ in found(text)] == ["A", "B", "C", "D", "E"]


def test_leaves_what_is_no_module_or_has_no_forward() -> None:
    text = """\
import torch
from torch import nn
class Plain:
    def forward(self, x): return x
class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x
class Holder(nn.Module):
    pass
class Loop(Loop):
    def forward(self, x): return x
"""
    outcome = Modules(step="modules").apply(file_row("a.py", text), Context())
    assert outcome == Drop("no_modules")


def test_decorators_belong_to_the_class() -> None:
    text = """\
from torch import nn

@register
class A(nn.Module):
    @property
    def x(self): return 1

    @torch.jit.ignore
    def forward(self, x):
        return x
"""
    assert found(text) == [("A", 3, 10)]


def test_row_keeps_origin_license_and_parent() -> None:
    row = file_row("pkg/a.py", "from torch import nn\nclass A(nn.Module):\n    def forward(s): 0\n")
    row["license"] = {"expression": "MIT"}
    outcome = Modules(step="modules").apply(row, Context())
    assert isinstance(outcome, Keep)
    (module,) = outcome.rows
    assert (module["kind"], module["entry_point"]) == ("module", "A")
    assert module["text"] == "class A(nn.Module):\n    def forward(s): 0"
    assert module["parent_ids"] == [row["id"]]
    assert module["license"] == {"expression": "MIT"}
    assert module["origin"]["path"] == "pkg/a.py"


def test_syntax_error_names_the_line() -> None:
    outcome = Modules(step="modules").apply(file_row("a.py", "x = 1\nclass (:\n"), Context())
    assert outcome == Drop("syntax_error", {"line": 2})


def test_bases_in_sibling_files(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "pkg/__init__.py": "",
        "pkg/base.py": "from torch import nn\nclass Base(nn.Module): pass\n",
        "pkg/a.py": "from .base import Base\nclass A(Base):\n    def forward(self, x): return x\n",
        "pkg/b.py": "from pkg import base\nclass B(base.Base):\n    def forward(self): 0\n",
    }
    package = Package(tuple(files), files.__getitem__)
    monkeypatch.setattr(packages, "_open_package", lambda *_: package)
    for path, symbol in (("pkg/a.py", "A"), ("pkg/b.py", "B")):
        row = file_row(path, files[path])
        row["origin"]["artifact_sha256"] = "0" * 64
        outcome = Modules(step="modules").apply(row, Context(cache=Path("unused")))
        assert isinstance(outcome, Keep)
        assert outcome.rows[0]["origin"]["symbol"] == symbol
