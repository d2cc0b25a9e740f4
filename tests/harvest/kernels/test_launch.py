import json
from typing import Any

import host_functions_for_tests as wrappers
import pytest

from curate.engine.executor import Job
from curate.engine.processes.local import LocalExecutor
from curate.harvest.kernels.host_function_inputs import Scale, scales, tensor
from curate.harvest.kernels.host_function_text import HostFunctionReading
from curate.harvest.kernels.launch import Launch
from curate.rows import KERNEL, RUN, Row, make_origin, make_row
from curate.step import Context

STEP = Launch(step="launch", seconds=10.0, elements=1_000_000)
NAMES = [name for name in vars(wrappers) if name.isupper() and name != "HEAD"]
ENDLESS = ("ENDLESS", "ENDLESS_KERNEL")


def row(name: str, wrapper: str | None, **kernel: Any) -> Row:
    known = dict.fromkeys(field.name for field in KERNEL) | kernel
    origin = make_origin("local", path=f"{name}.py")
    return make_row("kernel", name, origin, triton="", host_function=wrapper, kernel=known)


def text(name: str) -> str:
    return ("" if name == "BROKEN" else wrappers.HEAD) + getattr(wrappers, name)


def run(rows: list[Row]) -> list[Row]:
    """Return what the step makes of rows, in the sandbox as in a recipe."""
    jobs = (Job("s", i, [item]) for i, item in enumerate(rows))
    found: dict[int, Row] = {}
    for job, index, result in LocalExecutor(1).run(STEP, Context(), jobs):
        assert not result.lost, result.lost
        (found[job.start + index],) = result.kept
    return [found[i] for i in range(len(rows))]


@pytest.fixture(scope="module")
def labels() -> dict[str, dict[str, Any]]:
    """The labels of all wrappers, made once: a worker takes seconds to start."""
    sites = json.dumps([{"path": "a.py", "line": 1, "function": "add"}])
    extra = {
        "NONE": row("NONE", None),
        "NAMED": row("NAMED", text("ADD") + "\n\ndef last(x):\n    return x\n", launches=sites),
        "TYPED": row(
            "TYPED",
            text("IN_PLACE"),
            signature=json.dumps({"types": {"x_ptr": "*bf16", "y_ptr": "*i32"}}),
        ),
    }
    rows = {name: row(name, text(name)) for name in NAMES if name not in ENDLESS} | extra
    kept = dict(zip(rows, run(list(rows.values())), strict=True))
    for name, before in rows.items():
        assert {**kept[name], "kernel": before["kernel"]} == before, "only the run is new"
    return {name: after["kernel"]["run"] for name, after in kept.items()}


@pytest.mark.parametrize(
    "name", ["ADD", "IN_PLACE", "NORM", "DIM", "HALF", "AUTOTUNED", "VARIADIC"]
)
def test_wrappers_with_traps_run(labels: dict[str, dict[str, Any]], name: str) -> None:
    label = labels[name]
    assert (label["status"], label["message"], label["launches"]) == ("ran", None, 1)
    assert label["deterministic"] is True
    assert list(label) == [field.name for field in RUN]


def test_the_call_is_shown_as_python(labels: dict[str, dict[str, Any]]) -> None:
    assert labels["ADD"]["inputs"] == "add(torch.randn(16, 64), torch.randn(16, 64))"
    assert labels["NORM"]["inputs"] == "layer_norm(torch.randn(32, 64), torch.randn(64))"


def test_errors_guide_the_search(labels: dict[str, dict[str, Any]]) -> None:
    assert "float16" in labels["HALF"]["inputs"]  # asked for by an assertion
    assert "torch.randn(2, 32, 128)" in labels["DIM"]["inputs"]  # divisible by 128
    assert labels["DIM"]["inputs"].endswith("-1)")


def test_operators_of_a_library_are_called(labels: dict[str, dict[str, Any]]) -> None:
    assert (labels["OPERATOR"]["status"], labels["OPERATOR"]["launches"]) == ("ran", 1)


def test_types_of_the_signature_are_used(labels: dict[str, dict[str, Any]]) -> None:
    assert labels["TYPED"]["inputs"] == (
        "add_(torch.randn((16, 64), dtype=torch.bfloat16), "
        "torch.randint(0, 2, (16, 64), dtype=torch.int32))"
    )


def test_the_function_of_the_launch_site_is_called(labels: dict[str, dict[str, Any]]) -> None:
    assert labels["NAMED"]["inputs"].startswith("add(")


def test_inputs_that_are_written_to_are_named(labels: dict[str, dict[str, Any]]) -> None:
    assert labels["IN_PLACE"]["mutated_inputs"] == ["x"]
    assert labels["ADD"]["mutated_inputs"] == []


@pytest.mark.parametrize("name", ["ATOMIC", "DRAWN", "RACE"])
def test_what_differs_when_run_again_is_not_deterministic(
    labels: dict[str, dict[str, Any]], name: str
) -> None:
    assert (labels[name]["status"], labels[name]["deterministic"]) == ("ran", False)


@pytest.mark.parametrize("name", ["CACHED", "CAUGHT", "READ"])
def test_calls_share_a_device_that_errors_leave_usable(
    labels: dict[str, dict[str, Any]], name: str
) -> None:
    label = labels[name]
    assert (label["status"], label["launches"], label["deterministic"]) == ("ran", 1, True)


def test_a_function_that_launches_nothing_is_told_of(labels: dict[str, dict[str, Any]]) -> None:
    assert (labels["NO_LAUNCH"]["status"], labels["NO_LAUNCH"]["launches"]) == ("ran", 0)


def test_an_error_on_the_device_cannot_be_caught(labels: dict[str, dict[str, Any]]) -> None:
    assert labels["SWALLOWED"]["status"] == "raised"
    assert labels["SWALLOWED"]["message"].startswith("out_of_bounds: ")


def test_what_the_compiler_refuses_raises(labels: dict[str, dict[str, Any]]) -> None:
    assert (labels["REFUSED"]["status"], labels["REFUSED"]["launches"]) == ("raised", 1)
    assert labels["REFUSED"]["message"].startswith(
        "CompilationError: arange's range must be a power of 2"
    )


def test_a_load_out_of_bounds_raises(labels: dict[str, dict[str, Any]]) -> None:
    assert labels["BEYOND"]["status"] == "raised"
    assert labels["BEYOND"]["message"].startswith("out_of_bounds: load at 0x…")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("HUGE", "no_inputs_found: device_memory: "),
        ("ASSEMBLY", "inline_asm: "),
        ("CONFIG", "no_inputs_found: AttributeError: 'Tensor' object has no attribute"),
        ("BROKEN", "not_loaded: cannot be loaded: ModuleNotFoundError: "),
    ],
)
def test_what_cannot_be_run_is_kept_with_the_reason(
    labels: dict[str, dict[str, Any]], name: str, reason: str
) -> None:
    assert labels[name]["status"] == "unsupported"
    assert labels[name]["message"].startswith(reason)
    assert labels[name]["deterministic"] is labels[name]["mutated_inputs"] is None


@pytest.mark.slow
def test_what_does_not_end_is_kept_with_the_reason() -> None:
    loop, kernel = [after["kernel"]["run"] for after in run([row(n, text(n)) for n in ENDLESS])]
    assert (loop["status"], loop["launches"]) == ("unsupported", 0)
    assert loop["message"].startswith("out_of_time: ")
    assert (kernel["status"], kernel["launches"]) == ("unsupported", 1)
    assert kernel["message"].startswith("too_much_work: ")


def test_a_row_without_a_wrapper_has_no_run(labels: dict[str, dict[str, Any]]) -> None:
    assert labels["NONE"] is None


# --- reading --------------------------------------------------------------------------------

READ = """
@triton.jit
def kernel(x_ptr, W, n, stride, BLOCK: tl.constexpr):
    W += tl.program_id(0) * stride
    rows = W + tl.arange(0, BLOCK)
    tl.store(x_ptr + tl.arange(0, BLOCK), tl.load(rows))


def inner(a, b):
    M, K = a.shape
    N = b.size(-1)
    kernel[(1,)](a, b, n=K, stride=1, BLOCK=16)


def outer(q, k, v, x, w, mode="sum"):
    B, T, H, D, E = *q.shape, v.shape[-1]
    assert k.ndim == 3
    if mode == "mean":
        pass
    inner(x, w)
"""


def test_a_wrappers_text_shows_ranks_sizes_and_types() -> None:
    reading = HostFunctionReading(READ, {"x_ptr": "*fp16"})
    known = reading.parameters("outer")
    assert (known["q"].rank, known["q"].dims) == (4, {0: "B", 1: "T", 2: "H", 3: "D"})
    assert (known["k"].rank, known["v"].least_rank) == (3, 1)
    assert (known["x"].rank, known["x"].kind) == (2, "*fp16")
    assert known["w"].tensor and known["w"].dims == {-1: "N"}
    assert reading.literals("outer") == {"mode": ["mean"]}
    assert reading.launchers() == ["inner", "outer"]


def test_a_kernels_pointers_are_those_that_it_adds_to() -> None:
    known = HostFunctionReading(READ, {}).parameters("kernel")
    assert [name for name, found in known.items() if found.tensor] == ["x_ptr", "W"]
    assert [name for name, found in known.items() if found.kind == "constexpr"] == ["BLOCK"]


def test_an_error_concerns_the_arguments_of_its_statement() -> None:
    reading = HostFunctionReading(READ, {})
    line = READ.splitlines().index("    N = b.size(-1)") + 1
    assert reading.concerned("inner", line) == ({"b"}, "N = b.size(-1)")
    assert reading.concerned("outer", line)[0] == set()


def test_unknown_tensors_are_made_like_the_largest_known() -> None:
    known = HostFunctionReading(READ, {}).parameters("outer")
    first = scales(known.values())[0]
    assert first == Scale(4, None, ("B", "T", "H", "D"))
    assert first.shape(4, {}) == first.shape(4, known["q"].dims)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool", "int32", "float8_e4m3fn"])
@pytest.mark.parametrize("shape", [[], [4], [2, 16]])
def test_tensors_are_what_they_say(shape: list[int], dtype: str) -> None:
    import torch

    made = eval(tensor(shape, dtype), {"torch": torch})
    assert (list(made.shape), made.dtype) == (shape, getattr(torch, dtype))
