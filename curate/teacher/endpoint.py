"""Ask an OpenAI-compatible endpoint: retries, a rate, caps, and nothing asked twice."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

import openai
from pydantic import ValidationError

from curate.step import StepError
from curate.teacher.answers import Answer, Answers, CapReached, Cost, Place, request_key
from curate.teacher.refusals import hide_key, says_too_long

if TYPE_CHECKING:
    from pathlib import Path

    from curate.teacher.teacher import Teacher

ATTEMPTS = 8  # of one request, over about a minute
FIRST_WAIT_S = 0.5  # before the second attempt; it doubles from one to the next
LONGEST_WAIT_S = 300.0  # that an endpoint may ask for with Retry-After
REJECTED = ("content_filter", "content_policy_violation")
NEW_LIMIT = "max_completion_tokens"  # what OpenAI's reasoning models call max_tokens


class NotAnswered(Exception):
    """The endpoint will not answer this request; ``reason`` is that of a drop."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class GaveUp(Exception):
    """The endpoint failed at every attempt; the message says how at the last."""


class _TryAgain(Exception):
    """An attempt failed in a way that passes.

    Attributes:
        wait_s: seconds that the endpoint asks to wait; None if it does not say.
        free: it says itself that it did nothing, so that the request costs nothing.
    """

    def __init__(self, message: str, wait_s: float | None = None, free: bool = False) -> None:
        super().__init__(message)
        self.wait_s, self.free = wait_s, free


class _NewLimit(_TryAgain):
    """The endpoint wants the field `NEW_LIMIT` for ``max_tokens``."""


class Endpoint:
    """An endpoint and the options of the step that asks it; forked children share it."""

    def __init__(
        self, options: Teacher, key: str, file: Path, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.options, self.file, self.sleep = options, file, sleep
        self.address = options.address()
        self.place = Place(self.address, options.model)
        self._key = key
        client = openai.OpenAI(
            base_url=self.address, api_key=key, timeout=options.request_timeout_s, max_retries=0
        )
        self._create = client.chat.completions.with_raw_response.create  # imports much, once

    def ask(self, body: dict[str, Any], number: int) -> Answer:
        """Return the answer to a request, from the file if it is there.

        Args:
            body: of the request.
            number: of this answer among those to the same request.

        Raises:
            NotAnswered: the request is too long, or against the endpoint's policy.
            StepError: no request will be answered: the key or the model is wrong, a cap is reached.
            GaveUp: the endpoint failed again and again.
        """
        key = request_key(self.address, body, number)
        answers = Answers(self.file)
        try:
            return answers.find(key) or self._ask(answers, body, key)
        finally:
            answers.close()

    def _ask(self, answers: Answers, body: dict[str, Any], key: str) -> Answer:
        for attempt in range(1, ATTEMPTS + 1):
            request = self._begin(answers, body, key)
            try:
                sent = _with_new_limit(body) if answers.has_new_limit(self.place) else body
                raw = self._send(sent, key)
                answer = _parsed(raw)
            except _TryAgain as failure:
                if failure.free:
                    answers.settle(request, Cost())
                if isinstance(failure, _NewLimit):
                    answers.set_new_limit(self.place)
                if attempt == ATTEMPTS:
                    raise GaveUp(f"{self.address} failed {attempt} times: {failure}") from None
                self.sleep(_wait(attempt, key) if failure.wait_s is None else failure.wait_s)
                continue
            except (NotAnswered, StepError):
                answers.settle(request, Cost())
                raise
            answers.add(request, sent, raw, answer, self._cost(body, answer))
            return answer
        raise AssertionError("the last attempt returns or raises")

    def _begin(self, answers: Answers, body: dict[str, Any], key: str) -> int:
        """Have a request counted, and return when it may be sent."""
        options = self.options
        caps = options.caps.model_dump(exclude_none=True)
        try:
            request, wait = answers.begin(
                key, self.place, self._cost(body), caps, options.requests_per_minute
            )
        except CapReached as cap:
            raise StepError(
                f"step teacher: {cap}. What was answered is kept: raise the cap in the recipe, and "
                "the same command goes on"
            ) from None
        if wait > 0:
            self.sleep(wait)
        return request

    def _cost(self, body: dict[str, Any], answer: Answer | None = None) -> Cost:
        """Return what an answer cost; or, without one, the most that it may cost: a token holds a
        byte at least."""
        if answer and answer.usage:
            read, written = answer.usage.prompt_tokens, answer.usage.completion_tokens
        else:
            read = sum(len(turn["content"].encode()) + 16 for turn in body["messages"])
            written = body["max_tokens"]
        price = self.options.price
        money = (read * price.prompt + written * price.completion) / 1e6 if price else 0.0
        return Cost(read + written, money)

    def _send(self, body: dict[str, Any], key: str) -> str:
        """Send a request once; return the body of the response.

        The key that opens the endpoint is taken out of all that is kept or told.
        """
        try:
            response = self._create(**body, extra_headers={"Idempotency-Key": key})
        except openai.APIStatusError as error:
            raise self._status_failure(error, body) from None
        except openai.APIConnectionError as error:  # time-outs as well
            cause = f" ({error.__cause__})" if error.__cause__ else ""
            raise _TryAgain(hide_key(f"{error}{cause}", self._key)) from None
        return hide_key(response.text, self._key)

    def _status_failure(self, error: openai.APIStatusError, body: dict[str, Any]) -> Exception:
        """Return what to raise for a response that is an error."""
        status = error.status_code
        said = hide_key(str(error), self._key)[:500]
        codes = f"{error.code} {error.type}"
        if status in (408, 409) or status >= 500 or (status == 429 and "quota" not in codes):
            wait = _retry_after(error.response.headers.get("retry-after"))
            if wait is not None and wait > LONGEST_WAIT_S:
                return StepError(
                    f"step teacher: {self.address} asks to wait {wait:.0f} seconds: {said}. What "
                    "was answered is kept: the same command goes on later"
                )
            return _TryAgain(said, wait, free=True)
        if status in (400, 413) and says_too_long(f"{codes} {said}"):
            return NotAnswered("too_long", said)
        if status == 400 and any(word in codes for word in REJECTED):
            return NotAnswered("rejected", said)
        # Not sent from the start: servers that do not know it pass over it, and know no limit then.
        wants_other = NEW_LIMIT in said and "not supported" in said
        if status == 400 and wants_other and NEW_LIMIT not in body:
            return _NewLimit(said, 0.0, free=True)
        return StepError(
            f"step teacher: {self.address} refuses model '{self.options.model}': {said}. "
            f"{_ADVICE.get(status, 'See the options of the step in the recipe')}"
        )


_ADVICE = {
    400: "See `sampling` of the step in the recipe: a model that takes no temperature or top_p "
    "wants null there",
    401: "See that OPENAI_API_KEY is this endpoint's",
    403: "See that OPENAI_API_KEY may use this model",
    404: "See that `model` and `base_url` (or OPENAI_BASE_URL) are spelled as the endpoint has "
    "them; most addresses end in /v1",
    429: "See the account's plan; what was answered is kept, and the same command goes on",
}


def _with_new_limit(body: dict[str, Any]) -> dict[str, Any]:
    """Return the body of a request with the field `NEW_LIMIT` for ``max_tokens``."""
    others = {name: value for name, value in body.items() if name != "max_tokens"}
    return {**others, NEW_LIMIT: body["max_tokens"]}


def _parsed(raw: str) -> Answer:
    """Return an answer, checked here: some servers send anything with status 200."""
    try:
        return Answer.model_validate_json(raw)
    except ValidationError as error:
        what = error.errors()[0]
        raise _TryAgain(f"no chat completion: {what['msg']}: {raw[:200]!r}") from None


def _wait(attempt: int, key: str) -> float:
    """Return seconds to wait after an attempt: twice as long each time, up to half more by key,
    so that those who failed together do not come back together."""
    return float(FIRST_WAIT_S * 2 ** (attempt - 1) * (1 + int(key[:4], 16) / 2**17))


def _retry_after(value: str | None) -> float | None:
    """Return the seconds of a Retry-After header (RFC 9110, section 10.2.3), or None."""
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return None
