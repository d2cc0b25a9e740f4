"""Make `curate/licenses/text/copies.tsv`: digests of classes of well-known copyleft projects.

    python benchmarks/license_copies.py WHEELS CLONE [--write]

WHEELS is a folder with what ``pip download --no-deps --ignore-requires-python`` gives for
`RELEASES`; CLONE is a clone of https://github.com/milesial/Pytorch-UNet. Listed are classes of
`FILES`, without those of `OTHERS`, which these projects took from elsewhere themselves. Without
``--write``, says how the table differs from the one that is there.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

from curate.licenses.text.copies import TABLE, class_digests

RELEASES = {
    "yolov5": ["5.0.0", "6.1.0", "6.2.3", "7.0.0", "7.0.14"],
    "ultralytics": ["8.0.0", "8.0.100", "8.0.200", "8.1.0", "8.2.0", "8.3.0", "8.4.190"],
}
UNET = "https://github.com/milesial/Pytorch-UNet"
COMMITS = ["c981801", "17a03d1", "0f45521", "ff1ac09", "2dceff8", "6234bd1", "c0147f1", "d786714"]
"""Of `UNET`, whose license is of 2017-11-30, before all of them."""
FILES = re.compile(
    r"ultralytics/nn/modules(?:/(?:block|conv))?\.py|yolov5/models/(?:common|experimental)\.py"
)
OTHERS = frozenset(
    (
        *("BNContrastiveHead", "CBAM", "ChannelAttention", "ContrastiveHead", "CrossConv", "DFL"),
        *("GhostBottleneck", "GhostConv", "HGBlock", "HGStem", "ImagePoolingAttn", "LightConv"),
        *("MaxSigmoidAttnBlock", "MixConv2d", "RealNVP", "RepConv", "RepVGGDW", "Residual"),
        *("ResNetBlock", "ResNetLayer"),
        *("SavpeBlock", "SpatialAttention", "SwiGLUFFN", "TorchVision", "TransformerLayer"),
        *("AutoShape", "DetectMultiBackend", "Detections", "MLPBlock"),
    )
)
"""Classes there that follow others' papers or code closely, or that are no modules."""


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("wheels", type=Path)
    parser.add_argument("clone", type=Path)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    found: dict[str, str] = {}
    for text, origin, license in [*_wheels(asked.wheels), *_commits(asked.clone)]:
        for digest, name in class_digests(text):
            if name not in OTHERS:
                found.setdefault(digest, f"{digest}\t{name}\t{origin}\t{license}")
    lines = sorted(found.values())
    known = TABLE.read_text("utf-8").splitlines() if TABLE.exists() else []
    print(f"{len(lines)} classes; {len({*lines} - {*known})} new, {len({*known} - {*lines})} gone")
    if asked.write:
        TABLE.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    elif lines != known:
        sys.exit(1)


def _wheels(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Yield text, origin and license of every file that counts of the releases, oldest first."""
    for package, versions in RELEASES.items():
        for version in versions:
            (path,) = folder.glob(f"{package}-{version}-*.whl")
            with zipfile.ZipFile(path) as wheel:
                license = _license(wheel)
                for name in filter(FILES.fullmatch, sorted(wheel.namelist())):
                    origin = f"https://github.com/ultralytics/{package}"
                    yield wheel.read(name).decode(), origin, license


def _license(wheel: zipfile.ZipFile) -> str:
    (path,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    line = re.search(r"^License: (.+)$", wheel.read(path).decode(), re.M)
    assert line, path
    return {"GPL": "GPL-3.0-only", "GPL-3.0": "GPL-3.0-only", "AGPL-3.0": "AGPL-3.0-only"}[line[1]]


def _commits(clone: Path) -> Iterator[tuple[str, str, str]]:
    for commit in COMMITS:
        command = ["git", "-C", clone, "show", f"{commit}:unet/unet_parts.py"]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        yield text, UNET, "GPL-3.0-only"


if __name__ == "__main__":
    main()
