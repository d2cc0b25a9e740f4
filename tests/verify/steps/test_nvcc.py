import shutil
from pathlib import Path

import pytest

from curate.rows import COMPILE
from curate.verify.compile import ptx
from curate.verify.compile.ptx import find_nvcc
from curate.verify.steps.nvcc import compile_cuda

needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="there is no nvcc here")

KERNEL = """\
template <typename T> __global__ void twice(T* x) { x[threadIdx.x] += x[threadIdx.x]; }
void run(float* x, double* y) { twice<float><<<1, 32>>>(x); twice<double><<<1, 32>>>(y); }
"""


@needs_nvcc
def test_entries_are_counted() -> None:
    result = compile_cuda(KERNEL, 90, 100)
    assert set(result) == {field.name for field in COMPILE}
    assert (result["target"], result["ok"], result["kernels"]) == ("nvcc:90", True, 2)
    nothing = compile_cuda(KERNEL.partition("void run")[0], 90, 100)
    assert (nothing["ok"], nothing["kernels"]) == (True, 0), "no template is instantiated"


@needs_nvcc
@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        ("#include <not/here.cuh>\n", "missing_header", "not/here.cuh"),
        (KERNEL.replace("threadIdx.x]", "nowhere]", 1), "compile_error", "nowhere"),
    ],
)
def test_errors_say_what_is_wrong(source: str, error: str, message: str) -> None:
    result = compile_cuda(source, 90, 100)
    assert (result["ok"], result["error"]) == (False, error)
    assert message in result["message"]
    assert "/tmp" not in result["message"]


def test_without_a_compiler_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    monkeypatch.setattr(ptx.importlib.util, "find_spec", lambda *_, **__: None)
    result = compile_cuda(KERNEL, 90, 100)
    assert (result["ok"], result["error"]) == (False, "unsupported")


@needs_nvcc
def test_in_a_sandbox_a_source_can_include_no_file_of_the_users(tmp_path: Path) -> None:
    secret = tmp_path / "secret.h"
    secret.write_text("__device__ int secret;\n")
    source = f'#include "{secret}"\n{KERNEL}'
    assert "secret" in ptx.compile_ptx(source, 90, 100)
    with pytest.raises(ptx.NvccError, match="missing_header"):
        ptx.compile_ptx(source, 90, 100, sandbox=True)
    assert len(ptx.entries(ptx.compile_ptx(KERNEL, 90, 100, sandbox=True))) == 2


@needs_nvcc
def test_the_same_source_gives_the_same_ptx() -> None:
    source = """\
    namespace { __device__ float table[4]; }
    __global__ void look(float* x) { x[threadIdx.x] = table[threadIdx.x & 3]; }
    """
    first, second = (ptx.compile_ptx(source, 90, 100) for _ in range(2))
    assert "_INTERNAL_" in first or "_GLOBAL__N__" in first
    assert first == second
