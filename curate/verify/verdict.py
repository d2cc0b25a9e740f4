"""What the judge is given, how it is told to judge, and what it says."""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from curate.devices import find_device
from curate.flags import option

if TYPE_CHECKING:
    from curate.rows import Compiled, Judgement

VERSION = 52
"""Raised whenever the judge may judge a candidate otherwise than before."""

BACKENDS = ("auto", "cpu", "cuda", "hip", "compile")
"""Where a candidate is run. ``auto`` takes the device that is there, or else the CPU; ``compile``
runs nothing, and compiles for `Options.targets`."""

PRECISIONS = ("own", "tf32")
"""How exact a program must be: as operators in the problem's own types are; or, for problems in
float32, as they are where factors of products have 10 bits and results on the way as many."""

STATUSES = (
    "correct",  # every output was right on every draw
    "incorrect",  # an output was wrong: its values, shape, dtype or structure
    "compile_error",  # Triton or a target's assembler refused a kernel
    "runtime_error",  # the candidate raised, when it was loaded, built or run
    "timeout",  # it took longer than it may
    "oom",  # it took more memory, of the host or of the device, than it may
    "crash",  # its process died, or left the device unusable
    "cheat",  # the outputs are not its kernels' work; the reason is the rule that it broke
    "degenerate",  # the reference's output says nothing: constant, or nowhere finite
    "unsupported",  # it could not be judged; the reason says why
)
"""What can be said of a candidate."""

WRONG = frozenset(STATUSES) - {"correct", "degenerate", "unsupported"}
"""Statuses that are the candidate's fault."""

MOST_EVIDENCE = 8000
"""Characters of evidence that a row keeps."""


@dataclass(frozen=True)
class Candidate:
    """A program to judge, with the module that it claims to equal.

    Attributes:
        id: names it in verdicts; unique among the candidates of one input.
        reference: text of a file with ``Model``, ``get_inputs`` and ``get_init_inputs``.
        candidate: text of a file with ``ModelNew``.
        ptx: CUDA kernels that the file launches (`curate.verify.host_half.cuda_launches`); None for
            a file with Triton kernels. Only launches of a program's own kind count.
        compiled: whether its kernels are known to compile for a device.
    """

    id: str
    reference: str
    candidate: str
    ptx: str | None = None
    compiled: bool = False


SANDBOXES = {"bubblewrap": True, "none": False}
"""The words for `Options.sandbox`."""

EXIT_HELP = (
    "Exit status: 0 if every candidate is correct, 1 if one is not, 2 if the input is wrong or the "
    "judge cannot work on this machine."
)
SHARD_HELP = "Judge only the i-th of n parts. A candidate's id decides which part it is in."


@dataclass(frozen=True)
class Options:
    """How to judge. What each field means is its ``help``, which the command lines print.

    Raises:
        ValueError: a value is not allowed; the message says which are.
    """

    backend: str = option(
        "auto",
        "Where candidates run: auto takes the GPU if there is one, and otherwise the CPU; cpu runs "
        "kernels as Triton's compiler lowers them; compile only compiles, for --targets.",
        choices=BACKENDS,
    )
    targets: tuple[str, ...] = option(
        (),
        "Also compile every kernel for these devices, such as cuda:80,hip:gfx942.",
        metavar="NAME,NAME",
    )
    trials: int = option(
        8, "Random draws of inputs and parameters to compare outputs on.", metavar="N"
    )
    elements: int = option(
        20_000_000_000,
        "With --backend cpu: limit on the elements that one candidate loads, stores and computes.",
        metavar="N",
    )
    vary_sizes: bool = option(True, "Also try other sizes, where the problem leaves one free.")
    draw_seed: int | None = option(
        None,
        "Seed of the draws. By default it is random, so that no program can know the inputs.",
        metavar="N",
    )
    precision: str = option(
        "own",
        "How exact float32 must be: own allows the rounding of float32; tf32 also allows rounding "
        "to 10 bits, as TF32 and float16 do. With own such a program is incorrect: precision.",
        choices=PRECISIONS,
    )
    timing: bool = option(False, "Time correct candidates against eager PyTorch and torch.compile.")
    timeout_s: float = option(
        180.0, "Time limit for one candidate, in seconds.", spelling="--timeout", metavar="S"
    )
    memory_mb: int = option(
        8192, "Limit on the host memory of one process, in megabytes.", metavar="N"
    )
    sandbox: bool = option(
        True,
        "Sandbox for code that is judged; none runs it with all of your own rights.",
        choices=SANDBOXES,
    )
    workers: int = option(
        len(os.sched_getaffinity(0)), "Candidates to judge at the same time.", metavar="N"
    )

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise ValueError(f"backend {self.backend!r}: allowed are {', '.join(BACKENDS)}")
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision {self.precision!r}: allowed are {', '.join(PRECISIONS)}")
        for target in self.targets:
            find_device(target)
        for name in ("trials", "elements", "timeout_s", "memory_mb", "workers"):
            value = getattr(self, name)
            if not value > 0:
                raise ValueError(f"{name} {value}: must be greater than 0")
        if self.backend == "compile" and not self.targets:
            raise ValueError("backend 'compile' needs targets to compile for, such as cuda:90")
        if self.timing and self.backend in ("cpu", "compile"):
            raise ValueError(f"timing needs a device, and backend {self.backend!r} uses none")

    def deciding(self) -> dict[str, Any]:
        """Return, as JSON values, the options that a verdict may depend on."""
        values = dataclasses.asdict(self) | {"targets": list(self.targets)}
        return {name: value for name, value in values.items() if name != "workers"}


class Ending(Exception):
    """What ends a check before its verdict is found.

    Attributes:
        status: one of `STATUSES`.
        reason: a short code.
        evidence: what shows it.
    """

    def __init__(self, status: str, reason: str, **evidence: Any) -> None:
        super().__init__(f"{status}: {reason}")
        self.status, self.reason, self.evidence = status, reason, evidence


@dataclass(frozen=True)
class Verdict:
    """What the judge says of one candidate. What does not apply is None or empty.

    Attributes:
        id: the candidate's.
        status: one of `STATUSES`.
        reason: a short code that says more: the rule that a cheat broke, what was wrong.
        caveats: codes of what the status does not cover, such as ``own_sizes_only``.
        backend: where it ran: ``cpu``, ``cuda``, ``hip`` or ``compile``.
        device: the device's name, or ``cpu``.
        driver: version of the device's driver.
        torch: version.
        triton: version.
        judge: `VERSION` of the judge.
        trials: draws on which outputs were compared.
        max_abs_error: largest distance of an output from the float64 result.
        error_ratio: largest ratio of an error to the error allowed; at most 1 where correct.
        evidence: what shows the status, as JSON values.
        findings: what the static screen saw: dicts with ``rule``, ``line`` (1-based) and
            ``reason``. They are labels, and decide nothing.
        compile: one dict per target, with the fields of `curate.rows.COMPILE`.
        timing: what was measured, or None.
        seconds: how long the judge took ``in all``, and waited for each request to a process.
    """

    id: str
    status: str
    reason: str | None = None
    caveats: tuple[str, ...] = ()
    backend: str | None = None
    device: str | None = None
    driver: str | None = None
    torch: str | None = None
    triton: str | None = None
    judge: int = VERSION
    trials: int = 0
    max_abs_error: float | None = None
    error_ratio: float | None = None
    evidence: dict[str, Any] = field(default_factory=dict)
    findings: tuple[dict[str, str | int], ...] = ()
    compile: list[Compiled] = field(default_factory=list)
    timing: dict[str, Any] | None = None
    seconds: dict[str, float] = field(default_factory=dict, compare=False)

    def speedup(self) -> float | None:
        """Return how many times as fast a program is as the faster of eager PyTorch and
        ``torch.compile``; None where that was not measured."""
        timing = self.timing or {}
        known = [timing.get("speedup_eager"), timing.get("speedup_compile")]
        return min((float(value) for value in known if value is not None), default=None)

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(f"status {self.status!r}: there are {', '.join(STATUSES)}")

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as JSON values."""
        lists = {"caveats": list(self.caveats), "findings": list(self.findings)}
        return dataclasses.asdict(self) | lists

    def to_row(self) -> Judgement:
        """Return the verdict as a row has it; there is no evidence of what is correct."""
        did = self.evidence
        launches, timing = did.get("launches"), self.timing
        names = ("status", "reason", "backend", "device", "driver", "torch", "triton", "judge")
        values = {
            **{name: getattr(self, name) for name in names},
            "caveats": list(self.caveats),
            "trials": self.trials,
            "max_abs_error": self.max_abs_error,
            "error_ratio": self.error_ratio,
            "kind": did.get("kind"),
            "launches": None if launches is None else sum(launches.values()),
            "aten_calls": sorted(did.get("aten_calls", {})),
            "deterministic": did.get("deterministic"),
            "insensitive_inputs": did.get("insensitive_inputs", []),
            "findings": sorted({str(finding["rule"]) for finding in self.findings}),
            "evidence": None if self.status == "correct" else evidence_text(did),
            "timing": timing
            and {n: timing[n] for n in ("candidate_us", "eager_us", "compile_us", "spread")},
        }
        return cast("Judgement", values)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Verdict:
        """Return the verdict that `to_json` gave these values for.

        Raises:
            ValueError: a field is missing or unknown.
        """
        try:
            verdict = cls(**values)
        except TypeError as error:
            raise ValueError(f"not a verdict: {error}") from error
        return dataclasses.replace(
            verdict, caveats=tuple(verdict.caveats), findings=tuple(verdict.findings)
        )


def evidence_text(evidence: dict[str, Any], most: int = MOST_EVIDENCE) -> str:
    """Return evidence as JSON of at most so many characters; what is long is cut or left out."""
    kept: dict[str, Any] = {}
    text = "{}"
    for name, value in sorted(evidence.items(), key=lambda item: len(json.dumps(item))):
        for shown in (value, str(value)[: (most - len(text)) // 8]):
            longer = json.dumps({**kept, name: shown}, sort_keys=True, ensure_ascii=False)
            if len(longer) <= most:
                kept[name], text = shown, longer
                break
    return text
