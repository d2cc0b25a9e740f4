"""The client of OpenAI-compatible endpoints: what is tried again, and what each refusal means."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from curate.teacher.answers import TeacherAnswer

if TYPE_CHECKING:
    import openai

Result = TypeVar("Result")

ATTEMPTS = 8  # per request, over about a minute
FIRST_WAIT_S = 0.5  # before the second attempt; each later wait is twice as long
LONGEST_WAIT_S = 300.0  # that an endpoint may ask for with Retry-After
TOO_LONG = ("context_length_exceeded", "exceed_context_size_error", "context length")
REJECTED = ("content_filter", "content_policy_violation")
NEW_LIMIT = "max_completion_tokens"  # what OpenAI's reasoning models call max_tokens
SECRET_LENGTH = 16  # characters; a shorter key is a placeholder for servers that need none


class NotAnswered(Exception):
    """The endpoint will not answer this request; ``reason`` is ``too_long`` or ``rejected``."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class EndpointRefused(Exception):
    """The endpoint will answer no request as things are; the message says why and what to do.

    Attributes:
        status: HTTP status of the response.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class GaveUp(Exception):
    """Every attempt failed; the message says how the last one did."""


class TryAgain(Exception):
    """An attempt failed in a way that passes.

    Attributes:
        wait_s: seconds that the endpoint asks to wait; None if it does not say.
        free: whether the endpoint says that it did nothing, so that the request costs nothing.
    """

    def __init__(self, message: str, wait_s: float | None = None, free: bool = False) -> None:
        super().__init__(message)
        self.wait_s, self.free = wait_s, free


class UseNewLimit(TryAgain):
    """The endpoint wants the field `NEW_LIMIT` instead of ``max_tokens``."""


class Client:
    """The client of one endpoint; forked children and threads may share it.

    No message of its exceptions shows the key.

    Args:
        address: base URL of the endpoint.
        key: opens the endpoint.
        timeout_s: seconds after which an attempt is cut.
        sleep: waits between attempts.
    """

    def __init__(
        self,
        address: str,
        key: str,
        timeout_s: float,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        import openai

        self.address, self._key, self._sleep = address, key, sleep
        self._client = openai.OpenAI(
            base_url=address, api_key=key, timeout=timeout_s, max_retries=0
        )
        self._completions = self._client.chat.completions  # imports much, once
        self._create = self._completions.with_raw_response.create

    def until_done(self, attempt: Callable[[], Result], key: str) -> Result:
        """Return what an attempt returns, made again while it raises `TryAgain`.

        Args:
            attempt: sends one request.
            key: of the request, in hexadecimal: requests that failed together are spread by it.

        Raises:
            GaveUp: the last attempt failed as well.
        """
        for number in range(1, ATTEMPTS + 1):
            try:
                return attempt()
            except TryAgain as failure:
                if number == ATTEMPTS:
                    message = f"{self.address} failed {number} times: {failure}"
                    raise GaveUp(message) from None
                self._sleep(_wait(number, key) if failure.wait_s is None else failure.wait_s)
        raise AssertionError("the last attempt returns or raises")

    def complete(self, body: dict[str, Any], key: str) -> tuple[str, TeacherAnswer]:
        """Send a request once; return the body of the response, without the key, and the answer.

        Args:
            body: of the request.
            key: of the request, for its Idempotency-Key.

        Raises:
            TryAgain: the attempt failed in a way that passes.
            NotAnswered: the request is too long, or against the endpoint's policy.
            Refused: no request will be answered.
        """
        with self._errors(body):
            response = self._create(**body, extra_headers={"Idempotency-Key": key})
            raw = hide_key(response.text, self._key)
        return raw, _parsed(raw)

    def open_stream(self, body: dict[str, Any], key: str) -> Iterator[tuple[str, str | None]]:
        """Send a request once; return the answer's pieces, and why the model stopped, as they come.

        Args:
            body: as for `complete`.
            key: as for `complete`.

        Raises:
            TryAgain, NotAnswered, Refused: as for `complete`; the pieces may raise them as well.
        """
        with self._errors(body):
            chunks = self._completions.create(
                **body, stream=True, extra_headers={"Idempotency-Key": key}
            )
        return self._pieces(chunks, body)

    def _pieces(self, chunks: Any, body: dict[str, Any]) -> Iterator[tuple[str, str | None]]:
        with self._errors(body), self._form():
            for chunk in chunks:
                for choice in chunk.choices:  # none in a chunk that only counts tokens
                    yield choice.delta.content or "", choice.finish_reason

    def models(self) -> list[str]:
        """Ask once for the names of the endpoint's models, and return them.

        Raises:
            TryAgain, Refused: as for `complete`.
        """
        with self._errors({}), self._form():
            return [str(model.id) for model in self._client.models.list().data]

    @contextmanager
    def _errors(self, body: dict[str, Any]) -> Iterator[None]:
        """Turn errors of the package openai into those of this module."""
        import openai

        try:
            yield
        except openai.APIStatusError as error:
            raise self._status_failure(error, body) from None
        except openai.APIError as error:  # no connection, a time-out, an error inside a stream
            cause = f" ({error.__cause__})" if error.__cause__ else ""
            raise TryAgain(hide_key(f"{error}{cause}", self._key)) from None

    @contextmanager
    def _form(self) -> Iterator[None]:
        """Turn what a response in another form raises into `TryAgain`."""
        try:
            yield
        except (AttributeError, TypeError, ValueError) as error:
            said = hide_key(str(error), self._key)[:500]
            raise TryAgain(f"the response is not in OpenAI's form: {said}") from None

    def _status_failure(self, error: openai.APIStatusError, body: dict[str, Any]) -> Exception:
        """Return what to raise for a response that is an error."""
        status = error.status_code
        said = hide_key(str(error), self._key)[:500]
        codes = f"{error.code} {error.type}"
        if status in (408, 409) or status >= 500 or (status == 429 and "quota" not in codes):
            wait = _retry_after(error.response.headers.get("retry-after"))
            if wait is not None and wait > LONGEST_WAIT_S:
                return EndpointRefused(
                    f"{self.address} asks to wait {wait:.0f} seconds: {said}", status
                )
            return TryAgain(said, wait, free=True)
        if status in (400, 413) and any(word in f"{codes} {said}" for word in TOO_LONG):
            return NotAnswered("too_long", said)
        if status == 400 and any(word in codes for word in REJECTED):
            return NotAnswered("rejected", said)
        # Not sent from the start: servers that do not know the field ignore it, and have no limit.
        wants_other = NEW_LIMIT in said and "not supported" in said
        if status == 400 and wants_other and NEW_LIMIT not in body:
            return UseNewLimit(said, 0.0, free=True)
        asked = f"refuses model '{body['model']}'" if body else "does not list its models"
        advice = f". {_ADVICE[status]}" if status in _ADVICE else ""
        return EndpointRefused(f"{self.address} {asked}: {said}{advice}", status)


_ADVICE = {
    401: "Check that OPENAI_API_KEY is this endpoint's",
    403: "Check that OPENAI_API_KEY may use this model",
    404: "Check that the model's name and the address are spelled as the endpoint has them; most "
    "addresses end in /v1",
    429: "Check the account's plan",
}


def with_new_limit(body: dict[str, Any]) -> dict[str, Any]:
    """Return the body of a request with the field `NEW_LIMIT` instead of ``max_tokens``."""
    others = {name: value for name, value in body.items() if name != "max_tokens"}
    return {**others, NEW_LIMIT: body["max_tokens"]}


def hide_key(text: str, key: str) -> str:
    """Return a text without the key."""
    return text if len(key) < SECRET_LENGTH else text.replace(key, "[OPENAI_API_KEY]")


def _parsed(raw: str) -> TeacherAnswer:
    """Return an answer, checked here: some servers send anything with status 200."""
    try:
        return TeacherAnswer.model_validate_json(raw)
    except ValidationError as error:
        what = error.errors()[0]
        raise TryAgain(f"no chat completion: {what['msg']}: {raw[:200]!r}") from None


def _wait(attempt: int, key: str) -> float:
    """Return seconds to wait after an attempt: twice as long each time, and up to half more by the
    key, so that requests that failed together do not come back together."""
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
