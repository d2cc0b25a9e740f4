"""Judge the adversarial suite on a GPU, with nothing but torch and triton installed.

    python tests/adversarial/run_on_gpu.py OUT_DIR [PART_OF_A_NAME]

Prints a table and writes ``adversarial.json`` to the folder. The exit status is 1 if a cheat was
called something that its case does not allow, or an honest twin anything but ``correct``.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]


def main(out: str, part: str = "") -> int:
    """Judge the cases whose id contains ``part``; return the exit status."""
    from cases import load_cases
    from judging import judge_cases

    cases = [case for case in load_cases() if part in case.id]
    started = time.monotonic()
    verdicts = judge_cases(cases, backend="cuda")
    seconds = time.monotonic() - started
    rows, failures = [], 0
    print(f"{'case':40} {'cheat':36} {'honest twin':24}")
    for case in cases:
        cheat, honest = verdicts[case.id]
        caught = cheat.status in case.statuses and case.rule in (None, cheat.reason)
        accepted = honest.status == "correct"
        failures += (not caught) + (not accepted)
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
    print(f"{len(cases)} cases, {failures} wrong verdicts, {seconds:.1f} s")
    Path(out).mkdir(parents=True, exist_ok=True)
    Path(out, "adversarial.json").write_text(json.dumps(rows, indent=1))
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if sys.argv[1:] else __doc__)
