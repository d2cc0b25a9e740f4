"""What harnesses in KernelBench's manner do with one candidate, in a process of its own.

Reads a JSON object with ``reference``, ``candidate`` and ``device`` from standard input and writes
one with ``status`` and ``timing_s`` (the seconds that the timing took) to standard output. Both
programs are built on the device with one seed; five draws of inputs are compared with
`torch.allclose` at KernelBench's tolerances; a correct program is then run 100 times between two
events, with the L2 cache flushed before each
(https://github.com/ScalingIntelligence/KernelBench, ``src/eval.py`` and ``src/timing.py``).
"""

import importlib.util
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import triton  # noqa: F401  (candidates import it; it counts as part of the start)

TRIALS = 5
RUNS = 100
WARMUP = 3
TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 1e-2}


def load(name: str, text: str) -> ModuleType:
    """Import a program from a temporary file, as Triton wants it."""
    path = Path(tempfile.mkdtemp()) / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def there(values: list[Any], device: str) -> list[Any]:
    """Return arguments with their tensors on the device."""
    return [v.to(device) if isinstance(v, torch.Tensor) else v for v in values]


def synchronize(device: str) -> None:
    """Wait for the device."""
    if device == "cuda":
        torch.cuda.synchronize()


def agree(expected: Any, got: Any) -> bool:
    """Compare two outputs as KernelBench does; outputs of many tensors one by one."""
    if isinstance(expected, list | tuple):
        return len(expected) == len(got) and all(map(agree, expected, got))
    if not isinstance(expected, torch.Tensor):
        return bool(expected == got)
    tolerance = TOLERANCE.get(expected.dtype, 1e-4)
    return bool(
        expected.shape == got.shape
        and torch.allclose(expected, got, atol=tolerance, rtol=tolerance)
    )


def check(reference: ModuleType, candidate: ModuleType, device: str) -> tuple[str, torch.nn.Module]:
    """Return the status and the candidate's module."""
    init_inputs = there(reference.get_init_inputs(), device)
    torch.manual_seed(42)
    model = reference.Model(*init_inputs).to(device)
    torch.manual_seed(42)
    new = candidate.ModelNew(*init_inputs).to(device)
    status = "correct"
    for seed in range(TRIALS):
        torch.manual_seed(seed)
        inputs = there(reference.get_inputs(), device)
        expected = model(*inputs)
        synchronize(device)
        got = new(*inputs)
        synchronize(device)
        if not agree(expected, got):
            status = "incorrect"
    return status, new


def measure(reference: ModuleType, new: torch.nn.Module) -> float:
    """Return the mean milliseconds of one run on the device."""
    inputs = there(reference.get_inputs(), "cuda")
    flush = torch.empty(256 * 2**20, dtype=torch.int8, device="cuda")
    for _ in range(WARMUP):
        new(*inputs)
    synchronize("cuda")
    times: list[float] = []
    for _ in range(RUNS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        flush.zero_()
        start.record()
        new(*inputs)
        end.record()
        synchronize("cuda")
        times.append(start.elapsed_time(end))
    return statistics.mean(times)


def main() -> None:
    """Judge the candidate on standard input."""
    given = json.load(sys.stdin)
    result: dict[str, Any] = {"timing_s": 0.0}
    try:
        with torch.no_grad():
            reference = load("reference", given["reference"])
            candidate = load("candidate", given["candidate"])
            result["status"], new = check(reference, candidate, given["device"])
            if given["device"] == "cuda" and result["status"] == "correct":
                started = time.perf_counter()
                result["milliseconds"] = measure(reference, new)
                result["timing_s"] = time.perf_counter() - started
    except Exception as error:
        result |= {"status": "runtime_error", "message": f"{type(error).__name__}: {error}"[:300]}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
