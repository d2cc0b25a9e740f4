"""Write a PyTorch problem in KernelBench's form, piece by piece.

A `ProblemDraft` collects sizes, layers, statements and inputs, and prints them as one file with
`Model`, `get_inputs` and `get_init_inputs`. Nothing here imports torch.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

T = TypeVar("T")

LINE_LENGTH = 100
_INDENT = " " * 4


@dataclass
class ProblemDraft:
    """A problem being written.

    Attributes:
        rng: decides every choice, so that one seed gives one text.
        sizes: constants of the file, by name, in the order in which they are printed.
        arguments: the constants that are arguments of the constructor.
        layers: statements of the constructor.
        body: statements of `forward`.
        inputs: the expression that draws each argument of `forward`.
        parts: what happens, in order, as the docstring says it.
        summary: the docstring, where `parts` in a row do not say it.
        result: what `forward` returns.
        dims: the sizes of the tensor ``x``, as text.
        axis: the axis of ``x`` that holds channels or features: 1 or -1.
    """

    rng: Random
    sizes: dict[str, int] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=list)
    layers: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)
    inputs: dict[str, str] = field(default_factory=dict)
    parts: list[str] = field(default_factory=list)
    summary: str = ""
    result: str = "x"
    dims: tuple[str, ...] = ()
    axis: int = -1

    def pick(self, *choices: T) -> T:
        """Return one of the choices."""
        return self.rng.choice(choices)

    def chance(self, share: float) -> bool:
        """Return True in this share of all drafts."""
        return self.rng.random() < share

    def size(self, name: str, *choices: int) -> str:
        """Set a constant of the file to one of the choices; return its name."""
        self.sizes.setdefault(name, self.rng.choice(choices))
        return name

    def argument(self, name: str) -> str:
        """Make a constant an argument of the constructor; return its name."""
        if name in self.sizes and name not in self.arguments:
            self.arguments.append(name)
        return name

    def take(self, name: str, *dims: str, draw: str = "torch.randn({})") -> str:
        """Add an argument of `forward` with these sizes; return its name."""
        self.inputs[name] = draw.format(", ".join(dims))
        return name

    def layer(self, name: str, expression: str) -> str:
        """Set an attribute of the model in its constructor; return how `forward` names it."""
        if any(line.startswith(f"self.{name} = ") for line in self.layers):
            name += "_2"
        self.layers.append(f"self.{name} = {expression}")
        return f"self.{name}"

    def parameter(self, name: str, *dims: str, draw: str = "torch.randn({})") -> str:
        """Add a parameter with these sizes; return how `forward` names it."""
        for dim in dims:
            self.argument(dim)
        return self.layer(name, f"nn.Parameter({draw.format(', '.join(dims))})")

    def let(self, name: str, expression: str, part: str = "") -> str:
        """Assign in `forward`; `part` goes to the docstring. Return the name."""
        self.body.append(f"{name} = {expression}")
        if part:
            self.parts.append(part)
        return name

    def text(self) -> str:
        """Return the file, without constants that nothing uses."""
        self.arguments = [name for name in self.arguments if _uses(self.layers, name)]
        used = [*self.layers, *self.inputs.values()]
        self.sizes = {name: size for name, size in self.sizes.items() if _uses(used, name)}
        code = self._model() + self._functions()
        imports = ["import torch", "import torch.nn as nn"]
        if "math." in code:
            imports.insert(0, "import math\n")
        if "F." in code:
            imports.append("import torch.nn.functional as F")
        return "\n".join(imports) + "\n\n\n" + code

    def _model(self) -> str:
        lines = ["class Model(nn.Module):", *_docstring(self.summary or _sentence(self.parts)), ""]
        lines.append(_INDENT + f"def __init__({', '.join(['self', *self.arguments])}):")
        lines.append(_INDENT * 2 + "super().__init__()")
        lines += [_INDENT * 2 + line for line in self.layers]
        lines.append("")
        lines.append(_INDENT + f"def forward({', '.join(['self', *self.inputs])}):")
        lines += [_INDENT * 2 + line for line in self.body]
        lines.append(_INDENT * 2 + f"return {self.result}")
        return "\n".join(lines) + "\n"

    def _functions(self) -> str:
        text = "\n\n" + "\n".join(f"{name} = {value}" for name, value in self.sizes.items())
        drawn = list(self.inputs.values())
        one_line = f"{_INDENT}return [{', '.join(drawn)}]"
        if len(one_line) <= LINE_LENGTH and len(drawn) <= 2:
            returned = one_line
        else:
            items = "".join(f"{_INDENT * 2}{item},\n" for item in drawn)
            returned = f"{_INDENT}return [\n{items}{_INDENT}]"
        text += f"\n\n\ndef get_inputs():\n{returned}"
        text += f"\n\n\ndef get_init_inputs():\n{_INDENT}return [{', '.join(self.arguments)}]\n"
        return text


def _uses(lines: list[str], name: str) -> bool:
    return any(re.search(rf"(?<!\.)\b{name}\b", line) for line in lines)


def _sentence(parts: list[str]) -> str:
    if len(parts) > 1:
        parts = [*parts[:-2], f"{parts[-2]} and {parts[-1]}"]
    sentence = ", ".join(parts)
    return sentence[:1].upper() + sentence[1:] + "."


def _docstring(sentence: str) -> list[str]:
    one_line = f'{_INDENT}"""{sentence}"""'
    if len(one_line) <= LINE_LENGTH:
        return [one_line]
    wrapped = textwrap.wrap(f'"""{sentence}', LINE_LENGTH - len(_INDENT))
    return [*(_INDENT + line for line in wrapped), f'{_INDENT}"""']
