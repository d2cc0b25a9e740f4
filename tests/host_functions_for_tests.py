"""Wrappers, each with a trap of its own. Written for the tests."""

HEAD = """
import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    y = tl.load(y_ptr + at, mask=at < n)
    tl.store(out_ptr + at, x + y, mask=at < n)


@triton.jit
def norm_kernel(
    x_ptr, w_ptr, b_ptr, y_ptr, mean_ptr, cols, eps, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < cols
    x = tl.load(x_ptr + row * cols + at, mask=mask, other=0.0)
    mean = tl.sum(x, 0) / cols
    centered = tl.where(mask, x - mean, 0.0)
    y = centered * tl.rsqrt(tl.sum(centered * centered, 0) / cols + eps)
    y *= tl.load(w_ptr + at, mask=mask)
    if HAS_BIAS:
        y += tl.load(b_ptr + at, mask=mask)
    tl.store(y_ptr + row * cols + at, y, mask=mask)
    tl.store(mean_ptr + row, mean)


@triton.jit
def sum_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr, tl.sum(tl.load(x_ptr + at, mask=at < n, other=0.0), 0))
"""

ADD = """
def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    assert x.is_cuda and y.device.type == "cuda"
    assert x.shape == y.shape and x.is_contiguous()
    out = torch.empty_like(x, device=x.device)
    with torch.cuda.device(x.device):
        grid = lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)
        add_kernel[grid](x, y, out, x.numel(), BLOCK=64)
    return out
"""

IN_PLACE = """
def add_(x, y):
    add_kernel[(triton.cdiv(x.numel(), 64),)](x, y, x, x.numel(), BLOCK=64)
"""

NORM = """
def layer_norm(x, weight, bias=None, eps=1e-5):
    rows, cols = x.shape
    assert cols == weight.shape[0], "weight has another size"
    y, mean = torch.empty_like(x), x.new_empty(rows)
    norm_kernel[(rows,)](
        x, weight, bias, y, mean, cols, eps, bias is not None, triton.next_power_of_2(cols)
    )
    return y, mean
"""

DIM = """
def add_along(x, y, dim):
    if dim != -1:
        raise ValueError("only the last dimension")
    B, T, D = x.shape
    if D % 128 != 0:
        raise ValueError(f"D must be divisible by 128, not {D}")
    out = torch.empty(B, T, D, dtype=x.dtype, device="cuda")
    add_kernel[(triton.cdiv(x.numel(), 64),)](x, y.expand(B, T, D).contiguous(), out, x.numel(), 64)
    return out
"""

HALF = """
def add_half(x, y):
    assert x.dtype in (torch.float16, torch.bfloat16), "x must be half"
    assert y.dtype == x.dtype
    out = torch.empty_like(x)
    blocks = torch.cuda.get_device_properties(x.device).multi_processor_count
    n = x.numel()
    add_kernel[(triton.cdiv(n, triton.cdiv(n, blocks)),)](
        x, y, out, n, BLOCK=triton.next_power_of_2(triton.cdiv(n, blocks))
    )
    return out
"""

AUTOTUNED = """
tuned = triton.autotune(
    [triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 64})], key=["n"]
)(add_kernel)


def add_tuned(x, y):
    out = torch.empty_like(x)
    tuned[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, out, x.numel())
    return out
"""

VARIADIC = """
def add_all(*tensors, **options):
    if len(tensors) != 2:
        raise ValueError("add_all takes two tensors")
    x, y = tensors
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 64),)](x, y, out, x.numel(), BLOCK=64)
    return out
"""

ATOMIC = """
def total(x):
    out = torch.zeros(1, device=x.device)
    sum_kernel[(triton.cdiv(x.numel(), 16),)](x, out, x.numel(), BLOCK=16)
    return out
"""

DRAWN = """
def add_noise(x):
    out = torch.empty_like(x)
    noise = torch.randn_like(x)
    add_kernel[(triton.cdiv(x.numel(), 64),)](x, noise, out, x.numel(), BLOCK=64)
    return out
"""

NO_LAUNCH = """
def no_launch(x, y):
    return x + y
"""

ENDLESS = """
def endless(x, y):
    while True:
        pass
"""

ENDLESS_KERNEL = """
@triton.jit
def wait_kernel(x_ptr):
    while tl.load(x_ptr) == tl.load(x_ptr):
        tl.store(x_ptr + 1 + tl.arange(0, 512), 1.0)


def wait(x):
    wait_kernel[(1,)](x)
"""

HUGE = """
def huge(x, y):
    out = torch.empty(x.numel(), 2**34, device=x.device)
    add_kernel[(1,)](x, y, out, 64, BLOCK=64)
    return out
"""

BEYOND = """
def beyond(x, y):
    out = torch.empty_like(x)
    add_kernel[(1,)](x, y, out, x.numel() + 1, BLOCK=triton.next_power_of_2(x.numel() + 1))
    return out
"""

RACE = """
@triton.jit
def last_kernel(out_ptr):
    tl.store(out_ptr, tl.program_id(0))


def last(x):
    out = torch.empty(1, dtype=torch.int32, device="cuda")
    last_kernel[(x.numel(),)](out)
    return out
"""

CACHED = """
ones = []


def add_one(x):
    if not ones:
        ones.append(torch.ones(4096, device="cuda"))
    assert x.numel() == 16
    out = torch.empty_like(x)
    add_kernel[(1,)](x, ones[0], out, 16, BLOCK=16)
    return out
"""

CAUGHT = """
def caught(x):
    if x.numel() > 64:
        torch.tensor([3], device=x.device)[x.long() + 4]
    out = torch.empty_like(x)
    add_kernel[(1,)](x, x, out, x.numel(), BLOCK=64)
    return out
"""

READ = """
def read(x):
    assert x.numel() < 4096
    add_kernel[(int(x.numel() * torch.ones(1, device=x.device).item()),)](x, x, x, 0, BLOCK=64)
    return x.sum().cpu(), x.max().item()
"""

OPERATOR = """
@torch.library.custom_op("curate_tests::add_op", mutates_args=())
def operator(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 64),)](x, y, out, x.numel(), BLOCK=64)
    return out
"""

SWALLOWED = """
def swallowed(x):
    try:
        add_kernel[(1,)](x, x, x, x.numel() + 1, BLOCK=triton.next_power_of_2(x.numel() + 1))
    except:
        pass
    return x
"""

REFUSED = """
@triton.jit
def odd_kernel(x_ptr):
    tl.store(x_ptr + tl.arange(0, 3), 1.0)


def odd(x):
    odd_kernel[(1,)](x)
"""

ASSEMBLY = """
@triton.jit
def asm_kernel(x_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    y = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], tl.float32, True, 1)
    tl.store(x_ptr + at, y)


def move(x):
    asm_kernel[(1,)](x, BLOCK=16)
"""

CONFIG = """
def configured(config, x):
    out = torch.empty_like(x)
    add_kernel[(1,)](x, config.other, out, x.numel(), BLOCK=config.block)
"""

BROKEN = "import no_such_package\n\ndef f(x):\n    pass\n"
