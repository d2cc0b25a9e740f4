import textwrap

import pytest

from curate.harvest.closure import MODEL, Closure
from curate.harvest.python.package import Definition, Package
from curate.harvest.python.slices import NotClosed, StandaloneFile, close
from curate.rows import Row, make_origin, make_row
from curate.step import Context, Drop, Keep


def closed(files: dict[str, str], path: str = "pkg/a.py", symbol: str = "A") -> StandaloneFile:
    texts = {name: textwrap.dedent(text) for name, text in files.items()}
    texts.setdefault("pkg/__init__.py", "")
    target = Definition(path, symbol)
    result = close(Package(tuple(texts), texts.__getitem__), target, {target: MODEL})
    compile(result.text, "<closed>", "exec")
    return result


def loss(files: dict[str, str]) -> tuple[str, dict[str, object]]:
    with pytest.raises(NotClosed) as caught:
        closed(files)
    return caught.value.reason, caught.value.evidence


MODULE = """
from torch import nn
{imports}
class A(nn.Module):
    def forward(self, x):
        return {body}
"""


def module(imports: str, body: str) -> str:
    return MODULE.format(imports=imports, body=body)


def test_takes_what_is_needed_and_nothing_else() -> None:
    result = closed(
        {
            "pkg/a.py": """
            import math
            import os
            import torch
            from torch import nn
            import torch.nn.functional as F

            SCALE = math.pi
            UNUSED = 3

            def helper(x):
                return F.relu(x) * SCALE

            class Other(nn.Module):
                pass

            class A(nn.Module):
                def forward(self, x):
                    return helper(x)
            """
        }
    )
    assert result.text == (
        "import math\nimport torch.nn.functional as F\nfrom torch import nn\n\n\n"
        "SCALE = math.pi\n\n\n"
        "def helper(x):\n    return F.relu(x) * SCALE\n\n\n"
        "class Model(nn.Module):\n    def forward(self, x):\n        return helper(x)\n"
    )
    assert result.taken == []


def test_follows_relative_absolute_and_reexported_imports() -> None:
    result = closed(
        {
            "pkg/__init__.py": "from .ops import *\n",
            "pkg/ops/__init__.py": "from .act import swish as act, gate\n",
            "pkg/ops/act.py": "import torch\n\ndef swish(x):\n    return x * torch.sigmoid(x)\n\n\n"
            "def gate(x):\n    return swish(x)\n",
            "pkg/b.py": "K = 2\n",
            "pkg/a.py": module(
                "from pkg import gate\nfrom .ops import act as f\nfrom . import b as consts",
                "gate(f(x)) * consts.K",
            ),
        }
    )
    assert "return gate(swish(x)) * K" in result.text
    assert result.text.index("def swish") < result.text.index("def gate")
    assert result.taken == ["pkg/b.py:1-1", "pkg/ops/act.py:3-4", "pkg/ops/act.py:7-8"]


def test_src_layout_and_sdist_folder() -> None:
    files = {
        "p-1.0/src/pkg/__init__.py": "",
        "p-1.0/src/pkg/b.py": "K = 2\n",
        "p-1.0/src/pkg/a.py": module("from pkg.b import K", "x * K"),
    }
    assert "K = 2" in closed(files, "p-1.0/src/pkg/a.py").text


def test_the_class_is_renamed_everywhere_but_not_attributes_or_strings() -> None:
    text = closed(
        {
            "pkg/a.py": """
            from torch import nn
            class A(nn.Module):
                def __init__(self, other: 'A' = None):
                    super(A, self).__init__()
                    self.A = 'A'
                def forward(self, x):
                    return A.scale(x, A=self.A)
                @staticmethod
                def scale(x, **k):
                    return x
            """
        }
    ).text
    assert "super(Model, self)" in text
    assert "self.A = 'A'" in text
    assert "Model.scale(x, A=self.A)" in text


def test_two_objects_of_one_name_get_two_names() -> None:
    text = closed(
        {
            "pkg/b.py": "def act(x):\n    return x + 1\n\ndef twice(x):\n    return act(act(x))\n",
            "pkg/a.py": module(
                "from .b import twice\ndef act(x):\n    return x - 1\n", "act(twice(x))"
            ),
        }
    ).text
    names: dict[str, object] = {}
    exec(text.replace("nn.Module", "object").replace("from torch import nn\n", ""), names)
    assert names["Model"]().forward(0) == 1  # type: ignore[operator]


def test_a_rename_that_a_local_name_would_catch_is_refused() -> None:
    files = {
        "pkg/b.py": "def act(x):\n    return x\n",
        "pkg/a.py": module("from .b import act as f\n", "(lambda act: f(act))(x)"),
    }
    assert loss(files) == ("name_collision", {"names": ["act"]})


def test_decorators_that_compute_nothing_go_and_others_stay() -> None:
    text = closed(
        {
            "pkg/a.py": """
            import functools
            import torch
            from torch import nn
            from .registry import register_model

            @torch.jit.script
            def f(x):
                return x

            @functools.lru_cache
            def size():
                return 3

            @register_model("a")
            class A(nn.Module):
                @torch.no_grad()
                def forward(self, x):
                    return f(x) * size()
            """
        }
    ).text
    assert "register_model" not in text and "jit" not in text
    assert "@functools.lru_cache\ndef size" in text
    assert "@torch.no_grad()\n    def forward" in text


def test_annotations_that_cannot_be_had_are_dropped() -> None:
    text = closed(
        {
            "pkg/a.py": """
            from typing import TYPE_CHECKING, Optional
            import scipy.sparse as sp
            from torch import Tensor, nn
            if TYPE_CHECKING:
                from .cfg import Config

            class A(nn.Module):
                size: sp.csr_array
                def __init__(self, cfg: Config = None, *rest: Config, n: Optional[int] = 1):
                    super().__init__()
                def forward(self, x: Tensor, y: sp.csr_array) -> sp.csr_array:
                    return x
            """
        }
    ).text
    assert "def __init__(self, cfg=None, *rest, n: Optional[int] = 1):" in text
    assert "def forward(self, x: Tensor, y):" in text
    assert "size: object" in text
    assert "scipy" not in text


def test_future_annotations_are_kept() -> None:
    files = {"pkg/a.py": "from __future__ import annotations\n" + module("", "x")}
    assert closed(files).text.startswith("from __future__ import annotations\n\nfrom torch")


def test_the_fallback_of_a_missing_library_is_used() -> None:
    text = closed(
        {
            "pkg/a.py": """
            from torch import nn
            try:
                from apex import fused
                HAS_APEX = True
            except ImportError:
                HAS_APEX = False

            class A(nn.Module):
                def forward(self, x):
                    return fused(x) if HAS_APEX else x
            """
        }
    ).text
    assert "HAS_APEX = False" in text
    assert "import fused" not in text


def test_an_optional_name_of_torch_keeps_its_fallback() -> None:
    text = closed(
        {
            "pkg/a.py": """
            from torch import nn
            try:
                from itertools import ifilterfalse
            except ImportError:
                from itertools import filterfalse as ifilterfalse

            class A(nn.Module):
                def forward(self, x):
                    return list(ifilterfalse(None, x))
            """
        }
    ).text
    assert "except ImportError:\n    from itertools import filterfalse" in text


def test_windows_line_ends_become_plain_ones() -> None:
    assert "\r" not in closed({"pkg/a.py": module("", "x").replace("\n", "\r\n")}).text


def test_submodules_of_torch_stay_imported() -> None:
    text = closed(
        {
            "pkg/a.py": """
            import torch
            import torch.utils.checkpoint
            class A(torch.nn.Module):
                def forward(self, x):
                    return torch.utils.checkpoint.checkpoint(torch.relu, x)
            """
        }
    ).text
    assert "import torch\nimport torch.utils.checkpoint\n" in text


@pytest.mark.parametrize(
    ("imports", "body", "expected"),
    [
        ("import scipy as sp", "sp.abs(x)", ("external_import", {"modules": ["scipy"]})),
        ("", "missing(x)", ("unresolved_name", {"names": ["missing"]})),
        ("from .gone import f", "f(x)", ("unresolved_name", {"names": ["f"]})),
        (
            "import torch.distributed as dist",
            "dist.all_reduce(x)",
            ("external_import", {"modules": ["torch.distributed"]}),
        ),
        (
            "import torch",
            "torch.ops.mine.f(x)",
            ("external_import", {"modules": ["torch.ops"]}),
        ),
        ("import os", "os.system('id')", ("external_import", {"modules": ["os.system"]})),
    ],
)
def test_what_cannot_stand_alone(
    imports: str, body: str, expected: tuple[str, dict[str, object]]
) -> None:
    assert loss({"pkg/a.py": module(imports, body)}) == expected


def module_row(text: str) -> Row:
    origin = make_origin("local", path="a.py", symbol="A", start_line=3, end_line=5)
    return make_row("module", text, origin, text=text, entry_point="A")


def test_step_gives_a_module_row_named_model() -> None:
    row = module_row(module("", "x"))
    outcome = Closure(step="closure").apply(row, Context())
    assert isinstance(outcome, Keep)
    (made,) = outcome.rows
    assert (made["kind"], made["entry_point"], made["origin"]["symbol"]) == ("module", "Model", "A")
    assert made["parent_ids"] == [row["id"]]


def test_step_refuses_a_long_file() -> None:
    outcome = Closure(step="closure", max_lines=3).apply(module_row(module("", "x")), Context())
    assert outcome == Drop("too_large", {"lines": 6, "max_lines": 3})
