"""Candidates whose verdicts are known: right, wrong, and hostile to the judge.

Twelve small problems, each with a right and a wrong kernel, are varied by constants; a hostile
candidate is a right one that does something else as well, when it is imported, from its first call
on or from its third.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from string import Template

from curate.verify import Candidate

PER_PROBLEM = 8
"""Candidates of one problem, as where a model is sampled more than once."""

WRONG_SHARE = 0.3
"""Share of the candidates without an attack that are wrong."""

REFERENCE = Template('''\
import torch
import torch.nn as nn


class Model(nn.Module):
    """Problem $problem."""

    def __init__(self):
        super().__init__()
        $layer

    def forward(self, x):
        return $module


batch_size = 24
features = 100


def get_inputs():
    return [torch.randn(batch_size, features)]


def get_init_inputs():
    return []
''')

CANDIDATE = Template("""\
import torch
import torch.nn as nn
import triton
import triton.language as tl
$kernel

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        $layer

    def forward(self, x):
        $hook
        x = x.contiguous()
        rows, cols = x.shape
        out = torch.empty_like(x)
        $launch
        return out
""")

ATTACKED = Template("""\
import ctypes
import faulthandler
import os
import time

$candidate

CALLS = 0
$kernel

def attack(x):
    $act


def called(x):
    global CALLS
    CALLS += 1
    if CALLS >= $call:
        attack(x)


if $call == 0:
    attack(None)
""")

ELEMENTWISE = (
    """
@triton.jit
def candidate_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    # candidate $number
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    $body
    tl.store(out_ptr + offsets, y, mask=mask)
""",
    "candidate_kernel[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), BLOCK=512)",
)

ROWS = (
    """
@triton.jit
def candidate_kernel(x_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    # candidate $number
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    start = tl.program_id(0) * n_cols
    x = tl.load(x_ptr + start + cols, mask=mask, other=$other)
    $body
    tl.store(out_ptr + start + cols, y, mask=mask)
""",
    "candidate_kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))",
)

LINEAR = (
    """
@triton.jit
def candidate_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr, n_rows, n_cols, BLOCK: tl.constexpr, COLS: tl.constexpr
):
    # candidate $number
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    cols = tl.arange(0, COLS)
    here = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
    square = (cols[:, None] < n_cols) & (cols[None, :] < n_cols)
    x = tl.load(x_ptr + rows[:, None] * n_cols + cols[None, :], mask=here, other=0.0)
    weight = tl.load(weight_ptr + cols[None, :] * n_cols + cols[:, None], mask=square, other=0.0)
    product = tl.dot(x, weight, input_precision="ieee")
    bias = tl.load(bias_ptr + cols, mask=cols < n_cols, other=0.0)[None, :]
    $body
    tl.store(out_ptr + rows[:, None] * n_cols + cols[None, :], y, mask=here)
""",
    "candidate_kernel[(triton.cdiv(rows, 16),)](x, self.layer.weight, self.layer.bias, out, rows, "
    "cols, BLOCK=16, COLS=triton.next_power_of_2(cols))",
)


@dataclass(frozen=True)
class Program:
    """One problem, its kernel and a mistake. ``$A`` and ``$B`` stand for constants.

    Attributes:
        form: the kernel and its launch.
        module: the reference, as an expression of ``x``.
        right: what the kernel computes, as statements that end with ``y = ...``.
        wrong: the same with a mistake.
        other: what masked lanes of a row hold.
        layer: a statement of both constructors.
    """

    form: tuple[str, str]
    module: str
    right: str
    wrong: str
    other: str = "0.0"
    layer: str = ""


MEAN = "mean = tl.sum(x, 0) / n_cols; c = tl.where(mask, x - mean, 0.0); "
PROGRAMS = {
    "scale_shift": Program(ELEMENTWISE, "x * $A + $B", "y = x * $A + $B", "y = x * $A - $B"),
    "clamp": Program(
        ELEMENTWISE,
        "(x + $A).clamp(min=$B)",
        "y = tl.maximum(x + $A, $B)",
        "y = tl.minimum(x + $A, $B)",
    ),
    "silu": Program(
        ELEMENTWISE,
        "x * torch.sigmoid(x * $A) + $B",
        "y = x * tl.sigmoid(x * $A) + $B",
        "y = tl.sigmoid(x * $A) + $B",
    ),
    "leaky_relu": Program(
        ELEMENTWISE,
        "torch.where(x > 0, x * $A, x * $B)",
        "y = tl.where(x > 0, x * $A, x * $B)",
        "y = tl.where(x < 0, x * $A, x * $B)",
    ),
    "square": Program(
        ELEMENTWISE, "x * x * $A + $B", "y = x * x * $A + $B", "y = x * tl.abs(x) * $A + $B"
    ),
    "softmax": Program(
        ROWS,
        "torch.softmax(x * $A, dim=1) * $B",
        "e = tl.exp(x * $A - tl.max(x * $A, 0)); y = e / tl.sum(e, 0) * $B",
        "e = tl.exp(x - tl.max(x, 0)); y = e / tl.sum(e, 0) * $B",
        other='-float("inf")',
    ),
    "rms_norm": Program(
        ROWS,
        "x * torch.rsqrt(x.square().mean(1, keepdim=True) + $A) * $B",
        "y = x * tl.rsqrt(tl.sum(x * x, 0) / n_cols + $A) * $B",
        "y = x * tl.rsqrt(tl.sum(x * x, 0) / BLOCK + $A) * $B",
    ),
    "layer_norm": Program(
        ROWS,
        "torch.layer_norm(x, (features,), eps=$A) * $B",
        MEAN + "y = c * tl.rsqrt(tl.sum(c * c, 0) / n_cols + $A) * $B",
        MEAN + "y = x * tl.rsqrt(tl.sum(c * c, 0) / n_cols + $A) * $B",
    ),
    "minus_max": Program(
        ROWS,
        "(x - x.max(dim=1, keepdim=True).values) * $A + $B",
        "y = (x - tl.max(x, 0)) * $A + $B",
        "y = (x - tl.max(tl.abs(x), 0)) * $A + $B",
        other='-float("inf")',
    ),
    "mean_residual": Program(
        ROWS,
        "x * $A + x.mean(1, keepdim=True) * $B",
        MEAN + "y = x * $A + mean * $B",
        MEAN + "y = x * $A",
    ),
    "running_sum": Program(
        ROWS,
        "torch.cumsum(x, dim=1) * $A + $B",
        "y = tl.cumsum(x, 0) * $A + $B",
        "y = (tl.cumsum(x, 0) - x) * $A + $B",
    ),
    "linear": Program(
        LINEAR,
        "self.layer(x) * $A + $B",
        "y = (product + bias) * $A + $B",
        "y = product * $A + $B",
        layer="self.layer = nn.Linear(100, 100)",
    ),
}

STOPPED = frozenset({"crash", "cheat"})


@dataclass(frozen=True)
class Attack:
    """What a hostile candidate does, and what may be said of it.

    Attributes:
        act: statements; ``x`` is the input of ``forward``.
        allowed: statuses, of which ``correct`` is never one.
        kernel: a kernel that ``act`` launches.
        needs_input: whether it can only be done in ``forward``.
        backend: the only backend on which it means anything, or None.
    """

    act: str
    allowed: frozenset[str]
    kernel: str = ""
    needs_input: bool = False
    backend: str | None = None


# Ends all processes that the candidate may signal, and must never run outside a PID namespace.
KILL_ALL = f"""\
if os.readlink("/proc/self/ns/pid") == {str(Path("/proc/self/ns/pid").readlink())!r}:
        raise RuntimeError("the candidate shares its judge's PID namespace")
    os.kill(-1, 9)
    os.kill(os.getpid(), 9)"""

SPIN = """
@triton.jit
def spin_kernel(x_ptr):
    value = tl.load(x_ptr, volatile=True)
    while value != 12345.678:
        value = tl.load(x_ptr, volatile=True)
"""

STRAY = """
@triton.jit
def stray_kernel(x_ptr, far):
    lanes = tl.arange(0, 128)
    tl.store(x_ptr + far + lanes, lanes.to(tl.float32))
"""

# A message as the judge's own processes send them, with an answer to a request that it guesses.
FORGED = """\
header = b'{"serial": 1, "output": {"list": []}, "launches": {"dict": []}}'
    frame = b"CRT1" + len(header).to_bytes(4, "big") + bytes(8) + header
    """

ATTACKS = {
    "loops": Attack("while True:\n        pass", frozenset({"timeout"})),
    "sleeps": Attack("time.sleep(1e6)", frozenset({"timeout"})),
    # Without a GPU the bound of work may end the loop before the clock does.
    "loops_in_kernel": Attack(
        "spin_kernel[(1,)](x)", frozenset({"timeout", "unsupported"}), SPIN, needs_input=True
    ),
    "exits": Attack("os._exit(0)", frozenset({"crash"})),
    "segfaults": Attack("faulthandler._sigsegv()", frozenset({"crash"})),
    # To the parent this is what the kernel's out-of-memory killer does.
    "kills_itself": Attack("os.kill(os.getpid(), 9)", STOPPED | {"oom"}),
    "kills_all": Attack(KILL_ALL, STOPPED),
    "reads_null": Attack("ctypes.string_at(0)", STOPPED),
    "overwrites_heap": Attack(
        "ctypes.memset(id(torch) & ~4095, 255, 1 << 20)", STOPPED | {"timeout"}
    ),
    "writes_to_bad_pointer": Attack(
        "ctypes.memset(x.data_ptr() + (1 << 46), 255, 4096)", STOPPED, needs_input=True
    ),
    # A machine that is slow to give memory ends it by the clock.
    "takes_host_memory": Attack(
        'hoard = [b"x" * (2**28 + i) for i in range(1000)]', frozenset({"oom", "timeout"})
    ),
    "takes_device_memory": Attack(
        "hoard = [torch.ones(2**28, device=x.device) for _ in range(1000)]",
        frozenset({"oom"}),
        needs_input=True,
        backend="cuda",
    ),
    "stores_out_of_bounds": Attack(
        "stray_kernel[(1,)](x, 1 << 44)",
        frozenset({"crash", "runtime_error", "incorrect"}),
        STRAY,
        needs_input=True,
    ),
    "overwrites_input": Attack("x.zero_()", frozenset({"incorrect", "cheat"}), needs_input=True),
    "floods_output": Attack(
        'while True:\n        os.write(1, b"x" * 65536)', STOPPED | {"timeout", "runtime_error"}
    ),
    "floods_pipes": Attack(
        "for fd in [*range(3, 64)] * 1000:\n        try:\n"
        '            os.write(fd, b"\\x00" * 65536)\n        except OSError:\n            pass',
        STOPPED | {"timeout", "runtime_error"},
    ),
    "forges_frames": Attack(
        f"{FORGED}for fd in range(3, 64):\n        try:\n            os.write(fd, frame)\n"
        "        except OSError:\n            pass",
        STOPPED | {"timeout", "runtime_error"},
    ),
    "promises_a_large_frame": Attack(
        "for fd in range(3, 64):\n        try:\n"
        '            os.write(fd, b"CRT1" + b"\\x00\\x3f" + b"\\xff" * 10)\n'
        "        except OSError:\n            pass",
        STOPPED | {"timeout", "runtime_error", "incorrect"},
    ),
    "closes_pipes": Attack("os.closerange(0, 4096)", STOPPED | {"timeout", "runtime_error"}),
    "forks": Attack(
        "[os.fork() for _ in range(6)]\n    time.sleep(1e6)",
        STOPPED | {"timeout", "runtime_error"},
    ),
}


@dataclass(frozen=True)
class Trial:
    """A candidate, what it is (``right``, ``wrong``, an attack's name), what may be said of it."""

    candidate: Candidate
    kind: str
    allowed: frozenset[str]


def make_trials(count: int, attacked: float, backend: str) -> Iterator[Trial]:
    """Yield ``count`` different candidates, of which a share attacks the judge.

    Attacks take turns, so that each is tried about equally often; the rest is drawn with a fixed
    seed.
    """
    draw = random.Random(0)
    attacks = [name for name, attack in ATTACKS.items() if attack.backend in (None, backend)]
    hostile = set(draw.sample(range(count), round(count * attacked)))
    for number in range(count):
        if number in hostile:
            kind = attacks.pop(0)
            attacks.append(kind)
            allowed = ATTACKS[kind].allowed
        elif draw.random() < WRONG_SHARE:
            kind, allowed = "wrong", frozenset({"incorrect"})
        else:
            kind, allowed = "right", frozenset({"correct"})
        yield Trial(_write(number, kind, draw), kind, allowed)


def _write(number: int, kind: str, draw: random.Random) -> Candidate:
    problem = number // PER_PROBLEM
    name = list(PROGRAMS)[problem % len(PROGRAMS)]
    program = PROGRAMS[name]

    def constants(text: str) -> str:
        return Template(text).substitute(A=1.5 + problem / 1000, B=0.25 + problem / 1000)

    kernel, launch = program.form
    body = constants(program.wrong if kind == "wrong" else program.right)
    text = CANDIDATE.substitute(
        kernel=Template(kernel).substitute(
            number=number, body=body.replace("; ", "\n    "), other=program.other
        ),
        layer=program.layer,
        launch=launch,
        hook="called(x)" if kind in ATTACKS else "",
    )
    if kind in ATTACKS:
        attack = ATTACKS[kind]
        call = draw.choice((1, 3) if attack.needs_input else (0, 1, 3))
        text = ATTACKED.substitute(candidate=text, kernel=attack.kernel, act=attack.act, call=call)
    return Candidate(
        id=f"{number:05d}-{name}-{kind}",
        reference=REFERENCE.substitute(
            problem=problem, module=constants(program.module), layer=program.layer
        ),
        candidate=text,
    )
