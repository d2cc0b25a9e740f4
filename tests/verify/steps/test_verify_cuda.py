from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from curate.devices import ON_CPU
from curate.problem.problem import LoadedProgram, LoadedTask
from curate.rows import Row
from curate.step import Context, Drop, Keep, StepError
from curate.verify.compile.ptx import compile_ptx, find_nvcc
from curate.verify.files import VerdictFile
from curate.verify.host_half.cuda_launches import LAUNCH, make_launcher
from curate.verify.host_half.handles import on_device
from curate.verify.host_half.launches import HostLaunches
from curate.verify.host_half.serve import Nowhere
from curate.verify.host_half.stream import CommandStream
from curate.verify.steps.cuda_programs import BindingError, find_binding, read_binding
from curate.verify.steps.verify_cuda import VerifyCuda, graded
from curate.verify.verdict import Options, Verdict

needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="there is no nvcc here")
BINDINGS = Path(__file__).resolve().parents[3] / "recipes/cuda_references"
FILES = sorted(BINDINGS.glob("*/*.py"))

BINDING = """\
# %% reference
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return 2 * x
def get_init_inputs():
    return []
def get_inputs():
    return [torch.randn(300)]
# %% cuda
import torch
ABOVE = "#define FACTOR 2"
BELOW = "auto kept = twice<float>;"
class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        launch_cuda("twice", -(-len(x) // 128), 128, [x, out, len(x)])
        return out
# %% triton
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return twice(x)
"""
CUDA = """\
template <typename T> __global__ void twice(const T* x, T* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = FACTOR * x[i];
}
"""


def pair(**columns: Any) -> Row:
    pairing = {"grade": "name", "evidence": [], "path": "a.py", "start_line": 1, "symbol": "twice"}
    return {
        "id": "1",
        "kind": "cuda",
        "origin": {"purl": "pkg:pypi/packed@1.0", "symbol": "twice"},
        "cuda": CUDA,
        "triton": "import torch\ndef twice(x): ...",
        "host_function": None,
        "pairing": pairing | {"verdict": None},
        "verdict": None,
        "reference": None,
        **columns,
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "bindings/packed").mkdir(parents=True)
    (tmp_path / "bindings/packed/twice.py").write_text(BINDING)
    return tmp_path / "bindings"


def test_a_binding_is_found_by_package_and_kernel(folder: Path) -> None:
    binding = find_binding(folder, pair())
    assert binding is not None
    assert binding.source("code") == "#define FACTOR 2\ncode\nauto kept = twice<float>;\n"
    cuda, triton = binding.candidates(pair(), "ptx")
    assert (cuda.id, cuda.ptx, triton.id, triton.ptx) == ("1:cuda", "ptx", "1:triton", None)
    assert triton.candidate.startswith("import torch\ndef twice(x)")
    assert "launch_cuda" not in triton.candidate
    assert "class Model(" not in cuda.candidate + triton.candidate
    other = {"purl": "pkg:pypi/packed@1.0", "symbol": "thrice"}
    assert find_binding(folder, pair(origin=other)) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BINDING.replace("# %% triton", "# triton"), "must have the parts"),
        (BINDING.replace('BELOW = "', 'BELOW = ("'), "part cuda, line"),
    ],
)
def test_a_bad_binding_is_an_error(folder: Path, text: str, said: str) -> None:
    (folder / "packed/twice.py").write_text(text)
    with pytest.raises(BindingError, match=said):
        find_binding(folder, pair())
    step = VerifyCuda(step="verify_cuda", bindings=str(folder))
    with pytest.raises(StepError, match=said):
        step.apply(pair(), Context())


@needs_nvcc
def test_a_binding_can_be_checked_without_a_gpu(folder: Path) -> None:
    binding = find_binding(folder, pair())
    assert binding is not None
    ptx = compile_ptx(binding.source(CUDA), 90, 100)
    launches = HostLaunches(ON_CPU)
    launcher = make_launcher(ptx, launches)
    program = LoadedProgram(binding.cuda, {LAUNCH: launcher})
    wrong = LoadedProgram(binding.cuda.replace("len(x)]", "1.5]"), {LAUNCH: launcher})
    with on_device(CommandStream(Nowhere())):  # type: ignore[arg-type]
        x = torch.ones(300, device="cuda")
        program.build(0, [])(x)
        assert launches.asked == 1
        with pytest.raises(TypeError, match="float for u32"):
            wrong.build(0, [])(x)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_references_of_the_project_say_something(path: Path) -> None:
    task = LoadedTask(read_binding(path).reference)
    model = task.build(0, task.init_inputs())
    seen = []
    for seed in range(2):
        torch.manual_seed(seed)
        seen.append(model(*task.inputs()))
    first, second = (x if isinstance(x, tuple) else (x,) for x in seen)
    assert all(isinstance(tensor, torch.Tensor) and tensor.numel() for tensor in first)
    alike = [a.shape == b.shape and torch.equal(a, b) for a, b in zip(first, second, strict=True)]
    assert not all(alike)


# --- the step ---------------------------------------------------------------------------------


def verdicts(cuda: str, triton: str, **more: Any) -> dict[str, Verdict]:
    sides = {"cuda": cuda, "triton": triton}
    return {
        side: Verdict(side, status, None if status == "correct" else "value", **more)
        for side, status in sides.items()
    }


def test_two_right_sides_are_verified(folder: Path) -> None:
    binding = read_binding(folder / "packed/twice.py")
    found = graded(pair(), binding, verdicts("correct", "correct", device="a GPU", trials=8))
    assert isinstance(found, Keep)
    (row,) = found.rows
    assert row["pairing"]["grade"] == "verified"
    for verdict in (row["pairing"]["verdict"], row["verdict"]):
        assert (verdict["status"], verdict["device"], verdict["trials"]) == ("correct", "a GPU", 8)
    assert row["reference"] == binding.reference


@pytest.mark.parametrize("sides", [("incorrect", "correct"), ("correct", "timeout")])
def test_a_wrong_side_loses_the_pair_with_evidence(folder: Path, sides: tuple[str, str]) -> None:
    binding = read_binding(folder / "packed/twice.py")
    found = graded(pair(), binding, verdicts(*sides, evidence={"got": 3}))
    assert isinstance(found, Drop)
    assert found.reason == "differs"
    right, wrong = sorted(("cuda", "triton"), key=lambda side: sides[side == "triton"] != "correct")
    assert found.evidence["correct"] == [right]
    assert found.evidence[wrong]["got"] == 3


@pytest.mark.parametrize("sides", [("unsupported", "correct"), ("incorrect", "unsupported")])
def test_an_unjudged_side_leaves_the_grade(folder: Path, sides: tuple[str, str]) -> None:
    binding = read_binding(folder / "packed/twice.py")
    found = graded(pair(), binding, verdicts(*sides))
    assert isinstance(found, Keep)
    (row,) = found.rows
    assert (row["pairing"]["grade"], row["pairing"]["verdict"]["status"]) == ("name", "unsupported")


def test_a_pair_without_binding_keeps_its_grade(tmp_path: Path) -> None:
    (row,) = kept(VerifyCuda(step="verify_cuda", bindings=str(tmp_path)))
    assert row["pairing"]["grade"] == "name"
    assert row["pairing"]["verdict"]["reason"] == "no_binding"


def kept(step: VerifyCuda) -> tuple[Row, ...]:
    step.setup(Context())
    found = step.apply(pair(), Context(sandbox=False))
    assert isinstance(found, Keep), found
    return found.rows


@needs_nvcc
def test_verdicts_may_come_from_another_machine(folder: Path, tmp_path: Path) -> None:
    step = VerifyCuda(step="verify_cuda", bindings=str(folder))
    (row,) = kept(step)
    assert row["pairing"]["verdict"]["reason"] == "no_device"

    binding = read_binding(folder / "packed/twice.py")
    ptx = compile_ptx(binding.source(CUDA), 90, 100)
    path = tmp_path / "verdicts.jsonl"
    with VerdictFile(path, Options(backend="cpu")) as file:
        for candidate in binding.candidates(pair(), ptx):
            file.append(candidate, Verdict(candidate.id, "correct", device="a GPU"))
    given = VerifyCuda(step="verify_cuda", bindings=str(folder), verdicts=str(path))
    assert given.options() != step.options(), "the files' content is part of the fingerprint"
    (row,) = kept(given)
    assert row["pairing"]["grade"] == "verified"

    (folder / "packed/twice.py").write_text(BINDING.replace("2 * x", "x + x"))
    (row,) = kept(given)
    assert row["pairing"]["grade"] == "name", "verdicts on another reference count for nothing"


@needs_nvcc
def test_what_does_not_compile_is_labelled(folder: Path) -> None:
    (folder / "packed/twice.py").write_text(BINDING.replace("#define FACTOR 2", ""))
    (row,) = kept(VerifyCuda(step="verify_cuda", bindings=str(folder)))
    verdict = row["pairing"]["verdict"]
    assert (verdict["status"], verdict["reason"]) == ("unsupported", "compile_error")
    assert "FACTOR" in json.loads(verdict["evidence"])["message"]
