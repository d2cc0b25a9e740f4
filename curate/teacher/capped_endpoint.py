"""Ask an endpoint for the step `teacher`: a rate, caps, and no request asked twice."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from curate.step import StepError
from curate.teacher.answers import (
    AnswerAddress,
    Answers,
    CapReached,
    Cost,
    TeacherAnswer,
    request_key,
)
from curate.teacher.openai_client import (
    Client,
    EndpointRefused,
    NotAnswered,
    TryAgain,
    UseNewLimit,
    with_new_limit,
)

if TYPE_CHECKING:
    from pathlib import Path

    from curate.teacher.teacher import Teacher


class Endpoint:
    """An endpoint and the options of the step that asks it; forked children share it."""

    def __init__(
        self, options: Teacher, key: str, file: Path, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.options, self.file, self.sleep = options, file, sleep
        self.address = options.address()
        self.place = AnswerAddress(self.address, options.model)
        self.client = Client(self.address, key, options.request_timeout_s, sleep)

    def ask(self, body: dict[str, Any], number: int) -> TeacherAnswer:
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
            return answers.find(key) or self.client.until_done(
                lambda: self._attempt(answers, body, key), key
            )
        except EndpointRefused as refusal:
            advice = f". {_BAD_REQUEST}" if refusal.status == 400 else ""
            raise StepError(
                f"step teacher: {refusal}{advice}. What was answered is kept, and the same command "
                "goes on"
            ) from None
        finally:
            answers.close()

    def _attempt(self, answers: Answers, body: dict[str, Any], key: str) -> TeacherAnswer:
        """Send a request once; have it counted, and its answer kept."""
        request = self._begin(answers, body, key)
        sent = with_new_limit(body) if answers.has_new_limit(self.place) else body
        try:
            raw, answer = self.client.complete(sent, key)
        except TryAgain as failure:
            if failure.free:
                answers.settle(request, Cost())
            if isinstance(failure, UseNewLimit):
                answers.set_new_limit(self.place)
            raise
        except (NotAnswered, EndpointRefused):
            answers.settle(request, Cost())
            raise
        answers.add(request, sent, raw, answer, self._cost(body, answer))
        return answer

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

    def _cost(self, body: dict[str, Any], answer: TeacherAnswer | None = None) -> Cost:
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


_BAD_REQUEST = (
    "See `sampling` of the step in the recipe: a model that takes no temperature or top_p "
    "wants null there"
)
