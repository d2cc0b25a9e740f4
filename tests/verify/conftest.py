from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from verify_programs import Judge

JUDGE = """
import json, sys
from curate.rows import make_origin, make_row
from curate.step import Context, Keep
from curate.verify.steps import Check
given = json.load(sys.stdin)
step = Check(step="check", **given["options"])
step.setup(Context())
for reference, candidate, dynamic in given["pairs"]:
    row = make_row("pair", candidate, make_origin("local"), reference=reference, triton=candidate,
                   static={"dynamic_dims": dynamic})
    outcome = step.apply(row, Context())
    if isinstance(outcome, Keep):
        print("@", json.dumps(outcome.rows[0]["verdict"]))
    else:
        print("@", json.dumps({"status": outcome.reason, "evidence": outcome.evidence}))
"""


@pytest.fixture(scope="session")
def judge() -> Judge:
    """Run `Check` on pairs in a process of its own: Triton interprets or compiles, never both."""

    def run(pairs: list[tuple[str, str, int]], **options: Any) -> list[dict[str, Any]]:
        ran = subprocess.run(
            [sys.executable, "-c", JUDGE],
            input=json.dumps({"pairs": pairs, "options": options}),
            capture_output=True,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        assert ran.returncode == 0, ran.stderr[-3000:]
        return [json.loads(line[2:]) for line in ran.stdout.splitlines() if line[:2] == "@ "]

    return run
