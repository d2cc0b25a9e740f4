"""Arguments of launches, as the host half describes them and as a kernel takes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from curate.verify.protocol.places import TensorPlace, read_place
from curate.verify.protocol.wire import WireError

MAX_BYTES = 32764
"""Bytes that a kernel's parameters may have (CUDA C++ Programming Guide, "Function Parameters")."""


def read_launch_value(value: Any, address: Callable[[TensorPlace], int]) -> int | float | bool:
    """Return an argument of a Triton kernel; see `curate.verify.host_half.stream`.

    Args:
        value: a number; the words of one that is not finite; null; or ``{"t": place}``.
        address: gives that of a place.
    """
    if isinstance(value, dict):
        return address(read_place(value["t"]))
    if isinstance(value, str):
        return float(value)
    return 0 if value is None else value


def read_argument(value: Any, address: Callable[[TensorPlace], int]) -> bytes:
    """Return an argument of a CUDA kernel; see `curate.verify.host_half.cuda_launches`.

    Args:
        value: null; ``{"t": place}``; ``{"b": hexadecimal digits}``, of a number or a struct; or
            such bytes with ``"s": [[offset, place], …]``, which says where addresses go.
        address: gives that of a place.

    Raises:
        WireError: it is not of that form.
    """
    if value is None:
        return bytes(8)
    if not isinstance(value, dict):
        raise WireError("not an argument")
    if value.keys() == {"t"}:
        return address(read_place(value["t"])).to_bytes(8, "little")
    digits, places = value.get("b"), value.get("s", [])
    if not value.keys() <= {"b", "s"} or not isinstance(digits, str) or len(digits) > 2 * MAX_BYTES:
        raise WireError("not an argument")
    if not isinstance(places, list):
        raise WireError("not a list of places")
    try:
        packed = bytearray.fromhex(digits)
    except ValueError as error:
        raise WireError("not bytes") from error
    for one in places:
        if not isinstance(one, list) or len(one) != 2 or type(one[0]) is not int:
            raise WireError("not a place in a struct")
        at, place = one
        if not 0 <= at <= len(packed) - 8:
            raise WireError("an address outside its struct")
        packed[at : at + 8] = address(read_place(place)).to_bytes(8, "little")
    return bytes(packed)
