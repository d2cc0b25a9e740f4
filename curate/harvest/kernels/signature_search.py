"""The search for a signature with which a kernel compiles.

The first signature is made of what launch sites, annotations, defaults, configurations and the
use of each parameter show. A compiler's error names lines of source; the parameters that reach
them are changed one at a time, and a change that moves the error is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from curate.devices import find_device
from curate.harvest.guess import hill_climb
from curate.harvest.kernels.dataflow import (
    NO_DEFAULT,
    KernelReading,
    ParameterUse,
    looks_like_pointer,
    read_kernel,
)
from curate.verify.compile.kernel import (
    CompiledKernel,
    KernelSignature,
    LoadedKernel,
    compile_signature,
    load_kernel,
)

BLOCK = 32  # elements of a block's side, where nothing shows them
UNROLLED = 4  # turns of an unrolled loop, where nothing shows them
MOST_ITEMS = 8  # of a tuple, where nothing shows them
FLOATS = ("fp32", "fp16", "bf16")
TRITON_TYPES = {
    "float64": "fp64",
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5",
    "bool": "i1",
    **{f"int{bits}": f"i{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"u{bits}" for bits in (8, 16, 32, 64)},
}
"""PyTorch's names of element types, without ``torch.``, to Triton's in signatures."""

FLOAT8 = ("e4nv", "e5", "e4b15", "e4b8", "e5b16")
SPELLINGS = TRITON_TYPES | {f"{f}8{kind}": f"fp8{kind}" for f in ("float", "fp") for kind in FLOAT8}
"""Names of element types in kernels and in the compiler's messages."""


class NoSignature(Exception):
    """No signature was found within the budget.

    Attributes:
        evidence: the last error and message, the first ones, the last signature, the attempts.
    """

    def __init__(self, evidence: dict[str, Any]) -> None:
        super().__init__(f"{evidence['error']}: {evidence['message']}")
        self.evidence = evidence


@dataclass(frozen=True)
class FoundSignature:
    """A signature that compiles, how it was found, and how many compilations that took."""

    signature: KernelSignature
    found_by: str
    attempts: int


@dataclass(frozen=True)
class SignatureTry:
    """A signature, and what the compiler made of it."""

    signature: KernelSignature
    compiled: CompiledKernel

    @property
    def fault(self) -> tuple[str | None, tuple[str, ...]]:
        """What the compiler says, and of which lines."""
        return self.compiled.message, self.compiled.lines


class SignatureSearch:
    """The search for one kernel.

    Args:
        source: text of the kernel's file; it is run.
        entry_point: the kernel's name.
        launches: its launch sites, as in ``kernel.launches``.
        target: the device to compile for, such as ``cuda:90``.
        attempts: the most compilations.

    Raises:
        ProgramError: the file cannot be loaded, or ``entry_point`` is no kernel in it.
    """

    def __init__(
        self,
        source: str,
        entry_point: str,
        launches: list[dict[str, Any]],
        target: str,
        attempts: int,
    ) -> None:
        self.target = find_device(target)
        self.attempts = attempts
        self.kernel = load_kernel(source, entry_point, self.target)
        self.reading = read_kernel(source, entry_point)
        self.first = FirstGuess(self.kernel, self.reading, launches)
        self.tried: set[str] = set()
        self.count = 0  # of compilations

    def run(self) -> FoundSignature:
        """Return the signature found.

        Raises:
            NoSignature: the budget is spent, or no change is left to try.
        """
        first = self._try(self.first.signature())
        if first.compiled.usage:
            found_by = "launch_site" if self.first.from_launch else "data_flow"
            return FoundSignature(first.signature, found_by, self.count)
        if self.first.from_launch:
            # What a reader took for a fact may be none: see what the kernel says by itself.
            alone = self._try(FirstGuess(self.kernel, self.reading, []).signature())
            if alone.compiled.usage:
                return FoundSignature(alone.signature, "data_flow", self.count)
        last = hill_climb(
            first,
            lambda near: propose(near.signature, near.compiled, self.reading),
            lambda changed: None if changed.to_json() in self.tried else self._try(changed),
            lambda new, old: bool(new.compiled.usage) or new.fault != old.fault,
            lambda latest: self.count >= self.attempts or bool(latest and latest.compiled.usage),
        )
        if last.compiled.usage:
            return FoundSignature(last.signature, "search", self.count)
        raise NoSignature(
            {
                "error": last.compiled.error,
                "message": last.compiled.message,
                "first_error": first.compiled.error,
                "first_message": first.compiled.message,
                "first_lines": list(first.compiled.lines[-2:]),
                "signature": last.signature.to_json(),
                "attempts": self.count,
            }
        )

    def _try(self, signature: KernelSignature) -> SignatureTry:
        self.tried.add(signature.to_json())
        self.count += 1
        return SignatureTry(signature, self._compile(signature))

    def _compile(self, signature: KernelSignature) -> CompiledKernel:
        return compile_signature(self.kernel, signature, self.target)

    def compiling_dtypes(self, signature: KernelSignature, dtypes: list[str]) -> list[str]:
        """Return those of ``dtypes`` that all floating-point pointers may have at once.

        The list is empty for a kernel without such pointers.
        """
        floats = [name for name, kind in signature.types.items() if _element(kind) in FLOATS]
        if not floats:
            return []
        return [
            dtype
            for dtype in dtypes
            if (same := _with_element(signature, floats, dtype)) == signature
            or self._compile(same).usage
        ]


def _element(kind: str) -> str | None:
    """Return the element type of a pointer or descriptor, None for another type."""
    found = re.match(r"\*(\w+)$|tensordesc<(\w+)\[", kind)
    return (found[1] or found[2]) if found else None


def _with_element(signature: KernelSignature, names: list[str], element: str) -> KernelSignature:
    types = dict(signature.types)
    for name in names:
        types[name] = re.sub(r"^(\*|tensordesc<)\w+", rf"\g<1>{element}", types[name])
    return replace(signature, types=types)


# --- the first signature --------------------------------------------------------------------


class FirstGuess:
    """What launch sites, declarations and data flow say together.

    Attributes:
        from_launch: whether a launch site says anything of a parameter.
    """

    def __init__(
        self, kernel: LoadedKernel, reading: KernelReading, launches: list[dict[str, Any]]
    ) -> None:
        self.kernel, self.parameters = kernel, reading.parameters
        self.hints = {name: _merge(name, launches) for name in reading.parameters}
        self.from_launch = any(hint["kind"] != "unknown" for hint in self.hints.values())
        self.config = kernel.configs[0] if kernel.configs else None
        self.options: dict[str, Any] = {}
        for launch in reversed(launches):
            self.options |= launch.get("options") or {}

    def signature(self) -> KernelSignature:
        """Return the signature to try first."""
        types: dict[str, str] = {}
        constants: dict[str, Any] = {}
        for name, parameter in self.parameters.items():
            if self._is_constant(parameter):
                types[name], constants[name] = "constexpr", self._constant(parameter)
            else:
                types[name] = self._type(parameter)
        for name, parameter in self.parameters.items():
            if "descriptor" in parameter.uses and types[name] != "constexpr":
                types[name] = _descriptor_type(parameter, constants)
        constants |= self._heuristics(types, constants)
        types |= dict.fromkeys(constants.keys() & types.keys(), "constexpr")
        return KernelSignature(
            {name: types[name] for name in self.parameters},
            {name: constants[name] for name in self.parameters if name in constants},
            [name for name, kind in types.items() if kind.startswith("*")],
            self._option("num_warps", 4),
            self._option("num_stages", 2),
        )

    def _option(self, name: str, default: int) -> int:
        value = getattr(self.config, name, None) or self.options.get(name)
        return value if type(value) is int and value > 0 else default

    def _is_constant(self, parameter: ParameterUse) -> bool:
        if parameter.is_constexpr or (self.config and parameter.name in self.config.kwargs):
            return True
        if self.hints[parameter.name]["kind"] == "none":
            return "pointer" not in parameter.uses or "none_test" in parameter.uses
        if self.hints[parameter.name]["kind"] in ("str", "dtype"):
            return True
        integer = "pointer" not in parameter.uses
        return integer and bool(parameter.uses & {"shape", "constant", "dtype", "unrolled"})

    def _constant(self, parameter: ParameterUse) -> Any:
        if self.config and parameter.name in self.config.kwargs:
            return _as_json(self.config.kwargs[parameter.name])
        hint = self.hints[parameter.name]
        if hint["kind"] == "dtype" and hint["dtype"] in TRITON_TYPES:
            return {"dtype": _dtype_name(TRITON_TYPES[hint["dtype"]])}
        if hint["kind"] == "none" or hint["value"] is not None:
            return hint["value"]
        if parameter.default is not NO_DEFAULT and parameter.default is not None:
            return _as_json(parameter.default)
        if hint["kind"] == "bool":
            return False
        return guess_constant(parameter)

    def _type(self, parameter: ParameterUse) -> str:
        hint = self.hints[parameter.name]
        if "pointer" in parameter.uses or hint["kind"] == "tensor":
            return "*" + (TRITON_TYPES.get(hint["dtype"] or "") or guess_element(parameter))
        known = {"int": "i32", "float": "fp32", "bool": "i1"}
        return known.get(hint["kind"]) or guess_type(parameter)

    def _heuristics(self, types: dict[str, str], constants: dict[str, Any]) -> dict[str, Any]:
        """Return what the functions of ``@triton.heuristics`` compute from the arguments."""
        arguments = {
            name: constants[name] if name in constants else _example(kind)
            for name, kind in types.items()
        }
        found = {}
        for name, compute in self.kernel.heuristics.items():
            try:
                found[name] = arguments[name] = _as_json(compute(arguments))
            except Exception:  # it asks more of its arguments than stand-ins can tell
                continue
        return {name: value for name, value in found.items() if name in types}


def _merge(name: str, launches: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what launch sites say of a parameter: the first that knows its kind decides."""
    hints = [launch["arguments"][name] for launch in launches if name in launch["arguments"]]
    unknown = {"kind": "unknown", "dtype": None, "value": None}
    known = [hint for hint in hints if hint["kind"] not in ("unknown", "none")]
    known = known or [hint for hint in hints if hint["kind"] == "none"]
    return known[0] if known else unknown


def _example(kind: str) -> Any:
    """Return an argument of a type, for functions that look at arguments."""
    if kind.startswith(("*", "tensordesc")):
        return torch.empty((BLOCK, BLOCK), device="meta")
    return 1.0 if kind.startswith("fp") else BLOCK


def _as_json(value: Any) -> Any:
    """Return a constant in the form that `KernelSignature` keeps."""
    if isinstance(value, tuple | list):
        return [_as_json(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch.dtype):
        return {"dtype": _dtype_name(TRITON_TYPES[str(value).removeprefix("torch.")])}
    if hasattr(value, "value"):  # tl.constexpr
        return _as_json(value.value)
    if hasattr(value, "cache_key"):  # a jitted function
        return {"function": value.__name__}
    return {"dtype": str(value)}


def _dtype_name(kind: str) -> str:
    """Return how ``tl.dtype`` spells a type of signatures: ``i32`` is ``int32``."""
    return re.sub(r"^(u|i)(\d+)$", lambda m: ("uint" if m[1] == "u" else "int") + m[2], kind)


def guess_constant(parameter: ParameterUse) -> Any:
    """Return a value for a ``tl.constexpr`` that nothing but its use and name tells of."""
    name, uses = parameter.name.lower(), parameter.uses
    strings = [literal for literal in parameter.literals if isinstance(literal, str)]
    if strings:
        return strings[0]
    if re.search(r"eviction_policy|cache_modifier", name):
        return ""  # neither
    named = re.search(r"dtype|(^|_)type$", name) and not parameter.literals
    if "dtype" in uses or named:
        return {"dtype": "fp32"}
    if "tuple" in uses:
        return [BLOCK] * MOST_ITEMS
    if "unrolled" in uses and "shape" not in uses:
        return UNROLLED
    if "shape" in uses or re.search(r"block|tile|chunk", name):
        return BLOCK
    if re.match(r"(has|use|is|even|do|with|enable|need|return|store|apply|load|save)_", name):
        return False
    if re.search(r"(^|_)(eps|epsilon)", name):
        return 1e-6
    if parameter.literals:
        return parameter.literals[0]
    if "condition" in uses and not uses & {"index", "range", "scales"}:
        return False
    if uses == {"none_test"}:
        return None
    if re.search(r"scale|alpha|beta|cap$|slope|dropout|^p$", name) and "index" not in uses:
        return 1.0
    if re.search(r"^(n|num)_|count|group|topk|top_k|stages|^[hg]$|^hq$", name):
        return UNROLLED
    return BLOCK


def guess_element(parameter: ParameterUse) -> str:
    """Return an element type for a pointer."""
    name, elements = parameter.name.lower(), parameter.elements
    if "address" in elements:
        return "i64"
    if "bits" in elements and "bool" not in elements:
        return "i32"
    if "dot" in elements or "float" in elements:
        return "fp32"
    if "index" in elements:
        return "i32"
    if "bool" in elements or re.search(r"(^|_)mask", name):
        return "i1"
    if re.search(r"u8(_|$)|uint8|fp4", name):
        return "u8"
    if re.search(r"[ui]16(_|$)|uint16", name):
        return "i16"
    if re.search(r"fp8(_|$)", name):
        return "fp8e4nv"
    if re.search(r"idx|ind(ices|ex)($|_ptr)|seq_?len|cu_|offsets|lens|table|ids|count|slot", name):
        return "i32"
    return "fp32"


def guess_type(parameter: ParameterUse) -> str:
    """Return a type for a parameter that is neither a constant nor a known pointer."""
    name, uses = parameter.name.lower(), parameter.uses
    annotated = re.search(r"tl\.(u?int\d+|float\d+|bfloat16)$", parameter.annotation)
    if annotated:
        return TRITON_TYPES[annotated[1]]
    if parameter.annotation == "float" or isinstance(parameter.default, float):
        return "fp32"
    if "address" in uses:
        return "i64"
    if isinstance(parameter.default, bool):
        return "i1"
    if looks_like_pointer(name) and not uses - {"none_test"}:
        return "*" + guess_element(parameter)
    if "index" in uses or "range" in uses or re.search(r"stride|size|(^|_)(num|max|n)_", name):
        return "i32"
    if "mask" in name:
        return "i1"
    if "float" in uses or "scales" in uses:
        return "fp32"
    if re.search(r"eps|scale|alpha|beta|momentum|lr$|decay|dropout|^p$|slope|softcap|rate", name):
        return "fp32"
    return "i32"


def _descriptor_type(parameter: ParameterUse, constants: dict[str, Any]) -> str:
    """Return the type of a tensor descriptor: its block's sides come from its offsets."""
    sides = []
    for reach in parameter.offsets:
        blocks = [name for name in constants if name in reach and type(constants[name]) is int]
        named = [name for name in blocks if "block" in name.lower()] or blocks
        sides.append(constants[named[-1]] if named else 1)
    if not any(side > 1 for side in sides):
        sides = [BLOCK] * max(len(sides), 1)
    return f"tensordesc<fp16[{', '.join(map(str, sides))}]>"


# --- mending --------------------------------------------------------------------------------


def propose(
    signature: KernelSignature, failed: CompiledKernel, reading: KernelReading
) -> Iterator[KernelSignature]:
    """Yield signatures that may not have the error, the likeliest first."""
    message = failed.message or ""
    near = _parameters_near(failed.lines, reading)
    if failed.error in ("shared_memory", "timeout", "OutOfResources", "threads", "crash"):
        yield from _smaller(signature)
    if re.search(r"dtype|re-assigned|type mismatch|[Ii]ncompatible types", message):
        yield from _other_elements(signature, message, near)
    if "pointer<" in message and "float" in message:
        scalars = [name for name in near if signature.types[name] == "fp32"]
        yield from (_set_type(signature, name, "i32") for name in scalars)
    if re.search(r"is not defined|NoneType|None", message):
        yield from _flipped(signature, near)
        yield from _flipped(signature, list(signature.types))
    if re.search(r"[lr]hs dtype", message):  # of tl.dot
        for name in near:
            if signature.types[name].startswith("*"):
                yield _with_element(signature, [name], "fp16")
    if "1-bit" in message:
        yield from _as_masks(signature, reading)
    if re.search(r"constexpr", message):
        for name in near:
            if not signature.types[name].startswith(("*", "constexpr")):
                yield _set_constant(signature, name, BLOCK)
    if re.search(r">= ?\d+|power of 2|shape|dimension|elements|size", message):
        yield from _other_sizes(signature, near)
    yield from _named_elements(signature, " ".join([message, *failed.lines[-2:]]), near)
    for name in near:
        yield from _alternatives(signature, reading.parameters[name])
    yield from _flipped(signature, [n for n in signature.types if n not in near])
    yield from _smaller(signature)
    yield from _other_elements(signature, message, list(signature.types))


def _parameters_near(lines: tuple[str, ...], reading: KernelReading) -> list[str]:
    """Return the parameters that reach the fault: those named innermost come first."""
    found: dict[str, None] = {}
    words = [re.findall(r"[A-Za-z_]\w*", line) for line in reversed(lines)]
    for names in words:
        found |= dict.fromkeys(name for name in names if name in reading.parameters)
    for names in words:
        for name in names:
            found |= dict.fromkeys(sorted(reading.reach.get(name, ())))
    return list(found)


def _set_constant(signature: KernelSignature, name: str, value: Any) -> KernelSignature:
    return replace(
        signature,
        types={**signature.types, name: "constexpr"},
        constants={**signature.constants, name: value},
        divisible_by_16=[other for other in signature.divisible_by_16 if other != name],
    )


def _set_type(signature: KernelSignature, name: str, kind: str) -> KernelSignature:
    others = [other for other in signature.divisible_by_16 if other != name]
    return replace(
        signature,
        types={**signature.types, name: kind},
        constants={k: v for k, v in signature.constants.items() if k != name},
        divisible_by_16=[*others, name] if kind.startswith("*") else others,
    )


def _sizes(signature: KernelSignature) -> list[str]:
    return [
        name for name, value in signature.constants.items() if type(value) is int and value >= 16
    ]


def _smaller(signature: KernelSignature) -> Iterator[KernelSignature]:
    """Yield signatures that take less memory and time to compile."""
    if signature.num_stages > 1:
        yield replace(signature, num_stages=1)
    for largest in (64, 32, 16):
        smaller = signature
        for name in _sizes(signature):
            if signature.constants[name] > largest:
                smaller = _set_constant(smaller, name, largest)
        if smaller is not signature:
            yield replace(smaller, num_stages=1)


def _other_elements(
    signature: KernelSignature, message: str, near: list[str]
) -> Iterator[KernelSignature]:
    """Yield signatures with other element types, those that the message names first."""
    named = re.findall(r"\b(fp\d+|bf16|int\d+)\b", message)
    floats = [name for name, kind in signature.types.items() if _element(kind) in FLOATS]
    for element in dict.fromkeys([*named, *FLOATS]):
        if element in FLOATS:
            yield _with_element(signature, floats, element)
    integers = {"int64": "i64", "int32": "i32", "int1": "i1", "int8": "i8"}
    for element in dict.fromkeys(integers[n] for n in named if n in integers):
        pointers = [n for n in signature.types if (_element(signature.types[n]) or "")[:1] == "i"]
        yield _with_element(signature, pointers, element)
        for name in near:
            if signature.types[name] in ("i32", "i64"):
                yield _set_type(signature, name, element)
            elif signature.types[name].startswith("*"):
                yield _with_element(signature, [name], element)


def _named_elements(
    signature: KernelSignature, text: str, near: list[str]
) -> Iterator[KernelSignature]:
    """Yield signatures whose pointers have element types that the source asks for."""
    sized = {"8": "u8", "16": "i16"}
    words = re.findall(r"of size (8|16)\b|\b(u?int\d+|float\d+\w*|bfloat16|fp8\w+)\b", text)
    for size, word in dict.fromkeys(words):
        element = sized.get(size) or SPELLINGS.get(word)
        if element:
            for name in near:
                if signature.types[name].startswith(("*", "tensordesc")):
                    yield _with_element(signature, [name], element)
    if "64-bit" in text:
        yield _with_element(
            signature, [n for n, k in signature.types.items() if k == "*i32"], "i64"
        )


def _as_masks(signature: KernelSignature, reading: KernelReading) -> Iterator[KernelSignature]:
    """Yield signatures in which an integer, or what a pointer points to, is a boolean."""
    for name, kind in signature.types.items():
        parameter = reading.parameters[name]
        if kind in ("*i32", "*fp32") and "bool" in parameter.elements:
            yield _with_element(signature, [name], "i1")
        elif kind == "i32" and "index" not in parameter.uses:
            yield _set_type(signature, name, "i1")
    for name, kind in signature.types.items():
        if kind == "*i32":
            yield _with_element(signature, [name], "i1")


def _flipped(signature: KernelSignature, names: list[str]) -> Iterator[KernelSignature]:
    for name in names:
        value = signature.constants.get(name, 0)
        if isinstance(value, bool):
            yield _set_constant(signature, name, not value)
        elif value is None:
            yield _set_type(signature, name, "*fp32")


def _other_sizes(signature: KernelSignature, near: list[str]) -> Iterator[KernelSignature]:
    sizes = [name for name in near if type(signature.constants.get(name)) is int]
    for size in (BLOCK, 16, 64):
        same = signature
        for name in sizes:
            same = _set_constant(same, name, size)
        yield same
        for name in sizes:
            yield _set_constant(signature, name, size)


def _alternatives(signature: KernelSignature, parameter: ParameterUse) -> Iterator[KernelSignature]:
    """Yield signatures in which one parameter is something else."""
    name, kind = parameter.name, signature.types[parameter.name]
    if kind == "constexpr":
        yield from _other_constants(signature, parameter)
    elif "pointer" in parameter.uses:
        for element in ("i32", "i64", "i1", "fp32", "u8", "fp16"):
            yield _with_element(signature, [name], element)
    elif "index" in parameter.uses:
        yield from (_set_type(signature, name, other) for other in ("i32", "i64"))
        yield _set_constant(signature, name, BLOCK)
    else:
        for other in ("i32", "fp32", "*fp32", "*i32", "i1"):
            yield _set_type(signature, name, other)
        yield _set_constant(signature, name, BLOCK)


def _other_constants(
    signature: KernelSignature, parameter: ParameterUse
) -> Iterator[KernelSignature]:
    name, value = parameter.name, signature.constants[parameter.name]
    yield from _flipped(signature, [name])
    for literal in parameter.literals:
        yield _set_constant(signature, name, literal)
    if type(value) is int:
        for size in (BLOCK, 16, 64, 1, 2, 128, 8):
            yield _set_constant(signature, name, size)
    elif isinstance(value, dict):
        for dtype in ({"dtype": "fp16"}, {"dtype": "bf16"}, {"dtype": "int32"}, "fp32"):
            yield _set_constant(signature, name, dtype)
