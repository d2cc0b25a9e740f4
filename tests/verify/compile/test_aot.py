from __future__ import annotations

import json
from typing import Any

import pytest
from verify_programs import AUTOTUNED, HEAD, LIBRARY, LINEAR, PAIRS, SOFTMAX

from curate.devices import DEVICES, find_device
from curate.rows import COMPILE, Row, make_origin, make_row
from curate.step import Context, Drop, Keep
from curate.verify.compile.aot import (
    PASSED_OVER,
    CompiledTarget,
    compile_program,
    find_launches,
)
from curate.verify.steps.compile import Compile

THREE = ["cuda:80", "cuda:90", "hip:gfx942"]


def only(result: list[dict[str, Any]]) -> dict[str, Any]:
    assert len(result) == 1
    return result[0]


def row(candidate: str, reference: str = SOFTMAX.reference) -> Row:
    origin = make_origin("local")
    return make_row("pair", candidate, origin, reference=reference, triton=candidate)


@pytest.mark.parametrize("name", PAIRS)
def test_every_kind_of_kernel_compiles_for_both_vendors(name: str) -> None:
    pair = PAIRS[name]
    for result in compile_program(pair.reference, pair.honest, THREE):
        assert result.ok, result
        assert result.kernels == 1
        assert result.usage.registers > 0
        assert result.usage.spills == 0


@pytest.mark.parametrize("target", DEVICES)
def test_every_target(target: str) -> None:
    result = only(compile_program(SOFTMAX.reference, SOFTMAX.honest, [target]))
    assert result.ok, result
    assert 8 <= result.usage.registers <= 255
    assert 0 < result.usage.shared <= 1024


def test_signature_says_what_was_compiled() -> None:
    result = only(compile_program(LINEAR.reference, LINEAR.honest, ["cuda:90"]))
    signature = only(json.loads(result.signature)["linear_kernel"])
    assert signature["types"]["a_ptr"] == "*fp32"
    assert signature["types"]["M"] == "i32"
    assert signature["constants"] == {"BM": 16, "BN": 16, "BK": 32}
    # 40 rows, 24 columns, 70 inner: no size is divisible by 16, every tensor is aligned.
    assert signature["divisible_by_16"] == ["a_ptr", "b_ptr", "bias_ptr", "c_ptr"]


def test_autotuned_kernel_takes_its_first_configuration() -> None:
    result = only(compile_program(AUTOTUNED.reference, AUTOTUNED.honest, ["cuda:80"]))
    signature = only(json.loads(result.signature)["subtract_kernel"])
    assert signature["constants"] == {"BLOCK": 128, "EVEN": False}
    assert signature["num_warps"] == 8


def of_warps(first: int, second: int, block: int = 64) -> list[CompiledTarget]:
    """Compile both configurations of a tuned kernel, with so many warps, for two devices."""
    tuned = AUTOTUNED.honest.replace("num_warps=8", f"num_warps={first}")
    tuned = tuned.replace('{"BLOCK": 64}', f'{{"BLOCK": {block}}}, num_warps={second}')
    targets = ["cuda:80", "hip:gfx942"]
    return compile_program(AUTOTUNED.reference, tuned, targets, tuned="all")


def test_all_configurations_of_a_tuned_kernel_if_they_are_asked_for() -> None:
    for result in of_warps(8, 4):
        assert result.ok
        described = json.loads(result.signature)["subtract_kernel"]
        assert [d["constants"]["BLOCK"] for d in described] == [128, 64]
        assert [d["num_warps"] for d in described] == [8, 4]


def test_a_configuration_may_be_too_large_but_not_each() -> None:
    # A block has 1,024 threads at most; a warp of gfx942 has 64.
    cuda, hip = of_warps(8, 32)
    assert cuda.ok and hip.ok and hip.usage.registers
    cuda, hip = of_warps(32, 32)
    assert cuda.ok and not hip.ok
    assert hip.error == "threads" and hip.kernel == "subtract_kernel"


def test_any_other_error_of_a_configuration_is_one_of_the_program() -> None:
    cuda, _ = of_warps(8, 4, block=96)  # no power of two
    assert not cuda.ok and cuda.kernel == "subtract_kernel"
    assert cuda.error not in PASSED_OVER


def test_equal_launches_are_compiled_once_and_others_apart() -> None:
    twice = SOFTMAX.honest.replace(
        "        return y\n",
        "        softmax_kernel[(1,)](y, y, x.shape[1], BLOCK=block)\n"
        "        softmax_kernel[(1,)](y, y[0, 1:], x.shape[1], BLOCK=block)\n        return y\n",
    )
    launches = find_launches(SOFTMAX.reference, twice, [find_device("cuda:80")])["cuda:80"]
    aligned = [launch.describe()["divisible_by_16"] for launch in launches]
    assert aligned == [["x_ptr", "y_ptr"], ["x_ptr"]]


def test_fake_tensors_take_no_memory() -> None:
    huge = SOFTMAX.reference.replace("torch.rand(rows, 100)", "torch.rand(2**34, 100)")
    assert only(compile_program(huge, SOFTMAX.honest, ["cuda:90"])).ok


def test_program_that_looks_at_values_is_run_on_real_tensors() -> None:
    looks = SOFTMAX.honest.replace("y = torch.empty_like(x)", "y = x * float(x.max().item() > 0)")
    result = only(compile_program(SOFTMAX.reference, looks, ["cuda:90"]))
    assert result.ok and result.kernels == 1


def test_shared_memory_beyond_the_target() -> None:
    big = LINEAR.honest.replace('input_precision="ieee"', 'input_precision="tf32"')
    big = big.replace("BM=16, BN=16, BK=32", "BM=64, BN=64, BK=64, num_stages=5")
    small, large = compile_program(LINEAR.reference, big, ["cuda:86", "cuda:80"])
    assert not small.ok
    assert small.error == "shared_memory"
    assert small.kernel == "linear_kernel"
    assert str(99 * 1024) in small.message
    assert large.ok, large
    assert large.usage.shared > 99 * 1024


def test_more_threads_than_a_block_may_have() -> None:
    wide = SOFTMAX.honest.replace("BLOCK=block)", "BLOCK=block, num_warps=32)")
    cuda, hip = compile_program(SOFTMAX.reference, wide, ["cuda:90", "hip:gfx942"])
    assert cuda.ok
    assert not hip.ok


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("tl.exp(x", "tl.exponential(x", "exponential"),
        ("BLOCK=block", "BLOCK=100", "power of 2"),
        ("tl.max(x, axis=0)", "tl.max(x, axis=3)", "axis"),
    ],
)
def test_kernel_that_does_not_compile(old: str, new: str, message: str) -> None:
    outcome = Compile(step="compile").apply(row(SOFTMAX.honest.replace(old, new)), Context())
    assert isinstance(outcome, Drop)
    assert outcome.reason == "compile_error"
    assert outcome.evidence["target"] == "cuda:80"
    assert outcome.evidence["kernel"] == "softmax_kernel"
    assert message in outcome.evidence["message"]


def test_row_is_kept_with_one_entry_a_target() -> None:
    outcome = Compile(step="compile", targets=THREE).apply(row(SOFTMAX.honest), Context())
    assert isinstance(outcome, Keep)
    entries = outcome.rows[0]["compile"]
    assert [entry["target"] for entry in entries] == THREE
    assert all(entry.keys() == {field.name for field in COMPILE} for entry in entries)
    json.dumps(entries)


@pytest.mark.parametrize(
    ("candidate", "reason"),
    [
        (SOFTMAX.honest.replace("x.shape[1]", "x.shape[5]"), "launch_error"),
        ("raise ImportError('no such thing')", "launch_error"),
        ("x = 1", "launch_error"),
        (
            HEAD + "class ModelNew(nn.Module):\n    def forward(self, x):\n        return x\n",
            "no_kernel",
        ),
    ],
)
def test_program_without_launches(candidate: str, reason: str) -> None:
    outcome = Compile(step="compile").apply(row(candidate), Context())
    assert isinstance(outcome, Drop)
    assert outcome.reason == reason
    assert outcome.evidence["message"]


def test_unknown_target_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"cuda:70.*There are cuda:75"):
        Compile(step="compile", targets=("cuda:70",))


def test_library_calls_compile_for_hip() -> None:
    # OCML and libdevice are different libraries behind one name.
    result = only(compile_program(LIBRARY.reference, LIBRARY.honest, ["hip:gfx90a"]))
    assert result.ok, result
