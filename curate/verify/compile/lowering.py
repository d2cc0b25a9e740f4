"""A launch as TTIR and plain numbers: what a kernel is to the executor and to the compiler.

Triton's own front end does the work, so that a program which the compiler refuses is refused here.
Nothing needs a GPU, and no device is asked.

Uses private parts of Triton; tested with triton 3.6, 3.7 and 3.9.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from triton._C.libtriton import ir, passes
from triton.compiler import ASTSource, make_backend

from curate.devices import Device
from curate.verify.compile.aot import CompiledLaunch, bind_launch, gpu_target


@dataclass(frozen=True)
class Lowered:
    """A launch that is ready to be run anywhere.

    Attributes:
        name: the kernel's.
        ttir: its module's text, the same for launches that share types and constants.
        sha256: of the text.
        arguments: what its parameters get: numbers, and tensors where it takes pointers.
        grid: programs along x, y and z.
        options: of `OPTIONS`, as the launch has them.
        allocates: whether it makes descriptors, for which a GPU that has them needs memory.
    """

    name: str
    ttir: str
    sha256: str
    arguments: tuple[Any, ...]
    grid: tuple[int, int, int]
    options: dict[str, int | bool]
    allocates: bool = False


OPTIONS = (
    *("num_warps", "num_stages", "num_ctas", "maxnreg"),
    *("enable_fp_fusion", "launch_cooperative_grid", "launch_pdl"),
)
"""Numbers and flags that decide what a compiler makes of TTIR, and how it is launched."""

HOPPER = 90  # the first architecture whose descriptors are the hardware's


class Lowering:
    """Lowers launches for one target; equal ones share their TTIR.

    What Triton notes of arguments, such as that 16 divides them, says how fast code may be made,
    and not what it computes. So the TTIR of a kernel's first launch serves many sizes.
    """

    def __init__(self, target: Device) -> None:
        self.target = target
        self._gpu = gpu_target(target)
        self._texts: dict[str, tuple[str, bool]] = {}
        self._known: dict[int, tuple[CompiledLaunch, str, str, bool]] = {}

    def lower(self, kernel: Any, args: Sequence[Any], grid: Any, named: dict[str, Any]) -> Lowered:
        """Return a launch as it would be made.

        Args:
            kernel: the `triton.JITFunction`.
            args: arguments by position.
            grid: a tuple of up to three numbers, or a function of the arguments.
            named: arguments by name, and options such as ``num_warps``.
        """
        with torch._C.DisableTorchFunction():
            launch = bind_launch(kernel, self.target, args, named)
        given = _by_name(kernel, args, named)
        sizes = grid(given) if isinstance(grid, Callable) else grid  # type: ignore[arg-type]
        text, sha256, makes_descriptors = self._text_of(launch)
        each = enumerate(kernel.arg_names)
        arguments = tuple(v for i, n in each for v in _flat(given[n], (i,), launch.constants))
        return Lowered(
            kernel.__name__,
            text,
            sha256,
            arguments,
            _three(sizes),
            {n: v for n in OPTIONS if isinstance(v := launch.options.get(n), int)},
            makes_descriptors and self._has_descriptors,
        )

    @property
    def _has_descriptors(self) -> bool:
        """Whether descriptors are more than a pointer, sizes and strides on the target."""
        return self.target.backend == "cuda" and int(self.target.arch) >= HOPPER

    def _text_of(self, launch: CompiledLaunch) -> tuple[str, str, bool]:
        """Return a launch's TTIR, its hash, and whether it makes descriptors.

        Those of the same object are looked up.
        """
        known = self._known.get(id(launch))
        if known is None or known[0] is not launch:
            key = dataclasses.replace(launch, attributes={}).key()  # types and constants
            text, makes = self._texts[key] = self._texts.get(key) or self._lower(launch)
            sha256 = hashlib.sha256(text.encode()).hexdigest()
            known = self._known[id(launch)] = launch, text, sha256, makes
        return known[1:]

    def _lower(self, launch: CompiledLaunch) -> tuple[str, bool]:
        backend = make_backend(self._gpu)
        source = ASTSource(launch.kernel, launch.types, launch.constants, launch.attributes)
        context = ir.context()
        ir.load_dialects(context)
        backend.load_dialects(context)
        options = backend.parse_options(launch.options)
        functions = backend.get_codegen_implementation(options)
        module = source.make_ir(self._gpu, options, functions, backend.get_module_map(), context)
        module = backend.make_ttir(module, {}, options, self.target.arch)
        makes_descriptors = "tt.make_tensor_descriptor" in module.str_nodebug()
        # A descriptor is a pointer, sizes and strides: with these alone it runs anywhere.
        manager = ir.pass_manager(module.context)
        passes.ttir.add_rewrite_tensor_descriptor_to_pointer(manager)
        passes.common.add_canonicalizer(manager)
        manager.run(module, "descriptors")
        return module.str_nodebug(), makes_descriptors


def _three(sizes: Any) -> tuple[int, int, int]:
    given = (sizes,) if isinstance(sizes, int) else tuple(sizes)
    x, y, z = (*(int(size) for size in given), 1, 1, 1)[:3]
    return x, y, z


def _by_name(kernel: Any, args: Sequence[Any], named: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a launch by their names, defaults included."""
    given = {p.name: p.default for p in kernel.params if p.has_default}
    given.update(zip(kernel.arg_names, args, strict=False))
    given.update({name: value for name, value in named.items() if name in kernel.arg_names})
    return given


def _flat(
    value: Any, path: tuple[int, ...], constants: dict[tuple[int, ...], Any]
) -> Iterator[Any]:
    """Yield what a compiled kernel is called with: no constants, tuples and descriptors apart."""
    if path in constants:
        return
    if isinstance(value, tuple):
        for i, item in enumerate(value):
            yield from _flat(item, (*path, i), constants)
    elif hasattr(value, "block_shape"):  # a descriptor, as the pass above takes it apart
        yield value.base
        yield from value.shape
        yield from value.strides
        yield value.padding == "nan"
        if hasattr(value, "round_f32_to_tf32"):
            yield bool(value.round_f32_to_tf32)
        yield from value.shape
        yield from value.strides
    elif isinstance(value, torch.Tensor) or value is None or isinstance(value, int | float):
        yield value
    else:
        yield getattr(value, "base", value)
