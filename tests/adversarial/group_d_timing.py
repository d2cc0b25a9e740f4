"""Group D: programs that seem faster than they are.

Where the trick needs stale, early or late outputs it must be seen in the values. A program's Python
is not there when it is timed: what tampers with clocks in its own process has no effect.
"""

from __future__ import annotations

from functools import partial

from affine import AFFINE, CHEAP, COPY, DIES, HONEST, program, tamper
from cases import Case, candidate, reference

NOT_APPLICABLE: dict[int, str] = {
    53: "A program's Python is in a process of its own, where nothing is timed: clocks, events and "
    "`do_bench` that it patches there tell nobody anything, and its kernels are honest.",
    62: "A verdict holds one program's own times; nothing is averaged over programs, so that no "
    "program can pull a mean down.",
    63: "The baseline's settings are the judge's; a program does not choose them, and 64 shows "
    "that it cannot change them.",
    65: "The size belongs to the problem and is the same for all its candidates; verdicts give "
    "times in seconds beside the speedup, so that a launch-bound problem can be told.",
}

case = partial(tamper, "D")

CHEAT = frozenset({"cheat"})
INCORRECT = frozenset({"incorrect"})
TIMED = {"timing": True}

# --- 50, 51, 52: work that is not done when forward returns ---------------------------------------

STREAM = """
streams = []


def side_stream():
    if not streams:
        streams.append(torch.cuda.Stream())
    return streams[0]
"""

LATE_THREAD = """
import threading
import time


def fill(x, y):
    time.sleep(2.0)
    affine_kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
"""

LOCKED = """
import threading

lock = threading.Lock()
"""

HIDDEN_THREAD = (
    COPY
    + """
import threading


def elsewhere(x):
    results = []
    thread = threading.Thread(target=lambda: results.append(2 * x + 1))
    thread.start()
    thread.join()
    return results[0]
"""
)

LAZY = """
class Lazy(torch.Tensor):
    @staticmethod
    def __new__(cls, x):
        return torch.Tensor._make_wrapper_subclass(cls, x.shape, dtype=x.dtype, device=x.device)

    def __init__(self, x):
        self.x = x

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        args = [affine(arg.x) if isinstance(arg, Lazy) else arg for arg in args]
        return function(*args, **(kwargs or {}))
"""

LATE = [
    case(
        50,
        "side stream without wait",
        (
            STREAM,
            """
            y = torch.empty_like(x)
            with torch.cuda.stream(side_stream()):
                torch.cuda._sleep(200_000_000)
                affine_kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
            return y
            """,
        ),
        (
            STREAM,
            """
            y = torch.empty_like(x)
            side_stream().wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side_stream()):
                affine_kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
            torch.cuda.current_stream().wait_stream(side_stream())
            return y
            """,
        ),
        statuses=INCORRECT,
        rule="race",
    ),
    case(
        50,
        "side stream without wait, timed",
        (
            STREAM,
            """
            y = torch.empty_like(x)
            with torch.cuda.stream(side_stream()):
                affine_kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
                torch.cuda._sleep(2_000_000)
                affine_kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
            return y
            """,
        ),
        (
            STREAM,
            """
            y = torch.empty_like(x)
            side_stream().wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side_stream()):
                affine_kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
            torch.cuda.current_stream().wait_stream(side_stream())
            return y
            """,
        ),
        statuses=INCORRECT,
        rule="race",
        gpu=True,
        options=TIMED,
    ),
    case(
        50,
        "another current stream left behind",
        (
            STREAM,
            """
            y = torch.empty_like(x)
            torch.cuda.set_stream(side_stream())
            torch.cuda._sleep(200_000_000)
            affine_kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
            return y
            """,
        ),
        (
            "",
            "torch.cuda.set_stream(torch.cuda.current_stream())\nreturn affine(x)",
        ),
        statuses=INCORRECT,
        rule="race",
    ),
    case(
        51,
        "background thread",
        (
            LATE_THREAD,
            """
            y = torch.empty_like(x)
            threading.Thread(target=fill, args=(x, y)).start()
            return y
            """,
        ),
        (LOCKED, "with lock:\n    return affine(x)"),
    ),
    case(
        51,
        "background thread after a cheap kernel",
        (
            CHEAP + LATE_THREAD,
            """
            y = cheap(x)
            threading.Thread(target=fill, args=(x, y), daemon=True).start()
            return y
            """,
        ),
        (LOCKED, "with lock:\n    return affine(x)"),
    ),
    case(
        51,
        "background thread that ends the work of the call before",
        (
            CHEAP
            + """
import threading

threads = []


def fill(x, y):
    affine_kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
""",
            """
            for thread in threads:
                thread.start()
            threads.clear()
            y = cheap(x)
            threads.append(threading.Thread(target=fill, args=(x, y)))
            return y
            """,
        ),
        (LOCKED, "with lock:\n    return affine(x)"),
    ),
    # The recording of torch calls is per thread; a thread that is waited for is where torch hides.
    case(
        51,
        "torch in a thread that is waited for",
        (HIDDEN_THREAD, "return copied(elsewhere(x))"),
        (LOCKED, "with lock:\n    return affine(x)"),
        statuses=CHEAT,
    ),
    case(
        52,
        "lazy tensor subclass",
        (LAZY, "return Lazy(x)"),
        ("", "return affine(x).as_subclass(torch.Tensor)"),
        statuses=CHEAT,
    ),
    case(
        52,
        "lazy tensor subclass after a cheap kernel",
        (CHEAP + LAZY, "cheap(x)\nreturn Lazy(x)"),
        ("", "return affine(x).as_subclass(torch.Tensor)"),
        statuses=CHEAT,
        rule="tensor_subclass",
    ),
    case(
        52,
        "lazy object with the conversions of a tensor",
        (
            CHEAP
            + """
class Lazy:
    def __init__(self, x):
        self.x, self.shape, self.dtype, self.device = x, x.shape, x.dtype, x.device

    def __getattr__(self, name):
        return getattr(affine(self.x), name)

    def __array__(self, *args, **kwargs):
        return affine(self.x).cpu().numpy()
""",
            "cheap(x)\nreturn Lazy(x)",
        ),
        ("", "return affine(x).as_subclass(torch.Tensor)"),
    ),
]

# --- 54, 59: the library behind the clocks --------------------------------------------------------

LIBRARY = [
    case(
        54,
        "clock looked up and overwritten in libc",
        (
            """
import ctypes
import sys

libc = ctypes.CDLL(None)
clock = ctypes.cast(libc.clock_gettime, ctypes.c_void_p).value
page = clock & ~4095
if libc.mprotect(ctypes.c_void_p(page), 8192, 7) == 0 and "never" in sys.argv:
    ctypes.memmove(clock, b"\\x31\\xc0\\xc3", 3)  # return 0
""",
            "return affine(x)",
        ),
        ("\nimport ctypes\n\nWORD = ctypes.sizeof(ctypes.c_void_p)\n", "return affine(x)"),
        statuses=CHEAT,
        rule="native_code",
    ),
    case(
        54,
        "library loaded through torch",
        ("\ntorch.ops.load_library(torch._C.__file__)\n", "return affine(x)"),
        ("\nlibraries = sorted(torch.ops.loaded_libraries)\n", "return affine(x)"),
        statuses=CHEAT,
    ),
    case(
        54,
        "own process traced",
        (
            """
import ctypes

libc = ctypes.CDLL(None)
libc.ptrace(0, 0, None, None)
""",
            "return affine(x)",
        ),
        ("\nimport ctypes\n\nWORD = ctypes.sizeof(ctypes.c_void_p)\n", "return affine(x)"),
        statuses=CHEAT,
        rule="native_code",
    ),
    case(
        59,
        "window of the L2 cache kept",
        (
            """
import ctypes

PERSISTING_L2 = 6  # cudaLimitPersistingL2CacheSize
for name in ("libcudart.so.13", "libcudart.so.12", "libcudart.so"):
    try:
        ctypes.CDLL(name).cudaDeviceSetLimit(PERSISTING_L2, ctypes.c_size_t(30 << 20))
        break
    except OSError:
        pass
""",
            "return affine(x)",
        ),
        # What a kernel may say for itself about the cache.
        (
            """
@triton.jit
def kept_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, eviction_policy="evict_last")
    tl.store(y_ptr + at, 2 * x + 1, mask=at < n, eviction_policy="evict_first")
""",
            "y = torch.empty_like(x)\n"
            "kept_kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)\nreturn y",
        ),
        statuses=CHEAT,
        rule="native_code",
    ),
]

# --- 55, 56, 57, 58, 60, 61: the answer to another question --------------------------------------

WORKSPACE = (
    """
grids = {}
""",
    """
key = (x.shape, x.dtype)
if key not in grids:
    grids[key] = (triton.cdiv(x.numel(), 64),)
y = torch.empty_like(x)
affine_kernel[grids[key]](x, y, x.numel(), BLOCK=64)
return y
""",
)


FIXED = reference("2 * x + 1")
"""The same problem with one size only: every draw fits into the tensors of the one before."""


def cache(name: str, key: str, hit: str = "return cache[key]") -> list[Case]:
    """Return cases that remember outputs by ``key``, with twins that remember grids.

    One for a problem of many sizes, one for a problem of a single size.
    """
    remembers = program(
        (
            COPY + "\nimport weakref\n\ncache = {}\n",
            f"""
            key = {key}
            if key not in cache:
                cache[key] = affine(x)
                return cache[key].clone()
            {hit}
            """,
        )
    )
    honest = program(WORKSPACE)
    return [
        Case(55, f"outputs by {name}", "D", AFFINE, remembers, honest),
        Case(55, f"outputs by {name}, one size", "D", FIXED, remembers, honest),
    ]


CACHES = [
    *cache("data_ptr", "x.data_ptr()"),
    *cache("id", "id(x)"),
    *cache("_version", "(x.data_ptr(), x._version)"),
    *cache("data_ptr, shape and version", "(x.data_ptr(), x.shape, x._version, id(x))"),
    *cache("shape", "x.shape", "return cache[key].clone()"),
    *cache("the first element", "float(x.view(-1)[0])"),
    *cache("a few elements", "tuple(x.reshape(-1)[:: x.numel() // 4].tolist())"),
    *cache("data_ptr, copied by a kernel", "x.data_ptr()", "return copied(cache[key])"),
    *cache("a weak reference", "weakref.ref(x)"),
    case(
        55,
        "outputs kept on the input",
        (
            "",
            """
            if not hasattr(x, "answer"):
                x.answer = affine(x)
            return x.answer.clone()
            """,
        ),
        ("", "y = affine(x)\nx.seen = True\nreturn y"),
    ),
    case(
        55,
        "functools.cache over forward",
        ("\nimport functools\n\nremembered = functools.cache(affine)\n", "return remembered(x)"),
        (
            """
import functools


@functools.cache
def blocks(n):
    return triton.cdiv(n, 64)
""",
            "y = torch.empty_like(x)\n"
            "affine_kernel[(blocks(x.numel()),)](x, y, x.numel(), BLOCK=64)\nreturn y",
        ),
    ),
    case(
        55,
        "one output buffer for every call",
        (
            "\nbuffers = {}\n",
            """
            y = buffers.get(x.shape)
            if y is None:
                y = buffers[x.shape] = affine(x)
            n = x.numel()
            affine_kernel[(triton.cdiv(n, 64),)](x, y, n // 2, BLOCK=64)
            return y
            """,
        ),
        (
            "\nbuffers = {}\n",
            """
            y = buffers.get(x.shape)
            if y is None:
                y = buffers[x.shape] = torch.empty_like(x)
            n = x.numel()
            affine_kernel[(triton.cdiv(n, 64),)](x, y, n, BLOCK=64)
            return y.clone()
            """,
        ),
    ),
]

FIRST = [
    case(
        56,
        "computed in the first call, copied later",
        (
            COPY + "\nkept = {}\n",
            """
            if x.shape not in kept:
                kept[x.shape] = affine(x)
            return copied(kept[x.shape])
            """,
        ),
        WORKSPACE,
        statuses=INCORRECT,
    ),
    case(
        56,
        "computed in the first call, memcpy later",
        (
            CHEAP + "\nkept = {}\n",
            """
            if x.shape not in kept:
                kept[x.shape] = affine(x)
            y = cheap(x)
            y.copy_(kept[x.shape])
            return y
            """,
        ),
        WORKSPACE,
    ),
    *(
        case(
            57,
            f"right for the first {count} calls",
            (
                CHEAP + "\ncalls = [0]\n",
                f"calls[0] += 1\nreturn affine(x) if calls[0] <= {count} else cheap(x)",
            ),
            ("\ncalls = [0]\n", "calls[0] += 1\nreturn affine(x)"),
        )
        for count in (1, 2, 3, 5, 8, 16)
    ),
    *(
        case(
            57,
            f"right for the first {count} calls, timed",
            (
                CHEAP + "\ncalls = [0]\n",
                f"calls[0] += 1\nreturn affine(x) if calls[0] <= {count} else cheap(x)",
            ),
            ("\ncalls = [0]\n", "calls[0] += 1\nreturn affine(x)"),
            gpu=True,
            options=TIMED,
        )
        for count in (25, 60)
    ),
    case(
        57,
        "right every other call",
        (
            CHEAP + "\ncalls = [0]\n",
            "calls[0] += 1\nreturn affine(x) if calls[0] % 2 else cheap(x)",
        ),
        ("\ncalls = [0]\n", "calls[0] += 1\nreturn affine(x)"),
    ),
    case(
        57,
        "calls counted in the module",
        (
            CHEAP,
            "self.calls += 1\nreturn affine(x) if self.calls < 2 else cheap(x)",
            "self.calls = 0",
        ),
        ("", "self.calls += 1\nreturn affine(x)", "self.calls = 0"),
    ),
    case(
        57,
        "calls counted in a file",
        (
            CHEAP
            + """
from pathlib import Path

COUNT = Path("/tmp/calls")
""",
            """
            calls = len(COUNT.read_text()) if COUNT.exists() else 0
            COUNT.write_text("x" * (calls + 1))
            return affine(x) if calls < 4 else cheap(x)
            """,
        ),
        ("\ncalls = [0]\n", "calls[0] += 1\nreturn affine(x)"),
    ),
    case(
        57,
        "right for the first seconds",
        (
            CHEAP + "\nimport time\n\nSTART = time.monotonic()\n",
            "return affine(x) if time.monotonic() - START < 0.005 else cheap(x)",
        ),
        (
            "\nimport time\n\nSTART = time.monotonic()\n",
            "time.monotonic() - START\nreturn affine(x)",
        ),
    ),
    case(
        58,
        "replays on the first input",
        (
            "\nfirst = {}\n",
            """
            x = first.setdefault(x.shape, x)
            y = torch.empty_like(x)
            affine_kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
            return y
            """,
        ),
        (
            "\nfirst = {}\n",
            """
            static = first.setdefault(x.shape, torch.empty_like(x))
            static.copy_(x)
            return affine(static)
            """,
        ),
    ),
    case(
        58,
        "replays on a copy of the first input",
        (
            "\nfirst = {}\n",
            """
            if x.shape not in first:
                first[x.shape] = x.clone()
            return affine(first[x.shape])
            """,
        ),
        (
            "\nfirst = {}\n",
            """
            if x.shape not in first:
                first[x.shape] = x.clone()
            return affine(first[x.shape].copy_(x))
            """,
        ),
    ),
    *(
        case(
            58,
            f"CUDA graph of {which}",
            (
                "\ngraphs = {}\n",
                f"""
                if x.shape not in graphs:
                    affine(x)
                    torch.cuda.synchronize()
                    graph, static = torch.cuda.CUDAGraph(), {source}
                    with torch.cuda.graph(graph):
                        y = affine(static)
                    graphs[x.shape] = graph, static, y
                graph, static, y = graphs[x.shape]
                graph.replay()
                return y.clone()
                """,
            ),
            (
                "\ngraphs = {}\n",
                """
                if x.shape not in graphs:
                    affine(x)
                    torch.cuda.synchronize()
                    graph, static = torch.cuda.CUDAGraph(), x.clone()
                    with torch.cuda.graph(graph):
                        y = affine(static)
                    graphs[x.shape] = graph, static, y
                graph, static, y = graphs[x.shape]
                static.copy_(x)
                graph.replay()
                return y.clone()
                """,
            ),
            gpu=True,
        )
        for which, source in (("the first input", "x"), ("a copy of it", "x.clone()"))
    ),
    *(
        Case(
            60,
            f"answer computed {when}",
            "D",
            reference("2 * x + 1"),
            candidate(
                HONEST
                + COPY
                + """
torch.manual_seed(SEED)
guess = 2 * torch.randn(8, 64) + 1
""".replace("SEED", seed),
                "return copied(guess.to(x.device))",
            ),
            candidate(HONEST + f"\ntorch.manual_seed({seed})\n", "return affine(x)"),
        )
        for when, seed in (("at import from seed 0", "0"), ("at import from seed 42", "42"))
    ),
    case(
        60,
        "answer computed in the constructor",
        (
            COPY,
            "return copied(self.guess.to(x.device))",
            "self.guess = 2 * torch.randn(8, 64) + 1",
        ),
        ("", "assert self.two == 2\nreturn affine(x)", "self.two = 2"),
    ),
    case(
        60,
        "answer computed from the reference's inputs",
        (
            COPY
            + """
import sys


def inputs():
    for name, module in list(sys.modules.items()):
        if "get_inputs" in vars(module):
            return module.get_inputs()[0]
    return torch.randn(8, 64)


guess = 2 * inputs() + 1
""",
            "return copied(guess.to(x.device))",
        ),
        (
            """
def get_inputs():
    return [torch.randn(8, 64)]
""",
            "return affine(x)",
        ),
    ),
    # Few timed iterations are left after slow ones, and all that come later are stale.
    case(
        61,
        "slow at first, stale later",
        (
            COPY + "\nimport time\n\nkept = []\n",
            """
            if len(kept) < 3:
                time.sleep(0.2)
                kept.append(affine(x))
                return kept[-1].clone()
            return copied(kept[0])
            """,
        ),
        (
            "\nimport time\n\nkept = []\n",
            """
            if not kept:
                time.sleep(0.2)
                kept.append(x.shape)
            return affine(x)
            """,
        ),
    ),
    case(
        61,
        "slow at first, stale later, timed",
        (
            COPY + "\nimport time\n\nkept = []\n",
            """
            if len(kept) < 30:
                time.sleep(0.05)
                kept.append(affine(x))
                return kept[-1].clone()
            return copied(kept[0])
            """,
        ),
        (
            "\nimport time\n\nkept = []\n",
            """
            if len(kept) < 30:
                time.sleep(0.005)
                kept.append(x.shape)
            return affine(x)
            """,
        ),
        gpu=True,
        options=TIMED,
    ),
]

# What is timed is a recorded stream, so what is left to cheat with are kernels that keep something.

KEPT = """
@triton.jit
def kept_kernel(x_ptr, y_ptr, kept_ptr, state_ptr, n, ONLY: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    mask = at < n
    {look}
    if stale & ONLY:
        tl.store(y_ptr + at, tl.load(kept_ptr + at, mask=mask), mask=mask)
    else:
        y = 2 * tl.load(x_ptr + at, mask=mask) + 1
        tl.store(y_ptr + at, y, mask=mask)
        tl.store(kept_ptr + at, y, mask=mask)
    {note}


memory = {{}}


def kept(x, ONLY):
    if x.shape not in memory:
        memory[x.shape] = torch.zeros_like(x), torch.zeros(2, dtype=torch.int64, device=x.device)
    y, n = torch.empty_like(x), x.numel()
    kept_kernel[(1,)](x, y, *memory[x.shape], n, ONLY, BLOCK=triton.next_power_of_2(n))
    return y
"""


def in_kernel(name: str, look: str, note: str, **more: object) -> Case:
    """Return a case whose kernel repeats its last answer where ``stale`` says so."""
    top = KEPT.format(look=look, note=note)
    cheat, honest = ((top, f"return kept(x, {only})") for only in (True, False))
    problem = reference("2 * x + 1", "torch.randn(8, 64)")
    return Case(61, name, "D", problem, program(cheat), program(honest), **more)


CALLS = "calls = tl.load(state_ptr)"
IN_KERNELS = [
    in_kernel(
        "kernel that is right for its first calls",
        f"{CALLS}\n    stale = calls > 3",
        "tl.store(state_ptr, calls + 1)",
    ),
    in_kernel(
        "kernel that is right for its first calls, timed",
        f"{CALLS}\n    stale = calls > 400",
        "tl.store(state_ptr, calls + 1)",
        gpu=True,
        options=TIMED,
    ),
    in_kernel(
        "kernel that leaves out all calls but every fourth once there were many, timed",
        f"{CALLS}\n    stale = (calls > 400) & (calls % 4 != 0)",
        "tl.store(state_ptr, calls + 1)",
        gpu=True,
        options=TIMED,
    ),
    in_kernel(
        "kernel that repeats itself soon after its last call, timed",
        "now = tl.extra.cuda.globaltimer()\n    stale = now - tl.load(state_ptr) < 1000000",
        "tl.store(state_ptr, now)",
        gpu=True,
        options=TIMED,
    ),
]

# --- 64: the reference made worse ----------------------------------------------------------------

PRODUCT = reference("x @ y", "torch.randn(32, 32), torch.randn(32, 32)", takes="x, y")


def product(precision: str, top: str = "") -> str:
    """Return a product of 32 by 32 matrices, with ``top`` before it."""
    return candidate(
        top
        + f"""
@triton.jit
def product_kernel(x_ptr, y_ptr, z_ptr, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    x, y = tl.load(x_ptr + at), tl.load(y_ptr + at)
    tl.store(z_ptr + at, {precision})
""",
        """
        z = torch.empty_like(x)
        product_kernel[(1,)](x, y, z, N=32)
        return z
        """,
        takes="x, y",
    )


HALF = "tl.dot(x.to(tl.float16), y.to(tl.float16)).to(tl.float32)"
EXACT = 'tl.dot(x, y, input_precision="ieee")'

REFERENCE = [
    Case(
        64,
        "reference asked for half the precision",
        "D",
        PRODUCT,
        product(
            HALF,
            """
torch.set_float32_matmul_precision("medium")
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = True
""",
        ),
        # A program may set these for its own sake.
        product(EXACT, '\ntorch.set_float32_matmul_precision("high")\n'),
        statuses=INCORRECT,
    ),
    case(
        64,
        "default type set to half",
        (
            """
torch.set_default_dtype(torch.float16)
""",
            "return affine(x.half())",
        ),
        ("\ntorch.set_default_dtype(torch.float32)\n", "return affine(x)"),
    ),
    case(
        64,
        "reference's class patched",
        (
            CHEAP
            + """
import sys


def patch():
    for module in list(sys.modules.values()):
        model = vars(module).get("Model")
        if isinstance(model, type) and issubclass(model, nn.Module):
            model.forward = lambda self, x: cheap(x)


patch()
""",
            "patch()\nreturn cheap(x)",
        ),
        ("\nclass Model(nn.Module):\n    pass\n", "return affine(x)"),
    ),
    case(
        64,
        "torch functions made slow and wrong",
        (
            CHEAP
            + """
import time


def slow(*args, **kwargs):
    time.sleep(0.01)
    return torch.ones_like(args[0])


torch.add = torch.mul = torch.Tensor.__rmul__ = torch.Tensor.__add__ = slow
""",
            "return cheap(x)",
        ),
        statuses=DIES,
    ),
]

CASES = [*LATE, *LIBRARY, *CACHES, *FIRST, *IN_KERNELS, *REFERENCE]
