"""Does a mutant compute something other than the program it was made from?

This is asked without the judge, with more draws than the judge makes and none of its own, because
the judge is what is measured. `Trial` holds one program: its module, the original kernel, and
draws of inputs, parameters and sizes with their results. The answer for a mutant is one of

``invalid``
    it does not load or run on the file's own inputs, ends its process, takes more than a minute,
    or writes outside its tensors, which stand between guard bytes on a GPU; without a GPU, reads
    outside them count too. Every checker should see these, so they are no part of the shares.
``fault``
    on some draw an output is not within rounding: further from the module's float64 result than 4
    times the original kernel's largest error on that draw, plus 16 units in the last place of the
    value (2 in half precision); or its shape or dtype is another; or an integer is. The draw is
    the witness. Draws of one scale are among them, so that a large error elsewhere in a tensor
    hides nothing.
``special``
    as ``fault``, but only where inputs hold NaN or infinities.
``none``
    no draw shows a difference. If the mutant's code is the original's too (`code`) it is
    equivalent for certain; otherwise it is equivalent, or within rounding, as far as is known.

Only draws on which the original kernel is itself right count. Needs torch, triton and NumPy.
Without a GPU the kernels run in the judge's executor, which looks at every address.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from curate.problem.problem import load
from curate.verify import cpu_device
from curate.verify.cpu_device import ExecutorStopped, Handle, on_device, to_cpu, to_gpu

FACTOR = 4.0
ULPS = {torch.float16: 2.0, torch.bfloat16: 2.0}
"""Units in the last place that are rounding; 16 where nothing else is said."""

GUARD = 1 << 16
"""Bytes before and after every tensor, of 255: NaN as floating point."""

MEMORY = 2 << 30
"""Bytes of draws and results that are kept; later draws are left out."""

SIZES = (None, None, 1, None, 7, 2, None, 33, 64)
"""What sizes that only ``get_inputs`` reads are set to, draw after draw; None: the file's."""

TRIALS = 5
TOLERANCE = {torch.float16: 1e-2, torch.bfloat16: 1e-2}
"""KernelBench's trials, and its atol and rtol; 1e-4 where nothing else is said."""

Family = Callable[[torch.Tensor], torch.Tensor]


# --- draws ----------------------------------------------------------------------------------


def _normal(scale: float) -> Family:
    return lambda t: torch.randn(t.shape, dtype=torch.float64) * scale


def _narrow(scale: float) -> Family:
    """Values of one size and both signs."""

    def draw(t: torch.Tensor) -> torch.Tensor:
        sign = torch.randint(0, 2, t.shape).double() * 2 - 1
        return sign * scale * (1 + 0.1 * torch.rand(t.shape, dtype=torch.float64))

    return draw


def _rows_of_scales(t: torch.Tensor) -> torch.Tensor:
    scales = 10 ** (torch.rand(t.shape[:1], dtype=torch.float64) * 6 - 3)
    return torch.randn(t.shape, dtype=torch.float64) * scales.reshape(-1, *[1] * (t.ndim - 1))


def _outliers(t: torch.Tensor) -> torch.Tensor:
    drawn = torch.randn(t.shape, dtype=torch.float64)
    return torch.where(torch.rand(t.shape) < 0.01, drawn * 1000, drawn)


def _mostly_zero(t: torch.Tensor) -> torch.Tensor:
    return torch.randn(t.shape, dtype=torch.float64) * (torch.rand(t.shape) < 0.1)


def _sprinkled(value: float) -> Family:
    def draw(t: torch.Tensor) -> torch.Tensor:
        drawn = torch.randn(t.shape, dtype=torch.float64)
        return torch.where(torch.rand(t.shape) < 0.02, value, drawn)

    return draw


def _steps(step: float, most: int) -> Family:
    """Multiples of a step: ties, zeros, and the very values that conditions compare with."""
    return lambda t: torch.randint(-most, most + 1, t.shape).double() * step


FAMILIES: dict[str, Family | None] = {
    "own": None,
    "normal": _normal(1.0),
    "own again": None,
    "uniform": lambda t: torch.rand(t.shape, dtype=torch.float64),
    "integers": _steps(1.0, 4),
    "quarters": _steps(0.25, 12),
    "normal 0.1": _normal(0.1),
    "normal 10": _normal(10.0),
    "rows of scales": _rows_of_scales,
    "one per mille around 1": lambda t: 1 + 0.001 * torch.randn(t.shape, dtype=torch.float64),
    "around 100": lambda t: 100 + torch.randn(t.shape, dtype=torch.float64),
    "around -20": lambda t: -20 + torch.randn(t.shape, dtype=torch.float64),
    "narrow 1": _narrow(1.0),
    "narrow 0.001": _narrow(0.001),
    "narrow 30": _narrow(30.0),
    "negative": lambda t: -torch.rand(t.shape, dtype=torch.float64) * 3,
    "above 1": lambda t: 1 + 5 * torch.rand(t.shape, dtype=torch.float64),
    "cubed": lambda t: torch.randn(t.shape, dtype=torch.float64) ** 3,
    "normal 100": _normal(100.0),
    "normal 0.001": _normal(1e-3),
    "outliers": _outliers,
    "mostly zero": _mostly_zero,
    "ascending": lambda t: torch.linspace(-3, 3, t.numel(), dtype=torch.float64).reshape(t.shape),
    "zeros": lambda t: torch.zeros(t.shape, dtype=torch.float64),
    "ones": lambda t: torch.ones(t.shape, dtype=torch.float64),
    "all one number": lambda t: torch.full(t.shape, float(torch.randn(())), dtype=torch.float64),
    "normal 1e-6": _normal(1e-6),
    "normal 1e-12": _normal(1e-12),
    "normal 10000": _normal(1e4),
    "normal 1e8": _normal(1e8),
    "halves": _steps(0.5, 3),
    "own third": None,
    "normal second": _normal(1.0),
    "normal third": _normal(2.0),
    "narrow 5": _narrow(5.0),
    "narrow 0.1": _narrow(0.1),
    "uniform 0.01": lambda t: 0.01 * torch.rand(t.shape, dtype=torch.float64),
    "descending": lambda t: torch.linspace(5, -5, t.numel(), dtype=torch.float64).reshape(t.shape),
    "near zero or far": lambda t: 10 ** (6 * torch.rand(t.shape, dtype=torch.float64) - 5),
    "own fourth": None,
}
SPECIAL: dict[str, Family] = {
    "NaN": _sprinkled(math.nan),
    "infinity": _sprinkled(math.inf),
    "minus infinity": _sprinkled(-math.inf),
}


def _redrawn(value: Any, family: Family | None) -> Any:
    """Return an argument of ``forward`` with floating tensors, however nested, drawn anew."""
    if family is None:
        return value
    if isinstance(value, list | tuple):
        return type(value)(_redrawn(item, family) for item in value)
    if isinstance(value, torch.Tensor) and value.is_floating_point() and value.ndim:
        return torch.empty_like(value).copy_(family(value))
    return value


def _redraw_state(model: torch.nn.Module, index: int) -> None:
    """Draw parameters and floating buffers anew; what is nowhere negative stays so.

    Every third draw keeps what the constructor made of its seed.
    """
    for _, tensor in model.state_dict().items():
        if index % 3 == 0 or not tensor.is_floating_point() or not tensor.numel():
            continue
        drawn = torch.randn(tensor.shape, dtype=torch.float64)
        if bool((tensor >= 0).all()) and float(tensor.max()) > 0:
            drawn = drawn.abs() + 0.1
        spread = float(tensor.double().std()) if tensor.numel() > 1 else 0.0
        scale = spread if 0 < spread < math.inf else 1.0
        tensor.copy_(drawn * (scale if index % 3 == 1 else 3 * scale))


@dataclass
class Draw:
    """Inputs and parameters with the results that a mutant's are compared with.

    Attributes:
        own_size: whether the inputs have the file's own sizes.
        leaves: for each tensor of the output: the module's, in its own precision and in float64,
            the original kernel's, and how much more than the original's error is rounding.
    """

    name: str
    own_size: bool
    special: bool
    inputs: list[Any]
    state: dict[str, torch.Tensor]
    leaves: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]]


# --- running --------------------------------------------------------------------------------


_full = torch.full  # as it is; `_Guarded` replaces it for a while


class Invalid(Exception):
    """A mutant that any checker should see."""


class _Guarded:
    """Allocates tensors between guard bytes, and finds out whether those were written to."""

    def __init__(self) -> None:
        self.buffers: list[tuple[torch.Tensor, int]] = []

    def empty(self, shape: Any, strides: Any, dtype: torch.dtype, device: Any) -> torch.Tensor:
        extent = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        size = 0 if 0 in shape else extent * dtype.itemsize
        raw = _full((2 * GUARD + size,), 255, dtype=torch.uint8, device=device)
        self.buffers.append((raw, size))
        inside = raw[GUARD : GUARD + size].view(dtype)
        return inside.as_strided(tuple(shape), tuple(strides))

    def like(self, tensor: torch.Tensor) -> torch.Tensor:
        return self.empty(tensor.shape, tensor.stride(), tensor.dtype, tensor.device)

    def check(self) -> None:
        for raw, size in self.buffers:
            if bool((raw[:GUARD] != 255).any() | (raw[GUARD + size :] != 255).any()):
                raise Invalid("writes outside its tensors")

    @contextmanager
    def allocating(self) -> Iterator[None]:
        """Give ``torch.empty`` and its like tensors between guards inside the context."""
        names = ("empty", "empty_like", "empty_strided", "zeros", "zeros_like", "ones", "full")
        saved = {name: getattr(torch, name) for name in names}

        def guarded(name: str) -> Callable[..., torch.Tensor]:
            def allocate(*args: Any, **kwargs: Any) -> torch.Tensor:
                plain: torch.Tensor = saved[name](*args, **kwargs)
                return self.like(plain) if "empty" in name else self.like(plain).copy_(plain)

            return allocate

        for name in names:
            setattr(torch, name, guarded(name))
        try:
            yield
        finally:
            for name, function in saved.items():
                setattr(torch, name, function)


def _moved(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return arguments with every tensor replaced by what ``change`` makes of it."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, list | tuple):
        return type(value)(_moved(item, change) for item in value)
    if isinstance(value, dict):
        return {key: _moved(item, change) for key, item in value.items()}
    return value


def _double(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _tensors(value: Any) -> list[torch.Tensor]:
    """Return an output's tensors in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = [getattr(value, item.name) for item in dataclasses.fields(value)]
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in _tensors(item)]
    return []


class Gpu:
    """Runs programs on this machine's GPU."""

    def here(self) -> Any:
        """Return the context in which programs are loaded and built."""
        return nullcontext()

    def call(self, model: torch.nn.Module, inputs: list[Any]) -> list[torch.Tensor]:
        """Run a model on copies of the inputs and return its outputs."""
        return _tensors(model(*copy.deepcopy(inputs)))

    def call_guarded(self, model: torch.nn.Module, inputs: list[Any]) -> list[torch.Tensor]:
        """Do the same with tensors between guard bytes.

        Raises:
            Invalid: it wrote outside its tensors.
        """
        memory = _Guarded()
        given = _moved(inputs, lambda t: memory.like(t).copy_(t))
        with memory.allocating():
            outputs = [t.clone() for t in _tensors(model(*given))]
        memory.check()
        return outputs


class Cpu:
    """Runs programs' Python on handles of tensors, and their kernels in the judge's executor."""

    def __init__(self) -> None:
        cpu_device.warm()
        self.device = cpu_device.CpuDevice()

    @contextmanager
    def here(self) -> Iterator[None]:
        """Let programs find a GPU inside the context.

        Raises:
            Invalid: the executor did no more.
        """
        self.device.begin(0, math.inf, races=False)
        try:
            with on_device(self.device.stream):
                yield
                self.device.check()  # the program may have caught what was raised
        except ExecutorStopped as error:
            raise Invalid(str(error)) from error

    def call(self, model: torch.nn.Module, inputs: list[Any]) -> list[torch.Tensor]:
        """Run a model on copies of the inputs and return its outputs, on the CPU.

        Raises:
            Invalid: it left its tensors, or did what the executor does not do.
        """
        with self.here():
            outputs = _tensors(model(*_moved(inputs, to_gpu)))
            return [to_cpu(t) if isinstance(t, Handle) else t for t in outputs]

    call_guarded = call


def alive(device: str) -> bool:
    """Return whether the device can still be used; after a wild access a CUDA context cannot."""
    try:
        if device == "cuda":
            torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


class Trial:
    """A program and its draws.

    Args:
        reference: the module's text.
        original: the program's.
        device: ``cuda`` or ``cpu``: where results are compared, and whose `Gpu` or `Cpu` runs the
            kernels.

    Attributes:
        draws: those that count; the first has the file's own inputs.
        kernelbench: parameters, inputs and expected outputs of KernelBench's trials.

    Raises:
        RuntimeError: the original program is not right on its own inputs, or to KernelBench.
    """

    def __init__(self, reference: str, original: str, device: str) -> None:
        self.device = device
        self.kernels: Gpu | Cpu = Gpu() if device == "cuda" else Cpu()
        self.module = load("reference", reference)
        with self.kernels.here():
            self.original = load("original", original)
        self.draws: list[Draw] = []
        kept = 0
        for index, (name, family) in enumerate([*FAMILIES.items(), *SPECIAL.items()]):
            draw = self._draw(index, name, family)
            if draw is not None and kept < MEMORY:
                self.draws.append(draw)
                every = [*_tensors(draw.inputs), *(t for leaf in draw.leaves for t in leaf)]
                kept += sum(t.numel() * t.element_size() for t in every)
            if index == 0 and draw is None:
                raise RuntimeError("the original is not right on its own inputs")
        with torch.no_grad():
            self.kernelbench = [self._kernelbench_trial(seed) for seed in range(TRIALS)]
            if self._kernelbench(self.original.ModelNew):
                raise RuntimeError("KernelBench's check rejects the original")
        self._sums = self._checksums()

    def intact(self) -> bool:
        """Return whether what is kept is unchanged: a mutant may write anywhere."""
        return self._checksums() == self._sums

    def _checksums(self) -> list[int]:
        kept = [[draw.inputs, list(draw.leaves)] for draw in self.draws]
        every = _tensors([kept, [list(trial[1:]) for trial in self.kernelbench]])
        sums = [t.reshape(-1).view(torch.uint8).sum() for t in every]
        return [int(total) for total in torch.stack(sums).cpu()]

    def _free_sizes(self) -> list[str]:
        """Return the module's integers that ``get_inputs`` reads and nothing else does."""
        elsewhere: set[str] = set(self.module.get_init_inputs.__code__.co_names)
        for value in vars(self.module).values():
            functions = vars(value).values() if isinstance(value, type) else [value]
            for function in functions:
                if function is not self.module.get_inputs and hasattr(function, "__code__"):
                    elsewhere |= set(function.__code__.co_names)
        names = self.module.get_inputs.__code__.co_names
        return [n for n in names if n not in elsewhere and type(vars(self.module).get(n)) is int]

    def _inputs(self, seed: int, size: int | None) -> list[Any]:
        saved = {name: getattr(self.module, name) for name in self._free_sizes()}
        torch.manual_seed(seed)
        try:
            for step, name in enumerate(saved if size is not None else ()):
                setattr(self.module, name, max(1, (size or 0) - step))
            return list(self.module.get_inputs())
        finally:
            for name, value in saved.items():
                setattr(self.module, name, value)

    def _build(self, kind: Any, seed: int) -> torch.nn.Module:
        torch.manual_seed(seed)
        model: torch.nn.Module = kind(*self.module.get_init_inputs())
        return model.eval()

    def _build_kernels(self, kind: Any, state: dict[str, torch.Tensor]) -> torch.nn.Module:
        with self.kernels.here():
            model = self._build(kind, 0)
            model.load_state_dict(state)
            return model.to("cuda")

    def _draw(self, index: int, name: str, family: Family | None) -> Draw | None:
        """Return a draw with its results; None where the module or the original is at a loss."""
        size = SIZES[index % len(SIZES)] if self._free_sizes() else None
        try:
            with torch.no_grad():
                model = self._build(self.module.Model, 1000 + index)
                if index:
                    _redraw_state(model, index)
                inputs = _redrawn(self._inputs(1000 + index, size), family)
                state = {key: value.clone() for key, value in model.state_dict().items()}
                # On the CPU first: what it refuses there may end a device's context.
                model(*copy.deepcopy(inputs))
                leaves = self._results(model, inputs)
        except (RuntimeError, ValueError, TypeError, IndexError, AssertionError, Invalid):
            return None
        if leaves is None:
            return None
        here = _moved(inputs, lambda t: t.to(self.device))
        return Draw(name, size is None, name in SPECIAL, here, state, leaves)

    def _results(
        self, model: torch.nn.Module, inputs: list[Any]
    ) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]] | None:
        state = model.state_dict()
        kernel = self._build_kernels(self.original.ModelNew, state)
        model = model.to(self.device)
        here = _moved(inputs, lambda t: t.to(self.device))
        own = [t.clone() for t in _tensors(model(*copy.deepcopy(here)))]
        try:
            exact = _tensors(copy.deepcopy(model).double()(*_moved(copy.deepcopy(here), _double)))
        except RuntimeError:  # the module names a type in its code
            exact = own
        original = self.kernels.call_guarded(kernel, here)
        if not own or [t.shape for t in own] != [t.shape for t in original]:
            return None
        leaves = []
        for mine, true, theirs in zip(own, exact, original, strict=True):
            rounding = _rounding(mine, true, theirs)
            if rounding is None:
                return None
            leaves.append((mine, true, theirs, rounding))
        return leaves

    # mutants

    def judge(self, text: str) -> dict[str, Any]:
        """Return what is known of a mutant: ``outcome``, ``why``, and KernelBench's view of it.

        ``kernelbench`` is whether its check would reject the mutant.
        """
        caught = True
        try:
            with torch.no_grad():
                with self.kernels.here():
                    kind = load("mutant", text).ModelNew
                caught = self._kernelbench(kind)
                outcome, why = self._search(kind)
        except Exception as error:  # a mutant may raise anything
            outcome, why = "invalid", f"{type(error).__name__}: {error}"[:300]
        return {"outcome": outcome, "why": why, "kernelbench": caught}

    def _search(self, kind: Any) -> tuple[str, str]:
        special = ""
        for draw in self.draws:
            model = self._build_kernels(kind, draw.state)
            try:
                outputs = self.kernels.call_guarded(model, draw.inputs)
            except Exception as error:
                if draw is self.draws[0]:
                    raise
                if not alive(self.device):
                    raise
                if draw.own_size and not draw.special:
                    return "fault", f"{draw.name}: {type(error).__name__}: {error}"[:300]
                continue
            difference = _difference(outputs, draw)
            if difference and not draw.special:
                return "fault", f"{draw.name}: {difference}"
            special = special or (f"{draw.name}: {difference}" if difference else "")
        return ("special", special) if special else ("none", f"{len(self.draws)} draws")

    def _kernelbench(self, kind: Any) -> bool:
        """Return whether KernelBench's check rejects a mutant.

        Five draws, ``torch.allclose``, and one set of parameters for both, as the constructor
        makes them of a seed. Uninitialised memory is NaN here, which helps the check.
        """
        for state, inputs, expected in self.kernelbench:
            got = self.kernels.call(self._build_kernels(kind, state), inputs)
            if len(got) != len(expected) or not all(map(_allclose, expected, got)):
                return True
        return False

    def _kernelbench_trial(self, seed: int) -> tuple[Any, list[Any], list[torch.Tensor]]:
        """Return parameters, inputs and the expected output of one of KernelBench's trials.

        Inputs are normal, as it is published to draw them; the file's own where the module's
        result is not finite then, or the module does not take them.
        """
        own, model = self._inputs(seed, None), self._build(self.module.Model, seed)
        state = {key: value.clone() for key, value in model.state_dict().items()}
        torch.manual_seed(seed)
        inputs = _redrawn(own, _normal(1.0))
        try:
            outputs = _tensors(model(*copy.deepcopy(inputs)))
            if not all(bool(t.isfinite().all()) for t in outputs if t.is_floating_point()):
                inputs = own
        except RuntimeError:
            inputs = own
        here = _moved(inputs, lambda t: t.to(self.device))
        return state, here, _tensors(model.to(self.device)(*copy.deepcopy(here)))


# --- comparing ------------------------------------------------------------------------------


def _allclose(expected: torch.Tensor, got: torch.Tensor) -> bool:
    tolerance = TOLERANCE.get(expected.dtype, 1e-4)
    if expected.shape != got.shape or expected.dtype != got.dtype:
        return False
    if not expected.is_floating_point():
        return bool(torch.equal(expected, got))
    return bool(torch.allclose(expected, got, atol=tolerance, rtol=tolerance))


def _rounding(own: torch.Tensor, exact: torch.Tensor, original: torch.Tensor) -> Any:
    """Return how far from ``exact`` a mutant may be, element by element.

    None where the original is not right, so that nothing can be learned from a mutant.
    """
    if not own.is_floating_point():
        return own if torch.equal(own, original) else None
    finite = own.isfinite() & exact.isfinite()
    if not torch.equal(_kind(own)[~finite], _kind(original)[~finite]):
        return None
    zero = torch.zeros((), dtype=torch.float64, device=own.device)
    error = torch.where(finite, (original.double() - exact.double()).abs(), zero)
    own_error = torch.where(finite, (own.double() - exact.double()).abs(), zero)
    if not error.numel():
        return error
    ulp = torch.finfo(own.dtype).eps * ULPS.get(own.dtype, 16.0)
    size = torch.where(finite, exact.double().abs(), zero)
    if float(error.max()) > 8 * float(own_error.max()) + ulp * float(size.max()):
        return None
    return FACTOR * error.max() + ulp * size + torch.finfo(own.dtype).tiny


def _kind(values: torch.Tensor) -> torch.Tensor:
    """Return 0 for finite values, 1 for NaN, 2 and 3 for infinities."""
    return values.isnan() + 2 * values.isposinf().int() + 3 * values.isneginf().int()


def _difference(outputs: list[torch.Tensor], draw: Draw) -> str:
    """Return where and how a mutant's outputs are beyond rounding; empty if they are not."""
    if len(outputs) != len(draw.leaves):
        return "another number of outputs"
    for got, (own, exact, original, rounding) in zip(outputs, draw.leaves, strict=True):
        if got.shape != original.shape or got.dtype != original.dtype:
            return "another shape or dtype"
        if not got.is_floating_point():
            wrong = got != original
        else:
            compared = own.isfinite() & exact.isfinite()
            far = (got.double() - exact.double()).abs() > rounding
            wrong = torch.where(compared, far | ~got.isfinite(), _kind(got) != _kind(original))
        if bool(wrong.any()):
            at = tuple(torch.nonzero(wrong)[0].tolist()) if got.ndim else ()
            values = f"{original[at].item()!r} became {got[at].item()!r}"
            return f"{values} at {list(at)}, {float(wrong.double().mean()):.2%} of the output"
    return ""


# --- code -----------------------------------------------------------------------------------


def code(reference: str, candidate: str) -> str:
    """Return a hash of the PTX for sm_90 of all that a candidate launches on its own inputs.

    The kernels are the same code where the hashes are; what ``ModelNew`` passes to them is not
    looked at.
    """
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    from curate.devices import find_device
    from curate.verify.compile.aot import find_launches

    digest = hashlib.sha256()
    for launch in find_launches(reference, candidate, [find_device("cuda:90")])["cuda:90"]:
        source = ASTSource(launch.kernel, launch.types, launch.constants, launch.attributes)
        compiled = compile(source, target=GPUTarget("cuda", 90, 32), options=launch.options)
        digest.update(compiled.asm["ptx"].encode())
    return digest.hexdigest()
