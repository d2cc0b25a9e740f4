"""What is read of a kernel's text, and how its arguments are packed, before a device sees them."""

from __future__ import annotations

import math
import socket
import struct
import threading
from collections.abc import Iterator

import pytest
import torch
import triton
import triton.language as tl

from curate.devices import find_device
from curate.verify.compile.lowering import Lowering
from curate.verify.compile.serve import Compiler, serve
from curate.verify.executor import ttir
from curate.verify.executor.cuda import argument_kinds, pack_number, specialised
from curate.verify.executor.launch import meets
from curate.verify.executor.memory import address_of, all_located, located
from curate.verify.protocol.role import Refusal, ask
from curate.verify.protocol.wire import Channel

ALIGNED = "{tt.divisibility = 16 : i32}"


@triton.jit
def add_scaled(at_ptr, x_ptr, n, most, scale, flag, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=(at < n) & (at < most) & flag)
    tl.atomic_add(at_ptr + at % 4, x * scale)


@pytest.fixture(scope="module")
def text() -> str:
    """Return the kernel's TTIR, as lowered for arguments of which 16 divides all but one."""
    x, other = torch.empty(64), torch.empty(64, dtype=torch.bfloat16)[1:]
    args = (x, other, 64, 2**40, 0.5, True)
    return Lowering(find_device("cuda:90")).lower(add_scaled, args, (1,), {"BLOCK": 64}).ttir


def test_the_types_of_arguments_are_those_of_the_text(text: str) -> None:
    assert argument_kinds(text) == ("ptr", "ptr", "i32", "i64", "f32", "i1")
    assert argument_kinds("module {\n tt.func public @no() {\n }\n}\n") == ()
    with pytest.raises(ttir.TTIRError, match="no public function"):
        argument_kinds("module {\n}\n")


@pytest.mark.parametrize("aligned", [(), (1,), (0, 2, 3)])
def test_a_kernel_is_specialised_on_what_is_known_and_no_more(
    text: str, aligned: tuple[int, ...]
) -> None:
    made = specialised(text, frozenset(aligned))
    assert made.count(ALIGNED) == len(aligned)
    header, _, body = made.partition("attributes")
    arguments = header.split("(")[1].split(", ")
    assert [i for i, argument in enumerate(arguments) if ALIGNED in argument] == list(aligned)
    assert body == text.partition("attributes")[2], "only the arguments change"
    assert argument_kinds(made) == argument_kinds(text)
    assert specialised(made, frozenset(aligned)) == made


@pytest.fixture
def compiler() -> Iterator[Channel]:
    """Yield a channel to a compiler, which serves in a thread."""
    own, other = socket.socketpair()
    served = threading.Thread(target=serve, args=(Channel(other),), daemon=True)
    served.start()
    yield Channel(own)
    own.close()
    served.join(10)


def test_what_is_specialised_compiles_to_a_cubin_that_takes_its_arguments(
    text: str, compiler: Channel
) -> None:
    made = specialised(text, frozenset((0, 1)))
    options = {"num_warps": 8, "enable_fp_fusion": True, "name of none": 3}
    target = find_device("cuda:90")
    cubin = ask(compiler, Compiler.cubin, "add_scaled", made, options, target)
    assert [size for _, size in cubin.parameters][:6] == [8, 8, 4, 8, 4, 1]
    assert bytes(cubin.image[:4].numpy()) == b"\x7fELF"
    assert (cubin.name, cubin.num_warps, cubin.num_ctas) == ("add_scaled", 8, 1)
    assert not cubin.cooperative and cubin.scratch[0] == 0


def test_a_kernel_that_a_device_cannot_hold_is_refused(text: str, compiler: Channel) -> None:
    with pytest.raises(Refusal, match="add_scaled for cuda:90") as refused:
        target = find_device("cuda:90")
        ask(compiler, Compiler.cubin, "add_scaled", text, {"num_warps": 64}, target)
    assert (refused.value.status, refused.value.reason) == ("compile_error", "threads")


@pytest.mark.parametrize(
    ("value", "kind", "size", "packed"),
    [
        (2**47 + 3, "ptr", 8, struct.pack("<Q", 2**47 + 3)),
        (-5, "i32", 4, struct.pack("<i", -5)),
        (2**32 - 1, "i32", 4, b"\xff" * 4),
        (-(2**63), "i64", 8, struct.pack("<q", -(2**63))),
        (True, "i1", 1, b"\x01"),
        (-1, "i8", 1, b"\xff"),
        (0.1, "f32", 4, struct.pack("<f", 0.1)),
        (3, "f64", 8, struct.pack("<d", 3.0)),
        (0.5, "f16", 2, struct.pack("<e", 0.5)),
        (-1.5, "bf16", 2, b"\xc0\xbf"),
        (-math.inf, "f32", 4, struct.pack("<f", -math.inf)),
        (1e300, "f32", 4, struct.pack("<f", math.inf)),
    ],
)
def test_numbers_are_packed_as_the_device_reads_them(
    value: float, kind: str, size: int, packed: bytes
) -> None:
    assert pack_number(value, kind, size) == packed


@triton.jit
def through_scratch(x_ptr, scratch_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    slot = scratch_ptr + tl.program_id(0) % 8 * BLOCK + at
    tl.store(slot, tl.load(x_ptr + at))
    tl.debug_barrier()
    tl.store(out_ptr + tl.program_id(0) * BLOCK + at, tl.load(slot))


def test_a_kernel_that_reads_what_it_writes_is_told_from_others(text: str) -> None:
    x = torch.empty(64)
    lowering = Lowering(find_device("cuda:90"))
    scratch = lowering.lower(through_scratch, (x, x.clone(), x.clone()), (1,), {"BLOCK": 64})
    assert meets(scratch.ttir) and not meets(text)


def test_addresses_that_a_program_sends_become_those_of_the_device() -> None:
    there = {3: 1 << 20, 5: 1 << 30}
    sent = [0, -7, 2**62, address_of(3), address_of(5) + 24, address_of(4) + 8]
    right = [0, -7, 2**62, 1 << 20, (1 << 30) + 24, address_of(4) + 8]
    assert [located(value, there.get) for value in sent] == right
    assert all_located(torch.tensor([sent]), there.get).tolist() == [right]
    numbers = torch.arange(9)
    assert all_located(numbers, there.get) is numbers
    floats = torch.rand(3)
    assert all_located(floats, there.get) is floats
