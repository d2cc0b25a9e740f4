"""The judge: is a program what it claims to be?

The judge asks the reference's process for inputs, parameters and right results, gives inputs and
parameters to the candidate's, and compares what comes back in its own memory. So right values are
the only thing that helps a candidate. Each of these processes has a sandbox of its own. On backend
``cpu`` the candidate is two: one runs its Python and holds no numbers, the other does the work
(`curate.verify.judge.halves`); and a third compiles its kernels. docs/verify.md has a picture.
"""

from __future__ import annotations

import dataclasses
import itertools
import queue
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
import triton

from curate.devices import ON_CPU
from curate.engine.processes.sandbox import SandboxUnavailable
from curate.verify.judge.check import CandidateCheck, EarlyVerdict, Outcome
from curate.verify.judge.device import DeviceInfo, Gate, describe_device, resolve_backend
from curate.verify.judge.halves import ExecutorProcess, Halves
from curate.verify.judge.oracle import REFERENCE_OOM, NoOracle, Oracle
from curate.verify.judge.session import (
    Host,
    HostError,
    Lasting,
    RequestRefused,
    Session,
    SessionEnded,
)
from curate.verify.judge.timer import Timer
from curate.verify.problem import describe
from curate.verify.protocol.wire import WireError
from curate.verify.screen.screen import screen
from curate.verify.verdict import Candidate, Options, Verdict

Turn = Callable[[], AbstractContextManager[None]]
"""Gives the device to the caller for a while, shared or alone."""

JOIN_S = 10.0
"""Seconds that a slot may take to notice that it is closed."""

GROUP = 2
"""Candidates of one reference that one slot judges in a row, so that the reference runs once."""


def verify(candidates: Iterable[Candidate], options: Options | None = None) -> Iterator[Verdict]:
    """Judge candidates; verdicts come as they are found, in any order, one for each.

    Args:
        candidates: programs and the modules that they claim to equal; read as workers get free.
        options: how to judge.

    Raises:
        SandboxUnavailable: other people's code would run and there is no sandbox.
        HostError: the processes that run it cannot start.
        ValueError: the backend asked for has no device here.
    """
    judge = Judge(options or Options())
    try:
        yield from judge.run(candidates)
    finally:
        judge.close()


def make_slot(options: Options) -> Slot:
    """Return a slot on its own, for a caller that judges one candidate after the other."""
    backend = resolve_backend(options.backend)
    return Slot(dataclasses.replace(options, backend=backend), describe_device(backend), Gate())


class Judge:
    """A number of slots, each with hosts of its own, that share a device."""

    def __init__(self, options: Options) -> None:
        backend = resolve_backend(options.backend)
        self.options = dataclasses.replace(options, backend=backend)
        self.device = describe_device(backend)
        self.gate = Gate()
        self.slots = [Slot(self.options, self.device, self.gate) for _ in range(options.workers)]

    def run(self, candidates: Iterable[Candidate]) -> Iterator[Verdict]:
        """Yield a verdict for every candidate; see `verify`."""
        groups = _Shared(_groups(candidates))
        results: queue.Queue[Verdict | BaseException | None] = queue.Queue()

        def work(slot: Slot) -> None:
            try:
                while group := groups.take():
                    for candidate in group:
                        results.put(slot.judge(candidate))
            except BaseException as error:
                results.put(error)
            finally:
                results.put(None)

        threads = [threading.Thread(target=work, args=(slot,), daemon=True) for slot in self.slots]
        for thread in threads:
            thread.start()
        try:
            for _ in threads:
                while (result := results.get()) is not None:
                    if isinstance(result, BaseException):
                        raise result
                    yield result
        finally:
            groups.stop()
            if any(thread.is_alive() for thread in threads):
                self.close()  # the caller stopped early: what is under way ends here
            for thread in threads:
                thread.join(timeout=JOIN_S)

    def close(self) -> None:
        """End every process, for good."""
        for slot in self.slots:
            slot.close()


class _Shared:
    """An iterator that several threads take from."""

    def __init__(self, items: Iterator[list[Candidate]]) -> None:
        self.items, self.lock, self.stopped = items, threading.Lock(), False

    def take(self) -> list[Candidate] | None:
        with self.lock:
            return None if self.stopped else next(self.items, None)

    def stop(self) -> None:
        self.stopped = True


def _groups(candidates: Iterable[Candidate]) -> Iterator[list[Candidate]]:
    for _, same in itertools.groupby(candidates, key=lambda candidate: candidate.reference):
        while group := list(itertools.islice(same, GROUP)):
            yield group


class Slot:
    """Judges one candidate at a time with hosts of its own."""

    def __init__(self, options: Options, device: DeviceInfo, gate: Gate) -> None:
        self.options, self.device, self.gate = options, device, gate
        self.hosts: dict[str, Host] = {}
        self.oracle: Oracle | None = None
        self.executor: ExecutorProcess | None = None
        self.assembler: Lasting | None = None
        self.on_cpu: Slot | None = None

    def host(self, name: str, backend: str) -> Host:
        """Return the slot's own host for a purpose; it is started when first used."""
        if name not in self.hosts:
            compiles = self.options.timing and name == "reference"
            self.hosts[name] = Host(backend, self.options.memory_mb, self.options.sandbox, compiles)
        return self.hosts[name]

    def judge(self, candidate: Candidate) -> Verdict:
        """Return the verdict on one candidate, whatever it does."""
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
            verdict = dataclasses.replace(verdict, **self._compile(candidate))
        if self.options.backend == "compile":
            return verdict
        try:
            checked = self._check(candidate, verdict, self.gate.shared)
            if self.device.is_gpu and (checked.status == "oom" or checked.reason == REFERENCE_OOM):
                # A neighbour may have held the device's memory.
                self.forget()
                checked = self._check(candidate, verdict, self.gate.alone)
        except (HostError, SandboxUnavailable):
            raise
        except Exception as error:  # our own fault, which must not cost the others their verdicts
            where = traceback.format_exc(limit=-4)
            evidence = {"message": describe(error), "where": where}
            checked = dataclasses.replace(verdict, reason="judge_error", evidence=evidence)
        checked = decide(checked)
        if checked.status == "correct" and self.device.is_gpu and uses_atomics(checked):
            return self.check_atomics(candidate, checked)
        return checked

    def check_atomics(self, candidate: Candidate, verdict: Verdict) -> Verdict:
        """Return what a device's ``correct`` becomes after backend ``cpu`` has judged the program.

        With atomics a program may be right on a device by luck: one block clears what the others
        add to and is nearly always first, or zero is added outside a tensor. The CPU's executor
        sees what programs of a grid do to each other, and knows every address.
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
        caveats = (*verdict.caveats, "atomics_unproved")
        return dataclasses.replace(verdict, caveats=caveats, evidence=evidence)

    def _compile(self, candidate: Candidate) -> dict[str, Any]:
        """Return what compiling for the targets says, as fields of a verdict."""
        session = self.host("compiler", "compile").open("compiler", self.options.timeout_s)
        try:
            reply, _ = session.ask(
                "compile",
                reference=candidate.reference,
                candidate=candidate.candidate,
                targets=list(self.options.targets),
            )
        except (RequestRefused, SessionEnded) as error:
            return _fields(error)
        finally:
            session.close()
        results = [dict(result) for result in reply["results"]]
        failed = next((result for result in results if not result["ok"]), None)
        if failed and self.options.backend == "compile":
            evidence = {name: failed[name] for name in ("target", "kernel", "error", "message")}
            return {
                "status": "compile_error",
                "reason": failed["error"],
                "evidence": evidence,
                "compile": results,
            }
        return {"compile": results}

    def _assemble(self, kernels: list[Any]) -> None:
        """Compile kernels that were run without a device.

        Raises:
            RequestRefused, SessionEnded: the compiler does not take one.
        """
        self.assembler = self.assembler or Lasting(self.host("compiler", "compile"), "compiler")
        seconds = self.options.timeout_s
        session = self.assembler.at_hand(seconds) or self.assembler.start(seconds)
        session.ask("assemble", kernels=kernels, target=ON_CPU.name)

    def _check(self, candidate: Candidate, verdict: Verdict, turn: Turn) -> Verdict:
        """Return the verdict of running a candidate alongside its reference."""
        oracle = self._oracle(candidate.reference)
        checked = self._check_mode(candidate, verdict, oracle, "eval", turn)
        # KernelBench's own harness leaves modules in training mode.
        if checked.status == "incorrect" and oracle.facts("eval")["mode_dependent"]:
            trained = self._check_mode(candidate, verdict, oracle, "train", turn)
            if trained.status == "correct":
                caveats = (*trained.caveats, "train_mode_only")
                return dataclasses.replace(trained, caveats=caveats)
        return checked

    def _oracle(self, reference: str) -> Oracle:
        if self.oracle is None or self.oracle.reference != reference:
            self.forget()
            host = self.host("reference", self.options.backend)
            options = self.options
            self.oracle = Oracle(
                host,
                reference,
                self.device.torch_device,
                options.timeout_s,
                options.draw_seed,
                options.precision,
            )
        return self.oracle

    def _check_mode(
        self, candidate: Candidate, verdict: Verdict, oracle: Oracle, mode: str, turn: Turn
    ) -> Verdict:
        try:
            with turn():
                oracle.load()
        except NoOracle as error:
            return dataclasses.replace(verdict, **_fields(error))
        session = self._session()
        check = CandidateCheck(oracle, session, mode, self.options)
        fields: dict[str, Any] = {"status": "correct", "reason": None}
        try:
            with turn():
                check.run(candidate)
                if isinstance(session, Halves) and not (candidate.compiled or verdict.compile):
                    self._assemble(session.kernels)
                device = self.device.torch_device
                timer = None
                if self.options.timing and isinstance(session, Session):
                    kernels = set(check.outcome.evidence["launches"])
                    timer = Timer(oracle, session, mode, device, kernels)
            if timer:
                with self.gate.alone():
                    fields |= timer.run()
        except (EarlyVerdict, RequestRefused, SessionEnded, NoOracle) as error:
            fields = _fields(error)
        except WireError as error:
            fields = _fields(SessionEnded("cheat", "forged_message", {"message": describe(error)}))
        finally:
            session.close()
        return dataclasses.replace(verdict, **_result(fields, check.outcome, session.events))

    def _session(self) -> Session | Halves:
        """Return a conversation with a new candidate."""
        seconds = self.options.timeout_s
        if self.options.backend == "cpu":
            self.executor = self.executor or ExecutorProcess(self.host("executor", "executor"))
            host = self.host("host_half", "host_half")
            return Halves(host, self.executor, seconds, self.options.elements)
        return self.host("candidate", self.options.backend).open("candidate", seconds)

    def forget(self) -> None:
        """End the session with the reference at hand."""
        if self.oracle:
            self.oracle.close()
        self.oracle = None

    def close(self) -> None:
        """End the slot's processes."""
        for host in self.hosts.values():
            host.close()
        if self.on_cpu:
            self.on_cpu.close()


def uses_atomics(verdict: Verdict) -> bool:
    """Tell whether the static screen saw atomic operations in the program's kernels."""
    return any(found["rule"] == "atomics" for found in verdict.findings)


DECIDING = ("reaches_inside",)
"""Rules of the static screen that make a right program a cheat: what breaks them raises no event,
and is the way to the objects that count a program's launches and calls. They decide nothing on
backend ``cpu``, where no such object is in the program's process."""


def decide(verdict: Verdict) -> Verdict:
    """Return the verdict in the light of what the static screen found."""
    rules = () if verdict.backend == "cpu" else DECIDING
    deciding = [found for found in verdict.findings if found["rule"] in rules]
    if verdict.status != "correct" or not deciding:
        return verdict
    evidence = {**verdict.evidence, "findings": deciding}
    return dataclasses.replace(
        verdict, status="cheat", reason=deciding[0]["rule"], evidence=evidence
    )


def _fields(error: EarlyVerdict | RequestRefused | SessionEnded | NoOracle) -> dict[str, Any]:
    """Return the fields of a verdict that a failure decides."""
    evidence = {"message": error.message} if isinstance(error, RequestRefused) else error.evidence
    return {"status": error.status, "reason": error.reason, "evidence": evidence}


def _result(
    fields: dict[str, Any], outcome: Outcome, events: list[dict[str, Any]]
) -> dict[str, Any]:
    """Return the fields of a verdict after a check."""
    evidence = {**outcome.evidence, **fields.get("evidence", {})}
    if events and fields["status"] != "unsupported":
        fields = {**fields, "status": "cheat", "reason": events[0]["rule"]}
        evidence["events"] = events[:20]
    right = fields["status"] == "correct"
    return {
        **fields,
        "caveats": tuple(outcome.caveats),
        "evidence": tidy(evidence),
        "trials": outcome.trials,
        "max_abs_error": outcome.agreement.max_abs_error if right else None,
        "error_ratio": outcome.agreement.error_ratio if right else None,
    }


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
