import importlib.util
import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

from curate.harvest.closure import Closure
from curate.harvest.kernels.kernels import Kernels
from curate.harvest.python import package as packages
from curate.harvest.python.environment import KERNELS
from curate.harvest.python.package import Package
from curate.rows import KERNEL, Row, make_origin, make_row
from curate.step import Context, Drop, Keep, Outcome

HEAD = "import torch\nimport triton\nimport triton.language as tl\n"
CONTEXT = Context(cache=Path("unused"))


@pytest.fixture
def outcomes(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the outcome of `closure` for each kernel of the first file of a package."""

    def run(files: dict[str, str], **options: Any) -> dict[str, Outcome]:
        texts = {name: textwrap.dedent(text) for name, text in files.items()}
        texts.setdefault("pkg/__init__.py", "")
        package = Package(tuple(texts), texts.__getitem__, KERNELS)
        monkeypatch.setattr(packages, "_open_package", lambda *_: package)
        path = next(iter(texts))
        origin = make_origin("local", path=path, artifact_sha256="0" * 64)
        found = Kernels(step="kernels").apply(
            make_row("file", texts[path], origin, text=texts[path]), CONTEXT
        )
        assert isinstance(found, Keep), found
        step = Closure(step="closure", **options)
        return {row["origin"]["symbol"]: step.apply(row, CONTEXT) for row in found.rows}

    return run


def row_of(outcome: Outcome) -> Row:
    assert isinstance(outcome, Keep), outcome
    return outcome.rows[0]


def imported(text: str, folder: Path) -> Any:
    """Import a slice of ours, as Triton needs its source in a file."""
    path = folder / "slice.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("slice", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_takes_helpers_and_constants_across_files(outcomes: Any, tmp_path: Path) -> None:
    made = outcomes(
        {
            "pkg/a.py": """
            import math
            import numpy as np
            import torch
            import triton
            import triton.language as tl
            from .b import double as twice
            from . import b

            SCALE: tl.constexpr = tl.constexpr(math.pi)
            UNUSED = np.pi

            @triton.jit
            def a(x_ptr, n, BLOCK: tl.constexpr = 16):
                offsets = tl.arange(0, BLOCK)
                x = tl.load(x_ptr + offsets, mask=offsets < n)
                tl.store(x_ptr + offsets, twice(x) * SCALE + b.ONE, mask=offsets < n)
            """,
            "pkg/b.py": """
            import triton
            from triton import language as tl

            ONE = tl.constexpr(1)

            @triton.jit
            def double(x):
                return x * 2
            """,
        }
    )
    row = row_of(made["a"])
    assert row["triton"] == (
        "import math\nimport triton\nimport triton.language as tl\nfrom triton import language"
        " as tl2\n\n\nONE = tl2.constexpr(1)\n\n\n@triton.jit\ndef double(x):\n    return x * 2\n"
        "\n\nSCALE: tl.constexpr = tl.constexpr(math.pi)\n\n\n"
        "@triton.jit\ndef a(x_ptr, n, BLOCK: tl.constexpr = 16):\n"
        "    offsets = tl.arange(0, BLOCK)\n"
        "    x = tl.load(x_ptr + offsets, mask=offsets < n)\n"
        "    tl.store(x_ptr + offsets, double(x) * SCALE + ONE, mask=offsets < n)\n"
    )
    assert row["origin"]["derived_from"] == ["pkg/b.py:5-5", "pkg/b.py:7-9"]
    assert (row["kind"], row["entry_point"], row["text"]) == ("kernel", "a", None)
    assert set(row["kernel"]) == {field.name for field in KERNEL}
    assert imported(row["triton"], tmp_path).a.arg_names == ["x_ptr", "n", "BLOCK"]


KERNEL_BODY = "def a(x, BLOCK: tl.constexpr):\n    tl.store(x, BLOCK)\n"


def test_keeps_tritons_decorators_and_no_others(outcomes: Any) -> None:
    decorators = (
        "@triton.autotune(configs=CONFIGS, key=[])\n"
        "@triton.heuristics({'BLOCK': lambda args: 16})\n"
    )
    text = (
        f"{HEAD}from .c import cached\n"
        "CONFIGS = [triton.Config({}, num_warps=w) for w in (1, 2)]\n"
        f"@cached(1)\n{decorators}@triton.jit\n{KERNEL_BODY}"
    )
    files = {"pkg/a.py": text, "pkg/c.py": "import json\ndef cached(n): return json.dumps\n"}
    made = row_of(outcomes(files)["a"])["triton"]
    assert "CONFIGS = [" in made
    assert made.endswith(f"{decorators}@triton.jit\n{KERNEL_BODY}")
    assert "cached" not in made


def test_gives_up_a_decorator_that_reads_files(outcomes: Any) -> None:
    text = (
        f"{HEAD}import json\nCONFIGS = json.load(open('tuned.json'))\n"
        "@triton.autotune(configs=CONFIGS, key=[])\n"
        f"@triton.heuristics({{'BLOCK': lambda args: 16}})\n@triton.jit\n{KERNEL_BODY}"
        "def run(x):\n    a[(1,)](x)\n"
    )
    row = row_of(outcomes({"pkg/a.py": text})["a"])
    assert "autotune" not in row["triton"]
    assert "@triton.heuristics" in row["triton"]
    assert row["host_function"] is None, "without its configurations the launch lacks an argument"


def test_answers_the_platforms_questions_where_an_import_asks(
    outcomes: Any, tmp_path: Path
) -> None:
    text = """
    import subprocess
    import torch
    import triton
    import triton.language as tl
    from packaging import version

    NEW = version.parse(triton.__version__) >= version.parse("3.0.0")
    IS_AMD = (
        subprocess.run("rocm-smi").returncode == 0
    )
    SMS = torch.cuda.get_device_properties(0).multi_processor_count

    def is_hip():
        return triton.runtime.driver.active.get_current_target().backend == "hip"

    def configs():
        return [triton.Config({"BLOCK": 64 if is_hip() else SMS})]

    @triton.autotune(configs=configs(), key=[])
    @triton.jit
    def a(x, BLOCK: tl.constexpr, NEW: tl.constexpr = NEW and not IS_AMD):
        tl.store(x, BLOCK)

    def run(x):
        n = torch.cuda.get_device_properties(x.device).multi_processor_count
        a[(n,)](x)
    """
    row = row_of(outcomes({"pkg/a.py": text})["a"])
    for line in ("NEW = True", "IS_AMD = False", "SMS = 132"):
        assert f"\n{line}\n" in row["triton"]
    assert "64 if False else SMS" in row["triton"]
    assert "get_device_properties(x.device)" in row["host_function"], "functions ask when called"
    assert imported(row["triton"], tmp_path).a.configs[0].kwargs == {"BLOCK": 132}


def test_takes_the_branch_that_runs_with_triton_on_nvidia(outcomes: Any) -> None:
    text = """
    try:
        import triton
        import triton.language as tl
        HAS = True
    except ImportError:
        HAS = False
    try:
        from vendor import fast
    except ImportError:
        fast = None
    if is_npu():
        from triton.language.extra.cann.libdevice import tanh
    else:
        from triton.language.math import tanh

    @triton.jit
    def a(x, F: tl.constexpr = fast):
        tl.store(x, tanh(1.0))
    """
    assert row_of(outcomes({"pkg/a.py": text})["a"])["triton"].startswith(
        "import triton\nimport triton.language as tl\n"
        "from triton.language.extra.libdevice import tanh\n\n\nfast = None\n"
    )


def test_nested_kernels_stand_alone_unless_they_read_what_is_around_them(outcomes: Any) -> None:
    text = f"""{HEAD}
SIZE = 3

class Holder:
    @staticmethod
    @triton.jit
    def method(x, n: tl.constexpr = SIZE):
        tl.store(x, n)

def outer(size):
    @triton.jit
    def free(x):
        tl.store(x, 1)
    @triton.jit
    def bound(x):
        tl.store(x, size)
"""
    made = outcomes({"pkg/a.py": text})
    assert row_of(made["Holder.method"])["triton"].endswith(
        "SIZE = 3\n\n\n@triton.jit\ndef method(x, n: tl.constexpr = SIZE):\n    tl.store(x, n)\n"
    )
    assert row_of(made["outer.free"])["triton"].endswith("def free(x):\n    tl.store(x, 1)\n")
    assert made["outer.bound"] == Drop("nested_kernel", {"names": ["size"]})


@pytest.mark.parametrize(
    ("prelude", "body", "expected"),
    [
        ("import numpy as np", "np.pi", ("external_import", {"modules": ["numpy"]})),
        ("from .gone import K", "K", ("unresolved_name", {"names": ["K"]})),
        (
            "from triton.language.extra.xpu import libdevice",
            "libdevice.exp(1.0)",
            ("external_import", {"modules": ["triton.language.extra.xpu"]}),
        ),
    ],
)
def test_losses_say_what_is_missing(
    outcomes: Any, prelude: str, body: str, expected: tuple[str, dict[str, Any]]
) -> None:
    text = f"{HEAD}{prelude}\n@triton.jit\ndef a(x):\n    tl.store(x, {body})\n"
    assert outcomes({"pkg/a.py": text})["a"] == Drop(*expected)


def test_a_long_slice_is_dropped(outcomes: Any) -> None:
    text = f"{HEAD}@triton.jit\ndef a(x):\n" + "    tl.store(x, 1)\n" * 20
    made = outcomes({"pkg/a.py": text}, max_lines=10)
    assert made["a"] == Drop("too_large", {"lines": 26, "max_lines": 10})


LAUNCHED = f"""{HEAD}
DEFAULT = 128

@triton.jit
def a(x, y, n, stride, eps, flag, extra, kind, rest, BLOCK: tl.constexpr, W: tl.constexpr):
    tl.store(y, n)

def long(x: torch.Tensor):
    other = torch.empty_like(x)
    y = torch.empty(x.shape, dtype=torch.float16)
    a[(1,)](x, y, x.shape[0], 1, 1e-5, True, None, tl.float32, ??, BLOCK=DEFAULT, W=2)
    return y
"""


def test_launch_sites_say_what_parameters_get(outcomes: Any) -> None:
    text = LAUNCHED.replace("??", "unknown(x)")
    other = """
    import torch
    import triton
    from pkg import a as module
    from pkg.a import a as kernel

    def short(x: torch.Tensor, eps: float, extra=None):
        y = x.new_empty(3, dtype=torch.bfloat16)
        M, N = x.shape
        BLOCK = triton.next_power_of_2(N)
        if extra is not None:
            extra = extra.to(torch.int32).contiguous()
        kernel[lambda meta: (M,)](x, y, N, y.stride(0), eps * 2, M == 1, extra, num_warps=4, **x)
        module.a[(1,)](*x)
    """
    row = row_of(outcomes({"pkg/a.py": text, "pkg/b.py": other})["a"])
    first, second, third = json.loads(row["kernel"]["launches"])
    assert (first["path"], first["line"], first["function"]) == ("pkg/a.py", 14, "long")
    told = {name: (v["kind"], v["dtype"], v["value"]) for name, v in first["arguments"].items()}
    assert told == {
        "x": ("tensor", None, None),
        "y": ("tensor", "float16", None),
        "n": ("int", None, None),
        "stride": ("int", None, 1),
        "eps": ("float", None, 1e-5),
        "flag": ("bool", None, True),
        "extra": ("none", None, None),
        "kind": ("dtype", "float32", None),
        "rest": ("unknown", None, None),
        "BLOCK": ("int", None, 128),
        "W": ("int", None, 2),
    }
    assert first["arguments"]["n"]["text"] == "x.shape[0]"
    kinds = {name: (v["kind"], v["dtype"]) for name, v in second["arguments"].items()}
    assert kinds == {
        "x": ("tensor", None),
        "y": ("tensor", "bfloat16"),
        "n": ("int", None),
        "stride": ("int", None),
        "eps": ("float", None),
        "flag": ("bool", None),
        "extra": ("tensor", "int32"),
    }
    assert second["options"] == {"num_warps": 4}
    assert (third["function"], third["arguments"]) == ("short", {})


def test_the_wrapper_is_the_smallest_function_that_can_stand_alone(outcomes: Any) -> None:
    text = LAUNCHED.replace("??", "0") + textwrap.dedent(
        """
        import numpy

        def external(x):
            a[(1,)](numpy.array(x), **{})

        def bench(x):  # the smallest, but not what the package is for
            a[(1,)](x, **{})

        class Function(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                a[(1,)](x, **{})
        """
    )
    row = row_of(outcomes({"pkg/a.py": text})["a"])
    assert row["host_function"].startswith(
        "import torch\nimport triton\nimport triton.language as tl\n"
    )
    assert "def long(x: torch.Tensor):" in row["host_function"]
    assert "@triton.jit\ndef a(" in row["host_function"]
    assert "numpy" not in row["host_function"]
    assert "def long" not in row["triton"]


def test_derived_from_names_the_addresses_in_comments(outcomes: Any) -> None:
    text = (
        '"""Norms.\n\nAdapted from\nhttps://example.org/norms.py (MIT).\n"""\n'
        f"# See https://example.org/paper\n{HEAD}"
        "# Modified from the code at https://example.org/k.py\n"
        "@triton.jit\ndef a(x):\n    tl.store(x, 1)\n\n\n"
        "@triton.jit\ndef b(x):\n    tl.store(x, 1)\n"
    )
    made = outcomes({"pkg/a.py": text})
    assert row_of(made["a"])["origin"]["derived_from"] == [
        "https://example.org/norms.py",
        "https://example.org/k.py",
    ]
    assert row_of(made["b"])["origin"]["derived_from"] == ["https://example.org/norms.py"]


@pytest.mark.parametrize(
    ("module", "allowed"),
    [
        ("triton.tools.tensor_descriptor", True),
        ("triton.tools.compile", False),
        ("triton.language.extra.libdevice", True),
        ("triton.language.extra.cann.extension", False),
        ("torch.nn.functional", True),
        ("torch.distributed", False),
        ("numpy", False),
    ],
)
def test_what_a_slice_may_import(module: str, allowed: bool) -> None:
    assert KERNELS.is_allowed(module) is allowed
