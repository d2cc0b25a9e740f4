"""Streams: what races on a device, though the work is done in order here."""

from __future__ import annotations

import hashlib
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from curate.devices import ON_CPU
from curate.verify.compile.ptx import stored_parameters
from curate.verify.cpu_device import CpuDevice
from curate.verify.executor.serve import EXAMPLE
from curate.verify.executor.streams import overlap
from curate.verify.host_half import virtual_cuda
from curate.verify.host_half.handles import Handle, on_device
from curate.verify.host_half.streams import DEFAULT, POOL, HostStreams
from curate.verify.protocol.messages import CallLimits
from curate.verify.protocol.places import TensorPlace
from curate.verify.protocol.role import Refusal

PLACE = TensorPlace(1 << 24, torch.float32, (8, 8), (8, 1), 0)
COPY = hashlib.sha256(EXAMPLE.encode()).hexdigest()


class Call:
    """One call of a program: its input is `x`."""

    def __init__(self) -> None:
        device = CpuDevice()
        self.stream, self.executor = device.stream, device.executor
        self.begin()
        self.x = Handle(self.stream.adopt(PLACE))

    def begin(self) -> None:
        self.executor.begin([PLACE], [torch.ones(8, 8)], CallLimits(1e9, 60.0))
        self.stream.streams.use(DEFAULT)

    def end(self, *results: Any) -> None:
        places = [self.stream.place(t.inner) for t in results]
        self.executor.finish(self.stream.end(), places, [], 2**20)

    def launch(self, *tensors: Any) -> None:
        """Launch a kernel that copies the first tensor to the second."""
        args = [{"t": self.stream.place(t.inner).to_json()} for t in tensors]
        how = {"grid": [1, 1, 1], "options": {}, "args": [*args, 8]}
        self.stream.send({"do": "launch", "ttir": EXAMPLE, "sha256": COPY, **how})


@pytest.fixture(scope="module", autouse=True)
def device() -> Iterator[None]:
    """Let this module find a device, and the others what was there."""
    spaces = [torch.cuda, torch.cuda.nvtx, torch.cuda.profiler, torch.version, torch]
    before = [dict(vars(space)) for space in spaces]
    virtual_cuda.install(ON_CPU)
    yield
    for space, names in zip(spaces, before, strict=True):
        vars(space).update(names)


@pytest.fixture
def call() -> Iterator[Call]:
    made = Call()
    with torch.no_grad(), on_device(made.stream):
        yield made


def run(call: Call, program: str, calls: int = 1) -> None:
    """Run statements that set ``y`` as so many calls."""
    names: dict[str, Any] = {"torch": torch, "cuda": torch.cuda, "x": call.x, "launch": call.launch}
    for number in range(calls):
        if number:
            call.begin()
        exec(textwrap.dedent(program), names)
        y = names["y"]
        call.end(call.x, *(y if isinstance(y, tuple) else [y]))


SIDE = """
side, main = cuda.Stream(), cuda.current_stream()
side.wait_stream(main)
"""

ORDERED = {
    "one stream": "y = x + 1",
    "the default stream, by name": "with cuda.stream(cuda.default_stream()):\n    y = x + 1",
    "the current stream, set": "cuda.set_stream(cuda.current_stream())\ny = x + 1",
    "no stream": "with cuda.stream(None):\n    y = x + 1",
    "a joined stream": SIDE + "with cuda.stream(side):\n    y = x + 1\nmain.wait_stream(side)",
    "a joined stream as a context": SIDE + "with side:\n    y = x + 1\nmain.wait_stream(side)",
    "made late": "h = x + 1\n" + SIDE + "with side:\n    y = h + 1\nmain.wait_stream(side)",
    "events": """
        side, ready, done = cuda.Stream(priority=-1), cuda.Event(), cuda.Event(enable_timing=True)
        ready.record()
        side.wait_event(ready)
        with cuda.stream(side):
            y = x + 1
            done.record()
        done.wait()
        """,
    "an event before the stream": """
        h = x + 1
        ready = cuda.current_stream().record_event()
        side = cuda.Stream()
        ready.wait(side)
        with cuda.stream(side):
            y = h + 1
        side.record_event().synchronize()
        """,
    "the device": """
        cuda.synchronize()
        with cuda.stream(cuda.Stream()):
            y = x + 1
        cuda.synchronize()
        """,
    "one stream synchronized": SIDE + "with side:\n    y = x + 1\nside.synchronize()",
    "asked until it is done": SIDE + "with side:\n    y = x + 1\nwhile not side.query(): pass",
    "a value read": SIDE + "with side:\n    y = x.sum()\n    y.item()",
    "by way of a third": """
        one, two, main = cuda.Stream(), cuda.Stream(), cuda.current_stream()
        one.wait_stream(main)
        with cuda.stream(one):
            h = x + 1
        two.wait_stream(one)
        with cuda.stream(two):
            y = h + x
        main.wait_stream(two)
        """,
    "two that read one tensor": """
        one, two, main = cuda.Stream(), cuda.Stream(), cuda.current_stream()
        y = torch.empty_like(x), torch.empty_like(x)
        for stream, out in zip((one, two), y):
            stream.wait_stream(main)
            with cuda.stream(stream):
                launch(x, out)
                out.add_(x)
        main.wait_stream(one)
        main.wait_stream(two)
        """,
    "halves of one tensor": """
        y, main = torch.empty_like(x), cuda.current_stream()
        streams = [cuda.Stream(), cuda.Stream()]
        for i, stream in enumerate(streams):
            stream.wait_stream(main)
            with cuda.stream(stream):
                launch(x, y[:, 4 * i : 4 * i + 4])
                y[:, 4 * i : 4 * i + 4].mul_(2)
        for stream in streams:
            main.wait_stream(stream)
        """,
    "a graph": """
        graph, held = cuda.CUDAGraph(), torch.empty_like(x)
        """
    + textwrap.indent(SIDE, "        ")
    + """
        with cuda.stream(side):
            y = held + 1
        main.wait_stream(side)
        with cuda.graph(graph, pool=cuda.graph_pool_handle(), stream=side):
            y = held + 1
        held.copy_(x)
        graph.replay()
        """,
    "work that was done before it": """
        with cuda.stream(cuda.Stream()):
            y = torch.ones(4, device="cuda") + 1
        cuda.synchronize()
        """,
    "a stream by its handle": SIDE
    + "same = cuda.ExternalStream(side.cuda_stream)\nassert same == side\n"
    + "with cuda.stream(side):\n    y = x + 1\nmain.wait_stream(same)",
}

RACES = {
    "inputs not waited for": """
        with cuda.stream(cuda.Stream()):
            y = x + 1
        cuda.synchronize()
        """,
    "results not waited for": SIDE + "with side:\n    y = x + 1",
    "another current stream left behind": SIDE + "cuda.set_stream(side)\ny = x + 1",
    "a launch not waited for": """
        y = torch.empty_like(x)
        with cuda.stream(cuda.Stream()):
            launch(x, y)
        cuda.synchronize()
        """,
    "a launch's result": SIDE + "y = torch.empty_like(x)\nwith side:\n    launch(x, y)",
    "the launch of another": """
        y, main = torch.empty_like(x), cuda.current_stream()
        for stream in (cuda.Stream(), cuda.Stream()):
            stream.wait_stream(main)
            with cuda.stream(stream):
                launch(x, y)
        cuda.synchronize()
        """,
    "what is read is overwritten": SIDE
    + "with side:\n    y = x + 1\nx.zero_()\nmain.wait_stream(side)",
    "an event that is too early": """
        side, ready = cuda.Stream(), cuda.Event()
        ready.record()
        h = x + 1
        side.wait_event(ready)
        with cuda.stream(side):
            y = h + 1
        cuda.synchronize()
        """,
    "an event that was not recorded": """
        side = cuda.Stream()
        side.wait_event(cuda.Event())
        with cuda.stream(side):
            y = x + 1
        cuda.synchronize()
        """,
    "an input left behind": SIDE + "y = x + 1\nside.wait_stream(main)\nwith side:\n    x.add_(1)",
    "waits in a capture": """
        graph, side = cuda.CUDAGraph(), cuda.Stream()
        graph.capture_begin()
        side.wait_stream(cuda.current_stream())
        graph.capture_end()
        with cuda.stream(side):
            y = x + 1
        cuda.synchronize()
        """,
    "a graph on another stream": """
        graph, held = cuda.CUDAGraph(), torch.empty_like(x)
        with cuda.graph(graph):
            y = held + 1
        held.copy_(x)
        with cuda.stream(cuda.Stream()):
            graph.replay()
        cuda.synchronize()
        """,
}


@pytest.mark.parametrize("program", ORDERED.values(), ids=ORDERED)
@pytest.mark.parametrize("calls", [1, 3])
def test_programs_that_wait_have_no_race(call: Call, program: str, calls: int) -> None:
    run(call, program, calls)


@pytest.mark.parametrize("program", RACES.values(), ids=RACES)
def test_programs_that_do_not_wait_have_one(call: Call, program: str) -> None:
    with pytest.raises(Refusal) as refused:
        run(call, program)
    assert (refused.value.status, refused.value.reason) == ("incorrect", "race")
    assert "does not wait" in refused.value.message


def test_a_race_in_one_call_is_none_in_the_next(call: Call) -> None:
    with pytest.raises(Refusal):
        run(call, RACES["results not waited for"])
    call.begin()
    run(call, ORDERED["a joined stream"], 2)


def test_work_of_an_earlier_call_may_race(call: Call) -> None:
    kept = """
    if "held" not in globals():
        held, side = torch.empty_like(x), cuda.Stream()
        side.wait_stream(cuda.current_stream())
        with side:
            held.copy_(x)
        y = x + 1
    else:
        y = held + 1
    """
    with pytest.raises(Refusal):
        run(call, kept, 2)


def test_programs_of_one_stream_are_not_followed(call: Call) -> None:
    run(call, ORDERED["one stream"], 3)
    order = call.executor.commands.streams
    assert not order.concurrent
    assert not order._uses


def test_streams_come_round_again_by_priority() -> None:
    order = HostStreams(lambda *said: None)
    plain = [order.make() for _ in range(POOL + 1)]
    urgent = order.make(-1)
    assert plain[0] == plain[-1]
    assert len({DEFAULT, urgent, *plain}) == POOL + 2


def test_what_else_programs_ask_of_cuda(call: Call) -> None:
    cuda: Any = torch.cuda
    cuda._sleep(1000)
    with cuda.nvtx.range("a range"):
        cuda.nvtx.mark("a mark")
    with torch.random.fork_rng():
        cuda.set_rng_state(cuda.get_rng_state())
    start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True, blocking=True)
    start.record(cuda.current_stream())
    end.record()
    assert 1.0 <= start.elapsed_time(end) < 1.1 and start.elapsed_time(end) == start.elapsed_time(
        end
    )
    assert end.query()
    assert cuda.current_stream().cuda_stream == 0
    assert cuda.Stream(device="cuda", priority=-1) != cuda.default_stream()
    assert cuda.ExternalStream(0) == cuda.default_stream()
    assert cuda.ExternalStream(1234) != cuda.default_stream()
    call.x.record_stream(cuda.current_stream())


def place(shape: tuple[int, ...], stride: tuple[int, ...], offset: int, of: Any) -> TensorPlace:
    return TensorPlace(0, of, shape, stride, offset)


@pytest.mark.parametrize(
    ("one", "other", "overlapping"),
    [
        (((8, 8), (8, 1), 0), ((8, 8), (8, 1), 0), True),
        (((4,), (1,), 0), ((4,), (1,), 4), False),
        (((4,), (1,), 0), ((4,), (1,), 3), True),
        (((8, 4), (8, 1), 0), ((8, 4), (8, 1), 4), False),
        (((8, 4), (8, 1), 0), ((4, 8), (1, 8), 0), True),
        (((8, 5), (8, 1), 0), ((8, 4), (8, 1), 4), True),
        (((0,), (1,), 0), ((4,), (1,), 0), False),
        (((4,), (0,), 3), ((2,), (2,), 1), True),
    ],
)
def test_views_overlap_where_they_share_an_element(one: Any, other: Any, overlapping: bool) -> None:
    pair = place(*one, torch.float32), place(*other, torch.float32)
    assert overlap(*pair) is overlapping
    assert overlap(*pair[::-1]) is overlapping


def test_views_of_two_types_and_whole_storages() -> None:
    short = place((2,), (1,), 2, torch.float16)
    assert overlap(short, place((1,), (1,), 1, torch.float32))
    assert not overlap(short, place((1,), (1,), 0, torch.float32))
    assert overlap(None, short)


PTX = """\
.visible .entry k(
\t.param .u64 k_param_0,
\t.param .u64 k_param_1,
\t.param .u32 k_param_2
)
{
\tld.param.u64 \t%rd1, [k_param_0];
\tld.param.u64 \t%rd2, [k_param_1];
\tcvta.to.global.u64 \t%rd3, %rd1;
\tcvta.to.global.u64 \t%rd4, %rd2;
\tld.global.f32 \t%f1, [%rd3];
\tst.shared.f32 \t[%r1], %f1;
\t@%p1 bra \t$L_1;
\tadd.s64 \t%rd5, %rd4, 8;
\tst.global.f32 \t[%rd5], %f1;
$L_1:
\tret;
}
"""


def test_parameters_that_a_cuda_kernel_writes_through() -> None:
    assert stored_parameters(PTX, "k") == {1}
    atomic = PTX.replace("ld.global.f32 \t%f1, [%rd3]", "atom.global.add.f32 \t%f1, [%rd3], %f2")
    assert stored_parameters(atomic, "k") == {0, 1}
    labelled = PTX.replace("ret;", "{\n\tst.global.f32 \t[%rd3], %f1;\n\t}\n\tret;")
    assert stored_parameters(labelled, "k") == {0, 1}
    loads = "ld.param.u64 \t%rd1, [k_param_0];\n\tld.param.u64 \t%rd2, [k_param_1]"
    pair = PTX.replace(loads, "ld.param.v2.u64 \t{%rd1, %rd2}, [k_param_1]")
    assert stored_parameters(pair, "k") == {1}
    assert stored_parameters(PTX.replace("_param_", "_argument_"), "k") is None
    assert stored_parameters(PTX.replace("ret;", "call.uni f, ();\n\tret;"), "k") is None
