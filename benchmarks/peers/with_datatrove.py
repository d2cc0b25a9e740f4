"""datatrove: the first three of its MinHash steps; the fourth only writes what is kept.

Its default tokenizer for English is spaCy's, an order of magnitude slower: it gets words by a
regular expression in its place.
"""

import contextlib
import re
import struct
import tempfile
from importlib.metadata import version
from pathlib import Path

from contest import BANDS, ROWS, SHINGLE, contest
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.dedup.minhash import (
    MinhashConfig,
    MinhashDedupBuckets,
    MinhashDedupCluster,
    MinhashDedupSignature,
)
from datatrove.pipeline.readers import JsonlReader
from datatrove.utils.logging import logger
from datatrove.utils.word_tokenizers import WordTokenizer

HOW = (
    "\\w+ 5-grams of its simplified text (lower case, no punctuation, numbers alike); reads the "
    "corpus from disk; of each connected component of agreements in a band one document is kept"
)

logger.remove()
given = contest()
config = MinhashConfig(n_grams=SHINGLE, num_buckets=BANDS, hashes_per_bucket=ROWS)


class Words(WordTokenizer):
    """Words by a regular expression."""

    def __init__(self) -> None:
        super().__init__("en")
        self.pattern = re.compile(r"\w+")

    def word_tokenize(self, text: str) -> list[str]:
        return self.pattern.findall(text)

    def sent_tokenize(self, text: str) -> list[str]:
        return [text]

    def span_tokenize(self, text: str) -> list[tuple[int, int]]:
        return [match.span() for match in self.pattern.finditer(text)]


def split_corpus(folder: Path) -> list[list[int]]:
    """Write the corpus as one file per worker; return the numbers of the documents in each."""
    lines = given.corpus.read_text(encoding="utf-8").split("\n")[:-1]
    size = -(-len(lines) // given.workers)
    parts = [range(i, min(i + size, len(lines))) for i in range(0, len(lines), size)]
    for number, part in enumerate(parts):
        text = "".join(lines[i] + "\n" for i in part)
        (folder / f"{number}.jsonl").write_text(text, encoding="utf-8")
    return [list(part) for part in parts]


def pipe(work: Path, steps: list, tasks: int) -> None:
    """Run steps in as many processes as are allowed."""
    workers = min(given.workers, tasks)
    logs = str(work / "logs" / type(steps[-1]).__name__)
    LocalPipelineExecutor(steps, tasks=tasks, workers=workers, logging_dir=logs).run()


def dedupe(work: Path, parts: list[list[int]]) -> list[int]:
    with given.stage("shingle and sign"):
        reader = JsonlReader(str(work / "corpus"))
        sign = MinhashDedupSignature(str(work / "signatures"), config, Words())
        pipe(work, [reader, sign], len(parts))
    with given.stage("band"):
        band = MinhashDedupBuckets(str(work / "signatures"), str(work / "buckets"), config=config)
        pipe(work, [band], BANDS)
    with given.stage("cluster"):
        cluster = MinhashDedupCluster(str(work / "buckets"), str(work / "remove"), config)
        pipe(work, [cluster], 1)
    dropped = []
    for number, part in enumerate(parts):
        with contextlib.suppress(FileNotFoundError):
            data = (work / "remove" / f"{number:06d}.remove").read_bytes()
            dropped += [part[i] for (i,) in struct.iter_unpack("<I", data)]
    return dropped


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "corpus").mkdir()
        parts = split_corpus(work / "corpus")
        versions = {"datatrove": version("datatrove")}
        given.measure(lambda: dedupe(work, parts), versions, HOW)


if __name__ == "__main__":
    main()
