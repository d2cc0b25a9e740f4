"""The source `torch_ops`: PyTorch problems made from PyTorch's own operators, with no network.

Single operators come from the database that PyTorch tests itself with (`operators`); compositions
come from a seeded grammar of what models, losses and optimisers are made of (`compositions`).
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import json
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

import curate
from curate.rows import License, Row, make_origin, make_row
from curate.step import Context, Drop, SourceStep, StepError, Unit

_OPERATOR_PARTS = 8
_COMPOSITIONS_A_UNIT = 100


class TorchOps(SourceStep):
    """Problems in KernelBench's form from single operators and from compositions of them.

    Each problem is run before it is yielded; one that fails is yielded as ``(row, Drop)``.
    """

    version: ClassVar[int] = 5
    makes: ClassVar[frozenset[str]] = frozenset({"task"})
    sets: ClassVar[frozenset[str]] = frozenset({"reference", "entry_point", "license"})

    tools: ClassVar[tuple[str, ...]] = ("torch",)

    source: Literal["torch_ops"]
    single: Annotated[
        int,
        Field(
            ge=0,
            le=16,
            description="Problems per operator of PyTorch's database, at most: they differ in "
            "arguments (dim, keepdim, reduction) or in broadcasting. 0 leaves them out.",
        ),
    ] = 2
    compositions: Annotated[
        int,
        Field(
            ge=0,
            le=3000,
            description="Compositions of operators (epilogues, attention, losses, experts, "
            "backward passes …), drawn with the recipe's seed. No two have one structure.",
        ),
    ] = 1000
    operators: Annotated[
        tuple[str, ...],
        Field(
            description="Single operators to use, as patterns of the database's names: "
            '"nn.functional.*", or "!special.*" to leave some out. Empty uses all that suit.',
        ),
    ] = ()

    def units(self, context: Context) -> list[Unit]:
        units = []
        if self.single:
            for part in range(_OPERATOR_PARTS):
                spec = {"kind": "single", "part": part, "parts": _OPERATOR_PARTS}
                units.append(self._unit(f"operators {part + 1}/{_OPERATOR_PARTS}", spec, context))
        for start in range(0, self.compositions, _COMPOSITIONS_A_UNIT):
            stop = min(start + _COMPOSITIONS_A_UNIT, self.compositions)
            spec = {"kind": "composition", "start": start, "stop": stop}
            units.append(self._unit(f"compositions {start}-{stop - 1}", spec, context))
        return units

    def _unit(self, label: str, spec: dict[str, Any], context: Context) -> Unit:
        chosen = {"single": self.single, "operators": self.operators}
        decides = chosen if spec["kind"] == "single" else {}
        pinned = json.dumps([decides, context.seed, spec], sort_keys=True)
        return Unit(label, hashlib.sha256(pinned.encode()).hexdigest(), spec)

    def setup(self, context: Context) -> None:
        """Import PyTorch's database once a worker, which takes longer than to read most units."""
        importlib.import_module("curate.sources.torch_ops.operators")

    def read(self, unit: Unit, context: Context) -> Iterator[Row | tuple[Row, Drop]]:
        """Yield the unit's problems in a fixed order; those that fail their check with a `Drop`."""
        license_ = _license(context.cache)
        if unit.spec["kind"] == "single":
            found = self._operators(unit.spec["part"], unit.spec["parts"], context.seed)
        else:
            found = _compositions(unit.spec["start"], unit.spec["stop"], context.seed)
        for symbol, text, drop in found:
            row = _row(symbol, text, license_)
            yield row if drop is None else (row, drop)

    def _operators(
        self, part: int, parts: int, seed: int
    ) -> Iterator[tuple[str, str | None, Drop | None]]:
        from curate.sources.torch_ops import operators as op_modules

        for op in op_modules.operators()[part::parts]:
            name = op.full_name
            if not self._wants(name):
                continue
            for number, problem in enumerate(op_modules.problems(op, self.single, seed)):
                if isinstance(problem, Drop):
                    yield name, None, problem
                else:
                    yield f"{name}#{number}", problem, None

    def _wants(self, name: str) -> bool:
        barred = [pattern[1:] for pattern in self.operators if pattern.startswith("!")]
        wanted = [pattern for pattern in self.operators if not pattern.startswith("!")] or ["*"]
        return _matches(name, wanted) and not _matches(name, barred)


def _matches(name: str, patterns: list[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _compositions(
    start: int, stop: int, seed: int
) -> Iterator[tuple[str, str | None, Drop | None]]:
    from curate.sources.torch_ops.check import check
    from curate.sources.torch_ops.compositions import compositions

    for index, (family, text) in enumerate(islice(compositions(seed), start, stop), start):
        yield f"{family}#{index}", text, check(text)


def _row(symbol: str, text: str | None, license_: License) -> Row:
    version = _torch_version()
    origin = make_origin(
        "torch_ops",
        purl=f"pkg:pypi/torch@{version}",
        version=version,
        symbol=symbol,
        generator={"name": "curate torch_ops", "tools": [f"torch {version}"]},
    )
    return make_row(
        "task", text or "", origin, reference=text, entry_point="Model", license=license_
    )


@cache
def _torch_version() -> str:
    """Return torch's release, without the build's local part such as ``+cpu``."""
    return importlib.metadata.version("torch").partition("+")[0]


def _license(folder: Path | None) -> License:
    """Return the license of the problems.

    The text is this project's (Apache-2.0); the operators and how they are called are PyTorch's
    (BSD-3-Clause).
    """
    hashes = []
    if folder is not None:
        from curate.cache.texts import save_text

        hashes = [save_text(folder, text) for text in (_own_text(), _text_of("torch"))]
    return {
        "expression": "Apache-2.0 AND BSD-3-Clause",
        "choice": "Apache-2.0 AND BSD-3-Clause",
        "method": "generated",
        "confidence": 1.0,
        "path": None,
        "text_sha256": hashes,
        "notice_sha256": [],
        "copyright": [],
        "conflict": False,
    }


@cache
def _own_text() -> str:
    """Return the text of this project's license: the installed one, or that of the checkout."""
    root = Path(curate.__file__).parents[1]
    if (root / "pyproject.toml").exists():
        return (root / "LICENSE").read_text(encoding="utf-8")
    return _text_of("kernel-curate")


@cache
def _text_of(distribution: str) -> str:
    """Return the license file at the top of an installed distribution.

    Raises:
        StepError: it has none; a row may not go without its license.
    """
    try:
        files = importlib.metadata.files(distribution) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.parts[1:] in {("licenses", "LICENSE"), ("LICENSE",)} and ".dist-info" in str(file):
            return file.read_text(encoding="utf-8")
    raise StepError(f"{distribution} is installed without its license file; install it again")
