import polars as pl

from curate.formats.split import Split
from curate.step import Context

KERNEL = """\
@triton.jit
def {name}_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    {body}
    tl.store(out_ptr + offsets, x, mask=mask)
"""


def different(i: int) -> str:
    return f"def kernel_{i}():\n" + "".join(
        f"    v{i}_{j} = f{i * 31 + j}(w{j})\n" for j in range(30)
    )


def judge(programs: dict[str, str], files: dict[str, str] | None = None, **options: float) -> dict:
    ids = list(programs)
    origins = [{"artifact_sha256": "a", "path": (files or {}).get(row)} for row in ids]
    table = pl.DataFrame({"id": ids, "triton": list(programs.values()), "origin": origins})
    frame = Split(step="split", **options).judge(table, Context(seed=0))
    return {row["id"]: row for row in frame.to_dicts()}


def test_near_duplicates_are_one_cluster() -> None:
    one = KERNEL.format(name="add", body="x = x + 1.0")
    two = KERNEL.format(name="add", body="x = x + 2.0")
    verdicts = judge({"a": one, "b": two, "c": different(1)}, threshold=0.7)
    assert verdicts["a"]["cluster"] == verdicts["b"]["cluster"] != verdicts["c"]["cluster"]


def test_rows_of_one_file_are_one_cluster() -> None:
    programs = {name: different(i) for i, name in enumerate("abcd")}
    verdicts = judge(programs, {"a": "x.py", "c": "x.py", "d": "y.py"})
    assert verdicts["a"]["cluster"] == verdicts["c"]["cluster"]
    assert len({v["cluster"] for v in verdicts.values()}) == 3


def test_clusters_fall_into_splits_as_asked() -> None:
    programs = {f"{i:03}": different(i) for i in range(400)}
    verdicts = judge(programs, validation=0.2, test=0.3)
    splits = [v["split"] for v in verdicts.values()]
    assert 0.2 < splits.count("test") / 400 < 0.4
    assert 0.1 < splits.count("validation") / 400 < 0.3
    assert verdicts == judge(dict(reversed(programs.items())), validation=0.2, test=0.3)


def test_rows_that_are_added_move_no_others() -> None:
    old = {f"{i:03}": different(i) for i in range(0, 300, 2)}
    new = old | {f"{i:03}x": different(i) for i in range(1, 30, 2)}
    new |= {f"{i:03}y": different(i) + "    return w0\n" for i in range(0, 30, 2)}
    before, after = judge(old, test=0.3), judge(new, test=0.3)
    assert {row: after[row] for row in old} == before
    assert all(after[f"{i:03}y"]["cluster"] == f"{i:03}" for i in range(0, 30, 2))
