"""What the judge and its processes send each other, where it is more than one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict

import torch

from curate.devices import Device
from curate.problem.draw import Draw
from curate.problem.values import Tensors, list_tensors
from curate.verify.protocol.calls import message
from curate.verify.protocol.places import TensorPlace

message(Draw)
message(Device)
message(TensorPlace)

LaunchOptions = dict[str, int | bool]
"""What a launch has of `curate.verify.compile.lowering.OPTIONS`."""

LaunchedKernel = tuple[str, str, LaunchOptions]
"""A kernel's name, its TTIR, and how it was launched."""

# --- the reference ----------------------------------------------------------------------------


class Results(TypedDict):
    """What a call of ``forward`` gives, and the inputs and the state that it changed, by name."""

    output: Any
    changed: dict[str, Any]
    state: dict[str, Any]


class Spread(Results):
    """How far results move; ``leans``: how far those in short types lean to one side, by path."""

    leans: dict[str, float]


@message
@dataclass(frozen=True)
class Loaded:
    """A file that has been run.

    Attributes:
        own_size: the file's value of the size that may vary, or None.
        smaller: of each size that was made smaller, both.
        precision: what the file lets its own products be.
    """

    own_size: int | None
    smaller: dict[str, list[int]]
    precision: dict[str, bool]


@message
@dataclass(frozen=True)
class Drawn:
    """One draw of a problem.

    Attributes:
        init: the constructor's arguments.
        inputs: those of ``forward``.
        names, state: parameters and buffers.
        own: results in the file's own precision.
        exact: results in float64.
    """

    init: list[Any]
    inputs: list[Any]
    names: list[str]
    state: list[torch.Tensor]
    own: Results
    exact: Results

    @property
    def tensors(self) -> Tensors:
        """All of its tensors."""
        return list_tensors([self.init, self.inputs, self.state, self.own, self.exact])


@message
@dataclass(frozen=True)
class Estimate:
    """Operators that compute, by name, and bytes that they move and hold at one time."""

    calls: dict[str, int]
    call_bytes: int
    most_bytes: int


@message
@dataclass(frozen=True)
class ProblemFacts:
    """What a problem is made of.

    Attributes:
        calls, call_bytes: operators that compute, and the bytes that they move.
        mode_dependent: whether training mode gives other results.
        insensitive_inputs: positions of inputs that the output does not depend on.
        remembers: whether a second call gives another result, though the state is the same.
        contiguous: whether the output lies in memory one element after the other.
        has_tables: whether its state has `curate.problem.draw.tables`.
    """

    calls: dict[str, int]
    call_bytes: int
    mode_dependent: bool
    insensitive_inputs: list[int]
    remembers: bool
    contiguous: bool
    has_tables: bool


@message
@dataclass(frozen=True)
class Variants:
    """What else a caller may do: draws by what they change, and layouts of inputs; and whether the
    reference took too long for all changes to be looked at."""

    draws: dict[str, list[Draw]]
    layouts: list[str]
    cut_short: bool


@message
@dataclass(frozen=True)
class ReadyBaselines:
    """Baselines that can be timed, whether each is a graph, and why one cannot be compiled."""

    graphs: dict[str, bool]
    compile_problem: str | None


# --- the executor -----------------------------------------------------------------------------


@message
@dataclass(frozen=True)
class CallLimits:
    """How a call is to be done.

    Attributes:
        elements, seconds: that it may take.
        seed: of random operators.
        order: seed of the order of atomic operations.
        skip: leave out launches.
        dry: do nothing but take note of the stream.
        keep: whether results of operators and uploads are kept.
        record: whether the call is to be done again.
        exact: whether kernels are compiled for the call's own sizes (`CudaBackend.exact`).
        shares: whether results stay on the device.
        precision: that operators may have, where that is to change.
        ptx: in the first call of a program that is judged as CUDA, the hash of the PTX whose
            kernels count.
    """

    elements: float
    seconds: float
    seed: int = 0
    order: int = 0
    skip: bool = False
    dry: bool = False
    keep: bool = False
    record: bool = False
    exact: bool = False
    shares: bool = False
    precision: dict[str, bool] | None = None
    ptx: str | None = None


@message
@dataclass(frozen=True)
class CallAccount:
    """What a call did.

    Attributes:
        found: tensors at the places that were asked for, then those at watched places that hold
            other values than the judge wrote last.
        changed: positions of these among the watched ones.
        kept: what operators and uploads gave, by their names.
        launches, calls: of kernels and of operators that compute, by name.
        on_the_way, call_bytes, launch_bytes, by_operators, by_host: see
            `curate.verify.executor.origins.WorkTrace`.
        read_bytes, sent_bytes: that the host read, and sent in whatever way.
        float_bytes: of tensors of floating numbers, that it both read and sent.
        elements: that were worked on.
        stream: hash of the commands, and of where the outputs lie.
        laps: hashes of calls in a row, and how often each was.
        compiled_s: seconds that the device waited for the compiler.
        commands: how many there were.
        values_asked: whether the host has read values.
        wrote_old: storages older than the call that it wrote to.
        promises: what kernels promised the compiler, and what did not hold; on a CPU.
        narrow: kernels, and storages of which their offsets of 32 bits span half or more; there.
    """

    found: list[torch.Tensor]
    changed: list[int]
    kept: list[tuple[str, torch.Tensor]]
    launches: dict[str, int]
    calls: dict[str, int]
    on_the_way: dict[str, int]
    call_bytes: int
    launch_bytes: float
    by_operators: list[bool]
    by_host: list[bool]
    read_bytes: int
    sent_bytes: int
    float_bytes: int
    elements: float
    stream: str
    laps: dict[str, int]
    compiled_s: float
    commands: int
    values_asked: bool
    wrote_old: list[int]
    promises: list[str]
    narrow: list[tuple[str, int]]


@message
@dataclass(frozen=True)
class Replayed:
    """Microseconds of replays, and what one of them gave: see `CallAccount`."""

    times: list[float]
    changed: list[int]
    found: list[torch.Tensor]


@message
@dataclass(frozen=True)
class Cubin:
    """A kernel as a device loads it, and what a launch must know of it.

    Attributes:
        image: the file's bytes.
        name: of the kernel in it.
        parameters: type and bytes of each, as PTX has them; none where there is no PTX.
        shared: bytes of shared memory.
        num_warps, num_ctas: of a block, and blocks of a cluster.
        cooperative: whether all blocks must be there at the same time.
        scratch: bytes of global scratch memory for each block, and their alignment.
    """

    image: torch.Tensor
    name: str
    parameters: list[tuple[str, int]]
    shared: int
    num_warps: int
    num_ctas: int
    cooperative: bool
    scratch: tuple[int, int]


# --- the host half ----------------------------------------------------------------------------


@message
@dataclass(frozen=True)
class Forward:
    """A call of ``forward``, or many in a row.

    Attributes:
        inputs: the arguments, packed; their tensors lie at places.
        places: where those are.
        seed: of the program's own process.
        refuse: whether launches raise.
        laps: how many calls.
        holds: whether results of earlier calls are kept.
        permuted: whether parameters of four dimensions have channels last.
    """

    inputs: Any
    places: list[TensorPlace]
    seed: int
    refuse: bool
    laps: int
    holds: bool
    permuted: bool


@message
@dataclass(frozen=True)
class Returned:
    """What a program gave, as its own process says.

    Attributes:
        output: the result, packed; its tensors lie at places.
        places: where those are.
        given: where the inputs, and then the state, lie now.
        devices: types of devices that the result is on.
        subclasses: names of its tensors' classes.
        rearranged: whether lists and dicts among the inputs hold other things than before.
    """

    output: Any
    places: list[TensorPlace]
    given: list[TensorPlace]
    devices: list[str]
    subclasses: list[str]
    rearranged: bool
