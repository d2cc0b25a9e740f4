"""The parts that a recipe may name. A new step is one new file, and one line here."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from curate.clean.decontaminate import Decontaminate
from curate.clean.dedupe import Dedupe
from curate.clean.normalize import Normalize
from curate.clean.parse import Parse
from curate.clean.wiring import Wiring
from curate.formats.conversion import Conversion
from curate.formats.cuda import CudaToTriton
from curate.formats.fim import Fim
from curate.formats.kernelbook import KernelBook
from curate.formats.kernels import Kernels as KernelsFormat
from curate.formats.messages import Messages
from curate.formats.negatives import Negatives
from curate.formats.pairs import Pairs
from curate.formats.repair import Repair
from curate.formats.split import Split
from curate.generate.inductor import Inductor
from curate.generate.prompts import Prompts
from curate.generate.select import Select
from curate.generate.standalone import Standalone
from curate.generate.teacher import Teacher
from curate.harvest.closure import Closure
from curate.harvest.cuda import CudaPairs
from curate.harvest.inputs import Inputs
from curate.harvest.kernelbook import Kernelbook
from curate.harvest.kernels import Kernels
from curate.harvest.launch import Launch
from curate.harvest.modules import Modules
from curate.harvest.signature import Signature
from curate.licenses.step import Licenses
from curate.sources.git import Git
from curate.sources.hub import Hub
from curate.sources.local import Local
from curate.sources.pypi import Pypi
from curate.sources.torch_ops import TorchOps
from curate.verify.cuda_step import VerifyCuda
from curate.verify.nvcc import Nvcc
from curate.verify.steps import Compile, Verify

AnySource = Annotated[Pypi | Git | Hub | Local | TorchOps, Field(discriminator="source")]

AnyStep = Annotated[
    Licenses
    | Modules
    | Kernels
    | CudaPairs
    | Closure
    | Signature
    | Launch
    | Inputs
    | Kernelbook
    | Normalize
    | Parse
    | Wiring
    | Dedupe
    | Decontaminate
    | Inductor
    | Standalone
    | Prompts
    | Teacher
    | Select
    | Compile
    | Nvcc
    | Verify
    | VerifyCuda
    | Split,
    Field(discriminator="step"),
]

AnyFormat = Annotated[
    Messages
    | Conversion
    | Pairs
    | KernelsFormat
    | KernelBook
    | Fim
    | Repair
    | Negatives
    | CudaToTriton,
    Field(discriminator="format"),
]
