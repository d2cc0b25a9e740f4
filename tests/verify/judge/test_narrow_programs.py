"""Programs that are right on what a file draws, each beside one that is right in general."""

from __future__ import annotations

import pytest
from verify_programs import HEAD, Judge

REFERENCE = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self, how={how}):
        super().__init__()
        self.how = how

    def forward(self, {names}):
        return {forward}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return [{how}]
"""


def reference(forward: str, inputs: str, names: str = "x", how: str = "0") -> str:
    return REFERENCE.format(forward=forward, inputs=inputs, names=names, how=how)


TUNED = (
    HEAD
    + """
@triton.autotune([triton.Config({{"BLOCK": n}}) for n in {sizes}], key=["n"]{reset})
@triton.jit
def add_up(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(y_ptr, tl.sum(tl.load(x_ptr + at, mask=at < n, other=0.0)))


class ModelNew(nn.Module):
    def __init__(self, how=0):
        super().__init__()

    def forward(self, x):
        y = torch.zeros(1, device=x.device)
        add_up[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x.contiguous(), y, x.numel())
        return y
"""
)


def test_a_tuner_runs_a_kernel_before_its_first_call(judge: Judge) -> None:
    task = reference("x.sum().reshape(1)", "torch.rand(1000)")
    careless, honest = judge(
        [
            (task, TUNED.format(reset=reset, sizes="(64, 128)"))
            for reset in ("", ', reset_to_zero=["y_ptr"]')
        ]
    )
    assert (careless["status"], careless["reason"]) == ("incorrect", "value"), careless
    assert honest["status"] == "correct", honest
    assert "untried_configurations" not in honest["caveats"], honest


def test_a_tuner_runs_a_kernel_before_its_first_call_with_each_key(judge: Judge) -> None:
    """A program that tunes for its first size on a tensor of its own is right for that alone."""
    task = reference("x.sum().reshape(1)", "torch.rand(1000)")
    on_its_own = TUNED.format(reset="", sizes="(64, 128)").replace(
        "        y = torch",
        """        if not hasattr(self, "tuned"):
            self.tuned = torch.zeros(1, device=x.device)
            add_up[(16,)](x.contiguous(), self.tuned, x.numel())
        y = torch""",
    )
    (verdict,) = judge([(task, on_its_own)])
    assert verdict["status"] == "correct" and "some_sizes_only" in verdict["caveats"], verdict


def test_configurations_that_no_call_took_are_a_caveat(judge: Judge) -> None:
    task = reference("x.sum().reshape(1)", "torch.rand(1000)")
    many = TUNED.format(reset=', reset_to_zero=["y_ptr"]', sizes="(64, 128) * 200")
    (verdict,) = judge([(task, many)])
    assert verdict["status"] == "correct" and "untried_configurations" in verdict["caveats"]
    assert 200 < verdict["evidence"]["untried_configurations"]["kernels"]["add_up"] < 400


SCALED = (
    HEAD
    + """
@triton.jit
def scale(x_ptr, w_ptr, y_ptr, n, width, BLOCK: tl.constexpr):
    first, step = tl.program_id(0) * BLOCK, tl.num_programs(0) * BLOCK
    for start in range({turns}):
        at = {at} + tl.arange(0, BLOCK)
        inside = at < n
        w = tl.load(w_ptr + at % width, mask=inside)
        tl.store(y_ptr + at, tl.load(x_ptr + at, mask=inside) * w, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, how=0):
        super().__init__()

    def forward(self, x, w):
        {before}
        x, w = x.contiguous(), w.contiguous()
        y = torch.empty_like(x)
        scale[(triton.cdiv(x.numel(), 256),)](x, w, y, x.numel(), w.numel(), BLOCK=256)
        return y
"""
)


@pytest.mark.parametrize(
    ("turns", "at", "before", "narrow"),
    [
        ("1", "first", "pass", True),
        ("1", "first.to(tl.int64)", "pass", True),  # the product was made in 32 bits
        ("1", "tl.program_id(0).to(tl.int64) * BLOCK", "pass", False),
        ("1", "first", "assert x.numel() < 2**31", False),
        ("first, n, step", "start", "pass", False),  # as wide as n
    ],
)
def test_offsets_of_32_bits_over_a_large_input_are_a_caveat(
    judge: Judge, turns: str, at: str, before: str, narrow: bool
) -> None:
    """They wrap from 2**31 elements on, which no draw has; over a small one they are enough."""
    task = reference("x * w", "torch.rand(300, 400), torch.rand(400)", "x, w")
    (verdict,) = judge([(task, SCALED.format(turns=turns, at=at, before=before))])
    assert verdict["status"] == "correct", verdict
    assert ("narrow_offsets" in verdict["caveats"]) == narrow, verdict


PRODUCT = (
    HEAD
    + """
@triton.jit
def rows_by_columns(p_ptr, a_ptr, b_ptr, y_ptr, n, first, last, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside = at < n
    total = tl.load(p_ptr + row * n + at, mask=inside, other=0.0)
    for k in range(first, last):
        b = tl.load(b_ptr + k * n + at, mask=inside, other=0.0)
        total += tl.load(a_ptr + row * last + k) * b
    tl.store(y_ptr + row * n + at, total, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, how=0):
        super().__init__()

    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        y = a.new_empty(a.shape[0], b.shape[1])
        block, last = triton.next_power_of_2(b.shape[1]), a.shape[1]
        first = {first}
        begun = {begun}
        rows_by_columns[(a.shape[0],)](begun, a, b, y, b.shape[1], first, last, BLOCK=block)
        return y
"""
)


def test_who_does_all_but_the_last_of_a_sum_does_the_work(judge: Judge) -> None:
    task = reference("a @ b", "torch.randn(24, 48), torch.randn(48, 20)", "a, b")
    by_torch = PRODUCT.format(first="last - 1", begun="a[:, :-1] @ b[:-1]")
    own = PRODUCT.format(first="0", begun="torch.zeros_like(y)")
    cheat, honest = judge([(task, by_torch), (task, own)])
    assert (cheat["status"], cheat["reason"]) == ("cheat", "torch_does_the_work"), cheat
    assert honest["status"] == "correct", honest


ROWS = (
    HEAD
    + """
@triton.jit
def by_rows(x_ptr, y_ptr, width, apart, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * apart + at, mask=at < width, other={other})
    {body}


class ModelNew(nn.Module):
    def __init__(self, how=0):
        super().__init__()
        self.how = how

    def forward(self, x, dim=None):
        x = {first}
        y = x.new_empty({made})
        block = triton.next_power_of_2(x.shape[-1])
        by_rows[(x.numel() // x.shape[-1],)](x, y, {width}, x.shape[-1], BLOCK=block)
        return {given}
"""
)


WITH_LIBDEVICE = "import triton\n", "import triton\nfrom triton.language.extra import libdevice\n"


def rows(body: str, **named: str) -> str:
    usual = {"other": "0.0", "first": "x.contiguous()", "made": "x.shape", "given": "y"}
    return ROWS.format(body=body, **{**usual, "width": "x.shape[-1]", **named})


STORE = "tl.store(y_ptr + row * apart + at, {}, mask=at < width)"


def test_what_pads_does_not_compute(judge: Judge) -> None:
    task = reference("x * 3", "torch.randn(20, 45)")
    first = "nn.functional.pad(x, (0, -x.shape[-1] % 4))"
    padded = rows(STORE.format("x * 3"), first=first, given="y[:, :width]", width="width")
    padded = padded.replace("        x = nn.", "        width = x.shape[-1]\n        x = nn.")
    (verdict,) = judge([(task, padded)])
    assert verdict["status"] == "correct", verdict


SUM = "tl.store(y_ptr + row, tl.sum(x, 0){})"

EXPONENT = """bits = x.to(tl.int32, bitcast=True)
    power = (bits >> 23) & 255
    small = (x * 16777216.0).to(tl.int32, bitcast=True)
    tiny = (power == 0) & (x != 0) & ({} > 0)
    power = tl.where(tiny, ((small >> 23) & 255) - 24, power)
    y = tl.where(x == 0, 0, tl.where(tiny | (power != 0), power - 126, 0))
    tl.store(y_ptr + row * apart + at, y, mask=at < width)"""
"""Of subnormal numbers, too, or not: they are made larger first."""

IN_PLACE = (
    HEAD
    + """
@triton.jit
def thrice(x_ptr, extent, n, width, row, column, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    places = x_ptr + {index}
    inside = at < (extent if "{index}" == "at" else n)
    tl.store(places, 3 * tl.load(places, mask=inside), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, how=0):
        super().__init__()

    def forward(self, x):
        extent = 1 + sum((n - 1) * step for n, step in zip(x.shape, x.stride()))
        grid = (triton.cdiv(extent, 128),)
        thrice[grid](x, extent, x.numel(), x.shape[-1], *x.stride(), BLOCK=128)
        return x
"""
)
"""Over all that an input spans, or over its elements."""

DISTANCES = rows(
    "after = tl.load(x_ptr + row * apart + at + 1, mask=at < width - 1, other=0)\n    "
    "tl.store(y_ptr + row * (apart - 1) + at, after{0} - x{0}, mask=at < width - 1)",
    other="0",
    made="x.shape[0], x.shape[1] - 1, dtype=torch.float32",
)

TIMES_HOW = (
    rows(STORE.format("x * how"))
    .replace("BLOCK: tl.constexpr", "how, BLOCK: tl.constexpr")
    .replace("x.shape[-1], BLOCK", "x.shape[-1], self.how, BLOCK")
)

MASKED = (
    rows("x = tl.where(tl.load(m_ptr + {}, mask=at < width, other=0) != 0, x, 0.0)\n    ")
    .replace("0.0)\n    \n", "0.0)\n    " + STORE.format("x * 3") + "\n")
    .replace("BLOCK: tl.constexpr", "m_ptr, BLOCK: tl.constexpr")
    .replace("x.shape[-1], BLOCK", "x.shape[-1], mask, BLOCK")
    .replace(
        "        y = x.new",
        "        mask = x.new_ones(x.shape[:-1], dtype=torch.bool) if dim is None else dim\n"
        "        mask = mask.contiguous().view(torch.uint8)\n        y = x.new",
    )
)
"""Of rows, or by mistake of columns."""

ADDED = (
    rows(
        "x += tl.load(m_ptr + row * apart + at, mask=at < width, other=0.0)\n    "
        + STORE.format("x")
    )
    .replace("BLOCK: tl.constexpr", "m_ptr, BLOCK: tl.constexpr")
    .replace("x.shape[-1], BLOCK", "x.shape[-1], other, BLOCK")
)

MULTIPLIED = (
    ADDED.replace("x += tl", "x *= tl")
    .replace("        y =", "        other = dim.contiguous()\n        y =")
    .replace("x.shape)", "x.shape, dtype={})")
)

WEIGHED = (
    rows(STORE)
    .replace("BLOCK: tl.constexpr", "m_ptr, BLOCK: tl.constexpr")
    .replace("x.shape[-1], BLOCK", "x.shape[-1], dim.contiguous(), BLOCK")
)

LABELLED = (
    HEAD
    + """
@triton.jit
def pick(x_ptr, m_ptr, y_ptr, n, width, BLOCK: tl.constexpr):
    rows = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    label = tl.load(m_ptr + row)
    value = tl.where(label != 0, -tl.load(x_ptr + row * width + label), 0.0)
    tl.atomic_add(y_ptr, value / {count})


class ModelNew(nn.Module):
    def __init__(self, how=0):
        super().__init__()

    def forward(self, x, labels):
        y = torch.zeros((), device=x.device)
        n, width = x.shape
        given = x.contiguous(), labels.contiguous()
        pick[(n,)](*given, y, n, width, BLOCK=triton.next_power_of_2(n))
        return y
"""
)

ROOT = "tl.store(y_ptr + row, tl.sqrt(tl.sum({}, 0) / width))"

SOFTMAX = (
    "x = tl.where(at < width, x, -float('inf'))\n    "
    "x = tl.exp(x - tl.max(x, 0))\n    " + STORE.format("x / tl.sum(x, 0)")
)

QUOTIENTS = "x.shape, dtype=torch.float32"

BY_WORD = (
    rows(STORE.replace("{}", "tl.maximum(x, 0.0) if HOW == 'relu' else ({})"))
    .replace("BLOCK: tl.constexpr", "HOW: tl.constexpr, BLOCK: tl.constexpr")
    .replace("x.shape[-1], BLOCK", "x.shape[-1], self.how, BLOCK")
)

SHIFTED = (
    rows(STORE.format("x * 2 + shift"))
    .replace("BLOCK: tl.constexpr", "shift, BLOCK: tl.constexpr")
    .replace("x.shape[-1], BLOCK", "x.shape[-1], self.shift * {}, BLOCK")
    .replace("how=0", "flag=False, shift=0")
    .replace("self.how = how", "self.flag, self.shift = flag, shift")
)

LARGE_GAIN = reference("x * self.gain.clamp(max=4)", "torch.randn(20, 45)").replace(
    "self.how = how", "self.gain = nn.Parameter(torch.ones(1))"
)
GAINED = (
    rows("gain = tl.load(g_ptr)\n    " + STORE.format("x * {}"))
    .replace("BLOCK: tl.constexpr", "g_ptr, BLOCK: tl.constexpr")
    .replace("x.shape[-1], BLOCK", "x.shape[-1], self.gain, BLOCK")
    .replace("self.how = how", "self.gain = nn.Parameter(torch.ones(1))")
)

IN_TRAINING = (
    rows("mean = tl.sum(x, 0) / width\n    " + STORE.format("({}) if TRAINS else x * x"))
    .replace("BLOCK: tl.constexpr", "TRAINS: tl.constexpr, BLOCK: tl.constexpr")
    .replace("x.shape[-1], BLOCK", "x.shape[-1], self.training, BLOCK")
)

CASES = {
    "a block that is full": (
        reference("x * 2", "torch.randn(20, 45)"),
        rows(STORE.format("tl.where(at < width - (width % 32 == 0), x * 2, 0.0)")),
        rows(STORE.format("x * 2")),
        "some_sizes_only",
    ),
    "a size of one": (
        reference("x.sum(-1) + x.shape[-1] // 2 * 0", "torch.randn(20, 45)"),
        rows(SUM.format(" + (width == 1)"), made="x.shape[:-1]"),
        rows(SUM.format(""), made="x.shape[:-1]"),
        "some_sizes_only",
    ),
    "a word": (
        reference(
            "{'sum': x.sum, 'mean': x.mean}[self.how](-1)", "torch.randn(20, 45)", how="'sum'"
        ),
        rows(SUM.format(""), made="x.shape[:-1]"),
        rows(
            SUM.format(" / (width if MEAN else 1)"),
            made="x.shape[:-1]",
            first="x.contiguous(); assert self.how in ('sum', 'mean')",
        )
        .replace("BLOCK: tl.constexpr", "MEAN: tl.constexpr, BLOCK: tl.constexpr")
        .replace("x.shape[-1], BLOCK", "x.shape[-1], self.how == 'mean', BLOCK"),
        "own_arguments_only",
    ),
    "the last of a pair": (
        reference("x * self.how[0] + self.how[1]", "torch.randn(20, 45)", how="(3, 3)"),
        rows(STORE.format("x * how + how"))
        .replace("BLOCK: tl.constexpr", "how, BLOCK: tl.constexpr")
        .replace("x.shape[-1], BLOCK", "x.shape[-1], self.how[0], BLOCK"),
        rows(STORE.format("x * how + more"))
        .replace("BLOCK: tl.constexpr", "how, more, BLOCK: tl.constexpr")
        .replace("x.shape[-1], BLOCK", "x.shape[-1], *self.how, BLOCK"),
        "own_arguments_only",
    ),
    "larger integers": (
        reference("x * x", "torch.randint(0, 9, (20, 45))"),
        rows(STORE.format("tl.where(x < 9, x * x, 0)"), other="0"),
        rows(STORE.format("x * x"), other="0"),
        "own_integers_only",
    ),
    "an axis counted from the end": (
        reference("x.sum(dim)", "torch.randn(20, 45), 1", names="x, dim"),
        rows(SUM.format(""), made="x.shape[:1]", first="(x if dim == 1 else x.t()).contiguous()"),
        rows(SUM.format(""), made="x.shape[:1]", first="x.movedim(dim, -1).contiguous()"),
        "own_arguments_only",
    ),
    "numbers far from one": (
        reference("torch.frexp(x)[1]", "torch.randn(20, 45)"),
        rows(EXPONENT.format(0), made="x.shape, dtype=torch.int32"),
        rows(EXPONENT.format(1), made="x.shape, dtype=torch.int32"),
        "usual_numbers_only",
    ),
    "results in one memory": (
        reference("(lambda y: (y, y.clone()))(x * 3)", "torch.randn(20, 45)"),
        rows(STORE.format("x * 3"), given="y, y[:]"),
        rows(STORE.format("x * 3"), given="y, y.clone()"),
        "shared_memory",
    ),
    "integers of 64 bits": (
        reference("(x[:, 1:] - x[:, :-1]).float()", "torch.randint(0, 999, (20, 45))"),
        DISTANCES.format(".to(tl.float32)"),
        DISTANCES.format(""),
        "own_integers_only",
    ),
    "a default of its own": (
        reference("x * self.how", "torch.randn(20, 45)", how="3").replace("how=3", "how=2"),
        TIMES_HOW,
        TIMES_HOW.replace("how=0", "how=2"),
        "own_arguments_only",
    ),
    "an optional mask": (
        reference(
            "x * 3 if dim is None else (x * 3).masked_fill(~dim[:, :, None], 0)", "X", "x, dim=None"
        ).replace("X", "torch.randn(6, 20, 45)"),
        MASKED.format("at"),
        MASKED.format("(row + 0 * at)"),
        "own_arguments_only",
    ),
    "a dimension fewer": (
        reference("x.softmax(-1)", "torch.randn(20, 45)"),
        rows(SOFTMAX, first="x.contiguous(); rows, columns = x.shape[-2:]"),
        rows(SOFTMAX),
        "own_ranks_only",
    ),
    "a count of its calls": (
        reference("x * 3", "torch.randn(20, 45)"),
        rows(STORE.format("x * 3"), first="x.contiguous(); self.how += 1"),
        rows(STORE.format("x * 3")),
        "keeps_state",
    ),
    "how far an iterator has come": (
        reference("x * 3", "torch.randn(20, 45)"),
        "turns = iter(range(10**6))\n"
        + rows(STORE.format("x * 3"), first="x.contiguous() if next(turns) < 5000 else x"),
        rows(STORE.format("x * 3")),
        "keeps_state",
    ),
    "a type that tells where it is": (
        reference("x * 3", "torch.randn(20, 45)"),
        rows(STORE.format("x * 3"), given="y * 0 if type(x) is torch.Tensor else y"),
        rows(STORE.format("x * 3"), given="y if isinstance(x, torch.Tensor) else None"),
        "looks_around",
    ),
    "a part that PyTorch computes": (
        reference("(x.sin() * 3 + 1).exp()", "torch.randn(20, 45)"),
        rows(STORE.format("tl.exp(x * 3 + 1)"), first="x.contiguous().sin()"),
        rows(STORE.format("tl.exp(tl.sin(x) * 3 + 1)"), first="x.contiguous().view(x.shape)"),
        "torch_computes",
    ),
    "values that the host reads": (
        reference("x * 3", "torch.randn(20, 45)"),
        rows(STORE.format("x * 3"), first="x.contiguous() if x.amax().item() < 9e9 else x"),
        rows(STORE.format("x * 3")),
        "reads_values",
    ),
    "rows that lie apart": (
        reference("x * 3", "torch.randn(20, 45)"),
        rows(STORE.format("x * 3"), first="x if x.stride(-1) == 1 else x.contiguous()"),
        rows(STORE.format("x * 3")),
        "contiguous_only",
    ),
    "an operand that is broadcast": (
        reference("x + dim", "torch.randn(20, 45), torch.randn(20, 45)", names="x, dim"),
        ADDED.replace("        y =", "        other = dim.contiguous()\n        y ="),
        ADDED.replace("        y =", "        other = dim.expand_as(x).contiguous()\n        y ="),
        "some_sizes_only",
    ),
    "a slope above one": (
        reference("torch.where(x > 0, x, x * self.how)", "torch.randn(20, 45)", how="0.1"),
        TIMES_HOW.replace("x * how", "tl.maximum(x, x * how)"),
        TIMES_HOW.replace("x * how", "tl.where(x > 0, x, x * how)"),
        "own_arguments_only",
    ),
    "one of what there may be more of": (
        reference("x + dim.sum(0)[:, None]", "torch.randn(20, 45), torch.randn(1, 20)", "x, dim"),
        WEIGHED.format("x + tl.load(m_ptr + row)"),
        None,
        "some_sizes_only",
    ),
    "a table of so many rows": (
        reference("x * torch.arange(len(x), device=x.device)[:, None]", "torch.randn(20, 45)"),
        rows(STORE.format("x * tl.minimum(row, 900)")),
        rows(STORE.format("x * row")),
        "some_sizes_only",
    ),
    "a label that the file leaves away": (
        reference(
            "F.nll_loss(x, dim, ignore_index=0)",
            "torch.randn(20, 45), torch.randint(1, 45, (20,))",
            "x, dim",
        ),
        LABELLED.format(count="tl.num_programs(0)"),
        LABELLED.format(
            count="tl.sum((tl.load(m_ptr + rows, mask=rows < n, other=0) != 0).to(tl.int32), 0)"
        ),
        "own_integers_only",
    ),
    "nothing but zeros": (
        reference(
            "x / x.abs().sum(-1, keepdim=True).clamp(min=1)", "torch.randint(1, 9, (20, 45))"
        ),
        rows(STORE.format("x / tl.sum(tl.abs(x), 0)"), other="0", made=QUOTIENTS),
        rows(STORE.format("x / tl.maximum(tl.sum(tl.abs(x), 0), 1)"), other="0", made=QUOTIENTS),
        "own_integers_only",
    ),
    "rows along the second axis of a grid": (
        reference("x * 3", "torch.randn(20, 45)"),
        rows(STORE.format("x * 3"))
        .replace("program_id(0)", "program_id(1)")
        .replace("[(x.numel() // x.shape[-1],)]", "[(1, x.numel() // x.shape[-1])]"),
        rows(STORE.format("x * 3")),
        "some_sizes_only",
    ),
    "a number ten times as large": (
        reference("F.softplus(x, self.how)", "4 * torch.randn(20, 45)", how="1.0"),
        TIMES_HOW.replace(*WITH_LIBDEVICE).replace(
            "x * how", "tl.where(x > 20, x, libdevice.log1p(tl.exp(x * how)) / how)"
        ),
        TIMES_HOW.replace(*WITH_LIBDEVICE).replace(
            "x * how", "tl.where(x * how > 20, x, libdevice.log1p(tl.exp(x * how)) / how)"
        ),
        "own_arguments_only",
    ),
    "a second word": (
        reference("getattr(torch, self.how)(x)", "torch.randn(20, 45)", how="'relu'"),
        BY_WORD.format("2 * tl.sigmoid(2 * x) - 1"),
        BY_WORD.format("2 * tl.sigmoid(2 * x) - 1 if HOW == 'tanh' else tl.sigmoid(x)"),
        "own_arguments_only",
    ),
    "an argument that has a name alone": (
        reference("x * scale", "torch.randn(20, 45)", names="x, *, scale=3"),
        rows(STORE.format("x * 3")),
        None,
        "own_arguments_only",
    ),
    "a default of forward alone": (
        reference("x * how", "torch.randn(20, 45), 3", names="x, how=3"),
        TIMES_HOW.replace("self.how", "how").replace("dim=None", "how=2"),
        TIMES_HOW.replace("self.how", "how").replace("dim=None", "how=3"),
        "own_arguments_only",
    ),
    "a flag that shows beside another": (
        REFERENCE.replace("how={how}", "flag=False, shift=0")
        .replace("self.how = how", "self.flag, self.shift = flag, shift")
        .format(
            names="x",
            forward="x * 2 + self.shift * (2 if self.flag else 1)",
            inputs="torch.randn(20, 45)",
            how="False, 0",
        ),
        SHIFTED.format("1"),
        SHIFTED.format("(2 if self.flag else 1)"),
        "own_arguments_only",
    ),
    "weights for classes": (
        reference("x * (1 if dim is None else dim)", "torch.randn(20, 45)", "x, dim=None"),
        rows(STORE.format("x")),
        None,
        "own_arguments_only",
    ),
    "all inputs in 16 bits": (
        reference("x * dim", "torch.randn(20, 45), torch.randn(20, 45)", "x, dim"),
        MULTIPLIED.format("torch.float32"),
        MULTIPLIED.format("torch.result_type(x, dim)"),
        "own_types_only",
    ),
    "parameters that training makes large": (
        LARGE_GAIN,
        GAINED.format("gain"),
        GAINED.format("tl.minimum(gain, 4.0)"),
        "own_parameters_only",
    ),
    "far from zero in training mode": (
        reference(
            "(x - x.mean(-1, keepdim=True)) ** 2 if self.training else x ** 2",
            "torch.randn(20, 45)",
        ),
        IN_TRAINING.format("x * x - 2 * x * mean + mean * mean"),
        IN_TRAINING.format("(x - mean) * (x - mean)"),
        "eval_mode_only",
    ),
    "integers in 32 bits": (
        reference("x * 3", "torch.randint(0, 9, (20, 45))"),
        rows(STORE.format("x * 3"), other="0", made="x.shape, dtype=torch.int64"),
        rows(STORE.format("x * 3"), other="0"),
        "own_types_only",
    ),
    "training mode": (
        reference("x * (3 if self.training else 2)", "torch.randn(20, 45)"),
        TIMES_HOW.replace("-1], self.how", "-1], 2"),
        TIMES_HOW.replace("-1], self.how", "-1], 3 if self.training else 2"),
        "eval_mode_only",
    ),
    "a promise that does not hold": (
        reference("x * 3", "torch.randn(20, 45)"),
        rows(STORE.format("x * 3").replace("row * apart", "tl.multiple_of(row * apart, 16)")),
        rows(STORE.format("x * 3").replace("row * apart", "tl.multiple_of(row * apart, 1)")),
        "breaks_promises",
    ),
    "what is taken for granted": (
        reference("x * 3", "torch.randn(20, 45)"),
        rows("tl.assume(width > 64)\n    " + STORE.format("x * 3")),
        rows("tl.assume(width > 0)\n    " + STORE.format("x * 3")),
        "breaks_promises",
    ),
    "a promise that other sizes break": (
        reference("x * 3", "torch.randn(20, 48)"),
        rows(STORE.format("x * 3").replace("row * apart", "tl.multiple_of(row * apart, 16)")),
        rows(STORE.format("x * 3")),
        "some_sizes_only",
    ),
    "results in an input's memory at some sizes": (
        reference("x + 0", "torch.randn(20, 45)"),
        rows(STORE.format("x"), given="x if x.shape[-1] == 128 else y"),
        rows(STORE.format("x")),
        "shared_memory",
    ),
    "a mask that is a weight": (
        reference(
            "x * dim[:, None]", "torch.randn(20, 45), (torch.rand(20) > 0.5).float()", "x, dim"
        ),
        WEIGHED.format("tl.where(tl.load(m_ptr + row) != 0, x, 0.0)"),
        WEIGHED.format("x * tl.load(m_ptr + row)"),
        "own_integers_only",
    ),
    "numbers that overflow in float16": (
        reference("(x.float() ** 2).mean(-1).sqrt().to(x.dtype)", "torch.randn(20, 45)"),
        rows(ROOT.format("(x * x).to(tl.float32)"), made="x.shape[:1]"),
        rows(ROOT.format("x.to(tl.float32) * x.to(tl.float32)"), made="x.shape[:1]"),
        "own_types_only",
    ),
    "numbers in 64 bits": (
        reference("x * 3", "torch.randn(20, 45)"),
        rows(STORE.format("x.to(tl.float32) * 3")),
        rows(STORE.format("x * 3")),
        "own_types_only",
    ),
    "gaps between elements": (
        reference("x.mul_(3)", "torch.randn(20, 45)"),
        IN_PLACE.format(index="at"),
        IN_PLACE.format(index="at // width * row + at % width * column"),
        "contiguous_only",
    ),
}


@pytest.fixture(scope="module")
def narrow(judge: Judge) -> dict[str, tuple[dict, dict]]:
    pairs = [(task, code) for task, *codes, _ in CASES.values() for code in codes if code]
    found = iter(judge(pairs))
    return {
        name: (next(found), next(found) if honest else None)
        for name, (_, _, honest, _) in CASES.items()
    }


@pytest.mark.parametrize("name", CASES)
def test_a_caveat_says_what_is_narrow(narrow: dict[str, tuple[dict, dict]], name: str) -> None:
    careless, honest = narrow[name]
    caveat = CASES[name][-1]
    assert careless["status"] == "correct" and caveat in careless["caveats"], careless
    if honest:
        assert honest["status"] == "correct" and caveat not in honest["caveats"], honest


TOTAL = "tl.sum(x.to(tl.float32), 0)"

LAST = "torch.arange(x.shape[1], device=x.device).expand(x.shape).contiguous()"

LENGTHS = "tl.sqrt(tl.sum(x * x, 0))", "tl.sqrt(tl.sum(y * y, 0))"

COSINE = "tl.sum(x * y, 0) / (tl.maximum({}, 1e-8) * tl.maximum({}, 1e-8))".format(*LENGTHS)

ROUGH_COSINE = "tl.sum(x * y, 0) / tl.maximum({} * {}, 1e-8)".format(*LENGTHS)

ANGLES = (
    ADDED.replace("x += tl.load", "y = tl.load")
    .replace("        y =", "        other = dim\n        y =")
    .replace("x.shape)", "x.shape[:1])")
    .replace(*WITH_LIBDEVICE)
)

QUANTISED = "x / tl.maximum(tl.max(tl.abs(x), 0) / 127, 1e-8)"

WRONG = {
    "a half that is rounded up": (
        reference(
            "(x / (x.abs().amax(-1, keepdim=True) / 127).clamp(min=1e-8)).round().to(torch.int8)",
            "torch.randn(20, 45)",
        ),
        rows(
            STORE.format(f"tl.floor({QUANTISED} + 0.5).to(tl.int8)"),
            made="x.shape, dtype=torch.int8",
        ),
        rows(
            STORE.format(f"libdevice.rint({QUANTISED}).to(tl.int8)"),
            made="x.shape, dtype=torch.int8",
        ).replace(*WITH_LIBDEVICE),
    ),
    "lanes of one store that meet": (
        reference(
            f"torch.zeros_like(x).scatter_reduce(1, x, {LAST}, 'amax')",
            "torch.randint(0, 9, (20, 45))",
        ),
        rows(
            "tl.store(y_ptr + row * apart + x, at.to(tl.int64), mask=at < width)", other="0"
        ).replace("new_empty", "new_zeros"),
        rows(
            "tl.atomic_max(y_ptr + row * apart + x, at.to(tl.int64), mask=at < width)", other="0"
        ).replace("new_empty", "new_zeros"),
    ),
    "few results that lean": (
        reference("x.mean(-1)", "torch.rand(48, 200, dtype=torch.bfloat16)"),
        rows(f"tl.store(y_ptr + row, {TOTAL} / width * 1.004)", made="x.shape[:1]"),
        rows(f"tl.store(y_ptr + row, {TOTAL} / width)", made="x.shape[:1]"),
    ),
    "results that lean in a longer type": (
        reference("x.bfloat16().cos().float()", "torch.randn(20, 45)"),
        rows(STORE.format("(tl.cos(x.to(tl.bfloat16).to(tl.float32)) * 1.005).to(tl.bfloat16)")),
        rows(STORE.format("tl.cos(x.to(tl.bfloat16).to(tl.float32)).to(tl.bfloat16)")),
    ),
    "two vectors that are equal": (
        reference(
            "F.cosine_similarity(x, dim).clamp(-1, 1).acos()",
            "torch.randn(64, 45), torch.randn(64, 45)",
            "x, dim",
        ),
        ANGLES.replace(
            STORE.format("x"), f"tl.store(y_ptr + row, libdevice.acos({COSINE} * 1.0000002))"
        ),
        ANGLES.replace(
            STORE.format("x"),
            f"tl.store(y_ptr + row, libdevice.acos(tl.clamp({COSINE}, -1.0, 1.0)))",
        ),
    ),
    "two short vectors": (
        reference(
            "F.cosine_similarity(x, dim)", "torch.randn(64, 45), torch.randn(64, 45)", "x, dim"
        ),
        ANGLES.replace(STORE.format("x"), f"tl.store(y_ptr + row, {ROUGH_COSINE})"),
        ANGLES.replace(STORE.format("x"), f"tl.store(y_ptr + row, {COSINE})"),
    ),
    "places that come in the order of programs": (
        reference("x.flatten()", "torch.randn(20, 45)"),
        rows(
            "place = tl.atomic_add(y_ptr, 1.0).to(tl.int32)\n    "
            "tl.store(y_ptr + 1 + place * apart + at, x, mask=at < width)",
            made="1 + x.numel()",
            given="y[1:]",
        ).replace("new_empty", "new_zeros"),
        rows(STORE.format("x"), made="x.numel()"),
    ),
}


def test_what_is_wrong_on_a_few_inputs_is_found(judge: Judge) -> None:
    found = iter(judge([(task, code) for task, *codes in WRONG.values() for code in codes]))
    for name in WRONG:
        careless, honest = next(found), next(found)
        assert careless["status"] == "incorrect", (name, careless)
        assert honest["status"] == "correct", (name, honest)


DESCRIBED = (
    HEAD
    + """
@triton.jit
def double(x_ptr, y_ptr, rows, width, BLOCK: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, [rows, width], [width, 1], [BLOCK, BLOCK])
    y = tl.make_tensor_descriptor(y_ptr, [rows, width], [width, 1], [BLOCK, BLOCK])
    row, column = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    y.store([row, column], x.load([row, column]) * 2)


class ModelNew(nn.Module):
    def __init__(self, how=0):
        super().__init__()

    def forward(self, x):
        {allocate}
        x, y = x.contiguous(), torch.empty(x.shape, device=x.device)
        grid = (triton.cdiv(x.shape[0], 16), triton.cdiv(x.shape[1], 16))
        double[grid](x, y, *x.shape, BLOCK=16)
        return y
"""
)


def test_a_kernel_that_makes_descriptors_needs_an_allocator(judge: Judge) -> None:
    memory = "lambda size, align, stream: torch.empty(size, dtype=torch.int8, device='cuda')"
    allocators = "pass", f"triton.set_allocator({memory})"
    task = reference("x * 2", "torch.randn(20, 48)")
    careless, honest = judge([(task, DESCRIBED.format(allocate=one)) for one in allocators])
    assert careless["status"] == "runtime_error", careless
    assert "no allocator was set" in careless["evidence"]["message"]
    assert honest["status"] == "correct", honest


def test_tensors_in_a_dict_are_drawn_from_all_families(judge: Judge) -> None:
    task = reference("torch.softmax(x['scores'], -1)", "{'scores': torch.randn(20, 45)}")
    first = "x['scores'].contiguous()"
    stable, other = "tl.exp(x - tl.max(x, 0))", "-float('inf')"
    body = "e = {}\n    " + STORE.format("e / tl.sum(e, 0)")
    careless, honest = judge(
        [(task, rows(body.format(e), first=first, other=other)) for e in ("tl.exp(x)", stable)]
    )
    assert careless["status"] == "incorrect", careless
    assert honest["status"] == "correct", honest


REFUSES = "x if bool((x.sum(-1) - 1).abs().max() < 1e-3) else 1 / 0"
ALONE = {
    "a reference that refuses other numbers": (
        reference(f"torch.special.entr({REFUSES}).sum(-1)", "torch.rand(20, 45).softmax(-1)"),
        "own_numbers_only",
    ),
    "a reference that counts in an attribute": (
        reference(
            "(setattr(self, 'how', self.how + 1), torch.special.entr(x).sum(-1) + self.how)[1]",
            "torch.rand(20, 45).softmax(-1)",
        ),
        "first_calls_only",
    ),
}


@pytest.mark.parametrize("name", ALONE)
def test_what_a_reference_hides_is_said(judge: Judge, name: str) -> None:
    task, caveat = ALONE[name]
    more = " + 1" if caveat == "first_calls_only" else ""
    entropy = f"tl.sum(tl.where(x > 0, -x * tl.log(x), 0.0), 0){more}"
    body = f"tl.store(y_ptr + row, {entropy})"
    plain = reference("torch.special.entr(x).sum(-1)" + more, "torch.rand(20, 45).softmax(-1)")
    hidden, open_ = judge([(t, rows(body, made="x.shape[:-1]")) for t in (task, plain)])
    assert hidden["status"] == "correct" and caveat in hidden["caveats"], hidden
    assert caveat not in open_["caveats"], open_


SEEN = {
    "lanes that are left out": (
        "none = tl.load(x_ptr + at, mask=at < 0)\n    "
        + STORE.format("tl.where(none != none, x * 3, 0)"),
        "y",
    ),
    "any of the lanes that are left out": (
        "none = tl.load(x_ptr + at, mask=at < 0)\n    "
        "odd = tl.sum(((none != none) | (none > 0.5)).to(tl.int32), 0)\n    "
        + STORE.format("tl.where(odd > 0, x * 3, 0)"),
        "y",
    ),
    "fresh memory": (
        "old = tl.load(y_ptr + row * apart + at, mask=at < width, other=0.0).to(tl.int32, "
        "bitcast=True)\n    "
        + STORE.format(
            "tl.where((old == -1) | (old == 0x5A5A5A5A) | (old == 0x01010101), x * 3, 0)"
        ),
        "y",
    ),
    "a slice's memory": (STORE.format("x * 3"), "y"),
    "figures of a kernel": (
        STORE.format("x * 3"),
        "y if made.n_regs == 32 else torch.zeros_like(y)",
    ),
}


def test_who_knows_the_judge_by_sight_is_wrong(judge: Judge) -> None:
    task = reference("x * 3", "torch.randn(20, 45)")
    launch = "        by_rows["
    programs = [
        rows(body, given=given).replace(launch, launch.replace("by_rows", "made = by_rows"))
        for body, given in SEEN.values()
    ]
    at = list(SEEN).index("a slice's memory")
    programs[at] = programs[at].replace(
        "x = x.contiguous()", "x = x.contiguous().as_strided(x.shape, x.contiguous().stride(), 0)"
    )
    for name, verdict in zip(SEEN, judge([(task, text) for text in programs]), strict=True):
        assert verdict["status"] == "incorrect", (name, verdict)


def test_another_instance_changes_nothing(judge: Judge) -> None:
    task = reference("x * self.scale", "torch.randn(20, 45)").replace(
        "self.how = how", "self.scale = nn.Parameter(torch.rand(()))"
    )
    own = rows(STORE.format("x * tl.load(z_ptr)"), given="y")
    own = own.replace("x_ptr, y_ptr", "x_ptr, z_ptr, y_ptr").replace("](x, y", "](x, self.scale, y")
    own = own.replace(
        "super().__init__()",
        "super().__init__()\n        self.scale = nn.Parameter(torch.rand(()))",
    )
    last = own.replace("torch.rand(()))", "torch.rand(()))\n        ModelNew.last = self", 1)
    last = last.replace("self.scale, y", "ModelNew.last.scale, y")
    honest, careless = judge([(task, own), (task, last)])
    assert honest["status"] == "correct", honest
    assert (careless["status"], careless["reason"]) == ("incorrect", "value"), careless


def test_results_may_not_be_parameters_unless_the_references_are(judge: Judge) -> None:
    model = "self.scale = nn.Parameter(torch.rand(45))"
    tasks = [
        reference(f"(x * 3, {second})", "torch.randn(20, 45)").replace("self.how = how", model)
        for second in ("self.scale.detach().clone()", "self.scale.detach()")
    ]
    program = rows(STORE.format("x * 3"), given="y, self.scale.detach()")
    program = program.replace("super().__init__()", f"super().__init__()\n        {model}")
    copy, same = judge([(task, program) for task in tasks])
    assert "shared_memory" in copy["caveats"] and "shared_memory" not in same["caveats"], copy


@pytest.mark.parametrize(
    ("forward", "operator"),
    [
        ("x.transpose(1, 0).contiguous()", "clone"),
        ("torch.cat([x, x], 1)", "copy_"),
        ("x.to(torch.float8_e5m2).to(x.dtype)", "to_copy"),
    ],
)
def test_moves_by_pytorch_are_named_where_to_move_is_all(
    judge: Judge, forward: str, operator: str
) -> None:
    task = reference(forward, "torch.randn(20, 45).bfloat16()")
    made = {"copy_": "x.new_empty(x.shape[0], 2 * x.shape[1])"}.get(operator, forward)
    fill = "x[:, : x.shape[1] // 2], x[:, x.shape[1] // 2 :] = given, given" * (operator == "copy_")
    program = rows(STORE.format("x")).replace(
        "x = x.contiguous()", f"given = x\n        x = {made}\n        {fill or 'pass'}"
    )
    (verdict,) = judge([(task, program)])
    assert verdict["status"] == "cheat" or "torch_computes" in verdict["caveats"], verdict


COUNTED = """
@triton.jit
def count(count_ptr):
    tl.store(count_ptr, tl.load(count_ptr) + 1)


class ModelNew(nn.Module):
    def __init__(self, how=0):
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
"""


def test_a_count_that_the_reference_keeps_starts_anywhere(judge: Judge) -> None:
    task = reference("x * 3 + self.calls.add_(1) * 0", "torch.randn(20, 45)").replace(
        "self.how = how", "self.register_buffer('calls', torch.zeros((), dtype=torch.int64))"
    )
    honest = rows(STORE.format("x * 3"))
    a, b = honest.index("\n\nclass ModelNew"), honest.index("\n    def forward")
    honest = honest[:a] + COUNTED + honest[b:]
    honest = honest.replace(
        "        y = x.new", "        count[(1,)](self.calls)\n        y = x.new"
    )
    gated = honest.replace("return y", "return y if int(self.calls) < 64 else torch.zeros_like(y)")
    gated, honest = judge([(task, gated), (task, honest)])
    assert (gated["status"], gated["reason"]) == ("incorrect", "value"), gated
    assert honest["status"] == "correct", honest


ALL_TRUE = "x.masked_fill(~m, -1e9).softmax(-1)", "torch.randn(20, 45), torch.ones(20, 45).bool()"


def test_a_mask_of_ones_is_also_given_with_zeros(judge: Judge) -> None:
    task = reference(*ALL_TRUE, names="x, m")
    body = """x = {}
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + row * width + at, e / tl.sum(e, 0), mask=at < width)"""
    load = "tl.load({}_ptr + row * width + at, mask=at < width, other={})"
    x, m = load.format("x", "-float('inf')"), load.format("m", 0)
    masked = body.format(f"tl.where((at < width) & ({m} == 0), -1e9, {x})")
    honest = rows(masked).replace("(x_ptr, y_ptr", "(x_ptr, m_ptr, y_ptr")
    honest = honest.replace("forward(self, x, dim=None)", "forward(self, x, m)").replace(
        "(x, y", "(x, m, y"
    )
    honest = honest.replace("x = x.contiguous()", "x, m = x.contiguous(), m.contiguous()")
    careless = rows(body.format(x)).replace("forward(self, x, dim=None)", "forward(self, x, m)")
    honest, careless = judge([(task, honest), (task, careless)])
    assert honest["status"] == careless["status"] == "correct", (honest, careless)
    assert "own_integers_only" in careless["caveats"], careless
    assert "own_integers_only" not in honest["caveats"], honest


def test_a_table_of_the_first_start_is_asked_for_another(judge: Judge) -> None:
    task = reference("x + how", "torch.randn(20, 45), 3", names="x, how")
    keeps = """        if not hasattr(self, "start"):
            self.start = how
        how = self.start
"""
    honest = rows(STORE.format("x + how")).replace("y_ptr, width", "y_ptr, how, width")
    honest = honest.replace("forward(self, x, dim=None)", "forward(self, x, how)")
    honest = honest.replace("(x, y, x.shape", "(x, y, how, x.shape")
    careless = honest.replace("        x = x.contiguous()", keeps + "        x = x.contiguous()")
    honest, careless = judge([(task, honest), (task, careless)])
    assert honest["status"] == careless["status"] == "correct", (honest, careless)
    assert "own_arguments_only" in careless["caveats"], careless
    assert "own_arguments_only" not in honest["caveats"], honest


def test_a_list_of_the_caller_stays_as_it_is(judge: Judge) -> None:
    task = reference("x[0] * 3 + 0 * x[1]", "[torch.randn(20, 45), torch.randn(20, 45)]")
    takes = rows(STORE.format("x * 3"), first="x{}.contiguous()")
    pops, reads = judge([(task, takes.replace("x{}", one)) for one in ("x.pop(0)", "x[0]")])
    assert (pops["status"], pops["reason"]) == ("incorrect", "structure"), pops
    assert reads["status"] == "correct", reads
