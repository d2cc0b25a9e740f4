"""The ``wiring`` step: what a problem computes, whatever words say it.

`dedupe`, `split` and `decontaminate` compare texts, and the same computation can be written with
other variables, layers or operators. So this step runs each problem once on tensors without values
and writes the graph's hashes into the column ``wiring`` (`curate.clean.wiring.graph` says what
they are of); a problem without parameters is also run on small inputs
(`curate.clean.wiring.small_inputs`).

A problem that cannot be traced is kept, with a null.
"""

from __future__ import annotations

import contextlib
import hashlib
from typing import Any, ClassVar, Literal, cast

from curate.rows import GraphHashes, Row
from curate.step import Context, Keep, Outcome, RowSeconds, RowStep

SECONDS = 0.8
"""Share of a row's time after which the step gives it up and keeps it."""


class Wiring(RowStep):
    """Says what each problem computes, for the steps that look for twins and for benchmarks."""

    version: ClassVar[int] = 2
    takes: ClassVar[frozenset[str]] = frozenset({"task", "pair", "prompt", "sample", "cuda"})
    sets: ClassVar[frozenset[str]] = frozenset({"wiring"})
    tools: ClassVar[tuple[str, ...]] = ("torch", "numpy")
    sandboxed: ClassVar[bool] = True

    step: Literal["wiring"]

    timeout_s: RowSeconds = 60.0

    def setup(self, context: Context) -> None:
        import torch

        import curate.clean.wiring.small_inputs
        import curate.problem.eager  # noqa: F401  imported once, before workers fork
        from curate.clean.wiring.operators import warm

        torch.set_num_threads(1)
        warm()

    def apply(self, row: Row, context: Context) -> Outcome:
        if row["reference"] is None:
            return Keep((row,))
        from curate.engine.processes.time_limit import OutOfTime, time_limit

        found = None
        with contextlib.suppress(OutOfTime), time_limit(SECONDS * self.timeout_s):
            found = read_wiring(row["reference"])
        return Keep(({**row, "wiring": cast(GraphHashes | None, found)},))


def read_wiring(reference: str) -> dict[str, Any] | None:
    """Return the value of the column ``wiring``, or None if the problem cannot be traced.

    For the sandbox only: it runs the problem.
    """
    import logging

    from curate.clean.wiring.graph import Coarse, exact_sha256
    from curate.clean.wiring.operators import trace
    from curate.clean.wiring.small_inputs import value_hashes
    from curate.problem.eager import load

    logging.getLogger("torch").setLevel(logging.CRITICAL)  # it prints what it cannot trace
    try:
        names = load(reference)
        graph = trace(names, hashlib.sha256(reference.encode()).hexdigest())
    except Exception:  # the code is other people's: it may raise anything
        return None
    values: list[str] = []
    with contextlib.suppress(Exception):
        values = value_hashes(names)
    coarse = Coarse(graph)
    return {
        "exact": exact_sha256(graph),
        "graph": coarse.sha256,
        "hops": coarse.hops,
        "ops": graph.ops,
        "values": values,
    }
