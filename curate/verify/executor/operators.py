"""ATen operators that a candidate's stream may ask for, and how their arguments are read."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from curate.verify.executor.operations import Unsupported
from curate.verify.wire import DTYPES, WireError

REFUSED = (
    "_cudnn", "cudnn", "miopen", "mkldnn", "_mkldnn", "from_file", "_nested", "_sparse", "sparse",
    "_pin", "pin_", "is_pinned", "record_stream", "set_", "resize", "_resize", "_coalesced",
    "quantize", "_fake_quantize", "fbgemm", "_foobar", "_test", "_cufft", "_mps", "_dim",
    "_version", "_has_same", "_reshape_alias_copy", "unsafe_chunk", "_debug", "_make_dep",
    "storage", "_backward_hook", "data",
)  # fmt: skip
"""Starts of names of operators that touch files, a device's libraries, or a tensor's storage."""

UNCHECKED = {"aten::_unsafe_index.Tensor": "aten::index.Tensor"}
"""Operators that do not look whether an index is inside, and those that do."""


@functools.lru_cache(maxsize=4096)
def find_operator(name: str) -> Callable[..., Any]:
    """Return the operator of a name such as ``aten::add.Tensor``.

    Raises:
        Unsupported: it is not one that may be called.
    """
    name = UNCHECKED.get(name, name)
    space, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    if space not in ("aten", "prims") or packet.lstrip("_").startswith("backward_"):
        raise Unsupported("operator", f"{name} is not called here")
    if any(packet.startswith(word) for word in REFUSED):
        raise Unsupported("operator", f"{name} is not called here")
    try:
        operator = getattr(getattr(getattr(torch.ops, space), packet), overload or "default")
    except (AttributeError, RuntimeError) as error:
        raise Unsupported("operator", f"{name} is not known here") from error
    if not isinstance(operator, torch._ops.OpOverload):
        raise Unsupported("operator", f"{name} is not known here")
    for argument in operator._schema.arguments:
        kind = str(argument.type)
        if any(word in kind for word in ("Storage", "Stream", "__torch__", "Future", "Any")):
            raise Unsupported("operator", f"{name} takes a {kind}")
    found: Callable[..., Any] = operator
    return found


def read_value(value: Any, tensor: Callable[[Any], torch.Tensor], depth: int = 0) -> Any:
    """Return an argument that the host half packed; see `curate.verify.host_half.stream.pack`.

    Raises:
        WireError: it is not of that form.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if depth > 6 or not isinstance(value, dict) or len(value) != 1:
        raise WireError("not an argument")
    ((kind, content),) = value.items()
    if kind == "t":
        return tensor(content)
    if kind == "l" and isinstance(content, list):
        return [read_value(item, tensor, depth + 1) for item in content]
    if kind == "f" and content in ("inf", "-inf", "nan"):
        return float(content)
    if kind == "c" and isinstance(content, list) and len(content) == 2:
        return complex(*map(float, content))
    if kind == "d" and isinstance(content, str) and content in DTYPES:
        return DTYPES[content]
    if kind == "m" and isinstance(content, str) and content in MEMORY_FORMATS:
        return MEMORY_FORMATS[content]
    if kind == "device":
        return torch.device("cpu")
    if kind == "layout":
        return torch.strided
    raise WireError(f"an argument of unknown kind {str(kind)[:20]!r}")


MEMORY_FORMATS = {
    str(form).removeprefix("torch."): form
    for form in (
        torch.contiguous_format,
        torch.preserve_format,
        torch.channels_last,
        torch.channels_last_3d,
    )
}
