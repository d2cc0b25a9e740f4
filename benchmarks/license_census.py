"""Count what the step `licenses` decides for every code file of packages, and compare two counts.

    python benchmarks/license_census.py recipes/triton_fim.yaml --cache output/cache --out now.json
    python benchmarks/license_census.py --packages fair-esm==2.0.0 fairscale --cache DIR
    python benchmarks/license_census.py --installed torch timm --cache DIR --out now.json
    python benchmarks/license_census.py --compare before.json now.json

A count holds the decision for each file: the SPDX expression, or the reason for dropping and why.
`--compare` prints a table per package and every file that the newer count loses. To count what
another commit decides, run the same script with that commit on PYTHONPATH and a cache of its own.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from importlib.metadata import distribution
from pathlib import Path

import yaml

from curate.cache.artifact import SUFFIXES, Artifact, Info, store, wanted
from curate.licenses.licenses import Licenses
from curate.rows import make_origin, make_row
from curate.sources import index
from curate.step import Context, Drop, Keep

PIN = re.compile(r"(\S+?)==(\S+) --hash=sha256:([0-9a-f]{64})")
Count = dict[str, dict[str, str]]


def pinned(recipe: Path, cache: Path) -> Iterator[tuple[str, Artifact]]:
    """Yield the packages that a recipe pins, downloaded where the cache lacks them."""
    for source in yaml.safe_load(recipe.read_text("utf-8"))["sources"]:
        for pin in source.get("packages", []):
            name, version, digest = PIN.fullmatch(pin).groups()  # type: ignore[union-attr]
            yield name, index.fetch(name, version, digest, cache)


def named(package: str, cache: Path) -> tuple[str, Artifact]:
    """Return a package of the index, ``name`` (its newest version) or ``name==version``."""
    name, _, version = package.partition("==")
    choice = index.choose(name, version or None)
    found = index.fetch(name, choice.version, choice.sha256, cache)
    return f"{name}=={choice.version}", found


def installed(name: str, cache: Path) -> tuple[str, Artifact]:
    """Return an installed package as the artifact that its wheel would give."""
    found = distribution(name)
    listed = sorted(str(file) for file in found.files or () if ".." not in file.parts)
    names = [path for path in listed if wanted(path) and "__pycache__" not in path]
    files = [(path, Path(str(found.locate_file(path))).read_bytes()) for path in names]
    key = sha256("".join(names).encode() + found.version.encode()).hexdigest()
    info = Info("pypi", purl=f"pkg:pypi/{name}@{found.version}", version=found.version)
    return name, store(cache, key, info, files)


def decisions(artifact: Artifact, cache: Path) -> dict[str, str]:
    """Return what becomes of every code file of an artifact, by path."""
    step, context, found = Licenses(step="licenses"), Context(cache=cache), {}
    step.setup(context)
    for path in artifact.paths():
        if Path(path).suffix.lower() not in SUFFIXES:
            continue
        try:
            text = artifact.read(path)
        except UnicodeDecodeError:
            continue
        origin = make_origin("pypi", artifact_sha256=artifact.sha256, path=path)
        outcome = step.apply(make_row("file", text, origin, text=text), context)
        if isinstance(outcome, Drop):
            why = outcome.evidence.get("why", "")
            found[path] = f"{outcome.reason}: {why} [{outcome.evidence.get('path')}]"
        else:
            assert isinstance(outcome, Keep)
            license_ = outcome.rows[0]["license"]
            assert license_ is not None
            found[path] = str(license_["expression"])
    return found


def compare(before: Count, after: Count) -> None:
    """Print a table per package, then every file that `after` decides otherwise."""
    print(f"{'package':32} {'files':>6}  kept, denied, unknown: before -> after")
    total: Counter[str] = Counter()
    for name in sorted(after):
        old, new = before.get(name, {}), after[name]
        one, two = tally(old), tally(new)
        print(f"{name:32} {len(new):6}  {show(one)} -> {show(two)}")
        total.update({f"old {key}": n for key, n in one.items()})
        total.update({f"new {key}": n for key, n in two.items()})
    print(dict(total))
    for name in sorted(after):
        for path, decision in after[name].items():
            old_one = before.get(name, {}).get(path)
            if old_one is not None and old_one != decision:
                print(f"{name}\t{path}\t{old_one[:60]}\t{decision[:260]}")


def tally(decided: dict[str, str]) -> Counter[str]:
    """Return how many files are kept, denied and unknown."""
    kinds = {"license_denied": "denied", "license_unknown": "unknown"}
    return Counter(kinds.get(what.partition(":")[0], "kept") for what in decided.values())


def reasons(decided: dict[str, str]) -> Counter[str]:
    """Return how many files are dropped for each reason, without the file where it stands."""
    dropped = (what for what in decided.values() if what.startswith("license_"))
    return Counter(what.rpartition(" [")[0] for what in dropped)


def show(found: Counter[str]) -> str:
    """Return a tally as three numbers."""
    return ", ".join(str(found[kind]) for kind in ("kept", "denied", "unknown"))


def main() -> None:
    """Count, or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipes", nargs="*", type=Path)
    parser.add_argument("--packages", nargs="*", default=[], metavar="NAME[==VERSION]")
    parser.add_argument("--reasons", type=int, default=0, help="print that many reasons a package")
    parser.add_argument("--installed", nargs="*", default=[], metavar="PACKAGE")
    parser.add_argument("--cache", type=Path, default=Path("output/cache"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("BEFORE", "AFTER"))
    given = parser.parse_args()
    if given.compare:
        compare(*(json.loads(file.read_text("utf-8")) for file in given.compare))
        return
    sources = [pair for recipe in given.recipes for pair in pinned(recipe, given.cache)]
    sources += [named(package, given.cache) for package in given.packages]
    sources += [installed(name, given.cache) for name in given.installed]
    count: Count = {}
    for name, artifact in dict(sources).items():
        started = time.perf_counter()
        count[name] = decisions(artifact, given.cache)
        took = time.perf_counter() - started
        print(f"{name:32} {len(count[name]):6} {show(tally(count[name])):>20}  {took:6.1f} s")
        for reason, files in reasons(count[name]).most_common(given.reasons):
            print(f"    {files:6} {reason[:160]}")
    if given.out:
        given.out.write_text(json.dumps(count, indent=1), "utf-8")


if __name__ == "__main__":
    main()
