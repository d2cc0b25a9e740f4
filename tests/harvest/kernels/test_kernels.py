import textwrap
from typing import Any

from curate.harvest.kernels import kernels
from curate.harvest.kernels.kernels import Kernels
from curate.harvest.python.environment import KERNELS
from curate.harvest.python.package import Package
from curate.rows import Row, make_origin, make_row
from curate.step import Context, Drop, Keep, Outcome

STORES = "(x, n: tl.constexpr):\n    tl.store(x, n)\n"


def applied(text: str) -> Outcome:
    text = textwrap.dedent(text)
    row = make_row("file", text, make_origin("local", path="a.py"), text=text)
    return Kernels(step="kernels").apply(row, Context())


def rows(text: str) -> tuple[Row, ...]:
    outcome = applied(text)
    assert isinstance(outcome, Keep), outcome
    return outcome.rows


def symbols(text: str) -> list[str]:
    return [row["origin"]["symbol"] for row in rows(text)]


def test_finds_jit_under_every_name() -> None:
    text = f"""\
import triton as t
import triton.language as tl
from triton import jit, jit as tjit
from triton.runtime.jit import jit as deep

@t.jit
def a{STORES}
@jit
def b{STORES}
@tjit(do_not_specialize=["x"])
def c{STORES}
@deep  # type: ignore
def d{STORES}
def plain{STORES}
@other.jit
def e{STORES}
"""
    assert symbols(text) == ["a", "b", "c", "d"]


def test_finds_kernels_under_other_decorators_and_in_other_scopes() -> None:
    text = """\
import triton
import triton.language as tl
from .runtime import libentry

@libentry()
@triton.autotune(configs=[triton.Config({"n": 1})], key=[])
@triton.heuristics({"m": lambda args: 1})
@triton.jit
def a(x, n: tl.constexpr, m: tl.constexpr):
    tl.store(x, n)

class Holder:
    @staticmethod
    @triton.jit
    def b(x):
        tl.store(x, 1)

def outer():
    @triton.jit
    def c(x):
        tl.store(x, 1)

def body(x):
    tl.atomic_add(x, 1)

d = triton.jit(body)

def late():
    import triton as inner
    @inner.jit
    def e(x):
        inner.language.store(x, 1)
"""
    assert symbols(text) == ["a", "Holder.b", "outer.c", "d", "late.e"]


def test_finds_kernels_where_triton_is_optional() -> None:
    text = f"""\
try:
    import triton
    import triton.language as tl
    HAS_TRITON = True
except ImportError:
    HAS_TRITON = False

if HAS_TRITON:
    @triton.jit
    def a{textwrap.indent(STORES, "    ")}
"""
    assert symbols(text) == ["a"]


def test_a_row_holds_the_function_and_its_place() -> None:
    text = f"import triton\nimport triton.language as tl\n\n@triton.jit\ndef a{STORES}"
    (row,) = rows(text)
    assert row["kind"] == "kernel"
    assert row["entry_point"] == "a"
    assert row["text"] == f"@triton.jit\ndef a{STORES}".rstrip()
    assert (row["origin"]["start_line"], row["origin"]["end_line"]) == (4, 6)


def test_helpers_are_no_rows() -> None:
    text = """\
import triton
import triton.language as tl

@triton.jit
def double(x):
    return x * 2

@triton.jit
def write(x):
    tl.store(x, double(tl.load(x)))

@triton.jit
def only_calls(x):
    write(x)

@triton.jit
def launched(x):
    write(x)

def run(x):
    launched[(1,)](x)
"""
    assert symbols(text) == ["launched"]
    alone = text.replace("    write(x)\n", "    pass\n")  # nobody calls it: others may launch it
    assert symbols(alone) == ["write", "launched"]


def test_files_without_kernels_are_dropped_with_a_reason() -> None:
    head = "import triton\nimport triton.language as tl\n"
    gluon = (
        "from triton.experimental import gluon\n\n@gluon.jit\ndef a(x):\n    gluon.store(x, 1)\n"
    )
    helper = "@triton.jit\ndef double(x):\n    return x * 2\n"
    assert applied("import torch\n") == Drop("no_kernels")
    assert applied(gluon) == Drop("no_kernels")
    assert applied(head + helper) == Drop("only_helpers", {"functions": ["double"]})
    assert applied(head + "def (:\n") == Drop("syntax_error", {"line": 3})


def test_a_file_of_the_package_that_cannot_be_read_hides_no_kernel(monkeypatch: Any) -> None:
    text = f"import triton\nimport triton.language as tl\n\n@triton.jit\ndef a{STORES}"
    texts = {"a.py": text.encode(), "b.py": b"# \xff a("}
    package = Package(tuple(texts), lambda path: texts[path].decode(), KERNELS)
    monkeypatch.setattr(kernels, "package_of", lambda *_: package)
    assert symbols(text) == ["a"]
