"""Turn Inductor's output into a plain program: `ModelNew`, Triton kernels, ordinary launches."""

from __future__ import annotations

import ast
import builtins
import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from curate.generator.text.container import (
    CannotRewrite,
    Container,
    check_lines,
    slice_reference,
    with_checks,
)
from curate.generator.text.layout import WIDTH
from curate.generator.text.layout import body as print_body
from curate.inductor.helpers import (
    ELEMENT_CONFIGS,
    ELEMENT_CONFIGS_TEXT,
    HELPERS,
    with_dependencies,
)
from curate.inductor.kernel_text import combine_source, kernel_source, stored_values
from curate.inductor.products.tiles import CONFIGS_NAME, configs_text
from curate.inductor.source import split
from curate.inductor.wrapper import Forward, Wrapper, WrapperLaunch
from curate.rows import GeneratedRow, Generator, License, Row, Static, make_row
from curate.step import Context, Drop, Keep, Outcome, RowStep
from curate.syntax import loads_in

_LEFTOVERS = re.compile(
    r"\b(triton_helpers|tl_math|extern_kernels|async_compile|empty_strided_cuda|reinterpret_tensor|"
    r"get_raw_stream|assert_size_stride|copy_if_misaligned|torch\._inductor|torch\._dynamo)\b"
)
_IMPORTABLE = {"torch", "triton", "numpy"} | sys.stdlib_module_names
INDUCTOR_LICENSE = "BSD-3-Clause"
"""PyTorch's license: kernels keep lines that its code generator wrote."""


@dataclass(frozen=True)
class StandaloneProgram:
    """A rewritten module.

    Attributes:
        text: the Python file.
        kernels: number of Triton kernels.
        extern_calls: torch functions that compute something, sorted.
        dynamic_dims: sizes read from the inputs.
        specialised: arguments that it is written for, and checks.
    """

    text: str
    kernels: int
    extern_calls: list[str]
    dynamic_dims: int
    specialised: list[str]


class Standalone(RowStep):
    """Rewrite what `inductor` generated as a program that needs only torch and triton."""

    step: Literal["standalone"]
    version: ClassVar[int] = 8
    takes: ClassVar[frozenset[str]] = frozenset({"task"})
    reads: ClassVar[frozenset[str]] = frozenset({"reference", "generated"})
    makes: ClassVar[frozenset[str]] = frozenset({"pair"})
    sets: ClassVar[frozenset[str]] = frozenset({"triton", "static"})
    batch: ClassVar[int] = 8

    def apply(self, row: GeneratedRow, context: Context) -> Outcome:
        generated = row["generated"]
        if generated is None:
            return Drop("not_generated", {"missing": "inductor has not run on this row"})
        spec = json.loads(generated["spec"])
        entry_point = row["entry_point"] or "Model"
        if "printed" in spec:
            return self._printed(row, spec["printed"])
        try:
            subject = _subject(row["origin"]["symbol"] or "")
            program = rewrite(row["reference"], generated["code"], spec, entry_point, subject)
        except CannotRewrite as error:
            return Drop("not_standalone", {"construct": error.construct, "line": error.line})
        tools = [f"torch {spec['torch']}", f"triton {spec['triton']}"]
        tools += [f"repair {repair}" for repair in spec.get("repairs", [])]  # see `kernelbook`
        name = "inductor+standalone"
        return Keep((_pair(row, program, spec, name, tools, _license(row["license"])),))

    def _printed(self, row: GeneratedRow, printed: dict[str, Any]) -> Outcome:
        """Pass on what the generator has printed: it stands alone already."""
        text = printed["text"]
        try:
            check(text)
        except CannotRewrite as error:
            return Drop("not_standalone", {"construct": error.construct, "line": error.line})
        return Keep((_printed_pair(row, text, printed),))


def _printed_pair(row: GeneratedRow, text: str, printed: dict[str, Any]) -> Row:
    """Return the pair for a program that the generator has printed: it stands alone already."""
    program = StandaloneProgram(
        text, printed["kernels"], [], printed["dynamic_dims"], printed["specialised"]
    )
    spec = {"ops": printed["operators"], "any_float": printed["any_float"]}
    return _pair(row, program, spec, "generator", printed["tools"], row["license"])


_NAMESPACES = frozenset({"torch", "nn", "functional", "special", "linalg", "aten"})


def _subject(symbol: str) -> str:
    """Return a kernel's name for a symbol: ``rotary#72`` is rotary, ``RSOLoss`` is rso_loss."""
    path = [part for part in symbol.split("#")[0].split(".") if part not in _NAMESPACES]
    words = re.findall(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z0-9]+|[A-Z]+", " ".join(path))
    found = "_".join(word.lower() for word in words)
    return found if found.isidentifier() and found not in ("model", "forward") else ""


def rewrite(
    reference: str,
    code: str,
    spec: dict[str, Any],
    entry_point: str = "Model",
    subject: str = "",
) -> StandaloneProgram:
    """Return the plain program for Inductor's output.

    Args:
        reference: the task in KernelBench's form.
        code: Inductor's file for the reference's graph.
        spec: how the graph's inputs and outputs map to the module's (see `inductor`).
        entry_point: the reference's class.
        subject: what a lone kernel that fuses several operations is called.

    Raises:
        CannotRewrite: part of the code has a form that the rewriter does not know.
    """
    source = split(code)
    container = slice_reference(reference, entry_point)
    images = "2d" in reference.lower()
    forward = Wrapper(source, spec, container.inputs, images, subject).run()
    class_text = with_checks(container.class_text, spec.get("fixed", {}))
    expected = _expected(container, spec)
    text = _assemble(replace(container, class_text=class_text), forward, expected)
    check(text)
    known = {name: repr(value) for name, value in spec.get("fixed", {}).items()} | expected
    specialised = [f"{name}={value}" for name, value in known.items()]
    return StandaloneProgram(
        text, len(forward.launches), forward.extern_calls, len(forward.sizes), specialised
    )


def _expected(container: Container, spec: dict[str, Any]) -> dict[str, str]:
    """Return the values of ``forward``'s arguments that the program takes for granted."""
    given = container.inputs[: spec.get("given", len(container.inputs))]
    known = {name: text for name, text in container.optional.items() if name not in given}
    for entry in spec.get("scalars", []):
        if isinstance(entry["target"], int) and entry["target"] < len(container.inputs):
            known[container.inputs[entry["target"]]] = repr(entry["value"])
    return known


def check(text: str) -> None:
    """Raise CannotRewrite unless ``text`` compiles, binds every name and imports little."""
    try:
        compile(text, "<standalone>", "exec")
    except SyntaxError as error:
        raise CannotRewrite(f"syntax error: {error.msg}", error.lineno) from error
    for number, line in enumerate(text.splitlines(), 1):
        left = _LEFTOVERS.search(line)
        if left:
            raise CannotRewrite(left[0], number)
    tree = ast.parse(text)
    for node in ast.walk(tree):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            modules = [f"{node.module or ''}.{alias.name}" for alias in node.names]
        for module in modules:
            if module.split(".")[0] not in _IMPORTABLE or _LEFTOVERS.search(module):
                raise CannotRewrite(f"import {module}")
    for node in unbound_names(tree):
        raise CannotRewrite(f"unbound name {node.id}", node.lineno)


def unbound_names(tree: ast.Module) -> Iterator[ast.Name]:
    """Yield the names that a file reads and that nothing in it binds, in any scope."""
    bound = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and not _is_load(n)}
    bound |= {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
    bound |= {a.asname or a.name.split(".")[0] for n in ast.walk(tree) for a in _aliases(n)}
    bound |= {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    bound |= {n.name for n in ast.walk(tree) if isinstance(n, ast.ExceptHandler) and n.name}
    bound |= {*dir(builtins), "__name__"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and _is_load(node) and node.id not in bound:
            yield node


def _is_load(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Load)


def _aliases(node: ast.AST) -> list[ast.alias]:
    return node.names if isinstance(node, ast.Import | ast.ImportFrom) else []


def _assemble(container: Container, forward: Forward, expected: dict[str, str]) -> str:
    """Put imports, helpers, kernels and the class into one file."""
    combines, combine_names = _combine_functions(forward)
    helpers = {name for launch in forward.launches.values() for name in launch.draft.helpers}
    tuners = {launch.draft.tuner for launch in forward.launches.values()}
    kernels = [
        kernel_source(
            launch.draft,
            launch.name,
            launch.names | combine_names,
            launch.loaded,
            container.summary
            if len(forward.launches) == 1 and container.summary
            else _docstring(launch),
        )
        for launch in forward.launches.values()
    ]
    forward_lines = _forward_text(container, forward, expected)
    parts = [
        *container.preamble,
        *(f"@triton.jit\n{HELPERS[name]}" for name in with_dependencies(helpers)),
        *combines,
        *(text for name, text in _CONFIGS.items() if name in tuners),
        *kernels,
        f"{container.class_text}\n\n{forward_lines}".replace("\n    pass\n\n", "\n"),
    ]
    body = "\n\n\n".join(parts)
    imports = _imports(container, forward, body)
    return f"{imports}\n\n\n{body}\n"


_CONFIGS = {CONFIGS_NAME: configs_text(), ELEMENT_CONFIGS: ELEMENT_CONFIGS_TEXT}
"""What autotuners choose from, by the names that programs give it."""


def _imports(container: Container, forward: Forward, body: str) -> str:
    lines = {"import torch", "import torch.nn as nn", *container.imports}
    if forward.launches:
        lines |= {"import triton", "import triton.language as tl"}
    if re.search(r"\bF\.", body):
        lines.add("import torch.nn.functional as F")
    if re.search(r"\bmath\.", body):
        lines.add("import math")
    if re.search(r"\blibdevice\.", body):
        lines.add("from triton.language.extra import libdevice")
    if "from torch import nn" in lines:
        lines.discard("import torch.nn as nn")
    for name, line in (("torch", "import torch"), ("nn", "import torch.nn as nn")):
        if not re.search(rf"(?<![.\w]){name}\.", body):
            lines.discard(line)

    def order(line: str) -> tuple[bool, str, bool]:
        module = line.split()[1]
        return module.split(".")[0] in ("torch", "triton"), module, line.startswith("from")

    ordered = sorted(_joined(lines), key=order)
    standard = [line for line in ordered if not order(line)[0]]
    others = [line for line in ordered if order(line)[0]]
    return "\n\n".join("\n".join(group) for group in (standard, others) if group)


def _joined(lines: Iterable[str]) -> Iterator[str]:
    """Yield import statements; names that come from one module stand in one of them."""
    names: dict[str, set[str]] = {}
    for line in lines:
        module, _, name = line.partition(" import ")
        if not name:
            yield line
        names.setdefault(module, set()).add(name)
    for module, found in names.items():
        joined = f"{module} import {', '.join(sorted(found))}"
        if "" not in found:
            yield from [joined] if len(joined) <= WIDTH else (f"{module} import {n}" for n in found)


_STATISTICS = {
    "mean": "mean",
    "var": "variance",
    "rstd": "reciprocal standard deviation",
    "m2": "sum of squared deviations",
    "sq_sum": "sum of squares",
    "count": "count",
    "total": "sum",
    "peak": "maximum",
    "lowest": "minimum",
}


def _docstring(launch: WrapperLaunch) -> str:
    words = [word.replace("_", " ") for word in launch.operations]
    kinds = list(dict.fromkeys(stored_values(launch.draft).values()))
    if len(kinds) > 1 and words and set(kinds) <= _STATISTICS.keys() - set(words):
        return f"Compute {_listed([_STATISTICS[kind] for kind in kinds])} for {words[-1]}."
    if not words:
        return "Copy with a change of layout."
    if len(words) > 6:
        return f"Compute {', '.join(words[:5])} and {len(words) - 5} more operations in one pass."
    return f"Compute {_listed(words)}{' in one pass' if len(words) > 1 else ''}."


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _combine_functions(forward: Forward) -> tuple[list[str], dict[str, str]]:
    """Return the text of the kernels' own combine functions, each once, and their new names."""
    texts: dict[str, str] = {}
    names: dict[str, str] = {}
    for launch in forward.launches.values():
        for function in launch.draft.combines:
            words = re.sub(r"^_triton_helper_fn_|\d+$", "", function.name).split("_")
            stem = f"{'_'.join(words)}_pairs" if len(words) < 4 else "combine_pairs"
            name, number = stem, 1
            while texts.get(name, combine_source(function, name)) != combine_source(function, name):
                name, number = f"{stem}_{number}", number + 1
            if names.setdefault(function.name, name) != name:
                raise CannotRewrite(f"two functions named {function.name}")
            texts[name] = combine_source(function, name)
    return list(texts.values()), names


def _forward_text(container: Container, forward: Forward, expected: dict[str, str]) -> str:
    lines = container.forward.splitlines()
    if expected:
        lines += check_lines(expected, 8)
    nodes = [node for stmt in forward.body for node in ast.walk(stmt)]
    if any(isinstance(node, ast.keyword) and node.arg == "out" for node in nodes):
        lines.insert(0, "    @torch.no_grad()")  # autograd refuses out=
    for node in _drop_unused_sizes(forward):
        lines += print_body([node], 8)
    return "\n".join(lines)


def _drop_unused_sizes(forward: Forward) -> list[ast.stmt]:
    used = set(loads_in(*forward.body))
    return [
        stmt
        for stmt in forward.body
        if not (
            isinstance(stmt, ast.Assign)
            and isinstance(stmt.targets[0], ast.Name)
            and stmt.targets[0].id in forward.sizes
            and stmt.targets[0].id not in used
        )
    ]


def _pair(
    row: GeneratedRow,
    program: StandaloneProgram,
    spec: dict[str, Any],
    name: str,
    tools: list[str],
    license: License | None,
) -> Row:
    generator: Generator = {"name": name, "tools": tools}
    static: Static = {
        "kernels": program.kernels,
        "lines": program.text.count("\n"),
        "ops": spec.get("ops") or [],
        "pure_triton": not program.extern_calls,
        "extern_calls": program.extern_calls,
        "dynamic_dims": program.dynamic_dims,
        "specialised": program.specialised,
        "any_float": bool(spec.get("any_float")),
    }
    return make_row(
        "pair",
        row["reference"] + "\n" + program.text,
        {**row["origin"], "generator": generator},
        parent_ids=[row["id"]],
        reference=row["reference"],
        triton=program.text,
        entry_point=row["entry_point"],
        license=license,
        static=static,
        wiring=row["wiring"],
    )


def _license(module: License | None) -> License | None:
    """Return the module's license joined with that of Inductor's lines."""
    if module is None:
        return None
    from curate.licenses.policy import conjoin

    expression, choice = module["expression"], module["choice"]
    return {
        **module,
        "expression": conjoin(expression, INDUCTOR_LICENSE) if expression else expression,
        "choice": conjoin(choice, INDUCTOR_LICENSE) if choice else choice,
    }
