"""Python functions of public packages, and copies of them that are known to be copies.

    python benchmarks/corpus.py CACHE --count 200000

The packages are wheels, pinned by version and fetched by pip; they are only read, never installed
or run. A function is what Python's own parser calls one, of 4 to 400 lines, its indentation taken
away, and no text is there twice. A share `COPIES` of a corpus are copies of other documents with
one small edit, of a kind in `EDITS`; documents are in a random order. The same seed and pins give
the same corpus.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import keyword
import multiprocessing
import random
import re
import subprocess
import sys
import textwrap
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

PINS = (
    "transformers==5.23.0",
    "homeassistant==2024.3.3",
    "google-cloud-aiplatform==2.7.0",
    "sympy==1.14.0",
    "statsmodels==0.15.0",
    "scipy==1.17.1",
    "pandas==3.1.1",
    "scikit-learn==1.9.1",
    "matplotlib==3.11.2",
    "astropy==8.0.2",
    "django==5.2.19",
    "sqlalchemy==2.1.9",
    "mlflow==3.18.0",
    "mne==1.13.2",
    "nipype==1.11.0",
    "jax==0.10.2",
    "diffusers==0.42.1",
    "keras==3.15.1",
    "twisted==26.10.0",
    "apache-airflow-core==3.3.2",
    "yt-dlp==2026.10.26",
    "networkx==3.6.1",
    "bokeh==3.9.2",
    "numba==0.68.1",
    "sphinx==9.0.4",
    "mypy==2.4.1",
    "nltk==3.10.4",
    "xarray==2026.9.0",
    "dask==2026.8.0",
    "distributed==2026.8.0",
    "wagtail==8.0.1",
)
"""Wheels for CPython 3.11 on x86-64 Linux where there is more than one."""

PLATFORM = (
    "--python-version=3.11",
    "--platform=manylinux_2_28_x86_64",
    "--platform=manylinux_2_17_x86_64",
    "--platform=any",
)
LINES = range(4, 401)
FILE_BYTES = 400_000  # longer files are tables and generated code
COPIES = 0.2

Copy = tuple[int, int, str]
"""The number of a copy, the number of its original, and which of `EDITS` it went through."""

NAME = re.compile(r"\b[a-z_][A-Za-z0-9_]{2,}\b")
NUMBER = re.compile(r"\b[1-9][0-9]*\b")
RESERVED = frozenset([*keyword.kwlist, *keyword.softkwlist])
WORDS = ("check", "this", "value", "before", "use", "see", "the", "note", "above", "keep", "order")


# --- functions of packages ------------------------------------------------------------------


def fetch(folder: Path) -> list[Path]:
    """Return the pinned wheels, in the order of the pins; those not in the folder are fetched.

    Raises:
        SystemExit: pip cannot get one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    return [_wheel(folder, pin) or _download(folder, pin) for pin in PINS]


def _wheel(folder: Path, pin: str) -> Path | None:
    name, _, version = pin.partition("==")
    return next(folder.glob(f"{name.replace('-', '_')}-{version}-*.whl"), None)


def _download(folder: Path, pin: str) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", *PLATFORM, f"--dest={folder}", pin]
    if subprocess.run(command).returncode or not (wheel := _wheel(folder, pin)):
        raise SystemExit(f"pip cannot download {pin}")
    return wheel


def read_functions(wheel: Path) -> list[str]:
    """Return the functions in a wheel, in the order of its files."""
    with zipfile.ZipFile(wheel) as archive:
        entries = [e for e in archive.infolist() if e.filename.endswith(".py")]
        files = (archive.read(e) for e in entries if e.file_size <= FILE_BYTES)
        return [function for file in files for function in functions_of(file)]


def functions_of(source: bytes) -> Iterator[str]:
    """Yield the functions in a file; none where it is not Python."""
    try:
        text = source.decode()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd escapes and the like
            tree = ast.parse(text)
    except (ValueError, SyntaxError, RecursionError):
        return
    lines = text.split("\n")
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno
            if node.end_lineno - node.lineno + 1 in LINES:
                yield textwrap.dedent("\n".join(lines[node.lineno - 1 : node.end_lineno])) + "\n"


def all_functions(cache: Path) -> list[str]:
    """Return the distinct functions of all pinned packages, and keep them in the cache."""
    path = cache / "functions.jsonl"
    if not path.exists():
        with multiprocessing.Pool() as pool:
            found = pool.imap(read_functions, fetch(cache / "wheels"))
            _write_lines(path, list(dict.fromkeys(itertools.chain.from_iterable(found))))
    return read_texts(path)


# --- copies ---------------------------------------------------------------------------------


def add_space(text: str, rng: random.Random) -> str:
    """Return a text with spaces at the ends of some lines and an empty line more."""
    lines = [line + "  " * (rng.random() < 0.2) for line in text.split("\n")]
    lines.insert(rng.randrange(1, len(lines)), "")
    return "\n".join(lines)


def add_comment(text: str, rng: random.Random) -> str:
    """Return a text with a comment of three to eight words more."""
    lines = text.split("\n")
    comment = "    # " + " ".join(rng.choices(WORDS, k=rng.randint(3, 8)))
    lines.insert(rng.randrange(1, len(lines)), comment)
    return "\n".join(lines)


def rename_one(text: str, rng: random.Random) -> str:
    """Return a text in which one name has become another everywhere."""
    names = names_of(text)
    if not names:
        return add_space(text, rng)
    name = rng.choice(names)
    return re.sub(rf"\b{name}\b", f"{name}_{rng.randrange(10)}", text)


def edit_line(text: str, rng: random.Random) -> str:
    """Return a text in which a line after the first is gone, or there twice."""
    lines = text.rstrip("\n").split("\n")
    place = rng.randrange(1, len(lines))
    lines[place : place + 1] = [lines[place]] * rng.choice((0, 2))
    return "\n".join(lines) + "\n"


EDITS: dict[str, Callable[[str, random.Random], str]] = {
    "space": add_space,
    "comment": add_comment,
    "rename": rename_one,
    "edit": edit_line,
}


def names_of(text: str) -> list[str]:
    """Return the names of a text that may be changed, in the order of their first use."""
    return [name for name in dict.fromkeys(NAME.findall(text)) if name not in RESERVED]


def vary(text: str, rng: random.Random) -> str:
    """Return a function of the same form but with other numbers and half of the names changed."""
    changed = {name for name in names_of(text) if rng.random() < 0.5}
    suffix = f"_{rng.randrange(1000)}"
    text = NAME.sub(lambda m: m[0] + suffix if m[0] in changed else m[0], text)
    return NUMBER.sub(lambda m: str(rng.randrange(1, 10_000)), text)


# --- the corpus -----------------------------------------------------------------------------


def make_corpus(functions: list[str], count: int, seed: int) -> tuple[list[str], list[Copy]]:
    """Return a corpus, and the copies in it.

    Raises:
        SystemExit: there are too few functions.
    """
    rng = random.Random(seed)
    copies = round(count * COPIES)
    if count - copies > len(functions):
        raise SystemExit(f"{count} documents need {count - copies} of {len(functions)} functions")
    originals = rng.sample(functions, count - copies)
    kinds = [rng.choice(list(EDITS)) for _ in range(copies)]
    of = rng.sample(range(len(originals)), copies)
    texts = originals + [EDITS[kind](originals[i], rng) for kind, i in zip(kinds, of, strict=True)]
    order = rng.sample(range(count), count)
    place = {number: position for position, number in enumerate(order)}
    known = [
        (place[len(originals) + k], place[i], kind)
        for k, (i, kind) in enumerate(zip(of, kinds, strict=True))
    ]
    return [texts[number] for number in order], known


def corpus_files(cache: Path, count: int, seed: int) -> tuple[Path, Path]:
    """Return the files of a corpus and of its copies, made where they are not there yet."""
    folder = cache / f"corpus-{count}-{seed}"
    documents, copies = folder / "corpus.jsonl", folder / "copies.json"
    if not documents.exists():
        texts, known = make_corpus(all_functions(cache), count, seed)
        folder.mkdir(parents=True, exist_ok=True)
        copies.write_text(json.dumps(known))
        _write_lines(documents, texts)
    return documents, copies


def read_texts(path: Path) -> list[str]:
    """Return the texts of a file with one JSON object per line."""
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line)["text"] for line in lines]


def _write_lines(path: Path, texts: list[str]) -> None:
    temporary = path.with_suffix(".tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps({"id": i, "text": t}) + "\n" for i, t in enumerate(texts))
    temporary.replace(path)


def main() -> None:
    """Make a corpus and print what it holds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cache", type=Path)
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    documents, copies = corpus_files(given.cache, given.count, given.seed)
    known = json.loads(copies.read_text())
    print(f"{documents}: {given.count} documents, {len(known)} of them copies")


if __name__ == "__main__":
    main()
