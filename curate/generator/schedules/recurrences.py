"""Recurrent layers: the host loops over time and launches one kernel for each step.

The products of the input are there before, for all steps at once. A step multiplies the state by
the recurrent weights and goes through the gates element by element; the output of one step is the
state of the next.
"""

from __future__ import annotations

from typing import Any

from curate.generator.body import Body, Kernel
from curate.generator.loops import Loops, equal
from curate.generator.program import Program
from curate.generator.schedules import products
from curate.generator.schedules.passes import power_of_2
from curate.generator.torch_private import LibraryCall
from curate.generator.unprintable import Unprintable
from curate.generator.views import is_contiguous

NAMES = {"lstm": "ifgo", "gru": "rzn", "rnn_tanh": "h", "rnn_relu": "h"}
"""What the gates of a layer are called, in the order of their weights."""

_NAN = "propagate_nan=tl.PropagateNan.ALL"

STATES = {
    "lstm": (
        "new_c = tl.sigmoid(f) * c + tl.sigmoid(i) * libdevice.tanh(g)",
        "new_h = tl.sigmoid(o) * libdevice.tanh(new_c)",
    ),
    "gru": (
        "n = libdevice.tanh(new_n + tl.sigmoid(r) * n)",
        "new_h = n + tl.sigmoid(z) * (h - n)",
    ),
    "rnn_tanh": ("new_h = libdevice.tanh(h)",),
    "rnn_relu": (f"new_h = tl.maximum(h, 0.0, {_NAN})",),
}
"""The state after a step, from the gates and the state before it."""

BLOCKS = {"BLOCK_N": "32", "BLOCK_K": "32"}
"""Sides of a tile of a step; there are up to four products for each element."""

LARGEST_BATCH = "64"
"""Sequences of which one program computes a step."""


class Recurrence(Loops):
    """All steps of a layer.

    Attributes:
        gates, weights, biases, states: operands for each direction; an LSTM has cells behind its
            states.
        kind: ``lstm``, ``gru``, ``rnn_tanh`` or ``rnn_relu``.
        batch_first: whether steps are the second dimension.
    """

    def __init__(self, program: Program, call: LibraryCall, nodes: list[Any]) -> None:
        self._begin(program, nodes)
        self.call = call
        self.gates, self.weights, self.biases, self.states, self.kind, self.batch_first = call.args
        for operand in (*self.gates, *self.weights, *self.biases):
            if not is_contiguous(operand.sizes, operand.strides):
                raise Unprintable("a layer's operand in another layout")
        cells = self.states[len(self.weights) :]
        dense = all(is_contiguous(cell.sizes, cell.strides) for cell in cells)
        if not dense or not all(equal(state.strides[-1], 1) for state in self.states):
            raise Unprintable("a layer's state in another layout")
        self.cells = list(zip(cells, call.others, strict=True))
        length, self.batch, _ = self.gates[0].sizes
        self.length = self.batch if self.batch_first else length
        self.batch = length if self.batch_first else self.batch
        self.hidden = self.weights[0].sizes[1]
        program.starts |= {program.real(state.buffer) for state in self.states}
        for size, role in ((self.length, "seq_len"), (self.batch, "batch")):
            program.sizes.roles.setdefault(program.known(size), role)
        made = [call.result, *call.others]
        words = ["states", *("cells" for _ in call.others)]
        words += ["gates"] * len(self.gates) + ["first"] * len(self.states)
        for operand, word in zip([*made, *self.gates, *self.states], words, strict=True):
            buffer = program.real(operand.buffer)
            if buffer not in program.words and buffer not in program.tensors:
                program.words[buffer] = program.sizes.fresh(word)


def steps(loops: Recurrence, program: Program) -> None:
    """Print the loops over all steps, forwards and backwards."""
    block = power_of_2(program.size("batch", loops.batch))
    block = program.copied("BLOCK_M", f"min({LARGEST_BATCH}, max(16, {block}))")
    for direction in range(len(loops.weights)):
        _Direction(loops, program, direction).launch(block)


class _Direction:
    """Prints the loop of one direction; the host's variables for its states are free afterwards."""

    def __init__(self, loops: Recurrence, program: Program, direction: int) -> None:
        self.loops, self.program, self.direction = loops, program, direction
        self.own = [program.sizes.fresh(word) for word in ("step", "h", "c", "steps")]
        self.step, self.h, self.c, steps = self.own
        self.hidden = program.size("hidden", loops.hidden)
        self.gates = program.operand(loops.gates[direction])
        if not self.gates.isidentifier():
            program.say(f"{steps} = {self.gates}")
            self.gates = steps
        for made in (loops.call.result, *(last for _, last in loops.cells)):
            program.allocate(made.buffer)
        self.out = program.word(loops.call.result.buffer)
        self.at = f":, {self.step}" if loops.batch_first else self.step
        self.new_h = f"{self.out}[{self.at}]"
        if len(loops.weights) > 1:
            own = f"{self.hidden}:" if direction else f":{self.hidden}"
            self.new_h = f"{self.out}[{self.at}{'' if loops.batch_first else ', :'}, {own}]"

    def body(self) -> Body:
        """Return the kernel of a step."""
        loops, program, direction = self.loops, self.program, self.direction
        body = Body(loops, program, [], _RESERVED)
        pointers = {f"{self.gates}[{self.at}]": "gates_ptr"}
        pointers[program.operand(loops.weights[direction])] = "weight_ptr"
        if loops.biases:
            pointers[program.operand(loops.biases[direction])] = "bias_ptr"
        pointers[self.h] = "h_ptr"
        if loops.cells:
            pointers |= {self.c: "c_ptr", self.new_c: "new_c_ptr"}
        pointers[self.new_h] = "new_h_ptr"
        body.pointers |= pointers
        program.scratch |= {text: text for text in pointers}
        batch, hidden = body.named("batch", loops.batch), body.named("hidden", loops.hidden)
        dim = 0 if loops.batch_first else 1
        body.arguments["gates_stride"] = f"{self.gates}.stride({dim})"
        body.arguments["h_stride"] = f"{self.h}.stride(0)"
        body.arguments["new_h_stride"] = f"{self.out}.stride({dim})"
        _step(body, loops, batch, hidden)
        return body

    @property
    def new_c(self) -> str:
        return self.program.word(self.loops.cells[self.direction][1].buffer)

    def launch(self, block: str) -> None:
        """Print the loop."""
        loops, program = self.loops, self.program
        body = self.body()
        first = program.operand(loops.states[self.direction])
        begin, after = f"{self.h} = {first}", f"{self.h} = {self.new_h}"
        if loops.cells:
            cell = program.operand(loops.cells[self.direction][0])
            begin = f"{self.h}, {self.c} = {first}, {cell}"
            after = f"{self.h}, {self.c} = {self.new_h}, {self.new_c}"
        program.say(begin)
        steps = f"range({program.size('length', loops.length)})"
        steps = f"reversed({steps})" if self.direction else steps
        rows = f"triton.cdiv({program.size('batch', loops.batch)}, {block})"
        kernel = Kernel(
            body,
            "Each program computes BLOCK_N elements of the state of BLOCK_M sequences.",
            (rows, f"triton.cdiv({self.hidden}, {BLOCKS['BLOCK_N']})"),
            {"BLOCK_M": block} | BLOCKS,
            part="step",
            loop=f"for {self.step} in {steps}:",
            after=after,
        )
        program.launch(kernel)
        program.sizes.taken -= set(self.own)


_RESERVED = ("rows", "cols", "row_mask", "mask", "inner", "start", "state", "w_ptrs", "w_mask", "w")
_RESERVED += ("gates", "bias", "h", "c", "new_h", "new_c", "new_n", *"ifgorzn")


def _step(body: Body, loops: Recurrence, batch: str, hidden: str) -> None:
    """Print the statements of a step."""
    names = NAMES[loops.kind]
    body.say("rows = (tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]).to(tl.int64)")
    body.say("cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]")
    body.say(f"mask = (rows < {batch}) & (cols < {hidden})")
    for name in names:
        body.say(f"{name} = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)")
    with body.block(f"for start in range(0, {hidden}, BLOCK_K):"):
        body.say("inner = start + tl.arange(0, BLOCK_K)")
        at, inside = "h_ptr + rows * h_stride + inner[None, :]", f"inner[None, :] < {hidden}"
        body.say(f"state = tl.load({at}, mask=(rows < {batch}) & ({inside}), other=0.0)")
        body.say(f"w_ptrs = weight_ptr + cols * {hidden} + inner[:, None]")
        body.say(f"w_mask = (cols < {hidden}) & (inner[:, None] < {hidden})")
        for i, name in enumerate(names):
            at = _part("w_ptrs", i, f"{hidden} * {hidden}")
            body.say(f"w = tl.load({at}, mask=w_mask, other=0.0)")
            body.say(f"{name} = {products.dot(body, 'state.to(w.dtype)', 'w', name)}")
    if loops.biases:
        for i, name in enumerate(names):
            at = _part("bias_ptr + cols", i, hidden)
            body.say(f"{name} += tl.load({at}, mask=cols < {hidden}, other=0.0)")
    body.say("gates_ptrs = gates_ptr + rows * gates_stride + cols")
    for i, name in enumerate(names):
        given = f"tl.load({_part('gates_ptrs', i, hidden)}, mask=mask, other=0.0)"
        separate = loops.kind == "gru" and name == "n"
        body.say(f"new_n = {given}.to(tl.float32)" if separate else f"{name} += {given}")
    before = {"lstm": f"c_ptr + rows * {hidden} + cols", "gru": "h_ptr + rows * h_stride + cols"}
    if loops.kind in before:
        old = before[loops.kind]
        body.say(f"{old[0]} = tl.load({old}, mask=mask, other=0.0).to(tl.float32)")
    for line in STATES[loops.kind]:
        body.say(line)
    if loops.cells:
        body.say(f"tl.store(new_c_ptr + rows * {hidden} + cols, new_c, mask=mask)")
    body.say("tl.store(new_h_ptr + rows * new_h_stride + cols, new_h, mask=mask)")


def _part(text: str, number: int, size: str) -> str:
    """Return a pointer's text, some sizes further on."""
    return text + ("" if number == 0 else f" + {size}" if number == 1 else f" + {number} * {size}")
