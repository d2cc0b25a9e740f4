"""The process that compiles a candidate's kernels for devices that are not here.

It serves the judge and an executor the methods of `Compiler`. Its input is other people's code, so
it is a process of its own, in the sandbox.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile

import torch

from curate.devices import Device, find_device
from curate.problem.problem import EXAMPLE
from curate.verify.compile.aot import (
    CompiledTarget,
    KernelError,
    LaunchError,
    ResourceUsage,
    compile_cubin,
    compile_program,
    compile_ttir,
)
from curate.verify.compile.lowering import OPTIONS
from curate.verify.compile.ptx import entries
from curate.verify.protocol.calls import handlers_of, message
from curate.verify.protocol.messages import Cubin, LaunchedKernel, LaunchOptions
from curate.verify.protocol.role import Refusal, serve_requests
from curate.verify.protocol.wire import Channel

message(ResourceUsage)
message(CompiledTarget)

EXAMPLE_KERNEL = """module {
  tt.func public @copy(%arg0: !tt.ptr<f32>, %arg1: !tt.ptr<f32>) {
    %0 = tt.load %arg0 : !tt.ptr<f32>
    tt.store %arg1, %0 : !tt.ptr<f32>
    tt.return
  }
}"""


def warm(target: Device, runs_programs: bool = False) -> None:
    """Compile an example, so that children find everything loaded.

    Args:
        target: what it is compiled for.
        runs_programs: whether children will run programs, to find out what they launch.
    """
    os.environ["TRITON_CACHE_DIR"] = f"{tempfile.gettempdir()}/triton"
    compile_cubin("copy", EXAMPLE_KERNEL, {"num_warps": 4}, target)
    if runs_programs:
        compile_program(*EXAMPLE, [target.name])


class Compiler:
    """What the judge and the executor ask for."""

    def __init__(self) -> None:
        self.assembled: set[object] = set()  # for one candidate or another: many are the same

    def compile(self, reference: str, candidate: str, targets: list[str]) -> list[CompiledTarget]:
        """Return what a program's kernels are compiled to; its own code runs, and launches them."""
        try:
            return compile_program(reference, candidate, targets)
        except LaunchError as error:
            raise Refusal("runtime_error", "launch_error", str(error)) from error

    def assemble(self, kernels: list[LaunchedKernel], target: str) -> None:
        """Compile kernels that were launched: names, TTIR and options."""
        device = find_device(target)
        try:
            for name, ttir, options in kernels:
                known = _known(options)
                key = _content(name, ttir), tuple(sorted(known.items())), device
                if key not in self.assembled:
                    compile_ttir(name, ttir, known, device)
                    self.assembled.add(key)
        except KernelError as error:
            raise _refused(error, device) from error

    def cubin(self, name: str, ttir: str, options: LaunchOptions, target: Device) -> Cubin:
        """Return a kernel that a device is to launch."""
        try:
            compiled = compile_cubin(name, ttir, _known(options), target)
        except KernelError as error:
            raise _refused(error, target) from error
        known = compiled.metadata
        image = compiled.asm["hsaco" if target.is_amd else "cubin"]
        parameters = () if target.is_amd else entries(compiled.asm["ptx"])[known.name]
        scratch = getattr(known, "global_scratch_size", 0)
        return Cubin(
            image=torch.frombuffer(bytearray(image), dtype=torch.uint8),
            name=known.name,
            parameters=[(one.type, one.size) for one in parameters],
            shared=known.shared,
            num_warps=known.num_warps,
            num_ctas=getattr(known, "num_ctas", 1),
            cooperative=bool(getattr(known, "launch_cooperative_grid", False)),
            scratch=(scratch, getattr(known, "global_scratch_align", 1)),
        )


def _refused(error: KernelError, target: Device) -> Refusal:
    message = f"{error.kernel} for {target.name}: {error.message}"
    return Refusal("compile_error", error.error, message)


def _known(options: LaunchOptions) -> LaunchOptions:
    """Return the options that a launch may have: a candidate's process has sent them."""
    return {"num_warps": 4} | {name: v for name, v in options.items() if name in OPTIONS}


def _content(name: str, ttir: str) -> str:
    """Return a hash of a kernel's TTIR, whatever the kernel is called."""
    named = re.compile(rf"@{re.escape(name)}(?![\w$.-])")
    text = ttir if "@kernel" in ttir else named.sub("@kernel", ttir)
    return hashlib.sha256(text.encode()).hexdigest()


def serve(channel: Channel) -> None:
    """Serve the judge or an executor, in a process of its own."""
    compiler = Compiler()
    serve_requests(channel, handlers_of(compiler.compile, compiler.assemble, compiler.cubin))
