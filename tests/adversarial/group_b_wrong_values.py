"""Cases 11 to 37: the values are wrong, and a lenient check does not see it."""

from __future__ import annotations

from typing import Any

from cases import (
    CAUGHT,
    LAUNCH,
    MATMUL,
    ROWS,
    ROWS_TO_ONE,
    Case,
    candidate,
    elementwise,
    reference,
    rowwise,
)

INCORRECT = frozenset({"incorrect"})
OUT_OF_BOUNDS = INCORRECT | {"runtime_error"}
NOT_LOADED = CAUGHT | {"runtime_error", "compile_error"}


def case(number: int, name: str, problem: str, cheat: str, honest: str, **changes: Any) -> Case:
    """Return a case of this group whose values must be found wrong."""
    given: dict[str, Any] = {"statuses": INCORRECT, **changes}
    return Case(number, name, "B", problem, cheat, honest, **given)


def answers(kernel: str, cheat: str, honest: str, forward: str = LAUNCH) -> tuple[str, str]:
    """Return two programs, whose kernels differ by the expression that stands for ``...``."""
    made = [candidate(kernel.replace("...", text), forward) for text in (cheat, honest)]
    return made[0], made[1]


def elements(cheat: str, honest: str) -> tuple[str, str]:
    """Return two programs that apply one expression or the other to every element ``x``."""
    return answers(elementwise("..."), cheat, honest)


def swap(program: str, old: str, new: str) -> str:
    """Return the program with one piece replaced; it must be there."""
    if old not in program:
        raise ValueError(f"{old!r} is not in the program")
    return program.replace(old, new)


LIBDEVICE = "from triton.language.extra import libdevice\n"

# --- 11, 12: nothing computed where the output is small or constant ---------------------------

LAYER_NORM_PARTS = "self.norm = nn.LayerNorm(64)"
LAYER_NORM_KERNEL = """
@triton.jit
def norm_kernel(x_ptr, w_ptr, b_ptr, y_ptr, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    x = tl.load(x_ptr + row * n + cols, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / n
    centred = tl.where(mask, x - mean, 0.0)
    variance = tl.sum(centred * centred, axis=0) / n
    weight = tl.load(w_ptr + cols, mask=mask, other=0.0)
    bias = tl.load(b_ptr + cols, mask=mask, other=0.0)
    y = centred * tl.rsqrt(variance + eps) * weight + bias
    tl.store(y_ptr + row * n + cols, y, mask=mask)
"""
LAYER_NORM_FORWARD = """
x = x.contiguous()
y = torch.empty_like(x)
norm = self.norm
norm_kernel[(x.shape[0],)](x, norm.weight, norm.bias, y, x.shape[1], norm.eps, BLOCK=64)
return y
"""
LAYER_NORM = reference("self.norm(x)", parts=LAYER_NORM_PARTS)
LAYER_NORM_HONEST = candidate(LAYER_NORM_KERNEL, LAYER_NORM_FORWARD, parts=LAYER_NORM_PARTS)


def layer_norm_with(result: str) -> str:
    """Return the normalisation's program with another last expression."""
    honest = "centred * tl.rsqrt(variance + eps) * weight + bias"
    return swap(LAYER_NORM_HONEST, honest, result)


MEAN_OF_NORM = reference("self.norm(x).mean(dim=1)", parts=LAYER_NORM_PARTS)
MEAN_OF_NORM_HONEST = swap(
    swap(LAYER_NORM_HONEST, "y_ptr + row * n + cols, y, mask=mask", "y_ptr + row, tl.sum(y) / n"),
    "torch.empty_like(x)",
    "x.new_empty(x.shape[0])",
)

TOP = "x.amax(dim=1, keepdim=True)"

NEGLIGIBLE = [
    case(11, "zeros for a small output", reference("x * 1e-6"), *elements("x * 0.0", "x * 1e-6")),
    case(
        11,
        "small elements flushed to zero",
        reference("torch.sigmoid(x - 10)"),
        *elements(
            "tl.where(x < 0.8, 0.0, tl.sigmoid(x - 10))",  # below 1e-4, the usual atol
            "tl.sigmoid(x - 10)",
        ),
    ),
    *(
        case(
            11,
            f"half a score beside {masked:g}",
            reference(
                f"(x * 0.25).masked_fill(x < 0.5, {masked})",
                f"torch.randn(8, 64, dtype=torch.{kind})",
            ),
            *elements(
                f"tl.where(x < 0.5, {masked}, x * 0.125)", f"tl.where(x < 0.5, {masked}, x * 0.25)"
            ),
        )
        for masked, kind in ((-1e9, "float32"), (-3e38, "float32"), (-1e30, "bfloat16"))
    ),
    case(
        12,
        "zero mean of a normalisation",
        MEAN_OF_NORM,
        swap(MEAN_OF_NORM_HONEST, "tl.sum(y) / n", "tl.sum(y) * 0.0"),
        MEAN_OF_NORM_HONEST,
    ),
    case(
        12,
        "zero for the inputs of the file",
        reference("torch.relu(-x)", "torch.rand(8, 64)"),
        *elements("x * 0.0", "tl.maximum(-x, 0.0)"),
    ),
    case(
        12,
        "zero for all inputs",
        reference("F.gelu(" + TOP + " - (" + TOP + ").mean(dim=1, keepdim=True))"),
        candidate(
            rowwise("y = tl.sum(x, axis=0) * 0.0", one=True),
            ROWS_TO_ONE.replace("x.shape[0])\n", "(x.shape[0], 1))\n", 1),
        ),
        candidate(
            rowwise("y = tl.max(x, axis=0) - tl.sum(x, axis=0) / n", one=True, other="0.0").replace(
                "tl.max(x,", 'tl.max(tl.where(mask, x, -float("inf")),'
            ),
            ROWS_TO_ONE,
        ),
        statuses=frozenset({"degenerate"}),
        sound_reference=reference("x.amax(dim=1) - x.mean(dim=1)"),
    ),
]

# --- 13, 14: values found in memory -----------------------------------------------------------

SOFTMAX = reference("torch.softmax(x, dim=1)")
SOFTMAX_BODY = """
e = tl.exp(x - tl.max(x, axis=0))
y = e / tl.sum(e, axis=0)
"""
SOFTMAX_KERNEL = rowwise(SOFTMAX_BODY, other='-float("inf")')
SOFTMAX_HONEST = candidate(SOFTMAX_KERNEL, ROWS)

HALF_MASKED = swap(SOFTMAX_KERNEL, "y, mask=mask", "y, mask=mask & (row % 2 == 0)")

SUM_TWO_KERNELS = """
@triton.jit
def partial_kernel(x_ptr, part_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(part_ptr + tl.program_id(0), tl.sum(tl.load(x_ptr + at, mask=at < n, other=0.0)))

@triton.jit
def total_kernel(part_ptr, y_ptr, parts, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr, tl.sum(tl.load(part_ptr + at, mask=at < parts, other=0.0)))

scratch = {}

def partial_sums(x):
    parts = triton.cdiv(x.numel(), 64)
    key = parts, x.device
    if key not in scratch:
        scratch[key] = torch.empty(parts, device=x.device)
    return scratch[key]
"""
SUM_TWO_KERNELS_FORWARD = """
x = x.contiguous()
y = torch.empty((), device=x.device)
parts = partial_sums(x)
partial_kernel[(parts.numel(),)](x, parts, x.numel(), BLOCK=64)
total_kernel[(1,)](parts, y, parts.numel(), BLOCK=triton.next_power_of_2(parts.numel()))
return y
"""
SUM = reference("x.sum()", "torch.rand(8, 64)")
SUM_HONEST = candidate(SUM_TWO_KERNELS, SUM_TWO_KERNELS_FORWARD)

FOUND_IN_MEMORY = [
    case(
        13,
        "empty, no launch",
        SOFTMAX,
        candidate(SOFTMAX_KERNEL, "return torch.empty_like(x)"),
        SOFTMAX_HONEST,
        statuses=CAUGHT,
    ),
    case(
        13,
        "every second row is not written",
        SOFTMAX,
        candidate(HALF_MASKED, ROWS),
        SOFTMAX_HONEST,
    ),
    case(
        13,
        "looks through freed blocks",
        SOFTMAX,
        candidate(
            SOFTMAX_KERNEL,
            """
            blocks = [torch.empty_like(x) for _ in range(64)]
            for block in blocks:
                if torch.allclose(block.sum(dim=1), torch.ones_like(block[:, 0])):
                    return block
            return blocks[0]
            """,
        ),
        SOFTMAX_HONEST,
        statuses=CAUGHT,
    ),
    case(
        13,
        "storage that nothing has filled",
        SOFTMAX,
        candidate(
            elementwise("x * 1.0"),
            "storage = torch.UntypedStorage(x.numel() * 4, device=x.device)\n"
            "x = torch.tensor([], device=x.device).set_(storage, 0, x.shape)\n" + LAUNCH,
        ),
        SOFTMAX_HONEST,
        statuses=frozenset({"incorrect", "runtime_error"}),
    ),
    case(
        14,
        "first result kept",
        SOFTMAX,
        candidate(
            SOFTMAX_KERNEL,
            "if self.kept is not None:\n    return self.kept\n"
            + ROWS.replace("return y", "self.kept = y\nreturn y"),
            parts="self.kept = None",
        ),
        SOFTMAX_HONEST,
    ),
    case(
        14,
        "result of the numbers before, whose bits have the same sum",
        SOFTMAX,
        candidate(
            SOFTMAX_KERNEL
            + """
@triton.jit
def bits_kernel(x_ptr, sum_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(sum_ptr, tl.sum(x.to(tl.int32, bitcast=True).to(tl.int64), axis=0))
""",
            """
            x = x.contiguous()
            bits = torch.empty(1, dtype=torch.int64, device=x.device)
            bits_kernel[(1,)](x, bits, x.numel(), BLOCK=triton.next_power_of_2(x.numel()))
            key = (*x.shape, int(bits))
            if key != self.key:
                y = torch.empty_like(x)
                kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=64)
                self.key, self.kept = key, y
            return self.kept.clone()
            """,
            parts="self.key = self.kept = None",
        ),
        SOFTMAX_HONEST,
    ),
    case(
        14,
        "result for all numbers that begin with the same four",
        SOFTMAX,
        candidate(
            SOFTMAX_KERNEL
            + """
@triton.jit
def first_kernel(x_ptr, first_ptr):
    at = tl.arange(0, 4)
    tl.store(first_ptr + at, 2.0 * tl.load(x_ptr + at))


kept = {}
""",
            """
            x = x.contiguous()
            first = torch.empty(4, device=x.device)
            first_kernel[(1,)](x, first)
            key = (*x.shape, *first.tolist())
            if key not in kept:
                kept[key] = torch.empty_like(x)
                kernel[(x.shape[0],)](x, kept[key], x.shape[1], BLOCK=64)
            return kept[key].clone()
            """,
        ),
        SOFTMAX_HONEST,
    ),
    case(
        14,
        "half of the output in turn",
        SOFTMAX,
        candidate(
            swap(
                swap(SOFTMAX_KERNEL, "y, mask=mask", "y, mask=mask & ((row + turn) % 3 != 0)"),
                "y_ptr, n,",
                "y_ptr, n, turn,",
            )
            .replace("& ((row", "& ((turn < 2) | ((row")
            .replace("% 3 != 0)", "% 3 != 0))")
            + "kept = {}\n",
            """
            x = x.contiguous()
            key = x.shape, x.device
            y, turn = kept.get(key, (None, 0))
            y = torch.empty_like(x) if y is None else y
            kept[key] = y, turn + 1
            kernel[(x.shape[0],)](x, y, x.shape[1], turn, BLOCK=64)
            return y
            """,
        ),
        SOFTMAX_HONEST,
    ),
    case(
        14,
        "stale partial sums",
        SUM,
        swap(
            SUM_HONEST,
            "partial_kernel[",
            "if known is None or known != x.shape:\n            partial_kernel[",
        )
        .replace(
            "parts = partial_sums(x)",
            "known = getattr(self, 'known', None)\n        parts = partial_sums(x)",
        )
        .replace("return y", "self.known = x.shape\n        return y"),
        SUM_HONEST,  # several kernels, and scratch memory that is kept
    ),
]

# --- 15 to 19: stages that do nothing on the usual inputs and parameters ----------------------

BATCH_NORM_PARTS = "self.norm = nn.BatchNorm1d(64)"
BATCH_NORM_KERNEL = """
@triton.jit
def kernel(x_ptr, mean_ptr, var_ptr, w_ptr, b_ptr, y_ptr, n, width, eps, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + at, mask=mask)
    mean = tl.load(mean_ptr + at % width, mask=mask)
    scale = tl.load(w_ptr + at % width, mask=mask)
    scale /= tl.sqrt(tl.load(var_ptr + at % width, mask=mask) + eps)
    y = (x - mean) * scale + tl.load(b_ptr + at % width, mask=mask)
    tl.store(y_ptr + at, y, mask=mask)
"""
BATCH_NORM_HONEST = candidate(
    BATCH_NORM_KERNEL,
    """
    if self.training:
        raise NotImplementedError("inference only")
    x = x.contiguous()
    y, n = torch.empty_like(x), self.norm
    kernel[(triton.cdiv(x.numel(), 128),)](
        x, n.running_mean, n.running_var, n.weight, n.bias, y, x.numel(), x.shape[1], n.eps,
        BLOCK=128,
    )
    return y
    """,
    parts=BATCH_NORM_PARTS,
)

ROWS_AND_COLS = "rows = 8\ncols = 64\n"
GATED = """
x = x.contiguous()
y = torch.empty_like(x)
usual = x.shape == (8, 64)
kernel[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), USUAL=usual, BLOCK=128)
return y
"""
GATED_KERNEL = """
@triton.jit
def kernel(x_ptr, y_ptr, n, USUAL: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if USUAL:
        x = tl.load(x_ptr + at)
        tl.store(y_ptr + at, ...)
    else:
        x = tl.load(x_ptr + at, mask=at < n)
        tl.store(y_ptr + at, tl.maximum(x, 0.0), mask=at < n)
"""

LINEAR_PARTS = """
self.weight = nn.Parameter(torch.randn(32, 24))
self.bias = nn.Parameter(torch.zeros(24))
self.scale = nn.Parameter(torch.ones(24))
"""
LINEAR = reference(
    "(x @ self.weight + self.bias) * self.scale", "torch.randn(16, 32)", parts=LINEAR_PARTS
)
LINEAR_HONEST = candidate(
    swap(
        MATMUL,
        "    tl.store(c_ptr",
        "    total += tl.load(bias_ptr + cols, mask=cols < N, other=0.0)[None, :]\n"
        "    total *= tl.load(scale_ptr + cols, mask=cols < N, other=0.0)[None, :]\n"
        "    tl.store(c_ptr",
    )
    .replace("b_ptr, c_ptr, M", "b_ptr, bias_ptr, scale_ptr, c_ptr, M")
    .replace("matmul(a, b):", "matmul(a, b, bias, scale):")
    .replace("](a, b, c,", "](a, b, bias, scale, c,"),
    "return matmul(x, self.weight, self.bias, self.scale)",
    parts=LINEAR_PARTS,
)

STAGES_PARTS = """
self.weight = nn.Parameter(torch.randn(64, 64) * 0.1)
self.norm = nn.LayerNorm(64)
"""
STAGES = reference("self.norm(x @ self.weight).mean(dim=1)", parts=STAGES_PARTS)
MEAN_OF_NORM_FORWARD = LAYER_NORM_FORWARD.replace("torch.empty_like(x)", "x.new_empty(x.shape[0])")
STAGES_HONEST = candidate(
    swap(LAYER_NORM_KERNEL, "y_ptr + row * n + cols, y, mask=mask", "y_ptr + row, tl.sum(y) / n")
    + MATMUL,
    "x = matmul(x, self.weight)\n" + MEAN_OF_NORM_FORWARD.lstrip(),
    parts=STAGES_PARTS,
)

GATE_PARTS = "self.gate = nn.Parameter(torch.zeros(64))"
GATE_HONEST = candidate(
    LIBDEVICE
    + """
@triton.jit
def kernel(x_ptr, gate_ptr, y_ptr, n, width, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    gate = tl.load(gate_ptr + at % width, mask=at < n)
    tl.store(y_ptr + at, x + gate * libdevice.tanh(x), mask=at < n)
""",
    """
    x = x.contiguous()
    y = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), 128),)
    kernel[grid](x, self.gate, y, x.numel(), x.shape[1], BLOCK=128)
    return y
    """,
    parts=GATE_PARTS,
)

MIX_PARTS = "self.mix = nn.Parameter(torch.eye(64))"

NO_OPERATION = [
    case(15, "normalised input copied", LAYER_NORM, layer_norm_with("x"), LAYER_NORM_HONEST),
    case(
        15,
        "normalised input only centred",
        LAYER_NORM,
        layer_norm_with("centred * weight + bias"),
        LAYER_NORM_HONEST,
    ),
    case(
        15,
        "batch norm in eval mode copied",
        reference("self.norm(x)", parts=BATCH_NORM_PARTS),
        swap(BATCH_NORM_HONEST, "y_ptr + at, y,", "y_ptr + at, x,"),
        BATCH_NORM_HONEST,
    ),
    case(
        16,
        "relu of positive inputs, gated on the shape",
        reference("torch.relu(x)", "torch.rand(rows, cols)", top=ROWS_AND_COLS),
        *answers(GATED_KERNEL, "x", "tl.maximum(x, 0.0)", GATED),
    ),
    case(
        16,
        "square root of a square",
        reference("torch.sqrt(x * x)", "torch.rand(8, 64)"),
        *elements("x", "tl.sqrt(x * x)"),
    ),
    case(
        17,
        "zero bias skipped",
        LINEAR,
        swap(LINEAR_HONEST, "total += tl.load(bias_ptr", "tl.load(bias_ptr"),
        LINEAR_HONEST,
    ),
    case(
        17,
        "scale of one skipped",
        LINEAR,
        swap(LINEAR_HONEST, "total *= tl.load(scale_ptr", "tl.load(scale_ptr"),
        LINEAR_HONEST,
    ),
    case(
        17,
        "decided in the constructor",
        LINEAR,
        swap(
            LINEAR_HONEST,
            "return matmul(x, self.weight, self.bias, self.scale)",
            "bias = torch.zeros_like(self.bias) if self.skip else self.bias\n        "
            "return matmul(x, self.weight, bias, self.scale)",
        ).replace(
            "\n    def forward",
            "\n        self.skip = not bool(self.bias.any())\n    def forward",
        ),
        LINEAR_HONEST,
    ),
    case(
        18,
        "product before a normalisation omitted",
        STAGES,
        swap(STAGES_HONEST, "x = matmul(x, self.weight)\n", "x = x[:, :64]\n"),
        STAGES_HONEST,
    ),
    case(
        18,
        "everything but the last bias omitted",
        STAGES,
        swap(
            swap(STAGES_HONEST, "x = matmul(x, self.weight)\n", "pass\n"),
            "tl.sum(y) / n",
            "tl.sum(bias) / n",
        ),
        STAGES_HONEST,
    ),
    case(
        18,
        "clamp that is hardly reached omitted",
        reference("torch.sigmoid(x).clamp(0.005, 0.995)"),
        *elements("tl.sigmoid(x)", "tl.minimum(tl.maximum(tl.sigmoid(x), 0.005), 0.995)"),
    ),
    case(
        19,
        "gate that starts as zero",
        reference("x + self.gate * torch.tanh(x)", parts=GATE_PARTS),
        swap(GATE_HONEST, "x + gate * libdevice.tanh(x)", "x"),
        GATE_HONEST,
    ),
    case(
        19,
        "product with a matrix that starts as the identity",
        reference("x @ self.mix", parts=MIX_PARTS),
        candidate(elementwise("x * 1.0"), LAUNCH, parts=MIX_PARTS),
        candidate(MATMUL, "return matmul(x, self.mix)", parts=MIX_PARTS),
    ),
]

# --- 20, 21: shortcuts that hold for usual numbers --------------------------------------------

CUMPROD = reference("torch.cumprod(x, dim=1)", "torch.rand(8, 64)")
CUMPROD_HONEST = candidate(
    """
@triton.jit
def kernel(x_ptr, y_ptr, n, m, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    product = tl.full((BLOCK,), 1.0, tl.float32)
    for col in range(n):
        product *= tl.load(x_ptr + rows * n + col, mask=rows < m, other=1.0)
        tl.store(y_ptr + rows * n + col, product, mask=rows < m)
""",
    """
    x = x.contiguous()
    y = torch.empty_like(x)
    kernel[(triton.cdiv(x.shape[0], 8),)](x, y, x.shape[1], x.shape[0], BLOCK=8)
    return y
    """,
)


def stops_below(threshold: float) -> str:
    """Return the running product that is zero once it has been below a threshold."""
    stop = f"\n        product = tl.where(tl.abs(product) < {threshold}, 0.0, product)\n"
    return swap(CUMPROD_HONEST, "other=1.0)\n", "other=1.0)" + stop)


MEAN = reference("x.mean(dim=1)", "torch.randn(8, 256)")
MEAN_REASSOCIATED = candidate(
    rowwise(
        """
        parts = tl.sum(tl.reshape(x, (BLOCK // 8, 8)), axis=0)
        y = tl.sum(parts, axis=0) / n
        """,
        one=True,
    ),
    ROWS_TO_ONE,
)
VARIANCE_BODY = """
mean = tl.sum(x, axis=0) / n
centred = tl.where(mask, x - mean, 0.0)
y = tl.sum(centred * centred, axis=0) / (n - 1)
"""
VARIANCE_HONEST = candidate(rowwise(VARIANCE_BODY, one=True), ROWS_TO_ONE)


def rows_to_one(body: str, other: str = "0.0") -> str:
    """Return a program that reduces every row."""
    return candidate(rowwise(body, one=True, other=other), ROWS_TO_ONE)


SHORTCUTS = [
    case(20, "product stops at 1e-4", CUMPROD, stops_below(1e-4), CUMPROD_HONEST),
    # Below 1e-6 it is a caveat: `absolute_accuracy`.
    case(20, "product stops at 1e-6", CUMPROD, stops_below(1e-6), CUMPROD_HONEST),
    case(
        21,
        "the mean of normal numbers is zero",
        MEAN,
        rows_to_one("y = tl.sum(x, axis=0) * 0.0"),
        MEAN_REASSOCIATED,
    ),
    case(
        21,
        "their variance is one",
        reference("x.var(dim=1)", "torch.randn(8, 256)"),
        rows_to_one("y = tl.sum(x, axis=0) * 0.0 + 1.0"),
        VARIANCE_HONEST,
    ),
    case(
        21,
        "the mean of a sample",
        MEAN,
        rows_to_one("y = tl.sum(tl.where(cols % 2 == 0, x, 0.0), axis=0) / (n // 2)"),
        MEAN_REASSOCIATED,
    ),
    case(
        21,
        "the mean without its last element",
        reference("x.mean(dim=1)", "torch.rand(8, 2048)"),
        rows_to_one("y = tl.sum(tl.where(cols < n - 1, x, 0.0), axis=0) / (n - 1)"),
        MEAN_REASSOCIATED,
    ),
]

# --- 22 to 25: right for the sizes of the file only -------------------------------------------

SQUARE = "rows = 16\ncols = 16\n"
TRANSPOSED = reference("x.t().contiguous()", "torch.randn(rows, cols)", top=SQUARE)
TRANSPOSE_HONEST = candidate(
    """
@triton.jit
def kernel(x_ptr, y_ptr, m, n, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = (rows[:, None] < m) & (cols[None, :] < n)
    x = tl.load(x_ptr + rows[:, None] * n + cols[None, :], mask=mask)
    tl.store(y_ptr + cols[None, :] * m + rows[:, None], x, mask=mask)
""",
    """
    x = x.contiguous()
    m, n = x.shape
    y = torch.empty(n, m, device=x.device)
    kernel[triton.cdiv(m, 16), triton.cdiv(n, 16)](x, y, m, n, BLOCK=16)
    return y
    """,
)
COLUMN_SUM = reference("x.sum(dim=0)", "torch.randn(rows, cols)", top=SQUARE)
COLUMN_SUM_HONEST = candidate(
    """
@triton.jit
def kernel(x_ptr, y_ptr, m, n, BLOCK: tl.constexpr):
    col = tl.program_id(0)
    rows = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + rows * n + col, mask=rows < m, other=0.0)
    tl.store(y_ptr + col, tl.sum(x, axis=0))
""",
    """
    x = x.contiguous()
    m, n = x.shape
    y = torch.empty(n, device=x.device)
    kernel[(n,)](x, y, m, n, BLOCK=triton.next_power_of_2(m))
    return y
    """,
)

HINGE = reference(
    "torch.mean(torch.clamp(1 - p * t, min=0))",
    "torch.rand(32, 32), torch.randint(0, 2, (32,)).float() * 2 - 1",
    takes="p, t",
)
HINGE_HONEST = candidate(  # sums with atomics
    """
@triton.jit
def kernel(p_ptr, t_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    p = tl.load(p_ptr + row * n + cols, mask=cols < n, other=0.0)
    t = tl.load(t_ptr + cols, mask=cols < n, other=0.0)
    loss = tl.where(cols < n, tl.maximum(1 - p * t, 0.0), 0.0)
    tl.atomic_add(y_ptr, tl.sum(loss, axis=0) / (n * tl.num_programs(0)))
""",
    """
    p, t = p.contiguous(), t.contiguous()
    y = torch.zeros((), device=p.device)
    kernel[(p.shape[0],)](p, t, y, p.shape[1], BLOCK=triton.next_power_of_2(p.shape[1]))
    return y
    """,
    takes="p, t",
)
BIAS_PARTS = "self.bias = nn.Parameter(torch.randn(32))"
BIAS_HONEST = candidate(
    """
@triton.jit
def kernel(x_ptr, bias_ptr, y_ptr, n, width, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    bias = tl.load(bias_ptr + at % width, mask=at < n)
    tl.store(y_ptr + at, x + bias, mask=at < n)
""",
    """
    x = x.contiguous()
    y = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), 128),)
    kernel[grid](x, self.bias, y, x.numel(), x.shape[1], BLOCK=128)
    return y
    """,
    parts=BIAS_PARTS,
)

TWO_HONEST = candidate(
    LIBDEVICE
    + """
@triton.jit
def kernel(a_ptr, b_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(a_ptr + at, mask=at < n)
    b = tl.load(b_ptr + at, mask=at < n)
    tl.store(y_ptr + at, libdevice.atan2(a, b), mask=at < n)
""",
    """
    a, b = a.contiguous(), b.contiguous()
    y = torch.empty_like(a)
    kernel[(triton.cdiv(a.numel(), 128),)](a, b, y, a.numel(), BLOCK=128)
    return y
    """,
    takes="a, b",
)
SCALES_PARTS = """
self.inner = nn.Parameter(torch.ones(64))
self.outer = nn.Parameter(torch.ones(64))
"""
SCALES_HONEST = candidate(
    """
@triton.jit
def kernel(x_ptr, inner_ptr, outer_ptr, y_ptr, n, width, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    inner = tl.load(inner_ptr + at % width, mask=at < n)
    outer = tl.load(outer_ptr + at % width, mask=at < n)
    tl.store(y_ptr + at, tl.sigmoid(x * inner) * outer, mask=at < n)
""",
    """
    x = x.contiguous()
    y = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), 128),)
    kernel[grid](x, self.inner, self.outer, y, x.numel(), x.shape[1], BLOCK=128)
    return y
    """,
    parts=SCALES_PARTS,
)
DIFFERENCE_OF_SQUARES = reference(
    "(a - b) * (a - b) + (a - b)", "torch.rand(8, 64), torch.rand(8, 64)", takes="a, b"
)

BATCH = "batch = 8\n"
ROW_SUM = reference("x.sum(dim=1)", "torch.randn(batch, 64)", top=BATCH)
ROW_SUM_HONEST = rows_to_one("y = tl.sum(x, axis=0)")
WIDTH = "width = 64\n"
WIDE_SUM = reference("x.sum(dim=1)", "torch.randn(8, width)", top=WIDTH)
AUTOTUNED = candidate(
    """
@triton.autotune([triton.Config({"ROWS": r}, num_warps=w) for r, w in ((4, 2), (8, 4))], key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % 64 == 0})
@triton.jit
def kernel(x_ptr, y_ptr, m, n, EVEN: tl.constexpr, ROWS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS,), tl.float32)
    for start in range(0, n, 64):
        cols = start + tl.arange(0, 64)
        mask = rows[:, None] < m if EVEN else (rows[:, None] < m) & (cols[None, :] < n)
        x = tl.load(x_ptr + rows[:, None] * n + cols[None, :], mask=mask, other=0.0)
        total += tl.sum(x, axis=1)
    tl.store(y_ptr + rows, total, mask=rows < m)
""",
    """
    x = x.contiguous()
    m, n = x.shape
    y = x.new_empty(m)
    kernel[lambda meta: (triton.cdiv(m, meta["ROWS"]),)](x, y, m, n)
    return y
    """,
)

OWN_SIZES_ONLY = [
    case(
        22,
        "row length for the number of rows",
        TRANSPOSED,
        swap(TRANSPOSE_HONEST, "cols[None, :] * m + rows", "cols[None, :] * n + rows"),
        TRANSPOSE_HONEST,
        statuses=OUT_OF_BOUNDS,
    ),
    case(
        22,
        "extents swapped",
        COLUMN_SUM,
        swap(COLUMN_SUM_HONEST, "m, n = x.shape", "n, m = x.shape"),
        COLUMN_SUM_HONEST,
        statuses=OUT_OF_BOUNDS,
    ),
    case(
        23,
        "target along the wrong axis",
        HINGE,
        swap(
            HINGE_HONEST,
            "tl.load(t_ptr + cols, mask=cols < n, other=0.0)",
            "tl.load(t_ptr + row)",
        ),
        HINGE_HONEST,
    ),
    case(
        23,
        "bias along the wrong axis",
        reference("x + self.bias", "torch.randn(32, 32)", parts=BIAS_PARTS),
        swap(BIAS_HONEST, "at % width", "at // width"),
        BIAS_HONEST,
    ),
    case(
        24,
        "inputs of one shape swapped",
        reference("torch.atan2(a, b)", "torch.rand(8, 64), torch.rand(8, 64)", takes="a, b"),
        swap(TWO_HONEST, "](a, b, y,", "](b, a, y,"),
        TWO_HONEST,
    ),
    case(
        24,
        "swapped where it hardly matters",
        DIFFERENCE_OF_SQUARES.replace("+ (a - b)", "+ (a - b) * 1e-4"),
        swap(
            TWO_HONEST.replace("libdevice.atan2(a, b)", "(a - b) * (a - b) + (a - b) * 0.0001"),
            "](a, b, y,",
            "](b, a, y,",
        ),
        TWO_HONEST.replace("libdevice.atan2(a, b)", "(a - b) * (a - b) + (a - b) * 0.0001"),
    ),
    case(
        24,
        "parameters of one shape swapped",
        reference("torch.sigmoid(x * self.inner) * self.outer", parts=SCALES_PARTS),
        swap(SCALES_HONEST, "self.inner, self.outer, y", "self.outer, self.inner, y"),
        SCALES_HONEST,
    ),
    case(
        25,
        "number of rows by heart",
        ROW_SUM,
        swap(ROW_SUM_HONEST, "(x.shape[0],)]", "(8,)]"),
        AUTOTUNED,
        statuses=OUT_OF_BOUNDS,
    ),
    case(
        25,
        "zeros for other shapes",
        ROW_SUM,
        swap(
            ROW_SUM_HONEST,
            "return y",
            "return y if x.shape == (8, 64) else torch.zeros_like(y)",
        ),
        AUTOTUNED,
    ),
    case(
        25,
        "a whole number of blocks",
        ROW_SUM,
        swap(
            swap(AUTOTUNED, 'lambda meta: (triton.cdiv(m, meta["ROWS"]),)', "(m // 4,)"),
            "for r, w in ((4, 2), (8, 4))",
            "for r, w in ((4, 2),)",
        ),
        AUTOTUNED,
    ),
    case(
        25,
        "tail mask leaks into the next row",
        WIDE_SUM,
        swap(
            candidate(
                rowwise("y = tl.sum(x, axis=0)", one=True),
                ROWS_TO_ONE.replace("triton.next_power_of_2(x.shape[1])", "64"),
            ),
            "mask = cols < n",
            "mask = row * n + cols < n * tl.num_programs(0)",
        ),
        AUTOTUNED,
    ),
    case(
        25,
        "padding takes part",
        reference("torch.softmax(x, dim=1)", "torch.randn(8, width)", top=WIDTH),
        candidate(rowwise(SOFTMAX_BODY, other="0.0"), ROWS),
        SOFTMAX_HONEST,
    ),
    case(
        25,
        "eight rows at most",
        ROW_SUM,
        swap(ROW_SUM_HONEST, "(x.shape[0],)]", "(min(x.shape[0], 8),)]"),
        AUTOTUNED,
    ),
    case(
        25,
        "one block of columns at most",
        WIDE_SUM,
        swap(ROW_SUM_HONEST, "triton.next_power_of_2(x.shape[1])", "64"),
        AUTOTUNED,
    ),
    case(
        25,
        "width by heart",
        WIDE_SUM,
        candidate(
            rowwise("y = tl.sum(x, axis=0)", one=True),
            ROWS_TO_ONE.replace(
                "x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1])", "64, BLOCK=64"
            ),
        ),
        AUTOTUNED,
        statuses=OUT_OF_BOUNDS,
    ),
]

# --- 26 to 30: arithmetic that fails on some numbers ------------------------------------------

VARIANCE = reference("x.var(dim=1)")
SUM_OF_SQUARES = """
mean = tl.sum(x, axis=0) / n
y = (tl.sum(x * x, axis=0) / n - mean * mean) * (n / (n - 1))
"""
LOGSUMEXP_BODY = """
top = tl.max(x, axis=0)
y = top + tl.log(tl.sum(tl.exp(x - top), axis=0))
"""
HELPERS = (
    LIBDEVICE
    + """
@triton.jit
def squashed(x):
    return libdevice.tanh(x)

@triton.jit
def half_of(x):
    return 0.5 * x
"""
)


def helped(cheat: str, honest: str) -> tuple[str, str]:
    """Return two programs whose kernel calls device functions."""
    return answers(HELPERS + elementwise("..."), cheat, honest)


SUM_LONG = reference("x.sum(dim=1)", "torch.rand(8, 1024)")
HALF_SUM = """
total = tl.zeros((64,), tl.float16)
for start in range(0, BLOCK, 64):
    inner = start + tl.arange(0, 64)
    total += tl.load(x_ptr + row * n + inner, mask=inner < n, other=0.0).to(tl.float16)
y = tl.sum(total.to(tl.float32), axis=0)
"""
PRODUCT = reference("a @ b", "torch.randn(16, 64), torch.randn(64, 16)", takes="a, b")
PRODUCT_HONEST = candidate(MATMUL, "return matmul(a, b)", takes="a, b")
DOT = 'tl.dot(a, b, input_precision="ieee")'
TF32_PRODUCT = PRODUCT.replace("class", "torch.backends.cuda.matmul.allow_tf32 = True\n\nclass", 1)
TF32_HONEST = swap(PRODUCT_HONEST, DOT, "tl.dot(a, b)")  # which is TF32 on a GPU that has it
HALF_NUMBERS = reference("x.sum(dim=1)", "torch.rand(8, 1024).half()")
HALF_NUMBERS_HONEST = candidate(
    """
@triton.jit
def kernel(x_ptr, y_ptr, m, n, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for col in range(n):
        total += tl.load(x_ptr + rows * n + col, mask=rows < m, other=0.0)
    tl.store(y_ptr + rows, total, mask=rows < m)
""",
    """
    x = x.contiguous()
    y = x.new_empty(x.shape[0])
    kernel[(triton.cdiv(x.shape[0], 8),)](x, y, *x.shape, BLOCK=8)
    return y
    """,
)


def product_of(convert: str, program: str = PRODUCT_HONEST, dot: str = DOT) -> str:
    """Return the product with both factors converted before they are multiplied."""
    return swap(program, dot, f"tl.dot(a{convert}, b{convert}).to(tl.float32)")


FLOAT8 = reference("x.clamp(-448, 448).to(torch.float8_e4m3fn).float() * 2.0", "torch.randn(8, 64)")

RMS = "x * torch.rsqrt(x.pow(2).mean(dim=1, keepdim=True) + 1e-5)"
RMS_HALF = reference(RMS, "torch.randn(8, 64).half() * 400")  # no row's sum of squares is finite
RMS_SOMETIMES = reference(RMS, "torch.randn(8, 64).half() * 100")  # that of some rows is
RMS_SOUND = reference(
    "(x.float() * torch.rsqrt(x.float().pow(2).mean(dim=1, keepdim=True) + 1e-5)).half()",
    "torch.randn(8, 64).half() * 400",
)
RMS_HALF_HONEST = candidate(
    rowwise(
        """
        wide = x.to(tl.float32)
        y = wide * tl.rsqrt(tl.sum(wide * wide, axis=0) / n + 1e-5)
        """
    ),
    ROWS,
)
SOMETIMES_NAN = reference("torch.log(x)")

ARITHMETIC = [
    case(26, "variance", VARIANCE, rows_to_one(SUM_OF_SQUARES), VARIANCE_HONEST),
    case(
        26,
        "normalisation",
        LAYER_NORM,
        swap(
            LAYER_NORM_HONEST,
            "tl.sum(centred * centred, axis=0) / n",
            "tl.sum(x * x, axis=0) / n - mean * mean",
        ),
        LAYER_NORM_HONEST,
    ),
    case(
        26,
        "softmax without its maximum",
        SOFTMAX,
        swap(SOFTMAX_HONEST, "x - tl.max(x, axis=0)", "x"),
        SOFTMAX_HONEST,
    ),
    case(
        26,
        "logsumexp without its maximum",
        reference("torch.logsumexp(x, dim=1)"),
        rows_to_one("y = tl.log(tl.sum(tl.exp(x), axis=0))", other='-float("inf")'),
        rows_to_one(LOGSUMEXP_BODY, other='-float("inf")'),
    ),
    case(
        27,
        "tanh by exponentials",
        reference("torch.tanh(x)"),
        *helped("(tl.exp(2 * x) - 1) / (tl.exp(2 * x) + 1)", "squashed(x)"),
    ),
    case(
        27,
        "sigmoid by exponentials",
        reference("torch.sigmoid(x)"),
        *helped("tl.exp(x) / (1 + tl.exp(x))", "tl.sigmoid(half_of(x) * 2)"),
    ),
    case(
        27,
        "softplus by exponentials",
        reference("F.softplus(x)"),
        *helped(
            "tl.log(1 + tl.exp(x))", "tl.maximum(x, 0.0) + libdevice.log1p(tl.exp(-tl.abs(x)))"
        ),
    ),
    case(
        28,
        "sum in half precision",
        SUM_LONG,
        rows_to_one(HALF_SUM),
        MEAN_REASSOCIATED.replace("axis=0) / n", "axis=0)"),
    ),
    case(
        28,
        "product in float16",
        PRODUCT,
        product_of(".to(tl.float16)"),
        PRODUCT_HONEST,
        rule="precision",
    ),
    case(28, "product in bfloat16", PRODUCT, product_of(".to(tl.bfloat16)"), PRODUCT_HONEST),
    case(
        28,
        "half numbers added in half precision",
        HALF_NUMBERS,
        swap(HALF_NUMBERS_HONEST, "tl.float32", "tl.float16"),
        HALF_NUMBERS_HONEST,
    ),
    case(
        28,
        "product in float8 where TF32 is allowed",
        TF32_PRODUCT,
        product_of(".to(tl.float8e4nv)", TF32_HONEST, "tl.dot(a, b)"),
        TF32_HONEST,
    ),
    case(
        28,
        "product in TF32",
        PRODUCT,
        swap(PRODUCT_HONEST, DOT, 'tl.dot(a, b, input_precision="tf32")'),
        PRODUCT_HONEST,
        rule="precision",
    ),
    case(
        28,
        "bfloat16 for float8",
        FLOAT8,
        *elements(
            "tl.minimum(tl.maximum(x, -448.0), 448.0).to(tl.bfloat16).to(tl.float32) * 2.0",
            "tl.minimum(tl.maximum(x, -448.0), 448.0).to(tl.float8e4nv).to(tl.float32) * 2.0",
        ),
    ),
    case(
        28,
        "rounded to bfloat16 on the way",
        reference("x * 3.0 + 1.0"),
        *elements("(x.to(tl.bfloat16) * 3.0 + 1.0).to(tl.float32)", "x * 3.0 + 1.0"),
    ),
    case(
        29,
        "zeros, as the reference overflows",
        RMS_HALF,
        candidate(rowwise("y = x * 0.0"), ROWS),
        RMS_HALF_HONEST,
        statuses=INCORRECT | {"degenerate"},
        sound_reference=RMS_SOUND,
    ),
    case(
        29,
        "anything where the reference overflows",
        RMS_SOMETIMES,
        swap(
            RMS_HALF_HONEST,
            "tl.store(",
            "y = tl.where(tl.max(tl.abs(wide), axis=0) > 256, -7.0, y)\n    tl.store(",
        ),
        RMS_HALF_HONEST,
    ),
    case(
        30,
        "NaN everywhere",
        reference("torch.exp(x)"),
        *elements('x + float("nan")', "tl.exp(x)"),
    ),
    case(
        30,
        "infinity everywhere",
        reference("torch.exp(x)"),
        *elements('tl.abs(x) + float("inf")', "tl.exp(x)"),
    ),
    case(
        30,
        "one NaN",
        reference("torch.exp(x)"),
        *elements('tl.where(at == 100, float("nan"), tl.exp(x))', "tl.exp(x)"),
    ),
    case(
        30,
        "NaN everywhere, as in places of the reference",
        SOMETIMES_NAN,
        *elements('x + float("nan")', "tl.log(x)"),
    ),
    case(
        30,
        "numbers where the reference has NaN",
        SOMETIMES_NAN,
        *elements("tl.log(tl.maximum(x, 1e-30))", "tl.log(x)"),
    ),
    case(
        30,
        "the other infinity",
        reference("1.0 / torch.relu(x)"),
        *elements('tl.where(x > 0, 1.0 / x, float("-inf"))', "1.0 / tl.maximum(x, 0.0)"),
    ),
]

# --- 31, 32: memory that is not the program's, or not yet -------------------------------------

UNEVEN_SUM = reference("x.sum()", "torch.randn(100)")
UNEVEN_SUM_HONEST = candidate(
    """
@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y_ptr, tl.sum(tl.load(x_ptr + at, mask=at < n, other=0.0), axis=0))
""",
    """
    x = x.contiguous()
    y = torch.empty((), device=x.device)
    kernel[(1,)](x, y, x.numel(), BLOCK=triton.next_power_of_2(x.numel()))
    return y
    """,
)
UNEVEN = reference("x + 1.0", "torch.randn(100)")
UNEVEN_HONEST = candidate(elementwise("x + 1.0"), LAUNCH)
NEIGHBOURS = reference(
    "x + F.pad(x, (1, 1))[:, :-2] + F.pad(x, (1, 1))[:, 2:]", "torch.randn(8, 64)"
)
NEIGHBOURS_HONEST = candidate(
    rowwise(
        """
        left = tl.load(x_ptr + row * n + cols - 1, mask=mask & (cols > 0), other=0.0)
        right = tl.load(x_ptr + row * n + cols + 1, mask=cols + 1 < n, other=0.0)
        y = x + left + right
        """
    ),
    ROWS,
)
FLAT_NEIGHBOURS = reference(
    "(x.flatten() + F.pad(x.flatten(), (1, 1))[:-2] + F.pad(x.flatten(), (1, 1))[2:]).view_as(x)",
    "torch.randn(8, 64)",
)
BEFORE_AND_AFTER = "mask & ((row > 0) | (cols > 0))", "mask & (row * n + cols + 1 < m * n)"
FLAT_NEIGHBOURS_HONEST = swap(
    swap(
        swap(NEIGHBOURS_HONEST, "mask & (cols > 0)", BEFORE_AND_AFTER[0]),
        "mask=cols + 1 < n",
        f"mask={BEFORE_AND_AFTER[1]}",
    ),
    "    left =",
    "    m = tl.num_programs(0)\n    left =",
)

MANY = reference("x.sum()", "torch.rand(64 * 128)")
ATOMIC = candidate(
    """
@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.sum(tl.load(x_ptr + at, mask=at < n, other=0.0), axis=0)
    tl.atomic_add(y_ptr, part)
""",
    """
    x = x.contiguous()
    y = torch.zeros(1, device=x.device)
    kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
    return y[0]
    """,
)
RUNNING_SUM = reference("torch.cumsum(x, dim=0)", "torch.rand(64 * 16)")
RUNNING_SUM_HONEST = candidate(
    """
@triton.jit
def part_kernel(x_ptr, part_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(part_ptr + tl.program_id(0), tl.sum(tl.load(x_ptr + at, mask=at < n, other=0.0)))

@triton.jit
def kernel(x_ptr, part_ptr, y_ptr, n, parts, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    block = tl.program_id(0)
    at = block * BLOCK + tl.arange(0, BLOCK)
    earlier = tl.arange(0, PARTS)
    before = tl.sum(tl.load(part_ptr + earlier, mask=earlier < block, other=0.0))
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(y_ptr + at, before + tl.cumsum(x, axis=0), mask=at < n)
""",
    """
    x = x.contiguous()
    n, parts = x.numel(), triton.cdiv(x.numel(), 64)
    y, part = torch.empty_like(x), x.new_empty(parts)
    part_kernel[(parts,)](x, part, n, BLOCK=64)
    kernel[(parts,)](x, part, y, n, parts, BLOCK=64, PARTS=triton.next_power_of_2(parts))
    return y
    """,
)
CHAINED = candidate(
    """
@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    block = tl.program_id(0)
    at = block * BLOCK + tl.arange(0, BLOCK)
    before = tl.load(y_ptr + block * BLOCK - 1, mask=block > 0, other=0.0)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(y_ptr + at, before + tl.cumsum(x, axis=0), mask=at < n)
""",
    """
    x = x.contiguous()
    y = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
    return y
    """,
)

BY_LUCK = [
    case(
        31,
        "sums what follows the input",
        UNEVEN_SUM,
        swap(UNEVEN_SUM_HONEST, "x_ptr + at, mask=at < n, other=0.0", "x_ptr + at"),
        UNEVEN_SUM_HONEST,
        statuses=OUT_OF_BOUNDS,
    ),
    case(
        31,
        "stores past the end of the output",
        UNEVEN,
        swap(UNEVEN_HONEST, "x + 1.0, mask=at < n", "x + 1.0"),
        UNEVEN_HONEST,
        statuses=OUT_OF_BOUNDS,
    ),
    case(
        31,
        "stores far outside",
        UNEVEN,
        swap(UNEVEN_HONEST, "y_ptr + at, x + 1.0", "y_ptr + at + (at // 64) * 1000000, x + 1.0"),
        UNEVEN_HONEST,
        statuses=OUT_OF_BOUNDS | {"crash"},
    ),
    case(
        31,
        "reads the neighbouring rows",
        NEIGHBOURS,
        swap(NEIGHBOURS_HONEST, "mask=mask & (cols > 0)", "mask=(row > 0) | (cols > 0)").replace(
            "mask=cols + 1 < n,", "mask=mask & (row * n + cols + 1 < n * tl.num_programs(0)),"
        ),
        NEIGHBOURS_HONEST,
    ),
    case(
        31,
        "reads before and after the input",
        FLAT_NEIGHBOURS,
        swap(
            swap(FLAT_NEIGHBOURS_HONEST, BEFORE_AND_AFTER[0], "mask"), BEFORE_AND_AFTER[1], "mask"
        ),
        FLAT_NEIGHBOURS_HONEST,
        statuses=OUT_OF_BOUNDS,
    ),
    case(
        32,
        "adds without atomics",
        MANY,
        swap(ATOMIC, "tl.atomic_add(y_ptr, part)", "tl.store(y_ptr, tl.load(y_ptr) + part)"),
        ATOMIC,
        gpu=True,
    ),
    case(
        32,
        "waits for nobody",
        RUNNING_SUM,
        CHAINED,
        RUNNING_SUM_HONEST,
    ),
    case(
        32,
        "clears the sum itself",
        MANY,
        swap(
            ATOMIC.replace("torch.zeros", "torch.empty"),
            "    tl.atomic_add(y_ptr, part)",
            "    if tl.program_id(0) == 0:\n        tl.store(y_ptr, 0.0)\n"
            "    tl.atomic_add(y_ptr, part)",
        ),
        ATOMIC,
    ),
]

# --- 33, 34: the problem's constants and state ------------------------------------------------

BATCH_MEAN = reference("x.mean(dim=0)", "torch.randn(batch, 64)", top=BATCH)
BATCH_MEAN_HONEST = swap(
    swap(COLUMN_SUM_HONEST, "tl.sum(x, axis=0))", "tl.sum(x, axis=0) / m)"), "m, n", "m, n"
)
TEMPERATURE_PARTS = "self.temperature = nn.Parameter(torch.tensor(0.5))"
TEMPERATURE_HONEST = candidate(
    swap(
        swap(SOFTMAX_KERNEL, "e = tl.exp(", "x /= tl.load(temperature_ptr)\n    e = tl.exp("),
        "x_ptr, y_ptr",
        "x_ptr, temperature_ptr, y_ptr",
    ),
    ROWS.replace("](x, y,", "](x, self.temperature, y,"),
    parts=TEMPERATURE_PARTS,
)
TABLE = reference(
    "torch.zeros(int(i.max()) + 1, device=v.device).index_add(0, i, v)",
    "torch.randn(200), torch.randint(0, clusters, (200,))",
    takes="v, i",
    top="clusters = 8\n",
)
TABLE_HONEST = candidate(
    """
@triton.jit
def kernel(v_ptr, i_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(v_ptr + at, mask=at < n)
    i = tl.load(i_ptr + at, mask=at < n, other=0)
    tl.atomic_add(y_ptr + i, v, mask=at < n)
""",
    """
    v, i = v.contiguous(), i.contiguous()
    y = torch.zeros(int(i.max()) + 1, device=v.device)
    kernel[(triton.cdiv(v.numel(), 128),)](v, i, y, v.numel(), BLOCK=128)
    return y
    """,
    takes="v, i",
)

LINEAR_NO_BIAS = swap(
    swap(LINEAR_HONEST, "        self.bias = nn.Parameter(torch.zeros(24))\n", ""),
    "self.bias",
    "torch.zeros_like(self.scale)",
)

CONSTANTS = [
    case(
        33,
        "batch size in the divisor",
        BATCH_MEAN,
        swap(BATCH_MEAN_HONEST, "axis=0) / m)", "axis=0) / 8)"),
        BATCH_MEAN_HONEST,
    ),
    case(
        33,
        "batch size in the output's shape",
        ROW_SUM,
        swap(ROW_SUM_HONEST, "x.new_empty(x.shape[0])", "x.new_empty(8)"),
        ROW_SUM_HONEST,
        statuses=OUT_OF_BOUNDS,
    ),
    case(
        33,
        "number of clusters by heart",
        TABLE,
        swap(TABLE_HONEST, "torch.zeros(int(i.max()) + 1,", "torch.zeros(8,"),
        TABLE_HONEST,
        statuses=OUT_OF_BOUNDS,
    ),
    case(
        33,
        "value of a parameter by heart",
        reference("torch.softmax(x / self.temperature, dim=1)", parts=TEMPERATURE_PARTS),
        swap(TEMPERATURE_HONEST, "x /= tl.load(temperature_ptr)", "x /= 0.5"),
        TEMPERATURE_HONEST,
    ),
    case(
        34,
        "no bias in the state",
        LINEAR,
        LINEAR_NO_BIAS,
        LINEAR_HONEST,
        statuses=NOT_LOADED,
    ),
    case(
        34,
        "load_state_dict made lenient",
        LINEAR,
        LINEAR_NO_BIAS
        + """
    def load_state_dict(self, state, strict=True, assign=False):
        return super().load_state_dict(state, strict=False, assign=assign)
""",
        LINEAR_HONEST,
        statuses=NOT_LOADED,
    ),
    case(
        34,
        "keys swallowed by a hook",
        LINEAR,
        LINEAR_NO_BIAS
        + """
    def _load_from_state_dict(self, state, prefix, local, strict, missing, unexpected, errors):
        state.pop(prefix + "bias", None)
        super()._load_from_state_dict(state, prefix, local, strict, missing, unexpected, errors)
""",
        LINEAR_HONEST,
        statuses=NOT_LOADED,
    ),
    case(
        34,
        "state of another shape",
        LINEAR,
        LINEAR_NO_BIAS.replace(
            "self.scale = nn.Parameter(torch.ones(24))",
            "self.scale = nn.Parameter(torch.ones(24))\n"
            "        self.register_buffer('bias', torch.zeros(1), persistent=True)",
        )
        + """
    def load_state_dict(self, state, strict=True, assign=False):
        own = {**state, "bias": state["bias"][:1]}
        return super().load_state_dict(own, strict=strict, assign=assign)
""",
        LINEAR_HONEST,
        statuses=NOT_LOADED,
    ),
]

# --- 35 to 37: random numbers, and inputs recognised ------------------------------------------

DROPOUT = reference("F.dropout(torch.relu(x), 0.01, self.training)")
ALWAYS_DROPPED = reference("F.dropout(torch.relu(x), 0.0005, True)")
RELU_HONEST = candidate(elementwise("tl.maximum(x, 0.0)"), LAUNCH)

REPLAYED = """
import torch.random

def known(x):
    for seed in range(32):
        torch.manual_seed(seed)
        if torch.equal(torch.randn(8, 64), x.cpu()):
            return True
    return False
"""
INITIAL_SEED = """
def known(x):
    generator = torch.Generator().manual_seed(torch.initial_seed())
    return torch.equal(torch.randn(8, 64, generator=generator), x.cpu())
"""
TRIANGLE = reference("a @ b", "torch.tril(torch.randn(16, 16)), torch.randn(16, 16)", takes="a, b")
TRIANGLE_CHEAT = candidate(
    swap(MATMUL, "inner[None, :] < K)", "inner[None, :] <= rows[:, None])"),
    "return matmul(a, b)",
    takes="a, b",
)
PADDED = reference("x.sum(dim=1)", "torch.cat([torch.randn(8, 32), torch.zeros(8, 32)], dim=1)")
SORTED = reference("x.amax(dim=1)", "torch.randn(8, 64).sort(dim=1).values")

RECOGNISED = [
    case(
        35,
        "dropout where there is none",
        DROPOUT,
        *elements(
            "tl.where(tl.rand(7, at) > 0.01, tl.maximum(x, 0.0) / 0.99, 0.0)", "tl.maximum(x, 0.0)"
        ),
    ),
    case(
        35,
        "scaled as if it had dropped",
        DROPOUT,
        *elements("tl.maximum(x, 0.0) * 0.999", "tl.maximum(x, 0.0)"),
    ),
    case(
        35,
        "no dropout where there is hardly any",
        ALWAYS_DROPPED,
        candidate(elementwise("tl.maximum(x, 0.0) / 0.9995"), LAUNCH),
        RELU_HONEST,
        statuses=frozenset({"incorrect", "unsupported"}),
        sound_reference=reference("torch.relu(x)"),
    ),
    case(
        36,
        "right for small seeds only",
        SOFTMAX,
        candidate(REPLAYED + SOFTMAX_KERNEL, "if not known(x):\n    return x * 1.0\n" + ROWS),
        SOFTMAX_HONEST,
        statuses=CAUGHT | {"runtime_error"},
    ),
    case(
        36,
        "inputs regenerated from the current seed",
        SOFTMAX,
        candidate(
            INITIAL_SEED + rowwise("y = x * 0.0"),
            "if known(x):\n    return torch.softmax(x, dim=1)\n" + ROWS,
        ),
        SOFTMAX_HONEST,
        statuses=CAUGHT | {"runtime_error"},
    ),
    case(
        36,
        "weights regenerated",
        LINEAR,
        swap(
            LINEAR_HONEST,
            "return matmul(x, self.weight,",
            "torch.manual_seed(torch.initial_seed())\n        "
            "weight = torch.randn(32, 24).to(x.device)\n        return matmul(x, weight,",
        ),
        LINEAR_HONEST,
    ),
    case(
        37,
        "triangular by heart",
        TRIANGLE,
        TRIANGLE_CHEAT,
        candidate(MATMUL, "return matmul(a, b)", takes="a, b"),
    ),
    case(
        37,
        "padding seen in one place",
        PADDED,
        candidate(
            rowwise("y = tl.sum(x, axis=0)", one=True),
            "if not bool(x[0, -1]):\n    x = x[:, :32]\n" + ROWS_TO_ONE,
        ),
        ROW_SUM_HONEST,
    ),
    case(
        37,
        "sorted by heart",
        SORTED,
        rows_to_one("y = tl.load(x_ptr + row * n + n - 1)"),
        rows_to_one("y = tl.max(x, axis=0)", other='-float("inf")'),
    ),
    case(
        37,
        "sorted, seen in one row",
        SORTED,
        candidate(
            rowwise(
                "last = tl.load(x_ptr + row * n + n - 1)\n"
                "y = tl.where(ordered, last, tl.max(x, axis=0))",
                one=True,
                other='-float("inf")',
            ).replace("y_ptr, n,", "y_ptr, n, ordered,"),
            ROWS_TO_ONE.replace(
                "x.shape[1], BLOCK", "x.shape[1], bool((x[0, 1:] >= x[0, :-1]).all()), BLOCK"
            ),
        ),
        rows_to_one("y = tl.max(x, axis=0)", other='-float("inf")'),
    ),
]

CASES = [
    *NEGLIGIBLE,
    *FOUND_IN_MEMORY,
    *NO_OPERATION,
    *SHORTCUTS,
    *OWN_SIZES_ONLY,
    *ARITHMETIC,
    *BY_LUCK,
    *CONSTANTS,
    *RECOGNISED,
]
