"""``PROVENANCE.md``: where a data set's rows come from, what is owed to their authors, what was
left out for its license, and how to have a row removed.

What it says of published rows is read from ``provenance.jsonl``; what was read and lost, from the
run. The license and NOTICE texts lie in ``licenses/``, under the sha256 by which rows name them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from curate.formats.dataset.provenance import PROVENANCE_FILE, read_provenance
from curate.licenses.optout import OPTED_OUT
from curate.publish.analysis.analysis import Run, license_name, place_name
from curate.publish.analysis.counts import ranked
from curate.publish.analysis.errors import NoRun
from curate.publish.analysis.numbers import number, plural
from curate.publish.analysis.words import REMOVAL
from curate.publish.documents.card import recipe_sha256
from curate.publish.documents.markdown import table
from curate.rows import Loose

PROVENANCE_PAGE = "PROVENANCE.md"
NAMED = 3  # sources that a line of lost rows names
TITLE = 60  # characters of a text's first line
UNWRITTEN = ("no_license_or_origin", OPTED_OUT)
"""Reasons for which the writer of the data set leaves rows out, and which are about licenses."""


class Pin(NamedTuple):
    """What a row was read from, at one version.

    Attributes:
        name: purl or url; the kind of source where there is none.
        version: as the source names it.
        commit: of a repository.
        sha256: of the artifact.
    """

    name: str
    version: str | None
    commit: str | None
    sha256: str | None


@dataclass
class Account:
    """What a data set has of one pin.

    Attributes:
        read: files or problems that were read from it.
        rows: published rows.
        licenses: published rows by the license under which they are used.
        texts, notices: sha256 of license texts and NOTICE texts that the rows ask for.
        copyright: lines that go with the rows.
    """

    read: int = 0
    rows: int = 0
    licenses: Counter[str] = field(default_factory=Counter)
    texts: set[str] = field(default_factory=set)
    notices: set[str] = field(default_factory=set)
    copyright: set[str] = field(default_factory=set)


class LossReason(NamedTuple):
    """Why a row was left out: the drop's reason, and its license or why that is not known."""

    reason: str
    why: str


@dataclass
class Provenance:
    """Where the rows of a data set come from.

    Attributes:
        sources: what there is of every pin, those with most published rows first.
        generators: published rows by the tools that wrote their code.
        losses: files and rows left out for their license or because somebody asked, by source;
            those whose source is not named are under "".
    """

    sources: dict[Pin, Account]
    generators: Counter[str]
    losses: dict[LossReason, Counter[str]]


def collect(run: Run) -> Provenance:
    """Return where the published rows of a finished run come from.

    Raises:
        NoRun: an older version of `curate` wrote the data set.
    """
    if PROVENANCE_FILE not in run.known["files"]:
        raise NoRun(
            f"{run.folder} has no {PROVENANCE_FILE}: an older version of curate wrote it; "
            "`curate run RECIPE` writes it anew from the cache"
        )
    accounts: dict[Pin, Account] = {}
    generators: Counter[str] = Counter()
    for record in run.sources:
        for key in record.shards:
            origins = run.store.rows(record.step, key, ["origin"])["origin"].to_pylist()
            for origin in origins:
                accounts.setdefault(pin_of(origin), Account()).read += 1
    for line in read_provenance(run.folder):
        _add(accounts.setdefault(pin_of(line["origin"]), Account()), line)
        if generator := line["origin"]["generator"]:
            generators[", ".join([generator["name"], *(generator["tools"] or [])])] += 1
    order = sorted(accounts, key=lambda pin: (-accounts[pin].rows, [part or "" for part in pin]))
    return Provenance({pin: accounts[pin] for pin in order}, generators, _losses(run))


def pin_of(origin: Loose) -> Pin:
    """Return what a row was read from; a record of a data set also names its own repository."""
    commit = None if origin["purl"] else origin["commit"]
    return Pin(place_name(origin), origin["version"], commit, origin["artifact_sha256"])


def _add(account: Account, row: Loose) -> None:
    license = row["license"]
    account.rows += 1
    account.licenses[license_name(row)] += 1
    account.texts.update(license["text_sha256"] or [])
    account.notices.update(license["notice_sha256"] or [])
    account.copyright.update(license["copyright"] or [])


def _losses(run: Run) -> dict[LossReason, Counter[str]]:
    losses: dict[LossReason, Counter[str]] = {}
    for record in (record for record in run.records if record.step == "licenses"):
        for row in run.lost_rows(record):
            loss, place = LossReason(row["reason"], ""), ""
            if row["reason"] != OPTED_OUT:  # whoever asked not to be here is not named here
                evidence = json.loads(row["evidence"])
                loss, place = LossReason(row["reason"], _why(evidence)), place_name(row["origin"])
            losses.setdefault(loss, Counter())[place] += 1
    for reason in UNWRITTEN:
        if n := run.known["unwritten"].get(reason):
            losses.setdefault(LossReason(reason, ""), Counter())[""] += n
    order = sorted(losses, key=lambda loss: (-losses[loss].total(), loss))
    return {loss: losses[loss] for loss in order}


def _why(evidence: Loose) -> str:
    """Return the license that was denied, or why there is none, without the text in question."""
    return evidence.get("expression") or str(evidence.get("why", "")).partition(":")[0]


# --- the page -----------------------------------------------------------------------------------


def provenance_page(run: Run, found: Provenance) -> str:
    """Return the text of ``PROVENANCE.md``."""
    sections = [
        _opening(run, found),
        _sources(found),
        _generators(found),
        _texts(run.folder, found),
        _attribution(found),
        _left_out(run, found),
        ["## To have something removed\n", REMOVAL],
    ]
    return "\n\n".join("\n".join(lines).strip() for lines in map(list, sections) if lines) + "\n"


def _opening(run: Run, found: Provenance) -> Iterator[str]:
    name = run.known["recipe"]["name"]
    rows = sum(account.rows for account in found.sources.values())
    yield f"# Where the rows of {name} come from\n"
    yield f"{plural(rows, 'row')}. [`{PROVENANCE_FILE}`]({PROVENANCE_FILE}) has a line for each of"
    yield "them: the files that show it, the package or repository with its version and sha256, the"
    yield "path and lines, the license and how it was found. This page sums it up.\n"
    yield f"Made by the recipe `{name}` (sha256 `{recipe_sha256(run.known)}`), run"
    yield f"`{run.known['key']}`. [`run.json`](run.json) holds the recipe, and the options and"
    yield "versions of every step."


def _sources(found: Provenance) -> Iterator[str]:
    yield "## Sources\n"
    yield "Hashes are of the artifact: the wheel, archive or file that was read. Licenses are those"
    yield "found in its files, under which rows are used. A source without rows gave none.\n"
    lines = [
        (_code(pin.name), _revision(pin), _codes(ranked(a.licenses)), a.read, a.rows)
        for pin, a in found.sources.items()
    ]
    yield from table(("source", "pinned as", "license", "files or problems read", "rows"), lines)


def _revision(pin: Pin) -> str:
    known = [
        *([f"version {pin.version}"] if pin.version else []),
        *([f"commit `{pin.commit}`"] if pin.commit else []),
        f"sha256 `{pin.sha256}`" if pin.sha256 else "no hash",
    ]
    return ", ".join(known)


def _generators(found: Provenance) -> Iterator[str]:
    if found.generators:
        yield "## Code that tools wrote\n"
        yield "In these rows a tool wrote the program or the problem. Their license is that of the"
        yield "code which it was given and, where it leaves code of its own, the tool's.\n"
        yield from table(("tool", "rows"), ranked(found.generators).items())


def _texts(folder: Path, found: Provenance) -> Iterator[str]:
    accounts = list(found.sources.values())
    texts = Counter(sha for account in accounts for sha in account.texts)
    notices = Counter(sha for account in accounts for sha in account.notices)
    lines = [
        (_link(sha), what, _title(folder, sha), counts[sha])
        for what, counts in (("license", texts), ("notice", notices))
        for sha in sorted(counts)
    ]
    if lines:
        yield "## License texts and notices\n"
        yield "Whoever passes rows on passes on the texts and notices of their sources with them.\n"
        yield from table(("text", "what it is", "its first line", "sources"), lines)


def _link(sha: str) -> str:
    return f"[`{sha[:12]}…`](licenses/{sha}.txt)"


def _title(folder: Path, sha: str) -> str:
    """Return the first line of a text that is not empty."""
    text = (folder / "licenses" / f"{sha}.txt").read_text(encoding="utf-8")
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return _code(line[:TITLE])


def _attribution(found: Provenance) -> Iterator[str]:
    owed = {pin: a for pin, a in found.sources.items() if a.texts or a.notices or a.copyright}
    if not owed:
        return
    yield "## Attribution\n"
    yield "By source: the texts that its rows ask for, and the copyright lines of the files and"
    yield "license texts that they come from."
    for pin, account in owed.items():
        yield f"\n### {_code(pin.name)}\n"
        yield f"{plural(account.rows, 'row')} under {_codes(ranked(account.licenses))}."
        for what, texts in (("License texts", account.texts), ("Notices", account.notices)):
            if texts:
                yield f"{what}: {', '.join(map(_link, sorted(texts)))}."
        yield from _block(sorted(account.copyright))


def _block(lines: list[str]) -> Iterator[str]:
    """Yield lines as an indented block of code, which nothing in them can end."""
    if lines:
        yield ""
        yield from (f"    {' '.join(line.split())}" for line in lines)


def _codes(texts: Iterable[str]) -> str:
    return ", ".join(map(_code, texts))


def _code(text: str) -> str:
    """Return a text as code in a line or a cell, which nothing in it can end."""
    plain = " ".join(text.replace("`", "'").replace("|", "/").split())
    return f"`{plain}`" if plain else ""


def _left_out(run: Run, found: Provenance) -> Iterator[str]:
    yield "## Left out for their license\n"
    if not found.losses:
        checked = any(record.step == "licenses" for record in run.records)
        yield "Nothing." if checked else "The recipe has no step `licenses`."
        return
    yield "Files, and rows made of them. A license that cannot be read counts as forbidden. The"
    yield "card tells what was left out for other reasons.\n"
    lines = [
        (f"`{loss.reason}`", _code(loss.why), _some(places), places.total())
        for loss, places in found.losses.items()
    ]
    yield from table(("reason", "license, or why it is not known", "from", "left out"), lines)


def _some(places: Counter[str]) -> str:
    names = [name for name in ranked(places) if name]
    more = f" and {number(len(names) - NAMED)} more" if len(names) > NAMED else ""
    return _codes(names[:NAMED]) + more
