"""Programs that attack the machine, the judge, or the candidates that come after them.

A probe tries something and then answers: right if the attempt came to nothing, wrong if it had an
effect. So ``incorrect`` means that the sandbox leaks. The other attacks answer wrong whatever
happens, and must not be called correct. After each of these, the same worker judges an honest
program.
"""

from __future__ import annotations

import dataclasses
import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent, indent

import pytest
import torch
from affine import AFFINE, CHEAP, PLAIN, program

import curate
from curate.verify import Candidate, Judge, Options, Verdict

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first waits for all verdicts

IMPORTS = """
import ctypes
import json
import mmap
import os
import resource
import signal
import socket
import struct
import sys
import threading
import time
from pathlib import Path
"""

# --- probes: whether an attempt had an effect -------------------------------------------------

PROBES = {
    "connects to a port of this machine": """
        with socket.create_connection(("127.0.0.1", PORT), timeout=5):
            return True
        """,
    "connects to an abstract socket": """
        with socket.socket(socket.AF_UNIX) as client:
            client.connect("\\0" + SOCKET)
            return True
        """,
    "asks for an address": "return bool(socket.getaddrinfo('example.org', 80))",
    "sends a datagram": """
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.connect(("192.0.2.1", 53))
            return client.send(b"?") == 1
        """,
    "binds a port of this machine": """
        with socket.socket() as server:
            try:
                server.bind(("127.0.0.1", PORT))
            except OSError as error:
                return error.errno == 98  # in use, as on the outside
        return False
        """,
    "reads a file of the user's": "return bool(Path(SECRET_FILE).read_text())",
    "lists a folder of the user's": "return bool(os.listdir(os.path.dirname(SECRET_FILE)))",
    "reads a file of the user's through another root": """
        return any(Path(f"/proc/{pid}/root" + SECRET_FILE).exists()
                   for pid in os.listdir("/proc") if pid.isdigit())
        """,
    "reads /etc/shadow": "return bool(Path('/etc/shadow').read_text())",
    "reads a secret in its environment": "return 'CURATE_TEST_SECRET' in os.environ",
    "reads a secret in anybody's environment": """
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if b"CURATE_TEST_SECRET" in Path(f"/proc/{pid}/environ").read_bytes():
                    return True
            except OSError:
                pass
        return False
        """,
    "writes outside": """
        wrote = []
        for place in PLACES:
            try:
                Path(place, "planted-by-a-candidate").write_text("x")
                wrote.append(place)
            except OSError:
                pass
        return bool(wrote)
        """,
    "changes the judge's own files": """
        with open(sys.modules["__main__"].__file__, "a") as file:
            return file.write("#") == 1
        """,
    "makes a place writable": """
        os.chmod(os.path.dirname(torch.__file__), 0o777)
        return True
        """,
    "makes a device": """
        os.mknod("/tmp/memory", 0o600 | 0o020000, os.makedev(1, 1))
        return bool(open("/tmp/memory", "rb").read(1))
        """,
    "reads another process's memory": """
        for pid in filter(str.isdigit, os.listdir("/proc")):
            if int(pid) == os.getpid():
                continue
            try:
                start = int(open(f"/proc/{pid}/maps").readline().split("-")[0], 16)
                with open(f"/proc/{pid}/mem", "rb", 0) as memory:
                    memory.seek(start)
                    if memory.read(4):
                        return True
            except (OSError, ValueError):
                pass
        return False
        """,
    "reads another process's memory from its folder": """
        for pid in filter(str.isdigit, os.listdir("/proc")):
            if int(pid) in (1, os.getpid()):  # 1 is bubblewrap, which knows nothing
                continue
            try:
                os.chdir(f"/proc/{pid}")
                start = int(open("maps").readline().split("-")[0], 16)
                with open("mem", "rb", 0) as memory:
                    memory.seek(start)
                    if memory.read(4):
                        return True
            except (OSError, ValueError):
                pass
        return False
        """,
    "traces its parent": """
        attach = 16
        return ctypes.CDLL(None).ptrace(attach, os.getppid(), None, None) == 0
        """,
    "takes a file of its parent's": """
        for fd in range(64):
            try:
                with open(f"/proc/{os.getppid()}/fd/{fd}", "ab", 0) as file:
                    if not file.name.startswith("/dev/null") and file.write(b"x"):
                        return True
            except OSError:
                pass
        return False
        """,
    "raises its own limits": """
        resource.setrlimit(resource.RLIMIT_NPROC, (resource.RLIM_INFINITY,) * 2)
        return True
        """,
}

# --- attacks that answer wrong ----------------------------------------------------------------

FLOOD = "sends a payload that is too large"
BAD = frozenset({"cheat", "incorrect", "runtime_error", "crash", "timeout", "oom"})
DEAD = BAD - {"incorrect"}

ATTACKS = {
    # Same user, same sandbox: it can be done, and is noticed.
    "lowers its parent's limits": (
        BAD,
        """
        before = resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE)
        resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (3, before[1]))
        """,
    ),
    "lowers its parent's memory": (
        BAD,
        """
        before = resource.prlimit(os.getppid(), resource.RLIMIT_AS)
        resource.prlimit(os.getppid(), resource.RLIMIT_AS, (1 << 20, before[1]))
        """,
    ),
    "lowers what its parent may write": (
        BAD,
        """
        before = resource.prlimit(os.getppid(), resource.RLIMIT_FSIZE)
        resource.prlimit(os.getppid(), resource.RLIMIT_FSIZE, (1, before[1]))
        """,
    ),
    "lowers its parent's priority": ({"cheat"}, "os.setpriority(0, os.getppid(), 19)"),
    "gives its parent one processor": (
        {"cheat"} if len(os.sched_getaffinity(0)) > 1 else BAD,
        "os.sched_setaffinity(os.getppid(), {min(os.sched_getaffinity(0))})",
    ),
    "forks without end": (DEAD | {"incorrect"}, "while True:\n    os.fork()"),
    "starts threads without end": (
        BAD,
        "while True:\n    threading.Thread(target=time.sleep, args=(1000,)).start()",
    ),
    "eats memory": (
        {"oom", "crash", "runtime_error", "cheat"},
        "kept = []\nwhile True:\n    kept.append(b'x' * (64 << 20))",
    ),
    "eats memory outside Python's heap": (
        {"oom", "crash", "runtime_error", "cheat"},
        """
        kept = []
        while True:
            kept.append(mmap.mmap(-1, 64 << 20))
            kept[-1].write(b"x" * (64 << 20))
        """,
    ),
    "fills /tmp and /dev/shm": (
        BAD,
        """
        for place in ("/tmp", "/dev/shm"):
            try:
                for at in range(1000):
                    Path(place, f"filler-{at}").write_bytes(b"x" * (32 << 20))
            except OSError:
                pass
        """,
    ),
    "makes many empty files": (
        BAD,
        """
        try:
            for at in range(100_000):
                open(f"/tmp/empty-{at}", "w").close()
        except OSError:
            pass
        """,
    ),
    "hangs": (DEAD, "while True:\n    pass"),
    "sleeps": (DEAD, "time.sleep(1000)"),
    "hangs and blocks signals": (
        DEAD,
        "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile True:\n    pass",
    ),
    "kills itself": (DEAD, "os.kill(os.getpid(), 9)"),
    "aborts": (DEAD, "os.abort()"),
    "overflows the stack": (
        DEAD,
        """
        sys.setrecursionlimit(10**9)
        nested = lambda: nested()
        nested()
        """,
    ),
    "kills its parent": (BAD, "os.kill(os.getppid(), 9)\ntime.sleep(1)"),
    "kills all it may": (BAD, "os.kill(-1, 9)\ntime.sleep(1)"),
    "kills its parent by another call": (
        BAD,
        "signal.pidfd_send_signal(os.pidfd_open(os.getppid()), 9)\ntime.sleep(1)",
    ),
    "stops its parent": (BAD, "os.kill(os.getppid(), signal.SIGSTOP)"),
    "stops all processes": (
        BAD,
        """
        for pid in filter(str.isdigit, os.listdir("/proc")):
            if int(pid) != os.getpid():
                os.kill(int(pid), signal.SIGSTOP)
        """,
    ),
    "closes its pipe": (DEAD, "os.closerange(3, 4096)\ntime.sleep(1)"),
    "closes its pipe and stays": (DEAD, "os.closerange(3, 4096)\ntime.sleep(1000)"),
    "floods its pipe with zeros": (
        BAD,
        """
        while True:
            for fd in files():
                write(fd, bytes(1 << 20))
        """,
    ),
    "floods its pipe with events": (
        BAD,
        """
        frame = make_frame({"event": "network", "what": "x" * 1000, "line": 1})
        while True:
            for fd in files():
                write(fd, frame)
        """,
    ),
    "announces a payload that never comes": (
        BAD,
        """
        for fd in files():
            write(fd, struct.pack(">4sIQ", b"CRT1", 1 << 20, 1 << 35))
        time.sleep(1000)
        """,
    ),
    # 2 GiB of it do come: a judge that reads them all holds them all.
    FLOOD: (
        BAD,
        """
        def fill(fd):
            write(fd, make_frame({"serial": 1}, payload=1 << 35))
            for _ in range(2048):
                write(fd, bytes(1 << 20))

        threads = [threading.Thread(target=fill, args=(fd,)) for fd in files()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        """,
    ),
    "forges frames": (
        BAD,
        """
        for serial in (0, 1, None, True):
            for body in ({"launches": {"kernel": 1}, "calls": {}, "output": {"tensor": 0}},
                         {"refused": {"status": "correct", "reason": "", "message": ""}},
                         {"status": "correct"}, {"event": None}, {"event": {}, "line": []}):
                for fd in files():
                    write(fd, make_frame({"serial": serial, **body}))
        """,
    ),
    "forges frames that are no JSON": (
        BAD,
        """
        for fd in files():
            write(fd, struct.pack(">4sIQ", b"CRT1", 200_000, 0) + b"[" * 200_000)
        """,
    ),
    "forges the end of its job": (
        BAD,
        """
        for job in range(1000):
            end = {"job": job, "died": None, "evidence": {}, "spoiled": False, "changed": []}
            for fd in files():
                write(fd, json.dumps(end).encode())
        """,
    ),
    "prints without end": (BAD, "while True:\n    print('correct ' * 10_000)"),
}

ENDLESS = {
    *("hangs", "hangs and blocks signals", "sleeps", "overflows the stack"),
    *("announces a payload that never comes", FLOOD, "closes its pipe and stays"),
}
"""Attacks that take all the time that there is."""

TOOLS = """
def files():
    return [int(name) for name in os.listdir("/proc/self/fd") if int(name) > 2]


def write(fd, data):
    try:
        os.set_blocking(fd, True)
        while data:
            data = data[os.write(fd, data) :]
    except OSError:
        pass


def make_frame(message, payload=0):
    header = json.dumps({"message": message, "tensors": []}).encode()
    return struct.pack(">4sIQ", b"CRT1", len(header), payload) + header
"""

# --- one candidate leaves something for the next ----------------------------------------------

LEAVES = {
    "a file in /tmp": (
        "Path('/tmp/left').write_text('x')",
        "return Path('/tmp/left').exists()",
    ),
    "a file in /dev/shm": (
        "Path('/dev/shm/left').write_text('x')",
        "return Path('/dev/shm/left').exists()",
    ),
    "a folder that cannot be entered": (
        "Path('/tmp/closed/left').mkdir(parents=True)\nos.chmod('/tmp/closed', 0)",
        "return Path('/tmp/closed').exists()",
    ),
    "a file where Triton keeps its kernels": (
        "path = Path('/tmp/.triton/cache/left')\npath.parent.mkdir(parents=True)\n"
        "path.write_text('x')",
        "return Path('/tmp/.triton/cache/left').exists()",
    ),
    "a process": (
        """
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.closerange(0, 4096)
                time.sleep(1000)
            os._exit(0)
        """,
        """
        lines = (Path(f"/proc/{pid}/stat") for pid in os.listdir("/proc") if pid.isdigit())
        sleepers = [line.read_text().split()[3] for line in lines if line.exists()]
        return sleepers.count("1") > 1  # children of the sandbox's init, besides the host
        """,
    ),
    "a folder within two thousand others": (
        """
        os.chdir("/tmp")
        for _ in range(2000):
            if not os.path.exists("left"):
                os.mkdir("left")
            os.chdir("left")
        os.chdir("/tmp")
        """,
        "return Path('/tmp/left').exists()",
    ),
    "an entry in a module": (
        "torch.left = nn.left = sys.left = True",
        "return any(hasattr(module, 'left') for module in (torch, nn, sys))",
    ),
    "a variable": (
        "os.environ['LEFT'] = '1'\nos.nice(5)\nos.umask(0o777)",
        f"return 'LEFT' in os.environ or os.nice(0) > {os.nice(0)}",  # tests may run under nice
    ),
}


@dataclass(frozen=True)
class Outside:
    """What the attacks look for on this machine."""

    port: int
    socket: str
    secret: str

    def fill(self, text: str) -> str:
        named = {
            "PORT": self.port,
            "SOCKET": self.socket,
            "SECRET_FILE": self.secret,
            "PLACES": PLACES,
        }
        return "".join(f"{name} = {value!r}\n" for name, value in named.items()) + text


PLACES = [
    *("/", "/etc", "/usr", "/usr/lib", "/opt", "/var/tmp", "/dev", "/root", "/sys"),
    str(Path(curate.__file__).parent),
    str(Path(curate.__file__).parents[1]),
    str(Path(torch.__file__).parent / "__pycache__"),
    *(sys.prefix, sys.base_prefix, str(Path.home())),
]


@pytest.fixture(scope="module")
def outside() -> Iterator[Outside]:
    """A listening port and socket, a secret in the environment, a file in the home folder."""
    os.environ["CURATE_TEST_SECRET"] = "told to nobody"
    abstract = f"curate-test-{os.getpid()}"
    with (
        socket.create_server(("127.0.0.1", 0)) as port,
        socket.socket(socket.AF_UNIX) as local,
        tempfile.TemporaryDirectory(dir=Path.home(), prefix=".curate-test-") as folder,
    ):
        local.bind("\0" + abstract)
        local.listen()
        secret = Path(folder, "secret")
        secret.write_text("told to nobody")
        yield Outside(port.getsockname()[1], abstract, str(secret))
    del os.environ["CURATE_TEST_SECRET"]


def attacking(body: str, result: str) -> str:
    """Return a program with a function ``attack`` of this body, and its statements of forward."""
    function = f"\ndef attack():\n{indent(dedent(body).strip(), ' ' * 4)}\n"
    return program((CHEAP + IMPORTS + TOOLS + function, result))


PROBE = """
try:
    had_an_effect = attack()
except Exception:
    had_an_effect = False
return cheap(x) if had_an_effect else affine(x)
"""
ATTACK = "attack()\nreturn cheap(x)"
LEAVE = "attack()\nreturn affine(x)"
AFTER = " > after"

Verdicts = dict[str, Verdict]


class Memory:
    """What this process, which is the judge, has held at most since a moment."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here (proc(5))
        self.before = self.peak()

    def peak(self) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM"))

    def grown(self) -> int:
        """Return MiB."""
        return self.peak() - self.before


@pytest.fixture(scope="module")
def judged(outside: Outside) -> tuple[Verdicts, int]:
    """Every attack and then an honest program; a worker takes two at a time (`judge.GROUP`).

    With the MiB that the judge has taken for the flood.
    """
    programs: dict[str, str] = {}
    for name, body in PROBES.items():
        programs[name] = outside.fill(attacking(body, PROBE))
    for name, (_, body) in ATTACKS.items():
        programs[name] = attacking(body, ATTACK)
    for name, (leave, find) in LEAVES.items():
        programs[f"leaves {name}"] = attacking(leave, LEAVE)
        programs[f"finds {name}"] = attacking(find, PROBE)
    quick, slow, flood = [], [], []
    for name, text in programs.items():
        candidates = flood if name == FLOOD else slow if name in ENDLESS else quick
        candidates.append(Candidate(name, AFFINE, text))
        if name in ATTACKS:
            candidates.append(Candidate(name + AFTER, AFFINE, program(PLAIN)))
    found: Verdicts = {}
    limits = {"timeout_s": 15.0, "memory_mb": 1024}
    options = Options(backend="cpu", workers=2, trials=1, vary_sizes=False, **limits)
    with closing(Judge(options)) as judge:
        found |= {verdict.id: verdict for verdict in judge.run(quick)}
        for slot in judge.slots:
            slot.options = dataclasses.replace(options, timeout_s=4.0)
        found |= {verdict.id: verdict for verdict in judge.run(slow)}
        memory = Memory()
        found |= {verdict.id: verdict for verdict in judge.run(flood)}
        grown = memory.grown()
    assert set(found) == {candidate.id for candidate in quick + slow + flood}, "one for each"
    return found, grown


@pytest.fixture(scope="module")
def verdicts(judged: tuple[Verdicts, int]) -> Verdicts:
    return judged[0]


@pytest.mark.parametrize("name", PROBES)
def test_an_attempt_comes_to_nothing(verdicts: Verdicts, name: str) -> None:
    verdict = verdicts[name]
    assert verdict.status in ("correct", "cheat"), verdict.to_json()


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_not_called_correct(verdicts: Verdicts, name: str) -> None:
    verdict = verdicts[name]
    assert verdict.status in ATTACKS[name][0], verdict.to_json()


@pytest.mark.parametrize("name", LEAVES)
def test_nothing_is_left_for_the_next_candidate(verdicts: Verdicts, name: str) -> None:
    verdict = verdicts[f"finds {name}"]
    assert verdict.status in ("correct", "cheat"), verdict.to_json()


@pytest.mark.parametrize("name", ATTACKS)
def test_an_honest_program_is_judged_right_afterwards(verdicts: Verdicts, name: str) -> None:
    verdict = verdicts[name + AFTER]
    assert verdict.status == "correct", verdict.to_json()


def test_nothing_was_written_outside(verdicts: Verdicts) -> None:
    assert not [place for place in PLACES if Path(place, "planted-by-a-candidate").exists()]


def test_a_flood_does_not_fill_the_judges_memory(judged: tuple[Verdicts, int]) -> None:
    assert judged[1] < 256, "MiB"
