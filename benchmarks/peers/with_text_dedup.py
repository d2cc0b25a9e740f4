"""text-dedup: its MinHash program, on a data set that is on disk already, in its own form."""

import logging
import tempfile
from importlib.metadata import version
from pathlib import Path

import datasets
from contest import BANDS, PERMUTATIONS, ROWS, SHINGLE, THRESHOLD, contest
from text_dedup import minhash

HOW = (
    "its own 5-grams of what stands between non-word characters, empty strings among them; xxh3; "
    "reads the corpus from disk; of each connected component of agreements in a band one document "
    "is kept"
)

given = contest()


def dedupe(work: Path) -> list[int]:
    arguments = {
        "--path": work / "corpus",
        "--output": work / "kept",
        "--cache_dir": work / "cache",
        "--column": "text",
        "--num_proc": given.workers,
        "--ngram": SHINGLE,
        "--num_perm": PERMUTATIONS,
        "--b": BANDS,
        "--r": ROWS,
        "--threshold": THRESHOLD,
        "--hash_func": "xxh3",
    }
    words = [str(word) for pair in arguments.items() for word in pair]
    minhash.main([*words, "--local"], standalone_mode=False)
    kept = set(datasets.load_from_disk(str(work / "kept"))["id"])
    return [number for number in range(count) if number not in kept]


logging.disable(logging.CRITICAL)
datasets.disable_progress_bars()
with tempfile.TemporaryDirectory() as folder:
    texts = given.texts()
    count = len(texts)
    data = datasets.Dataset.from_dict({"id": range(count), "text": texts})
    data.save_to_disk(f"{folder}/corpus")
    del texts, data
    given.measure(lambda: dedupe(Path(folder)), {"text-dedup": version("text-dedup")}, HOW)
