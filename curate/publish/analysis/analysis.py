"""Every number that the card, the report, ``ANALYSIS.json`` and `curate diff` print of a run.

They are counted from the run's manifests and its final rows, a shard at a time. What is kept in
memory grows with the number of packages, operators, clusters and duplicates, never with the code.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pydantic import Field

from curate.engine.records import Record, read_records
from curate.engine.store import Manifest, Store
from curate.formats.dataset.index import INDEX_FILE
from curate.formats.dataset.write import read_run
from curate.formats.fim.fim import count_tokens
from curate.licenses.optout import OPTED_OUT
from curate.publish.analysis.contamination import Contamination, Nearness, contamination
from curate.publish.analysis.counts import Counts, Distribution, Frozen, ValueCounts, ranked
from curate.publish.analysis.errors import NoRun
from curate.publish.analysis.teaching import PassRate, Teaching, pass_rates, teachings
from curate.registry import known_steps, summary
from curate.rows import Loose

FORM = 2  # of ANALYSIS.json; raised when a field changes its meaning
LARGEST = 10  # groups of duplicates that are named


class StepCounts(Frozen):
    """What one step did.

    Attributes:
        what: what the step does, in a sentence.
        seen, kept, emitted, untouched: rows, as `curate.engine.store.Manifest` counts them.
        dropped, failed: rows lost, by reason, most first.
        kinds: rows that came out, by kind.
        version: of the step.
        tools: versions of other software that decide its result.
    """

    label: str
    name: str
    what: str
    seen: int
    kept: int
    emitted: int
    untouched: int
    dropped: dict[str, int]
    failed: dict[str, int]
    kinds: dict[str, int]
    version: int
    tools: dict[str, str]

    @property
    def lost(self) -> dict[str, int]:
        """Rows dropped or failed, by reason, most first."""
        return ranked(Counter(self.dropped) + Counter(self.failed))


class SourceCounts(Frozen):
    """One package, repository or other place that rows come from.

    Attributes:
        name: purl or url; the kind of source where there is none.
        read: files or problems that were read from it.
        rows: final rows.
        licenses: final rows by license.
    """

    name: str
    read: int
    rows: int
    licenses: dict[str, int]


class LicenseUse(Frozen):
    """One license under which final rows are used.

    Attributes:
        rows: final rows.
        sources: places that they come from.
        methods: rows by how the license was found.
        conflicts: rows where tag, file and metadata disagree, and the most restrictive won.
    """

    expression: str
    rows: int
    sources: int
    methods: dict[str, int]
    conflicts: int


class TargetCounts(Frozen):
    """What a compiler made of the rows for one target.

    Attributes:
        rows: that were compiled for it.
        ok: of those, rows whose kernels all compiled.
        errors: the others, by class of error.
        registers, spills, shared: the largest of any kernel of a row.
    """

    target: str
    rows: int
    ok: int
    errors: dict[str, int]
    registers: Distribution
    spills: Distribution
    shared: Distribution


class Verdicts(Frozen):
    """What the judge said of pairs and of a teacher's programs.

    Attributes:
        status, reason, caveats: rows by each; a row may have several caveats.
        ran_on: rows by backend and device.
        judge: rows by the versions of judge, torch and triton.
        kind: rows by `pure_triton`, `hybrid` or `no_kernel`, as they ran.
        deterministic: rows by whether a second run gave the same bits.
        error: largest distance of an output from the float64 result.
        error_ratio: worst error over what was allowed; at most 1 passes.
        speedup_eager, speedup_compile: the module's time over the candidate's.
    """

    status: ValueCounts
    reason: ValueCounts
    caveats: ValueCounts
    ran_on: ValueCounts
    judge: ValueCounts
    kind: ValueCounts
    deterministic: ValueCounts
    findings: ValueCounts
    error: Distribution
    error_ratio: Distribution
    speedup_eager: Distribution
    speedup_compile: Distribution


class KernelCounts(Frozen):
    """What is known of rows of kind ``kernel``.

    Attributes:
        run: rows by how the run of their wrapper on the CPU ended; unknown where no
            function launches the kernel.
        found_by: rows by how the signature was found.
        dtypes: rows by the element types that they compile with.
    """

    run: ValueCounts
    found_by: ValueCounts
    dtypes: ValueCounts
    deterministic: ValueCounts


class Code(Frozen):
    """How much code rows have, and of what.

    Tokens are names, numbers and other visible characters; no tokenizer counts them.
    """

    reference_lines: Distribution
    triton_lines: Distribution
    reference_tokens: Distribution
    triton_tokens: Distribution
    kernels: Distribution
    launches: Distribution
    dynamic_dims: Distribution
    operators: ValueCounts
    pure_triton: ValueCounts
    extern_calls: ValueCounts
    generators: ValueCounts


class Holes(Frozen):
    """The rows of a fill-in-the-middle config.

    Attributes:
        rows: in all splits.
        hole: rows by kind of hole.
        node: rows by what was left out, a node type of tree-sitter.
        lines: that were left out.
    """

    config: str
    rows: int
    hole: ValueCounts
    node: ValueCounts
    lines: Distribution


class Group(Frozen):
    """Rows that were dropped as duplicates of one row that stayed."""

    of: str
    dropped: int


class Duplicates(Frozen):
    """What one ``dedupe`` step found.

    Attributes:
        label: of the step.
        column: the code that was compared.
        seen: rows that were compared.
        tiers: rows dropped, by how they were found.
        sizes: groups by the number of rows in them, the one that stayed included.
        largest: the groups with most rows.
        similarity: of dropped rows to the one that stayed.
    """

    label: str
    column: str
    seen: int
    tiers: dict[str, int]
    sizes: dict[str, int]
    largest: list[Group]
    similarity: Distribution


class Analysis(Frozen):
    """A run in numbers.

    Attributes:
        form: version of this form.
        limit: rows read of every unit of a source; null reads all.
        settings: ``path=value`` texts that replaced values of the recipe.
        rows: final rows.
        configs: rows by config and split, as they were written.
        unwritten: final rows that are in no config, by reason.
        leakage: by config and split, what the writer of the data set found; null where it did
            not look.
        clusters: clusters of final rows, which never lie in two splits.
        selections: a teacher's answers among the final rows, by what `select` called them.
        teachings: what was asked of teachers, by step.
        pass_rates: how often a teacher's answers were right; empty where none was judged.
    """

    form: int
    name: str
    description: str
    seed: int
    limit: int | None
    settings: list[str]
    steps: list[StepCounts]
    rows: int
    configs: dict[str, dict[str, int]]
    unwritten: dict[str, int]
    leakage: dict[str, Any] | None
    kinds: ValueCounts
    splits: ValueCounts
    clusters: int
    largest_cluster: int
    sources: list[SourceCounts]
    licenses: list[LicenseUse]
    verdicts: Verdicts
    kernels: KernelCounts
    selections: ValueCounts
    teachings: list[Teaching]
    pass_rates: list[PassRate]
    targets: list[TargetCounts]
    code: Code
    holes: list[Holes]
    duplicates: list[Duplicates]
    contamination: Contamination
    tools: dict[str, str] = Field(description="Versions that decided the result, by name.")

    def to_json(self) -> str:
        """Return the text of ``ANALYSIS.json``."""
        return json.dumps(self.model_dump(mode="json"), indent=1) + "\n"


# --- reading ----------------------------------------------------------------------------------


class Run:
    """A finished run: its records, its shards, and what its ``run.json`` says."""

    def __init__(self, output: Path, name: str, folder: Path | None = None) -> None:
        """Find the run ``name`` under an output folder.

        Args:
            output: the folder.
            name: of the run.
            folder: of the data set, where it does not have its name yet.

        Raises:
            NoRun: there is none, or it is not finished.
            Damaged: what is known of it is not as it was written.
        """
        self.output, self.folder, self.store = output, folder or output / name, Store(output)
        self.records = read_records(output, name)
        known = read_run(self.folder)
        if known is None:
            raise NoRun(f"{self.folder} holds no finished run; `curate run RECIPE` makes one")
        self.known = known
        labels = [line["step"] for line in known["ledger"]]
        if [record.label for record in self.records] != labels:
            raise NoRun(
                f"the last run of {name} stopped before its end, or its cache is gone; "
                "`curate run RECIPE` finishes it"
            )

    def manifests(self, record: Record) -> list[Manifest]:
        """Return the manifests of a stage."""
        return [self.store.finished(record.step, key) for key in record.shards]

    def final_rows(self) -> Iterator[Loose]:
        """Yield the final rows, a shard at a time."""
        for record in self.ends(len(self.records)):
            for key in record.shards:
                yield from self.last_rows(record.step, key)

    def ends(self, count: int) -> list[Record]:
        """Return the stages whose rows are the result of the first ``count`` stages."""
        last = self.records[count - 1]
        return [last] if last.kinds else self.sources

    def last_rows(self, step: str, key: str) -> list[Loose]:
        """Return the rows of a final shard, but for those that the data set leaves out because
        their authors asked."""
        rows: list[Loose] = self.store.rows(step, key).to_pylist()
        if OPTED_OUT in self.known["unwritten"]:
            return [row for row in rows if row["id"] in self._published]
        return rows

    @cached_property
    def _published(self) -> frozenset[str]:
        table = pq.read_table(self.folder / INDEX_FILE, columns=["id"])
        return frozenset(table["id"].to_pylist())

    def lost_rows(self, record: Record) -> Iterator[Loose]:
        """Yield what a stage lost: its id, kind and origin, and its fate, reason and evidence."""
        columns = ["id", "kind", "origin", "fate", "reason", "evidence"]
        for manifest in self.manifests(record):
            if manifest.dropped or manifest.failed:
                lost = self.store.lost(record.step, manifest.key)
                yield from lost.select(columns).to_pylist()

    @property
    def sources(self) -> list[Record]:
        """The stages that are sources."""
        return [record for record in self.records if not record.kinds]


@cache
def purposes() -> dict[str, str]:
    """Return the first sentence of what every step and source is for, by name."""
    return {
        kind.word()[1]: summary(kind).replace("`", "").split(". ")[0].rstrip(".")
        for kind in known_steps()
    }


def analyse(run: Run) -> Analysis:
    """Return a finished run in numbers."""
    steps = [_step(run, record) for record in run.records]
    rows = _Rows()
    for row in run.final_rows():
        rows.add(row)
    known = run.known
    return Analysis(
        form=FORM,
        name=known["recipe"]["name"],
        description=known["recipe"].get("description", ""),
        seed=known["recipe"].get("seed", 0),
        limit=known["limit"],
        settings=known.get("settings", []),
        steps=steps,
        rows=rows.total,
        configs=known["configs"],
        unwritten=known["unwritten"],
        leakage=known.get("leakage"),
        sources=rows.sources(_rows_read(run)),
        holes=list(_holes(run)),
        teachings=teachings(run, steps),
        pass_rates=pass_rates(run),
        duplicates=[_duplicates(run, r) for r in run.records if r.step == "dedupe"],
        contamination=contamination(run, rows.nearness),
        tools={name: version for step in steps for name, version in sorted(step.tools.items())},
        **rows.parts(),
    )


def _step(run: Run, record: Record) -> StepCounts:
    manifests = run.manifests(record)
    lost: dict[str, Counter[str]] = {"dropped": Counter(), "failed": Counter()}
    kinds: Counter[str] = Counter()
    for manifest in manifests:
        lost["dropped"].update(manifest.dropped)
        lost["failed"].update(manifest.failed)
        kinds.update(manifest.kinds)
    return StepCounts(
        label=record.label,
        name=record.step,
        what=purposes().get(record.step, ""),
        seen=sum(m.seen for m in manifests),
        kept=sum(m.kept for m in manifests),
        emitted=sum(m.emitted for m in manifests),
        untouched=sum(m.untouched for m in manifests),
        dropped=ranked(lost["dropped"]),
        failed=ranked(lost["failed"]),
        kinds=ranked(kinds),
        version=record.identity["version"],
        tools=record.identity["tools"],
    )


def _rows_read(run: Run) -> Counter[str]:
    """Return how many rows each package or repository gave."""
    read: Counter[str] = Counter()
    for record in run.sources:
        for key in record.shards:
            origins = run.store.rows(record.step, key, ["origin"])["origin"].to_pylist()
            read.update(place_name(origin) for origin in origins)
    return read


def place_name(origin: Loose) -> str:
    """Return what a source is called: its purl or url, or the kind of source."""
    return str(origin["purl"] or origin["repo"] or origin["source"])


# --- final rows -------------------------------------------------------------------------------


class _Rows:
    """Counts final rows one by one."""

    def __init__(self) -> None:
        self.counts = Counts()
        self.total = 0
        self.nearness = Nearness()
        self._sources: dict[str, Counter[str]] = {}
        self._licenses: dict[str, Counter[tuple[str, str, bool]]] = {}
        self._clusters: Counter[str] = Counter()

    def add(self, row: Loose) -> None:
        """Count a row."""
        self.total += 1
        self.counts.one("kind", row["kind"])
        self.counts.one("split", row["split"])
        if row["cluster"]:
            self._clusters[row["cluster"]] += 1
        self._add_license(row)
        self._add_code(row)
        self._add_compile(row)
        if row["kind"] == "pair" or (row["kind"] == "sample" and row["triton"]):
            self._add_verdict(row["verdict"] or {})
        if row["kind"] == "kernel":
            self._add_kernel(row["kernel"] or {})
        if row["kind"] == "sample":
            self.counts.one("selection", row["sample"]["selection"])
        self.nearness.add(row)

    def _add_license(self, row: Loose) -> None:
        place = place_name(row["origin"] or dict.fromkeys(("purl", "repo", "source")))
        known = row["license"] or {}
        expression = license_name(row)
        self._sources.setdefault(place, Counter())[expression] += 1
        found = (place, known.get("method") or "unknown", bool(known.get("conflict")))
        self._licenses.setdefault(expression, Counter())[found] += 1
        self.counts.one("generator", _writer(row["origin"] or {}))

    def _add_code(self, row: Loose) -> None:
        for column in ("reference", "triton"):
            if (code := row[column]) is not None:
                self.counts.quantity(f"{column}_lines", len(code.splitlines()))
                self.counts.quantity(f"{column}_tokens", count_tokens(code))
        static = row["static"] or {}
        for name in ("kernels", "dynamic_dims"):
            self.counts.quantity(name, static.get(name))
        operators = static.get("ops")
        self.counts.many("operators", operators and [operator_name(op) for op in operators])
        self.counts.one("pure_triton", static.get("pure_triton"))
        self.counts.many("extern_calls", static.get("extern_calls"))

    def _add_compile(self, row: Loose) -> None:
        for result in row["compile"] or []:
            target = result["target"]
            self.counts.one(f"target {target}", "ok" if result["ok"] else result["error"])
            for name in ("registers", "spills", "shared"):
                if result["ok"]:
                    self.counts.quantity(f"{name} {target}", result[name])

    def _add_verdict(self, verdict: Loose) -> None:
        counts, get = self.counts, verdict.get
        counts.one("status", get("status"))
        if get("reason"):
            counts.one("reason", get("reason"))
        counts.many("caveats", get("caveats"))
        counts.one("ran_on", f"{get('backend')} on {get('device')}" if get("backend") else None)
        judge = f"judge {get('judge')}, torch {get('torch')}, triton {get('triton')}"
        counts.one("judge", judge if get("judge") else None)
        counts.one("run_kind", get("kind"))
        counts.one("deterministic", get("deterministic"))
        counts.many("findings", get("findings"))
        counts.quantity("launches", get("launches"))
        counts.quantity("error", get("max_abs_error"))
        counts.quantity("error_ratio", get("error_ratio"))
        timing = get("timing") or {}
        for name in ("eager", "compile"):
            base, candidate = timing.get(f"{name}_us"), timing.get("candidate_us")
            counts.quantity(f"speedup_{name}", base / candidate if base and candidate else None)

    def _add_kernel(self, kernel: Loose) -> None:
        run = kernel.get("run") or {}
        self.counts.one("kernel_run", run.get("status"))
        self.counts.one("kernel_found_by", kernel.get("found_by"))
        self.counts.many("kernel_dtypes", kernel.get("dtypes"))
        if run.get("status") == "ran":
            self.counts.one("kernel_deterministic", run.get("deterministic"))

    def sources(self, read: Counter[str]) -> list[SourceCounts]:
        """Return the sources, those with most rows first."""
        found = [
            SourceCounts(
                name=name,
                read=read[name],
                rows=self._sources.get(name, Counter()).total(),
                licenses=ranked(self._sources.get(name, Counter())),
            )
            for name in sorted({*read, *self._sources})
        ]
        return sorted(found, key=lambda source: -source.rows)

    def parts(self) -> dict[str, Any]:
        """Return the parts of an `Analysis` that only final rows decide."""
        return {
            "kinds": self.counts.tally("kind"),
            "splits": self.counts.tally("split"),
            "clusters": len(self._clusters),
            "largest_cluster": max(self._clusters.values(), default=0),
            "licenses": self._license_list(),
            "verdicts": self._verdicts(),
            "kernels": self._kernels(),
            "selections": self.counts.tally("selection"),
            "targets": [
                self._target(name) for name in sorted(self.counts.names("target "), key=_by_number)
            ],
            "code": self._code(),
        }

    def _license_list(self) -> list[LicenseUse]:
        found = []
        for expression, rows in sorted(self._licenses.items()):
            methods: Counter[str] = Counter()
            for (_, method, _), n in rows.items():
                methods[method] += n
            license = LicenseUse(
                expression=expression,
                rows=rows.total(),
                sources=len({place for place, _, _ in rows}),
                methods=ranked(methods),
                conflicts=sum(n for (*_, conflict), n in rows.items() if conflict),
            )
            found.append(license)
        return sorted(found, key=lambda license: -license.rows)

    def _verdicts(self) -> Verdicts:
        tally, spread = self.counts.tally, self.counts.distribution
        return Verdicts(
            status=tally("status"),
            reason=tally("reason"),
            caveats=tally("caveats"),
            ran_on=tally("ran_on"),
            judge=tally("judge"),
            kind=tally("run_kind"),
            deterministic=tally("deterministic"),
            findings=tally("findings"),
            error=spread("error", "largest absolute distance from the float64 result"),
            error_ratio=spread("error_ratio", "worst error over the error allowed; 1 is the limit"),
            speedup_eager=spread("speedup_eager", "eager PyTorch's time over the candidate's"),
            speedup_compile=spread("speedup_compile", "torch.compile's time over the candidate's"),
        )

    def _kernels(self) -> KernelCounts:
        tally = self.counts.tally
        return KernelCounts(
            run=tally("kernel_run"),
            found_by=tally("kernel_found_by"),
            dtypes=tally("kernel_dtypes"),
            deterministic=tally("kernel_deterministic"),
        )

    def _target(self, target: str) -> TargetCounts:
        tally = self.counts.tally(f"target {target}")
        errors = {name: n for name, n in tally.counts.items() if name != "ok"}
        if tally.unknown:
            errors["unknown"] = tally.unknown
        spread = self.counts.distribution
        return TargetCounts(
            target=target,
            rows=tally.n,
            ok=tally.counts.get("ok", 0),
            errors=errors,
            registers=spread(f"registers {target}", "registers per thread"),
            spills=spread(f"spills {target}", "bytes spilled per thread"),
            shared=spread(f"shared {target}", "bytes of shared memory per block"),
        )

    def _code(self) -> Code:
        tally, spread = self.counts.tally, self.counts.distribution
        return Code(
            reference_lines=spread("reference_lines", "lines of PyTorch, blank ones too"),
            triton_lines=spread("triton_lines", "lines of Triton, blank ones too"),
            reference_tokens=spread("reference_tokens", "names, numbers and signs of PyTorch"),
            triton_tokens=spread("triton_tokens", "names, numbers and signs of Triton"),
            kernels=spread("kernels", "kernels in a program"),
            launches=spread("launches", "kernel launches in one forward"),
            dynamic_dims=spread("dynamic_dims", "sizes that are kernel arguments"),
            operators=tally("operators"),
            pure_triton=tally("pure_triton"),
            extern_calls=tally("extern_calls"),
            generators=tally("generator"),
        )


def _writer(origin: Loose) -> str:
    """Return who or what wrote a row's Triton code."""
    if teacher := origin.get("teacher"):
        return str(teacher["model"])
    generator = origin.get("generator")
    return generator["name"] if generator else "none: written by people"


def _by_number(target: str) -> tuple[str, int, str]:
    kind, _, arch = target.partition(":")
    return kind, int(arch) if arch.isdigit() else 0, arch


def license_name(row: Loose) -> str:
    """Return the license under which a row is used."""
    known = row["license"] or {}
    return str(known.get("choice") or known.get("expression") or "unknown")


def operator_name(operator: str) -> str:
    """Return an ATen operator's name without its overload: ``aten.add.Tensor`` is ``add``."""
    parts = operator.split(".")
    return parts[1] if parts[0] == "aten" and len(parts) > 1 else operator


# --- lost rows and configs --------------------------------------------------------------------


def _duplicates(run: Run, record: Record) -> Duplicates:
    groups: Counter[str] = Counter()
    counts = Counts()
    tiers: Counter[str] = Counter()
    for row in run.lost_rows(record):
        evidence = json.loads(row["evidence"])
        tiers[row["reason"]] += 1
        if "of" in evidence:
            groups[evidence["of"]] += 1
            counts.quantity("similarity", evidence.get("similarity"))
    sizes = Counter(str(dropped + 1) for dropped in groups.values())
    manifests = run.manifests(record)
    return Duplicates(
        label=record.label,
        column=record.identity["options"].get("column", "text"),
        seen=sum(m.seen - m.untouched for m in manifests),
        tiers=ranked(tiers),
        sizes=dict(sorted(sizes.items(), key=lambda item: int(item[0]))),
        largest=[Group(of=of, dropped=n) for of, n in list(ranked(groups).items())[:LARGEST]],
        similarity=counts.distribution("similarity", "similarity to the row that stayed"),
    )


def _holes(run: Run) -> Iterator[Holes]:
    columns = ["hole", "node", "start_line", "end_line"]
    for config in run.known["configs"]:
        counts, total = Counts(), 0
        for path in sorted((run.folder / config).glob("*.parquet")):
            with pq.ParquetFile(path) as file:
                if not {*columns} <= {*file.schema_arrow.names}:
                    break
                for batch in file.iter_batches(columns=columns):
                    for row in batch.to_pylist():
                        total += 1
                        counts.one("hole", row["hole"])
                        counts.one("node", row["node"])
                        counts.quantity("lines", row["end_line"] - row["start_line"] + 1)
        if total:
            yield Holes(
                config=config,
                rows=total,
                hole=counts.tally("hole"),
                node=counts.tally("node"),
                lines=counts.distribution("lines", "lines that the middle covers"),
            )
