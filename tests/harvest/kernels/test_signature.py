from __future__ import annotations

import json
from importlib.metadata import version
from typing import Any

import pytest

from curate.harvest.kernels.dataflow import read_kernel
from curate.harvest.kernels.signature import Signature
from curate.rows import KERNEL, Row, make_origin, make_row
from curate.step import Context, Drop, Keep

HEAD = "import torch\nimport triton\nimport triton.language as tl\n\n\n"

OFFSETS = "    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"

# Each kernel has one trap, and what its signature must say of the parameters concerned: a type,
# or the value of a constant.
KERNELS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": (
        "@triton.jit\ndef k(x_ptr, y_ptr, n, BLOCK: tl.constexpr):\n" + OFFSETS
        + "    tl.store(y_ptr + o, tl.load(x_ptr + o, mask=o < n), mask=o < n)\n",
        {"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32"},
    ),
    "names_tell_nothing": (
        "@triton.jit\ndef k(a, b, c, d: tl.constexpr):\n"
        "    o = tl.program_id(0) * d + tl.arange(0, d)\n"
        "    tl.store(b + o, tl.load(a + o, mask=o < c), mask=o < c)\n",
        {"a": "*fp32", "b": "*fp32", "c": "i32"},
    ),
    "pointer_is_the_second_summand": (
        "@triton.jit\ndef k(n, data, BLOCK: tl.constexpr):\n" + OFFSETS
        + "    tl.store(n * 2 + data + o, o)\n",
        {"n": "i32", "data": "*fp32"},
    ),
    "optional_pointer": (
        "@triton.jit\ndef k(x_ptr, b_ptr, y_ptr, BLOCK: tl.constexpr):\n" + OFFSETS
        + "    x = tl.load(x_ptr + o)\n    if b_ptr is not None:\n"
        "        x += tl.load(b_ptr + o)\n    tl.store(y_ptr + o, x)\n",
        {"b_ptr": "*fp32"},
    ),
    "stride_times_loaded_index": (
        "@triton.jit\ndef k(x_ptr, which_ptr, y_ptr, pitch, BLOCK: tl.constexpr):\n" + OFFSETS
        + "    row = tl.load(which_ptr + o)\n"
        "    tl.store(y_ptr + o, tl.load(x_ptr + row * pitch))\n",
        {"which_ptr": "*i32", "pitch": "i32"},
    ),
    "float_scalar": (
        "@triton.jit\ndef k(x_ptr, by, eps, BLOCK: tl.constexpr):\n" + OFFSETS
        + "    tl.store(x_ptr + o, tl.load(x_ptr + o) * by + eps)\n",
        {"by": "fp32", "eps": "fp32"},
    ),
    "dtype_constant": (
        "@triton.jit\ndef k(x_ptr, KIND: tl.constexpr, BLOCK: tl.constexpr):\n" + OFFSETS
        + "    tl.store(x_ptr + o, tl.load(x_ptr + o).to(KIND))\n",
        {"KIND": {"dtype": "fp32"}},
    ),
    "string_constant": (
        "@triton.jit\ndef k(x_ptr, ACT: tl.constexpr, BLOCK: tl.constexpr):\n" + OFFSETS
        + "    x = tl.load(x_ptr + o)\n    tl.static_assert(ACT == 'relu' or ACT == 'abs')\n"
        "    tl.store(x_ptr + o, tl.maximum(x, 0.0) if ACT == 'relu' else tl.abs(x))\n",
        {"ACT": "relu"},
    ),
    "flag_that_must_be_set": (
        "@triton.jit\ndef k(x_ptr, A: tl.constexpr, USE_B: tl.constexpr, BLOCK: tl.constexpr):\n"
        + OFFSETS
        + "    if USE_B:\n        x = tl.load(x_ptr + o)\n    tl.store(x_ptr + o, x)\n",
        {"USE_B": True},
    ),
    "tuple_constant": (
        "@triton.jit\ndef k(x_ptr, SIZES: tl.constexpr, BLOCK: tl.constexpr):\n" + OFFSETS
        + "    tl.store(x_ptr + o, 1.0, mask=o < SIZES[0] * SIZES[1])\n",
        {"SIZES": [32] * 8},
    ),
    "dot": (
        "@triton.jit\ndef k(a_ptr, b_ptr, c_ptr, M: tl.constexpr, N: tl.constexpr, "
        "K: tl.constexpr):\n"
        "    m, n, i = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)\n"
        "    a = tl.load(a_ptr + m[:, None] * K + i[None, :])\n"
        "    b = tl.load(b_ptr + i[:, None] * N + n[None, :])\n"
        "    tl.store(c_ptr + m[:, None] * N + n[None, :], tl.dot(a, b))\n",
        {"M": 32, "K": 32},
    ),
    "dot_of_halves": (
        "@triton.jit\ndef k(a_ptr, b_ptr, c_ptr, N: tl.constexpr):\n"
        "    o = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]\n"
        "    a = tl.load(a_ptr + o).to(tl.float16)\n"
        "    tl.store(c_ptr + o, tl.dot(a, tl.load(b_ptr + o)))\n",
        {"b_ptr": "*fp16"},
    ),
    "atomic": (
        "@triton.jit\ndef k(x_ptr, sum_ptr, BLOCK: tl.constexpr):\n" + OFFSETS
        + "    tl.atomic_add(sum_ptr, tl.sum(tl.load(x_ptr + o)))\n",
        {"sum_ptr": "*fp32"},
    ),
    "mask_loaded": (
        "@triton.jit\ndef k(x_ptr, keep, BLOCK: tl.constexpr):\n" + OFFSETS
        + "    tl.store(x_ptr + o, 0.0, mask=tl.load(keep + o))\n",
        {"keep": "*i1"},
    ),
    "packed_bits": (
        "@triton.jit\ndef k(q, y_ptr, BLOCK: tl.constexpr):\n" + OFFSETS
        + "    tl.store(y_ptr + o, ((tl.load(q + o) >> 4) & 15).to(tl.float32))\n",
        {"q": "*i32"},
    ),
    "addresses_in_memory": (
        "@triton.jit\ndef k(table, BLOCK: tl.constexpr):\n" + OFFSETS
        + "    x = tl.load(table + tl.program_id(0)).to(tl.pointer_type(tl.float32))\n"
        "    tl.store(x + o, 0.0)\n",
        {"table": "*i64"},
    ),
    "autotuned": (
        "@triton.autotune(configs=[triton.Config({'BLOCK': 256}, num_warps=8)], key=['n'])\n"
        "@triton.jit\ndef k(x_ptr, n, BLOCK: tl.constexpr):\n" + OFFSETS
        + "    tl.store(x_ptr + o, 0.0, mask=o < n)\n",
        {"BLOCK": 256},
    ),
    "heuristics": (
        "@triton.heuristics({'HAS_B': lambda args: args['b_ptr'] is not None})\n"
        "@triton.jit\ndef k(x_ptr, b_ptr, HAS_B: tl.constexpr, BLOCK: tl.constexpr):\n" + OFFSETS
        + "    if HAS_B:\n        tl.store(x_ptr + o, tl.load(b_ptr + o))\n",
        {"HAS_B": True},
    ),
    "libdevice": (
        "from triton.language.extra import libdevice\n\n\n"
        "@triton.jit\ndef k(x_ptr, BLOCK: tl.constexpr):\n" + OFFSETS
        + "    tl.store(x_ptr + o, libdevice.tanh(tl.load(x_ptr + o)))\n",
        {"x_ptr": "*fp32"},
    ),
    "block_pointer": (
        "@triton.jit\ndef k(x, rows, cols, s0, s1, BLOCK: tl.constexpr):\n"
        "    p = tl.make_block_ptr(x, (rows, cols), (s0, s1), (0, 0), (BLOCK, BLOCK), (1, 0))\n"
        "    tl.store(p, tl.load(p, boundary_check=(0, 1)) + 1, boundary_check=(0, 1))\n",
        {"x": "*fp32", "rows": "i32", "BLOCK": 32},
    ),
    "descriptor_made_inside": (
        "@triton.jit\ndef k(x, rows, cols, BLOCK: tl.constexpr):\n"
        "    d = tl.make_tensor_descriptor(x, [rows, cols], [cols, 1], [BLOCK, BLOCK])\n"
        "    d.store([0, 0], d.load([0, 0]) + 1)\n",
        {"x": "*fp32", "cols": "i32"},
    ),
    "descriptor_given": (
        "@triton.jit\ndef k(d, y, M_BLOCK: tl.constexpr, N_BLOCK: tl.constexpr):\n"
        "    x = d.load([tl.program_id(0) * M_BLOCK, tl.program_id(1) * N_BLOCK])\n"
        "    tl.store(y + tl.arange(0, M_BLOCK), tl.sum(x, axis=1))\n",
        {"d": "tensordesc<fp16[32, 32]>"},
    ),
    "helper_takes_pointer": (
        "@triton.jit\ndef put(p, o, size):\n    tl.store(p + o, 0.0, mask=o < size)\n\n\n"
        "@triton.jit\ndef k(x, n, BLOCK: tl.constexpr):\n" + OFFSETS
        + "    put(size=n, p=x, o=o)\n",
        {"x": "*fp32", "n": "i32"},
    ),
    "not_specialized": (
        "@triton.jit(do_not_specialize=['n'])\ndef k(x_ptr, n, BLOCK: tl.constexpr = 64):\n"
        + OFFSETS + "    tl.store(x_ptr + o, 0.0, mask=o < n)\n",
        {"n": "i32", "BLOCK": 64},
    ),
    "fp8": (
        "@triton.jit\ndef k(x_ptr, y_ptr, BLOCK: tl.constexpr):\n" + OFFSETS
        + "    x = tl.load(x_ptr + o).to(tl.float8e4nv, bitcast=True)\n"
        "    tl.store(y_ptr + o, x.to(tl.float32))\n",
        {"x_ptr": "*u8"},
    ),
}  # fmt: skip


def row(source: str, launches: list[dict[str, Any]] | None = None) -> Row:
    kernel = dict.fromkeys(field.name for field in KERNEL) | {
        "launches": launches and json.dumps(launches)
    }
    return make_row(
        "kernel", source, make_origin("local"), triton=source, entry_point="k", kernel=kernel
    )


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory) -> Signature:
    found = Signature(step="signature", dtypes=())
    cache = str(tmp_path_factory.mktemp("cache"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.gettempdir", lambda: cache)
        found.setup(Context())
    return found


def found(step: Signature, given: Row) -> dict[str, Any]:
    outcome = step.apply(given, Context())
    assert isinstance(outcome, Keep), outcome
    kernel: dict[str, Any] = outcome.rows[0]["kernel"]
    return kernel | {"signature": json.loads(kernel["signature"])}


@pytest.mark.parametrize("name", KERNELS)
def test_signature_of(name: str, step: Signature) -> None:
    if name == "block_pointer" and version("triton") >= "3.9":
        pytest.skip("Triton 3.9 has no block pointers")
    source, expected = KERNELS[name]
    signature = found(step, row(HEAD + source))["signature"]
    for parameter, value in expected.items():
        kind = signature["types"][parameter]
        assert (signature["constants"][parameter] if kind == "constexpr" else kind) == value


def test_attempts_and_how_it_was_found(step: Signature) -> None:
    plain = found(step, row(HEAD + KERNELS["plain"][0]))
    assert (plain["found_by"], plain["attempts"]) == ("data_flow", 1)
    mended = found(step, row(HEAD + KERNELS["flag_that_must_be_set"][0]))
    assert mended["found_by"] == "search"
    assert 1 < mended["attempts"] <= step.attempts


def site(**arguments: tuple[str, str | None, Any]) -> dict[str, Any]:
    keys = ("kind", "dtype", "value")
    given = {name: dict(zip(keys, hint, strict=True)) for name, hint in arguments.items()}
    return {"path": "a.py", "line": 1, "arguments": given, "options": {"num_warps": 2}}


def test_launch_site_decides(step: Signature) -> None:
    launch = site(x_ptr=("tensor", "bfloat16", None), BLOCK=("int", None, 512))
    kernel = found(step, row(HEAD + KERNELS["plain"][0], [launch]))
    assert kernel["found_by"] == "launch_site"
    assert kernel["signature"]["types"]["x_ptr"] == "*bf16"
    assert kernel["signature"]["constants"] == {"BLOCK": 512}
    assert kernel["signature"]["num_warps"] == 2


def test_launch_site_that_gives_none(step: Signature) -> None:
    launch = site(b_ptr=("none", None, None))
    kernel = found(step, row(HEAD + KERNELS["optional_pointer"][0], [launch]))
    assert kernel["signature"]["constants"]["b_ptr"] is None
    assert kernel["signature"]["types"]["b_ptr"] == "constexpr"


def test_launch_site_misread_is_not_trusted(step: Signature) -> None:
    launch = site(BLOCK=("int", None, 100))
    kernel = found(step, row(HEAD + KERNELS["plain"][0], [launch]))
    assert (kernel["found_by"], kernel["attempts"]) == ("data_flow", 2)


def test_dtypes_are_those_that_compile(step: Signature) -> None:
    source = HEAD + (
        "@triton.jit\ndef k(x_ptr, BLOCK: tl.constexpr):\n" + OFFSETS
        + "    tl.store(x_ptr + o, tl.exp(tl.load(x_ptr + o)))\n"
    )  # fmt: skip
    every = step.model_copy(update={"dtypes": ("fp32", "fp16", "bf16")})
    assert found(every, row(source))["dtypes"] == ["fp32"]  # tl.exp takes no other
    assert found(every, row(HEAD + KERNELS["plain"][0]))["dtypes"] == ["fp32", "fp16", "bf16"]


def test_kernel_that_cannot_compile(step: Signature) -> None:
    source = HEAD + "@triton.jit\ndef k(x_ptr):\n    tl.store(x_ptr, tl.no_such_function(x_ptr))\n"
    outcome = step.apply(row(source), Context())
    assert isinstance(outcome, Drop)
    assert outcome.reason == "no_signature"
    assert "no_such_function" in outcome.evidence["first_message"]
    assert 1 < outcome.evidence["attempts"] <= step.attempts
    json.dumps(outcome.evidence)


def test_file_that_does_not_import(step: Signature) -> None:
    for source in ("import no_such_module\n", "k = 1\n"):
        outcome = step.apply(row(source), Context())
        assert isinstance(outcome, Drop)
        assert outcome.reason == "import_error"


def test_same_row_same_bytes(step: Signature) -> None:
    given = row(HEAD + KERNELS["dot_of_halves"][0])
    assert step.apply(given, Context()) == step.apply(given, Context())


def test_reading_enters_helpers_and_ends_on_recursion() -> None:
    source = "def f(p, n):\n    return f(p, n)\n\n\ndef k(p, n):\n    f(p, n)\n"
    assert list(read_kernel(source, "k").parameters) == ["p", "n"]
