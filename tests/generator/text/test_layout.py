import ast

import pytest

from curate.generator.text.layout import WIDTH, body

MASKS = "row_mask & col_mask"
SOURCES = [
    f"x = tl.load(in_ptr + rows * 48 + cols, mask={MASKS}, other=float('inf')) + 1",
    f"total = tl.sum(tl.where({MASKS}, a_rather_long_name * another_long_name, 0), 1)[:, None]",
    "out = (first_value + second_value * third_value) / (fourth_value - fifth_value) * sixth + 1",
    "y = a * (first_value + second * (third_value - fourth_value * other_value + fifth)) // (n"
    " - 1 + sixth_value * seventh - eighth_value * (ninth_value + tenth_value)) * eleventh",
    "y = aaaaaaaaaaaaaaaaaaaa * bbbbbbbbbbbbbbbbbbbbbbbbbbb * (ccccccccccccccccccccccccccccccccccc"
    " + dddddddddddddddddddddddddddddddddddddd + e)",
    "y = (first_value + second_value * third_value - fourth_value * fifth_value_).to(tl.float32)",
    "some_kernel[grid](" + ", ".join(f"argument_{i}" for i in range(20)) + ", num_warps=4)",
    "y = long_function_name(argument_one, argument_two, argument_three).to(tl.float32) + 1 - b",
    "a, b, c = tl.reduce((mean_accumulator, m2_accumulator, count_acc), 1, welford_combine)",
    'grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)',
    "for start in tl.range(0, n, B):\n    if start == 0:\n        a = 1\n    else:\n        a = 2",
]


@pytest.mark.parametrize("source", SOURCES)
def test_lines_are_short_and_mean_the_same(source):
    tree = ast.parse(source)
    lines = body(tree.body, 4)
    printed = ast.parse("if True:\n" + "\n".join(lines)).body[0].body
    assert [ast.dump(n) for n in printed] == [ast.dump(n) for n in tree.body]
    assert max(map(len, lines)) <= WIDTH
    assert "'" not in "\n".join(lines)


def test_a_line_with_nowhere_to_break_stays_whole():
    source = f"y = (-({' + '.join(f'value_number_{i}' for i in range(9))})).to(tl.int64)"
    assert body(ast.parse(source).body, 0) == [source]
