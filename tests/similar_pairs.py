"""All pairs of texts that are alike, as one index finds them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from curate.clean.similar.minhash import Index, Sketches


def confirmed_pairs(sketches: Sketches, threshold: float) -> Iterator[tuple[int, int, float]]:
    """Yield i < j and the similarity of all texts that are candidates and reach a threshold."""
    index = Index(sketches)
    for texts, pairs in index.walk(np.arange(len(sketches)), threshold):
        for j, i, similarity in zip(*(column.tolist() for column in pairs), strict=True):
            yield i, j, similarity
        index.add(texts)
