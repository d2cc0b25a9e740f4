"""curate: the step ``dedupe`` as a run does it: shards summarized by workers, one judgement.

With ``near`` as a fourth argument the tier of renamed copies, which no other contestant has, is
left out; exact copies and near duplicates remain.
"""

import multiprocessing
import os
import sys
import tempfile
from functools import partial
from importlib.metadata import version
from pathlib import Path

os.environ.setdefault("POLARS_MAX_THREADS", str(len(os.sched_getaffinity(0))))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from contest import THRESHOLD, contest

from curate.clean import dedupe as tiers
from curate.engine.store import Store, lost_table, rows_table
from curate.engine.table import Summary, judge, summarize
from curate.rows import make_origin, make_row
from curate.step import Context

HOW = (
    "5-grams of words and signs; reads the corpus from disk; a document is dropped when one that "
    "is kept agrees with it in a band and has an exact similarity of 0.7"
)
SHARD = 1024
STEP = tiers.Dedupe(step="dedupe", column="text", similarity=THRESHOLD)


def write_shards(texts: list[str], store: Store) -> list[str]:
    """Write the corpus as the shards of a source; return their keys."""
    keys = []
    for start in range(0, len(texts), SHARD):
        rows = []
        for number, text in enumerate(texts[start : start + SHARD], start):
            origin = make_origin("local", path=f"{number:08}.py")
            rows.append(make_row("file", text, origin, text=text))
        keys.append(f"{start:08}")
        table = rows_table(rows)
        store.commit("source", keys[-1], None, table, lost_table([]), seen=len(rows))
    return keys


def dedupe(keys: list[str], context: Context) -> list[int]:
    with given.stage("summarize"):
        work = partial(summarize, STEP, context=context)
        summaries = [Summary("source", key, key) for key in keys]
        if given.workers == 1:
            list(map(work, summaries))
        else:
            with multiprocessing.get_context("spawn").Pool(given.workers) as pool:
                list(pool.imap_unordered(work, summaries))
    with given.stage("judge"):
        verdicts = judge(STEP, keys, context)
    given.reasons = dict(enumerate(verdicts["reason"]))
    return [number for number, reason in given.reasons.items() if reason]


given = contest()
if sys.argv[4:] == ["near"]:
    tiers.canonical_tokens = lambda code: []  # too few for two documents to be the same
if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        shards = write_shards(given.texts(), Store(root))
        names = ("numpy", "polars", "pyarrow")
        versions = {"curate": f"dedupe {STEP.version}", **{name: version(name) for name in names}}
        given.measure(lambda: dedupe(shards, Context(cache=root / "cache")), versions, HOW)
