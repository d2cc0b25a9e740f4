"""Run finished pairs on the GPU that is here, and compare each with its module there.

The labels of `curate run` come from Triton's interpreter on a CPU. This asks a real device the same
question: three draws of inputs and parameters, the module in float32 and float64 as the oracle.
Needs torch and triton only. Every pair has a process of its own, so that one that crashes the
device's context costs itself only. Pairs of trusted recipes only: there is no sandbox here.

    python benchmarks/gpu_agreement.py PAIRS.jsonl RESULT.json
"""

import collections
import json
import multiprocessing
import platform
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

SECONDS = 120  # for one pair
WORKERS = 12
TRIALS = 3


def judge(row: dict[str, Any], answer: Any) -> None:
    """Send ``status`` and evidence for one pair."""
    try:
        answer.send(compare_on_gpu(row))
    except Exception as error:
        answer.send({"status": "error", "message": f"{type(error).__name__}: {error}"[:400]})


def compare_on_gpu(row: dict[str, Any]) -> dict[str, Any]:
    import copy

    import torch

    from curate.verify.compare import Mismatch, compare
    from curate.verify.draw import draw_inputs, plan, redraw_parameters
    from curate.verify.problem import Problem, copy_state

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False

    def there(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.cuda()
        if isinstance(value, list | tuple):
            return type(value)(there(item) for item in value)
        return value

    def double(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            return value.double()
        if isinstance(value, list | tuple):
            return type(value)(double(item) for item in value)
        return value

    def here(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.cpu()
        if isinstance(value, dict):
            return {key: here(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(here(item) for item in value)
        return value

    problem, worst = Problem(row["reference"], row["triton"]), 0.0
    with torch.no_grad():
        for draw in plan(problem, TRIALS, bool(row["dynamic"])):
            model, new = problem.build(draw.seed)
            redraw_parameters(model, draw.seed)
            copy_state(model, new)
            inputs = draw_inputs(problem, draw)
            try:  # on the CPU first: what it refuses there may end the device's context
                model(*copy.deepcopy(inputs))
            except Exception as error:
                if draw.seed:
                    continue  # the module does not take these signs or this size
                return {"status": "reference_error", "message": str(error)[:300]}
            inputs, model, new = there(inputs), model.cuda(), new.cuda()
            own = here({"output": model(*copy.deepcopy(inputs))})
            got = here({"output": new(*copy.deepcopy(inputs))})
            try:
                exact = here({"output": model.double()(*double(inputs))})
            except RuntimeError:
                exact = own
            try:
                worst = max(worst, compare(got, own, exact).tolerance)
            except Mismatch as mismatch:
                evidence = {"reason": mismatch.reason, **mismatch.evidence}
                return {"status": "incorrect", "trial": draw.describe(), "evidence": evidence}
    return {"status": "correct", "tolerance": worst}


def in_a_process(row: dict[str, Any]) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=judge, args=(row, sender))
    child.start()
    sender.close()
    result = {"status": "timeout"}
    if receiver.poll(SECONDS):
        try:
            result = receiver.recv()
        except EOFError:
            result = {"status": "crash"}
    child.kill()
    child.join()
    return {"id": row["id"], "symbol": row["symbol"], "interpreter": row["verdict"], **result}


def main() -> None:
    """Judge all pairs and write one JSON file with the counts and every result."""
    rows = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
    started = time.monotonic()
    with ThreadPoolExecutor(WORKERS) as pool:
        results = list(pool.map(in_a_process, rows))
    import torch
    import triton

    counts = collections.Counter(f"{r['interpreter']} -> {r['status']}" for r in results)
    report = {
        "interpreter -> device": dict(counts.most_common()),
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "seconds": round(time.monotonic() - started, 1),
    }
    print(json.dumps(report, indent=1))
    Path(sys.argv[2]).write_text(json.dumps({**report, "results": results}, indent=1, default=str))


if __name__ == "__main__":
    main()
