import pytest

from curate.generator.text.container import slice_reference, without_modules
from curate.generator.unprintable import Unprintable

REFERENCE = '''
import math
import torch
import torch.nn as nn
from typing import Optional, List

WIDTH = 4
UNUSED = 5


def scaled(x):
    return x * UNUSED


class Part(nn.Module):
    """A part."""

    def __init__(self, width):
        super().__init__()
        # its only parameter
        self.weight = nn.Parameter(torch.empty(width))
        self.reset()

    def reset(self):
        nn.init.normal_(self.weight, std=1 / math.sqrt(WIDTH))

    # what it computes
    def forward(self, x):
        return scaled(x)


class Model(nn.Module):
    kind, word = "Model", "scaled"

    def __init__(self, width: int = WIDTH):
        super(Model, self).__init__()
        self.part = Part(width)

    def helper(self, x):
        return x

    def forward(
        self,
        x: torch.Tensor,
        bias: Optional[torch.Tensor] = None,
    ) -> torch.Tensor:
        """Run."""
        return self.helper(self.part(x))


def get_inputs():
    return [torch.randn(WIDTH)]
'''


def test_the_container_holds_what_construction_needs_and_no_more():
    found = slice_reference(REFERENCE)
    kept = "\n".join([*found.imports, *found.preamble, found.class_text])
    for wanted in ("WIDTH = 4", "class Part", "def reset", "# its only parameter", "import math"):
        assert wanted in kept
    for gone in ("UNUSED", "def scaled", "def forward", "def helper", "get_inputs", "List"):
        assert gone not in kept
    assert "# what it computes" not in kept
    assert found.inputs == ["x", "bias"]


def test_the_class_is_renamed_where_it_names_itself():
    found = slice_reference(REFERENCE)
    assert found.class_text.startswith("class ModelNew(nn.Module):")
    assert "super(ModelNew, self)" in found.class_text
    assert 'kind, word = "Model", "scaled"' in found.class_text


def test_forward_keeps_its_signature_as_written():
    head = slice_reference(REFERENCE).forward
    assert head.splitlines()[0] == "    def forward("
    assert "bias: Optional[torch.Tensor] = None," in head
    assert head.endswith(") -> torch.Tensor:")
    assert "from typing import Optional" in slice_reference(REFERENCE).imports


def test_a_constructor_that_runs_a_module_keeps_forward_methods():
    probing = REFERENCE.replace(
        "self.part = Part(width)", "self.part = Part(width)\n        self.part(torch.zeros(width))"
    )
    preamble = "\n".join(slice_reference(probing).preamble)
    assert "return scaled(x)" in preamble
    assert "def scaled" in preamble


def test_a_class_that_computes_a_parameter_keeps_its_forward():
    found = slice_reference("""
class Unit(nn.Module):
    def forward(self, weight):
        return weight / weight.norm()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        nn.utils.parametrize.register_parametrization(self.linear, "weight", Unit())

    def forward(self, x):
        return self.linear(x)
""")
    assert "return weight / weight.norm()" in "\n".join(map(str, vars(found).values()))


def test_an_inherited_forward_gives_the_signature():
    found = slice_reference(REFERENCE + "\n\nclass Child(Model):\n    pass\n", "Child")
    assert found.class_text == "class ModelNew(Model):\n    pass"
    assert found.inputs == ["x", "bias"]


@pytest.mark.parametrize("source", ["", "class Model:\n    pass\n"])
def test_no_class_or_no_forward_is_refused(source):
    with pytest.raises(Unprintable):
        slice_reference(source)


MADE = """
class Model(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.plain = Chosen(
            name,
        )
        self.told = Chosen(name)
        self.told.extra = 1
        self.found = Chosen(name)
        self.share = 0.5; self.second = Chosen(name)
        local = Chosen(name)
        self.local = local
        self.linear = nn.Linear(4, 4)
        self.size = getattr(self, "found").size

    def forward(self, x):
        return self.plain(self.linear(x))
"""


def test_modules_that_are_only_made_can_be_left_out():
    names = {"plain", "told", "found", "second", "local"}  # and not those that hold something
    left = without_modules(MADE, "Model", names)
    gone = set(MADE.splitlines()) - set(left.splitlines())
    assert {line.strip() for line in gone} == {"self.plain = Chosen(", "name,", ")"}
    assert without_modules(MADE, "Model", set()).strip() == MADE.strip()
