"""Handles: tensors that say that they are on a GPU and hold no numbers.

A handle wraps a tensor on PyTorch's device ``meta``, which knows sizes, strides and storages.
Operators on handles are worked out there and sent to the executor (`stream`); views cost nothing.

Uses private parts of PyTorch; tested with torch 2.11, 2.13 and 2.15.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import _tensor_str
from torch._library.custom_ops import OPDEFS
from torch._prims_common import suggest_memory_format
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

from curate.problem.operator_calls import Mode
from curate.verify.executor.memory import address_of
from curate.verify.host_half.stream import CommandStream

CUDA = torch.device("cuda", 0)
META = torch.device("meta")
aten = torch.ops.aten

VALUES = frozenset(
    {
        aten._local_scalar_dense.default,
        aten.is_nonzero.default,
        aten.equal.default,
        aten.allclose.default,
    }
)
"""Operators that return a plain value."""


class VirtualDevice:
    """The one device of this process."""

    stream: CommandStream | None = None

    @classmethod
    def get(cls) -> CommandStream:
        """Return the stream that commands go to."""
        if cls.stream is None:
            raise RuntimeError("CUDA error: no device is there before the program is loaded")
        return cls.stream


class Handle(torch.Tensor):  # type: ignore[misc]
    """A tensor on the GPU, as far as a program can see."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Handle:
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            layout=inner.layout,
            device=META,
        )
        made.inner = inner
        assert isinstance(made, Handle)
        return made

    @property
    def device(self) -> torch.device:
        return CUDA

    @property
    def is_cuda(self) -> bool:
        return True

    @property
    def is_meta(self) -> bool:
        return False

    @property
    def is_cpu(self) -> bool:
        return False

    def get_device(self) -> int:
        return 0

    def record_stream(self, stream: Any) -> None:
        """Do nothing: there is one stream."""

    def data_ptr(self) -> int:
        """Return an address in the executor's memory, which means nothing here."""
        place = VirtualDevice.get().place(self.inner)
        return address_of(place.storage) + place.start

    def __repr__(self, *args: Any, **kwargs: Any) -> str:
        shown = _tensor_str._str(self.cpu(), *args, **kwargs)
        return f"{shown[:-1]}, device='cuda:0')"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return dispatch(func, *args, **(kwargs or {}))


def unwrap(value: Any) -> Any:
    """Return a handle's inner tensor, and all else as it is."""
    return value.inner if isinstance(value, Handle) else value


def each(function: Callable[[Any], Any], value: Any) -> Any:
    """Return arguments or results of an operator with a function applied to each of them."""
    if isinstance(value, list | tuple):
        return type(value)([each(function, item) for item in value])
    if isinstance(value, dict):
        return {key: each(function, item) for key, item in value.items()}
    return function(value)


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return the tensors among arguments or results of an operator."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return []
    return [tensor for item in value for tensor in tensors_in(item)]


def wrap(value: Any) -> Any:
    """Return a handle of a tensor on ``meta``, and all else as it is."""
    if isinstance(value, torch.Tensor) and not isinstance(value, Handle) and value.is_meta:
        return Handle(value)
    return value


def is_gpu(device: Any) -> bool:
    """Say whether a device, as a program writes it, is the GPU."""
    if device is None:
        return False
    return isinstance(device, int) or torch.device(device).type in ("cuda", "meta")


def to_gpu(value: torch.Tensor) -> Handle:
    """Return a handle with the values of a tensor of this process."""
    with _disable_current_modes():
        plain = value.detach()
        inner = torch.empty_strided(plain.shape, plain.stride(), dtype=plain.dtype, device=META)
        VirtualDevice.get().upload(plain, inner)
        return Handle(inner)


def to_cpu(handle: Handle) -> torch.Tensor:
    """Return a handle's values."""
    with _disable_current_modes():
        return VirtualDevice.get().read(handle.inner)


def dispatch(func: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Do what an operator means for handles."""
    own = None if func.namespace in ("aten", "prims") else OPDEFS.get(func._schema.name)
    if own is not None:  # the program's own, by `torch.library.custom_op`: its Python does it
        body = own._backend_fns.get("cuda") or own._init_fn
        with OnDevice():
            return body(*args, **kwargs)
    with _disable_current_modes():
        return _dispatch(func, *args, **kwargs)


def _dispatch(func: Any, /, *args: Any, **kwargs: Any) -> Any:
    if func in EMPTY:
        return _allocate(func, *args, **kwargs)
    if func is aten._to_copy.default:
        device, *_ = [kwargs.pop(name, None) for name in ("device", "non_blocking", "pin_memory")]
        if (moved := _moved(device, *args, **kwargs)) is not None:
            return moved
    if func is aten.copy_.default and not all(isinstance(t, Handle) for t in args[:2]):
        return _copy(*args[:2])
    if func in VALUES:
        return func(*(to_cpu(a) if isinstance(a, Handle) else a for a in args), **kwargs)
    given = tensors_in((args, kwargs))
    _refuse_mixed(func, given)
    inner_args, inner_kwargs = each(unwrap, args), each(unwrap, kwargs)
    if inner_kwargs.get("device") is not None:
        inner_kwargs["device"] = META
    try:
        found = func(*each(_as_meta, inner_args), **each(_as_meta, inner_kwargs))
    except (NotImplementedError, RuntimeError) as error:
        if not _needs_values(func, error):
            raise
        return _ask(func, *inner_args, **inner_kwargs)
    if func is aten.convolution.default:
        found = _as_cudnn(inner_args, found)
    schema = func._schema
    writes = any(a.alias_info is not None and a.alias_info.is_write for a in schema.arguments)
    if not writes and any(r.alias_info is not None for r in schema.returns):
        return each(wrap, found)  # a view
    return _run(func, given, inner_args, inner_kwargs, found)


def _as_cudnn(args: Any, found: torch.Tensor) -> torch.Tensor:
    """Return a convolution's result with channels last if its input or its weight has them so."""
    formats = {suggest_memory_format(tensor) for tensor in args[:2]} - {torch.contiguous_format}
    return torch.empty_like(found, memory_format=formats.pop()) if formats else found


def _run(
    func: Any, given: list[torch.Tensor], inner_args: Any, inner_kwargs: Any, found: Any
) -> Any:
    """Send an operator, and return its results: handles, of which some may be arguments."""
    arguments = {id(t.inner): t for t in given if isinstance(t, Handle)}
    results = tensors_in(found)
    outs = [None if id(t) in arguments else t for t in results]
    name = func._schema.name + (f".{o}" if (o := func._overloadname) != "default" else "")
    VirtualDevice.get().operator(name, inner_args, inner_kwargs, outs)

    def handle(value: Any) -> Any:
        return arguments[id(value)] if id(value) in arguments else wrap(value)

    return each(handle, found)


EMPTY = frozenset(
    {
        aten.empty.memory_format,
        aten.empty_like.default,
        aten.empty_strided.default,
        aten.new_empty.default,
        aten.new_empty_strided.default,
        aten.empty_permuted.default,
    }
)
"""Operators that only allocate."""


def _allocate(func: Any, /, *args: Any, **kwargs: Any) -> Handle:
    if kwargs.get("device") is not None:
        kwargs["device"] = META
    made = func(*(unwrap(value) for value in args), **kwargs)
    VirtualDevice.get().storage(made)
    return Handle(made)


def _moved(device: Any, source: torch.Tensor, **kwargs: Any) -> torch.Tensor | None:
    """Return the copy that ``to`` makes between devices, or None on one."""
    if isinstance(source, Handle):
        if device is None or is_gpu(device):
            return None
        value = to_cpu(source)
        return aten._to_copy.default(value, **kwargs) if kwargs else value
    if not is_gpu(device):
        return None
    as_it_is = source.is_contiguous() and kwargs.get("dtype") in (None, source.dtype)
    if as_it_is and kwargs.get("memory_format") in (None, torch.preserve_format):
        return to_gpu(source)  # and no copy of gigabytes
    return to_gpu(aten._to_copy.default(source, **kwargs) if kwargs else source)


def _copy(target: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    if isinstance(target, Handle):
        return target.copy_(to_gpu(source))
    assert isinstance(source, Handle)
    return target.copy_(to_cpu(source))


def _as_meta(value: Any) -> Any:
    """Return what an operator on ``meta`` takes in place of a tensor of this process."""
    if isinstance(value, torch.Tensor) and not value.is_meta and value.ndim:
        return value.to(META)
    return value


def _refuse_mixed(func: Any, tensors: list[torch.Tensor]) -> None:
    """Raise what PyTorch raises for operators on two devices."""
    here = [t for t in tensors if not isinstance(t, Handle) and t.ndim]
    if here and len(here) < len(tensors) and not func._schema.name.startswith("aten::index"):
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            "cuda:0 and cpu!"
        )


def _needs_values(func: Any, error: Exception) -> bool:
    """Say whether an operator failed on ``meta`` because sizes depend on values."""
    return isinstance(error, NotImplementedError) or "meta" in str(error).lower()


def _ask(func: Any, /, *args: Any, **kwargs: Any) -> Any:
    name = func._schema.name + (f".{o}" if (o := func._overloadname) != "default" else "")
    found = [Handle(tensor) for tensor in VirtualDevice.get().ask(name, args, kwargs)]
    if len(func._schema.returns) == 1 and str(func._schema.returns[0].type) == "Tensor":
        return found[0]
    return tuple(found)


class OnDevice(Mode):
    """Makes handles of what is created on the GPU."""

    def call(self, func: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Send an operator to the GPU if it makes something there or is given something there."""
        device = kwargs.get("device")
        if is_gpu(device) or any(isinstance(t, Handle) for t in tensors_in((args, kwargs))):
            return dispatch(func, *args, **kwargs)
        return func(*args, **kwargs)


class DriverCalls(TorchFunctionMode):  # type: ignore[misc]
    """Answers calls that PyTorch would answer with the help of a driver."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        special = SPECIAL.get(getattr(func, "__name__", ""))
        if special is None and not kwargs:
            return func(*args)
        kwargs = dict(kwargs or {})
        if special is not None:
            found = special(func, *args, **kwargs)
            if found is not NotImplemented:
                return found
        if kwargs.get("device") is not None and is_gpu(kwargs["device"]):
            kwargs["device"] = META
        if isinstance(kwargs.get("generator"), torch.Generator):
            del kwargs["generator"]
        return func(*args, **kwargs)


def _to(func: Any, /, *args: Any, **kwargs: Any) -> Any:
    """`Tensor.to`, with the device by position."""
    given = [META if isinstance(a, str | torch.device) and is_gpu(a) else a for a in args[1:]]
    if kwargs.get("device") is not None and is_gpu(kwargs["device"]):
        kwargs["device"] = META
    return func(args[0], *given, **kwargs)


def _tensor(func: Any, /, *args: Any, **kwargs: Any) -> Any:
    """`torch.tensor` and the like: made here, and sent."""
    device = kwargs.get("device")
    if device is None or not is_gpu(device) or (args and isinstance(args[0], Handle)):
        return NotImplemented
    made = func(*args, **{**kwargs, "device": "cpu"})
    return made.to(META)


def _numpy(func: Any, /, *args: Any, **kwargs: Any) -> Any:
    if not isinstance(args[0], Handle):
        return NotImplemented
    raise TypeError(
        "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to "
        "host memory first."
    )


def _set(func: Any, /, *args: Any, **kwargs: Any) -> Any:
    """``tensor.data = other``."""
    if func == torch.Tensor.data.__set__ and all(isinstance(t, Handle) for t in args):
        func(*args)
        args[0].inner = args[1].inner
        return None
    return NotImplemented


SPECIAL: dict[str, Callable[..., Any]] = {
    "cuda": lambda func, x, *args, **kwargs: x if isinstance(x, Handle) else x.to(META),
    "to": _to,
    "tensor": _tensor,
    "as_tensor": _tensor,
    "asarray": _tensor,
    "tolist": lambda func, x: to_cpu(x).tolist() if isinstance(x, Handle) else NotImplemented,
    "numpy": _numpy,
    "__set__": _set,
    "__array__": _numpy,
    "pin_memory": lambda func, x, *args, **kwargs: x,
}


@contextlib.contextmanager
def on_device(stream: CommandStream) -> Iterator[None]:
    """Let programs find a GPU, whose work goes to a stream."""
    VirtualDevice.stream = stream
    with DriverCalls(), OnDevice():
        yield
