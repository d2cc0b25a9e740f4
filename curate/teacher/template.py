"""The templates of prompts: files in ``templates/``, one a family, whose first line is a version.

The version is raised with every change of the words, so that a row's ``sample.template`` says which
words it was asked with.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True)
class Template:
    """A prompt with named places.

    Attributes:
        name: of its family.
        version: of its words.
        text: with places such as ``{reference}``.
    """

    name: str
    version: int
    text: str

    @property
    def label(self) -> str:
        """What rows are marked with: ``implement@1``."""
        return f"{self.name}@{self.version}"

    def fill(self, values: dict[str, str]) -> str:
        """Return the prompt, without the paragraphs that a place without a value leaves empty.

        Raises:
            KeyError: a place is not among ``values``.
        """
        known = {name: value.strip("\n") for name, value in values.items()}
        paragraphs = [part.format_map(known) for part in self.text.split("\n\n")]
        return "\n\n".join(part for part in paragraphs if part.strip())


@cache
def load(family: str) -> Template:
    """Return the template of a family."""
    file = resources.files("curate.teacher") / "templates" / f"{family}.md"
    first, _, text = file.read_text(encoding="utf-8").partition("\n")
    word, _, number = first.partition(" ")
    if word != "version":
        raise ValueError(f"{file}: the first line must be `version` and a number")
    return Template(family, int(number), text.strip("\n"))


def fence(code: str, language: str = "python") -> str:
    """Return code in a Markdown fence that no line of the code can close."""
    mark = "```"
    while mark in code:
        mark += "`"
    return f"{mark}{language}\n{code.rstrip()}\n{mark}\n"
