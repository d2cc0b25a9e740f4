"""The license of one record of a data set: what its repository says, and what its row says.

The two hold together, so the more restrictive one decides. On the Hub the card's field ``license``
is how an owner licenses a data set, so it grants here, where a package's metadata does not; a
license file alongside it applies as well. It is the card of the pinned commit that counts: owners
change it. Fields: https://huggingface.co/docs/hub/datasets-cards.
"""

from __future__ import annotations

from dataclasses import replace

import yaml

from curate.cache.artifact import Artifact
from curate.licenses.policy import UnknownLicense, conjoin, license_ids, normalize
from curate.licenses.readme import front_matter
from curate.licenses.resolve import Resolver
from curate.licenses.statements import LicenseFinding, LicenseStatement
from curate.rows import FileRow

CARD = "README.md"


def resolve_record(row: FileRow, artifact: Artifact, resolver: Resolver) -> LicenseFinding:
    """Return the license of a record: of its data set's card and files, and of its own column."""
    files = resolver.resolve(row["origin"]["path"], "")
    if files.statement.unplaced:
        return files
    card = card_licenses(artifact)
    column = row["license"]["expression"] if row["license"] else None
    claims = [*card, *([] if column is None else [column])]
    if not (card or files.statement.expression):
        return _unknown(f"neither {CARD} nor a license file says under which license it is")
    try:
        stated = [normalize(claim) for claim in claims]
    except UnknownLicense as error:
        return _unknown(str(error))
    granted = conjoin(
        *([files.statement.expression] if files.statement.expression else []), *stated
    )
    for said in resolver.said(row["origin"]["path"]):
        if said.expression is None:
            return _unknown(f"unreadable: {' '.join(said.text.split())[:160]}", said.path)
        if not said.agrees(granted):
            granted = conjoin(granted, said.expression)
    found = [files.statement.expression] if files.statement.expression else []
    statement = LicenseStatement(
        method="license_file" if found else "card",
        expression=granted,
        confidence=1.0,
        path=files.statement.path if found else CARD,
        conflict=bool(found and card) and not _agree(found[0], card),
    )
    return replace(files, statement=statement, why="")


def card_licenses(artifact: Artifact) -> list[str]:
    """Return what the card's field ``license`` says: ids as the Hub spells them, such as ``mit``.

    ``other`` gives the license's name, which is no SPDX id unless the owner chose one.
    """
    if CARD not in artifact.paths():
        return []
    found = front_matter(artifact.read_bytes(CARD).decode("utf-8", "replace"))
    try:
        head = yaml.safe_load(found[0]) if found else {}
    except yaml.YAMLError:
        head = {}  # a card that nobody can read grants nothing
    if not isinstance(head, dict):
        return []
    value = head.get("license")
    ids = value if isinstance(value, list) else [value]
    name = head.get("license_name") or "other"
    return [str(name if entry == "other" else entry) for entry in ids if entry]


def _agree(expression: str, card: list[str]) -> bool:
    return bool(license_ids(expression) & license_ids(conjoin(*card)))


def _unknown(why: str, path: str = CARD) -> LicenseFinding:
    return LicenseFinding(LicenseStatement("card", None, 0.0, path), why)
