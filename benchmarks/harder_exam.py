"""Run programs as nobody wrote them down: other arguments, sizes, ranks, layouts and types.

    python benchmarks/harder_exam.py PAIRS.jsonl RESULT.json [--count 60]

PAIRS.jsonl has a JSON object per line, with ``id``, ``reference`` and ``triton`` or ``candidate``;
pairs are taken at even distances. The reference runs on the CPU, the program on the judge's
executor (`curate.verify.cpu_device`), one process for a pair, without a sandbox: give it
pairs that you trust. Changes:

- one argument of the constructor, or a plain number of forward's, is another;
- all dimensions of one size are another, and each dimension of each input on its own;
- inputs have one dimension more, or one fewer: those of the highest rank, or all;
- inputs are transposed, in ``channels_last``, or every second element; parameters are in
  ``channels_last`` or transposed in memory;
- all floats, the first input's, the other inputs' or the parameters' alone are bfloat16, float16
  or float64; integers are int32.

A change counts only if the reference takes it; in 16 bits, what it gives in float32 is right too. A
program that raises where the reference does not
has refused: that narrows what it promises, and is no fault. One that gives another shape, type or
value is wrong.

Prints a table: for each kind of change how many programs are right, refuse, and are wrong.
"""

from __future__ import annotations

import argparse
import collections
import copy
import functools
import importlib.metadata
import itertools
import json
import math
import os
import platform
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import torch.utils._pytree as pytree
from throughput import spaced

from curate.problem.problem import LoadedProgram, LoadedTask, describe
from curate.problem.values import map_tensors
from curate.verify import cpu_device
from curate.verify.cpu_device import ExecutorStopped, Handle, on_device, to_cpu, to_gpu

Change = tuple[str, list[Any], list[Any], Callable[[torch.Tensor], torch.Tensor] | None]
"""A kind of change, arguments of the constructor, inputs, and what is done to parameters."""

TOLERANCE = {torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""How far numbers may lie apart, as a share of the largest, by the shortest type; 1e-9 else."""

HALF = {torch.bfloat16, torch.float16}

LIMIT_S = 120
"""CPU seconds for one pair."""


def changes(task: LoadedTask) -> Iterator[Change]:
    """Yield what a caller may do otherwise; the reference need not take it."""
    init, inputs = task.init_inputs(), task.inputs()
    tensors = [x for x in pytree.tree_leaves(inputs) if isinstance(x, torch.Tensor)]
    rank = max((x.dim() for x in tensors), default=0)
    all_of_them = range(len(tensors))

    def inputs_by(
        function: Callable[..., torch.Tensor], *given: Any, only: Iterable[int] = all_of_them
    ) -> list[Any]:
        numbers = itertools.count()
        return list(
            map_tensors(
                copy.deepcopy(inputs),
                lambda x: function(x, *given) if next(numbers) in only else x,
            )
        )

    yield "as the file has it", init, inputs, None
    whole = [*init, *_defaults(task.module.Model.__init__, len(init))]
    for i, own in enumerate(whole):
        for new in _numbers(own):
            changed = [*whole[:i], new, *whole[i + 1 :]]
            yield "argument", changed, inputs, None
            if type(own) is int and own > 1:
                yield "argument", changed, inputs_by(_resized, own, new), None
    given = [*inputs, *_defaults(task.module.Model.forward, len(inputs))]
    for i, own in enumerate(given):
        for new in _numbers(own):
            yield "number", init, [*given[:i], new, *given[i + 1 :]], None
    for own in dict.fromkeys(n for x in tensors for n in x.shape if n > 1):
        for new in (2 * own + 1, 2 * own, own + 1, own // 2):
            yield "all of a size", init, inputs_by(_resized, own, new), None
    for which, tensor in enumerate(tensors):
        for dim, own in enumerate(tensor.shape):
            for new in (2 * own + 1, own + 2, 2 * own, 1):
                changed = inputs_by(_resized, own, new, dim, only=[which])
                yield "one dimension", init, changed, None
    longest = [i for i in all_of_them if tensors[i].dim() == rank]
    for which in (longest, all_of_them):
        yield "one more dimension", init, inputs_by(_longer, only=which), None
        yield "one fewer", init, inputs_by(lambda x: x[-1] if x.dim() else x, only=which), None
    twice = inputs_by(lambda x: _longer(_longer(x)), only=longest)
    yield "two more dimensions", init, twice, None
    for lay_out in (_transposed, _channels_last):
        yield "inputs laid out", init, inputs_by(lay_out), None
        yield "parameters laid out", init, inputs, lay_out
    yield "inputs laid out", init, inputs_by(lambda x: torch.stack([x, x], -1)[..., 0]), None
    yield "zeros with a sign", init, inputs_by(_signed_zeros), None
    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        name = str(dtype).removeprefix("torch.")
        to = functools.partial(_to, dtype=dtype)
        for some in ([0], all_of_them[1:], all_of_them):
            yield f"{name} with float32", init, inputs_by(to, only=some), None
        yield f"{name} with float32", init, inputs, to
        yield name, init, inputs_by(to), to
    yield "int32", init, inputs_by(lambda x: x.int() if x.dtype == torch.int64 else x), None


def _numbers(own: Any) -> list[Any]:
    if type(own) is bool:
        return [not own]
    if type(own) is int:
        return [2 * own, own + 1, own // 2]
    return [0.5 * own, own + 0.25] if type(own) is float else []


def _defaults(function: Any, given: int) -> list[Any]:
    code, values = function.__code__, function.__defaults__ or ()
    missing = code.co_argcount - 1 - given
    return list(values[len(values) - missing :]) if 0 < missing <= len(values) else []


def _resized(x: torch.Tensor, own: int, new: int, at: int | None = None) -> torch.Tensor:
    for dim, size in enumerate(x.shape):
        if size == own and at in (None, dim):
            places = torch.arange(new)
            places = places % own if x.is_floating_point() else places * own // max(new, 1)
            x = x.index_select(dim, places)
    return x


def _longer(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([x, x.flip(0) if x.dim() else x])


def _to(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return x.to(dtype) if x.is_floating_point() else x


def _transposed(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(-1, -2).contiguous().transpose(-1, -2) if x.dim() >= 2 else x


def _channels_last(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x


def _signed_zeros(x: torch.Tensor) -> torch.Tensor:
    if not x.is_floating_point():
        return x
    return torch.where(torch.arange(x.numel()).view(x.shape) % 2 == 0, -0.0, x)


def _convert(
    model: torch.nn.Module, function: Callable[[torch.Tensor], torch.Tensor] | None
) -> None:
    """Change a module's tensors; a parameter's layout too, which ``Module.to`` may not."""
    for module in model.modules() if function else ():
        for held in (module._parameters, module._buffers):
            for name, x in held.items():
                if x is not None:
                    new: Any = function(x.detach())  # type: ignore[misc]
                    is_parameter = held is module._parameters
                    held[name] = torch.nn.Parameter(new, x.requires_grad) if is_parameter else new


def _key(init: list[Any], inputs: list[Any], model: torch.nn.Module) -> str:
    """Return what tells one case from another."""
    shown = [
        (x.shape, x.stride(), x.dtype) if isinstance(x, torch.Tensor) else x
        for x in [*pytree.tree_leaves((init, inputs)), *model.state_dict().values()]
    ]
    return repr(shown)


# --- one pair, in a process of its own --------------------------------------------------------


def examine(pair: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Return for each change that the reference takes its kind, the outcome and the evidence."""
    task, program = LoadedTask(pair["reference"]), LoadedProgram(pair["triton"])
    device = cpu_device.CpuDevice()
    found = []
    seen = set()
    for kind, init, inputs, convert in changes(task):
        try:
            model = task.build(0, copy.deepcopy(init))
            _convert(model, convert)
            key = _key(init, inputs, model)
            expected = model(*copy.deepcopy(inputs))
        except Exception:
            continue
        if key in seen and kind != "zeros with a sign":
            continue
        seen.add(key)
        device.begin(0, math.inf, races=False)
        try:
            with on_device(device.stream):
                new = program.build(0, copy.deepcopy(init))
                new.load_state_dict(model.state_dict(), strict=False)
                _convert(new, convert)
                got = new.to("cuda")(*map_tensors(inputs, to_gpu))
                device.check()
                got = map_tensors(got, lambda x: to_cpu(x) if isinstance(x, Handle) else x)
        except ExecutorStopped as error:  # such as a load behind a tensor's end
            found.append((kind, "wrong", describe(error)[:200]))
            continue
        except Exception as error:
            found.append((kind, "refuses", describe(error)[:200]))
            continue
        types = {x.dtype for x in pytree.tree_leaves((inputs, expected)) if hasattr(x, "dtype")}
        types |= {x.dtype for x in model.state_dict().values()}
        tolerance = max(TOLERANCE.get(dtype, 1e-9) for dtype in types)
        wrong = difference(expected, got, tolerance)
        if wrong and types & HALF:  # PyTorch's own steps may overflow, or round, in 16 bits
            wide = functools.partial(_to, dtype=torch.float32)
            _convert(model, wide)
            values = pytree.tree_leaves(model(*map_tensors(copy.deepcopy(inputs), wide)))
            leaves = zip(values, pytree.tree_leaves(expected), strict=True)
            exact = [v.to(e.dtype) if isinstance(e, torch.Tensor) else v for v, e in leaves]
            wrong = difference(exact, pytree.tree_leaves(got), tolerance)
        case = f"{_key(init, inputs, torch.nn.Module())[:300]}: {wrong}"
        found.append((kind, "wrong" if wrong else "right", case if wrong else ""))
    return found


def difference(expected: Any, got: Any, tolerance: float) -> str:
    """Return how a result differs; "" if it does not."""
    ours, theirs = pytree.tree_leaves(expected), pytree.tree_leaves(got)
    if len(ours) != len(theirs):
        return f"{len(theirs)} results for {len(ours)}"
    for a, b in zip(ours, theirs, strict=True):
        if not isinstance(a, torch.Tensor):
            if a != b:
                return f"{b} for {a}"
            continue
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            return f"{tuple(b.shape)} {b.dtype} for {tuple(a.shape)} {a.dtype}"
        if not a.numel():
            continue
        if not a.dtype.is_floating_point:
            if (share := (a != b).float().mean().item()) > (1e-3 if a.dtype != torch.bool else 0):
                return f"{share:.3} of {a.dtype} differ"
            continue
        a, b = a.double(), b.double()
        odd = ~(a.isfinite() & b.isfinite())
        if (odd & (a != b) & ~(a.isnan() & b.isnan())).any():
            return "NaN or infinity"
        error = torch.where(odd, 0.0, (a - b).abs()).max().item()
        scale = torch.where(odd, 0.0, a.abs()).max().item()
        if error > tolerance * scale + 1e-6:
            return f"off by {error:.3} of {scale:.3}"
    return ""


def apart(pair: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Examine a pair in a child."""
    reader, writer = os.pipe()
    if not (child := os.fork()):
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        try:
            found = examine(pair)
        except Exception as error:
            found = [("all", "not examined", describe(error)[:200])]
        os.write(writer, json.dumps(found).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as said:
        text = said.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else [("all", "not examined", "too long, or it died")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("--count", type=int, default=10**6)
    parser.add_argument("--only", help="a pair's id")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    rows = [json.loads(line) for line in args.pairs.read_text().splitlines()]
    rows = [{**row, "triton": row.get("triton") or row.get("candidate")} for row in rows]
    rows = [row for row in rows if row["triton"] and args.only in (None, row["id"])]
    chosen = spaced(rows, args.count)
    cpu_device.warm()
    started = time.monotonic()
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    notes: dict[str, list[list[str]]] = {"wrong": [], "refuses": [], "not examined": []}
    for pair in chosen:
        for kind, outcome, evidence in apart(pair):
            counts[kind][outcome] += 1
            if outcome in notes:
                notes[outcome].append([pair["id"], kind, evidence])
                if outcome != "refuses":
                    print(pair["id"], kind, evidence, flush=True)
    result = {
        "pairs": len(chosen),
        "changes": {kind: dict(count) for kind, count in counts.items()},
        **notes,
        "seconds": round(time.monotonic() - started, 1),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "versions": {name: importlib.metadata.version(name) for name in ("torch", "triton")},
    }
    args.result.write_text(json.dumps(result, indent=1))
    total: collections.Counter[str] = sum(counts.values(), collections.Counter())
    for kind, count in {**counts, "all": total}.items():
        print(f"{kind:26}", "  ".join(f"{name} {count[name]}" for name in sorted(count)))
    print(f"{len(chosen)} pairs, {result['seconds']} s")


if __name__ == "__main__":
    main()
