"""The YAML head of a data set's README: what the Hub and `datasets` read.

Fields: https://github.com/huggingface/hub-docs/blob/main/datasetcard.md?plain=1 and, for
``dataset_info``, what `datasets` writes there itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from curate.formats.dataset.index import INDEX_FILE
from curate.licenses.policy import UnknownLicense, license_ids

SPLITS = ("train", "validation", "test")

ON_THE_HUB = {
    "Apache-2.0": "apache-2.0",
    "BSD-2-Clause": "bsd-2-clause",
    "BSD-3-Clause": "bsd-3-clause",
    "BSL-1.0": "bsl-1.0",
    "CC0-1.0": "cc0-1.0",
    "ISC": "isc",
    "MIT": "mit",
    "Unlicense": "unlicense",
    "Zlib": "zlib",
}
"""The Hub's names for licenses, by SPDX id; others are ``other`` there."""

SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)
SIZE_NAMES = ("1K", "10K", "100K", "1M", "10M", "100M")
DTYPES = {"bool": "bool", "float": "float32", "double": "float64", "int32": "int32"}
DTYPES |= {"int64": "int64", "string": "string"}


def front_matter(folder: Path, run: dict[str, Any]) -> str:
    """Return the head of the README of the data set in a folder, between its two lines ``---``.

    Args:
        folder: has the files of every config and ``index.parquet``.
        run: what ``run.json`` holds, but for the README itself.
    """
    configs = read_configs(folder, run)
    licenses = set(pq.read_table(folder / INDEX_FILE, columns=["license"])["license"].to_pylist())
    rows = max((config.rows for config in configs), default=0)
    head = {
        **_license(filter(None, licenses)),
        "language": ["en", "code"],
        "pretty_name": run["recipe"]["name"],
        "task_categories": ["text-generation"],
        "tags": ["triton", "gpu-kernels", "code", "pytorch"],
        "size_categories": [_size(rows)],
        "annotations_creators": ["machine-generated"],
        "source_datasets": _sources(run["recipe"].get("sources", [])),
        "configs": [config.entry(default=config is configs[0]) for config in configs],
        "dataset_info": [config.info() for config in configs],
    }
    return f"---\n{yaml.safe_dump(head, sort_keys=False, allow_unicode=True)}---\n"


def read_configs(folder: Path, run: dict[str, Any]) -> list[Config]:
    """Return a data set's configs, the default one first."""
    configs = [Config(folder, name, splits) for name, splits in run["configs"].items()]
    # The viewer opens the default one, and shows nested columns as walls of JSON.
    flat = next((config for config in configs if not config.is_nested), None)
    return sorted(configs, key=lambda config: config is not flat)


def _license(expressions: Iterable[str]) -> dict[str, Any]:
    try:
        found = sorted({key for expression in expressions for key in license_ids(expression)})
    except UnknownLicense:
        found = []
    if not found or any(key not in ON_THE_HUB for key in found):
        name, link = "spdx-id-per-row", "https://spdx.org/licenses/"
        return {"license": "other", "license_name": name, "license_link": link}
    names = [ON_THE_HUB[key] for key in found]
    return {"license": names if len(names) > 1 else names[0]}


def _size(rows: int) -> str:
    below = next((i for i, most in enumerate(SIZES) if rows < most), len(SIZES))
    if below == 0:
        return "n<1K"
    if below == len(SIZES):
        return "100M<n<1B"
    return f"{SIZE_NAMES[below - 1]}<n<{SIZE_NAMES[below]}"


def _sources(sources: list[dict[str, Any]]) -> list[str]:
    """Return the data sets that rows come from, and ``original`` if some do not."""
    datasets = [s["dataset"].partition("@")[0] for s in sources if s.get("dataset")]
    own = ["original"] if len(datasets) < len(sources) or not sources else []
    return own + sorted(set(datasets))


class Config:
    """What the footers of a config's Parquet files say.

    Attributes:
        splits: their names, in order.
        schema, columns: of all of them, and their names, in order.
        rows: of all splits.
    """

    def __init__(self, folder: Path, name: str, splits: dict[str, int]) -> None:
        """Read them; ``splits`` has how many rows there are in each."""
        self.name, self.splits = name, [split for split in SPLITS if split in splits]
        self.rows = sum(splits.values())
        self._counts = splits
        self._paths = {s: sorted((folder / name).glob(f"{s}-*.parquet")) for s in self.splits}
        first = next(path for paths in self._paths.values() for path in paths)
        self.schema = pq.read_schema(first)
        self.columns: list[str] = self.schema.names

    def count(self, split: str) -> int:
        """Return how many rows a split has."""
        return self._counts.get(split, 0)

    @property
    def is_nested(self) -> bool:
        """Whether a column holds columns."""
        return any(pa.types.is_struct(field.type) for field in self.schema)

    def entry(self, default: bool) -> dict[str, Any]:
        """Return what tells `datasets` where the files lie."""
        paths = {split: f"{self.name}/{split}-*.parquet" for split in self.splits}
        files = [{"split": split, "path": path} for split, path in paths.items()]
        first = {"default": True} if default else {}
        return {"config_name": self.name, **first, "data_files": files}

    def info(self) -> dict[str, Any]:
        """Return what `datasets` writes of a config: its columns and sizes."""
        sizes = {split: sum(map(_uncompressed, paths)) for split, paths in self._paths.items()}
        return {
            "config_name": self.name,
            "features": list(features(self.schema)),
            "splits": [
                {"name": split, "num_bytes": size, "num_examples": self._counts[split]}
                for split, size in sizes.items()
            ],
            "download_size": sum(p.stat().st_size for ps in self._paths.values() for p in ps),
            "dataset_size": sum(sizes.values()),
        }


def _uncompressed(path: Path) -> int:
    footer = pq.read_metadata(path)
    return sum(footer.row_group(i).total_byte_size for i in range(footer.num_row_groups))


def features(fields: Iterable[pa.Field]) -> Iterator[dict[str, Any]]:
    """Yield columns as `datasets` describes them in YAML."""
    for field in fields:
        yield {"name": field.name, **_feature(field.type)}


def _feature(kind: pa.DataType) -> dict[str, Any]:
    if pa.types.is_struct(kind):
        return {"struct": list(features(kind))}
    if pa.types.is_list(kind):
        inner = _feature(kind.value_type)
        return {"list": inner.get("struct") or inner.get("dtype") or inner}
    return {"dtype": DTYPES[str(kind)]}
