"""What a file of code says of its own license: tags, its header, and the prose further down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from curate.cache.texts import text_sha256
from curate.licenses.claims import Claim, named_in
from curate.licenses.detect import Placed, paragraphs, place, terms
from curate.licenses.metadata import assigned_claims
from curate.licenses.overrides import Override
from curate.licenses.policy import UnknownLicense, normalize
from curate.licenses.statements import Unplaced
from curate.licenses.text.copies import Original, originals
from curate.licenses.text.prose import Note, ProseSource
from curate.licenses.text.tags import read_tags
from curate.licenses.text.technical import describes
from curate.licenses.text.terms import Care, binds, might_speak


@dataclass
class Own:
    """What a file says of its license, as SPDX expressions.

    Attributes:
        tags: of the SPDX tags that grant.
        notices: of the whole notices in the header.
        reviewed: of notices that a person or ScanCode has read.
        further: of licenses that the file gives the address of, or the tag or notice of further
            down.
        spelled: the whole notices further down.
        copied: what its classes are copies of.
        claims: licenses that it merely names.
        unplaced: what could not be read.
    """

    tags: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    reviewed: list[str] = field(default_factory=list)
    further: list[str] = field(default_factory=list)
    spelled: list[str] = field(default_factory=list)
    copied: list[Original] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    unplaced: list[Unplaced] = field(default_factory=list)


class OwnReader:
    """Reads files; knows which texts a person has read."""

    def __init__(self, overrides: Mapping[str, Override], scancode: bool) -> None:
        self._overrides = overrides
        self._scancode = scancode

    def known(self, text: str) -> Override | None:
        """Return what a person says that the text means."""
        return self._overrides.get(text_sha256(text))

    def scan(self, text: str) -> str | None:
        """Return what ScanCode says that the text means, if it is to be asked."""
        if not self._scancode:
            return None
        from curate.licenses.text.scancode import identify

        return identify(text)

    def read(self, source: ProseSource, path: str) -> Own:
        """Return what a file says of its license."""
        own = Own(copied=originals(source.text), claims=assigned_claims(source.text, path))
        self._tags(source, path, own)
        placed = place(source.header)
        if placed.expression:
            (own.notices if placed.grants else own.further).append(placed.expression)
        self._review_edited(placed, path, own)
        docs = [note.text for note in source.notes if note.place == "header" and not note.comment]
        edge = {paragraph for text in docs for paragraph in paragraphs(text)}
        for notice in placed.leftovers:
            care: Care = "edge" if notice in edge else "head"
            for said in self._spoken(notice, care):
                self._take(said, path, care, own, placed.grants)
        for note in source.notes:
            if note.place != "header":
                self._prose(note, path, own)
        return own

    def _spoken(self, notice: str, care: Care) -> list[str]:
        """Return a notice before the first statement, where it may speak of terms."""
        found = terms([notice], care) if care == "head" or binds(notice) else []
        return found if found or describes(notice, care == "head") else [notice]

    def _tags(self, source: ProseSource, path: str, own: Own) -> None:
        tags = read_tags(source)
        own.unplaced += [Unplaced(line, path) for line in tags.unread]
        for values, read in ((tags.grants, own.tags), (tags.further, own.further)):
            for value in values:
                line = f"SPDX-License-Identifier: {value}"
                known = self.known(line)
                try:
                    read.append(normalize((known and known.expression) or value))
                except UnknownLicense:
                    own.unplaced.append(Unplaced(line, path))
        for value in tags.claims:
            try:
                own.claims.append(Claim(value, path, normalize(value)))
            except UnknownLicense:
                own.claims.append(Claim(f"SPDX-License-Identifier: {value}", path, None))

    def _prose(self, note: Note, path: str, own: Own) -> None:
        """Collect what a comment or docstring further down says of terms."""
        care: Care = "code"
        if note.place != "body":
            care = "head" if note.place == "foot" and note.comment else "edge"
        if care == "code" and not might_speak(note.text):
            return
        if not terms(paragraphs(note.text), care):
            return
        placed = place(note.text)
        if placed.expression:
            own.further.append(placed.expression)
        if placed.grants:
            own.spelled.append(note.text.strip())
        self._review_edited(placed, path, own)
        for notice in terms(placed.leftovers, care):
            self._take(notice, path, care, own, placed.grants)

    def _take(self, notice: str, path: str, care: Care, own: Own, beside: bool) -> None:
        """Collect a notice: the licenses that it merely names, or that it says more."""
        named = None if self.known(notice) else named_in(notice, path, care, beside=beside)
        if named is None:
            self._review([notice], path, own)
        else:
            own.claims += named

    def _review_edited(self, placed: Placed, path: str, own: Own) -> None:
        """Collect texts that are nearly a license: what is known of them, and the others."""
        for edited in placed.edited:
            known = self.known(edited.text)
            if known is None:
                differs = f"{edited.id}, but {edited.differs}"
                own.unplaced.append(Unplaced(edited.text, path, edited.id, differs))
            elif known.expression is not None:
                own.reviewed.append(known.expression)

    def _review(self, notices: list[str], path: str, own: Own) -> None:
        """Collect what is known of notices that no template covers, and the rest."""
        for notice in notices:
            known = self.known(notice)
            expression = known.expression if known else self.scan(notice)
            if expression is not None:
                own.reviewed.append(expression)
            elif known is None:
                own.unplaced.append(Unplaced(notice, path))
