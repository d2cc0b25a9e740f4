"""ATen operators that a stream may ask for; how their arguments are read, and those of launches."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from curate.verify.executor.memory import located
from curate.verify.executor.operations import UnsupportedOperation
from curate.verify.protocol.places import TensorPlace, read_place
from curate.verify.protocol.wire import DTYPES, WireError

REFUSED = (
    "_cudnn", "cudnn", "miopen", "mkldnn", "_mkldnn", "from_file", "_nested", "_sparse", "sparse",
    "_pin", "pin_", "is_pinned", "record_stream", "set_", "resize", "_resize", "_coalesced",
    "quantize", "_fake_quantize", "fbgemm", "_foobar", "_test", "_cufft", "_mps", "_dim",
    "_version", "_has_same", "_reshape_alias_copy", "unsafe_chunk", "_debug", "_make_dep",
    "storage", "_backward_hook", "data", "segment_reduce", "ormqr", "linalg_ldl_solve",
    "linalg_lu_solve", "lu_solve", "to_padded", "nested",
)  # fmt: skip
"""Prefixes of operators that touch files, a device's libraries, or a tensor's storage, or
that trust the indices which they are given."""

PRIVATE = (
    "_to_copy", "_softmax", "_log_softmax", "_safe_softmax", "_masked_softmax", "_masked_scale",
    "_unsafe_view", "_unsafe_index", "_stack", "_chunk_cat", "_foreach_", "_aminmax", "_conj",
    "_neg_view", "_adaptive_avg_pool", "_native_batch_norm_legit", "_batch_norm", "_fused_rms_norm",
    "_fused_dropout", "_scaled_dot_product", "_native_multi_head_attention", "_flash_attention",
    "_efficient_attention", "_cdist_forward", "_euclidean_dist", "_pdist_forward", "_trilinear",
    "_weight_norm", "_prelu_kernel", "_upsample_", "_ctc_loss", "_embedding_bag", "_fft_",
    "_linalg_det", "_linalg_svd", "_linalg_eigh", "_linalg_slogdet", "_linalg_solve_ex",
    "_cholesky_solve_helper", "_thnn_fused_", "_convolution", "_grouped_mm", "_scaled_mm",
    "_int_mm", "_addmm_activation", "_logcumsumexp", "_unique", "_cummax_helper", "_cummin_helper",
    "_standard_gamma", "_sample_dirichlet", "_assert_async", "_assert_scalar", "_functional_assert",
    "_assert_tensor_metadata", "_local_scalar_dense", "_transform_bias_rescale_qkv", "_is_all_true",
    "_is_any_true", "_reshape_copy", "_lazy_clone", "_lu_with_info", "_linalg_eigvals",
    "_linalg_check_errors", "_slow_conv2d_forward", "_conv_depthwise2d", "_pad_circular",
    "_pad_enum", "_transformer_encoder_layer_fwd", "_grid_sampler_2d_cpu_fallback",
)  # fmt: skip
"""Prefixes of PyTorch's internal operators that programs call indirectly. No others are called:
some trust what they are told, such as ``_reshape_alias`` and ``_index_put_impl_``, and touch memory
that is not theirs."""

UNCHECKED = {"aten::_unsafe_index.Tensor": "aten::index.Tensor"}
"""Operators that do not check whether an index is in range, and those that do."""


@functools.lru_cache(maxsize=4096)
def find_operator(name: str) -> Callable[..., Any]:
    """Return the operator of a name such as ``aten::add.Tensor``."""
    name = UNCHECKED.get(name, name)
    space, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    if space not in ("aten", "prims") or "backward" in packet:
        raise UnsupportedOperation("operator", f"{name} is not called here")
    if packet.startswith(REFUSED) or (
        packet.startswith("_") and not packet.startswith(("__", *PRIVATE))
    ):
        raise UnsupportedOperation("operator", f"{name} is not called here")
    try:
        operator = getattr(getattr(getattr(torch.ops, space), packet), overload or "default")
    except (AttributeError, RuntimeError) as error:
        raise UnsupportedOperation("operator", f"{name} is not known here") from error
    if not isinstance(operator, torch._ops.OpOverload):
        raise UnsupportedOperation("operator", f"{name} is not known here")
    for argument in operator._schema.arguments:
        kind = str(argument.type)
        if any(word in kind for word in ("Storage", "Stream", "__torch__", "Future", "Any")):
            raise UnsupportedOperation("operator", f"{name} takes a {kind}")
    found: Callable[..., Any] = operator
    return found


def read_value(
    value: Any, tensor: Callable[[Any], torch.Tensor], device: str = "cpu", depth: int = 0
) -> Any:
    """Return an argument that the host half packed; see `curate.verify.host_half.stream.pack`.

    ``device`` is what stands for the one device that the host half knows.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if depth > 6 or not isinstance(value, dict) or len(value) != 1:
        raise WireError("not an argument")
    ((kind, content),) = value.items()
    if kind == "t":
        return tensor(content)
    if kind == "l" and isinstance(content, list):
        return [read_value(item, tensor, device, depth + 1) for item in content]
    if kind == "f" and content in ("inf", "-inf", "nan"):
        return float(content)
    if kind == "c" and isinstance(content, list) and len(content) == 2:
        return complex(*map(float, content))
    if kind == "d" and isinstance(content, str) and content in DTYPES:
        return DTYPES[content]
    if kind == "m" and isinstance(content, str) and content in MEMORY_FORMATS:
        return MEMORY_FORMATS[content]
    if kind == "device":
        return torch.device(device)
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


# --- arguments of launches --------------------------------------------------------------------

MAX_BYTES = 32764
"""Bytes that a kernel's parameters may have (CUDA C++ Programming Guide, "Function Parameters")."""


def read_launch_value(
    value: Any, address: Callable[[TensorPlace], int], base: Callable[[int], int | None]
) -> int | float | bool:
    """Return an argument of a Triton kernel; see `curate.verify.host_half.stream`.

    Args:
        value: a number; the words of one that is not finite; null; or ``{"t": place}``.
        address: gives that of a place.
        base: gives that of a storage, for numbers that are addresses.
    """
    if isinstance(value, dict):
        return address(read_place(value["t"]))
    if isinstance(value, str):
        return float(value)
    if value is None:
        return 0
    return located(value, base) if type(value) is int else value


def read_argument(value: Any, address: Callable[[TensorPlace], int]) -> bytes:
    """Return an argument of a CUDA kernel; see `curate.verify.host_half.cuda_launches`.

    Args:
        value: null; ``{"t": place}``; ``{"b": hexadecimal digits}``, of a number or a struct; or
            such bytes with ``"s": [[offset, place], …]``, which says where addresses go.
        address: gives that of a place.
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
