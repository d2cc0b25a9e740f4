"""What the places that speak of a file's license say, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass

from curate.licenses.text.copies import Original


@dataclass(frozen=True)
class Unplaced:
    """A text about licenses that could not be read.

    Attributes:
        text: as a person should read it, and as an override's hash takes it.
        path: where it stands.
        hint: what templates recognise in it; None when nothing.
        differs: how it differs from the license that it resembles; empty where it resembles none.
    """

    text: str
    path: str
    hint: str | None = None
    differs: str = ""

    def why(self) -> str:
        """Return why it cannot be read, for a person."""
        said = " ".join(self.text.split())[:160]
        return f"an edited license: {self.differs[:400]}" if self.differs else f"unreadable: {said}"


@dataclass(frozen=True)
class LicenseStatement:
    """What one place says of a file's license.

    Attributes:
        method: spdx_tag, header, license_file or override.
        expression: AND of all that could be read; None when nothing could.
        confidence: share of the texts' words that templates cover, 0 to 1.
        path: of the decisive text.
        unplaced: what could not be read.
        conflict: it says things that differ in whether the file may be used.
    """

    method: str
    expression: str | None
    confidence: float
    path: str
    unplaced: tuple[Unplaced, ...] = ()
    conflict: bool = False


@dataclass(frozen=True)
class LicenseFinding:
    """The license of one file.

    Attributes:
        statement: the one that governs, with everything joined to it.
        why: why the license is unknown; empty when it is known.
        texts: license texts to keep.
        notices: texts of the NOTICE files that apply.
        copyright: lines from the file's comments and from the license files.
        derived_from: addresses that the file says it comes from.
        copied: what its classes are copies of.
    """

    statement: LicenseStatement
    why: str
    texts: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    copyright: tuple[str, ...] = ()
    derived_from: tuple[str, ...] = ()
    copied: tuple[Original, ...] = ()
