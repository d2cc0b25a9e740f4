"""A printed kernel and its launch, from a body and what the host decides."""

from __future__ import annotations

from dataclasses import dataclass, field

from curate.generator.body import Body


@dataclass(frozen=True)
class Kernel:
    """One kernel and how it is launched.

    Attributes:
        body: its statements.
        doc: how the work is shared out; a sentence.
        grid: the host's text for each dimension of the grid.
        blocks: compile-time constants, with the host's text for each.
        setup: statements of the host before the launch.
        warps: the host's text for ``num_warps``, or "" for Triton's own.
        part: what is added to the kernel's name, such as ``partial``.
        tuned_by: arguments whose values an autotuner chooses ``blocks`` for, which then have no
            text; None if it is not tuned.
        loop: the head of the host's loop around the launch, or ""; ``after`` is its last statement.
        tiles: the configurations that it chooses from; those are left out first that the function
            ``pruned_by`` does not return.
    """

    body: Body
    doc: str
    grid: tuple[str, ...]
    blocks: dict[str, str] = field(default_factory=dict)
    setup: tuple[str, ...] = ()
    warps: str = ""
    part: str = ""
    tuned_by: tuple[str, ...] | None = None
    tiles: str = "TILES"
    pruned_by: str = ""
    loop: str = ""
    after: str = ""
