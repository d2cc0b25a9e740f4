"""The compiler's process compiles what is the same once, and what is not each time."""

from typing import Any

import pytest

from curate.verify.compile import serve
from curate.verify.compile.aot import KernelError
from curate.verify.executor.serve import EXAMPLE
from curate.verify.protocol.role import Refusal

OTHER = EXAMPLE.replace("@copy", "@other")
CALLS_KERNEL = EXAMPLE.replace("tt.return", "tt.call @kernel() : () -> ()\n    tt.return")


compiler = serve.Compiler()


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []

    def compile_ttir(name: str, ttir: str, options: Any, target: Any) -> None:
        names.append(name)
        if "refused" in ttir:
            raise KernelError(name, "PTXASError", "as asked")

    monkeypatch.setattr(serve, "compile_ttir", compile_ttir)
    monkeypatch.setattr(compiler, "assembled", set())
    return names


def assemble(*kernels: tuple[str, str, dict[str, int]], target: str = "cuda:90") -> None:
    compiler.assemble(list(kernels), target)


def test_a_kernel_of_another_name_is_compiled_once(compiled: list[str]) -> None:
    assemble(("copy", EXAMPLE, {}), ("other", OTHER, {}))
    assemble(("other", OTHER, {"num_warps": 4}))
    assert compiled == ["copy"]


def test_other_code_options_and_targets_are_compiled(compiled: list[str]) -> None:
    assemble(("copy", EXAMPLE, {}), ("copy", EXAMPLE.replace("16", "32"), {}))
    assemble(("copy", EXAMPLE, {"num_warps": 8}))
    assemble(("copy", EXAMPLE, {}), target="cuda:80")
    assert len(compiled) == 4


def test_the_name_that_stands_for_all_may_be_taken(compiled: list[str]) -> None:
    assemble(("copy", CALLS_KERNEL, {}), ("kernel", CALLS_KERNEL.replace("copy", "kernel"), {}))
    assert compiled == ["copy", "kernel"], "one calls a function, the other itself"


def test_what_does_not_compile_is_refused_each_time(compiled: list[str]) -> None:
    for _ in range(2):
        with pytest.raises(Refusal, match="as asked"):
            assemble(("copy", EXAMPLE + "// refused", {}))
    assert len(compiled) == 2
