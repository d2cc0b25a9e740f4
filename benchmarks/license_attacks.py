"""Folders and packages that try to pass for permissive, and honest ones, with what is right.

    python benchmarks/license_attacks.py            # a table per situation
    python benchmarks/license_attacks.py --all      # and every wrong decision

Each case is a small tree of files and one file of it that is asked about. It is decided twice:
as a folder through the source `local`, and as a package of the index, with METADATA. A wrong allow
is a file that is kept against its terms; a wrong denial is one that is dropped although everything
around it says that it may be used; strict is a drop where careful people differ. Texts of licenses
are those of installed packages; everything else is written here.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import files as files_of
from pathlib import Path
from typing import Literal, NamedTuple

from license_cases import cases

from curate.cache.artifact import Info, store, wanted
from curate.licenses.licenses import Licenses
from curate.rows import make_origin, make_row
from curate.sources.local import Local
from curate.step import Context, Drop


class Case(NamedTuple):
    """A tree of files and what is right for one of them."""

    situation: str
    files: dict[str, str]
    right: Literal["keep", "drop", "either"]
    path: str = "pkg/a.py"
    metadata: str = ""


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
    """Yield what becomes of a case, as a folder and as a package."""
    for way, build in (("local", as_folder), ("pypi", as_package)):
        with tempfile.TemporaryDirectory() as scratch:
            cache, sha256 = build(case, Path(scratch))
            origin = make_origin(way, artifact_sha256=sha256, path=case.path)
            text = case.files[case.path]
            step = Licenses(step="licenses")
            outcome = step.apply(make_row("file", text, origin, text=text), Context(cache=cache))
            if isinstance(outcome, Drop):
                yield Decided(case, way, False, f"{outcome.reason}: {outcome.evidence.get('why')}")
            else:
                license_ = outcome.rows[0]["license"]  # type: ignore[union-attr]
                yield Decided(case, way, True, str(license_ and license_["expression"]))


def installed_text(package: str) -> str:
    """Return the license text of an installed package."""
    names = ("LICENSE", "LICENSE.txt", "LICENSE.md", "LICENCE")
    found = [f for f in files_of(package) or () if f.name in names and "dist-info" in f.parts[0]]
    return found[0].read_text("utf-8")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="print wrong and strict decisions too")
    given = parser.parse_args()
    texts = {name: installed_text(name) for name in ("pydantic", "licenseclassifier", "datasets")}
    listed = [Case(*case) for case in cases(*texts.values())]
    decided = [one for case in listed for one in decide(case)]
    table: dict[str, Counter[str]] = {}
    for one in decided:
        table.setdefault(one.case.situation.partition(":")[0], Counter())[one.verdict] += 1
    kinds = ("right", "wrong allow", "wrong denial", "strict")
    print(f"{'situation':44}" + "".join(f"{kind:>14}" for kind in kinds))
    for situation, found in table.items():
        print(f"{situation:44}" + "".join(f"{found[kind]:14}" for kind in kinds))
    total = Counter(one.verdict for one in decided)
    print(
        f"{f'{len(listed)} cases, {len(decided)} decisions':44}"
        + "".join(f"{total[k]:14}" for k in kinds)
    )
    if given.all:
        for one in decided:
            if one.verdict != "right":
                print(f"{one.verdict:13} {one.way:6} {one.case.situation}\n    {one.said[:200]}")


if __name__ == "__main__":
    main()
