"""Give `curate` bad input of every kind, and print what it says and its exit code as a table.

    python benchmarks/bad_inputs.py

Everything is made in a temporary folder: broken recipes, hostile archives on a package index of
their own, and modules that misbehave when they are run.
"""

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

GOOD = """\
name: trial
sources:
  - source: local
    path: {folder}
steps:
  - step: licenses
  - step: modules
  - step: closure
  - step: licenses
  - step: inputs
    timeout_s: 20
    memory_mb: 2048
    max_error_rate: 1.0
"""

PYPI = """\
name: trial
sources:
  - source: pypi
    packages: ["{pin}"]
steps:
  - step: licenses
"""

MODULE = """\
import torch
from torch import nn


class Bad(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(64))

    def forward(self, x):
        {act}
        return x * self.scale
"""

ACTS = {
    "module that hangs": "while True: pass",
    "module that forks": "[__import__('os').fork() for _ in range(100)]",
    "module that allocates 100 GB": "x = x + len(bytearray(100 * 2**30))",
    "module that opens a socket": "__import__('socket').create_connection(('1.1.1.1', 80), 3)",
    "module that writes outside /tmp": "open('/usr/planted', 'w').write('x')",
    "module that reads the user's files": "open('{folder}/secret').read()",
    "module that crashes": "__import__('ctypes').string_at(0)",
}


def curate(folder: Path, *arguments: str, **variables: str) -> tuple[int, str]:
    """Run the command; return its exit code and all that it printed."""
    command = [sys.executable, "-m", "curate", *arguments]
    ran = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env={**os.environ, **variables}
    )
    return ran.returncode, ran.stderr.strip() or ran.stdout.strip()


def recipes(folder: Path) -> Iterator[tuple[str, int, str]]:
    """Try recipes with one mistake each."""
    good = GOOD.format(folder=".")
    for what, text in {
        "bad YAML": good.replace("steps:", "steps: ["),
        "unknown field": good.replace("timeout_s", "timeout"),
        "wrong type": good.replace("timeout_s: 20", "timeout_s: soon"),
        "unknown step": good.replace("step: modules", "step: module"),
        "closure without licenses after it": good.replace("closure\n  - step: licenses", "closure"),
        "pin without a hash": PYPI.format(pin="timm==1.0.31"),
        "folder that is not there": GOOD.format(folder="nowhere"),
    }.items():
        (folder / "recipe.yaml").write_text(text)
        yield what, *curate(folder, "run", "recipe.yaml")


def archives(folder: Path) -> Iterator[tuple[str, int, str]]:
    """Try package files that are not what the recipe says, or hostile."""
    index = folder / "index"
    index.mkdir()

    def publish(version: str, entries: dict[str, bytes], link: str | None = None) -> str:
        path = index / f"trial-{version}.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            for name, data in entries.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
            if link:
                entry = tarfile.TarInfo(f"trial-{version}/link.py")
                entry.type, entry.linkname = tarfile.SYMTYPE, link
                archive.addfile(entry)
        return hashlib.sha256(path.read_bytes()).hexdigest()

    good = publish("1.0", {"trial-1.0/a.py": b"x = 1\n"})
    climbing = publish("2.0", {"trial-2.0/../../../planted.py": b"x = 1\n"})
    linked = publish("3.0", {"trial-3.0/a.py": b"x = 1\n"}, link="/etc/passwd")
    bomb = publish("4.0", {"trial-4.0/a.py": b" " * 2**28})
    (index / "trial-5.0-py3-none-any.whl").write_bytes(b"this is no zip file")
    broken = hashlib.sha256(b"this is no zip file").hexdigest()
    with zipfile.ZipFile(index / "trial-6.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("/etc/planted.py", "x = 1\n")
    absolute = hashlib.sha256((index / "trial-6.0-py3-none-any.whl").read_bytes()).hexdigest()
    for what, version, sha256 in (
        ("missing version", "9.9", good),
        ("hash mismatch", "1.0", "0" * 64),
        ("archive with ../", "2.0", climbing),
        ("archive with a link", "3.0", linked),
        ("archive bomb", "4.0", bomb),
        ("wheel that is no archive", "5.0", broken),
        ("wheel with an absolute path", "6.0", absolute),
    ):
        pin = f"trial=={version} --hash=sha256:{sha256}"
        (folder / "recipe.yaml").write_text(PYPI.format(pin=pin))
        variables = {"PIP_FIND_LINKS": str(index), "PIP_NO_INDEX": "1"}
        yield what, *curate(folder, "run", "recipe.yaml", **variables)


def lost(folder: Path, steps: tuple[str, ...]) -> str:
    """Return why the first lost row of the run was lost."""
    import pyarrow.parquet as pq

    for step in steps:
        path = folder / "output/trial/lost" / f"{step}.parquet"
        if path.exists():
            row = pq.read_table(path).to_pylist()[0]
            evidence = json.loads(row["evidence"])
            shown = {k: evidence[k] for k in ("error", "message", "signal", "why") if k in evidence}
            return f"row {row['fate']} by {step}: {row['reason']} {json.dumps(shown)}"
    return "nothing was lost"


def modules(folder: Path) -> Iterator[tuple[str, int, str]]:
    """Try modules that misbehave when they are run, and files whose license is in doubt."""
    sources = folder / "sources"
    sources.mkdir()
    (folder / "recipe.yaml").write_text(GOOD.format(folder="sources"))
    license_text = Path(__file__).resolve().parents[1] / "LICENSE"
    (sources / "LICENSE").write_text(license_text.read_text())
    for what, act in ACTS.items():
        (folder / "secret").write_text("secret")
        (sources / "bad.py").write_text(MODULE.format(act=act.format(folder=folder)))
        code, said = curate(folder, "run", "recipe.yaml")
        yield what, code, lost(folder, ("inputs", "closure")) if code == 0 else said
    for what, tag in {
        "license conflict: AGPL tag under an Apache LICENSE": "AGPL-3.0-only",
        "license tag that is no license": "Whatever-1.0",
    }.items():
        text = f"# SPDX-License-Identifier: {tag}\n" + MODULE.format(act="pass")
        (sources / "bad.py").write_text(text)
        code, said = curate(folder, "run", "recipe.yaml")
        yield what, code, lost(folder, ("licenses#1",)) if code == 0 else said
    (sources / "LICENSE").unlink()
    (sources / "bad.py").write_text(MODULE.format(act="pass"))
    code, said = curate(folder, "run", "recipe.yaml")
    yield "no license at all", code, lost(folder, ("licenses#1",)) if code == 0 else said


def main() -> None:
    """Print the table."""
    print("| input | exit code | message |\n|-|-|-|")
    for kind in (recipes, archives, modules):
        with tempfile.TemporaryDirectory() as name:
            for what, code, said in kind(Path(name)):
                shown = " ".join(said.replace(name, "…").replace("|", "\\|").split())[:300]
                print(f"| {what} | {code} | {shown} |", flush=True)
    assert not Path("/usr/planted").exists()


if __name__ == "__main__":
    main()
