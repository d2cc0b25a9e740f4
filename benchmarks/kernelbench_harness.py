"""KernelBench's own verdict on one program, in this process.

Reads a JSON object with ``checkout``, ``reference`` and ``candidate`` from standard input, calls
``eval_kernel_against_ref`` of the checkout (five draws of inputs, no timing, as
``scripts/run_and_check.py`` does otherwise), and writes one with ``status``, ``import_s``,
``eval_s`` and ``metadata`` to standard output.

KernelBench imports packages that judging does not need: clients of language models, progress bars,
pydantic. Where one of them is missing, a stand-in takes its place.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
import time
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

TRIALS = 5

NAMES = {
    "dotenv": ("load_dotenv",),
    "tqdm": ("tqdm",),
    "openai": ("OpenAI",),
    "litellm": ("completion",),
    "requests": (),
}
"""Packages that judging does not need, and what is imported from them."""


class BaseModel:
    """What KernelBench's result needs of pydantic: fields with defaults, set by keyword."""

    def __init__(self, **values: Any) -> None:
        for name in type(self).__annotations__:
            default = getattr(type(self), name)
            value = values.get(name, default)
            setattr(self, name, dict(value) if isinstance(value, dict) else value)


def stand_in() -> None:
    """Put a stand-in for each package that is missing."""
    for name in (*NAMES, "pydantic"):
        try:
            importlib.import_module(name)
        except ImportError:
            module = ModuleType(name)
            module.__spec__ = ModuleSpec(name, None)
            for attribute in NAMES.get(name, ()):
                setattr(module, attribute, lambda *_, **__: None)
            if name == "pydantic":
                module.BaseModel = BaseModel  # type: ignore[attr-defined]
            sys.modules[name] = module


def status_of(result: Any) -> str:
    """Return KernelBench's result in our words."""
    if result is None:
        return "not_judged"
    if not result.compiled:
        return "compile_error"
    if result.correctness:
        return "correct"
    return "runtime_error" if "runtime_error" in result.metadata else "incorrect"


def main() -> None:
    """Judge the program on standard input."""
    given = json.load(sys.stdin)
    started = time.perf_counter()
    with contextlib.redirect_stdout(sys.stderr):  # KernelBench prints what it does
        stand_in()
        sys.path.insert(0, str(Path(given["checkout"]) / "src"))
        import torch
        from kernelbench.eval import eval_kernel_against_ref  # type: ignore[import-not-found]

        imported = time.perf_counter()
        result = eval_kernel_against_ref(
            given["reference"],
            given["candidate"],
            num_correct_trials=TRIALS,
            measure_performance=False,
            device=torch.device("cuda:0"),
            backend="triton",
            precision=torch.float32,
        )
    found = {
        "status": status_of(result),
        "import_s": round(imported - started, 3),
        "eval_s": round(time.perf_counter() - imported, 3),
        "metadata": {} if result is None else {k: str(v)[:300] for k, v in result.metadata.items()},
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
