"""Shards of another day: rows are read in today's columns."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from curate.engine.executor import Lost
from curate.engine.identity import columns_digest
from curate.engine.store import LOST, Store, lost_table, rows_table
from curate.files import Damaged
from curate.generator.inductor import Inductor
from curate.harvest.modules.modules import Modules
from curate.rows import COLUMNS, ROW, STATIC, Loose, make_origin, make_row

FILE = make_row("file", "x = 1\n", make_origin("local", path="a.py"), text="x = 1\n")


def written(tmp_path: Path, table: pa.Table, lost: pa.Table | None = None) -> Store:
    store = Store(tmp_path)
    lost = lost_table([]) if lost is None else lost
    store.commit("step", "key", None, table, lost, seen=len(table) + len(lost), went_on=len(table))
    return store


def test_a_column_that_came_later_is_null(tmp_path: Path) -> None:
    before = rows_table([FILE]).drop_columns(["wiring", "split"])
    store = written(tmp_path, before)
    assert store.rows("step", "key").to_pylist() == [FILE]
    assert store.rows("step", "key").schema == ROW
    assert store.rows("step", "key", ["id", "split"]).column_names == ["id", "split"]


def test_what_was_lost_before_a_field_came_is_read_with_it(tmp_path: Path) -> None:
    static: Loose = {"kernels": 1, "ops": ["add"], "pure_triton": True}
    rows = [
        make_row("pair", str(n), make_origin("local"), static=known, triton="x", reference="y")
        for n, known in enumerate([static, None])
    ]
    old = pa.struct([(name, STATIC.field(name).type) for name in static])
    table = lost_table([Lost(row, "dropped", "why", {}) for row in rows])
    place = table.schema.get_field_index("static")
    before = table.set_column(place, "static", pa.array([static, None], old))
    store = written(tmp_path, rows_table([]), before)
    found = store.lost("step", "key")
    assert found.schema == LOST
    kept, none = found["static"].to_pylist()
    assert none is None
    assert {name: kept[name] for name in static} == static
    assert kept["specialised"] is None and len(kept) == STATIC.num_fields


def test_a_column_of_another_type_is_not_read_as_if_it_were_none(tmp_path: Path) -> None:
    place = ROW.get_field_index("text")
    other = rows_table([FILE]).set_column(place, "text", pa.array([7]))
    with pytest.raises(Damaged, match="text of another type"):
        written(tmp_path, other).rows("step", "key")


def test_a_kind_does_not_know_the_columns_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Modules(step="modules"), Inductor(step="inductor")
    before = [columns_digest(step) for step in steps]
    monkeypatch.setattr("curate.rows.COLUMNS", COLUMNS | {"pair": ("triton", "cluster")})
    after = [columns_digest(step) for step in steps]
    assert before[0] == after[0] and before[1] != after[1]
