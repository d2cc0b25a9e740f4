"""Make a kernel stand alone, and alongside it the smallest function that launches it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from curate.harvest.kernels.launches import Site, described, gives_all, launch_sites
from curate.harvest.python.environment import KERNELS
from curate.harvest.python.jitted import Jitted, definition_of, jitted_functions, statements_of
from curate.harvest.python.package import Definition, Package, Symbol, package_of
from curate.harvest.python.slices import NotClosed, StandaloneFile, close
from curate.harvest.python.source import dedented, scopes, source_of, text_at
from curate.harvest.python.upstream import upstream_of
from curate.rows import KERNEL, FoundRow, Row, make_row
from curate.step import Context

_ATTEMPTS: tuple[frozenset[str], ...] = (
    frozenset(),
    frozenset({"triton.autotune"}),
    frozenset({"triton.heuristics"}),
    frozenset({"triton.autotune", "triton.heuristics"}),
)
"""Decorators given up, the fewest first, where what they read cannot be had."""

_MEASURES = re.compile(r"(^|_)(bench|benchmark|test|main|perf|profile|tune)(_|$)").search


def closed_kernel(row: FoundRow, context: Context, max_lines: int) -> Row:
    """Return the kernel's row with ``triton``, ``host_function`` and ``kernel.launches``.

    Raises:
        NotClosed: the kernel cannot stand alone.
    """
    package = package_of(row, context.cache, KERNELS)
    kernel = _kernel_of(package, row)
    closed, without = _closed(package, kernel)
    closed.check_length(max_lines)
    sites = launch_sites(package, kernel)
    wrapper = None if without else _wrapper(package, kernel, closed, sites, max_lines)
    said = upstream_of(package.text(kernel.path), kernel.start_line)
    taken = [*said, *sorted({*closed.taken, *(wrapper.taken if wrapper else ())})]
    launches = json.dumps(described(package, kernel, sites), sort_keys=True)
    return make_row(
        "kernel",
        closed.text,
        row["origin"] | {"derived_from": [*row["origin"]["derived_from"], *taken]},
        triton=closed.text,
        entry_point=kernel.name,
        host_function=wrapper.text if wrapper else None,
        kernel=dict.fromkeys(field.name for field in KERNEL) | {"launches": launches},
        license=row["license"],
        parent_ids=[row["id"]],
    )


def _kernel_of(package: Package, row: FoundRow) -> Jitted:
    origin = row["origin"]
    wanted = (origin["symbol"], origin["start_line"])
    for kernel in jitted_functions(package, origin["path"]):
        if (kernel.symbol, kernel.start_line) == wanted:
            return kernel
    raise ValueError(f"{origin['path']} has no kernel {wanted}: the row is not from this package")


def _closed(package: Package, kernel: Jitted) -> tuple[StandaloneFile, frozenset[str]]:
    """Return the kernel's file, and the decorators that had to go."""
    target = definition_of(kernel)
    chosen = {target: statements_of(package, kernel)}
    if caught := _caught(kernel):
        raise NotClosed("nested_kernel", names=sorted(caught))
    first: NotClosed | None = None
    for without in _ATTEMPTS:
        try:
            return close(package, target, {target: kernel.name}, chosen, without, None), without
        except NotClosed as loss:
            first = first or loss
    assert first is not None
    raise first


def _caught(kernel: Jitted) -> set[str]:
    """Return the variables of functions around it that a kernel reads."""
    if kernel.outer is None:
        return set()
    free, _ = scopes(dedented(kernel.node))
    _, bound = scopes(dedented(kernel.outer))
    return (free & bound) - {kernel.name}


def _wrapper(
    package: Package, kernel: Jitted, alone: StandaloneFile, sites: list[Site], max_lines: int
) -> StandaloneFile | None:
    """Return the file of the smallest function that launches a kernel and can stand alone."""
    target = definition_of(kernel)
    if kernel.symbol != kernel.name:
        return None
    chosen = {target: statements_of(package, kernel)}
    tuned = any(name in source_of(kernel.node) for name in ("autotune", "heuristics"))
    complete = [site for site in sites if tuned or gives_all(kernel, site)]
    for function in _launchers(package, complete):
        wished: dict[Symbol, str] = {target: kernel.name, function: function.name}
        if function.name == kernel.name:
            continue
        try:
            closed = close(package, function, wished, chosen, imported=alone.places)
            closed.check_length(max_lines)
        except NotClosed:
            continue
        return closed
    return None


def _launchers(package: Package, sites: list[Site]) -> Iterator[Definition]:
    """Yield the top-level functions around launch sites, the shortest first, benchmarks last."""
    found: dict[Definition, int] = {}
    for site in sites:
        function = site.outermost
        if function is not None:
            here = Definition(site.path, text_at(function, "name"))
            if here.name in package.file(site.path).definitions:
                found.setdefault(here, function.end_byte - function.start_byte)
    yield from sorted(
        found, key=lambda d: (_MEASURES(d.name) is not None, found[d], d.path, d.name)
    )
