"""The sources, steps and formats that a recipe may name. A new one is a file and a line here."""

from __future__ import annotations

import inspect
from typing import Annotated, get_args

from pydantic import Field

from curate.clean.decontaminate import Decontaminate
from curate.clean.dedupe import Dedupe
from curate.clean.normalize import Normalize
from curate.clean.parse import Parse
from curate.clean.split import Split
from curate.clean.wiring.wiring import Wiring
from curate.formats.conversion import Conversion
from curate.formats.cuda_to_triton import CudaToTriton
from curate.formats.fim.fim import Fim
from curate.formats.format import Format
from curate.formats.kernelbook import KernelBook
from curate.formats.kernels import KernelsFormat as KernelsFormat
from curate.formats.messages import Messages
from curate.formats.negatives import Negatives
from curate.formats.pairs import PairsFormat
from curate.formats.preference import Preference
from curate.formats.repair import Repair
from curate.generator.inductor import Inductor
from curate.harvest.backward import Backward
from curate.harvest.closure import Closure
from curate.harvest.cuda.cuda_pairs import CudaPairs
from curate.harvest.kernelbook.kernelbook import Kernelbook
from curate.harvest.kernels.kernels import Kernels
from curate.harvest.kernels.launch import Launch
from curate.harvest.kernels.signature import Signature
from curate.harvest.modules.inputs import Inputs
from curate.harvest.modules.modules import Modules
from curate.harvest.scale import ScaleUp
from curate.licenses.licenses import Licenses
from curate.sources.git import Git
from curate.sources.hub import Hub
from curate.sources.local import Local
from curate.sources.pypi import Pypi
from curate.sources.torch_ops.torch_ops import TorchOps
from curate.step import Step
from curate.teacher.prompts import Prompts
from curate.teacher.select import Select
from curate.teacher.teacher import Teacher
from curate.verify.steps.compile import Compile
from curate.verify.steps.nvcc import Nvcc
from curate.verify.steps.verify import Verify
from curate.verify.steps.verify_cuda import VerifyCuda

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
    | Backward
    | ScaleUp
    | Dedupe
    | Decontaminate
    | Inductor
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
    | PairsFormat
    | Preference
    | KernelsFormat
    | KernelBook
    | Fim
    | Repair
    | Negatives
    | CudaToTriton,
    Field(discriminator="format"),
]


Named = type[Step] | type[Format]


def known_steps() -> list[type[Step]]:
    """Return the classes of all sources and steps."""
    return [one for union in (AnySource, AnyStep) for one in get_args(get_args(union)[0])]


def kinds_by_name() -> dict[str, dict[str, Named]]:
    """Return the classes of all ``sources``, ``steps`` and ``formats`` by their names."""
    unions = {"sources": AnySource, "steps": AnyStep, "formats": AnyFormat}
    found: dict[str, dict[str, Named]] = {}
    for group, union in unions.items():
        kinds = get_args(get_args(union)[0])
        tags = [get_args(kind.model_fields[group[:-1]].annotation)[0] for kind in kinds]
        found[group] = dict(zip(tags, kinds, strict=True))
    return found


def summary(kind: Named) -> str:
    """Return the first paragraph of a class's docstring in one line."""
    words = " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split())
    return words.replace("``", "`")
