"""Tensors as the two halves name them: a storage's number, a type, sizes, strides, an offset.

A description that comes from the host half is untrusted: it is checked here before any memory is
touched.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from curate.verify.protocol.wire import DTYPES, WireError

MAX_RANK = 64


@dataclass(frozen=True)
class TensorPlace:
    """Where a tensor's elements lie.

    Attributes:
        storage: number of the storage.
        dtype: type of the elements.
        shape, stride: in elements.
        offset: of the first element, in elements.
    """

    storage: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return int(self.dtype.itemsize)

    @property
    def start(self) -> int:
        """Bytes of its storage before its first element."""
        return self.offset * self.itemsize

    @property
    def extent(self) -> int:
        """Bytes of its storage from the start to behind its last element."""
        if not math.prod(self.shape):
            return self.start
        last = sum((size - 1) * step for size, step in zip(self.shape, self.stride, strict=True))
        return self.start + (last + 1) * self.itemsize

    @property
    def is_contiguous(self) -> bool:
        """Whether its elements lie one after the other."""
        step = 1
        for size, stride in zip(reversed(self.shape), reversed(self.stride), strict=True):
            if size > 1 and stride != step:
                return not math.prod(self.shape)
            step *= size
        return True

    def to_json(self) -> list[Any]:
        """Return the place as JSON values."""
        name = str(self.dtype).removeprefix("torch.")
        return [self.storage, name, list(self.shape), list(self.stride), self.offset]

    @classmethod
    def from_json(cls, value: Any) -> TensorPlace:
        """Return the place that JSON values describe."""
        return read_place(value)


def place_of(tensor: torch.Tensor, storage: int) -> TensorPlace:
    """Return where a tensor lies, given its storage's number."""
    return TensorPlace(
        storage, tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset()
    )


MOST_ELEMENTS = 2**20
"""Of a place up to which it is looked at one by one; a larger one only meets its like."""


def overlap(places: Iterable[TensorPlace], others: Iterable[TensorPlace] = ()) -> bool:
    """Say whether an element of one place is one of another, too, or of one of the others."""
    by_storage: dict[int, tuple[list[TensorPlace], list[TensorPlace]]] = {}
    for number, few in enumerate((places, others)):
        for place in few:
            by_storage.setdefault(place.storage, ([], []))[number].append(place)
    return any(
        _meet(*pair)
        for own, beside in by_storage.values()
        for pair in (*itertools.combinations(own, 2), *itertools.product(own, beside))
    )


def _meet(one: TensorPlace, other: TensorPlace) -> bool:
    if one == other or one.extent <= other.start or other.extent <= one.start:
        return one == other and one.extent > one.start
    if max(math.prod(one.shape), math.prod(other.shape)) > MOST_ELEMENTS:
        return False
    return bool(torch.isin(_starts(one), _starts(other)).any())


def _starts(place: TensorPlace) -> torch.Tensor:
    """Return the bytes of its storage before each element."""
    starts = torch.tensor(place.start)
    for size, step in zip(place.shape, place.stride, strict=True):
        starts = starts[..., None] + step * place.itemsize * torch.arange(size)
    return starts.reshape(-1)


def read_place(value: Any) -> TensorPlace:
    """Return the place that JSON values describe.

    Raises:
        WireError: they describe none.
    """
    if not isinstance(value, list) or len(value) != 5:
        raise WireError("not a place")
    storage, name, shape, stride, offset = value
    numbers = [storage, offset]
    for part in (shape, stride):
        if not isinstance(part, list) or len(part) > MAX_RANK:
            raise WireError("not a shape")
        numbers += part
    if any(type(n) is not int or not 0 <= n < 2**48 for n in numbers) or len(shape) != len(stride):
        raise WireError("not a place")
    if not isinstance(name, str) or name not in DTYPES:
        raise WireError("not a type")
    return TensorPlace(storage, DTYPES[name], tuple(shape), tuple(stride), offset)


def places_in(value: Any) -> Iterator[list[Any]]:
    """Yield the descriptions of places among a command's arguments, which may be anything."""
    if isinstance(value, list) and len(value) == 5 and isinstance(value[1], str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from places_in(item)
