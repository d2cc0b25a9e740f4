"""The reference's process: draws inputs and parameters, and says what is right.

One problem per process. It serves the public methods of `Reference`, but for the work they share,
and those of `curate.verify.reference.timed.Baselines`.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import itertools
import math
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from curate.problem.copies import copied
from curate.problem.draw import (
    NOT_FINITE,
    OWN,
    TIES,
    Draw,
    draw_arguments,
    draw_inputs,
    free_sizes,
    redraw_parameters,
    tables,
)
from curate.problem.half import HalfInFloat32
from curate.problem.operator_calls import DOUBLE, Mode, OperatorCalls, TooMuchWork
from curate.problem.problem import (
    EXAMPLE,
    LoadedTask,
    describe,
    poison_memory,
    seed_everything,
)
from curate.problem.smaller import ALL, MOST_CALLS
from curate.problem.smaller import shrink as shrink_sizes
from curate.problem.values import (
    Tensors,
    count_elements,
    list_tensors,
    map_tensors,
    same_tensors,
    to_device,
    without_float8,
)
from curate.problem.vary import GROWTH, LONG, LONG_CALLS, DrawCost, LongDraws, find_variants
from curate.verify.protocol.calls import handlers_of
from curate.verify.protocol.compare import FACTOR, Mismatch, compare, flatten, is_short, lean
from curate.verify.protocol.messages import (
    Drawn,
    Estimate,
    Loaded,
    ProblemFacts,
    Results,
    Spread,
    Variants,
)
from curate.verify.protocol.places import overlap, place_of
from curate.verify.protocol.role import (
    LAYOUTS,
    Refusal,
    allow_cudnn_tf32,
    get_precision,
    lay_out,
    layout_of,
    mutated_inputs,
    refusal,
    serve_requests,
)
from curate.verify.protocol.wire import Channel
from curate.verify.reference.equals import EqualPicks
from curate.verify.reference.noise import (
    COARSE,
    CONVOLUTION,
    JITTERS,
    MORE_JITTERS,
    PRODUCTS,
    SINGLE,
    Jitter,
    OwnEpsilon,
    RoundFactors,
    Rounding,
    Taken,
    Widened,
    furthest,
    last_place,
    random_numbers,
    short_type,
)
from curate.verify.reference.timed import Baselines

Right = tuple[Results, Results]
"""What is right: in the file's own precision, and in float64."""

MANY_PARAMETERS = 2**22
"""Elements of parameters and buffers that changed arguments may give in any case."""

LARGE_STATE = 2**27
"""Bytes of parameters from which on no other constructor's arguments are tried: each try makes
them anew."""

LARGE_CALL = 2**24
"""Bytes that the operators of a reference read and write from which on other arguments are tried
without data first."""

VARIANTS_S = 30.0
"""Seconds that a reference on a device may take to show which changes it takes: a transposed
convolution in three dimensions would take minutes."""

KEPT_BYTES = 2**31
"""Bytes of a draw up to which it is kept, in case its noise is asked for next."""

ANY_OF_EQUALS = ("sort", "topk", "median", "mode", "kthvalue", "cummax", "cummin", "_indices")
"""Suffixes of operators whose indices PyTorch's documentation leaves open where inputs
are equal; of `argmax`, `argmin`, `max` and `min` it says the first."""

USUAL, MORE, ROUGH = EFFORTS = "usual", "more", "rough"
"""How noise is made: in the type's last place; in more runs; in one of 10 bits."""

MANY_CALLS = 1000
"""What a counter of calls holds at least in every second set of parameters."""

SKIP = "skip"
"""Status of a draw that the reference does not take: nothing is learned from it."""


class NoValues(Mode):
    """Raises where numbers are asked of a tensor that has none, before memory is given to them."""

    def call(self, func: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call an operator, but for one that takes its tensors off ``meta``."""
        there = kwargs.get("device")
        leaves = there is not None and torch.device(there).type != "meta"
        if leaves and any(tensor.is_meta for tensor in list_tensors(args)):
            raise NotImplementedError("a tensor on meta has no numbers")
        return func(*args, **kwargs)


class Reference:
    """One problem, on one device."""

    def __init__(self) -> None:
        self.task: LoadedTask
        self.device = "cpu"
        self.models: dict[Any, tuple[list[Any], nn.Module]] = {}
        self.doubles: dict[Any, nn.Module] = {}
        self.last: tuple[Draw, list[Any], Right] | None = None
        self.long_draws: LongDraws | None = None
        self.widens = True  # what the file names as float32 may be float64
        self.call_bytes = 0

    def load(self, source: str, device: str, shrink: str) -> Loaded:
        """Run the file's text, and make large sizes smaller if wanted."""
        self.device = device
        if self.device != "cpu":
            torch.cuda.init()  # from now on, seeds are the device's too
        # PyTorch's own default, which is True, says nothing of what a problem means.
        allow_cudnn_tf32(False)
        self.task = LoadedTask(source)
        smaller = shrink_sizes(self.task, shrink, self._work)
        free = free_sizes(self.task)
        own_size = getattr(self.task.module, free[0]) if free else None
        return Loaded(own_size, smaller, get_precision())

    def draw(self, draw: Draw) -> Drawn:
        """Return one draw's inputs and parameters, and the expected results."""
        init, model = self.model(draw)
        inputs, (own, exact) = self._right(draw)
        if draw.family != OWN and _has_indices(own["output"]):
            self._reject_ties(model, inputs, draw.family == TIES)
        state = model.state_dict()
        return Drawn(init, inputs, list(state), list(state.values()), own, exact)

    def noise(self, draw: Draw, effort: str) -> Spread | None:
        """Return how far a draw's float64 results move when last digits change on the way.

        None where there are no such results.
        """
        inputs, (own, exact) = self._right(draw)
        last, short = last_place(inputs), self._short(draw, inputs)
        coarse, single = effort == ROUGH, last == torch.finfo(torch.float32).eps
        if exact is own or (coarse and not single):
            return None
        products: tuple[str, ...] = PRODUCTS if coarse else _on_tensor_cores()
        place = torch.finfo(short).eps if short else COARSE / FACTOR
        ulp = place if coarse else 0.0 if short else last
        cores = short or _on_short_cores(inputs, own)
        rounding = Rounding(ulp, short, cores, COARSE / 2 if single else 0.0, products)
        runs = MORE_JITTERS if effort == MORE else JITTERS
        return self._moved(draw, inputs, (own, exact), runs, rounding)

    def _short(self, draw: Draw, inputs: list[Any]) -> torch.dtype | None:
        """Return the 16-bit type of all floating tensors that a forward takes, or None.

        What it does not take, as a layer in float32 that nothing calls, says nothing.
        """
        model = self.model(draw)[1]
        state = list(model.state_dict().values())
        found = short_type([*inputs, *state])
        if found or not any(short_type([tensor]) for tensor in [*inputs, *state]):
            return found
        given, twin = copy.deepcopy(inputs), copied(model)
        seed_everything(draw.seed)
        with HalfInFloat32(), Taken() as taken:
            twin(*given)
        return short_type([*inputs, *(t for t in twin.state_dict().values() if t in taken)])

    def _reject_ties(self, model: nn.Module, inputs: list[Any], are_equal: bool) -> None:
        """Raise if an index may be that of any of several equal numbers.

        Where inputs are not equal, results of operators may be: small weights of a softmax are
        all zero.
        """
        given, twin = copy.deepcopy(inputs), copied(model)
        with HalfInFloat32(), OperatorCalls() as called, EqualPicks() as picks:
            twin(*given)
        is_open = any(call.endswith(ANY_OF_EQUALS) for call in called.unstable)
        if picks.found or (are_equal and is_open):
            raise Refusal(SKIP, "ties", "equal inputs have no one index")

    def initial_state(self, draw: Draw) -> dict[str, torch.Tensor]:
        """Return the parameters as the constructor makes them."""
        init = draw_arguments(self.task, draw)
        return dict(self.task.build(draw.parameters, init).state_dict())

    def estimate(self) -> Estimate:
        """Return how much work its own inputs are, without a run."""
        called, held = self._run_on_meta()
        most = called.most_bytes + DOUBLE * count_elements(held)
        return Estimate(dict(called.calls), called.call_bytes, most)

    def _work(self) -> float:
        """Return the bytes that a forward's operators move; infinity where there are too many."""
        try:
            return self._run_on_meta(MOST_CALLS)[0].call_bytes
        except TooMuchWork:
            return math.inf

    def _run_on_meta(self, most: float = math.inf) -> tuple[OperatorCalls, Tensors]:
        """Return the operators that compute, and inputs and state, without computing."""
        with torch.device("meta"):
            init, inputs = self.task.init_inputs(), self.task.inputs()
        called, state = self._calls(init, inputs, most)
        return called, [*list_tensors(inputs), *state]

    def _calls(
        self, init: list[Any], inputs: list[Any], most: float = math.inf
    ) -> tuple[OperatorCalls, Tensors]:
        """Return the operators that compute, and the model's state, without computing."""
        with torch.device("meta"), NoValues():
            model = self.task.module.Model(*init).eval().to("meta")
            called = OperatorCalls(most)
            with called:
                model(*to_device(inputs, "meta"))
        return called, list(model.state_dict().values())

    def facts(self, draw: Draw) -> ProblemFacts:
        """Return what the task is made of; raise if it cannot tell right from wrong."""
        init, model = self.model(draw)
        inputs, (own, exact) = self._right(draw)
        other = self._forward(model, inputs, draw.seed + 1)
        try:
            # Sums by atomic operations differ in their last digits, which is not what is meant.
            if not same_tensors(own, other):
                compare(other, own, exact, self.noise(draw, USUAL))
        except Mismatch as mismatch:
            message = f"the output depends on the seed: {mismatch.evidence}"
            raise Refusal("unsupported", "random", message) from mismatch
        given, twin = copy.deepcopy(inputs), copied(model)
        with HalfInFloat32(), OperatorCalls() as called:
            result = twin(*given)
        self.call_bytes = called.call_bytes
        return ProblemFacts(
            dict(called.calls),
            called.call_bytes,
            self._depends_on_mode(model, inputs, draw, own),
            self._insensitive(model, inputs, draw, own),
            self._remembers(twin, inputs, draw, (own, exact)),
            all(tensor.is_contiguous() for tensor in list_tensors(result)),
            bool([*model.buffers()] and tables(self.task.build(draw.parameters, init))),
        )

    def shares(self, draw: Draw) -> bool:
        """Say whether two results have memory in common, or one and an input or a parameter."""
        given, twin = copy.deepcopy(self.inputs(draw)), copied(self.model(draw)[1])
        with HalfInFloat32():
            result = twin(*given)
        return _share_memory(result, [given, *twin.parameters(), *twin.buffers()])

    def variants(self, draw: Draw, more: bool) -> Variants:
        """Return draws with changes that the reference takes, and layouts of inputs likewise."""
        inputs = self.inputs(draw)
        broken: list[Refusal] = []
        most_parameters = max(MANY_PARAMETERS, GROWTH * self._parameters(draw))
        until = math.inf if self.device == "cpu" else time.monotonic() + VARIANTS_S

        def forward(tried: Draw, most: int) -> Any:
            if time.monotonic() > until:
                return None
            if self._elements(tried) > most or self._parameters(tried) > most_parameters:
                return None
            given = self.inputs(tried)
            if self._is_too_much(tried, given):
                return None
            _, model = self.model(tried)
            try:
                work = OperatorCalls(most_bytes=self._room)
                result, _ = self._call(model, copy.deepcopy(given), tried.seed, work)
            except Exception as error:
                if (why := refusal(error)).status == "crash":
                    broken.append(why)
                raise
            return [result, list(model.state_dict().values())]

        def takes(layout: str) -> bool:
            number = itertools.count()

            def lay(tensor: torch.Tensor) -> torch.Tensor:
                return lay_out(tensor, layout, next(number))

            given = list(map_tensors(inputs, lay))
            try:
                self._forward(self.model(draw)[1], given, draw.seed)
            except Exception:
                return False
            shapes = [tensor.shape for tensor in list_tensors(inputs)]
            return any(layout_of(shape, layout, i) for i, shape in enumerate(shapes))

        is_large = _bytes_of(self.model(draw)[1].state_dict()) > LARGE_STATE
        found = find_variants(self.task, draw, inputs, forward, not is_large, more)
        cut_short = time.monotonic() > until
        if broken:  # and with it the device's context
            raise Refusal(SKIP, "variants", broken[0].message)
        return Variants(found, [layout for layout in LAYOUTS if takes(layout)], cut_short)

    def alone(self, draw: Draw) -> list[Draw]:
        """Return draws with one of a draw's changes each, where inputs become no larger by it.

        That is, than all changes or none make them. Operators may not have much more to do, either:
        a wide padding alone is much, where a long stride made the result small again.
        """

        without = dataclasses.replace(draw, changes=())
        most = max(self._elements(without), self._elements(draw))
        found = []
        for change in draw.changes:
            one = dataclasses.replace(draw, changes=(change,))
            with contextlib.suppress(Exception):  # the file's own: changes may need each other
                if self._elements(one) > most:
                    continue
                # Other families look at values. None where it cannot be told without computing.
                cost = self._cost(dataclasses.replace(one, family=OWN))
                if cost is None or cost.call_bytes <= self._room:
                    found.append(one)
        return found

    def _elements(self, draw: Draw) -> int:
        """Return how many elements the inputs of a draw have, without making them if possible."""
        try:
            with torch.device("meta"):
                return count_elements(draw_inputs(self.task, draw))
        except Exception:  # the file's own: a value may decide on a size
            return count_elements(self.inputs(draw))

    def _parameters(self, draw: Draw) -> int:
        """Return how many elements the model's state has, without making it; 0 if none can say."""
        try:
            with torch.device("meta"), NoValues():
                model = self.task.module.Model(*draw_arguments(self.task, draw))
        except Exception:  # the file's own: its constructor may read a value
            return 0
        return count_elements(list(model.state_dict().values()))

    def long(
        self, draw: Draw, number: int, short: bool, few: bool = False, longest: int = LONG[0]
    ) -> tuple[Draw | None, int]:
        """Return a draw in which one dimension of the inputs is long, found without computing.

        Also how many dimensions there are.
        """
        if self.long_draws is None or self.long_draws.draw != draw:
            self.long_draws = LongDraws(self.task, draw, self.inputs(draw), self._cost)
        count = len(self.long_draws.dimensions)
        found = None
        if number < count:
            found = self.long_draws.find(number, short, few, longest)
        return found, count

    def _cost(self, draw: Draw) -> DrawCost | None:
        """Return what a draw takes, or None where it is refused, without computing."""
        try:
            with torch.device("meta"):
                init, inputs = draw_arguments(self.task, draw), draw_inputs(self.task, draw)
            called, state = self._calls(init, inputs, LONG_CALLS)
        except TooMuchWork:
            return DrawCost(math.inf, math.inf)
        except Exception:
            return None
        return DrawCost(count_elements([*inputs, *state]), called.call_bytes)

    @property
    def _room(self) -> float:
        """Bytes that operators of a changed call may read and write, once the usual are known."""
        return max(LARGE_CALL, GROWTH * self.call_bytes) if self.call_bytes else math.inf

    def _is_too_much(self, draw: Draw, inputs: list[Any]) -> bool:
        """Say whether a changed call would take a large problem's reference much more work.

        One that raises in the end may have given a device minutes of work by then: here, it raises
        without.
        """
        if self.call_bytes < LARGE_CALL:
            return False
        called, _ = self._calls(draw_arguments(self.task, draw), inputs)
        return called.call_bytes > self._room

    # the work

    def model(self, draw: Draw) -> tuple[list[Any], nn.Module]:
        """Return the constructor's arguments, and a model with drawn parameters."""
        key = draw.instance, draw.mode
        if key not in self.models:
            init = draw_arguments(self.task, draw)
            # Built on the CPU, where a candidate is built too: what is drawn there is the same.
            model = self.task.build(draw.parameters, init).to(self.device)
            flipped = copied(model)
            redraw_parameters(flipped, draw.parameters)
            varies = any(map(_is_zero, model.buffers()))  # what may be a variance
            usual = draw.parameters % 4 == 0 and not varies  # nothing is flipped
            if usual or self._takes(flipped, draw, varies):
                model = flipped
            else:
                redraw_parameters(model, draw.parameters, flip=False)
            if draw.parameters % 2:
                self._count_on(model, draw)
            self.models = {key: (init, model.train(draw.mode == "train").to(self.device))}
        return self.models[key]

    def _count_on(self, model: nn.Module, draw: Draw) -> None:
        """Have what counts calls start at a number that many calls give."""
        counters = {n: t for n, t in model.named_buffers() if _is_counter(t)}
        if not counters:
            return
        twin = copied(model).train(draw.mode == "train").to(self.device)
        with contextlib.suppress(Exception):
            twin(*self.inputs(dataclasses.replace(draw, family=OWN, size=None)))
        after = dict(twin.named_buffers())
        for name, counter in counters.items():
            if not torch.equal(after[name], counter.to(self.device)):
                counter.add_(MANY_CALLS + draw.parameters % MANY_CALLS)

    def _double(self, draw: Draw) -> nn.Module:
        """Return the model in float64."""
        key = draw.instance, draw.mode
        if key not in self.doubles:
            self.doubles = {key: copied(self.model(draw)[1]).double()}
        return self.doubles[key]

    def _takes(self, model: nn.Module, draw: Draw, wholly: bool) -> bool:
        """Say whether a model with drawn parameters gives numbers for the file's own inputs, and
        if ``wholly`` no NaN at all."""
        model = model.train(draw.mode == "train").to(self.device)
        try:
            changes = draw.instance[1]
            own = dataclasses.replace(draw, family=OWN, size=None, changes=changes)
            inputs = self.inputs(own)
            found = self._forward(model, inputs, draw.seed)
            floats = [without_float8(t) for t in list_tensors(found) if t.is_floating_point()]
            has_nan = wholly and any(t.isnan().any() for t in floats)
            return _mostly_finite(found) and not has_nan
        except Exception:
            return False

    def _right(self, draw: Draw) -> tuple[list[Any], Right]:
        """Return a draw's inputs and results; those of the last draw asked for are kept."""
        if self.last is None or self.last[0] != draw:
            _, model = self.model(draw)
            inputs = self.inputs(draw)
            self.last = None
            try:
                results = self._run(model, inputs, draw)
            except Refusal as refused:
                if refused.status != SKIP or draw.family != TIES:
                    raise
                inputs = self.inputs(draw, within=True)
                results = self._run(model, inputs, draw)
            if _bytes_of([inputs, results]) > KEPT_BYTES:
                return inputs, results
            self.last = draw, inputs, results
        _, inputs, results = self.last
        return inputs, results

    def inputs(self, draw: Draw, within: bool = False) -> list[Any]:
        try:
            # On the device, numbers are drawn there: gigabytes take longer to send than to make.
            with contextlib.nullcontext() if self.device == "cpu" else torch.device(self.device):
                drawn = draw_inputs(self.task, draw, within)
            return list(to_device(drawn, self.device))
        except Exception as error:
            raise _failure(draw, error, self.device) from error

    def _forward(self, model: nn.Module, inputs: list[Any], seed: int) -> Results:
        """Return what ``forward`` gives, and those inputs that it changed; the model stays."""
        given = copy.deepcopy(inputs)
        result, state = self._call(model, given, seed)
        return {"output": result, "changed": mutated_inputs(given, inputs), "state": state}

    def _exactly(self, draw: Draw, inputs: list[Any], own: Results) -> Results:
        """Return what ``forward`` gives in float64, with the inputs that ``own`` has changed.

        The inputs become float64 in a copy that the call may change: a third copy of gigabytes
        would be too much for the device.
        """
        given = list(map_tensors(inputs, _double_copy))
        with self._made_exact(draw, inputs):
            result, state = self._call(self._double(draw), given, draw.seed)
        after = flatten(given, "input")
        changed = {path: after[path] for path in own["changed"]}
        return {"output": result, "changed": changed, "state": state}

    def _call(
        self,
        model: nn.Module,
        given: list[Any],
        seed: int,
        work: OperatorCalls | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Return what ``forward`` gives and the state that it changed; the model stays.

        ``work`` counts what forward does, and nothing that is done here.
        """
        twin = copied(model)
        seed_everything(seed)
        with HalfInFloat32(), work or contextlib.nullcontext():
            result = twin(*given)
        if self.device != "cpu":
            torch.cuda.synchronize()  # an assertion on the device is this call's
        return result, _changed_state(twin, model)

    def _run(self, model: nn.Module, inputs: list[Any], draw: Draw) -> Right:
        """Return the results in the file's own precision and in float64.

        Raises:
            Refusal: it raises, or gives little that is finite on a draw that is not the file's own.
        """
        try:
            with self._precision():
                own = self._forward(model, inputs, draw.seed)
        except Exception as error:
            raise _failure(draw, error, self.device) from error
        if draw.family not in (OWN, NOT_FINITE) and not _mostly_finite(own):
            raise Refusal(SKIP, "not_finite", f"mostly not finite on {draw.family} inputs")
        exact = self._exact(draw, inputs, own)
        if self.widens and (exact is None or _shapes(exact) != _shapes(own)):
            self.widens = False  # the file looks at the bits of a float32
            exact = self._exact(draw, inputs, own)
        # Some modules cannot be run in another precision; they are held to the floor of the
        # tolerance alone.
        return own, own if exact is None else exact

    def _exact(self, draw: Draw, inputs: list[Any], own: Results) -> Results | None:
        """Return the results in float64; None if they cannot be had."""
        try:
            exact = self._exactly(draw, inputs, own)
        except RuntimeError as error:
            _raise_if_fatal(error)
            return None
        return exact if list(flatten(exact)) == list(flatten(own)) else None

    def _moved(
        self,
        draw: Draw,
        inputs: list[Any],
        right: Right,
        runs: int,
        rounding: Rounding,
        keep_short: bool = True,
    ) -> Spread | None:
        """Return how far float64 results move with the last digits changed on the way.

        Numbers of few digits are kept, unless an operator rounds something that it works out of
        them, such as a quotient: which way that goes is then nobody's fault.
        """
        own, exact = right
        known: Results | None = None
        leans: dict[str, float] = {}
        for seed in range(runs):
            jitter = Jitter(seed, keep_short, rounding)
            changed = jitter.change(inputs)
            given, twin = copy.deepcopy(changed), copied(self._double(draw))
            seed_everything(draw.seed)
            try:
                with self._made_exact(draw, inputs), jitter:
                    result = twin(*given)
            except RuntimeError as error:
                _raise_if_fatal(error)
                continue  # a place that is worked out has left its table, as the last quantile's
            state = _changed_state(twin, self._double(draw))
            if keep_short and jitter.rounds:
                return self._moved(draw, inputs, right, runs, rounding, keep_short=False)
            parts = Results(output=result, changed=mutated_inputs(given, changed), state=state)
            known = furthest(exact, parts, known)
            for path, far in _leans(own, exact, parts).items():
                leans[path] = max(far, leans.get(path, 0.0))
        return None if known is None else Spread(**known, leans=leans)

    @contextlib.contextmanager
    def _made_exact(self, draw: Draw, inputs: list[Any]) -> Iterator[None]:
        """Have what a file makes in float32, such as angles of positions, in float64.

        In a file of 16 bits it stays float32, which is then more exact than all else; and what
        names the 16 bits gets float64.
        """
        usual, short = torch.get_default_dtype(), self._short(draw, inputs)
        torch.set_default_dtype(usual if short else torch.float64)
        last = last_place(inputs)
        single = SINGLE if self.widens and last == torch.finfo(torch.float32).eps else {}
        try:
            with OwnEpsilon(last), Widened({short: torch.float64} if short else single):
                yield
        finally:
            torch.set_default_dtype(usual)

    def _precision(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context in which a CPU multiplies as the file lets a GPU."""
        allowed = get_precision()
        coarse = self.device == "cpu" and any(allowed.values())
        return RoundFactors(**allowed) if coarse else contextlib.nullcontext()

    def _depends_on_mode(
        self, model: nn.Module, inputs: list[Any], draw: Draw, own: Results
    ) -> bool:
        try:
            other = self._forward(copied(model).train(draw.mode == "eval"), inputs, 0)
        except Exception:
            return True
        return not same_tensors(own, other)

    def _remembers(self, twin: nn.Module, inputs: list[Any], draw: Draw, right: Right) -> bool:
        """Say whether a model that was called gives another result, with the state as it was.

        So it does if it keeps something in an attribute, as recurrent cells do.
        """
        own, exact = right
        state = dict(self.model(draw)[1].named_buffers())
        given = copy.deepcopy(inputs)
        try:
            for name, buffer in twin.named_buffers():
                buffer.copy_(state[name])
            seed_everything(draw.seed)
            with HalfInFloat32():
                result = twin(*given)
        except Exception:
            return True
        if same_tensors(own["output"], result):
            return False
        try:
            noise = self.noise(draw, USUAL)
            compare(result, own["output"], exact["output"], noise and noise["output"])
        except Mismatch:
            return True
        return False

    def _insensitive(
        self, model: nn.Module, inputs: list[Any], draw: Draw, own: Results
    ) -> list[int]:
        """Return positions of tensor inputs that can be drawn anew without effect."""
        others = self.inputs(dataclasses.replace(draw, seed=draw.seed + 1000))
        found = []
        for i, (value, other) in enumerate(zip(inputs, others, strict=True)):
            if not isinstance(value, torch.Tensor) or same_tensors(value, other):
                continue
            try:
                changed = self._forward(model, [*inputs[:i], other, *inputs[i + 1 :]], draw.seed)
            except Exception:
                continue
            if same_tensors(own["output"], changed["output"]):
                found.append(i)
        return found


def _shapes(results: Results) -> list[torch.Size]:
    return [tensor.shape for tensor in list_tensors(results)]


def _share_memory(result: Any, given: list[Any]) -> bool:
    """Say whether two tensors of a result have memory in common, or one with what was given."""
    places, own = (
        [place_of(t, t.untyped_storage()._cdata) for t in list_tensors(value)]
        for value in (result, given)
    )
    return overlap(places, own)


def _is_counter(tensor: torch.Tensor) -> bool:
    return tensor.numel() == 1 and tensor.dtype in (torch.int32, torch.int64)


def _changed_state(twin: nn.Module, model: nn.Module) -> dict[str, Any]:
    """Return the parameters and buffers of a model's copy that are others than the model's."""
    own, after = (dict([*m.named_parameters(), *m.named_buffers()]) for m in (model, twin))
    return {n: t for n, t in after.items() if not same_tensors([t], [own.get(n)])}


def _leans(own: Any, exact: Any, moved: Any) -> dict[str, float]:
    """Return how far results in short types lean to one side, by their paths."""
    found = {}
    for part in ("output", "changed", "state"):
        others, rights = flatten(moved[part], part), flatten(exact[part], part)
        floats = {p: t for p, t in flatten(own[part], part).items() if isinstance(t, torch.Tensor)}
        for path, tensor in floats.items():
            other = others.get(path)
            if other is None or not tensor.is_floating_point() or not is_short(tensor.dtype):
                continue
            if other.shape == tensor.shape:
                found[path] = abs(lean(other.double(), rights[path].double(), tensor.dtype))
    return found


def _is_zero(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.itemsize > 1 and not tensor.any()


def _double_copy(tensor: torch.Tensor) -> torch.Tensor:
    wide = tensor.double() if tensor.is_floating_point() else tensor
    wide = tensor.to(torch.complex128) if tensor.is_complex() else wide
    return tensor.clone() if wide is tensor else wide


def _on_tensor_cores() -> tuple[str, ...]:
    """Return the products of float32 whose factors the file lets a program round to TF32."""
    allowed = get_precision()
    others = tuple(name for name in PRODUCTS if name != CONVOLUTION)
    kinds = others if allowed["matmul_tf32"] else ()
    return (*kinds, *((CONVOLUTION,) if allowed["cudnn_tf32"] else ()))


def _on_short_cores(inputs: list[Any], own: Results) -> torch.dtype | None:
    """Return the 16-bit type of all floating results, if an input has it, too."""
    kind = short_type([own["output"]])
    return kind if any(tensor.dtype == kind for tensor in list_tensors(inputs)) else None


def _failure(draw: Draw, error: Exception, device: str) -> Refusal:
    why = refusal(error)
    if why.status == "oom" and device != "cpu":
        return why  # a neighbour may hold the memory: it says nothing of the draw
    if draw.family != OWN or draw.size is not None or draw.changes:
        return Refusal(SKIP, "raises", describe(error))
    return Refusal("unsupported", "reference_error", describe(error))


def _raise_if_fatal(error: RuntimeError) -> None:
    """Raise where memory ran out or a device is lost, rather than a file that cannot do this."""
    if (why := refusal(error)).status in ("oom", "crash"):
        raise why from error


def _mostly_finite(value: Any) -> bool:
    """Say whether enough is finite: what is defined for one sign has a half, give or take some."""
    floats = [t for t in list_tensors(value) if t.is_floating_point() and t.numel()]
    return all(3 * int(without_float8(t).isfinite().sum()) >= t.numel() for t in floats)


def _bytes_of(value: Any) -> int:
    return sum(t.numel() * t.element_size() for t in list_tensors(value))


def _has_indices(value: Any) -> bool:
    types = {t.dtype for t in list_tensors(value)}
    return any(not (t.is_floating_point or t.is_complex or t == torch.bool) for t in types)


def warm() -> None:
    """Load what problems need: an example loads what is loaded on first use."""
    reference = Reference()
    random_numbers("cpu")
    with torch.no_grad():
        reference.load(EXAMPLE[0], "cpu", ALL)
        reference.facts(Draw(0))
        reference.estimate()


def serve(channel: Channel) -> None:
    """Serve the judge on a channel, in a child of its own."""
    poison_memory()
    torch.set_grad_enabled(False)
    reference = Reference()
    baselines = Baselines(reference)
    handlers = handlers_of(
        *(reference.load, reference.draw, reference.noise, reference.initial_state),
        *(reference.estimate, reference.facts, reference.shares),
        *(reference.variants, reference.alone, reference.long),
        *(baselines.try_size, baselines.prepare_timing, baselines.time),
    )
    serve_requests(channel, handlers)
