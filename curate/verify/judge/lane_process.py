"""The process with some of the judge's slots: candidates come on its lanes, and verdicts go."""

from __future__ import annotations

import json
import socket
import sys
import threading
from pathlib import Path

import torch

from curate.engine.processes.child import die_with_parent
from curate.engine.processes.sandbox import SandboxUnavailable
from curate.verify.judge.device import describe_device
from curate.verify.judge.session import HostError
from curate.verify.judge.slot import Slot
from curate.verify.verdict import Candidate, Options


def serve(own: socket.socket, slot: Slot) -> None:
    """Judge what comes on a lane until it is closed."""
    for line in own.makefile("r", encoding="utf-8"):
        try:
            said = slot.judge(Candidate(**json.loads(line))).to_json()
        except (HostError, SandboxUnavailable) as error:
            said = {"error": type(error).__name__, "message": str(error)}
        own.sendall(json.dumps(said).encode() + b"\n")


def main() -> None:
    """Serve all lanes, a thread each, until the judge is gone."""
    die_with_parent()
    told = json.loads(sys.argv[1])
    options = Options(**{**told["options"], "targets": tuple(told["options"]["targets"])})
    torch.set_num_threads(1)
    device = describe_device(options.backend)
    gate = device.gate(Path(told["gate"]), options.workers)
    slots = [Slot(options, device, gate) for _ in told["lanes"]]
    threads = [
        threading.Thread(target=serve, args=(socket.socket(fileno=fd), slot), daemon=True)
        for fd, slot in zip(told["lanes"], slots, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for slot in slots:
        slot.close()


if __name__ == "__main__":
    main()
