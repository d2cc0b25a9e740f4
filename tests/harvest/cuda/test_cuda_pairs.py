import textwrap
from pathlib import Path
from typing import Any

import pytest
from run_for_tests import Small
from steps_for_tests import LICENSE

from curate.engine.processes.local import LocalExecutor
from curate.engine.run import Walk
from curate.engine.store import Store
from curate.formats.cuda_to_triton import CudaToTriton
from curate.harvest.closure import Closure
from curate.harvest.cuda import cuda_package
from curate.harvest.cuda.cuda_package import CudaPackage
from curate.harvest.cuda.cuda_pairs import CudaPairs
from curate.harvest.cuda.cuda_source import cuda_items
from curate.harvest.cuda.kernel_names import words_of
from curate.harvest.python import package
from curate.harvest.python.environment import KERNELS
from curate.harvest.python.package import Package
from curate.licenses.licenses import Licenses
from curate.rows import Row, make_origin, make_row
from curate.sources.pypi import Pypi
from curate.step import Context, Drop, Keep, Outcome

CONTEXT = Context(cache=Path("unused"))

CUDA = """\
    // Scales rows.
    #include <cuda_runtime.h>
    #include "helpers.cuh"
    #ifdef USE_ROCM
    #include <hip/hip_runtime.h>
    #endif

    #define WIDTH 128
    #define UNUSED 1

    namespace mine {
    int unused() { return UNUSED; }

    // One row a block.
    template <typename T>
    __global__ void scale_rows_kernel(T* x, int n, float by) {
      for (int i = threadIdx.x; i < n; i += WIDTH)
        x[blockIdx.x * n + i] = times<T>(x[blockIdx.x * n + i], by);
    }
    }  // namespace mine

    #define LAUNCH(T) mine::scale_rows_kernel<T><<<rows, WIDTH>>>((T*)x, n, by)

    void scale_rows(void* x, int rows, int n, float by) { LAUNCH(float); }
    void other(float* x) {}
"""
HELPERS = """\
    #pragma once
    #include <cuda_fp16.h>
    template <typename T> __device__ T times(T x, float by) { return x * by; }
    __device__ float not_needed(float x) { return x; }
"""
TRITON = """\
    import triton
    import triton.language as tl

    @triton.jit
    def _scaleRows(x, n, by, BLOCK: tl.constexpr):
        at = tl.program_id(0) * n + tl.arange(0, BLOCK)
        tl.store(x + at, tl.load(x + at) * by)

    def scale(x, by):
        _scaleRows[(x.shape[0],)](x, x.shape[1], by, BLOCK=128)
"""
BINDING = """\
    void scale_rows(void* x, int rows, int n, float by);
    TORCH_LIBRARY(mine, m) { m.def("scale_rows_", &scale_rows); }
"""
TEST = """\
    import torch
    from pkg.kernels import scale as in_triton

    def test_scale():
        x = torch.ones(2, 128)
        torch.ops.mine.scale_rows_(x, 2.0)
        in_triton(x, 2.0)
"""
FILES = {
    "csrc/scale.cu": CUDA,
    "csrc/helpers.cuh": HELPERS,
    "csrc/ops.cpp": BINDING,
    "pkg/__init__.py": "",
    "pkg/kernels.py": TRITON,
}


@pytest.fixture
def outcome(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what `cuda_pairs` makes of the first file of a package."""

    def run(files: dict[str, str]) -> Outcome:
        texts = {name: textwrap.dedent(text) for name, text in files.items()}
        python, cuda = (
            Package(tuple(texts), texts.__getitem__, KERNELS),
            CudaPackage(texts, texts.__getitem__),
        )
        monkeypatch.setattr(package, "_open_package", lambda *_: python)
        monkeypatch.setattr(cuda_package, "_open_package", lambda *_: cuda)
        path = next(iter(texts))
        origin = make_origin("local", path=path, artifact_sha256="0" * 64)
        row = make_row("file", texts[path], origin, text=texts[path], license=LICENSE)
        return CudaPairs(step="cuda_pairs").apply(row, CONTEXT)

    return run


def row_of(outcome: Outcome) -> Row:
    assert isinstance(outcome, Keep), outcome
    (row,) = outcome.rows
    return row


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("rmsNormFwdKernel", "_rms_norm_forward"),
        ("act_and_mul_kernel", "act_mul"),
        ("bev_pool_grad_kernel", "_bev_pool_backward_triton"),
        ("topKGating", "gating_top_k_v2"),
    ],
)
def test_names_of_the_same_words(one: str, other: str) -> None:
    assert words_of(one) == words_of(other)


def test_words_that_tell_kernels_apart_stay() -> None:
    assert words_of("norm_fwd") != words_of("norm_bwd")
    assert words_of("quant_fp8") != words_of("quant_int8")
    assert words_of("_fused_kernel_triton") == frozenset()


def test_names_nominate(outcome: Any) -> None:
    row = row_of(outcome(FILES))
    assert row["kind"] == "cuda"
    assert (row["origin"]["symbol"], row["entry_point"]) == ("scale_rows_kernel", "_scaleRows")
    assert row["pairing"] == {
        "grade": "name",
        "evidence": [],
        "path": "pkg/kernels.py",
        "start_line": 4,
        "symbol": "_scaleRows",
        "verdict": None,
    }


def test_a_test_that_uses_both_promotes(outcome: Any) -> None:
    pairing = row_of(outcome(FILES | {"tests/test_scale.py": TEST}))["pairing"]
    assert pairing["grade"] == "test-linked"
    assert pairing["evidence"] == [
        {"kind": "test", "path": "tests/test_scale.py", "line": 6, "symbol": ""}
    ]


def test_a_test_of_one_side_promotes_nothing(outcome: Any) -> None:
    alone = TEST.replace("torch.ops.mine.scale_rows_", "print")
    assert row_of(outcome(FILES | {"tests/test_scale.py": alone}))["pairing"]["grade"] == "name"
    # A function of the package that has the CUDA function's name is not the CUDA function.
    same = TEST.replace("torch.ops.mine", "kernels").replace(
        "from pkg.kernels", "from pkg import kernels\n    from pkg.kernels"
    )
    kernels = TRITON + "\n    def scale_rows_(x, by):\n        return x\n"
    files = FILES | {"tests/test_scale.py": same, "pkg/kernels.py": kernels}
    assert row_of(outcome(files))["pairing"]["grade"] == "name"


def test_a_dispatcher_that_uses_both_promotes(outcome: Any) -> None:
    dispatcher = """\
        import torch

        class Scale:
            def forward_native(self, x):
                return native(x, 2.0)

            def forward_triton(self, x):
                from .kernels import scale
                return scale(x, 2.0)

        def native(x, by):
            return torch.ops.mine.scale_rows_(x, by)
    """
    pairing = row_of(outcome(FILES | {"pkg/layer.py": dispatcher}))["pairing"]
    assert pairing["evidence"] == [
        {"kind": "dispatcher", "path": "pkg/layer.py", "line": 5, "symbol": "Scale"}
    ]


def test_one_word_is_enough_only_with_a_link(outcome: Any) -> None:
    files = {
        path: text.replace("scale_rows", "scale").replace("_scaleRows", "_scale")
        for path, text in FILES.items()
    }
    test = TEST.replace("scale_rows_", "scale_")
    assert outcome(files) == Drop("no_counterpart", {"kernels": ["scale_kernel"]})
    linked = row_of(outcome(files | {"tests/test_scale.py": test}))
    assert linked["pairing"]["grade"] == "test-linked"


def test_files_without_kernels_are_dropped_with_a_reason(outcome: Any) -> None:
    assert outcome({"pkg/a.py": "x = '__global__'\n"}) == Drop("no_kernels")
    assert outcome({"csrc/a.cuh": "// no __global__ here\nint x;\n"}) == Drop("no_kernels")
    other = FILES | {"pkg/kernels.py": TRITON.replace("_scaleRows", "_shift_rows")}
    other["pkg/kernels.py"] = other["pkg/kernels.py"].replace("def scale(", "def shift(")
    assert outcome(other) == Drop("no_counterpart", {"kernels": ["scale_rows_kernel"]})


def test_closure_cuts_out_both_sides(outcome: Any) -> None:
    row = row_of(outcome(FILES))
    closed = row_of(Closure(step="closure").apply(row, CONTEXT))
    assert closed["cuda"] == textwrap.dedent("""\
        #include <cuda_fp16.h>
        #include <cuda_runtime.h>

        template <typename T> __device__ T times(T x, float by) { return x * by; }

        #define WIDTH 128

        namespace mine {
        // One row a block.
        template <typename T>
        __global__ void scale_rows_kernel(T* x, int n, float by) {
          for (int i = threadIdx.x; i < n; i += WIDTH)
            x[blockIdx.x * n + i] = times<T>(x[blockIdx.x * n + i], by);
        }
        }  // namespace mine

        #define LAUNCH(T) mine::scale_rows_kernel<T><<<rows, WIDTH>>>((T*)x, n, by)

        void scale_rows(void* x, int rows, int n, float by) { LAUNCH(float); }
        """)
    assert closed["triton"].endswith("tl.store(x + at, tl.load(x + at) * by)\n")
    assert "def scale(x, by):" in closed["host_function"]
    assert closed["text"] is None
    assert closed["pairing"] == row["pairing"]
    assert closed["parent_ids"] == [row["id"]]
    # What `licenses` looks up, to join the licenses of both.
    assert closed["origin"]["derived_from"] == ["pkg/kernels.py:4-4", "csrc/helpers.cuh:3-3"]
    assert closed["origin"]["path"] == "csrc/scale.cu"


def test_closure_says_which_side_is_lost(outcome: Any) -> None:
    alone = FILES | {"csrc/scale.cu": CUDA.replace("LAUNCH(float);", "")}
    alone["csrc/scale.cu"] = alone["csrc/scale.cu"].replace("<<<rows, WIDTH>>>", "")
    step = Closure(step="closure")
    lost = {"side": "cuda", "kernel": "scale_rows_kernel", "path": "csrc/scale.cu"}
    assert step.apply(row_of(outcome(alone)), CONTEXT) == Drop("no_launch", lost)
    numpy = TRITON.replace("import triton\n", "import numpy as np\n    import triton\n", 1)
    numpy = numpy.replace("* by)\n", "* by * np.pi)\n")
    lost = {"side": "triton", "modules": ["numpy"]}
    row = row_of(outcome(FILES | {"pkg/kernels.py": numpy}))
    assert step.apply(row, CONTEXT) == Drop("external_import", lost)


def test_conditions_on_rocm_are_decided_and_others_kept() -> None:
    text = """\
#if defined(USE_ROCM)
int a;
#else
int b;
#endif
#ifndef USE_ROCM
int c;
#endif
#if CUDA_VERSION >= 12000
int d;
#else
int e;
#endif
"""
    around = {min(item.names): item.around for item in cuda_items("a.cu", text)}
    assert around == {
        "b": (),
        "c": (),
        "d": ("#if CUDA_VERSION >= 12000",),
        "e": ("#if !(CUDA_VERSION >= 12000)",),
    }


def test_the_view_shows_the_grade(outcome: Any) -> None:
    closed = row_of(Closure(step="closure").apply(row_of(outcome(FILES)), CONTEXT))
    (view,) = CudaToTriton(format="cuda_to_triton").render(closed).rows
    assert set(view) == set(CudaToTriton(format="cuda_to_triton").columns().names)
    assert view["prompt"].endswith(f"```cuda\n{closed['cuda']}```\n")
    assert view["completion"] == f"```python\n{closed['host_function']}```\n"
    assert (view["grade"], view["license"]) == ("name", "MIT")


@pytest.mark.network
def test_a_package_with_both_sides(tmp_path: Path) -> None:
    sha256 = "75c7b1342687b30d6b725edbce9e0deb24b55398a9f383af10e15b3cf667269c"
    source = Pypi(
        source="pypi",
        packages=[f"conch-triton-kernels==1.3 --hash=sha256:{sha256}"],
        include=["**/*.cu"],
    )
    steps = [
        Licenses(step="licenses"),
        CudaPairs(step="cuda_pairs"),
        Closure(step="closure"),
        Licenses(step="licenses"),
    ]
    stages = Walk(Small([source], steps), tmp_path, LocalExecutor(1)).run()
    store = Store(tmp_path)
    rows = [row for m in stages[-1].manifests for row in store.rows(m.step, m.key).to_pylist()]
    assert {(row["origin"]["symbol"], row["entry_point"]) for row in rows} == {
        ("bev_pool_kernel", "_bev_pool_kernel"),
        ("bev_pool_grad_kernel", "_bev_pool_backward_kernel"),
        ("generate_dense_voxels_kernel", "generate_dense_voxels_triton_kernel"),
    }
    assert {row["license"]["choice"] for row in rows} == {"Apache-2.0"}
    assert {row["pairing"]["grade"] for row in rows} == {"name"}
