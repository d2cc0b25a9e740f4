"""Copies of a small benchmark's problems are found in whatever way they were changed."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any

import pytest

from curate.clean.decontaminate import Decontaminate
from curate.clean.fingerprint import make_fingerprints, write_benchmark
from curate.rows import make_origin, make_row
from curate.step import Context, Drop, Keep

TRITON = "import torch\nimport triton\nimport triton.language as tl\n\n\n@triton.jit\n"
TORCH = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\n\n"

KERNELS = {
    "softmax": """
def softmax_kernel(out_ptr, in_ptr, lse_ptr, in_stride, out_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    inside = cols < n_cols
    x = tl.load(in_ptr + row * in_stride + cols, mask=inside, other=-float("inf"))
    highest = tl.max(x, axis=0)
    shifted = x - highest
    numerator = tl.exp2(shifted * 1.4427)
    total = tl.sum(numerator, axis=0)
    tl.store(lse_ptr + row, highest + tl.log(total))
    tl.store(out_ptr + row * out_stride + cols, numerator / total, mask=inside)
""",
    "layer_norm": """
def layer_norm_kernel(x_ptr, y_ptr, w_ptr, b_ptr, mean_ptr, rstd_ptr, stride, n, eps,
                      BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    inside = cols < n
    x = tl.load(x_ptr + row * stride + cols, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / n
    centred = tl.where(inside, x - mean, 0.0)
    variance = tl.sum(centred * centred, axis=0) / n
    rstd = 1 / tl.sqrt(variance + eps)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    w = tl.load(w_ptr + cols, mask=inside)
    b = tl.load(b_ptr + cols, mask=inside)
    tl.store(y_ptr + row * stride + cols, centred * rstd * w + b, mask=inside)
""",
    "matmul": """
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
                  stride_cm, stride_cn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pid_m = tl.program_id(0)
    pid_n = tl.program_id(1)
    rows = pid_m * BM + tl.arange(0, BM)
    cols = pid_n * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    a = a_ptr + rows[:, None] * stride_am + depth[None, :] * stride_ak
    b = b_ptr + depth[:, None] * stride_bk + cols[None, :] * stride_bn
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        left = tl.load(a, mask=depth[None, :] < K - k * BK, other=0.0)
        right = tl.load(b, mask=depth[:, None] < K - k * BK, other=0.0)
        total += tl.dot(left, right)
        a += BK * stride_ak
        b += BK * stride_bk
    where = c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    tl.store(where, total, mask=(rows[:, None] < M) & (cols[None, :] < N))
""",
    "cross_entropy": """
def cross_entropy_kernel(logits_ptr, target_ptr, loss_ptr, stride, n_classes, smoothing,
                         BLOCK: tl.constexpr):
    row = tl.program_id(0)
    target = tl.load(target_ptr + row)
    start = logits_ptr + row * stride
    highest = float("-inf")
    total = 0.0
    for begin in range(0, n_classes, BLOCK):
        cols = begin + tl.arange(0, BLOCK)
        logits = tl.load(start + cols, mask=cols < n_classes, other=float("-inf"))
        new = tl.maximum(highest, tl.max(logits, axis=0))
        total = total * tl.exp(highest - new) + tl.sum(tl.exp(logits - new), axis=0)
        highest = new
    chosen = tl.load(start + target)
    loss = tl.log(total) + highest - chosen
    tl.store(loss_ptr + row, loss * (1 - smoothing))
""",
    "quantize": """
def quantize_rows(x_ptr, out_ptr, scale_ptr, stride_x, stride_out, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    valid = lanes < width
    values = tl.load(x_ptr + row * stride_x + lanes, mask=valid, other=0.0)
    largest = tl.max(tl.abs(values), axis=0)
    scale = tl.maximum(largest, 1e-6) / 127.0
    scaled = values / scale
    rounded = tl.where(scaled >= 0, scaled + 0.5, scaled - 0.5)
    tl.store(out_ptr + row * stride_out + lanes, rounded.to(tl.int8), mask=valid)
    tl.store(scale_ptr + row, scale)
""",
    "rotary": """
def rotary_kernel(q_ptr, cos_ptr, sin_ptr, stride_q, stride_cos, seq_len, HALF: tl.constexpr):
    position = tl.program_id(0)
    head = tl.program_id(1)
    lanes = tl.arange(0, HALF)
    cos = tl.load(cos_ptr + (position % seq_len) * stride_cos + lanes)
    sin = tl.load(sin_ptr + (position % seq_len) * stride_cos + lanes)
    base = q_ptr + position * stride_q + head * HALF * 2
    first = tl.load(base + lanes).to(tl.float32)
    second = tl.load(base + HALF + lanes).to(tl.float32)
    tl.store(base + lanes, first * cos - second * sin)
    tl.store(base + HALF + lanes, second * cos + first * sin)
""",
}

MODULES = {
    "gated_mlp": """
class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.up = nn.Linear(width, hidden, bias=False)
        self.gate = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        gated = F.silu(self.gate(x))
        hidden = gated * self.up(x)
        hidden = F.dropout(hidden, 0.1, training=self.training)
        return x + self.down(hidden)
""",
    "squeeze_excite": """
class Model(nn.Module):
    def __init__(self, channels, ratio):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.reduce = nn.Linear(channels, channels // ratio)
        self.expand = nn.Linear(channels // ratio, channels)

    def forward(self, x):
        features = torch.relu(self.conv(x))
        squeezed = features.mean(dim=(2, 3))
        weights = torch.sigmoid(self.expand(torch.relu(self.reduce(squeezed))))
        scaled = features * weights[:, :, None, None]
        return F.max_pool2d(scaled, 2)
""",
    "attention": """
class Model(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q = q.view(batch, length, self.heads, -1).transpose(1, 2)
        k = k.view(batch, length, self.heads, -1).transpose(1, 2)
        v = v.view(batch, length, self.heads, -1).transpose(1, 2)
        scores = torch.matmul(q, k.transpose(-2, -1)) / (width // self.heads) ** 0.5
        mixed = torch.matmul(torch.softmax(scores, dim=-1), v)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))
""",
    "residual": """
class Model(nn.Module):
    def __init__(self, channels, groups):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.GroupNorm(groups, channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)

    def forward(self, x):
        out = F.relu(self.norm(self.first(x)))
        out = self.norm(self.second(out))
        out = out + x
        return F.avg_pool2d(F.relu(out), kernel_size=2, stride=2)
""",
    "contrastive": """
class Model(nn.Module):
    def __init__(self, width, temperature):
        super().__init__()
        self.project = nn.Linear(width, width)
        self.temperature = temperature

    def forward(self, left, right):
        left = F.normalize(self.project(left), dim=-1)
        right = F.normalize(self.project(right), dim=-1)
        logits = left @ right.t() / self.temperature
        target = torch.arange(logits.shape[0], device=logits.device)
        both = F.cross_entropy(logits, target) + F.cross_entropy(logits.t(), target)
        return both / 2
""",
    "recurrent": """
class Model(nn.Module):
    def __init__(self, size, hidden):
        super().__init__()
        self.hidden = hidden
        self.inputs = nn.Linear(size, 3 * hidden)
        self.states = nn.Linear(hidden, 3 * hidden)

    def forward(self, x):
        state = x.new_zeros(x.shape[1], self.hidden)
        outputs = []
        for step in x.unbind(0):
            reset_i, update_i, new_i = self.inputs(step).chunk(3, dim=1)
            reset_s, update_s, new_s = self.states(state).chunk(3, dim=1)
            reset = torch.sigmoid(reset_i + reset_s)
            update = torch.sigmoid(update_i + update_s)
            candidate = torch.tanh(new_i + reset * new_s)
            state = (1 - update) * candidate + update * state
            outputs.append(state)
        return torch.stack(outputs)
""",
}

INPUTS = """

def get_inputs():
    return [torch.rand(16, 64)]


def get_init_inputs():
    return [64, 8]
"""

PROBLEMS = {name: TRITON + code.lstrip() for name, code in KERNELS.items()}
PROBLEMS |= {name: TORCH + code.lstrip() + INPUTS for name, code in MODULES.items()}

# --- what is done to them ---------------------------------------------------------------------


def main_body(tree: ast.Module) -> list[ast.stmt]:
    """Return the statements of the kernel, or of the module's forward."""
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    return next((f for f in functions if f.name == "forward"), functions[0]).body


def change_numbers(tree: ast.Module) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            node.value += 1


def insert_line(tree: ast.Module) -> None:
    body = main_body(tree)
    body.insert(len(body) // 2, ast.parse("unused = 3 + 4").body[0])


def remove_line(tree: ast.Module) -> None:
    body = main_body(tree)
    simple = [n for n in body if isinstance(n, ast.Assign)]
    body.remove(simple[len(simple) // 2])


def swap_lines(tree: ast.Module) -> None:
    body = main_body(tree)
    body[0], body[1] = body[1], body[0]


EDITS: dict[str, Callable[[ast.Module], None]] = {
    "numbers changed": change_numbers,
    "line inserted": insert_line,
    "line removed": remove_line,
    "lines swapped": swap_lines,
}


def edited(code: str, edit: Callable[[ast.Module], None]) -> str:
    tree = ast.parse(code)
    edit(tree)
    assert ast.dump(tree) != ast.dump(ast.parse(code))
    return ast.unparse(tree)


def renamed(code: str) -> str:
    """Return code with every name changed that it binds and that is no keyword of a library's."""
    tree = ast.parse(code)
    names = {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)} - {"self"}
    names |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and type(n.ctx) is ast.Store}
    names |= {
        n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and type(n.ctx) is ast.Store
    }
    names |= {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    for name in sorted(names):
        code = re.sub(rf"\b{name}\b(?!=[^=])", f"z{len(name)}{name[::-1]}", code)
    return code


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory) -> Decontaminate:
    folder = tmp_path_factory.mktemp("planting")
    (folder / "items").mkdir()
    for name, code in PROBLEMS.items():
        (folder / f"items/{name}.py").write_text(code)
    file = folder / "ours.json"
    write_benchmark(file, make_fingerprints([folder / "items"], "ours").benchmark)
    return Decontaminate(step="decontaminate", against=(str(file),))


def judge(step: Decontaminate, code: str) -> Drop | Keep:
    row: dict[str, Any] = make_row("kernel", code, make_origin("local"), triton=code)
    return step.apply(row, Context())


def assert_found(step: Decontaminate, code: str, name: str, tiers: set[str]) -> None:
    outcome = judge(step, code)
    assert isinstance(outcome, Drop), outcome.rows[0]["contamination"]
    assert outcome.reason == "contaminated"
    assert outcome.evidence["item"] == f"{name}.py"
    assert outcome.evidence["tier"] in tiers


@pytest.mark.parametrize("name", PROBLEMS)
def test_copies_are_found(step: Decontaminate, name: str) -> None:
    assert_found(step, PROBLEMS[name], name, {"structure"})
    assert_found(step, renamed(PROBLEMS[name]), name, {"structure"})
    # a copy that stands among code of its own
    mine = "\n\ndef launch(x, out):\n    grid = (x.shape[0],)\n    return grid, out\n"
    assert_found(step, PROBLEMS[name] + mine, name, {"structure"})


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("edit", EDITS)
def test_edited_copies_are_found(step: Decontaminate, name: str, edit: str) -> None:
    code = edited(PROBLEMS[name], EDITS[edit])
    tiers = {"structure", "overlap", "resemblance"}
    assert_found(step, code, name, tiers)
    assert_found(step, renamed(code), name, {"structure", "overlap"})


LOOK_ALIKES = {
    "softmax": """
def softmax_rows(x_ptr, y_ptr, x_stride, y_stride, n, BLOCK_SIZE: tl.constexpr):
    start = tl.program_id(axis=0)
    offsets = tl.arange(0, BLOCK_SIZE)
    values = tl.load(x_ptr + start * x_stride + offsets, mask=offsets < n, other=float("-inf"))
    peak = tl.max(values, 0)
    weights = tl.exp(values - peak)
    tl.store(y_ptr + start * y_stride + offsets, weights / tl.sum(weights, 0), mask=offsets < n)
""",
    "layer_norm": """
def normalize(X, Y, W, B, row_stride, N, epsilon, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0)
    X += row * row_stride
    Y += row * row_stride
    total = tl.zeros([BLOCK_SIZE], dtype=tl.float32)
    squares = tl.zeros([BLOCK_SIZE], dtype=tl.float32)
    for offset in range(0, N, BLOCK_SIZE):
        cols = offset + tl.arange(0, BLOCK_SIZE)
        values = tl.load(X + cols, mask=cols < N, other=0.0).to(tl.float32)
        total += values
        squares += values * values
    mean = tl.sum(total, axis=0) / N
    scale = tl.rsqrt(tl.sum(squares, axis=0) / N - mean * mean + epsilon)
    for offset in range(0, N, BLOCK_SIZE):
        cols = offset + tl.arange(0, BLOCK_SIZE)
        values = tl.load(X + cols, mask=cols < N, other=0.0).to(tl.float32)
        weight = tl.load(W + cols, mask=cols < N)
        bias = tl.load(B + cols, mask=cols < N)
        tl.store(Y + cols, (values - mean) * scale * weight + bias, mask=cols < N)
""",
    "gelu": """
class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))
""",
    "relu": """
class Model(nn.Module):
    def __init__(self, channels, groups):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)))
""",
}


@pytest.mark.parametrize("name", LOOK_ALIKES)
def test_honest_look_alikes_are_kept_with_their_scores(step: Decontaminate, name: str) -> None:
    code = LOOK_ALIKES[name].lstrip()
    code = TORCH + code + INPUTS if "nn.Module" in code else TRITON + code
    outcome = judge(step, code)
    assert isinstance(outcome, Keep), outcome.evidence
    nearest = outcome.rows[0]["contamination"]
    assert nearest["benchmark"] == "ours"
    assert 0 < nearest["overlap"] < 0.6
    assert nearest["resemblance"] < 0.7


def test_a_tier_can_be_switched_off(step: Decontaminate) -> None:
    code = renamed(edited(PROBLEMS["matmul"], insert_line))
    without = step.model_copy(update={"overlap": None})
    outcome = judge(without, code)
    assert isinstance(outcome, Keep)
    nearest = outcome.rows[0]["contamination"]
    assert nearest["item"] == "matmul.py"
    assert nearest["overlap"] >= 0.7


def test_text_that_is_not_python_is_compared_as_text(step: Decontaminate) -> None:
    broken = PROBLEMS["rotary"] + "\n>>> launch\n"
    assert_found(step, broken, "rotary", {"resemblance"})
    outcome = judge(step, "a sentence that has nothing to do with it\n")
    assert isinstance(outcome, Keep)
    assert outcome.rows[0]["contamination"] is None
