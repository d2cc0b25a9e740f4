"""What a program's host functions keep from one call to the next, as a digest.

Only what can be told apart by value counts: numbers, text, tensors on the host, how far an
iterator has come. Memory of the device is the executor's account.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import itertools
import types
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import numpy as np
import torch
import triton.language
from torch import nn
from triton.runtime.jit import JITFunction

from curate.verify.host_half.handles import Handle

MOST = 20_000
"""Objects that are looked at."""

FEW = 4096
"""Values of a tensor or text that are looked at."""

PLAIN = (int, float, complex, str, bytes, bool, bytearray, range, type(None))

KERNEL = frozenset(vars(triton.language.sigmoid))
"""What a kernel has without a program's doing."""

ITERATORS: tuple[type, ...] = tuple(
    {type(made) for made in (iter([]), iter(()), iter(""), iter(range(1)), iter({}), iter(set()))}
    | {type(enumerate([])), itertools.count, itertools.cycle, itertools.chain, itertools.islice}
)


def kept_state(namespace: dict[str, Any], *others: Any) -> str:
    """Return a digest of what is reached from a program's module and from other objects of it.

    Equal states have equal digests, whatever addresses their objects have.

    Args:
        namespace: the module's.
        others: what else holds a state, as its model does.
    """
    own = str(namespace.get("__name__"))
    found = hashlib.sha256()
    waiting: deque[Any] = deque([{k: v for k, v in namespace.items() if k[:2] != "__"}, *others])
    seen: dict[int, Any] = {}  # holds what it has seen, so that no address is used twice
    while waiting and len(seen) < MOST:
        value = waiting.popleft()
        if isinstance(value, PLAIN):
            found.update(f"{type(value).__name__}:{value!r:.{FEW}}".encode(errors="replace"))
            continue
        if id(value) in seen:
            continue
        seen[id(value)] = value
        told, inside = _look(value, own)
        found.update(f"{type(value).__name__}:{told}".encode(errors="replace"))
        waiting.extend(inside)
    return found.hexdigest()


def _look(value: Any, own: str) -> tuple[str, Iterable[Any]]:
    """Return what an object says of itself, and the objects in it."""
    if isinstance(value, Handle):
        return "", ()
    if isinstance(value, torch.Tensor):
        on_host = value.device.type == "cpu" and value.numel() <= FEW
        return f"{value.tolist()}" if on_host else "", ()
    if isinstance(value, np.ndarray):
        return f"{value.tolist()}" if value.size <= FEW else "", ()
    if isinstance(value, dict):
        return str(len(value)), [part for item in value.items() for part in item]
    if isinstance(value, list | tuple | set | frozenset | deque):
        return str(len(value)), list(value)
    if isinstance(value, types.FunctionType) and value.__module__ == own:
        cells = [cell.cell_contents for cell in value.__closure__ or () if _is_full(cell)]
        return "", [value.__dict__, value.__defaults__, value.__kwdefaults__, *cells]
    if isinstance(value, types.MethodType):
        return "", [value.__self__, value.__func__]
    if isinstance(value, types.GeneratorType):
        return str(value.gi_frame and value.gi_frame.f_lasti), [inspect.getgeneratorlocals(value)]
    if isinstance(value, ITERATORS):
        with suppress(TypeError, ValueError):
            return "", [part for part in value.__reduce__() if not callable(part)]
        return "", ()
    if isinstance(value, JITFunction):
        return "", [{k: v for k, v in vars(value).items() if k not in KERNEL}]
    if isinstance(value, type):
        return "", [dict(vars(value))] if value.__module__ == own else ()
    if isinstance(value, nn.Module) or type(value).__module__ == own:
        return "", [getattr(value, "__dict__", None)]
    if isinstance(value, functools._lru_cache_wrapper):
        return str(value.cache_info().currsize), [value.__wrapped__]
    return "", ()


def _is_full(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False
