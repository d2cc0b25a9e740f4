"""How long one call takes on a device, by the device's own events.

What is timed here runs in a trusted process: the reference, and the executor that does a
candidate's commands again. So a process may measure itself, as `triton.testing.do_bench` does
(https://github.com/triton-lang/triton, python/triton/testing.py). For each measured call

1. the inputs, always the same tensors, are filled with values that they have not had before;
2. a buffer of at least twice the size of the L2 cache is written;
3. an event is recorded, the call is made, and another event is recorded.

While the device writes the buffer, the host gets ahead, so that what it takes to launch a kernel is
not counted. A call is made by a CUDA graph if it can be captured, and otherwise as it is.

**Fresh values.** There are a few sets of inputs. All floating tensors of a set have been multiplied
with one number that was drawn from [0.5, 1), and for each call they are multiplied again, so that
the product of both is such a number, too. Zeros, signs, order, symmetry and the structure of masks
stay, and so do integers. A set as it was given cannot be told from the others: its results can be
compared in the middle of a run, and a kernel that repeats an old answer does not know when.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator, Sequence

import torch

from curate.problem.problem import describe
from curate.problem.values import Tensors

FLUSH_BYTES = 384 << 20
"""Written between two calls, or twice the L2 cache where that is more. `do_bench` writes 256 MiB;
here the host has more to launch meanwhile."""

WARM_CALLS = 3
"""Calls that are not measured: before a graph is captured, and at the start of every run."""

LEAST_SCALE = 0.5
"""What floating inputs are multiplied with is between this and one."""


class InputSets:
    """Values for the tensors that a call reads.

    Args:
        targets: the tensors; first the inputs, then what else is to be written before each call.
        masters: each set's values for them.
        scales: what each set's floating inputs have been multiplied with already; None where they
            must stay as they are.
        inputs: how many of the targets are inputs; by default all.
    """

    def __init__(
        self,
        targets: Tensors,
        masters: Sequence[Tensors],
        scales: Sequence[float | None],
        inputs: int | None = None,
    ) -> None:
        self.targets, self.masters, self.scales = targets, masters, scales
        self.inputs = len(targets) if inputs is None else inputs

    def fill(self, chosen: int, factor: float = 1.0) -> None:
        """Write a set's values, the floating inputs times a factor."""
        for i, (target, master) in enumerate(zip(self.targets, self.masters[chosen], strict=True)):
            if factor != 1.0 and i < self.inputs and _may_scale(target):
                torch.mul(master, factor, out=target)
            else:
                target.copy_(master)

    def fill_anew(self, generator: random.Random) -> None:
        """Write values that were not there before."""
        chosen = generator.randrange(len(self.masters))
        whole, known = generator.uniform(LEAST_SCALE, 1.0), self.scales[chosen]
        self.fill(chosen, 1.0 if known is None else whole / known)


def _may_scale(tensor: torch.Tensor) -> bool:
    floating = tensor.is_floating_point() or tensor.is_complex()
    return bool(floating and tensor.element_size() > 1)


class TimedCall:
    """A call that is made again and again, on inputs that change.

    Attributes:
        graph: what replays it; None where it is made as it is.
        problem: why it could not be captured.
    """

    def __init__(self, call: Callable[[], None], sets: InputSets, device: str) -> None:
        """Make some calls, and capture one if that is possible.

        Args:
            call: reads the tensors that ``sets`` writes.
            sets: the inputs.
            device: where both are. Without a GPU, the host's clock does for a device's.
        """
        self.call, self.sets = call, sets
        self.graph: torch.cuda.CUDAGraph | None = None
        self.problem: str | None = None
        self.stream: torch.cuda.Stream | None = None
        self._buffer: torch.Tensor | None = None
        if device != "cpu":
            self.stream = torch.cuda.Stream()
            cache = torch.cuda.get_device_properties(0).L2_cache_size
            size = max(2 * cache, FLUSH_BYTES)
            self._buffer = torch.empty(size, dtype=torch.uint8, device=device)
        with self._on_stream():
            for _ in range(WARM_CALLS):
                sets.fill(0)
                call()
        if device != "cpu":
            self._capture()

    def _capture(self) -> None:
        graph = torch.cuda.CUDAGraph()
        try:
            with as_users_run(), torch.cuda.graph(graph, stream=self.stream):
                self.call()
        except Exception as error:
            self.problem = describe(error)
            torch.cuda.synchronize()
        else:
            self.graph = graph

    @contextlib.contextmanager
    def _on_stream(self) -> Iterator[None]:
        """Have all work on the call's own stream, and wait for it in the end."""
        with as_users_run():
            if self.stream is None:
                yield
                return
            torch.cuda.synchronize()
            with torch.cuda.stream(self.stream):
                yield
            torch.cuda.synchronize()

    def once(self, watch: contextlib.AbstractContextManager[object]) -> None:
        """Make one call as it is, on the first set, in a context."""
        with self._on_stream():
            self.sets.fill(0)
        with watch, self._on_stream():
            self.call()

    def run(
        self,
        n: int,
        seed: int,
        body: bool = True,
        check: tuple[int, int] | None = None,
        look: Callable[[int], None] = lambda chosen: None,
    ) -> list[float]:
        """Return how many microseconds each of n calls takes.

        Args:
            n: number of calls.
            seed: what decides on their inputs.
            body: whether the call is made; without it, what is measured is the overhead.
            check: a call's number, and the set whose values it gets as they are.
            look: called after that call with the number of the set.
        """
        generator = random.Random(seed)
        clocks = [_Clock(self.stream is not None) for _ in range(n)]
        with self._on_stream():
            for i in range(-WARM_CALLS, n):
                checked = check is not None and check[0] == i
                if check is not None and checked:
                    self.sets.fill(check[1])
                else:
                    self.sets.fill_anew(generator)
                if self._buffer is not None:
                    self._buffer.zero_()
                clock = clocks[max(i, 0)]
                clock.note(0)
                if body:
                    self._make()
                clock.note(1)
                if check is not None and checked:
                    look(check[1])
        return [clock.microseconds() for clock in clocks]

    def _make(self) -> None:
        if self.graph is not None:
            self.graph.replay()
        else:
            self.call()


class _Clock:
    """Two events of the device, or the host's clock."""

    def __init__(self, on_device: bool) -> None:
        self.events = [torch.cuda.Event(enable_timing=True) for _ in range(2 * on_device)]
        self.times = [0.0, 0.0]

    def note(self, which: int) -> None:
        """Take the time of the start (0) or of the stop (1)."""
        if self.events:
            self.events[which].record()
        else:
            self.times[which] = time.perf_counter()

    def microseconds(self) -> float:
        """Return the time between start and stop, once the device is done."""
        if self.events:
            return 1e3 * float(self.events[0].elapsed_time(self.events[1]))
        return 1e6 * (self.times[1] - self.times[0])


@contextlib.contextmanager
def as_users_run() -> Iterator[None]:
    """Take no gradients, and turn off what the judge has PyTorch do to make mistakes show."""
    # As in `poison_memory`, not by the public function, which imports Inductor.
    saved = torch.are_deterministic_algorithms_enabled()
    torch._C._set_deterministic_algorithms(False)
    try:
        with torch.no_grad():
            yield
    finally:
        torch._C._set_deterministic_algorithms(saved, warn_only=True)
