"""``index.parquet``: one line for every row of a data set, whatever views show it.

It is small, so that two versions can be compared without their code, and has what must hold for
the data set to be published: a license, an origin, and one split for each cluster.
"""

from __future__ import annotations

from typing import cast

import pyarrow as pa

from curate.formats.format import PROOF, proof
from curate.rows import Loose, ProvenRow

INDEX_FILE = "index.parquet"
INDEX = pa.schema(
    [
        *PROOF,
        ("kind", pa.string()),
        ("split", pa.string()),
        ("cluster", pa.string()),
    ]
)


def index_row(row: Loose, split: str) -> Loose:
    """Return the line of a row that is written to a split."""
    return {
        **proof(cast(ProvenRow, row)),
        "kind": row["kind"],
        "split": split,
        "cluster": row["cluster"],
    }
