"""Slots in processes of their own: one interpreter does not weigh more than a few at a time.

Such a process, ``python -m curate.verify.judge.lanes``, inherits a socket per slot, its lane, on
which candidates come and verdicts go, one JSON object per line.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import torch

from curate.engine.processes.child import die_with_parent
from curate.engine.processes.sandbox import PACKAGE, SandboxUnavailable
from curate.verify.judge.device import describe_device
from curate.verify.judge.session import HostError, spawn
from curate.verify.judge.slot import Slot
from curate.verify.verdict import Candidate, Options, Verdict

LANES = 4
"""Slots of one process."""


class LaneProcess:
    """A process with some slots.

    Attributes:
        lanes: what the judge asks in place of its own slots.
    """

    def __init__(self, options: Options, count: int, gate: Path) -> None:
        pairs = [socket.socketpair() for _ in range(count)]
        fds = [other.fileno() for _, other in pairs]
        told = {"options": dataclasses.asdict(options), "gate": str(gate), "lanes": fds}
        path = [str(PACKAGE.parent), os.environ.get("PYTHONPATH")]
        self.process: subprocess.Popen[bytes] = spawn(
            [sys.executable, "-P", "-m", "curate.verify.judge.lanes", json.dumps(told)],
            stdin=subprocess.DEVNULL,
            pass_fds=fds,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))},
            start_new_session=True,  # an interrupt from the keyboard is the judge's alone
        )
        for _, other in pairs:
            other.close()
        self.lanes = [Lane(self, own) for own, _ in pairs]

    def close(self) -> None:
        """End the process, and with it those that its slots have started."""
        self.process.kill()
        self.process.wait()


class Lane:
    """A slot in another process."""

    def __init__(self, process: LaneProcess, own: socket.socket) -> None:
        self.process, self.own = process, own
        self.lines = own.makefile("r", encoding="utf-8")

    def judge(self, candidate: Candidate) -> Verdict:
        """Return the verdict on one candidate; see `curate.verify.judge.slot.Slot.judge`.

        Raises:
            HostError, SandboxUnavailable: as the slot does, or because its process is gone.
        """
        try:
            self.own.sendall(json.dumps(dataclasses.asdict(candidate)).encode() + b"\n")
            line = self.lines.readline()
        except OSError:
            line = ""
        if not line.endswith("\n"):
            raise HostError(f"a process of the judge ended: {self.process.process.poll()}")
        said = json.loads(line)
        if "error" in said:
            known = {"SandboxUnavailable": SandboxUnavailable}
            raise known.get(said["error"], HostError)(said["message"])
        return Verdict.from_json(said)

    def close(self) -> None:
        """End the slot, with its process."""
        self.process.close()
        with contextlib.suppress(OSError):
            self.own.shutdown(socket.SHUT_RDWR)


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
    folder = Path(told["gate"])
    slots = [Slot(options, device, device.gate(folder, options.workers)) for _ in told["lanes"]]
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
