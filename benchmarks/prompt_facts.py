"""Whether the prompts of a data set are true: every sentence is checked against its program.

    python benchmarks/prompt_facts.py output/kernelbook_messages

It reads the configs ``messages`` and ``pairs``, which a data set must both have. A sentence of ours
that claims something is found by its words and compared with the program's text, its verdict and
its other evidence, by other means than those that wrote it. A sentence that is unknown counts as
contradicted, and so does a program whose constructor is not the module's. It prints how often each
claim is made, and what contradicts; the exit status is 1 if anything does.
"""

from __future__ import annotations

import ast
import contextlib
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch

from curate.devices import DEVICES
from curate.formats.prompts.question import (
    ASKED,
    EXAMPLE,
    FORM,
    GIVEN,
    MADE,
    NOW,
    RETURN,
    WORDINGS,
)

TILE = re.compile(r"\b(?:[A-Z][A-Z_]*|num_warps|num_stages)=(?:[^,()]|\((?:[^()]|\([^()]*\))*\))*")
"""A keyword argument that is a tile's size, or a number of warps or stages."""

Row = dict[str, Any]
Check = Callable[[re.Match[str], Row], bool]

FENCE = re.compile(r"^(```+)python\n(.*?)^\1\n", re.MULTILINE | re.DOTALL)
OURS = {line.strip() for text in (*WORDINGS, EXAMPLE, ASKED, GIVEN, FORM, MADE, NOW, RETURN)
        for line in text.strip().split("\n")}  # fmt: skip
NO_COMPUTING = frozenset(
    """empty empty_like empty_strided zeros zeros_like full as_strided promote_types result_type
    finfo device Size no_grad""".split()  # noqa: SIM905
)
"""Functions of `torch` that compute nothing."""


def _given(pair: Row) -> list[torch.Tensor]:
    """Return what ``get_inputs`` makes, without memory for it."""
    tree = ast.parse(pair["reference"])
    kept = [
        node
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom | ast.Assign)
        or (isinstance(node, ast.FunctionDef) and node.name == "get_inputs")
    ]
    names: dict[str, Any] = {}
    with torch.device("meta"):
        for node in kept:
            with contextlib.suppress(NameError):  # a table of functions that are left out
                exec(compile(ast.Module([node], []), "reference", "exec"), names)
        return list(names["get_inputs"]())


def _method(code: str, owner: str, method: str) -> ast.FunctionDef | None:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ClassDef) and node.name == owner:
            for part in node.body:
                if isinstance(part, ast.FunctionDef) and part.name == method:
                    return part
    return None


def _written_for(match: re.Match[str], pair: Row) -> bool:
    return re.findall(r"`([^`]*)`", match[1]) == pair["static"]["specialised"]


def _inputs(match: re.Match[str], pair: Row) -> bool:
    told = re.findall(r"`(\w+)` is (\w+) \[([\d, ]*)\]", match[1])
    forward = _method(pair["reference"], "Model", "forward")
    if forward is None:
        return False
    given = [x for x in _given(pair) if isinstance(x, torch.Tensor)]
    names = [arg.arg for arg in forward.args.args[1:]]
    found = [
        (name, str(x.dtype).removeprefix("torch."), ", ".join(map(str, x.shape)))
        for name, x in zip(names, given, strict=False)
    ]
    return told == found and len(found) == len(given)


def _pure(match: re.Match[str], pair: Row) -> bool:
    forward = _method(pair["triton"], "ModelNew", "forward")
    calls = re.findall(r"\b(?:torch|F|nn\.functional)\.(\w+)\(", ast.unparse(forward or ast.Pass()))
    ran = pair["verdict"] and pair["verdict"]["kind"]
    return ran in (None, "pure_triton") and set(calls) <= NO_COMPUTING


def _library(match: re.Match[str], pair: Row) -> bool:
    return set(re.findall(r"`([^`]*)`", match[1])) == set(pair["static"]["extern_calls"])


def _short_floats(match: re.Match[str], pair: Row) -> bool:
    wants_float32 = re.search(r"assert [^\n]*dtype == torch\.float32", pair["triton"])
    converts = re.search(r"\.to\(\w+\.dtype\)", _forward_text(pair))  # work that PyTorch does
    return bool(pair["static"]["any_float"]) and not wants_float32 and not converts


def _sizes(match: re.Match[str], pair: Row) -> bool:
    functions = [n for n in ast.walk(ast.parse(pair["triton"])) if isinstance(n, ast.FunctionDef)]
    code = "\n".join(ast.unparse(function) for function in functions if not _is_tuner(function))
    code = re.sub(r""""{3}(?:.|\n)*?"{3}|^ *[A-Z_]+ = .*|'[^'\n]*'""", "", code, flags=re.MULTILINE)
    code = TILE.sub("", code)
    numbers = {int(text) for text in re.findall(r"(?<![\w.])(?<!\de-)\d+(?![\w.])", code)}
    sizes = {size for x in _given(pair) if isinstance(x, torch.Tensor) for size in x.shape}
    caveats = set(pair["verdict"]["caveats"] or ())
    return (
        pair["verdict"]["status"] == "correct"
        and not caveats & {"own_sizes_only", "some_sizes_only"}
        and not pair["static"]["specialised"]
        and not {size for size in sizes if size >= 8} & numbers
    )


def _is_tuner(function: ast.FunctionDef) -> bool:
    return "triton.Config" in ast.unparse(function) and not function.decorator_list


def _one_kernel(match: re.Match[str], pair: Row) -> bool:
    launches = len(re.findall(r"\w\[[^\]\n]+\]\(", _forward_text(pair)))
    return pair["verdict"]["launches"] == 1 and launches == 1


def _forward_text(pair: Row) -> str:
    return pair["triton"].partition("class ModelNew")[2].partition("    def forward(")[2]


def _once(match: re.Match[str], pair: Row) -> bool:
    kernels = pair["triton"].partition("class ModelNew")[0]
    loads = re.findall(rf"tl\.load\(\s*{match[1]}_ptr\b([^,]*)", kernels)
    whole = len(loads) == 1 and not re.search(r"//|%|tl\.(minimum|maximum|where)", loads[0])
    return whole and _one_kernel(match, pair)


def _faster(match: re.Match[str], pair: Row) -> bool:
    times = pair["verdict"]["timing"] or {}
    other = times.get("compile_us" if "compile" in match[1] else "eager_us")
    return bool(other) and times["candidate_us"] < other


def _compiles(match: re.Match[str], pair: Row) -> bool:
    compiled = {c["target"]: c["ok"] for c in pair["compile"]}
    return bool(compiled.get(match[2])) and DEVICES[match[2]].card == match[1]


def _within(match: re.Match[str], pair: Row) -> bool:
    error = pair["verdict"]["max_abs_error"]
    return error is not None and error <= float(match[1]) and _close(match, pair)


def _close(match: re.Match[str], pair: Row) -> bool:
    verdict = pair["verdict"]
    loose = {"low_precision", "absolute_accuracy"} & set(verdict["caveats"] or ())
    return verdict["status"] == "correct" and not loose


def _forward_only(match: re.Match[str], pair: Row) -> bool:
    return not re.search(r"\bbackward\b|autograd", pair["triton"])


CLAIMS: dict[str, tuple[str, Check]] = {
    "written for": (r"It need only work for (.*)\.", _written_for),
    "one kernel": (r"Fuse all of it into one kernel\.", _one_kernel),
    "loaded once": (r"No element of `(\w+)` may be loaded twice\.", _once),
    "faster": (r"It has to be faster than (.*)\.", _faster),
    "no PyTorch": (r"PyTorch may allocate and view tensors, and must not.*", _pure),
    "library calls": (r"PyTorch may still compute (.*)\.", _library),
    "short floats": (r"It must also work in float16 and bfloat16, .*", _short_floats),
    "other sizes": (r"Sizes of the inputs must not be hard-coded\.", _sizes),
    "forward only": (r"Only the forward pass is needed\.", _forward_only),
    "inputs": (r"Inputs: (.*)\.", _inputs),
    "target": (r"It has to compile for (.*) \((.*)\)\.", _compiles),
    "tolerance": (r"Results may differ from the module's by at most (.*)\.", _within),
    "rounding": (r"Results may differ from the module's by rounding only\.", _close),
}
"""What sentences claim: the words, and how they are checked."""


def check(shown: Iterable[Row], pairs: dict[str, Row]) -> tuple[Counter[str], list[str]]:
    """Return how often each claim is made, and every contradiction, as a line.

    Args:
        shown: rows of the config ``messages``, with their split.
        pairs: rows of the config ``pairs`` by id, with their split.
    """
    made, wrong = Counter[str](), list[str]()
    for row in shown:
        pair = pairs.get(row["id"])
        if pair is None:
            continue  # a teacher's answer, whose prompt `curate prompts` wrote
        for claim, true in _claims(row, pair, pairs):
            made[claim] += 1
            if not true:
                wrong.append(f"{row['id']}: {claim}")
    return made, wrong


def _claims(row: Row, pair: Row, pairs: dict[str, Row]) -> Iterator[tuple[str, bool]]:
    """Yield what a row's prompt claims, and whether it is so."""
    prompt = next(turn["content"] for turn in row["messages"] if turn["role"] == "user")
    blocks = [code for _, code in FENCE.findall(prompt)]
    for line in filter(None, FENCE.sub("", prompt).split("\n")):
        if line in OURS:
            continue
        for claim, (words, is_so) in CLAIMS.items():
            if match := re.fullmatch(words, line):
                yield claim, is_so(match, pair)
                break
        else:
            yield f"unknown sentence: {line}", False
    old = _method(pair["reference"], "Model", "__init__")
    new = _method(pair["triton"], "ModelNew", "__init__")
    yield "constructor", old is None or (new is not None and _signature(old) == _signature(new))
    yield "module", blocks[-1].rstrip() == pair["reference"].rstrip()
    if len(blocks) > 1:
        yield "example", _is_example(row, pair, pairs, blocks[:-1])
        yield "in KernelBench's order" if prompt.startswith(GIVEN) else "in our order", True
    else:
        yield "no example", row.get("example_id") is None


def _signature(method: ast.FunctionDef) -> str:
    return ast.unparse(method.args)


def _is_example(row: Row, pair: Row, pairs: dict[str, Row], blocks: list[str]) -> bool:
    """Whether an example is a correct row of the same split that has no operator of this one."""
    other = pairs.get(row["example_id"])
    if other is None or other["id"] == pair["id"] or other["split"] != pair["split"]:
        return False
    return (
        [code.rstrip() for code in blocks] == [other[t].rstrip() for t in ("reference", "triton")]
        and other["verdict"]["status"] == "correct"
        and not set(other["static"]["ops"]) & set(pair["static"]["ops"] or ())
    )


def read(folder: Path, config: str) -> Iterator[Row]:
    """Yield the rows of a config, each with its split."""
    for path in sorted((folder / config).glob("*.parquet")):
        for row in pq.read_table(path).to_pylist():
            yield {**row, "split": path.name.partition("-")[0]}


def main(folder: Path) -> int:
    """Print what the prompts of a data set claim; return the exit status."""
    made, wrong = check(
        read(folder, "messages"), {pair["id"]: pair for pair in read(folder, "pairs")}
    )
    for claim, n in made.most_common():
        print(f"{n:6,}  {claim}")
    print(f"{len(wrong):6,}  contradictions")
    print("\n".join(wrong))
    return 1 if wrong or not made else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
