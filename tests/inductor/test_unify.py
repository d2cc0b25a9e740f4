"""Expressions for numbers that vary, and texts that differ in more than numbers."""

import pytest

from curate.inductor.unify import NotAlike, _Symbols, differ, is_told_apart

FACTS = [
    {"self.dim": 48, "self.heads": 6, "self.eps": 7.5e-6, "x.shape[2]": 48, "self.w.shape[0]": 8},
    {
        "self.dim": 192,
        "self.heads": 6,
        "self.eps": 7.5e-6,
        "x.shape[2]": 192,
        "self.w.shape[0]": 32,
    },
    {"self.dim": 48, "self.heads": 12, "self.eps": 7.5e-6, "x.shape[2]": 48, "self.w.shape[0]": 4},
    {"self.dim": 48, "self.heads": 6, "self.eps": 1.25e-5, "x.shape[2]": 48, "self.w.shape[0]": 8},
]


@pytest.mark.parametrize(
    ("values", "expression"),
    [
        ((48, 192, 48, 48), "self.dim"),
        ((48.0, 192.0, 48.0, 48.0), "self.dim"),
        ((6, 6, 12, 6), "self.heads"),
        ((8, 32, 4, 8), "self.w.shape[0]"),
        ((7.5e-6, 7.5e-6, 7.5e-6, 1.25e-5), "self.eps"),
        ((96, 384, 96, 96), "self.dim * 2"),
        ((24, 96, 24, 24), "self.dim // 2"),
        ((49, 193, 49, 49), "self.dim + 1"),
        ((-48, -192, -48, -48), "-self.dim"),
        ((288, 1152, 576, 288), "self.dim * self.heads"),
        ((2304, 36864, 2304, 2304), "self.dim ** 2"),
        ((97, 385, 101, 97), None),
        ((7.510185241699219e-06,) * 3 + (1.2516975402832031e-05,), "self.eps"),
        ((48**-0.5, 192**-0.5, 48**-0.5, 48**-0.5), "self.dim ** -0.5"),
        (
            (6.928203105926514, 13.856406211853027, 6.928203105926514, 6.928203105926514),
            "self.dim ** 0.5",
        ),
    ],
)
def test_a_number_that_varies_has_an_expression(values, expression):
    symbols = _Symbols(FACTS)
    if expression is None:
        with pytest.raises(NotAlike) as caught:
            symbols.of(values)
        assert caught.value.differing == [1, 2]
    else:
        assert symbols.expressions[symbols.of(values)] == expression


@pytest.mark.parametrize(
    ("number", "apart"),
    [(0.1, True), (1e-6, True), (0.5, True), (0.999, False), (2.999, False), (3.4e38, False)],
)
def test_what_bfloat16_rounds_is_found_again_if_nothing_else_looks_like_it(
    number: float, apart: bool
) -> None:
    assert is_told_apart(number, frozenset({number})) is apart
    assert is_told_apart(0.3, frozenset({0.3, 0.30078125})) is False


def test_one_number_has_one_symbol_that_tells_its_values():
    symbols = _Symbols(FACTS)
    assert symbols.of((48, 192, 48, 48)) == symbols.of((48.0, 192.0, 48.0, 48.0)) == "c48_192"


FILE = """
first_kernel = async_compile.triton('first_kernel', '''
import triton

@triton.jit
def first_kernel(in_ptr0, xnumel, XBLOCK : tl.constexpr):
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    tl.store(in_ptr0 + xindex, 48.0, xindex < xnumel)
''', device_str='cuda')

def call(args):
    first_kernel.run(args[0], 48)
    return (args[0],)
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("xindex < xnumel", "None"),
        ("48.0, xindex", "48.0 + 1, xindex"),
        ("first_kernel", "second_kernel"),
        ("run(args[0], 48)", "run(args[0])"),
        ("48.0", "True"),
    ],
)
def test_texts_that_differ_in_more_than_numbers(before, after):
    assert before in FILE
    with pytest.raises(NotAlike):
        differ(FILE, FILE.replace(before, after))


def test_texts_that_differ_in_numbers():
    assert differ(FILE, FILE.replace("48", "96"))
    assert not differ(FILE, FILE + "# a comment\n")
