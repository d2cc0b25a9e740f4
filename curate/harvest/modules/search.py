"""Find arguments with which a module runs: many cheap tries under fake tensors, one real run.

A try under `FakeTensorMode` computes shapes only and takes milliseconds, so the search needs no
table of error messages: it tries the shapes that are documented and those whose sizes come from the
module's own layers, keeps the one that got furthest, and adds the numbers that PyTorch's errors
mention to the sizes to try.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import io
import itertools
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedFakeTensorException,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from curate.engine.processes.time_limit import OutOfTime
from curate.harvest.guess import annotation_text
from curate.harvest.modules.config_arguments import STAND_IN, stand_ins
from curate.harvest.modules.constructor_arguments import choices, is_config
from curate.harvest.modules.documented import Documentation, documentation
from curate.harvest.modules.input_shapes import (
    InputGuess,
    Subject,
    apart,
    candidates,
    distributions,
    is_rotary,
    size_hints,
)
from curate.harvest.modules.sizes import (
    FINAL_SIZES,
    MANY_SIZES,
    SEARCH_SIZES,
    Sizes,
    file_names,
    names_in,
)
from curate.harvest.modules.taskfile import assemble, renamed
from curate.problem.eager import Unusable, check, load, shown

_NOT_FAKEABLE = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedFakeTensorException,
)


@dataclass(frozen=True)
class SearchLimits:
    """Bounds of one search; see the options of `Inputs`."""

    tries: int
    seconds: float
    max_elements: int
    max_parameters: int
    max_ops: int


class Trace(TorchDispatchMode):  # type: ignore[misc]
    """Counts what a forward pass does.

    Attributes:
        ops: operators called.
        compute: those that compute something.
        largest: elements of the largest tensor made.
        total: elements of all tensors made.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ops = self.compute = self.largest = self.total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.ops += 1
        if func.namespace != "prim" and not func.is_view and func.overloadpacket not in _MOVES:
            self.compute += 1
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor) and not func.is_view:
                self.largest = max(self.largest, leaf.numel())
                self.total += leaf.numel()
        return out


_ATEN = torch.ops.aten

_MOVES = frozenset(
    (_ATEN.clone, _ATEN.detach, _ATEN._to_copy, _ATEN.lift_fresh, _ATEN.copy_, _ATEN._unsafe_view)
)
"""Operators that move data and compute nothing."""


@dataclass
class ForwardTry:
    """The outcome of one forward pass under fake tensors."""

    inputs: tuple[InputGuess, ...]
    error: str | None
    trace: Trace


@dataclass
class ArgumentSearch:
    """The search for one module's arguments.

    Attributes:
        text: the standalone file.
        entry_point: the class's name in it.
        limits: when to give up.
        name: what the class's author called it.
    """

    text: str
    entry_point: str
    limits: SearchLimits
    name: str = ""
    used: int = 0
    deadline: float = field(default=0.0)
    told: Documentation = field(default_factory=Documentation)

    def run(self) -> str:
        """Return a runnable task: the file in KernelBench's form.

        Raises:
            Unusable: none was found; ``reason`` and ``evidence`` say why.
        """
        self.deadline = time.monotonic() + self.limits.seconds
        cls = load(self.text)[self.entry_point]
        self.told = documentation(self.text, self.entry_point)
        if cls.forward is torch.nn.Module.forward:
            raise Unusable("no_forward")
        lost: Unusable | None = None
        built = 0
        width = _width(self.text)
        for narrow in _constructor_attempts(cls, self.text):
            init_inputs = [re.sub(r"\b64\b", width, expression) for expression in narrow]
            try:
                model = self._construct(cls, init_inputs)
            except Exception as error:
                lost = lost or Unusable(
                    "constructor_unknown", error=shown(error), tried=init_inputs
                )
                continue
            built += 1
            try:
                return self._task(model, init_inputs)
            except Unusable as loss:
                if loss.reason not in _WORTH_ANOTHER_TRY:
                    raise
                if built == 1:
                    lost = loss
            if built == MAX_CONSTRUCTED or self.used >= self.limits.tries:
                break
        raise lost or Unusable("constructor_unknown")

    def _construct(self, cls: Any, init_inputs: list[str]) -> Any:
        """Return the module with fake parameters; with real ones where its code needs values."""
        try:
            with FakeTensorMode():
                return _instance(cls, init_inputs)
        except _NOT_FAKEABLE:
            return _instance(cls, init_inputs)

    def _task(self, model: Any, init_inputs: list[str]) -> str:
        parameters = sum(p.numel() for p in model.parameters())
        if parameters > self.limits.max_parameters:
            raise Unusable("too_large", parameters=parameters)
        subject = Subject(model, self.name or self.entry_point, self.told)
        lost: Unusable | None = None
        for attempt in itertools.islice(self._runnable(subject), MAX_CHECKED):
            try:
                return self._finish(subject, init_inputs, attempt)
            except Unusable as loss:
                if loss.reason == "uninitialised":  # whatever the inputs
                    raise
                lost = lost or loss
        raise lost or Unusable("no_inputs_found")

    def _finish(self, subject: Subject, init_inputs: list[str], found: ForwardTry) -> str:
        """Return the task of inputs that ran under fake tensors."""
        if found.trace.compute == 0:
            raise Unusable("no_compute")
        if found.trace.compute > self.limits.max_ops:
            raise Unusable("too_large", ops=found.trace.compute)
        found = self._apart(subject, found)
        sizes = self._scale(subject, found)
        lost: Unusable | None = None
        for inputs in distributions(found.inputs):
            shown = [given.expression() for given in inputs]
            used = names_in(shown, sizes)
            names = file_names(used, self.text)
            shown = [renamed(expression, names) for expression in shown]
            constants = {names[name]: sizes[name] for name in used}
            text = assemble(self.text, init_inputs, shown, constants)
            try:
                check(text, self.entry_point)
            except Unusable as loss:
                lost = lost or loss
                if loss.reason not in _WORTH_ANOTHER_TRY:
                    break
            else:
                return text
        raise lost or Unusable("no_inputs_found")

    def _apart(self, subject: Subject, found: ForwardTry) -> ForwardTry:
        """Return the inputs with lengths of their own, if the module takes them."""
        for inputs in apart(found.inputs):
            attempt = self._try(subject, inputs, SEARCH_SIZES)
            if attempt.error is None and attempt.trace.compute:
                return attempt
        return found

    def _runnable(self, subject: Subject) -> Iterator[ForwardTry]:
        """Yield tries that ran.

        The same shape is tried for every argument first; then one argument at a time is changed,
        and a change stays when more operators ran before the error.
        """
        parameters = _required(type(subject.model).forward, is_rotary)
        if any(p.kind is p.KEYWORD_ONLY for p in parameters):
            raise Unusable("no_inputs_found", error="forward needs a keyword-only argument")
        others = [p for p in parameters if p.default is p.empty and not is_rotary(p)]
        if any(re.match(_COLLECTIONS, annotation_text(p.annotation)) for p in others):
            raise Unusable("no_inputs_found", error="forward needs a list or dictionary")
        if not parameters:
            raise Unusable("no_inputs_found", error="forward takes no argument")
        subject.hints = size_hints(subject)
        best: list[ForwardTry] = []
        stop = min(self.limits.tries, self.used + self.limits.tries // 3)
        for _ in range(3):
            options = [list(candidates(p, subject)) for p in parameters]
            for inputs in itertools.chain(_uniform(options), _neighbours(best, options)):
                if self.used >= stop:
                    break
                attempt = self._try(subject, inputs, SEARCH_SIZES)
                if attempt.error is None:
                    yield attempt
                elif not best or attempt.trace.ops > best[-1].trace.ops:
                    best.append(attempt)
            mentioned = _numbers(best[-1].error if best else None)
            if mentioned <= set(subject.hints):
                break
            subject.hints = [*sorted(mentioned - set(subject.hints)), *subject.hints]
        raise Unusable("no_inputs_found", error=best[-1].error if best else None, tries=self.used)

    def _try(self, subject: Subject, inputs: tuple[InputGuess, ...], sizes: Sizes) -> ForwardTry:
        if time.monotonic() > self.deadline:
            raise OutOfTime
        self.used += 1
        trace = Trace()
        mode = _mode_of(subject.model)
        try:
            with torch.no_grad(), mode:
                given = [_make(i, sizes | subject.sizes) for i in inputs]
                with trace:
                    subject.model(*given)
        except Exception as error:
            return ForwardTry(inputs, shown(error), trace)
        return ForwardTry(inputs, None, trace)

    def _scale(self, subject: Subject, found: ForwardTry) -> Sizes:
        """Return the largest sizes at which the inputs run and stay within the limits."""
        over = 0
        named = {dim for given in found.inputs for dim in given.dims if isinstance(dim, str)}
        first: tuple[Sizes, ...] = (MANY_SIZES,) if named == {"batch_size"} else ()
        for sizes in (*first, *FINAL_SIZES):
            attempt = self._try(subject, found.inputs, sizes)
            if attempt.error is not None:
                continue
            sizes = sizes | subject.sizes
            inputs = [i.shape(sizes) for i in found.inputs]
            largest = max([attempt.trace.largest, *(_product(shape) for shape in inputs)])
            total_fits = attempt.trace.total <= 16 * self.limits.max_elements
            if total_fits and largest <= self.limits.max_elements:
                return sizes
            over = largest
        if over:
            raise Unusable("too_large", elements=over)
        raise Unusable("no_inputs_found", error=found.error)


MAX_CONSTRUCTED = 6
"""Constructor calls whose forward inputs are searched."""

MAX_CHECKED = 3
"""Inputs of one constructor call that are run for real."""

_COLLECTIONS = r"['\"]?(list|dict|sequence|mapping|iterable|tuple)\b.*tensor"

_WORTH_ANOTHER_TRY = frozenset(("no_inputs_found", "eager_error", "not_finite"))
"""Losses that other arguments may cure."""


WIDTHS = ("64", "96", "128", "192")


def _width(text: str) -> str:
    """Return what a module's widths are where they are free: one of `WIDTHS`, by its text."""
    return WIDTHS[hashlib.sha256(text.encode()).digest()[0] % len(WIDTHS)]


def _constructor_attempts(cls: Any, text: str) -> Iterator[list[str]]:
    """Yield argument lists: the likeliest values, then each argument's other values in turn."""
    if cls.__init__ is torch.nn.Module.__init__:
        yield []
        return
    options = []
    for parameter in _required(cls.__init__):
        values = choices(parameter)
        if is_config(parameter.name, parameter.annotation):
            values = stand_ins(text, parameter.name)
            if not values:
                raise Unusable("needs_config", parameter=parameter.name)
        if not values or parameter.kind is parameter.KEYWORD_ONLY:
            shown = str(parameter).replace(f"{parameter.name}: ", "", 1)
            raise Unusable("constructor_unknown", parameter=parameter.name, annotation=shown)
        options.append(values)
    base = [values[0] for values in options]
    yield base
    for rank in range(1, max(map(len, options), default=0)):
        for index, values in enumerate(options):
            if rank < len(values):
                yield [*base[:index], values[rank], *base[index + 1 :]]


def _required(
    function: Callable[..., Any], wanted: Callable[[inspect.Parameter], bool] = lambda _: False
) -> list[inspect.Parameter]:
    """Return the arguments without a default, and those up to the last that is wanted."""
    try:
        parameters = list(inspect.signature(function).parameters.values())[1:]
    except (TypeError, ValueError) as error:
        raise Unusable("constructor_unknown", error=shown(error)) from error
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    single = [p for p in parameters if p.kind not in variable]
    last = max((i for i, p in enumerate(single) if wanted(p)), default=-1)
    return [p for i, p in enumerate(single) if p.default is p.empty or i <= last]


def _instance(cls: Any, init_inputs: list[str]) -> Any:
    names = {"torch": torch, STAND_IN: SimpleNamespace}
    arguments = [eval(expression, names) for expression in init_inputs]
    with contextlib.redirect_stdout(io.StringIO()):
        model = cls(*arguments)
        model.eval()  # an overridden `train` may return None
    return model


def _mode_of(model: Any) -> FakeTensorMode:
    """Return the fake mode that the module's parameters belong to; a new one for real ones."""
    for tensor in itertools.chain(model.parameters(), model.buffers()):
        mode = getattr(tensor, "fake_mode", None)
        if mode is not None:
            mode.allow_non_fake_inputs = True
            return mode
    return FakeTensorMode(allow_non_fake_inputs=True)


def _uniform(options: list[list[InputGuess]]) -> Iterator[tuple[InputGuess, ...]]:
    """Yield each argument's own first choice, then each shape given to every argument.

    An argument that is unlike the first, such as a time with an image, is tried as what it may be
    next, a vector, before it gets the first's shape.
    """
    firsts = tuple(own[0] for own in options)
    yield firsts
    for index, own in enumerate(options):
        if own[0].dims != firsts[0].dims:
            yield from ((*firsts[:index], given, *firsts[index + 1 :]) for given in own[1:4])
    for given in options[0]:
        alike = (next((g for g in own if g.dims == given.dims), own[0]) for own in options[1:])
        same = (given, *alike)
        if same != firsts:
            yield same


def _neighbours(
    best: list[ForwardTry], options: list[list[InputGuess]]
) -> Iterator[tuple[InputGuess, ...]]:
    """Yield the latest best inputs with one argument changed; ``best`` may grow meanwhile."""
    if len(options) < 2:
        return
    for index in (*reversed(range(len(options))), *range(len(options))):
        for given in options[index]:
            if best:
                inputs = best[-1].inputs
                yield (*inputs[:index], given, *inputs[index + 1 :])


def _make(given: InputGuess, sizes: Sizes) -> Any:
    return eval(given.expression(), {"torch": torch, **sizes})


def _numbers(message: str | None) -> set[int]:
    return {n for n in map(int, re.findall(r"\d+", message or "")) if 2 <= n <= 4096}


def _product(shape: tuple[int, ...]) -> int:
    return int(torch.Size(shape).numel())
