"""The lines of `provenance.jsonl`."""

import json
from pathlib import Path

from curate.formats.dataset.provenance import PROVENANCE_FILE, provenance_line, read_provenance
from curate.rows import make_origin, make_row

LICENSE = {"expression": "MIT", "copyright": ["Copyright 2024 Zo\u00eb\u2028Ada\nGrace"]}


def test_a_line_is_one_line_of_ascii_that_holds_the_rows_own_fields(tmp_path: Path) -> None:
    row = make_row("pair", "x", make_origin("pypi", path="a.py"), license=LICENSE)
    shown = {"messages/train-*.parquet": 1, "fim/train-*.parquet": 0, "kernelbook/train-*": 2}
    line = provenance_line(row, shown)
    assert line.isascii() and len(line.splitlines()) == 1
    (tmp_path / PROVENANCE_FILE).write_text(line + line)
    known = {name: row[name] for name in ("id", "kind", "parent_ids", "origin", "license")}
    files = {"messages/train-*.parquet": 1, "kernelbook/train-*": 2}
    assert list(read_provenance(tmp_path)) == [{**known, "files": files}] * 2
    assert list(json.loads(line)) == ["id", "kind", "files", "parent_ids", "origin", "license"]
