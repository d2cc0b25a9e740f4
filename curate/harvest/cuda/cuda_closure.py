"""Make both sides of a CUDA→Triton pair stand alone."""

from __future__ import annotations

from curate.harvest.cuda.cuda_package import close_cuda, cuda_package_of
from curate.harvest.kernels.closed_kernel import closed_kernel
from curate.harvest.python.slices import NotClosed
from curate.rows import FoundCudaRow, FoundRow, Row, make_row
from curate.step import Context


def closed_pair(row: FoundCudaRow, context: Context, max_lines: int) -> Row:
    """Return the pair's row with ``cuda``, ``triton``, ``host_function`` and ``kernel.launches``.

    ``origin`` is the CUDA kernel's; ``origin.derived_from`` names the Triton kernel's lines and
    all that was taken from other files than the CUDA kernel's own.

    Raises:
        NotClosed: one of the two cannot stand alone; ``evidence["side"]`` says which.
    """
    origin, pairing = row["origin"], row["pairing"]
    package = cuda_package_of(row, context.cache)
    kernel_row: FoundRow = {
        **row,
        "kind": "kernel",
        "origin": {
            **origin,
            "path": pairing["path"],
            "symbol": pairing["symbol"],
            "start_line": pairing["start_line"],
            "derived_from": [],
        },
    }
    side = "cuda"
    try:
        cuda = close_cuda(package, package.kernel(origin["path"], origin["start_line"]))
        cuda.check_length(max_lines)
        side = "triton"
        triton = closed_kernel(kernel_row, context, max_lines)
    except NotClosed as loss:
        raise NotClosed(loss.reason, side=side, **loss.evidence) from loss
    line = pairing["start_line"]
    taken = [f"{pairing['path']}:{line}-{line}", *triton["origin"]["derived_from"], *cuda.taken]
    return make_row(
        "cuda",
        cuda.text + (triton["triton"] or ""),
        origin | {"derived_from": list(dict.fromkeys([*origin["derived_from"], *taken]))},
        cuda=cuda.text,
        triton=triton["triton"],
        entry_point=triton["entry_point"],
        host_function=triton["host_function"],
        kernel=triton["kernel"],
        pairing=pairing,
        license=row["license"],
        parent_ids=[row["id"]],
    )
