"""An index from grams to what holds them: which share of an item's grams a program has."""

from __future__ import annotations

import base64

import numpy as np
from numpy.typing import NDArray

from curate.clean.similar.minhash import U32, Indices, spans

Scores = NDArray[np.float64]


class GramIndex:
    """Finds the parts that hold a gram."""

    def __init__(self, hashes: list[U32], owners: Indices, items: int) -> None:
        """Take the grams of each part, and the number of the item that it belongs to."""
        grams = np.concatenate([np.zeros(0, np.uint32), *hashes])
        parts = np.repeat(np.arange(len(hashes)), [len(own) for own in hashes])
        of_items = np.unique(owners[parts].astype(np.uint64) << np.uint64(32) | grams)
        self._keys, counts = np.unique(of_items.astype(np.uint32), return_counts=True)
        self._weights: Scores = np.log((items + 1) / counts)
        places = np.searchsorted(self._keys, grams)
        self._totals = np.bincount(parts, self._weights[places], len(hashes))
        order = np.argsort(places, kind="stable")
        self._parts = parts[order]
        self._begins = np.searchsorted(places[order], np.arange(len(self._keys) + 1))

    def overlap(self, grams: U32) -> Scores:
        """Return the weighed share of each part's grams that are among these."""
        found = np.flatnonzero(np.isin(self._keys, grams, assume_unique=True))
        begins, counts = self._begins[found], self._begins[found + 1] - self._begins[found]
        parts = self._parts[spans(begins, counts)]
        weights = np.repeat(self._weights[found], counts)
        return np.bincount(parts, weights, len(self._totals)) / self._totals


def from_base64(text: str) -> U32:
    """Return the numbers of 32 bits that a fingerprint file holds as text."""
    return np.frombuffer(base64.b64decode(text), "<u4")
