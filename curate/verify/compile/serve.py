"""The process that compiles a candidate's kernels for devices that are not here.

It serves

- ``compile {reference, candidate, targets}``: the program's own code runs, to find out what it
  launches;
- ``assemble {kernels, target}``: names, TTIR and options of kernels that were launched.

Its input is other people's code, so it is a process of its own, in the sandbox.
"""

from __future__ import annotations

import os
import socket
import tempfile
from typing import Any

from curate.devices import find_device
from curate.verify.compile.aot import KernelError, LaunchError, compile_program, compile_ttir
from curate.verify.problem import EXAMPLE
from curate.verify.protocol.role import Answer, Refusal, Tensors, serve_requests
from curate.verify.protocol.wire import Channel


def warm() -> None:
    """Compile an example, so that children find everything loaded."""
    os.environ["TRITON_CACHE_DIR"] = f"{tempfile.gettempdir()}/triton"
    compile_program(*EXAMPLE, ["cuda:90"])


def _compile(request: dict[str, Any], tensors: Tensors) -> Answer:
    try:
        results = compile_program(request["reference"], request["candidate"], request["targets"])
    except LaunchError as error:
        raise Refusal("runtime_error", "launch_error", str(error)) from error
    return {"results": results}, []


def _assemble(request: dict[str, Any], tensors: Tensors) -> Answer:
    target = find_device(request["target"])
    try:
        for name, ttir, options in request["kernels"]:
            compile_ttir(name, ttir, options, target)
    except KernelError as error:
        message = f"{error.kernel} for {target.name}: {error.message}"
        raise Refusal("compile_error", error.error, message) from error
    return {}, []


def serve(sock: socket.socket) -> None:
    """Serve the judge on a channel, in a child of its own."""
    serve_requests(Channel(sock), {"compile": _compile, "assemble": _assemble})
