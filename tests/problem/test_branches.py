"""Branches of programs: what is numbered, what is left out, and what a call notes."""

from __future__ import annotations

import pytest

from curate.problem.branches import compile_noted, find_branches

PROGRAM = '''\
from __future__ import annotations
class triton: jit = staticmethod(lambda f: f)

@triton.jit
def kernel(x):
    if x:
        y = 1

def choose(n, many=None):
    """Return a number."""
    if n > 4096:
        return "long"
    elif n < 0:
        raise ValueError(n)
    for i in range(n):
        if i == 7:
            continue
        n += 1
    return "few" if n < 4 else "many"

class ModelNew:
    def __init__(self, bias=True):
        if bias:
            self.bias = 1
        else:
            self.bias = None
'''


def run(call: str) -> tuple[object, set[int]]:
    """Return what a call gives, and the numbers of the branches that it took."""
    taken: set[int] = set()
    given = {"note": taken.add}
    exec(compile_noted(PROGRAM, "x", "note"), given)
    return eval(call, given), taken


def lines(found: object) -> list[int]:
    return sorted(branch.line for branch in found.values())  # type: ignore[attr-defined]


def test_branches_of_host_functions_have_numbers_and_kernels_none() -> None:
    found = find_branches(PROGRAM)
    assert lines(found) == [10, 12, 13, 14, 15, 16, 17, 18, 19, 19, 19, 23, 24, 26]
    assert [b.line for b in found.values() if b.refuses] == [13, 14]


@pytest.mark.parametrize(
    ("call", "result", "taken"),
    [
        ("choose(5000)", "long", [10, 12]),
        ("choose(0)", "few", [10, 13, 15, 19, 19]),
        ("choose(9)", "many", [10, 13, 15, 16, 17, 18, 19, 19]),
        ("ModelNew(False).bias", None, [23, 26]),
    ],
)
def test_a_call_notes_the_branches_that_it_takes(
    call: str, result: object, taken: list[int]
) -> None:
    found = find_branches(PROGRAM)
    got, numbers = run(call)
    assert got == result
    assert lines({number: found[number] for number in numbers}) == taken


def test_lines_and_docstrings_stay() -> None:
    given: dict[str, object] = {"note": set().add}
    exec(compile_noted(PROGRAM, "x", "note"), given)
    choose = given["choose"]
    assert choose.__doc__ == "Return a number." and choose.__code__.co_firstlineno == 9


def test_what_the_reference_has_as_well_is_left_out() -> None:
    constructor = PROGRAM[PROGRAM.index("class Model") :].replace("ModelNew", "Model")
    assert lines(find_branches(PROGRAM, constructor)) == lines(find_branches(PROGRAM))[:-3]
    more = constructor.replace("if bias:", "print(bias)\n        if bias:")
    assert lines(find_branches(PROGRAM, more)) == lines(find_branches(PROGRAM))[:-2]


def test_a_program_that_always_does_the_same_has_none() -> None:
    assert find_branches("def f(x):\n    assert x\n    if x < 0:\n        raise ValueError\n") == {}


def test_deep_expressions_are_compiled() -> None:
    """Without notes where Python's limit on recursion, which others may have raised, is met."""
    deep = "def f(x):\n    return " + "+".join(["x"] * 900)
    given: dict[str, object] = {"note": set().add}
    exec(compile_noted(deep, "x", "note"), given)
    assert given["f"](1) == 900  # type: ignore[operator]
