"""Daft: its `minhash` expression. It has no bands: those are a table of bytes in this script."""

from importlib.metadata import version

import daft
import numpy as np
from contest import BANDS, PERMUTATIONS, ROWS, SHINGLE, contest

HOW = (
    "\\w+ 5-grams, words set apart by a regular expression of Daft's; the bands are this script's; "
    "a document is dropped when one that is kept agrees with it in a band"
)

given = contest()
table = daft.from_pydict({"text": given.texts()})


def dedupe() -> list[int]:
    with given.stage("shingle and sign"):
        words = daft.functions.regexp_replace(daft.col("text"), r"\W+", " ")
        sign = daft.functions.minhash(words, num_hashes=PERMUTATIONS, ngram_size=SHINGLE, seed=1)
        signed = table.select(sign.alias("signature")).to_arrow()
        values = signed["signature"].combine_chunks().flatten()
        signatures = np.asarray(values, np.uint32).reshape(-1, PERMUTATIONS)
    with given.stage("band and decide"):
        return drop(signatures)


def drop(signatures: np.ndarray) -> list[int]:
    """Return the documents that agree in a band with one before that is kept."""
    buckets: list[set[bytes]] = [set() for _ in range(BANDS)]
    dropped = []
    for number, signature in enumerate(signatures):
        row = signature.tobytes()
        bands = [row[4 * ROWS * i : 4 * ROWS * (i + 1)] for i in range(BANDS)]
        if any(band in bucket for band, bucket in zip(bands, buckets, strict=True)):
            dropped.append(number)
            continue
        for band, bucket in zip(bands, buckets, strict=True):
            bucket.add(band)
    return dropped


given.measure(dedupe, {"daft": version("daft")}, HOW)
