"""The parts that a recipe may name. A new step is one new file, and one line here."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from curate.clean.dedupe import Dedupe
from curate.clean.normalize import Normalize
from curate.clean.parse import Parse
from curate.formats.conversion import Conversion
from curate.formats.messages import Messages
from curate.formats.pairs import Pairs
from curate.formats.split import Split
from curate.generate.inductor import Inductor
from curate.generate.standalone import Standalone
from curate.harvest.closure import Closure
from curate.harvest.inputs import Inputs
from curate.harvest.modules import Modules
from curate.licenses.step import Licenses
from curate.sources.git import Git
from curate.sources.local import Local
from curate.sources.pypi import Pypi
from curate.sources.torch_ops import TorchOps
from curate.verify.steps import Compile, Verify

AnySource = Annotated[Pypi | Git | Local | TorchOps, Field(discriminator="source")]

AnyStep = Annotated[
    Licenses
    | Modules
    | Closure
    | Inputs
    | Normalize
    | Parse
    | Dedupe
    | Inductor
    | Standalone
    | Compile
    | Verify
    | Split,
    Field(discriminator="step"),
]

AnyFormat = Annotated[Messages | Conversion | Pairs, Field(discriminator="format")]
