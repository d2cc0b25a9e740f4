"""A kernel's statements put in order: shared addresses, names that are used again."""

import ast

from curate.generator.text.tidy import (
    printed,
    said_once,
    tidy,
    without_unread,
    without_unread_sizes,
)


def kernel(*lines):
    body = "\n".join(f"    {line}" for line in lines)
    return f'@triton.jit\ndef f(x_ptr, y_ptr, n):\n    """Do it."""\n{body}\n'


def lines(*given):
    return [line.strip() for line in printed(tidy(kernel(*given))).splitlines()[3:]]


def test_an_address_and_a_mask_that_stand_twice_become_variables():
    found = lines(
        "x = tl.load(x_ptr + (rows * n + cols), mask=a & b)",
        "tl.store(y_ptr + (rows * n + cols), x, mask=a & b)",
        "tl.store(y_ptr + (rows + cols), x, mask=b)",
    )
    assert found == [
        "offsets = rows * n + cols",
        "mask = a & b",
        "x = tl.load(x_ptr + offsets, mask=mask)",
        "tl.store(y_ptr + offsets, x, mask=mask)",
        "tl.store(y_ptr + rows + cols, x, mask=b)",
    ]


def test_addresses_of_one_tensor_share_what_they_have_in_common():
    base = "image * channels * height * width + row * width + cols"
    found = lines(
        f"a = tl.load(x_ptr + ({base} - width - 1), mask=m)",
        f"b = tl.load(x_ptr + ({base} + 1), mask=m)",
        f"c = tl.load(y_ptr + ({base}), mask=m)",
        "tl.store(y_ptr + cols, a + b + c)",
    )
    assert found[:4] == [
        f"x_ptrs = x_ptr + {base}",
        "a = tl.load(x_ptrs - width - 1, mask=m)",
        "b = tl.load(x_ptrs + 1, mask=m)",
        f"c = tl.load(y_ptr + {base}, mask=m)",
    ]


def test_factors_of_one_and_terms_of_zero_go():
    found = lines(
        "x = tl.load(x_ptr + (rows // 1 * 1 + 1 * cols - 0), mask=m)", "tl.store(y_ptr, x * 1.0)"
    )
    assert found == ["x = tl.load(x_ptr + rows + cols, mask=m)", "tl.store(y_ptr, x * 1.0)"]


def test_a_number_that_is_only_moved_is_made_no_float():
    load = "x = tl.load(x_ptr + cols, mask=m).to(tl.float32)"
    assert lines(load, "tl.store(y_ptr + cols, x, mask=m)")[0] == (
        "x = tl.load(x_ptr + cols, mask=m)"
    )
    assert lines(load, "tl.store(y_ptr + cols, x * x, mask=m)")[0] == load
    assert lines(load, "tl.store(y_ptr + cols, x, mask=x > 0)")[0] == load
    again = [load, "x = x * 2.0", "tl.store(y_ptr + cols, x, mask=m)"]
    assert lines(*again)[0] == load


def test_a_comment_stands_once_in_a_kernel():
    load, store = "x = tl.load(x_ptr)", "tl.store(y_ptr, x)"
    assert lines("'# Why.'", load, "'# Why.'", "'# Because.'", store) == [
        "# Why.",
        load,
        "# Because.",
        store,
    ]


def test_what_nothing_reads_is_no_argument():
    function = tidy(kernel("tl.store(y_ptr, 1.0)"))
    assert without_unread(function) == {0, 2}
    assert "def f(y_ptr):" in printed(function)


def test_a_value_takes_the_name_of_the_one_that_it_replaces():
    found = lines("x = tl.load(x_ptr)", "x_1 = x * 2", "x_2 = x_1 + x_1", "tl.store(y_ptr, x_2)")
    assert found == ["x = tl.load(x_ptr)", "x = x * 2", "x = x + x", "tl.store(y_ptr, x)"]


def test_a_value_that_is_needed_later_keeps_its_name():
    found = lines("x = tl.load(x_ptr)", "x_1 = x * 2", "tl.store(y_ptr, x + x_1)")
    assert found == ["x = tl.load(x_ptr)", "x_1 = x * 2", "tl.store(y_ptr, x + x_1)"]


def test_what_a_loop_carries_keeps_its_name():
    given = [
        "peak = tl.zeros([4])",
        "peak_1 = tl.zeros([4])",
        "for start in range(0, n, 4):",
        "    x = tl.load(x_ptr + start)",
        "    peak = tl.maximum(peak, x)",
        "    peak_1 = tl.maximum(peak_1, -x)",
        "tl.store(y_ptr, peak - peak_1)",
    ]
    assert lines(*given) == [line.strip() for line in given]


def test_a_number_goes_that_tells_nothing_apart_and_so_does_what_nothing_reads():
    found = lines("first = n + 1", "second_1 = n + 2", "tl.store(y_ptr, second_1)")
    assert found == ["second = n + 2", "tl.store(y_ptr, second)"]


def test_a_size_that_a_forward_does_not_use_is_not_read():
    block = ast.parse("n = x.shape[1]\nm = x.shape[:1].numel()\nk = f(x)\nreturn g(m)").body
    kept = [ast.unparse(one) for one in without_unread_sizes(block)]
    assert kept == ["m = x.shape[:1].numel()", "k = f(x)", "return g(m)"]


def test_a_host_function_says_nothing_twice():
    block = ast.parse(
        "n = x.numel()\nif n > 4:\n    b = 2\n    f(b)\nelse:\n    b = 2\n    g(b)\n"
        "n = x.numel()\nb = 2\ny = torch.empty(n)\nx = x.view(4)\nn = x.numel()\ny = torch.empty(n)"
    ).body
    assert [ast.unparse(one).partition("\n")[0] for one in said_once(block)] == [
        "n = x.numel()",
        "b = 2",
        "if n > 4:",
        "y = torch.empty(n)",
        "x = x.view(4)",
        "n = x.numel()",
        "y = torch.empty(n)",
    ]
