"""Columns that say what a row is like, for those who choose among rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from curate.formats.fim.fim import count_tokens
from curate.formats.format import Shown
from curate.formats.prompts.examples import WorkedExample
from curate.formats.prompts.facts import schedules
from curate.rows import PairRow, SampleRow
from curate.teacher.describe import inputs_of

DESCRIBED = [
    ("level", pa.string()),
    ("family", pa.string()),
    ("kernels", pa.int32()),
    ("lines", pa.int32()),
    ("tokens", pa.int32()),
    ("shapes", pa.list_(pa.string())),
    ("dtypes", pa.list_(pa.string())),
    ("schedule", pa.list_(pa.string())),
    ("program_us", pa.float64()),
    ("eager_us", pa.float64()),
    ("compile_us", pa.float64()),
    ("example_id", pa.string()),
]

LEVELS = {1: "1", 5: "2-5", 20: "6-20", 60: "21-60"}
"""How many operators a module has at most, and what its level is called."""
ABOVE = "61+"

FAMILIES = {
    "attention": "scaled_dot_product _sdpa _flash_attention",
    "convolution": "convolution _convolution",
    "product": "mm bmm addmm addbmm baddbmm addmv mv addr dot linear einsum _trilinear _cdist",
    "scan": "cumsum cumprod cummax cummin logcumsumexp",
    "sort": "sort topk argsort kthvalue median",
    "softmax": "_softmax _log_softmax logsumexp",
    "normalisation": "native_layer_norm native_group_norm _native_batch_norm native_batch_norm "
    "_fused_rms_norm renorm linalg_vector_norm",
    "pooling and resizing": "avg_pool max_pool adaptive_ _adaptive_ upsample _unsafe_index "
    "grid_sampler",
    "gather and scatter": "gather scatter index embedding take _index slice_ _pdist",
    "reduction": "sum mean amax amin max min var std prod norm argmax argmin any all nansum dist "
    "count_nonzero aminmax trace nll_loss var_mean std_mean",
}
"""Families by the operators that are in them, the first that fits: names of ATen, or how they begin
if they have more than four letters."""
POINTWISE = "elementwise"


def described(
    row: PairRow | SampleRow, messages: Iterable[Mapping[str, str]], example: WorkedExample | None
) -> Shown:
    """Return the `DESCRIBED` columns of a row; what is not known is null.

    ``tokens`` counts names, numbers and other visible characters of all messages. Tokenizers
    differ; most make 1.1 to 1.5 times as many of code.
    """
    static, program = row["static"], row["triton"]
    inputs = inputs_of(row["reference"] or "")
    times = row["verdict"].get("timing") if row["verdict"] else None
    return {
        "level": level_of(row),
        "family": family_of((static and static["ops"]) or []),
        "kernels": static and static["kernels"],
        "lines": program.count("\n") if program else None,
        "tokens": sum(count_tokens(turn["content"]) for turn in messages),
        "shapes": None
        if inputs is None
        else ["x".join(map(str, tensor.shape)) for tensor in inputs],
        "dtypes": None if inputs is None else [tensor.dtype for tensor in inputs],
        "schedule": schedules(program) if program else None,
        "program_us": times and times["candidate_us"],
        "eager_us": times and times["eager_us"],
        "compile_us": times and times["compile_us"],
        "example_id": example and example.id,
    }


def level_of(row: PairRow | SampleRow) -> str | None:
    """Return the level of a row by the operators that compute something in its module."""
    wiring, static = row["wiring"], row["static"]
    n = wiring["ops"] if wiring else None
    if n is None:
        n = len((static and static["ops"]) or []) or None
    if n is None:
        return None
    return next((level for most, level in LEVELS.items() if n <= most), ABOVE)


def family_of(operators: Iterable[str]) -> str | None:
    """Return what kind of computing a module's operators do; None if they are not known."""
    names = [operator.removeprefix("aten.").partition(".")[0] for operator in operators]
    for family, known in FAMILIES.items():
        if any(_is_one_of(name, known.split()) for name in names):
            return family
    return POINTWISE if names else None


def _is_one_of(name: str, known: list[str]) -> bool:
    return any(name == word or (len(word) > 4 and name.startswith(word)) for word in known)
