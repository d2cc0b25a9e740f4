"""The judge: does a Triton program compile, and does it compute what its reference computes?

Other rooms import it from here. What is imported below for types alone is loaded when it is first
asked for: behind most of it is PyTorch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from curate.verify.meanings import CAVEATS as CAVEATS
from curate.verify.meanings import FAMILIES as FAMILIES
from curate.verify.verdict import BACKENDS as BACKENDS
from curate.verify.verdict import EXIT_HELP as EXIT_HELP
from curate.verify.verdict import SANDBOXES as SANDBOXES
from curate.verify.verdict import SHARD_HELP as SHARD_HELP
from curate.verify.verdict import STATUSES as STATUSES
from curate.verify.verdict import WRONG as WRONG
from curate.verify.verdict import Candidate as Candidate
from curate.verify.verdict import Options as Options
from curate.verify.verdict import Verdict as Verdict

if TYPE_CHECKING:
    from curate.verify.files import VerdictFile as VerdictFile
    from curate.verify.files import make_candidates as make_candidates
    from curate.verify.files import not_none as not_none
    from curate.verify.files import parse_shard as parse_shard
    from curate.verify.files import read_jsonl as read_jsonl
    from curate.verify.files import read_programs as read_programs
    from curate.verify.files import read_verdicts as read_verdicts
    from curate.verify.files import shard as shard
    from curate.verify.files import text_sha256 as text_sha256
    from curate.verify.judge.session import HostError as HostError
    from curate.verify.judge.slots import Judge as Judge
    from curate.verify.judge.slots import verify as verify
    from curate.verify.labelling import CannotJudge as CannotJudge
    from curate.verify.labelling import Tally as Tally
    from curate.verify.labelling import check_device as check_device
    from curate.verify.labelling import exit_status as exit_status
    from curate.verify.labelling import judged as judged
    from curate.verify.labelling import label as label
    from curate.verify.labelling import start_judge as start_judge
    from curate.verify.labelling import summary as summary
    from curate.verify.merge import merge_files as merge_files
    from curate.verify.merge import write_entries as write_entries
    from curate.verify.screen.program import ParsedProgram as ParsedProgram
    from curate.verify.screen.screen import RULES as RULES

LATER = {
    "files": "VerdictFile make_candidates not_none parse_shard "
    "read_jsonl read_programs read_verdicts shard text_sha256",
    "judge.session": "HostError",
    "judge.slots": "Judge verify",
    "labelling": "CannotJudge Tally check_device exit_status judged label start_judge summary",
    "merge": "merge_files write_entries",
    "screen.program": "ParsedProgram",
    "screen.screen": "RULES",
}
"""Modules, and the names in them that are loaded when they are asked for."""

if not TYPE_CHECKING:  # where types are checked, a name that is not above is an error

    def __getattr__(name: str) -> Any:
        for module, names in LATER.items():
            if name in names.split():
                return getattr(importlib.import_module(f"{__name__}.{module}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
