"""Folders and packages that try to pass for permissive, and honest ones, with what is right.

    python benchmarks/license_attacks.py                      # a count per situation, three tables
    python benchmarks/license_attacks.py --table open --all   # one table, and all wrong decisions

Each case is a small tree of files and one file of it that is decided. It is decided twice: as a
folder through the source `local`, and as a package of the index, with METADATA. A case with links
is decided as a folder only, and a record of a data set through the source `hub` only. A wrong allow
is a file that is kept against its terms; a wrong denial is one that is dropped although everything
around it says that it may be used; strict is a drop where careful people differ. Texts of licenses
are those of installed packages; everything else is written here.

Three tables: `first` is the oldest; `open` is for those who work on the step; `apart` holds other
cases of the same classes, and tells whether they mended causes or cases. Who works on the step
reads the counts of `apart` and never its cases.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

import license_cases
import license_cases_apart
import license_cases_open
import pyarrow as pa
import pyarrow.parquet as pq
from license_texts import load_texts, titled

from curate.cache.artifact import Info, store, wanted
from curate.licenses.licenses import Licenses
from curate.rows import Row, make_origin, make_row
from curate.sources.hub import Hub
from curate.sources.local import Local
from curate.step import Context, Drop, SourceError

COMPANY_HEADERS = "honest company header"


class Case(NamedTuple):
    """A tree of files and what is right for one of them.

    Attributes:
        situation: what the case is about; the words before ": " are its group.
        files: texts by path. For a ``.parquet`` file the license of its record, "" for none.
        right: what a careful lawyer would do.
        path: the file that is decided.
        metadata: further lines of PKG-INFO, and of METADATA.
        links: symbolic links of the tree: where each leads, by path.
    """

    situation: str
    files: dict[str, str]
    right: Literal["keep", "drop", "either"]
    path: str = "pkg/a.py"
    metadata: str = ""
    links: Mapping[str, str] = MappingProxyType({})


class Decided(NamedTuple):
    """What became of a case, one way in."""

    case: Case
    way: str
    kept: bool
    said: str

    @property
    def verdict(self) -> str:
        """right, wrong allow, wrong denial or strict."""
        if self.case.right == "either":
            return "right" if self.kept else "strict"
        if self.kept == (self.case.right == "keep"):
            return "right"
        return "wrong allow" if self.kept else "wrong denial"


def as_folder(case: Case, scratch: Path) -> tuple[Path, str]:
    """Return the cache and the artifact of a case that is read as a folder."""
    tree, cache = scratch / "tree", scratch / "cache"
    for path, text in case.files.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_bytes(text.encode("utf-8", "surrogateescape"))
    for path, target in case.links.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).symlink_to(target)
    if case.metadata:
        (tree / "PKG-INFO").write_text(f"Name: pkg\nVersion: 1.0\n{case.metadata}\n", "utf-8")
    source = Local(source="local", path=str(tree), include=("**/*",))
    context = Context(cache=cache)
    (unit,) = source.units(context)
    list(source.read(unit, context))
    (artifact,) = (cache / "artifacts").iterdir()
    return cache, artifact.name


def as_package(case: Case, scratch: Path) -> tuple[Path, str]:
    """Return the cache and the artifact of a case that came from the package index."""
    said = f"Name: pkg\nVersion: 1.0\n{case.metadata}\n"
    files = {**case.files, "pkg-1.0.dist-info/METADATA": said}
    sha256 = hashlib.sha256(json.dumps(files).encode()).hexdigest()
    pairs = [(p, t.encode("utf-8", "surrogateescape")) for p, t in files.items() if wanted(p)]
    store(scratch, sha256, Info("pypi", purl="pkg:pypi/pkg@1.0"), pairs)
    return scratch, sha256


def decide(case: Case) -> Iterator[Decided]:
    """Yield what becomes of a case, each way in."""
    if case.path.endswith(".parquet"):
        yield decide_record(case)
        return
    ways = [("local", as_folder), ("pypi", as_package)]
    for way, build in ways[:1] if case.links else ways:
        with tempfile.TemporaryDirectory() as scratch:
            try:
                cache, sha256 = build(case, Path(scratch))
            except SourceError as error:
                yield Decided(case, way, False, f"refused as a whole: {error}")
                continue
            origin = make_origin(way, artifact_sha256=sha256, path=case.path)
            text = case.files[case.path]
            yield judged(case, way, make_row("file", text, origin, text=text), cache)


def decide_record(case: Case) -> Decided:
    """Return what becomes of the record of a data set, with its card and files around it."""
    with tempfile.TemporaryDirectory() as scratch:
        tree, cache = Path(scratch, "tree"), Path(scratch, "cache")
        for path, text in case.files.items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            if path != case.path:
                (tree / path).write_text(text, "utf-8")
        record = {"code": "x = 1", "license": case.files[case.path]}
        pq.write_table(pa.Table.from_pylist([record]), tree / case.path)
        columns = {"license": "license"} if record["license"] else {}
        source, context = Hub(source="hub", path=str(tree), columns=columns), Context(cache=cache)  # type: ignore[arg-type]
        (unit,) = source.units(context)
        (row,) = source.read(unit, context)
        assert isinstance(row, dict)
        return judged(case, "hub", row, cache)


def judged(case: Case, way: str, row: Row, cache: Path) -> Decided:
    """Return what the step makes of a row."""
    outcome = Licenses(step="licenses").apply(row, Context(cache=cache))  # type: ignore[arg-type]
    if isinstance(outcome, Drop):
        return Decided(case, way, False, f"{outcome.reason}: {outcome.evidence.get('why')}")
    license_ = outcome.rows[0]["license"]  # type: ignore[union-attr]
    return Decided(case, way, True, str(license_ and license_["expression"]))


def tables() -> dict[str, list[Case]]:
    """Return the cases of each table."""
    texts = load_texts()
    first = (titled(texts.mit, "The MIT License (MIT)"), titled(texts.bsd3), texts.apache)
    listed = {
        "first": license_cases.cases(*first),
        "open": license_cases_open.cases(texts),
        "apart": license_cases_apart.cases(texts),
    }
    return {name: [Case(*case) for case in cases] for name, cases in listed.items()}


def report(name: str, cases: list[Case], every: bool) -> None:
    """Print a table's counts per group, and every decision that is not right if asked to."""
    decided = [one for case in cases for one in decide(case)]
    groups: dict[str, Counter[str]] = {}
    for one in decided:
        groups.setdefault(one.case.situation.partition(":")[0], Counter())[one.verdict] += 1
    kinds = ("right", "wrong allow", "wrong denial", "strict")
    print(f"{f'table {name}':44}" + "".join(f"{kind:>14}" for kind in kinds))
    for group, found in groups.items():
        print(f"{group:44}" + "".join(f"{found[kind]:14}" for kind in kinds))
    total = Counter(one.verdict for one in decided)
    print(f"{f'{len(cases)} cases, {len(decided)} decisions':44}", end="")
    print("".join(f"{total[kind]:14}" for kind in kinds))
    if company := groups.get(COMPANY_HEADERS):
        print(f"honest header kept: {company['right']} of {company.total()}")
    if every:
        for one in decided:
            if one.verdict != "right":
                print(f"{one.verdict:13} {one.way:6} {one.case.situation}\n    {one.said[:200]}")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", choices=("first", "open", "apart"), help="only this one")
    parser.add_argument(
        "--all",
        action="store_true",
        help="print wrong and strict decisions, of `apart` only if --table names it",
    )
    given = parser.parse_args()
    for name, cases in tables().items():
        if given.table in (None, name):
            hidden = name == "apart" and given.table is None  # its cases are shown on purpose only
            report(name, cases, given.all and not hidden)


if __name__ == "__main__":
    main()
