"""TTIR that a kernel's text seldom leads to, run by the executor."""

from __future__ import annotations

import numpy as np
import pytest

from curate.verify.executor import launch
from curate.verify.executor.memory import Memory
from curate.verify.executor.operations import UnsupportedOperation, Work

HEAD = """module {
  tt.func public @kernel(%arg0: !tt.ptr<i32>) {
    %0 = tt.get_program_id x : i32
    %c1 = arith.constant 1 : i32
    %c2 = arith.constant 2 : i32
    %c7 = arith.constant 7 : i32
    %p = tt.addptr %arg0, %0 : !tt.ptr<i32>, i32
"""


def run(body: str, programs: int) -> list[int]:
    kernel = launch.load_kernel(HEAD + body + "  }\n}")
    memory, out = Memory(), np.full(programs, -1, np.int32)
    base = memory.add(out.view(np.uint8)).base
    launch.run(kernel, memory, [base], (programs, 1, 1), Work(1e6, 60))
    return [int(value) for value in out]


def test_blocks_may_be_written_before_those_that_branch_to_them() -> None:
    body = """
    %a = arith.cmpi slt, %0, %c1 : i32
    cf.cond_br %a, ^bb1(%c7 : i32), ^bb2
  ^bb1(%r: i32):  // 3 preds: ^bb0, ^bb2
    tt.store %p, %r : !tt.ptr<i32>
    tt.return
  ^bb2:  // pred: ^bb0
    %b = arith.cmpi slt, %0, %c2 : i32
    cf.cond_br %b, ^bb1(%c1 : i32), ^bb1(%c2 : i32)
"""
    assert run(body, 4) == [7, 1, 2, 2]


def test_a_loop_of_blocks_is_unsupported() -> None:
    body = """
    cf.br ^bb1(%c1 : i32)
  ^bb1(%r: i32):  // 2 preds: ^bb0, ^bb1
    %b = arith.cmpi slt, %r, %c2 : i32
    cf.cond_br %b, ^bb1(%c2 : i32), ^bb2
  ^bb2:  // pred: ^bb1
    tt.return
"""
    with pytest.raises(UnsupportedOperation, match="backwards"):
        run(body, 1)


CAST = """
    %x = tt.make_range {end = 4 : i32, start = 0 : i32} : tensor<4xi32>
    %y = tt.expand_dims %x {axis = 0 : i32} : tensor<4xi32> -> tensor<1x4xi32>
    %z = builtin.unrealized_conversion_cast %y : tensor<1x4xi32> to tensor<SIZExi32>
    %q = tt.splat %arg0 : !tt.ptr<i32> -> tensor<4x!tt.ptr<i32>>
    %s = tt.addptr %q, %x : tensor<4x!tt.ptr<i32>>, tensor<4xi32>
    tt.store %s, %z : tensor<4x!tt.ptr<i32>>
    tt.return
"""


def test_casts_drop_axes_of_length_one() -> None:
    memory, out = Memory(), np.full(4, -1, np.int32)
    kernel = launch.load_kernel(HEAD + CAST.replace("SIZE", "4") + "  }\n}")
    launch.run(kernel, memory, [memory.add(out.view(np.uint8)).base], (1, 1, 1), Work(1e6, 60))
    assert out.tolist() == [0, 1, 2, 3]
    with pytest.raises(UnsupportedOperation, match="a cast from"):
        launch.load_kernel(HEAD + CAST.replace("SIZE", "8") + "  }\n}")
