"""What a program looks at, and what says nothing of where it runs."""

from __future__ import annotations

import pytest

from curate.verify.screen.surroundings import surroundings

FILE = """
import math, os, time
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl

@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    {body}
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)

class ModelNew(nn.Module):
    def __init__(self, config=None):
        super().__init__()
        self.linear, self._scale = nn.Linear(3, 4), math.sqrt(2)

    def forward(self, x):
        y = torch.empty_like(x, dtype=torch.float32, memory_format=torch.contiguous_format)
        kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
        {line}
        return y
"""


def seen(line: str = "pass", body: str = "pass", reference: str = "") -> set[str]:
    return {*surroundings(FILE.format(line=line, body=body), reference)}


@pytest.mark.parametrize(
    "line",
    [
        "assert x.is_cuda and x.stride(-1) == 1 and not x.is_complex()",
        "y = F.pad(y, (0, 1)).view(-1, *x.shape[1:]).contiguous()",
        "w, b = self.linear.weight, self.linear.bias.to(x.dtype)",
        "n = torch.cuda.get_device_properties(x.device).multi_processor_count",
        "n = {k: v for k, v in zip('ab', sorted(x.shape))}.get('a', 0) * self._scale",
        "y = y if isinstance(x, torch.Tensor) else torch.finfo(x.dtype).max",
        "with torch.cuda.device(x.device): y = torch.special.entr(y).clamp_(min=-math.inf)",
        "y = getattr(F, 'relu')(y)",
        "y = y if self._scale is None else next(iter(self.linear.parameters()))",
        "assert x.dim() == 2, '{} is no matrix'.format(x.shape)",
    ],
)
def test_what_programs_need_is_no_finding(line: str) -> None:
    assert seen(line) == set()


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("y = y * (type(x) is torch.Tensor)", "type"),
        ("n = id(x)", "id"),
        ("n = x.data_ptr() % 16", "data_ptr"),
        ("n = x.untyped_storage()", "untyped_storage"),
        ("n = x.__class__", "__class__"),
        ("n = hasattr(x, 'innards')", "hasattr"),
        ("n = x.innards", "innards"),
        ("n = kernel.device_caches", "device_caches"),
        ("n = kernel.cache if self else 0", "cache"),
        ("n = os.getpid()", "os.getpid"),
        ("n = x is self.linear", "is"),
        ("n = '{0.__class__}'.format(x)", "format"),
        ("n = x.type()", "type"),
        ("n = __name__", "__name__"),
        ("n = torch.rand(())", "rand"),
        ("n = torch.empty(()).uniform_()", "uniform_"),
        ("n = next(self.turns)", "next"),
        ("created = math.log(x.created)", "created"),
        ("n = dict(__dict__=0, n=x.__dict__)", "__dict__"),
        ("n = time.time_ns()", "time.time_ns"),
        ("n = torch.cuda.memory_allocated()", "torch.cuda.memory_allocated"),
        ("n = torch.compiler.is_compiling()", "torch.compiler.is_compiling"),
        ("n = torch.__version__", "torch.__version__"),
        ("torch.set_grad_enabled(False)", "set_grad_enabled"),
        ("torch.cuda.set_stream(torch.cuda.Stream())", "set_stream"),
        ("torch.softmax = kernel", "torch.softmax ="),
        ("n = torch._C._cuda_getDevice()", "torch._C._cuda_getDevice"),
        ("n = triton.runtime.driver.active.utils if triton.knobs.x else 0", "triton.knobs.x"),
    ],
)
def test_what_tells_where_a_program_runs_is_named(line: str, name: str) -> None:
    assert name in seen(line)


def test_a_kernel_may_look_at_its_arguments_alone() -> None:
    assert seen(body="at = tl.max_contiguous(at, 8)") == set()
    clock = seen(body="start = tl.extra.cuda.globaltimer()")
    assert clock == {"triton.language.extra.cuda.globaltimer"}


def test_what_fills_or_moves_a_module_is_its_own() -> None:
    hook = "pass\n\n    def load_state_dict(self, state):\n        pass\n\n    def rest(self, y):"
    assert seen(hook) == {"load_state_dict"}
    assert seen(hook, reference="class Model:\n    def load_state_dict(self, state): pass") == set()


def test_what_the_problem_names_a_program_may_name() -> None:
    line = "n = config.hidden if hasattr(config, 'hidden') else x"
    assert seen(line) == {"hasattr", "hidden"}
    assert seen(line, reference="def f(config):\n    " + line) == set()
