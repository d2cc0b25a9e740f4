"""What teachers were asked and what they answered: one SQLite file for an output folder.

An answer is never changed or asked for again. A request is written down before it is sent, with
the most that it may cost, so that caps hold over all processes and after a kill; when its cost is
known, that takes the place of the most.

The file has a rollback journal, SQLite's default, and not WAL: WAL needs all processes on one
machine (https://sqlite.org/wal.html), and those of `curate run --shard` may be on several. On a
busy disk a transaction takes 20 ms, and a request has two: at most some 25 requests a second.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import astuple, dataclass
from operator import add, sub
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, Field

from curate.engine.store import digest

BUSY_S = 60.0  # seconds that one process waits for another's transaction

_TABLES = """
CREATE TABLE IF NOT EXISTS requests (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL,      -- what was asked: the Idempotency-Key
    address TEXT NOT NULL,
    model TEXT NOT NULL,
    sent REAL NOT NULL,     -- seconds since 1970: when it was, or is to be, sent
    tokens INTEGER NOT NULL,
    cost REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS answers (
    key TEXT PRIMARY KEY,
    address TEXT NOT NULL,
    model TEXT NOT NULL,
    request TEXT NOT NULL,  -- JSON
    answer TEXT NOT NULL,   -- JSON, as it came
    prompt_tokens INTEGER,
    completion_tokens INTEGER,
    cost REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS new_limit (  -- where max_tokens is refused for max_completion_tokens
    address TEXT NOT NULL,
    model TEXT NOT NULL,
    PRIMARY KEY (address, model)
) WITHOUT ROWID;
"""


class AnswerAddress(NamedTuple):
    """Where a request goes: the endpoint's address, and the model."""

    address: str
    model: str


class _Message(BaseModel):
    content: str | None = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Tokens(BaseModel):
    prompt_tokens: int
    completion_tokens: int


class TeacherAnswer(BaseModel):
    """The part of a chat completion that is read.

    https://platform.openai.com/docs/api-reference/chat/object; servers leave much of it out.
    """

    choices: list[_Choice] = Field(min_length=1)
    usage: _Tokens | None = None

    @property
    def text(self) -> str:
        """What the model said; empty if it said nothing."""
        return self.choices[0].message.content or ""

    @property
    def refusal(self) -> str | None:
        """Why the model refused, where its server tells refusals apart."""
        return self.choices[0].message.refusal

    @property
    def finish(self) -> str | None:
        """Why the model stopped: ``stop``, ``length``, ``content_filter`` …"""
        return self.choices[0].finish_reason


@dataclass(frozen=True)
class Cost:
    """What requests cost, or may: tokens in and out, and money by the recipe's prices."""

    tokens: int = 0
    money: float = 0.0


@dataclass(frozen=True)
class TokenUsage:
    """What was asked and what it took, whichever run asked it.

    Attributes:
        requests: that were sent, repeated ones and those without an answer as well.
        repeated: of the requests, those that were not the first of their kind.
        answers: that were kept.
        uncounted: of the answers, those whose tokens the endpoint did not count.
        prompt_tokens, completion_tokens: of the other answers, as the endpoint counted them.
        cost: of the answers, by the recipe's prices; 0 where it named none, the most that it may
            be where tokens were not counted.
    """

    requests: int = 0
    repeated: int = 0
    answers: int = 0
    uncounted: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0

    def __add__(self, other: TokenUsage) -> TokenUsage:
        return self._with(other, add)

    def __sub__(self, other: TokenUsage) -> TokenUsage:
        return self._with(other, sub)

    def _with(self, other: TokenUsage, combine: Callable[[Any, Any], Any]) -> TokenUsage:
        return TokenUsage(*map(combine, astuple(self), astuple(other)))


class CapReached(Exception):
    """A request might take more than a cap leaves; the message names the cap and what is spent."""


class Answers:
    """The file, opened by one process; a forked child opens its own."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
        self._file.executescript(_TABLES)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._file.execute("BEGIN IMMEDIATE")
        with self._file:
            yield

    def find(self, key: str) -> TeacherAnswer | None:
        """Return what was answered to a request, or None."""
        query = "SELECT answer FROM answers WHERE key = ?"
        found = self._file.execute(query, (key,)).fetchone()
        return TeacherAnswer.model_validate_json(found[0]) if found else None

    def begin(
        self,
        key: str,
        place: AnswerAddress,
        most: Cost,
        caps: dict[str, float],
        per_minute: float | None,
    ) -> tuple[int, float]:
        """Write down a request that is about to be sent.

        Args:
            key: of the request.
            place: that it goes to.
            most: that it may cost.
            caps: on ``requests``, ``tokens`` and ``money``, over all that the file holds.
            per_minute: requests to this place; they are sent at even intervals.

        Returns:
            A number for `settle`, and the seconds to wait before it is sent.

        Raises:
            CapReached: it is not to be sent.
        """
        now = time.time()
        with self._transaction():
            self._check(most, caps)
            last = "SELECT max(sent) FROM requests WHERE address = ? AND model = ?"
            sent = now
            if per_minute and (before := self._file.execute(last, place).fetchone()[0]):
                sent = max(now, before + 60 / per_minute)
            row = (key, *place, sent, most.tokens, most.money)
            cursor = self._file.execute(
                "INSERT INTO requests (key, address, model, sent, tokens, cost) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                row,
            )
        assert cursor.lastrowid
        return cursor.lastrowid, sent - now

    def _check(self, most: Cost, caps: dict[str, float]) -> None:
        if not caps:
            return
        query = "SELECT count(*), total(tokens), total(cost) FROM requests"
        spent = self._file.execute(query).fetchone()
        asked = (1, most.tokens, most.money)
        for name, before, more in zip(("requests", "tokens", "money"), spent, asked, strict=True):
            if name in caps and before + more > caps[name]:
                raise CapReached(
                    f"the cap of {caps[name]:,} {name} is reached: {before:,g} are spent or under "
                    f"way, and the next request may take {more:,g}"
                )

    def has_new_limit(self, place: AnswerAddress) -> bool:
        """Say whether a place takes ``max_completion_tokens`` and no ``max_tokens``."""
        query = "SELECT 1 FROM new_limit WHERE address = ? AND model = ?"
        return self._file.execute(query, place).fetchone() is not None

    def set_new_limit(self, place: AnswerAddress) -> None:
        """Remember that a place takes ``max_completion_tokens`` and no ``max_tokens``."""
        with self._transaction():
            self._file.execute("INSERT OR IGNORE INTO new_limit VALUES (?, ?)", place)

    def settle(self, request: int, cost: Cost) -> None:
        """Put what a request cost in the place of the most that it might have."""
        with self._transaction():
            self._settle(request, cost)

    def _settle(self, request: int, cost: Cost) -> None:
        query = "UPDATE requests SET tokens = ?, cost = ? WHERE id = ?"
        self._file.execute(query, (cost.tokens, cost.money, request))

    def add(
        self, request: int, body: dict[str, Any], raw: str, answer: TeacherAnswer, cost: Cost
    ) -> None:
        """Keep a request's answer, for good, and settle it."""
        used = answer.usage
        tokens = (used.prompt_tokens, used.completion_tokens) if used else (None, None)
        with self._transaction():
            self._settle(request, cost)
            self._file.execute(
                "INSERT OR IGNORE INTO answers "
                "SELECT key, address, model, ?, ?, ?, ?, ? FROM requests WHERE id = ?",
                (json.dumps(body, sort_keys=True), raw, *tokens, cost.money, request),
            )


def request_key(address: str, body: dict[str, Any], number: int) -> str:
    """Return the key of a request to an endpoint for answer ``number``, as first put together."""
    return digest(address, body, number)


def answers_file(cache: Path) -> Path:
    """Return where the answers lie in a run's cache folder."""
    return cache / "teacher" / "answers.sqlite"


_SUMS = """
SELECT {by} coalesce(sum(sent), 0), coalesce(sum(sent - 1), 0), count(answers.key),
    coalesce(sum(answers.key IS NOT NULL AND prompt_tokens IS NULL), 0),
    coalesce(sum(prompt_tokens), 0), coalesce(sum(completion_tokens), 0), total(cost)
FROM (SELECT key, address, model, count(*) AS sent FROM requests {which} GROUP BY key) AS asked
    LEFT JOIN answers ON answers.key = asked.key
"""


def usage(output: Path) -> dict[AnswerAddress, TokenUsage]:
    """Return what each model was asked and what it took, over all runs in an output folder."""
    path = answers_file(output / "cache")
    if not path.exists():
        return {}
    query = _SUMS.format(by="asked.address, asked.model,", which="")
    with closing(sqlite3.connect(path, timeout=BUSY_S)) as file:
        rows = file.execute(f"{query} GROUP BY asked.address, asked.model ORDER BY 2, 1").fetchall()
    return {AnswerAddress(*row[:2]): TokenUsage(*row[2:]) for row in rows}


def total_usage(output: Path) -> TokenUsage:
    """Return the sum of `usage` over all models."""
    return sum(usage(output).values(), TokenUsage())


def usage_of(output: Path, keys: Iterable[str]) -> TokenUsage | None:
    """Return what some requests took, by their keys; None where no answers are kept."""
    path = answers_file(output / "cache")
    if not path.exists():
        return None
    query = _SUMS.format(by="", which="WHERE key IN (SELECT key FROM wanted)")
    with closing(sqlite3.connect(path, timeout=BUSY_S)) as file:
        file.execute("CREATE TEMP TABLE wanted (key TEXT PRIMARY KEY) WITHOUT ROWID")
        file.executemany("INSERT OR IGNORE INTO wanted VALUES (?)", ((key,) for key in keys))
        return TokenUsage(*file.execute(query).fetchone())
