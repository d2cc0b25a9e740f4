"""The judge's end: a host in its sandbox, and sessions with the children that it forks."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Concatenate, TypedDict, cast

import torch

from curate.engine.processes.sandbox import PACKAGE, sandbox_command, worker_environment
from curate.files import read_end
from curate.verify.host import PACKET, SOCKET_TYPE, Ended, HostOptions, HostOrder
from curate.verify.protocol.calls import Answered, Given, pack_call, read_answer
from curate.verify.protocol.wire import (
    MAX_PAYLOAD,
    Channel,
    ConnectionClosed,
    Late,
    Message,
    TooLarge,
    WireError,
)
from curate.verify.verdict import Ending

START_S = 300.0  # seconds that a host may take to import what it needs
STARTS = 3  # times that a host is started before it is given up
LEAVING_S = 2.0  # seconds that a child may live on after it closed its channel
GRACE_S = 10.0  # seconds that a child may take to end, and a host to clear its sandbox


class HostError(Exception):
    """A host could not start; the message holds what it printed."""


class SessionEnded(Ending):
    """A session ended early; the evidence is the signal, the exit code, what was printed."""


CLAIMS = ("incorrect", "compile_error", "runtime_error", "oom", "crash", "unsupported", "skip")
"""What a process may say of itself: nothing that is to its advantage."""


class RequestRefused(Ending):
    """A request that a process could not answer; see `curate.verify.protocol.role.Refusal`.

    Raises:
        WireError: the refusal is not of the form that it must have.
    """

    def __init__(self, refused: Any) -> None:
        if not isinstance(refused, dict) or refused.get("status") not in CLAIMS:
            raise WireError("not a refusal")
        self.message = str(refused.get("message"))[:2000]
        reason = str(refused.get("reason"))[:100]
        super().__init__(refused["status"], reason, message=self.message)

    def __str__(self) -> str:
        return self.message


# A host dies with the thread that started it (PR_SET_PDEATHSIG), so a thread that stays starts it.
_starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="curate-hosts")


def spawn(command: list[str], **options: Any) -> Any:
    """Return a `subprocess.Popen` that does not die with the thread that asks for it."""
    if threading.current_thread() is threading.main_thread():  # or in a fork, without our thread
        return subprocess.Popen(command, **options)
    return _starter.submit(lambda: subprocess.Popen(command, **options)).result()


class Host:
    """A warm process in a sandbox of its own, started when it is first asked for something."""

    def __init__(self, options: HostOptions) -> None:
        self.options = options
        self.waited: dict[str, float] = collections.defaultdict(float)  # seconds, by request
        self.process: subprocess.Popen[bytes] | None = None
        self.pid: int | None = None
        self.is_warm = False
        self.control: socket.socket
        self.printed = tempfile.TemporaryFile()  # noqa: SIM115 (closed by stop)
        self.closed = False
        self.last: Session | None = None
        self.user = os.getpid()  # which fork of the judge has opened the last session

    def start(self) -> None:
        """Start the process and wait until it is warm.

        Raises:
            HostError: it ended, or was not warm in time.
        """
        for left in reversed(range(STARTS)):
            self.prepare()
            try:
                self._await()
                break
            except HostError:
                was_killed = self._was_killed()
                self.stop()
                if not left or not was_killed:
                    raise

    def _was_killed(self) -> bool:
        """Say whether the process was killed from outside: that says nothing of the next one."""
        try:
            return self.process is not None and self.process.wait(timeout=1) < 0
        except subprocess.TimeoutExpired:
            return False

    def prepare(self) -> None:
        """Start the process, unless it is there; several may warm up at the same time."""
        if self.pid is not None:
            return
        if self.closed:
            raise HostError("the judge is closed")
        own, other = socket.socketpair(socket.AF_UNIX, SOCKET_TYPE)
        command = [sys.executable, "-P", "-m", "curate.verify.host"]  # not what lies here
        # What PyTorch asks CUDA itself, rather than NVML, leaves a process that cannot fork.
        # With one connection to the device a context opens 2.4 times as fast.
        environment = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1", "CUDA_DEVICE_MAX_CONNECTIONS": "1"}
        if self.options.sandboxed:
            command = sandbox_command(command, environment, devices=self.options.device)
            given = {"PATH": os.environ.get("PATH", "")}
        else:
            path = [str(PACKAGE.parent), os.environ.get("PYTHONPATH")]
            inherited = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
            given = {**inherited, **worker_environment(), **environment}
            given["PYTHONPATH"] = os.pathsep.join(filter(None, path))
        self.process = spawn(
            command,
            stdin=other.fileno(),
            stdout=self.printed,
            stderr=self.printed,
            env=given,  # bubblewrap's own environment can be read in the sandbox
            start_new_session=True,
        )
        self.pid = self.process.pid
        other.close()
        self.control = own
        self._tell(self.options)
        self.is_warm = False

    def _await(self) -> None:
        """Wait until the process is warm, and make sure that it runs this code."""
        if self.is_warm:
            return
        package, name = self._hear(START_S), f"the judge's {self.options.purpose} host"
        if package is None:
            raise HostError(f"{name} did not start\n{self.last_words()}")
        if package != str(PACKAGE):
            raise HostError(
                f"{name} runs the code in {package} and not that in {PACKAGE}: its sandbox cannot "
                "read that folder, or one above it"
            )
        self.is_warm = True

    def open(self, seconds: float, *peers: socket.socket) -> Session:
        """Return a session with a new child, for at most so many seconds.

        ``peers`` are the child's ends of connections with other children.
        """
        self.start()
        if self.user != os.getpid():
            self._settle()
            self.start()
        elif self.last:
            self.last.close("superseded")  # there is one child at a time
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(2)]
        (own, other), (devices, other_devices) = pairs
        # Numbers that no other process, forked from the same judge, has used.
        job = secrets.randbits(53)
        order = json.dumps({"start": job}).encode()
        given = [one.fileno() for one in (other, other_devices, *peers)]
        try:
            socket.send_fds(self.control, [order], given)
        except OSError:
            self.stop()
            self.start()
            socket.send_fds(self.control, [order], given)
        other.close()
        other_devices.close()
        if not self.options.device:
            devices.close()
        channel = Channel(own, devices if self.options.device else None)
        self.last = Session(self, job, channel, seconds)
        return self.last

    def end(self, job: int, reason: str | None) -> Ended:
        """Kill a child, at once if there is a reason to, and return how it ended."""
        answer = self._wait_for(job, LEAVING_S) if reason is None else None
        if answer is None:
            self._tell(HostOrder(kill=reason or "left_its_channel"))
            answer = self._wait_for(job, GRACE_S)
        if answer is None:
            answer = Ended(job, "crash", {"printed": self.last_words()}, spoiled=True)
        if answer.spoiled:
            self.stop()  # the next session gets a new process, in a new sandbox
        return answer

    def _settle(self) -> None:
        """End the child that another fork of the judge has left, if it is there.

        Who has heard how that ended is not known, so the host is asked for its state.
        """
        asked, self.user = secrets.randbits(53), os.getpid()
        self._tell(HostOrder(kill="superseded", settle=asked))
        answer = self._wait_for(asked, GRACE_S)
        if answer is None or answer.spoiled:
            self.stop()

    def _wait_for(self, job: int, seconds: float) -> Ended | None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            answer = self._hear(left)
            if answer is None or answer["job"] == job:
                return answer and Ended(**answer)
        return None

    def _tell(self, message: HostOptions | HostOrder) -> None:
        with contextlib.suppress(OSError):  # its death is noticed when we listen
            self.control.settimeout(GRACE_S)
            self.control.send(json.dumps(dataclasses.asdict(message)).encode())

    def _hear(self, seconds: float) -> Any:
        """Return the host's next message, or None if it is gone or silent."""
        try:
            self.control.settimeout(seconds)
            data = self.control.recv(PACKET)
        except OSError:
            return None
        return json.loads(data) if data else None

    def last_words(self) -> str:
        """Return the end of what the host printed."""
        return read_end(self.printed, 3000)

    def close(self) -> None:
        """End the process for good."""
        self.closed = True
        self.stop()
        self.printed.close()

    def stop(self) -> None:
        """End the process and everything in its sandbox."""
        if self.pid is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):  # a fork of the judge is not its parent
            os.waitpid(self.pid, 0)
        self.control.close()
        self.pid = None


class HostEvent(TypedDict):
    """What a program reached for: the rule that this breaks, and where."""

    rule: str
    what: str
    line: object  # as its process says


class Session:
    """A conversation with one child, which may die, hang or lie.

    Attributes:
        events: what the child reported that the program reached for, and, once it has ended, what
            its host found that it had changed there.
        seconds: how long it may still take; the judge's own time does not count.
    """

    def __init__(self, host: Host, job: int, channel: Channel, seconds: float) -> None:
        self.host, self.job, self.channel, self.seconds = host, job, channel, seconds
        self.limit = MAX_PAYLOAD  # bytes of tensors in a reply
        self.events: list[HostEvent] = []
        self.is_open = True
        self.owner = os.getpid()

    def ask(
        self,
        method: Callable[Concatenate[Any, Given], Answered],
        *args: Given.args,
        **named: Given.kwargs,
    ) -> Answered:
        """Have the child call a method of what it serves; return what that gives.

        Raises:
            RequestRefused: the program raised, and its process is ready for the next request.
            SessionEnded: its process is gone, late, or does not keep to the rules.
        """
        tensors: list[torch.Tensor] = []
        given, do = pack_call(method, args, named, tensors), method.__name__
        # A reply that was prepared in advance cannot know this number.
        serial = secrets.randbits(53)
        started = time.monotonic()
        deadline = started + self.seconds
        try:
            self.channel.send({"do": do, "serial": serial, "given": given}, tensors, deadline)
            reply, received = self._reply(serial, deadline, self.limit)
            took = time.monotonic() - started
            self.seconds -= took
            self.host.waited[do] += took
            if "refused" in reply:
                raise RequestRefused(reply["refused"])
            return cast(Answered, read_answer(method, reply.get("answer"), received))
        except Late:
            self.close("timeout")
            raise SessionEnded("timeout", "timeout", request=do) from None
        except ConnectionClosed:
            raise _how(self.close(None)) from None
        except TooLarge as error:
            self.close("too_large")
            raise SessionEnded("incorrect", "shape", message=str(error)) from error
        except WireError as error:
            self.close("forged_message")
            raise SessionEnded("cheat", "forged_message", message=str(error)) from error

    def _reply(
        self, serial: int, deadline: float, limit: int
    ) -> tuple[Message, list[torch.Tensor]]:
        while True:
            message, tensors = self.channel.receive(deadline, limit)
            if message.get("serial") == serial:
                return message, tensors
            if "event" not in message or len(self.events) > 1000:
                raise WireError("a message that nobody asked for")
            rule, what = str(message["event"])[:100], str(message.get("what"))[:100]
            self.events.append(HostEvent(rule=rule, what=what, line=message.get("line")))

    def close(self, kill: str | None = "done") -> Ended:
        """End the child; return how it ended."""
        if not self.is_open:
            return Ended(self.job)
        self.is_open = False
        self.channel.close()
        if self.owner != os.getpid():  # that fork ends it, or the host when we open our own
            return Ended(self.job)
        ended = self.host.end(self.job, kill)
        self.events += [HostEvent(rule="changes_host", what=w, line=None) for w in ended.changed]
        return ended


class Lasting:
    """A session that goes on from one candidate to the next: its process runs no code of theirs."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._session: Session | None = None

    def at_hand(self, seconds: float) -> Session | None:
        """Return the session, for at most so many seconds; None if its process is gone.

        A fork of the judge needs a process of its own.
        """
        session = self._session
        if session is None or not session.is_open or session.owner != os.getpid():
            return None
        # Nobody has asked it anything: what is there to read is its end.
        if select.select([session.channel.sock], [], [], 0)[0]:
            return None
        session.seconds = seconds
        return session

    def start(self, seconds: float, *peers: socket.socket) -> Session:
        """Return a new session; see `Host.open`."""
        self._session = self.host.open(seconds, *peers)
        return self._session


def _how(ended: Ended) -> SessionEnded:
    """Return what a child's death says of its program."""
    if ended.died is None:
        return SessionEnded("crash", "left", message="it ended itself")
    if ended.died == "out_of_memory":
        return SessionEnded("oom", "host_memory", **ended.evidence)
    return SessionEnded("crash", ended.died, **ended.evidence)
