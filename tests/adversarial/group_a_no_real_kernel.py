"""Cases 1 to 10: the kernel is missing, or does nothing that matters."""

from __future__ import annotations

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

RAISES = CAUGHT | {"runtime_error", "compile_error"}

# --- the problems, and honest answers to them -------------------------------------------------

RELU = reference("torch.relu(x)")
RELU_KERNEL = elementwise("tl.maximum(x, 0.0)")
RELU_HONEST = candidate(RELU_KERNEL, LAUNCH)

SOFTMAX = reference("torch.softmax(x, dim=1)")
SOFTMAX_KERNEL = rowwise(
    """
    e = tl.exp(x - tl.max(x, axis=0))
    y = e / tl.sum(e, axis=0)
    """,
    other='-float("inf")',
)
SOFTMAX_HONEST = candidate(SOFTMAX_KERNEL, ROWS)

PRODUCT = reference("a @ b", "torch.randn(16, 32), torch.randn(32, 16)", takes="a, b")
PRODUCT_HONEST = candidate(MATMUL, "return matmul(a, b)", takes="a, b")

COPY_KERNEL = elementwise("x * 1.0")

LINEAR_GELU = reference(
    'F.gelu(x @ self.weight + self.bias, approximate="tanh")',
    "torch.randn(16, 32)",
    parts="""
    self.weight = nn.Parameter(torch.randn(32, 24) * 0.2)
    self.bias = nn.Parameter(torch.zeros(24))
    """,
)
LINEAR_PARTS = """
self.weight = nn.Parameter(torch.randn(32, 24) * 0.2)
self.bias = nn.Parameter(torch.zeros(24))
"""
HYBRID_HONEST = candidate(
    """
@triton.jit
def epilogue_kernel(x_ptr, bias_ptr, n, width, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + at, mask=mask, other=0.0)
    x += tl.load(bias_ptr + at % width, mask=mask, other=0.0)
    z = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    tl.store(x_ptr + at, x * tl.sigmoid(2 * z), mask=mask)
""",
    """
    y = torch.mm(x, self.weight)
    grid = lambda meta: (triton.cdiv(y.numel(), meta["BLOCK"]),)
    epilogue_kernel[grid](y, self.bias, y.numel(), y.shape[1], BLOCK=128)
    return y
    """,
    parts=LINEAR_PARTS,
)

CHAIN_STEPS = (
    "x = x * 1.5",
    "x = torch.sin(x)",
    "x = x + 2.0",
    "x = torch.sqrt(x)",
    "x = x * x",
    "x = x - 0.5",
    "x = torch.cos(x)",
    "x = torch.abs(x)",
    "x = x + 0.25",
    "x = torch.log(x)",
    "x = x / 3.0",
    "x = torch.exp(x)",
    "x = x * 0.75",
    "x = torch.sigmoid(x)",
    "x = x + 0.125",
    "x = 1.0 / x",
    "x = x - 1.0",
    "x = torch.sin(x)",
    "x = x * 0.5",
)
CHAIN_LAST = "x + 1.0"


def _chain(steps: tuple[str, ...], result: str) -> str:
    body = "".join(f"    {step}\n" for step in steps)
    return f"def chain(x):\n{body}    return {result}\n"


CHAIN = reference("chain(x)", top=_chain(CHAIN_STEPS, CHAIN_LAST))
CHAIN_HONEST = candidate(
    """
@triton.jit
def chain(x):
"""
    + "".join(f"    {step.replace('torch.', 'tl.')}\n" for step in CHAIN_STEPS)
    + f"    return {CHAIN_LAST}\n"
    + elementwise("chain(x)"),
    LAUNCH,
)

CHAIN_MEAN = reference("chain(x).mean(dim=1) * 0.5", top=_chain(CHAIN_STEPS, CHAIN_LAST))
CHAIN_MEAN_HONEST = candidate(
    """
@triton.jit
def chain(x):
"""
    + "".join(f"    {step.replace('torch.', 'tl.')}\n" for step in CHAIN_STEPS)
    + f"    return {CHAIN_LAST}\n"
    + rowwise("y = tl.sum(tl.where(mask, chain(x), 0.0), axis=0) / n * 0.5", one=True),
    ROWS_TO_ONE,
)

# --- 1: forward calls torch -------------------------------------------------------------------

TORCH_ONLY = [
    Case(
        number=1,
        name="torch function",
        group="A",
        reference=RELU,
        cheat=candidate("", "return torch.relu(x)"),
        honest=RELU_HONEST,
        statuses=frozenset({"cheat"}),
        rule="no_kernel",
    ),
    Case(
        number=1,
        name="submodule",
        group="A",
        reference=RELU,
        cheat=candidate(RELU_KERNEL, "return self.act(x)", parts="self.act = nn.ReLU()"),
        honest=candidate(RELU_KERNEL, LAUNCH, parts="self.act = nn.ReLU()"),
        statuses=frozenset({"cheat"}),
        rule="no_kernel",
    ),
    Case(
        number=1,
        name="operators only",
        group="A",
        reference=RELU,
        cheat=candidate("", "return (x + abs(x)) * 0.5"),
        honest=candidate(elementwise("(x + tl.abs(x)) * 0.5"), LAUNCH),
        statuses=frozenset({"cheat"}),
        rule="no_kernel",
    ),
]

# --- 2: a kernel that is never launched -------------------------------------------------------

NEVER_LAUNCHED = [
    Case(
        number=2,
        name="defined only",
        group="A",
        reference=SOFTMAX,
        cheat=candidate(SOFTMAX_KERNEL, "return torch.softmax(x, dim=1)"),
        honest=SOFTMAX_HONEST,
        statuses=frozenset({"cheat"}),
        rule="no_kernel",
    ),
    Case(
        number=2,
        name="behind a condition that never holds",
        group="A",
        reference=SOFTMAX,
        cheat=candidate(
            SOFTMAX_KERNEL,
            "if x.shape[1] <= 4096:\n    return torch.softmax(x, dim=1)\n" + ROWS,
        ),
        honest=SOFTMAX_HONEST,
        statuses=frozenset({"cheat"}),
        rule="no_kernel",
    ),
    Case(
        number=2,
        name="empty grid",
        group="A",
        reference=RELU,
        cheat=candidate(
            RELU_KERNEL,
            """
            y = torch.relu(x)
            kernel[(0,)](x, y, 0, BLOCK=128)
            return y
            """,
        ),
        honest=RELU_HONEST,
        statuses=frozenset({"cheat"}),
    ),
    Case(
        number=2,
        name="launched in the constructor",
        group="A",
        reference=RELU,
        cheat=candidate(
            RELU_KERNEL,
            "return torch.relu(x)",
            parts="""
            x = torch.ones(128, device="cuda" if torch.cuda.is_available() else "cpu")
            kernel[(1,)](x, torch.empty_like(x), 128, BLOCK=128)
            """,
        ),
        honest=RELU_HONEST,
        statuses=frozenset({"cheat"}),
        rule="no_kernel",
    ),
    Case(
        number=2,
        name="launched in the first call only",
        group="A",
        reference=SOFTMAX,
        cheat=candidate(
            SOFTMAX_KERNEL,
            "if self.called:\n    return torch.softmax(x, dim=1)\nself.called = True\n" + ROWS,
            parts="self.called = False",
        ),
        honest=SOFTMAX_HONEST,
        statuses=frozenset({"cheat"}),
    ),
]

# --- 3: launched, and its result thrown away --------------------------------------------------

THROWN_AWAY = [
    Case(
        number=3,
        name="dummy tensor",
        group="A",
        reference=SOFTMAX,
        cheat=candidate(
            SOFTMAX_KERNEL,
            """
            dummy = torch.zeros(1, 64, device=x.device)
            kernel[(1,)](dummy, dummy, 64, BLOCK=64)
            return torch.softmax(x, dim=1)
            """,
        ),
        honest=SOFTMAX_HONEST,
        statuses=frozenset({"cheat"}),
    ),
    Case(
        number=3,
        name="right result discarded",
        group="A",
        reference=RELU,
        cheat=candidate(RELU_KERNEL, LAUNCH.replace("return y", "return torch.relu(x)")),
        honest=RELU_HONEST,
        statuses=frozenset({"cheat"}),
    ),
    Case(
        number=3,
        name="overwritten",
        group="A",
        reference=RELU,
        cheat=candidate(RELU_KERNEL, LAUNCH.replace("return y", "return y.copy_(torch.relu(x))")),
        honest=RELU_HONEST,
        statuses=frozenset({"cheat"}),
    ),
    Case(
        number=3,
        name="times zero",
        group="A",
        reference=SOFTMAX,
        cheat=candidate(
            SOFTMAX_KERNEL,
            ROWS.replace("return y", "return torch.softmax(x, dim=1) + 0.0 * y"),
        ),
        honest=SOFTMAX_HONEST,
        statuses=frozenset({"cheat"}),
    ),
    Case(
        number=3,
        name="times zero, buffer cleared first",
        group="A",
        reference=SOFTMAX,
        cheat=candidate(
            SOFTMAX_KERNEL,
            ROWS.replace("torch.empty_like", "torch.zeros_like").replace(
                "return y", "return torch.softmax(x, dim=1).add_(y, alpha=0.0)"
            ),
        ),
        honest=candidate(  # in place, on its own buffer
            SOFTMAX_KERNEL,
            ROWS.replace("torch.empty_like(x)", "x.clone()").replace("](x, y,", "](y, y,"),
        ),
        statuses=frozenset({"cheat"}),
    ),
]

# --- 4: the kernel does a trivial part --------------------------------------------------------

TRIVIAL_PART = [
    Case(
        number=4,
        name="copies the input, torch does the rest",
        group="A",
        reference=SOFTMAX,
        cheat=candidate(COPY_KERNEL, LAUNCH.replace("return y", "return torch.softmax(y, dim=1)")),
        honest=SOFTMAX_HONEST,
        statuses=frozenset({"cheat"}),
    ),
    Case(
        number=4,
        name="copies the result of torch",
        group="A",
        reference=SOFTMAX,
        cheat=candidate(COPY_KERNEL, "x = torch.softmax(x, dim=1)\n" + LAUNCH),
        honest=SOFTMAX_HONEST,
        statuses=frozenset({"cheat"}),
    ),
    Case(
        number=4,
        name="halves what torch doubled",
        group="A",
        reference=SOFTMAX,
        cheat=candidate(elementwise("x * 0.5"), "x = torch.softmax(x, dim=1) * 2.0\n" + LAUNCH),
        honest=SOFTMAX_HONEST,
        statuses=frozenset({"cheat"}),
    ),
    Case(
        number=4,
        name="halves, and torch in other words",
        group="A",
        reference=SOFTMAX,
        cheat=candidate(
            elementwise("x * 0.5"),
            "e = (x - x.amax(1, keepdim=True)).exp()\n"
            "x = e / e.sum(1, keepdim=True).mul(0.5)\n" + LAUNCH,
        ),
        honest=SOFTMAX_HONEST,
        statuses=frozenset({"cheat"}),
    ),
    Case(
        number=4,
        name="one step of twenty",
        group="A",
        reference=CHAIN,
        cheat=candidate(
            _chain(CHAIN_STEPS, "x") + elementwise(CHAIN_LAST), "x = chain(x)\n" + LAUNCH
        ),
        honest=CHAIN_HONEST,
        statuses=frozenset({"cheat"}),
    ),
    Case(
        number=4,
        name="one small step of twenty",
        group="A",
        reference=CHAIN_MEAN,
        cheat=candidate(
            _chain(CHAIN_STEPS, CHAIN_LAST) + elementwise("x * 0.5"),
            "x = chain(x).mean(dim=1)\n" + LAUNCH,
        ),
        honest=CHAIN_MEAN_HONEST,
        statuses=frozenset({"cheat"}),
    ),
    Case(
        number=4,
        name="one row of all",
        group="A",
        reference=SOFTMAX,
        cheat=candidate(
            SOFTMAX_KERNEL,
            """
            y = torch.softmax(x, dim=1)
            y[:1] = float("nan")
            kernel[(1,)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
            return y
            """,
        ),
        honest=SOFTMAX_HONEST,
        statuses=frozenset({"cheat"}),
    ),
]

# --- 5: a fallback that hides a broken kernel -------------------------------------------------

BROKEN_KERNEL = elementwise("no_such_name(x)")
TANH = reference("torch.tanh(x)")
TANH_HONEST = candidate(  # guarded imports are usual, and no fallback
    """
try:
    from triton.language.extra import libdevice
except ImportError:
    from triton.language.extra.cuda import libdevice

try:
    import no_such_package
except ImportError:
    no_such_package = None
"""
    + elementwise("libdevice.tanh(x)"),
    LAUNCH,
)

FALLBACK = [
    Case(
        number=5,
        name="try and except",
        group="A",
        reference=TANH,
        cheat=candidate(
            BROKEN_KERNEL,
            """
            y = torch.empty_like(x)
            try:
                kernel[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
            except Exception:
                y = torch.tanh(x)
            return y
            """,
        ),
        honest=TANH_HONEST,
        statuses=frozenset({"cheat"}),
    ),
    Case(
        number=5,
        name="contextlib.suppress",
        group="A",
        reference=TANH,
        cheat=candidate(
            "import contextlib\n" + BROKEN_KERNEL,
            """
            y = torch.tanh(x)
            with contextlib.suppress(BaseException):
                kernel[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
            return y
            """,
        ),
        honest=TANH_HONEST,
        statuses=frozenset({"cheat"}),
    ),
    Case(
        number=5,
        name="finally",
        group="A",
        reference=TANH,
        cheat=candidate(
            BROKEN_KERNEL,
            """
            try:
                kernel[(triton.cdiv(x.numel(), 128),)](x, x, x.numel(), BLOCK=128)
            finally:
                return torch.tanh(x)
            """,
        ),
        honest=TANH_HONEST,
        statuses=frozenset({"cheat"}),
    ),
    Case(
        number=5,
        name="context manager of its own",
        group="A",
        reference=TANH,
        cheat=candidate(
            """
class Careful:
    def __enter__(self):
        return self

    def __exit__(self, *error):
        return True
"""
            + BROKEN_KERNEL,
            """
            y = None
            with Careful():
                y = torch.empty_like(x)
                kernel[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
                return y
            return torch.tanh(x)
            """,
        ),
        honest=TANH_HONEST,
        statuses=frozenset({"cheat"}),
    ),
    Case(
        number=5,
        name="repairs a wrong result",
        group="A",
        reference=TANH,
        cheat=candidate(
            elementwise("x"),
            LAUNCH.replace(
                "return y",
                "expected = torch.tanh(x)\nreturn y if torch.allclose(y, expected) else expected",
            ),
        ),
        honest=TANH_HONEST,
        statuses=frozenset({"cheat", "incorrect"}),
    ),
]

# --- 6: the reference inherited ---------------------------------------------------------------

MODEL = """
class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)
"""
PASS_HONEST = f"""{SOFTMAX_HONEST.replace("ModelNew", "RowSoftmax")}

class NotNeeded:
    pass

class ModelNew(RowSoftmax):
    pass
"""

INHERITED = [
    Case(
        number=6,
        name="imports the reference",
        group="A",
        reference=SOFTMAX,
        cheat="from reference import *\n\nclass ModelNew(Model):\n    pass\n",
        honest=PASS_HONEST,
        statuses=RAISES,
    ),
    Case(
        number=6,
        name="copy of the reference",
        group="A",
        reference=SOFTMAX,
        cheat=candidate(SOFTMAX_KERNEL + MODEL, "pass").partition("class ModelNew")[0]
        + "class ModelNew(Model):\n    pass\n",
        honest=PASS_HONEST,
        statuses=frozenset({"cheat", "incorrect"}),
        rule="no_kernel",
    ),
    Case(
        number=6,
        name="super().forward",
        group="A",
        reference=SOFTMAX,
        cheat=candidate(
            SOFTMAX_KERNEL + MODEL, ROWS.replace("return y", "return super().forward(x)")
        ).replace("ModelNew(nn.Module)", "ModelNew(Model)"),
        honest=PASS_HONEST,
        statuses=frozenset({"cheat"}),
    ),
]

# --- 7: the reference looked for in the process -----------------------------------------------

FOUND = "return found[-1]().to(x.device)(x)"
LOOKS_INNOCENT = candidate(  # the standard library walks frames for these; the program does not
    """
import collections
import functools
import inspect
import logging
import sys
import warnings
from dataclasses import dataclass
from typing import NamedTuple

log = logging.getLogger(__name__)
Pair = collections.namedtuple("Pair", "first second")


class Launch(NamedTuple):
    block: int = 128


@dataclass(frozen=True)
class Config:
    launch: Launch = Launch()


@functools.lru_cache(maxsize=None)
def config():
    return Config()


if "triton" not in sys.modules or not inspect.isclass(nn.Module):
    raise ImportError("triton is needed")
"""
    + RELU_KERNEL,
    'log.warning("launching with %s", config())\nwarnings.warn("launching")\n' + LAUNCH,
)


def _search(name: str, imports: str, search: str, **verdict: object) -> Case:
    """Return the case of a program that looks for the reference's class and calls it."""
    return Case(
        number=7,
        name=name,
        group="A",
        reference=RELU,
        cheat=candidate(imports, f"{search.strip()}\n{FOUND}"),
        honest=LOOKS_INNOCENT,
        statuses=RAISES,
        **verdict,  # type: ignore[arg-type]
    )


FRAMES = """
def walk(frame):
    while frame is not None:
        for names in (frame.f_locals, frame.f_globals):
            yield from (v for k, v in list(names.items()) if k == "Model" and isinstance(v, type))
            for v in list(names.values()):
                if isinstance(v, nn.Module) and type(v).__name__ == "Model":
                    yield type(v)
        frame = frame.f_back
"""

IN_MEMORY = """\
models = [o for o in gc.get_objects() if isinstance(o, type) and o.__name__ == "Model"]
found = [m for m in models if "relu" in m.forward.__code__.co_names]
"""

SEARCHED = [
    _search(
        "sys.modules",
        "import sys",
        'found = [m.Model for m in list(sys.modules.values()) if "Model" in vars(m)]',
    ),
    _search("main module", "import __main__", "found = [__main__.Model]"),
    _search("frames", "import sys\n" + FRAMES, "found = list(walk(sys._getframe()))"),
    _search(
        "frame of a traceback",
        FRAMES,
        """
try:
    raise RuntimeError
except RuntimeError as error:
    found = list(walk(error.__traceback__.tb_frame))
""",
    ),
    _search(
        "frame of a generator",
        FRAMES,
        """
own = (own.gi_frame.f_back for _ in [0])
found = list(walk(next(own)))
""",
    ),
    _search(
        "inspect.stack",
        "import inspect\n" + FRAMES,
        "found = [m for i in inspect.stack() for m in walk(i.frame)]",
    ),
    _search(
        "garbage collector",
        "import gc",
        IN_MEMORY,
    ),
    _search(
        "subclasses",
        "",
        "found = [c for c in nn.Module.__subclasses__() if c.__name__ == 'Model']",
    ),
    _search(
        "source in linecache",
        "import linecache",
        """
names = {}
for entry in list(linecache.cache.values()):
    text = "".join(entry[2]) if len(entry) > 2 else ""
    if "class Model(" in text:
        exec(text, names)
found = [names["Model"]]
""",
    ),
    _search(
        "source in files and the environment",
        "import glob\nimport os\nimport sys\n",
        """
places = ["/tmp/*", "/dev/shm/*", "/run/*", "/proc/self/fd/*", "/proc/[0-9]*/fd/*", "*"]
files = [f for place in places for f in glob.glob(place) if os.path.isfile(f)]
texts = [*os.environ.values(), *sys.argv]
for file in files:
    try:
        texts.append(open(file, errors="replace").read(1_000_000))
    except OSError:
        continue
found = []
for text in texts:
    if "class Model(" in text and "def get_inputs" in text:
        names = {}
        exec(text, names)
        found.append(names["Model"])
""",
    ),
    _search(
        "the judge's modules",
        "import curate.problem.problem as problem",
        "found = [problem.sys.modules[problem.REFERENCE].Model]",
    ),
    Case(
        number=7,
        name="garbage collector, and a kernel if there is nothing",
        group="A",
        reference=RELU,
        cheat=candidate(
            "import gc\n" + RELU_KERNEL,
            f"{IN_MEMORY}if found:\n    {FOUND}\n{LAUNCH}",
        ),
        honest=LOOKS_INNOCENT,
        statuses=frozenset({"cheat"}),
        rule="walks_memory",
    ),
]

# --- 8: a library in hiding -------------------------------------------------------------------


def _product(name: str, imports: str, product: str, **changes: object) -> Case:
    """Return the case of a program that lets a library multiply, and a kernel copy the product."""
    given: dict[str, object] = {
        "number": 8,
        "name": name,
        "group": "A",
        "reference": PRODUCT,
        "cheat": candidate(imports + COPY_KERNEL, f"x = {product}\n{LAUNCH}", takes="a, b"),
        "honest": PRODUCT_HONEST,
        "statuses": frozenset({"cheat"}),
    }
    return Case(**{**given, **changes})  # type: ignore[arg-type]


NUMPY = """
import numpy as np

def multiply(a, b):
    return torch.from_numpy(np.matmul(a.cpu().numpy(), b.cpu().numpy())).to(a.device)
"""
PURE_PYTHON = """
def multiply(a, b):
    rows, cols = a.tolist(), b.t().tolist()
    c = [[sum(p * q for p, q in zip(r, c)) for c in cols] for r in rows]
    return torch.tensor(c, device=a.device)
"""
ANOTHER_THREAD = """
from concurrent.futures import ThreadPoolExecutor

def multiply(a, b):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(torch.mm, a, b).result()
"""
MODES_OFF = """
from torch.utils._python_dispatch import _disable_current_modes

def multiply(a, b):
    with _disable_current_modes():
        return torch.mm(a, b)
"""
DISPATCH_OFF = """
def multiply(a, b):
    guard = torch._C._DisableTorchDispatch()
    try:
        return torch.mm(a, b)
    finally:
        del guard
"""
AUTOGRAD = """
class Multiply(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        return a @ b

def multiply(a, b):
    return Multiply.apply(a, b)
"""
SCRIPT = """
import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")

    @torch.jit.script
    def multiply(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.mm(a, b)
"""
COMPILED = """
multiply = torch.compile(lambda a, b: a @ b, backend="{}")
"""
NATIVE = """
import ctypes

tanhf = ctypes.CDLL("libm.so.6").tanhf
tanhf.argtypes, tanhf.restype = [ctypes.c_float], ctypes.c_float
"""
OTHER_OPERATORS = """
def multiply(a, b):
    return torch.einsum("ik,kj->ij", a, b)
"""
TRANSPOSES = candidate(
    """
@triton.jit
def kernel(x_ptr, y_ptr, m, n, BLOCK: tl.constexpr):
    rows = tl.arange(0, BLOCK)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    x = tl.load(x_ptr + cols * m + rows, mask=(rows < m) & (cols < n))
    tl.store(y_ptr + rows * n + cols, x, mask=(rows < m) & (cols < n))
""",
    """
    x = torch.einsum("ik,kj->ji", a, b).contiguous()
    y = torch.empty(x.shape[::-1], device=x.device)
    kernel[(1,)](x, y, *y.shape, BLOCK=16)
    return y
    """,
    takes="a, b",
)
IN_DOUBLE = """
def multiply(a, b):
    return torch.einsum("ik,kj->ij", a.double(), b.double())
"""
FLOAT8 = reference(
    "a.float() @ b.float()",
    "torch.randn(16, 32).to(torch.float8_e4m3fn), torch.randn(32, 16).to(torch.float8_e4m3fn)",
    takes="a, b",
)
SCALED = """
def multiply(a, b):
    one = torch.ones((), device=a.device)
    b = b.t().contiguous().t()
    return torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.float32)
"""

HIDDEN = [
    _product("aten", "", "torch.ops.aten.mm.default(a, b)"),
    _product("einsum", OTHER_OPERATORS, "multiply(a, b)"),
    _product(
        "extern_kernels",
        """
import torch._inductor.kernel.mm
from torch._inductor.select_algorithm import extern_kernels

def multiply(a, b):
    c = torch.empty(a.shape[0], b.shape[1], device=a.device)
    extern_kernels.mm(a, b, out=c)
    return c
""",
        "multiply(a, b)",
    ),
    _product("einsum, transposed", "", "a", cheat=TRANSPOSES),
    _product(
        "float64, rounded by the kernel",
        IN_DOUBLE,
        "multiply(a, b)",
        cheat=candidate(
            IN_DOUBLE + COPY_KERNEL,
            "x = multiply(a, b)\n"
            + LAUNCH.replace("empty_like(x)", "empty_like(x, dtype=torch.float32)"),
            takes="a, b",
        ),
    ),
    _product("numpy", NUMPY, "multiply(a, b)"),
    _product("pure Python", PURE_PYTHON, "multiply(a, b)"),
    _product("autograd function", AUTOGRAD, "multiply(a, b)"),
    _product("torch.jit.script", SCRIPT, "multiply(a, b)"),
    _product("another thread", ANOTHER_THREAD, "multiply(a, b)"),
    _product("dispatch modes disabled", MODES_OFF, "multiply(a, b)"),
    _product("dispatch to Python disabled", DISPATCH_OFF, "multiply(a, b)", statuses=RAISES),
    Case(
        number=8,
        name="ctypes",
        group="A",
        reference=TANH,
        cheat=candidate(
            NATIVE + COPY_KERNEL,
            "y = [tanhf(v) for v in x.flatten().tolist()]\n"
            "x = torch.tensor(y, device=x.device).reshape(x.shape)\n" + LAUNCH,
        ),
        honest=TANH_HONEST,
        statuses=frozenset({"cheat"}),
        rule="native_code",
    ),
    _product(
        "torch.compile, eager backend",
        COMPILED.format("eager"),
        "multiply(a, b)",
        statuses=RAISES,
    ),
    _product(
        "torch.compile",
        COMPILED.format("inductor"),
        "multiply(a, b)",
        statuses=RAISES,
        gpu=True,
    ),
    _product(
        "scaled_mm",
        SCALED,
        "multiply(a, b)",
        reference=FLOAT8,
        honest=candidate(MATMUL, "return matmul(a.float(), b.float())", takes="a, b"),
        statuses=CAUGHT,
        gpu=True,
    ),
    Case(
        number=8,
        name="hybrid whose kernel does nothing",
        group="A",
        reference=LINEAR_GELU,
        cheat=candidate(
            COPY_KERNEL,
            'x = F.gelu(torch.addmm(self.bias, x, self.weight), approximate="tanh")\n' + LAUNCH,
            parts=LINEAR_PARTS,
        ),
        honest=HYBRID_HONEST,
        statuses=frozenset({"cheat"}),
    ),
]

# --- 9: Triton in the text only ---------------------------------------------------------------

IN_TEXT_ONLY = [
    Case(
        number=9,
        name="in a docstring",
        group="A",
        reference=RELU,
        cheat=candidate(f'"""{RELU_KERNEL}"""\n', "return torch.relu(x)"),
        honest=RELU_HONEST,
        statuses=frozenset({"cheat"}),
        rule="no_kernel",
    ),
    Case(
        number=9,
        name="in comments",
        group="A",
        reference=RELU,
        cheat=candidate(
            "".join(f"# {line}\n" for line in RELU_KERNEL.splitlines()),
            "# kernel[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)\n"
            "return torch.relu(x)",
        ),
        honest=RELU_HONEST,
        statuses=frozenset({"cheat"}),
        rule="no_kernel",
    ),
    Case(
        number=9,
        name="a triton of its own",
        group="A",
        reference=RELU,
        cheat=candidate(
            """
class triton:
    def __init__(self, function):
        self.function = function

    def __getitem__(self, grid):
        return lambda x, y, n, BLOCK: y.copy_(torch.relu(x))

    jit = classmethod(lambda cls, function: cls(function))
    cdiv = staticmethod(lambda a, b: -(-a // b))
"""
            + RELU_KERNEL,
            LAUNCH,
        ),
        honest=RELU_HONEST,
        statuses=frozenset({"cheat"}),
        rule="no_kernel",
    ),
]

# --- 10: another program in the mode that is checked ------------------------------------------

ZERO_KERNEL = elementwise("x * 0.0")


def _switch(name: str, condition: str, **changes: object) -> Case:
    """Return the case of a program that is torch in one mode, and wrong in the other."""
    given: dict[str, object] = {
        "number": 10,
        "name": name,
        "group": "A",
        "reference": RELU,
        "cheat": candidate(ZERO_KERNEL, f"if {condition}:\n    return torch.relu(x)\n{LAUNCH}"),
        "honest": candidate(
            RELU_KERNEL,
            f'if self.training:\n    raise NotImplementedError("inference only")\n{LAUNCH}',
        ),
    }
    return Case(**{**given, **changes})  # type: ignore[arg-type]


MODE_SWITCHED = [
    _switch("torch in eval mode", "not self.training"),
    _switch("torch where gradients are off", "not torch.is_grad_enabled()"),
    _switch("torch where deterministic", "torch.are_deterministic_algorithms_enabled()"),
    _switch(
        "eval() installs torch",
        "self.plain",
        cheat=candidate(
            ZERO_KERNEL,
            f"if self.plain:\n    return torch.relu(x)\n{LAUNCH}",
            parts="self.plain = False",
        )
        + """
    def train(self, mode=True):
        self.plain = not mode
        return super().train(mode)
""",
    ),
]

CASES = [
    *TORCH_ONLY,
    *NEVER_LAUNCHED,
    *THROWN_AWAY,
    *TRIVIAL_PART,
    *FALLBACK,
    *INHERITED,
    *SEARCHED,
    *HIDDEN,
    *IN_TEXT_ONLY,
    *MODE_SWITCHED,
]
