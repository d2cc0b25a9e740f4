"""Holes are checked against Python's own parser, which shares nothing with the one that finds them.

Programs are put together by hypothesis from pieces that were chosen to be awkward.
"""

from __future__ import annotations

import ast
import io
import itertools
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from steps_for_tests import LICENSE

from curate.formats.fim.fim import Fim, count_tokens
from curate.formats.fim.holes import Hole, find_holes
from curate.rows import Row, make_origin, make_row
from curate.sources.index import fetch
from curate.step import Drop, Keep

LINES = ("body", "block", "statement")  # kinds of hole that cover whole lines

SIMPLE = [
    "offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)",
    "x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)  # größer π",
    "tl.store(\n{i}  x_ptr + offs,  # wohin\n{i}  x,\n{i}  mask=(offs < n) & (offs >= 0),\n{i})",
    "y = tl.load(x_ptr + n, offs < n + 1, 0.5).to(tl.float32)",
    "tl.store(x_ptr + offs, x)",
    "y = x + \\\n{i}  2 * x",
    "y = x + \\\n2 * x",
    "a = b = x + 1; c = a * 2",
    "if n > 2: y = n + 1",
    'z = f"{{x + 1}} ä" + "λ)" \'b # c\'',
    "acc += x if n > 3 else -x * 2",
    "# a comment, ünïcode",
    "  # a comment that stands deeper",
    "",
    "return x, y + 1",
    "é: tl.constexpr = BLOCK * 2",
    '"""a string\n  over lines, @jit\n{i}def f(x): return x + 1\n{i}"""',
    "v = [i * 2 for i in range(n) if i > 1 and i < 9]",
    'assert not (x == y + 1), "😀 no"',
    "g = lambda q: q + 1",
    "f(*args, n + 1, key=(n\n+ 2), **more)",
    "p = (\n{i}  x  # why\n{i}  + 1\n{i})",
    "x[:, None] = y[n + 1 :] @ z",
    "pass",
]
HEADERS = [
    ("if n > BLOCK * 2:  # a branch",),
    ("if n > 1:", "elif n < -1:", "else:"),
    ("for i in tl.range(0, n, BLOCK, num_stages=2):",),
    ("while (n >= 1) and x:", "else:"),
    ("with ctx(n + 1) as c, d:",),
    ("try:", "except (A, B) as e:", "finally:"),
    ("@wrap(n + 1, [2, 3])\n{i}def inner(a, b=n + 1, *, c: int = 2 + 3) -> f(n + 1):",),
]
DECORATORS = [
    "@triton.jit\n",
    "@jit\n",
    "@triton.jit(do_not_specialize=['n' + 'm'])\n",
    "@triton.autotune(\n    [triton.Config({'BLOCK': 2 * 64})],\n    key=['n'],\n)\n@triton.jit\n",
]
DOCSTRINGS = [
    "",
    '{i}"""Adds."""\n',
    '{i}"""Adds\n\nmore.\n{i}"""  # so it says\n\n',
    "{i}# says nothing\n",
]


@st.composite
def blocks(draw: st.DrawFn, depth: int) -> str:
    """Return statements with ``{i}`` for the indentation of each line."""
    lines = []
    for _ in range(draw(st.integers(1, 3))):
        if depth and draw(st.integers(0, 2)) == 0:
            clauses = draw(st.sampled_from(HEADERS))
            inner = [draw(blocks(depth - 1)).replace("{i}", "{i}{u}") for _ in clauses]
            lines.append("".join(f"{{i}}{c}\n{i}" for c, i in zip(clauses, inner, strict=True)))
        else:
            lines.append(f"{{i}}{draw(st.sampled_from(SIMPLE))}\n")
    lines.insert(draw(st.integers(0, len(lines))), "{i}x = f(n, 1 + 2)\n")
    return "".join(lines)


@st.composite
def programs(draw: st.DrawFn) -> str:
    unit = draw(st.sampled_from(["    ", "  ", "\t"]))

    def function(name: str, decorators: str, depth: int = 0) -> str:
        body = draw(st.sampled_from(DOCSTRINGS)) + draw(blocks(depth))
        body = body.replace("{i}", unit).replace("{u}", unit).replace("{{", "{").replace("}}", "}")
        return f"{decorators}def {name}(\n  x_ptr, n, BLOCK: tl.constexpr = 1 + 2\n):\n{body}"

    parts = ["import triton\nfrom triton import language as tl\n\nTABLE = max(1 + 2, 4)\n\n"]
    parts.append(function("helper", "@triton.jit\n"))
    parts.append(function("plain", "@other.decorator(1 + 2)\n"))
    parts.append(function("kernel", draw(st.sampled_from(DECORATORS)), depth=2))
    text = "\n\n".join(parts)
    if draw(st.booleans()):
        text = text.rstrip("\n")
    return text.replace("\n", "\r\n") if draw(st.booleans()) else text


def make(triton: str, kind: str = "kernel", **columns: object) -> Row:
    known = {"triton": triton, "entry_point": "kernel", "license": LICENSE}
    return make_row(kind, triton, make_origin("local", path="a.py"), **{**known, **columns})


def shown(row: Row, **options: object) -> tuple[Row, ...]:
    outcome = Fim(format="fim", **options).render(row)
    assert isinstance(outcome, Keep), outcome
    return outcome.rows


class Spans:
    """Where things are in a file by Python's own parser, as byte offsets."""

    def __init__(self, code: bytes) -> None:
        starts = [0]
        for line in code.split(b"\n"):
            starts.append(starts[-1] + len(line) + 1)
        self.starts, self.code = starts, code
        self.tree = ast.parse(code)

    def span(self, node: ast.AST) -> tuple[int, int]:
        first, last = self.starts[node.lineno - 1], self.starts[node.end_lineno - 1]
        return first + node.col_offset, last + node.end_col_offset

    def functions(self) -> Iterator[ast.FunctionDef]:
        return (n for n in ast.walk(self.tree) if isinstance(n, ast.FunctionDef))

    def strings(self) -> Iterator[tuple[int, int]]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.JoinedStr) or (
                isinstance(node, ast.Constant) and isinstance(node.value, str)
            ):
                yield self.span(node)

    def decorators(self) -> Iterator[tuple[int, int]]:
        for function in self.functions():
            yield from map(self.span, function.decorator_list)

    def signatures(self) -> Iterator[tuple[int, int]]:
        for function in self.functions():
            start = self.span(function)[0]
            yield (
                start,
                max(
                    [
                        start,
                        *(self.span(a)[1] for a in ast.walk(function.args) if hasattr(a, "lineno")),
                    ]
                ),
            )

    def comments(self) -> Iterator[tuple[int, int]]:
        for token in tokenize.tokenize(io.BytesIO(self.code).readline):
            if token.type == tokenize.COMMENT:
                line = self.code[self.starts[token.start[0] - 1] :].decode()
                start = self.starts[token.start[0] - 1] + len(line[: token.start[1]].encode())
                yield start, start + len(token.string.encode())


def parses_in_place(code: bytes, hole: Hole, tree: str) -> None:
    """Check that the hole is whole syntax: one expression, or statements, and no more."""
    prefix, middle, suffix = code[: hole.start], code[hole.start : hole.end], code[hole.end :]
    if hole.kind in LINES:
        code_lines = re.findall(rb"^[ \t]*[^#\s].*", middle, re.M)
        first = code_lines[0]  # a comment above it may stand deeper
        indent = first[: len(first) - len(first.lstrip(b" \t"))]
        assert not prefix or prefix.endswith(b"\n")
        assert not suffix or suffix.startswith((b"\n", b"\r\n"))
        ast.parse(prefix + indent + b"pass" + suffix)
        # Python's compiler wants a statement deeper than the header above it.
        ast.parse(b"if 1:\n" + b" " * (not indent) + middle + b"\n")
        return
    ast.parse(prefix + b"x" + suffix)
    if hole.node != "argument_list":
        same = ast.parse(prefix + b"(" + middle + b")" + suffix)
        assert ast.dump(same) == tree
    else:
        ast.parse(b"f(" + middle + b"\n)")


def check(text: str, entry_point: str | None, every: int = 1) -> list[Hole]:
    """Check every n-th hole of a file; return all."""
    code = text.encode()
    holes, spans = find_holes(code, entry_point), Spans(code)
    tree = ast.dump(spans.tree)
    closed = [*spans.strings(), *spans.decorators(), *spans.signatures(), *spans.comments()]
    for hole in holes[::every]:
        parses_in_place(code, hole, tree)
        for start, end in closed:
            apart = hole.end <= start or end <= hole.start
            assert apart or (hole.start <= start and end <= hole.end), (hole, code[start:end])
    assert len({(h.start, h.end) for h in holes}) == len(holes)
    return holes


@given(programs())
@settings(max_examples=25, deadline=None)
def test_holes_are_whole_syntax_and_in_no_string_decorator_signature_or_comment(text: str) -> None:
    assert check(text, None)


@given(programs())
@settings(max_examples=25, deadline=None)
def test_a_kernels_holes_lie_in_its_jitted_functions(text: str) -> None:
    code = text.encode()
    spans = Spans(code)
    functions = {f.name: spans.span(f) for f in spans.tree.body if isinstance(f, ast.FunctionDef)}
    for hole in find_holes(code, "kernel"):
        start, end = functions[hole.function]
        assert hole.function in ("kernel", "helper")
        assert start < hole.start
        after = code[end : hole.end].splitlines()  # comments that end a body
        assert all(line.strip().startswith((b"#", b";")) for line in after if line.strip())
    assert {hole.function for hole in find_holes(code)} == set(functions)


@given(programs(), st.integers(1, 12), st.integers(12, 60))
@settings(max_examples=25, deadline=None)
def test_views_of_a_row(text: str, least: int, most: int) -> None:
    counts = {"body": 1, "block": 2, "statement": 3, "memory": 2, "expression": 4}
    view_of = Fim(format="fim", holes=counts, min_tokens=least, max_tokens=most)
    outcome = view_of.render(make(text))
    views = outcome.rows if isinstance(outcome, Keep) else ()
    assert outcome == view_of.render(make(text))
    for view in views:
        assert view["prefix"] + view["middle"] + view["suffix"] == text
        assert least <= count_tokens(view["middle"]) <= most
        assert view["start_line"] == view["prefix"].count("\n") + 1
        assert view["end_line"] == (view["prefix"] + view["middle"]).count("\n") + 1
    spans = [(len(v["prefix"]), len(v["prefix"] + v["middle"]), v["hole"]) for v in views]
    assert len({v["id"] for v in views}) == len({span[:2] for span in spans}) == len(views)
    for kind, count in counts.items():
        ordered = sorted(span for span in spans if span[2] == kind)
        assert len(ordered) <= count
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(ordered))


KERNEL = '''\
import triton
import triton.language as tl

@triton.jit
def square(x):
    return x * x

@triton.jit
def kernel(x_ptr, n, BLOCK: tl.constexpr):
    """Squares."""

    # where to read
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)  # out of range: 0
    if BLOCK > 64:
        # a comment
        x = square(x)
        x = x + 1
    tl.store(x_ptr + offsets, x, offsets < n)
'''


def middles(kind: str, code: str = KERNEL, entry_point: str | None = "kernel") -> list[str]:
    holes = find_holes(code.encode(), entry_point)
    return [code.encode()[h.start : h.end].decode() for h in holes if h.kind == kind]


def test_a_body_is_all_after_signature_and_docstring() -> None:
    [view] = shown(make(KERNEL), holes={"body": 1})
    assert view["prefix"].endswith('"""Squares."""\n\n')
    assert view["middle"].startswith("    # where to read\n    offsets = ")
    assert view["suffix"] == "\n"
    assert (view["hole"], view["node"], view["start_line"]) == ("body", "block", 12)
    assert middles("body")[0] == "    return x * x"


def test_blocks_are_bodies_and_runs_of_statements() -> None:
    found = middles("block")
    assert "        x = square(x)\n        x = x + 1" in found
    assert any(f.startswith("    offsets = ") and f.endswith("# out of range: 0") for f in found)
    assert len(found) == len(set(found)) == 1 + 6


def test_comments_belong_to_the_body_that_they_stand_in() -> None:
    code = "def kernel(n):\n    if n > 2:\n        x = n\n        # inner\n    # end\n# outside\n"
    assert middles("body", code) == ["    if n > 2:\n        x = n\n        # inner\n    # end"]
    assert middles("block", code) == ["        x = n\n        # inner"]


def test_half_of_a_sum_is_no_hole() -> None:
    code = "def kernel(a, b, c, d):\n    x = a * b + c + d\n"
    assert middles("expression", code) == ["a", "a * b", "a * b + c + d", "b", "c", "d"]


def test_a_statement_is_its_lines_with_a_comment_at_their_end() -> None:
    assert middles("statement") == [
        *KERNEL.splitlines()[12:14],
        "\n".join(KERNEL.splitlines()[14:18]),
        *KERNEL.splitlines()[16:18],
        "    tl.store(x_ptr + offsets, x, offsets < n)",
    ]


def test_arguments_of_masked_loads_and_stores() -> None:
    assert middles("memory") == [
        "x_ptr + offsets",
        "x_ptr + offsets, mask=offsets < n, other=0.0",
        "offsets < n",
        "0.0",
        "x_ptr + offsets",
        "x_ptr + offsets, x, offsets < n",
        "offsets < n",
    ]
    assert not middles(
        "memory", KERNEL.replace(", mask=offsets < n", "").replace(", offsets < n)", ")")
    )


def test_expressions_are_right_sides_arguments_conditions_operands_and_results() -> None:
    found = middles("expression")
    for expected in ("tl.program_id(0) * BLOCK", "BLOCK > 64", "square(x)", "64", "x + 1"):
        assert expected in found
    assert "x_ptr + offsets" not in found, "it is a hole of kind memory already"


def test_a_body_of_one_line_with_its_signature_is_no_hole() -> None:
    code = "@triton.jit\ndef kernel(x): return x + 1\n"
    assert middles("body", code) == middles("statement", code) == []
    assert "x + 1" in middles("expression", code)


def test_a_pair_has_holes_in_methods_and_wrappers() -> None:
    code = "class ModelNew(Module):\n    def forward(self, x):\n        return launch(x + 1)\n"
    assert [v["middle"] for v in shown(make(code, "pair", entry_point="ModelNew"), min_tokens=5)]
    assert Fim(format="fim").render(make(code)) == Drop("no_holes")


def test_sizes_are_respected() -> None:
    assert Fim(format="fim", min_tokens=500).render(make(KERNEL)) == Drop("no_holes")
    outcome = Fim(format="fim", max_row_tokens=20).render(make(KERNEL))
    assert outcome == Drop("too_long", {"tokens": count_tokens(KERNEL)})
    assert count_tokens("x_ptr + 1.5e3  # größer\n") == 5


def test_the_rows_id_draws() -> None:
    rows = [{**make(KERNEL), "id": str(number)} for number in range(20)]
    drawn = {tuple(view["middle"] for view in shown(row)) for row in rows}
    assert len(drawn) > 10


def test_a_row_with_a_marker_is_left_out() -> None:
    outcome = Fim(format="fim").render(make(KERNEL + "# <|fim_middle|>\n"))
    assert outcome == Drop("fim_marker", {"marker": "<|fim_middle|>"})


def test_what_does_not_parse_is_left_out() -> None:
    assert Fim(format="fim").render(make(KERNEL + "def (\n")) == Drop("syntax_error")


def test_a_family_adds_prompt_and_completion() -> None:
    for view in shown(make(KERNEL), family="starcoder2", mode="spm"):
        assert view["prompt"].startswith(f"<fim_prefix><fim_suffix>{view['suffix']}<fim_middle>")
        assert view["completion"] == view["middle"] + "<|endoftext|>"
    view = Fim(format="fim", family="codestral", mode="spm")
    assert {"prompt", "completion"} <= set(view.columns().names)
    assert not {"prompt", "completion"} & set(Fim(format="fim").columns().names)
    assert set(shown(make(KERNEL))[0]) == set(Fim(format="fim").columns().names)


@pytest.mark.parametrize(
    "options",
    [
        {"family": "starcoder2"},
        {"mode": "psm"},
        {"family": "codestral", "mode": "psm"},
        {"holes": {"word": 1}},
        {"holes": {"body": 0}},
    ],
)
def test_options_that_do_not_go_together(options: dict) -> None:
    with pytest.raises(ValidationError):
        Fim(format="fim", **options)


LIGER = "60789cd576af073ab9b192b570d2597fd0cdad489cd62fb44fb16256d43754c9"


@pytest.mark.network
@pytest.mark.slow
def test_holes_of_a_real_package(tmp_path: Path) -> None:
    artifact = fetch("liger-kernel", "0.8.5", LIGER, tmp_path)
    for path in artifact.paths():
        text = artifact.read(path) if path.endswith(".py") else ""
        if "triton.jit" in text and len(text) < 8000:
            assert check(text, "", every=10), path
