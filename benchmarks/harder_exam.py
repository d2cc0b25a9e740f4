"""Judge pairs as nobody wrote them down: other arguments, sizes, layouts and types.

    python benchmarks/harder_exam.py PAIRS.jsonl RESULT.json --count 60

PAIRS.jsonl has a JSON object per line, with ``id``, ``reference`` and ``triton``; pairs are taken
at even distances. Of each pair new problems are made, whose files are the pair's with a few lines
more: another constructor argument (twice), other input sizes (twice), inputs transposed or in
``channels_last``, weights in ``channels_last``, bfloat16, zeros with a sign, and an optional
argument that is given. A change counts only if the reference takes it. The judge says of each
problem whether the pair's program is right; one that raises AssertionError has said so itself.

Prints a table: for each change the programs that are right, that assert, and that are wrong.
"""

from __future__ import annotations

import argparse
import collections
import importlib.metadata
import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from throughput import spaced

from curate.verify.judge.slots import verify
from curate.verify.verdict import Candidate, Options, Verdict

CHANGES = (
    "argument, first",
    "argument, second",
    "sizes, first",
    "sizes, second",
    "transposed",
    "channels_last",
    "weights in channels_last",
    "bfloat16",
    "signed zeros",
    "optional argument",
)

# The file's own functions are kept under other names. Nothing here runs outside the sandbox.
PROBLEM = """

import inspect as _inspect
import torch as _torch

_change, _own_init, _own_inputs, _OwnModel = {change!r}, get_init_inputs, get_inputs, Model


def _runs(arguments, inputs):
    try:
        with _torch.no_grad():
            return _OwnModel(*arguments).eval()(*inputs) is not None
    except Exception:
        return False


def _defaults(function, given):
    parameters = list(_inspect.signature(function).parameters.values())[1 + len(given):]
    found = []
    for known in parameters:
        if known.kind is not known.POSITIONAL_OR_KEYWORD or known.default is known.empty:
            break
        found.append(known.default)
    return found


def _numbers(own):
    if type(own) is bool:
        return [not own]
    if type(own) is int:
        return [2 * own, own + 1, 3 * own, own // 2]
    return [0.5 * own, own + 0.25] if type(own) is float else []


def _resized(inputs, own, new):
    def change(x):
        if not isinstance(x, _torch.Tensor):
            return x
        for dim, size in enumerate(x.shape):
            if size == own:
                places = _torch.arange(new)
                floating = x.is_floating_point() or x.is_complex()
                x = x.index_select(dim, places % own if floating else places * own // new)
        return x

    return [change(x) for x in inputs]


def _arguments_changed():
    own, inputs = list(_own_init()), list(_own_inputs())
    whole = own + _defaults(_OwnModel.__init__, own)
    for i, value in enumerate(whole):
        for new in _numbers(value):
            changed = [*whole[:i], new, *whole[i + 1:]]
            if _runs(changed, inputs):
                yield changed, None
                break
            if type(value) is int and value > 1 and _runs(changed, _resized(inputs, value, new)):
                yield changed, (value, new)
                break


def _sizes_changed():
    own, inputs = list(_own_init()), list(_own_inputs())
    sizes = [n for x in inputs if isinstance(x, _torch.Tensor) for n in x.shape if n > 1]
    for size in dict.fromkeys(sizes):
        for new in (2 * size + 1, 2 * size, size + 1, 3 * size):
            if _runs(own, _resized(inputs, size, new)):
                yield own, (size, new)
                break


def _number(changes, which):
    found = [change for change, _ in zip(changes, range(which + 1))]
    if len(found) <= which:
        raise LookupError("no such change")
    return found[which]


_which = int(_change.endswith("second"))
_init, _size = list(_own_init()), None
if _change.startswith("argument"):
    _init, _size = _number(_arguments_changed(), _which)
elif _change.startswith("sizes"):
    _init, _size = _number(_sizes_changed(), _which)


def _is_image(x):
    return isinstance(x, _torch.Tensor) and x.dim() == 4


def _laid_out(x):
    if not isinstance(x, _torch.Tensor):
        return x
    if _change == "transposed" and x.dim() >= 2:
        return x.transpose(-1, -2).contiguous().transpose(-1, -2)
    if _change == "channels_last" and _is_image(x):
        return x.contiguous(memory_format=_torch.channels_last)
    if _change == "bfloat16" and x.is_floating_point():
        return x.to(_torch.bfloat16)
    if _change == "signed zeros" and x.is_floating_point():
        return _torch.where(_torch.arange(x.numel()).view(x.shape) % 2 == 0, -0.0, x)
    return x


def _optional(inputs):
    own = list(_own_init())
    like = next(x for x in inputs if isinstance(x, _torch.Tensor) and x.is_floating_point())
    given = _defaults(_OwnModel.forward, inputs)
    for i, value in enumerate(given):
        if value is None:
            for new in (_torch.randn_like(like), _torch.arange(like.shape[0]), 2):
                if _runs(own, [*inputs, *given[:i], new]):
                    return [*inputs, *given[:i], new]
    raise LookupError("no such change")


_seen = [_laid_out(x) for x in _own_inputs()]
if _change in ("transposed", "channels_last"):
    if all(a is b or getattr(a, "stride", int)() == getattr(b, "stride", int)()
           for a, b in zip(_seen, _own_inputs())):
        raise LookupError("no such change")
elif _change == "weights in channels_last":
    if not any(p.dim() == 4 and min(p.shape) > 1 for p in _OwnModel(*_init).parameters()):
        raise LookupError("no such change")
elif _change == "optional argument":
    _optional(list(_own_inputs()))


class Model(_OwnModel):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        _prepare(self)


def _prepare(model):
    if _change == "bfloat16":
        model.to(_torch.bfloat16)
    if _change == "weights in channels_last":
        model.to(memory_format=_torch.channels_last)


def get_init_inputs():
    return list(_init)


def get_inputs():
    inputs = list(_own_inputs())
    if _size:
        inputs = _resized(inputs, *_size)
    if _change == "optional argument":
        return _optional(inputs)
    return [_laid_out(x) for x in inputs]
"""

PROGRAM = {
    "bfloat16": "self.to(torch.bfloat16)",
    "weights in channels_last": "self.to(memory_format=torch.channels_last)",
}
"""What a program's constructor does too, as the reference's does."""

WRAPPED = """

_Own = ModelNew


class ModelNew(_Own):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        {prepare}
"""


def problems(pairs: list[dict[str, Any]]) -> Iterator[Candidate]:
    """Yield each pair with each change."""
    for pair in pairs:
        for change in CHANGES:
            program = pair["triton"]
            if change in PROGRAM:
                program = "import torch\n" + program + WRAPPED.format(prepare=PROGRAM[change])
            reference = pair["reference"] + PROBLEM.replace("{change!r}", repr(change))
            yield Candidate(f"{pair['id']}#{change}", reference, program)


def outcome(verdict: Verdict) -> str:
    """Return what a verdict means here."""
    text = json.dumps(verdict.to_json())
    if verdict.status == "correct":
        return "right"
    if "no such change" in text or verdict.status == "unsupported":
        return "not taken"
    if "AssertionError" in text:
        return "asserts"
    return "wrong" if verdict.status == "incorrect" else verdict.status


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--trials", type=int, default=3)
    args = parser.parse_args()
    rows = [json.loads(line) for line in args.pairs.read_text().splitlines()]
    chosen = spaced(rows, args.count)
    started = time.monotonic()
    counts: dict[str, collections.Counter[str]] = {c: collections.Counter() for c in CHANGES}
    wrong = {}
    options = Options(trials=args.trials, vary_sizes=False, draw_seed=0, timeout_s=60)
    for verdict in verify(problems(chosen), options):
        change = verdict.id.split("#", 1)[1]
        found = outcome(verdict)
        counts[change][found] += 1
        if found not in ("right", "asserts", "not taken"):
            wrong[verdict.id] = [verdict.status, verdict.to_json()]
    result = {
        "pairs": len(chosen),
        "changes": {change: dict(count) for change, count in counts.items()},
        "wrong": wrong,
        "seconds": round(time.monotonic() - started, 1),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "versions": {name: importlib.metadata.version(name) for name in ("torch", "triton")},
    }
    args.result.write_text(json.dumps(result, indent=1))
    total: collections.Counter[str] = sum(counts.values(), collections.Counter())
    for change, count in {**counts, "all": total}.items():
        print(f"{change:26}", "  ".join(f"{name} {count[name]}" for name in sorted(count)))
    print(f"{len(chosen)} pairs, {result['seconds']} s")


if __name__ == "__main__":
    main()
