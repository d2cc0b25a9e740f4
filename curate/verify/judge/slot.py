"""Judges one candidate at a time, with processes of its own."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import gc
import itertools
import math
import time
import traceback
from dataclasses import dataclass
from typing import Any

import torch
import triton

from curate.devices import ON_CPU
from curate.engine.processes.sandbox import SandboxUnavailable
from curate.problem.problem import describe
from curate.problem.smaller import ALL, FIRST, NONE
from curate.verify.compile.serve import Compiler
from curate.verify.host import HostOptions
from curate.verify.judge.check import CandidateCheck, Outcome
from curate.verify.judge.device import DeviceInfo, Gate, Room, describe_device
from curate.verify.judge.halves import ExecutorProcess, Halves
from curate.verify.judge.oracle import (
    REFERENCE_ERROR,
    REFERENCE_OOM,
    NoOracle,
    Oracle,
    TimedOracle,
)
from curate.verify.judge.plan import examine
from curate.verify.judge.session import (
    Host,
    HostError,
    HostEvent,
    Lasting,
    RequestRefused,
    SessionEnded,
)
from curate.verify.judge.timer import NEEDS_BYTES, Timer
from curate.verify.protocol.messages import LaunchedKernel
from curate.verify.protocol.role import give_back, refusal
from curate.verify.protocol.wire import WireError
from curate.verify.screen.screen import screen
from curate.verify.verdict import Candidate, Ending, Options, Verdict

DOUBTFUL = ("incorrect", "crash")
"""Statuses after a right first draw that a GPU's judge finds again with kernels compiled for each
call's sizes: what serves all sizes is less tried. With heads whose size is unknown, Triton 3.6
compiles some tiles of attention to code that reads anywhere."""

TIMED = 1
"""Number of the host whose references are timed; the other's say what is right."""

JUDGE_OOM = "judge_oom"
"""Why there is no verdict where the judge itself had too little memory of the device."""

NO_ROOM = (REFERENCE_OOM, JUDGE_OOM)
"""Why there is no verdict where the device had too little memory."""

WHOLE_BYTES = 2**27
"""Bytes that a reference's operators may read and write for a program that raises at smaller sizes
to be tried at the file's own, which it may be made for."""

TIMES = 2.5
"""How many times the bytes that a reference in float64 holds at its peak a check has on the device
at its own: in two precisions, with noise, and the candidate's."""


@dataclass(frozen=True)
class _Way:
    """One way of checking a candidate.

    Attributes:
        has_room: whether the whole device is its own.
        mode: ``eval`` or ``train``.
        exact: whether kernels are compiled anew for all sizes (`Halves.exact`).
    """

    candidate: Candidate
    verdict: Verdict
    oracle: Oracle
    has_room: bool
    mode: str = "eval"
    exact: bool = False


class Slot:
    """Judges one candidate at a time with hosts of its own."""

    def __init__(self, options: Options, device: DeviceInfo, gate: Gate) -> None:
        self.options, self.device, self.gate = options, device, gate
        self.hosts: dict[str, Host] = {}
        self.oracle: Oracle | None = None
        self.timed_oracle: TimedOracle | None = None
        self.executor: ExecutorProcess | None = None
        self.assembler: Lasting | None = None
        self.on_cpu: Slot | None = None
        self.kernels_meet = False  # of the last candidate (`Halves.kernels_meet`)

    def host(self, purpose: str, number: int = 0) -> Host:
        """Return the slot's own host for a purpose; it is started when first used."""
        name = f"{purpose} {number}"
        if name not in self.hosts:
            is_reference = purpose == "reference"
            runs_programs = purpose == "compiler" and bool(self.options.targets)
            self.hosts[name] = Host(
                HostOptions(
                    purpose,
                    self.options.memory_mb,
                    self.options.sandbox,
                    device=self.device.is_gpu and (is_reference or purpose == "executor"),
                    target=self.device.target,
                    traces=(is_reference and number == TIMED) or runs_programs,
                )
            )
        return self.hosts[name]

    def judge(self, candidate: Candidate) -> Verdict:
        """Return the verdict on one candidate, whatever it does."""
        started = time.monotonic()
        for host in self.hosts.values():
            host.waited.clear()
        self.gate.waited.clear()
        verdict = self._judge(candidate)
        seconds = collections.defaultdict(float, {"in all": time.monotonic() - started})
        for host in self.hosts.values():
            for do, waited in host.waited.items():
                seconds[f"{host.options.purpose} {do}"] += waited  # two hosts may have one purpose
        seconds.update(self.gate.waited)
        told = {what: round(s, 3) for what, s in seconds.items()}
        return dataclasses.replace(verdict, seconds=told)

    def _judge(self, candidate: Candidate, alone: bool = False) -> Verdict:
        verdict = Verdict(
            candidate.id,
            status="unsupported",
            reason="not_run",
            backend=self.options.backend,
            device=self.device.name,
            driver=self.device.driver,
            torch=torch.__version__,
            triton=triton.__version__,
            findings=tuple(dataclasses.asdict(found) for found in screen(candidate.candidate)),
        )
        if candidate.ptx is not None and self.options.backend != "cuda":
            return dataclasses.replace(verdict, reason="needs_cuda")
        if self.options.targets:
            verdict = self._compile(candidate, verdict)
        if self.options.backend == "compile":
            return verdict
        checked = self._check_safely(candidate, verdict)
        if self.device.is_gpu and (checked.status == "oom" or checked.reason in NO_ROOM):
            self.forget()  # neighbours may have held the device's memory
            gc.collect()
            give_back()
            self._prepare()
            with self.gate.room(math.inf):
                checked = self._check_safely(candidate, verdict, has_room=True)
        meet = self.kernels_meet or any(found["rule"] == "atomics" for found in checked.findings)
        if checked.status == "correct" and self.device.is_gpu and meet:
            return self.check_races(candidate, checked)
        return checked

    def _check_safely(
        self, candidate: Candidate, verdict: Verdict, has_room: bool = False
    ) -> Verdict:
        """Return the verdict of a check; our own fault must not cost the others their verdicts."""
        try:
            return self._check(candidate, verdict, has_room)
        except (HostError, SandboxUnavailable):
            raise
        except Exception as error:
            reason = JUDGE_OOM if refusal(error).status == "oom" else "judge_error"
            where = traceback.format_exc(limit=-4)
            evidence = {"message": describe(error), "where": where}
            return dataclasses.replace(verdict, reason=reason, evidence=evidence)
        finally:
            if self.oracle and self.oracle.device != "cpu":
                self.oracle.close()  # its process holds memory of the device
            give_back()

    def check_races(self, candidate: Candidate, verdict: Verdict) -> Verdict:
        """Return what a device's ``correct`` becomes after backend ``cpu`` has judged the program.

        Where blocks meet in memory, a program may be right on a device by luck: one block clears
        what the others add to and is nearly always first, two have scratch memory in common and
        are seldom there at once, or zero is added outside a tensor. The CPU's executor sees what
        programs of a grid do to each other, and knows every address.
        """
        if self.on_cpu is None:
            options = dataclasses.replace(self.options, backend="cpu", targets=(), timing=False)
            self.on_cpu = Slot(options, describe_device("cpu"), Gate())
        found = self.on_cpu.judge(candidate)
        if found.status == "correct":
            return verdict
        said = {"status": found.status, "reason": found.reason, **found.evidence}
        evidence = {**verdict.evidence, "on_cpu": tidy(said)}
        if found.status == "incorrect":
            return dataclasses.replace(
                verdict, status=found.status, reason=found.reason, evidence=evidence
            )
        caveats = (*verdict.caveats, "races_unproved")
        return dataclasses.replace(verdict, caveats=caveats, evidence=evidence)

    def _compile(self, candidate: Candidate, verdict: Verdict) -> Verdict:
        """Return a verdict with what compiling for the targets says."""
        session = self.host("compiler").open(self.options.timeout_s)
        try:
            results = session.ask(
                Compiler.compile,
                candidate.reference,
                candidate.candidate,
                list(self.options.targets),
            )
        except (RequestRefused, SessionEnded) as error:
            return _ended(verdict, error)
        finally:
            session.close()
        verdict = dataclasses.replace(verdict, compile=[result.to_row() for result in results])
        failed = next((result for result in results if not result.ok), None)
        if failed and self.options.backend == "compile":
            said = {"error": failed.error, "message": failed.message}
            shown = {"target": failed.target, "kernel": failed.kernel, **said}
            return _ended(verdict, Ending("compile_error", str(failed.error), **shown))
        return verdict

    def _assemble(self, kernels: list[LaunchedKernel]) -> None:
        """Compile kernels that were run without a device."""
        self.assembler = self.assembler or Lasting(self.host("compiler"))
        seconds = self.options.timeout_s
        session = self.assembler.at_hand(seconds) or self.assembler.start(seconds)
        session.ask(Compiler.assemble, kernels, ON_CPU.name)

    def _check(self, candidate: Candidate, verdict: Verdict, has_room: bool) -> Verdict:
        """Return the verdict of running a candidate alongside its reference."""
        self._prepare()
        oracle = self._oracle(candidate.reference)
        way = _Way(candidate, verdict, oracle, has_room)
        checked = self._check_in_room(way)
        if checked.reason == REFERENCE_ERROR and oracle.device != "cpu":
            # An assertion on a device ends a process, where a CPU would have raised an error.
            oracle = self._oracle(candidate.reference, device="cpu")
            way = dataclasses.replace(way, oracle=oracle)
            checked = self._check_in_room(way)
        if self.device.is_gpu and checked.status in DOUBTFUL and checked.trials:
            checked = self._check_in_room(dataclasses.replace(way, exact=True))
        for shrinks in (FIRST, NONE):  # a program may be made for some of the file's own sizes
            if not oracle.smaller or checked.status != "runtime_error" or checked.trials:
                break
            oracle = self._oracle(candidate.reference, shrinks)
            way = dataclasses.replace(way, oracle=oracle)
            if oracle.takes(WHOLE_BYTES):
                checked = self._check_in_room(way)
        # KernelBench's own harness leaves modules in training mode.
        if checked.status == "incorrect" and oracle.facts("eval").mode_dependent:
            trained = self._check_in_room(dataclasses.replace(way, mode="train"))
            if trained.status == "correct":
                caveats = (*trained.caveats, "train_mode_only")
                return dataclasses.replace(trained, caveats=caveats)
        return checked

    def _prepare(self) -> None:
        """Start the processes, which warm up together."""
        for purpose in ("reference", "host_half", "executor"):
            self.host(purpose).prepare()

    def _oracle(self, reference: str, shrinks: str = ALL, device: str | None = None) -> Oracle:
        device = device or self.device.torch_device
        wanted = reference, shrinks, device
        if self.oracle is None or self.oracle.asked_for != wanted:
            self.forget()
            host, give_way = self.host("reference"), self.gate.give_way
            self.oracle = Oracle(host, reference, device, self.options, shrinks, give_way)
        return self.oracle

    def _check_in_room(self, way: _Way) -> Verdict:
        """Return the verdict of a check, for which there has to be memory of the device."""
        oracle = way.oracle
        try:
            with self.gate.together():
                oracle.load()
        except NoOracle as error:
            return _ended(way.verdict, error)
        if way.has_room:
            return self._check_way(way, Room())
        with self.gate.room(TIMES * oracle.most_bytes if oracle.device != "cpu" else 0) as room:
            return self._check_way(way, room)

    def _check_way(self, way: _Way, room: Room) -> Verdict:
        """Return the verdict of a check that has the memory that it needs."""
        candidate, verdict, oracle = way.candidate, way.verdict, way.oracle
        session = self._session(oracle.device != "cpu", way.exact)
        check = CandidateCheck(oracle, session, way.mode, self.options, room)
        found = dataclasses.replace(verdict, status="correct", reason=None, evidence={})
        try:
            with self.gate.together():
                examine(check, candidate)
                self.kernels_meet = session.kernels_meet
                compiled = candidate.compiled or verdict.compile
                kernels = (
                    session.other_kernels if compiled else session.kernels + session.other_kernels
                )
                if kernels and not self.device.is_gpu:
                    self._assemble(kernels)
            if self.options.timing:
                timing = self._time(check, way)
                found = dataclasses.replace(found, timing=timing)
        except Ending as error:
            found = _ended(found, error)
        except WireError as error:
            found = _ended(found, Ending("cheat", "forged_message", message=describe(error)))
        finally:
            session.close()
        return _with_outcome(found, check.outcome, session.events)

    def _time(self, check: CandidateCheck, way: _Way) -> dict[str, Any]:
        """Return what timing adds to the verdict on a correct candidate."""
        oracle = self._timed_oracle(way.candidate.reference)
        with self.gate.together():
            timer = Timer(check, oracle)
        if check.oracle.device != "cpu":
            check.oracle.close()  # its process holds memory of the device
        check.room.keep(0)
        needs = TIMES * check.oracle.most_bytes * timer.growth + NEEDS_BYTES
        try:
            with contextlib.nullcontext() if way.has_room else self.gate.room(needs):
                with self.gate.together():
                    timer.prepare()
                with self.gate.alone():
                    return timer.run()
        finally:
            if check.oracle.device != "cpu":
                oracle.close()

    def _timed_oracle(self, reference: str) -> TimedOracle:
        if self.timed_oracle is None:
            host, device = self.host("reference", TIMED), self.device.torch_device
            self.timed_oracle = TimedOracle(
                host, reference, device, self.options, give_way=self.gate.give_way
            )
        return self.timed_oracle

    def _session(self, on_device: bool, exact: bool = False) -> Halves:
        """Return a conversation with a new candidate."""
        if self.executor is None:
            self.executor = ExecutorProcess(self.host("executor"))
        elements = math.inf if self.device.is_gpu else self.options.elements
        host = self.host("host_half")
        return Halves(host, self.executor, self.options.timeout_s, elements, on_device, exact)

    def forget(self) -> None:
        """End the session with the reference at hand."""
        for oracle in filter(None, (self.oracle, self.timed_oracle)):
            oracle.forget()
            if oracle.device != "cpu":
                torch.cuda.empty_cache()
        self.oracle = self.timed_oracle = None

    def close(self) -> None:
        """End the slot's processes."""
        for host in self.hosts.values():
            host.close()
        if self.on_cpu:
            self.on_cpu.close()


def _ended(verdict: Verdict, why: Ending) -> Verdict:
    return dataclasses.replace(verdict, status=why.status, reason=why.reason, evidence=why.evidence)


def _with_outcome(verdict: Verdict, outcome: Outcome, events: list[HostEvent]) -> Verdict:
    """Return a verdict with what its check has found, and what the program reached for."""
    evidence = {**outcome.evidence, **verdict.evidence}
    if events and verdict.status != "unsupported":
        verdict = dataclasses.replace(verdict, status="cheat", reason=events[0]["rule"])
        evidence["events"] = events[:20]
    right = verdict.status == "correct"
    return dataclasses.replace(
        verdict,
        caveats=tuple(outcome.caveats),
        evidence=tidy(evidence),
        trials=outcome.trials,
        max_abs_error=outcome.agreement.max_abs_error if right else None,
        error_ratio=outcome.agreement.error_ratio if right else None,
    )


def tidy(value: Any, depth: int = 4) -> Any:
    """Return evidence as JSON values of bounded size: much of it a hostile process has written."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()[:2000]
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**63 else str(value)[:40]
    if not depth:
        return str(value)[:100]
    if isinstance(value, dict):
        kept = itertools.islice(value.items(), 100)
        return {str(k)[:200]: tidy(v, depth - 1) for k, v in kept}
    if isinstance(value, list | tuple):
        return [tidy(item, depth - 1) for item in value[:100]]
    return str(value)[:100]
