"""Judge the adversarial suite on a GPU, with nothing but torch and triton installed.

    python tests/adversarial/run_on_gpu.py OUT_DIR [PART_OF_A_NAME...]

Prints a table and writes ``adversarial.json`` to the folder. The exit status is 1 if a cheat was
called something that its case does not allow, or an honest twin anything but ``correct``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]


def main(out: str, *parts: str) -> int:
    """Judge the cases whose id contains one of the parts; return the exit status."""
    from cases import load_cases

    Path(out).mkdir(parents=True, exist_ok=True)
    cases = [case for case in load_cases() if any(part in case.id for part in parts or [""])]
    started = time.monotonic()
    rows: list[dict[str, Any]] = []
    print(f"{'case':40} {'cheat':36} {'honest twin':24}")
    for timed in (False, True):  # what takes longest comes last
        rows += judge([case for case in cases if bool(case.options.get("timing")) is timed])
        Path(out, "adversarial.json").write_text(json.dumps(rows, indent=1))
    failures = sum((not row["caught"]) + (not row["accepted"]) for row in rows)
    seconds = time.monotonic() - started
    print(f"{len(cases)} cases, {failures} wrong verdicts, {seconds:.1f} s")
    return int(failures > 0)


def judge(cases: list[Any]) -> list[dict[str, Any]]:
    """Judge cases, print a line for each and return what was found."""
    from judging import judge_cases

    if not cases:
        return []
    workers = min(len(cases), len(os.sched_getaffinity(0)))
    verdicts = judge_cases(cases, backend="cuda", timeout_s=60.0, workers=workers)
    rows = []
    for case in cases:
        cheat, honest = verdicts[case.id]
        # On a device a race may also show: as a wrong value.
        caught = cheat.status in case.statuses and case.rule in (None, "race", cheat.reason)
        accepted = honest.status == "correct"
        mark = "" if caught and accepted else "  <-- WRONG"
        shown = (" ".join(filter(None, (v.status, v.reason))) for v in (cheat, honest))
        print("{:40} {:36} {:24}{}".format(case.id, *shown, mark), flush=True)
        rows.append(
            {
                "number": case.number,
                "name": case.name,
                "gpu_only": case.gpu,
                "caught": caught,
                "accepted": accepted,
                "cheat": cheat.to_json(),
                "honest": honest.to_json(),
            }
        )
    return rows


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if sys.argv[1:] else __doc__)
