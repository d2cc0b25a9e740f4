from __future__ import annotations

import pytest

from curate.clean.forms.statements import kernels_sha256, read_statement, statement_hashes


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x = a + b", "result = (left + right)  # adds"),
        ("x = tl.load(p + o, mask=m)", "y = tl.load(\n    q + i,\n    mask=inside,\n)"),
        ("def f(a: int, b: T[x, 2] = 3) -> T:", "def g(c, d=4):"),
        ("x: Dict[str, int] = {1: 2}", "y = {3: 4}"),
        ("self.width = width", "self.size = size"),
        ("self.width = width", "self.width = size"),
        ("grid = lambda meta: meta['BLOCK'] // 2", "blocks = lambda m: m['TILE'] // 4"),
        ("x = [v for v in values]", "y = [w for w in items]"),
        ("x = 1e-5 + .5 - 0x1F", "x = 2.0 + 3 - 4"),
    ],
)
def test_names_layout_and_constants_do_not_count(one: str, other: str) -> None:
    assert read_statement(one).text == read_statement(other).text != ""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x = a + b", "x = a - b"),
        ("x = a + a", "x = a + b"),
        ("x = tl.exp(a)", "x = tl.log(a)"),
        ("x = torch.sum(a, dim=1)", "x = torch.sum(a, keepdim=1)"),
        ("x = len(a)", "x = id(a)"),
        ("return x", "yield x"),
        ("x[0] = y", "x = y[0]"),
    ],
)
def test_operators_and_libraries_count(one: str, other: str) -> None:
    assert read_statement(one).text != read_statement(other).text


@pytest.mark.parametrize("nothing", ["", "# word", '"""A docstring."""', "x: int", "import torch"])
def test_what_says_nothing_has_no_words(nothing: str) -> None:
    assert read_statement(nothing).text == ""


def same(one: str, other: str) -> bool:
    return statement_hashes(one).tolist() == statement_hashes(other).tolist()


def test_a_statement_counts_with_what_it_reads() -> None:
    program = "def f(a, b):\n    x = a * b\n    y = a - b\n    return x\n"
    assert same(program, program.replace("x", "z"))
    assert not same(program, program.replace("return x", "return y"))
    assert set(statement_hashes(program)) < set(
        statement_hashes(program.replace("    return", "    print(y)\n    return"))
    )


def test_a_keyword_of_an_own_call_is_no_variable() -> None:
    program = "def f(size):\n    return size\ndef g(**options):\n    return f(size=1, **options)\n"
    assert same(program, program.replace("(size)", "(n)").replace("return size", "return n"))


def test_names_of_others_are_kept_whatever_they_are_imported_as() -> None:
    program = "from torch import exp as e\ndef f(x):\n    return e(x)\n"
    assert same(program, program.replace(" as e", "").replace("e(x)", "exp(x)"))
    assert not same(program, program.replace("import exp", "import log"))
    unbound = "def f(x):\n    return exp(x)\n"
    assert not same(unbound, unbound.replace("exp", "log"))


def test_kernels_count_without_what_launches_them() -> None:
    kernel = "@triton.jit\ndef f(p, n):\n    i = tl.program_id(0)\n    x = tl.load(p + i)\n"
    kernel += "    y = tl.exp(x)\n    tl.store(p + i, y)\n"
    launch = "\ndef run(x):\n    f[(1,)](x, 3)\n"
    assert kernels_sha256(kernel) == kernels_sha256(kernel + launch) is not None
    assert kernels_sha256(kernel) != kernels_sha256(kernel.replace("exp", "log"))
    assert kernels_sha256(launch) is None


@pytest.mark.parametrize(
    "text", ["not python at all (", "}{][", "for in x", "'", "from", "x = (((", "\x00"]
)
def test_what_is_no_python_is_read_all_the_same(text: str) -> None:
    assert statement_hashes(text).dtype == "uint32"
