"""Triton's interpreter, made fit to judge with.

`triton.runtime.interpreter` runs kernels with NumPy when ``TRITON_INTERPRET=1`` is set. `install`
changes it, for the rest of the process, in these ways:

- kernels' Python means what the compiler makes of it (`curate.verify.rewrite`), and calls into
  libdevice work (`curate.verify.libdevice`);
- ``tl.dot`` rounds as NVIDIA's tensor cores do: float32 operands are cut to TF32 unless a kernel
  asks for more, and a float16 accumulator is rounded after every 16 products;
- loads, stores and atomics outside the tensors that a kernel was given raise `OutOfBounds`, where
  a GPU, or the plain interpreter, would read or overwrite whatever is there; of a kernel that
  takes addresses out of a table, only the loads up to there are checked;
- an error inside the interpreter is `Unsupported`, not the program's;
- `work_budget` bounds the work, by estimate before it is done;
- reductions and scans with a combine function of their own take log2(n) steps instead of n calls
  an element, in the order that associativity allows a GPU to take;
- bfloat16 and float8 are computed and rounded as numbers (the plain interpreter adds bfloat16 bit
  patterns, and truncates where a GPU rounds to nearest even); float8 saturates, as NVIDIA's
  conversions do; max, min and clamp ignore NaN as the instructions do, unless a kernel asks
  otherwise; sums go by halves; a float argument is a float32;
- the language is patched once, not at every call of a device function, which is 20 times faster;
- autotuned kernels take their first configuration.
"""

from __future__ import annotations

import functools
import inspect
import operator
import traceback
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton._C.libtriton import ir
from triton.backends.amd.compiler import HIPOptions
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDAOptions, min_dot_size
from triton.experimental.gluon._runtime import GluonJITFunction
from triton.language.extra import cuda
from triton.language.extra import libdevice as generic_libdevice
from triton.language.extra.cuda import libdevice as cuda_libdevice
from triton.language.extra.hip import libdevice as hip_libdevice
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter
from triton.runtime.autotuner import Autotuner
from triton.runtime.errors import InterpreterError
from triton.runtime.interpreter import (
    FunctionRewriter,
    GridExecutor,
    InterpreterBuilder,
    InterpreterOptions,
    ReduceOps,
    ScanOps,
    TensorHandle,
)

from curate.verify import libdevice
from curate.verify.rewrite import dynamic_range, rewrite

if not triton.knobs.runtime.interpret:
    raise ImportError("set TRITON_INTERPRET=1 before triton is imported")

Array = np.ndarray[Any, Any]


class Unsupported(Exception):
    """The interpreter cannot run a program, which says nothing about whether it is right.

    Attributes:
        reason: a short code in snake_case.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class OutOfBounds(Exception):
    """A kernel touched memory outside the tensors that it was given."""


def root_cause(error: BaseException) -> BaseException:
    """Return what was raised inside a kernel; the interpreter wraps it at every call."""
    while isinstance(error, triton.runtime.errors.InterpreterError) and error.__cause__:
        error = error.__cause__
    return error


# --- the work budget ------------------------------------------------------------------------


class _Budget:
    """Operations done, how many there may be, and how far the running launch has come."""

    ELEMENTS = 10_000  # elements whose arithmetic costs as much as an operation's own overhead

    def __init__(self) -> None:
        self.limit = float("inf")
        self.spent = 0.0
        self.programs = self.done = 0
        self.before_launch = 0.0

    def begin_launch(self, programs: int) -> None:
        self.programs, self.done, self.before_launch = programs, 0, self.spent

    def next_program(self) -> None:
        if self.done:
            needed = (self.spent - self.before_launch) / self.done * self.programs
            if self.before_launch + needed > self.limit:
                raise Unsupported(
                    "interpreter_budget",
                    f"a launch of {self.programs} programs needs {needed:.0f} operations",
                )
        self.done += 1

    def spend(self, elements: int) -> None:
        self.spent += 1 + elements / self.ELEMENTS
        if self.spent > self.limit:
            raise Unsupported(
                "interpreter_budget", f"it takes more than {self.limit:.0f} operations"
            )


_budget = _Budget()


def spent_operations() -> float:
    """Return the operations on blocks that this process has interpreted."""
    return _budget.spent


@contextmanager
def work_budget(operations: float) -> Iterator[None]:
    """Let interpreted kernels take so many operations on blocks inside the context.

    A launch that is seen to need more raises `Unsupported` before it has taken them. Operations
    are counted, not seconds, so that a busy machine gives the same verdict.
    """
    saved, _budget.limit = _budget.limit, _budget.spent + operations
    try:
        yield
    finally:
        _budget.limit = saved


def _count_operations() -> None:
    """Make every block that the interpreter computes count against the budget."""
    check_size = TensorHandle.__post_init__

    def counted(handle: TensorHandle) -> None:
        _budget.spend(handle.data.size)
        check_size(handle)

    TensorHandle.__post_init__ = counted


# --- memory ---------------------------------------------------------------------------------


class _Memory:
    """The address ranges that the running launch may touch."""

    def __init__(self) -> None:
        self.starts = self.ends = np.zeros(0, np.uint64)
        self.exact = True

    def allow(self, tensors: list[torch.Tensor]) -> None:
        """Replace the ranges by the storages of these tensors."""
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
        ranges = sorted((start, start + size) for start, size in storages.items() if size)
        self.starts = np.array([start for start, _ in ranges], np.uint64)
        self.ends = np.array([end for _, end in ranges], np.uint64)
        self.exact = True

    def check(self, what: str, pointers: TensorHandle, mask: TensorHandle) -> None:
        """Raise `OutOfBounds` if an active lane points outside every range."""
        if not self.exact:
            return
        addresses = pointers.data[np.broadcast_to(mask.data, pointers.data.shape)]
        if not addresses.size:
            return
        size = np.uint64(max(1, pointers.get_element_ty().primitive_bitwidth // 8))
        owner = np.searchsorted(self.starts, addresses, side="right") - 1
        inside = (owner >= 0) & (addresses <= self.ends[owner] - size) if self.ends.size else False
        if not np.all(inside):
            # How many elements are outside depends on what the allocator put beside the tensors,
            # so the message, which is kept as evidence, does not count them.
            raise OutOfBounds(f"{what} outside the tensors that the kernel was given")


_memory = _Memory()


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, tuple):
        return [tensor for item in value for tensor in _tensors(item)]
    base = getattr(value, "base", None)  # a tensor descriptor, or a tensor seen as another type
    return [base] if isinstance(base, torch.Tensor) else []


_backwards = False


@contextmanager
def reverse_programs() -> Iterator[None]:
    """Run the programs of a launch from the last to the first inside the context.

    A GPU runs them in no order; a kernel that relies on one shows it.
    """
    global _backwards
    _backwards = True
    try:
        yield
    finally:
        _backwards = False


class Launched:
    """What a launch returns: a compiled kernel on a GPU, nothing here."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise Unsupported("compiled_kernel", f"there is no compiled kernel to ask for {name}")


class CheckedExecutor(GridExecutor):  # type: ignore[misc]
    """Runs a launch's programs one after the other, inside its own tensors."""

    def __call__(self, *args: Any, **kwargs: Any) -> Launched:
        for name in kwargs.keys() - {*self.arg_names, *LAUNCH_OPTIONS}:
            raise KeyError(f"Keyword argument {name} was specified but unrecognised")
        self.grid: Any = self._sizes(args, kwargs)
        everything = (*args, *kwargs.values())
        if any(getattr(value, "round_f32_to_tf32", False) for value in everything):
            raise Unsupported("tf32_descriptor", "a tensor descriptor rounds to TF32")
        _memory.allow(_tensors(everything))
        try:
            with np.errstate(all="ignore"):
                super().__call__(*args, **kwargs)
        except InterpreterError as error:
            cause = root_cause(error)
            if isinstance(cause, INTERNAL_ERRORS) and _raised_in_interpreter(cause):
                raise Unsupported("interpreter_error", repr(cause)) from error
            raise
        return Launched()

    def _sizes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int, ...]:
        """Return the grid; a function gets the arguments as they are, as on a GPU."""
        grid = self.grid
        if callable(grid):
            given = {name: value for name, value in kwargs.items() if name in self.arg_names}
            grid = grid(inspect.getcallargs(self.fn, *args, **given))
        sizes = tuple(map(operator.index, grid))
        if any(size > limit for size, limit in zip(sizes, GRID_LIMITS, strict=False)):
            raise RuntimeError(f"a grid of {sizes} is larger than a GPU takes")
        return sizes


INTERNAL_ERRORS = (AttributeError, IndexError, KeyError, NotImplementedError, TypeError)


def _raised_in_interpreter(error: BaseException) -> bool:
    """Whether an error comes from the interpreter's own code, and not from the kernel's."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    code = frame.f_code
    passes_calls_on = code.co_name in (
        "<lambda>",
        "__call__",
        "call",
    )  # with the kernel's arguments
    return code.co_filename in (interpreter.__file__, __file__) and not passes_calls_on


LAUNCH_OPTIONS = frozenset(
    field.name for kind in (CUDAOptions, HIPOptions) for field in fields(kind)
)

GRID_LIMITS = (2**31 - 1, 65535, 65535)
"""Programs along each axis (CUDA C++ Programming Guide, "Technical Specifications")."""

_plain_argument = interpreter._implicit_cvt


def _argument(value: Any) -> Any:
    """Return an argument as a kernel sees it; the plain interpreter leaves floats to Python."""
    if isinstance(value, bool):
        return tl.tensor(TensorHandle(np.array([value]), tl.int1), tl.int1)
    if isinstance(value, float):
        return tl.tensor(TensorHandle(np.array([value], np.float32), tl.float32), tl.float32)
    return _plain_argument(value)


# --- number types ---------------------------------------------------------------------------

TORCH_TYPES = {
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp32": torch.float32,
    "fp64": torch.float64,
    "fp8e5": torch.float8_e5m2,
    "fp8e5b16": torch.float8_e5m2fnuz,
    "fp8e4nv": torch.float8_e4m3fn,
    "fp8e4b8": torch.float8_e4m3fnuz,
}


_plain_numpy_type = interpreter._get_np_dtype
_numpy_types: dict[str, Any] = {}


def numpy_type(kind: Any) -> Any:
    """Return the type in which NumPy holds a Triton type; remembered, as it is asked for often."""
    scalar = kind.scalar
    if isinstance(scalar, tl.pointer_type):
        return np.dtype(np.uint64)
    if scalar.name not in _numpy_types:
        _numpy_types[scalar.name] = _plain_numpy_type(scalar)
    return _numpy_types[scalar.name]


SATURATING = {"fp8e4nv": 448.0, "fp8e5": 57344.0}
"""The largest numbers of types to which NVIDIA converts with ``satfinite`` (PTX ISA, ``cvt``)."""


def convert_float(data: Array, source: Any, target: Any, rounding: Any) -> Array:
    """Return ``data``'s numbers in another type, as bits.

    They are rounded to nearest even, or, where ``rounding`` says so, towards zero.

    Raises:
        Unsupported: PyTorch lacks one of the types.
    """
    for kind in (source, target):
        if kind.name not in TORCH_TYPES:
            raise Unsupported("interpreter_type", f"{kind.name} has no counterpart in PyTorch")
    bits = np.ascontiguousarray(data).view(f"u{data.itemsize}").reshape(-1)
    numbers = torch.from_numpy(bits.copy()).view(TORCH_TYPES[source.name])
    limit = SATURATING.get(target.name)
    if limit and target != source:
        numbers = numbers.double().clamp(-limit, limit)
    converted = numbers.to(TORCH_TYPES[target.name])
    size = converted.element_size()
    unsigned = {1: torch.uint8, 2: torch.uint16, 4: torch.uint32, 8: torch.uint64}[size]
    result: Array = converted.view(unsigned).numpy()
    if rounding == ir.ROUNDING_MODE.RTZ:
        # The next number towards zero has the bit pattern before.
        result = result - (converted.double().abs() > numbers.double().abs()).numpy()
    return result.astype(f"u{size}").reshape(data.shape)


def _stored_as_bits(handle: TensorHandle) -> bool:
    """Whether NumPy holds the numbers as bit patterns: bfloat16 and float8."""
    kind = handle.dtype.scalar
    return bool(kind.is_floating() and handle.data.dtype.kind == "u")


def _widen(handle: TensorHandle) -> TensorHandle:
    if not _stored_as_bits(handle):
        return handle
    bits = convert_float(handle.data, handle.dtype.scalar, tl.float32, None)
    return TensorHandle(bits.view(np.float32), tl.float32)


# --- matrix products ------------------------------------------------------------------------


def _cut_to_tf32(data: Array) -> Array:
    """Return float32 numbers as a tensor core reads them: the last 13 bits do not count."""
    return (data.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def _round_to_tf32(data: Array) -> Array:
    """Return float32 numbers rounded as ``cvt.rna.tf32`` does."""
    return _cut_to_tf32((data.view(np.uint32) + np.uint32(0x1000)).view(np.float32))


def _round_to_bf16(data: Array) -> Array:
    result: Array = torch.from_numpy(data).bfloat16().float().numpy()
    return result


SPLITS: dict[Any, tuple[int, Callable[[Array], Array]]] = {
    ir.INPUT_PRECISION.TF32: (1, _cut_to_tf32),
    ir.INPUT_PRECISION.TF32x3: (2, _round_to_tf32),
    ir.INPUT_PRECISION.BF16x3: (2, _round_to_bf16),
    ir.INPUT_PRECISION.BF16x6: (3, _round_to_bf16),
}
"""By precision: in how many parts, and how rounded, a float32 operand goes into a product."""


def _split(data: Array, parts: int, rounded: Callable[[Array], Array]) -> list[Array]:
    result, rest = [], np.ascontiguousarray(data)
    for _ in range(parts):
        result.append(rounded(rest))
        rest = np.nan_to_num(rest - result[-1], nan=0.0)  # of infinity, nothing is left
    return result


def multiply_matrices(a: Array, b: Array, precision: Any) -> Array:
    """Return the product of two matrices, or batches of them.

    Float32 operands are taken with an ``ir.INPUT_PRECISION``; where they are split, the products
    of the smallest parts are left out, as Triton leaves them out (``F32DotTC.cpp``). Integers
    are multiplied exactly, float16 and wider as float32 and wider.
    """
    if a.dtype.kind in "iu":
        exact: Array = np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.int64)
        return exact
    if a.dtype != np.float32 or precision not in SPLITS:
        wide = np.result_type(a, np.float32)
        product: Array = np.matmul(a, b, dtype=wide)
        return product
    parts, rounded = SPLITS[precision]
    lefts, rights = _split(a, parts, rounded), _split(b, parts, rounded)
    pairs = [(i, j) for i in range(parts) for j in range(parts - i)]
    products = [np.matmul(lefts[i], rights[j]) for i, j in reversed(pairs)]
    total: Array = functools.reduce(np.add, products)
    return total


def _pointers(desc: Any, offsets: list[TensorHandle]) -> tuple[TensorHandle, Array]:
    """Return the addresses of a tensor descriptor's block, and which of them are inside."""
    item = max(1, desc.base.get_element_ty().primitive_bitwidth // 8)
    if offsets[-1].data.item() * item % 16:
        raise Unsupported("descriptor_alignment", "a block does not start at 16 bytes")
    pointers, mask = desc.materialize_pointers(offsets)
    return pointers, mask


ACCUMULATED = 16
"""Products that a tensor core adds before it rounds to a float16 accumulator (PTX ISA, mma)."""


def _laid_out(handle: TensorHandle) -> TensorHandle:
    """Return a block with its values one after the other in memory, as atomic operations take them
    to be: of one value that was broadcast, NumPy keeps one."""
    return TensorHandle(np.ascontiguousarray(handle.data), handle.dtype)


class CheckedBuilder(InterpreterBuilder):  # type: ignore[misc]
    """The interpreter's operations, with the changes that the module's docstring lists."""

    def __init__(self) -> None:
        super().__init__()
        # Overflow checks triple the work on integers, and only assert in debug builds.
        self.options = InterpreterOptions(
            sanitize_overflow=False,
            allowed_dot_input_precisions=CUDAOptions.allowed_dot_input_precisions,
        )
        self.codegen_fns["min_dot_size"] = min_dot_size(None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise Unsupported("interpreter_operation", f"the interpreter has no {name}")

    # programs

    def set_grid_dim(self, *sizes: int) -> None:
        super().set_grid_dim(*map(int, sizes))
        _budget.begin_launch(int(np.prod([int(size) for size in sizes])))

    def set_grid_idx(self, *index: int) -> None:
        _budget.next_program()
        if _backwards:
            index = tuple(int(n) - 1 - int(i) for n, i in zip(self.grid_dim, index, strict=True))
        super().set_grid_idx(*index)

    # memory

    def create_masked_load(self, ptrs: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        _memory.check("load", ptrs, mask)
        return super().create_masked_load(ptrs, mask, *rest, **named)

    def create_masked_store(self, ptrs: Any, value: Any, mask: Any, *rest: Any) -> Any:
        _memory.check("store", ptrs, mask)
        return super().create_masked_store(ptrs, value, mask, *rest)

    def create_atomic_rmw(self, op: Any, ptr: Any, val: Any, mask: Any, *rest: Any) -> Any:
        _memory.check("atomic operation", ptr, mask)
        if _stored_as_bits(val):
            return self._update_in_turn(op, ptr, val, mask)
        return super().create_atomic_rmw(op, *map(_laid_out, (ptr, val, mask)), *rest)

    def _update_in_turn(self, op: Any, ptr: Any, val: Any, mask: Any) -> TensorHandle:
        """Do an atomic operation on bfloat16, each time to the first lane of every address."""
        addresses, values, before = ptr.data.reshape(-1), val.data.reshape(-1), val.data.copy()
        lanes = np.flatnonzero(np.broadcast_to(mask.data, ptr.data.shape))
        while lanes.size:
            turn = lanes[np.unique(addresses[lanes], return_index=True)[1]]
            at = TensorHandle(addresses[turn], ptr.dtype)
            old, new = self.create_load(at, None, None, False), values[turn]
            new = TensorHandle(new, val.dtype.scalar)
            if op == ir.ATOMIC_OP.FADD:
                new = self.create_fadd(old, new)
            elif op != ir.ATOMIC_OP.XCHG:
                raise Unsupported("interpreter_operation", f"{op} on {val.dtype.scalar}")
            self.create_store(at, new, None, None)
            before.reshape(-1)[turn] = old.data
            lanes = np.setdiff1d(lanes, turn)
        return TensorHandle(before, val.dtype.scalar)

    def create_atomic_cas(self, ptr: Any, cmp: Any, val: Any, *rest: Any) -> Any:
        everywhere = TensorHandle(np.ones_like(ptr.data, dtype=bool), tl.int1)
        _memory.check("atomic operation", ptr, everywhere)
        return super().create_atomic_cas(*map(_laid_out, (ptr, cmp, val)), *rest)

    def create_tensor_pointer_load(
        self, ptr: Any, boundary_check: Any, padding: Any, *rest: Any
    ) -> TensorHandle:
        pointers, mask = ptr.materialize_pointers(boundary_check)
        return self._load_padded(pointers, mask, padding, *rest)

    def create_descriptor_load(self, desc: Any, offsets: Any, *rest: Any) -> TensorHandle:
        pointers, mask = _pointers(desc, offsets)
        return self._load_padded(pointers, mask, desc.padding, *rest, False)

    def _load_padded(self, pointers: Any, mask: Array, padding: Any, *rest: Any) -> TensorHandle:
        other = None
        if padding == ir.PADDING_OPTION.PAD_NAN:
            nan = self.create_fp_to_fp(self.get_fp32(np.nan), pointers.get_element_ty(), None)
            other = self.create_broadcast(nan, mask.shape)
        return self.create_masked_load(pointers, TensorHandle(mask, tl.int1), other, *rest)

    def create_descriptor_store(self, desc: Any, value: Any, offsets: Any) -> None:
        pointers, mask = _pointers(desc, offsets)
        self.create_masked_store(pointers, value, TensorHandle(mask, tl.int1), None, None)

    def create_descriptor_reduce(self, kind: Any, desc: Any, value: Any, offsets: Any) -> None:
        name = kind.name
        if value.dtype.scalar.is_floating() and name == "ADD":
            name = "FADD"
        elif value.dtype.scalar.is_int_unsigned() and name in ("MIN", "MAX"):
            name = "U" + name
        pointers, mask = _pointers(desc, offsets)
        self.create_atomic_rmw(
            getattr(ir.ATOMIC_OP, name),
            pointers,
            value,
            TensorHandle(mask, tl.int1),
            ir.MEM_SEMANTIC.RELAXED,
            None,
        )

    def create_int_to_ptr(self, src: Any, dst_type: Any) -> Any:
        _memory.exact = False  # an address may come from a table of pointers
        return self.create_bitcast(src, dst_type)

    # numbers

    def get_bf16(self, value: float) -> TensorHandle:
        return self.create_fp_to_fp(self.get_fp32(value), tl.bfloat16, None)

    def cast_impl(self, src: Any, dst_type: Any) -> TensorHandle:
        target = dst_type.scalar
        if target.is_floating() and numpy_type(target).kind == "u":  # stored as bits
            if not src.dtype.scalar.is_floating() or src.data.dtype == np.bool_:
                src = TensorHandle(src.data.astype(np.float32), tl.float32)
            return self.create_fp_to_fp(src, dst_type, None)
        return super().cast_impl(_widen(src), dst_type)

    def binary_op(self, lhs: Any, rhs: Any, op: Any) -> TensorHandle:
        if lhs.data.dtype == np.bool_ and op in (np.add, np.subtract):
            op = np.logical_xor  # arithmetic modulo 2
        bits = _stored_as_bits(lhs)
        result = super().binary_op(_widen(lhs), _widen(rhs), op)
        if result.data.dtype == np.bool_:
            return TensorHandle(result.data, tl.int1)
        return self.create_fp_to_fp(result, lhs.dtype.scalar, None) if bits else result

    def create_maxnumf(self, lhs: Any, rhs: Any) -> TensorHandle:
        return self.binary_op(lhs, rhs, np.fmax)

    def create_minnumf(self, lhs: Any, rhs: Any) -> TensorHandle:
        return self.binary_op(lhs, rhs, np.fmin)

    def create_clampf(self, x: Any, low: Any, high: Any, propagate_nan: Any) -> TensorHandle:
        if propagate_nan == ir.PROPAGATE_NAN.ALL:
            return self.create_minimumf(self.create_maximumf(x, low), high)
        return self.create_minnumf(self.create_maxnumf(x, low), high)

    def create_fma(self, x: Any, y: Any, z: Any) -> TensorHandle:
        x, y, z_wide = (_widen(item).data.astype(np.float64) for item in (x, y, z))
        total = TensorHandle((x * y + z_wide), tl.float64)  # one rounding; of float64, two
        return self.create_fp_to_fp(total, z.dtype.scalar, None)

    def create_ashr(self, lhs: Any, rhs: Any) -> TensorHandle:
        return self.binary_op(lhs, rhs, np.right_shift)

    def create_umulhi(self, lhs: Any, rhs: Any) -> TensorHandle:
        kind = lhs.data.dtype
        wide = object if kind.itemsize == 8 else np.uint64
        x, y = (item.data.view(f"u{kind.itemsize}").astype(wide) for item in (lhs, rhs))
        high = ((x * y) >> (8 * kind.itemsize)).astype(f"u{kind.itemsize}")
        return TensorHandle(high.view(kind), lhs.dtype.scalar)

    def create_erf(self, arg: Any) -> TensorHandle:
        return TensorHandle(libdevice.UNARY["erf"](arg.data), arg.dtype.scalar)

    def create_histogram(self, data: Any, bins: int, mask: Any) -> TensorHandle:
        values = data.data if mask is None else data.data[mask.data]
        if np.any((values < 0) | (values >= bins)):
            raise Unsupported("histogram_range", "values outside the bins have no defined count")
        return TensorHandle(np.bincount(values, minlength=bins).astype(np.int32), tl.int32)

    def create_gather(self, src: Any, indices: Any, axis: int) -> TensorHandle:
        if np.any((indices.data < 0) | (indices.data >= src.data.shape[axis])):
            raise OutOfBounds("gather outside its block")
        return super().create_gather(src, indices, axis)

    def create_print(self, *args: Any) -> None:
        """Print nothing: what a program prints is not looked at."""

    def create_dot(self, a: Any, b: Any, d: Any, precision: Any, *rest: Any) -> TensorHandle:
        if _stored_as_bits(a) or _stored_as_bits(b):  # these are exact, in fewer bits than TF32's
            a, b, precision = _widen(a), _widen(b), ir.INPUT_PRECISION.IEEE
        total = d.data
        step = a.data.shape[-1] if total.dtype != np.float16 else ACCUMULATED
        for k in range(0, a.data.shape[-1], step):
            left, right = a.data[..., k : k + step], b.data[..., k : k + step, :]
            total = (total + multiply_matrices(left, right, precision)).astype(d.data.dtype)
        return TensorHandle(total, d.dtype.scalar)

    # library calls

    def create_extern_elementwise(
        self, library: str, path: str, symbol: str, args: Any, result_type: Any, is_pure: bool
    ) -> TensorHandle:
        function = libdevice.find(symbol)
        if function is None:
            raise Unsupported("library_function", f"{symbol} is not known here")
        kind = result_type.scalar
        result = np.asarray(function(*(arg.data for arg in args)))
        return TensorHandle(result.astype(numpy_type(kind)), kind)

    def create_inline_asm(self, *args: Any) -> Any:
        raise Unsupported("inline_asm", "inline assembly cannot be interpreted")


# --- reductions and scans -------------------------------------------------------------------


def _blocks(operation: ReduceOps | ScanOps, data: list[Array], kinds: list[Any]) -> list[Any]:
    return [operation.to_tensor(item, kind) for item, kind in zip(data, kinds, strict=True)]


def _combine(
    operation: ReduceOps | ScanOps, left: list[Array], right: list[Array], kinds: list[Any]
) -> list[Array]:
    """Apply a combine function to two blocks, element by element."""
    blocks = [
        operation.to_tensor(data, kind) for data, kind in zip(left + right, kinds * 2, strict=True)
    ]
    result = operation.combine_fn(*blocks)
    parts = result if isinstance(result, tuple) else (result,)
    shape = left[0].shape
    return [
        np.broadcast_to(interpreter.interpreter_semantic.to_tensor(part).handle.data, shape).astype(
            data.dtype
        )
        for part, data in zip(parts, left, strict=True)
    ]


def _slice(data: Array, axis: int, part: slice) -> Array:
    return data[(slice(None),) * axis + (part,)]


class TreeReduce(ReduceOps):  # type: ignore[misc]
    """A reduction by halves, neighbours first; the order of elements is kept."""

    def generic_reduce(self, input: Any) -> list[Any]:
        kinds = [item.dtype for item in input]
        data = [item.handle.data for item in input]
        if self.axis is None:
            data = [item.reshape(-1) for item in data]
        axis = (self.axis or 0) % data[0].ndim
        while data[0].shape[axis] > 1:  # a power of two, as Triton's blocks are
            left = [_slice(item, axis, slice(0, None, 2)) for item in data]
            right = [_slice(item, axis, slice(1, None, 2)) for item in data]
            data = _combine(self, left, right, kinds)
        rank = input[0].handle.data.ndim
        return _blocks(self, [self._shaped(item, axis, rank) for item in data], kinds)

    def sum(self, input: Any) -> Any:
        return self.generic_reduce((input,))[0]

    def apply_impl(self, input: Any) -> Any:
        extremes = (
            tl.standard._argmax_combine_tie_break_left,
            tl.standard._argmin_combine_tie_break_left,
        )
        if self.combine_fn in extremes:  # the plain interpreter takes any indices for 0, 1, 2 …
            return self.generic_reduce(input)
        return super().apply_impl(input)

    def _shaped(self, data: Array, axis: int, rank: int) -> Any:
        """Return a result with the reduced axis gone, or kept with size 1."""
        if self.keep_dims:
            return data.reshape((1,) * rank) if self.axis is None else data
        data = data.squeeze(axis)
        return data if data.shape else data.item()


class DoublingScan(ScanOps):  # type: ignore[misc]
    """An inclusive scan in log2(n) steps (Hillis and Steele, 1986).

    Sums and products too: NumPy adds one element after the other, and over a long block that is
    less exact than what a GPU does.
    """

    def cumsum(self, input: Any) -> list[Any]:
        return self.generic_scan((input,))

    def cumprod(self, input: Any) -> list[Any]:
        return self.generic_scan((input,))

    def generic_scan(self, input: Any) -> list[Any]:
        axis = self.axis % len(input[0].handle.data.shape)
        kinds = [item.dtype for item in input]
        data = [item.handle.data for item in input]
        length, distance = data[0].shape[axis], 1
        while distance < length:
            # Blocks keep their size; what was rolled in from the end is thrown away.
            earlier = [np.roll(item, distance, axis) for item in data]
            combined = _combine(self, earlier, data, kinds)
            head = [_slice(item, axis, slice(0, distance)) for item in data]
            rest = [_slice(item, axis, slice(distance, None)) for item in combined]
            data = [np.concatenate(pair, axis) for pair in zip(head, rest, strict=True)]
            distance *= 2
        return _blocks(self, data, kinds)


# --- a stand-in for a device ----------------------------------------------------------------


class _Utilities:
    def get_device_properties(self, device: int = 0) -> dict[str, int]:
        """Return the properties that Triton's driver gives, of a small device."""
        return {
            "max_shared_mem": 232448,
            "max_num_regs": 65536,
            "multiprocessor_count": 8,
            "warpSize": 32,
            "sm_clock_rate": 1_000_000,
            "mem_clock_rate": 1_000_000,
            "mem_bus_width": 1024,
        }


class CpuDriver:
    """Answers what programs ask Triton's driver, so that those that do can be interpreted."""

    utils = _Utilities()

    def get_active_torch_device(self) -> torch.device:
        """Return where tensors are."""
        return torch.device("cpu")

    def get_current_device(self) -> int:
        """Return the number of the one device."""
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        """Return the one stream."""
        return 0

    def get_current_target(self) -> GPUTarget:
        """Return the target whose arithmetic is interpreted."""
        return GPUTarget("cuda", 90, 32)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise Unsupported("needs_device", f"the interpreter's driver has no {name}")


# --- installation ---------------------------------------------------------------------------


def install() -> None:
    """Change Triton's interpreter as the module's docstring says, for the rest of the process.

    To be called once, before a program's text is run, so that names which it imports from Triton
    are the changed ones.
    """
    interpreter.interpreter_builder = CheckedBuilder()
    interpreter.interpreter_semantic = TritonSemantic(interpreter.interpreter_builder)
    interpreter.GridExecutor = CheckedExecutor
    interpreter.ReduceOps, interpreter.ScanOps = TreeReduce, DoublingScan
    interpreter._convert_float = convert_float
    interpreter._get_np_dtype = numpy_type
    interpreter._implicit_cvt = _argument
    FunctionRewriter.rewrite_ast = lambda self: rewrite(
        self.fn, functools.partial(_budget.spend, 1)
    )
    _count_operations()
    _patch_language()
    for place in (cuda, cuda_libdevice, hip_libdevice, tl.tensor):
        _bind_builtins(place)
    for name in vars(generic_libdevice):
        if hasattr(cuda_libdevice, name) and not name.startswith("_"):
            setattr(generic_libdevice, name, getattr(cuda_libdevice, name))
    triton.runtime.driver.set_active(CpuDriver())
    Autotuner._bench = lambda tuner, *args, config, **meta: 0.0


class _Scope:
    """Stands for patches that stay."""

    def restore(self) -> None:
        """Leave them."""


def _patch_language() -> None:
    """Patch `triton.language` once and for all, instead of at every call."""
    sees_both: Callable[[], None] = types.FunctionType(
        (lambda: None).__code__, {"tl": tl, "core": tl.core}
    )
    interpreter._patch_lang(sees_both)
    interpreter._patch_lang = lambda function: _Scope()
    # Triton 3.6 leaves it to NumPy to make a number of an array, which NumPy 2.4 refuses.
    tl.tensor.__index__ = lambda tensor: int(tensor.handle.data.item())
    tl.range = tl.core.range = dynamic_range
    for name in ("dot_scaled", "map_elementwise"):
        for module in (tl, tl.core):
            setattr(module, name, functools.partial(_refuse, name))
    for name in ("num_threads", "num_warps"):
        setattr(cuda, name, functools.partial(_refuse, "compiler_option"))
    GluonJITFunction.run = lambda kernel, *args, **kwargs: _refuse("gluon")


def _refuse(reason: str, *args: Any, **kwargs: Any) -> Any:
    raise Unsupported(reason, f"{reason} cannot be interpreted")


def _bind_builtins(place: Any) -> None:
    """Give functions that are not patched yet the semantic that the compiler would pass them."""

    def bound(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            kwargs["_semantic"] = interpreter.interpreter_semantic
            return function(*args, **kwargs)

        return call

    for name, function in inspect.getmembers(place, inspect.isfunction):
        if "_semantic" in inspect.signature(function).parameters:
            setattr(place, name, bound(function))
