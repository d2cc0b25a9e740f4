"""The step that asks a language model, through any OpenAI-compatible endpoint."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, cast
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator, model_validator

from curate.rows import Asked, PromptRow, Row, row_id
from curate.step import WEEK_S, Context, Drop, Keep, Outcome, RowStep, StepError
from curate.teacher.answers import TeacherAnswer, answers_file
from curate.teacher.program import TEXT_FAMILIES, program_of
from curate.wording import how_to_install

if TYPE_CHECKING:
    from curate.teacher.capped_endpoint import Endpoint

DEFAULT_ADDRESS = "https://api.openai.com/v1"
UNANSWERED = ("teacher_terms", "too_long", "rejected")  # drops of prompts that got no answer
SHOWN = 2000  # characters of an answer that a drop's evidence holds; all of it is in the cache


class TeacherSampling(BaseModel):
    """How the teacher draws an answer; null leaves it to the endpoint."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    temperature: Annotated[
        float | None,
        Field(
            ge=0,
            description="0 gives the likeliest answer; several samples need more. null for models "
            "that take none, as OpenAI's reasoning models.",
        ),
    ] = 0.8
    top_p: Annotated[
        float | None, Field(gt=0, le=1, description="Draw from this share of the probability.")
    ] = None
    max_tokens: Annotated[
        int,
        Field(
            gt=0,
            description="Length of an answer, thinking included; one cut there is dropped. Sent as "
            "max_completion_tokens where an endpoint asks for that.",
        ),
    ] = 8192
    seed: Annotated[
        int | None,
        Field(
            description="Sent with the sample's number added, so that samples differ; endpoints "
            "need not honour it."
        ),
    ] = None


class Price(BaseModel):
    """What a million tokens cost, in any one currency."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    prompt: Annotated[float, Field(ge=0, description="Per million tokens of the prompts.")]
    completion: Annotated[float, Field(ge=0, description="Per million tokens of the answers.")]


class Caps(BaseModel):
    """What all requests from one output folder may take together, over all runs and processes.

    A request counts with the most that it may take until its answer tells; one that was cut off
    goes on counting so, because it may have been billed.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    requests: Annotated[int | None, Field(ge=0, description="Repeated ones count too.")] = None
    tokens: Annotated[int | None, Field(ge=0, description="Of prompts and answers.")] = None
    money: Annotated[float | None, Field(ge=0, description="In the currency of `price`.")] = None


class Teacher(RowStep):
    """Asks a model each `prompt`, and makes the answer a `sample`.

    A prompt asks for one answer; where several are wanted there are several prompts, told apart by
    ``sample.number``. A sample is its prompt with the answer as last turn and, in ``triton``, the
    program that the answer gives; families that ask for text have none. ``parent_ids`` are the
    prompt's and the prompt itself, the task first.

    What was answered once is never asked again: see `curate.teacher.answers`. The endpoint's key
    is taken from OPENAI_API_KEY, and is kept nowhere.

    Drop reasons: ``teacher_terms``, ``too_long`` (the prompt, for the model), ``rejected`` (the
    prompt, by the endpoint's filter), ``refused`` (by the model), ``empty_answer``, ``cut_off`` and
    ``no_code``.
    """

    takes: ClassVar[frozenset[str]] = frozenset({"prompt"})
    reads: ClassVar[frozenset[str]] = frozenset({"turns", "sample"})
    makes: ClassVar[frozenset[str]] = frozenset({"sample"})
    sets: ClassVar[frozenset[str]] = frozenset({"triton", "turns", "sample"})

    step: Literal["teacher"]
    model: Annotated[str, Field(min_length=1, description="As the endpoint spells it.")]
    base_url: Annotated[
        str | None,
        Field(
            description="Address of the endpoint, most often ending in /v1; by default "
            f"OPENAI_BASE_URL, or {DEFAULT_ADDRESS}."
        ),
    ] = None
    terms: Annotated[
        str,
        Field(
            min_length=1,
            description="Terms under which the model's answers may be used: an SPDX id or a url. "
            "Recorded on each row, in origin.teacher.",
        ),
    ]
    forbidden_licenses: Annotated[
        tuple[str, ...],
        Field(
            description="SPDX ids of licenses whose rows this teacher must not be asked about, "
            "such as those that its terms do not go with."
        ),
    ] = ()
    sampling: Annotated[TeacherSampling, Field(description="How an answer is drawn.")] = (
        TeacherSampling()
    )
    concurrency: Annotated[
        int, Field(gt=0, description="Requests under way at a time, whatever --workers is.")
    ] = 8
    requests_per_minute: Annotated[
        float | None, Field(gt=0, description="Rate at which requests are sent, at even intervals.")
    ] = None
    request_timeout_s: Annotated[
        float,
        Field(gt=0, le=WEEK_S, description="Seconds after which a request is cut and sent again."),
    ] = 300.0
    price: Annotated[
        Price | None, Field(description="What the endpoint takes, to count the cost.")
    ] = None
    caps: Annotated[Caps, Field(description="Where to stop.")] = Caps()
    timeout_s: Annotated[
        float,
        Field(
            gt=0,
            le=WEEK_S,
            description="Seconds that one row may take, with all that is repeated.",
        ),
    ] = 3600.0

    _endpoint: Endpoint | None = PrivateAttr(default=None)

    @field_validator("base_url")
    @classmethod
    def _is_address(cls, value: str | None) -> str | None:
        return value if value is None else check_address(value)

    @field_validator("forbidden_licenses")
    @classmethod
    def _known_ids(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        from curate.licenses.policy import make_policy

        make_policy(value)
        return value

    @model_validator(mode="after")
    def _has_price(self) -> Teacher:
        if self.caps.money is not None and self.price is None:
            raise ValueError("a cap on money needs the field price")
        return self

    @property
    def workers(self) -> int:
        return self.concurrency

    def address(self) -> str:
        """Return the endpoint's address: the option's, or the environment's.

        Raises:
            StepError: the environment's is no address.
        """
        try:
            given = os.environ.get("OPENAI_BASE_URL") or DEFAULT_ADDRESS
            return self.base_url or check_address(given)
        except ValueError as error:
            raise StepError(f"step teacher: OPENAI_BASE_URL: {error}") from None

    def options(self) -> dict[str, Any]:
        """Return the options that decide an answer: not how fast it comes or what it costs."""
        decide = {"step", "model", "terms", "forbidden_licenses", "sampling"}
        return {**self.model_dump(mode="json", include=decide), "base_url": self.address()}

    def setup(self, context: Context) -> None:
        if find_spec("openai") is None:
            raise StepError(f"step teacher needs openai; {how_to_install('teacher')}")
        if not (key := os.environ.get("OPENAI_API_KEY")):
            raise StepError(
                "step teacher: OPENAI_API_KEY is not set; any word will do for a server that asks "
                "for no key"
            )
        from curate.teacher.capped_endpoint import Endpoint

        assert context.cache
        self._endpoint = Endpoint(self, key, answers_file(context.cache))

    def apply(self, row: PromptRow, context: Context) -> Outcome:
        from curate.teacher.openai_client import NotAnswered

        assert self._endpoint
        if banned := self._banned(row):
            return Drop("teacher_terms", {"licenses": banned, "terms": self.terms})
        number = row["sample"]["number"]
        try:
            answer = self._endpoint.ask(self.request(row, number), number)
        except NotAnswered as error:
            return Drop(error.reason, {"message": str(error)})
        return self.sample(row, answer)

    def _banned(self, row: PromptRow) -> list[str]:
        """Return the licenses of a row that the teacher must not be asked about."""
        if not self.forbidden_licenses:
            return []
        from curate.licenses.policy import license_ids

        found = license_ids(row["license"]["choice"] or row["license"]["expression"])
        return sorted(found & set(self.forbidden_licenses))

    def request(self, row: PromptRow, number: int) -> dict[str, Any]:
        """Return the body of the request for a prompt's answer."""
        turns = [{"role": turn["role"], "content": turn["content"]} for turn in row["turns"]]
        drawn = self.sampling.model_dump(exclude_none=True)
        if self.sampling.seed is not None:
            drawn["seed"] = self.sampling.seed + number
        return {"model": self.model, "messages": turns, **drawn}

    def sample(self, row: PromptRow, answer: TeacherAnswer) -> Outcome:
        """Return the sample that an answer makes of its prompt, or why there is none."""
        text = answer.text
        evidence = {"finish": answer.finish, "answer": text[:SHOWN]}
        if answer.refusal or answer.finish == "content_filter":
            return Drop("refused", {**evidence, "refusal": answer.refusal})
        if answer.finish == "length":
            return Drop("cut_off", {**evidence, "answer": text[-SHOWN:]})
        if not text.strip():
            return Drop("empty_answer", evidence)
        program = None
        if row["sample"]["family"] not in TEXT_FAMILIES:
            program = program_of(text)
            if program is None:
                return Drop("no_code", evidence)
        tokens = answer.usage.model_dump() if answer.usage else {}
        made: Row = {
            **row,
            "id": row_id("sample", json.dumps([row["id"], self.model, text]), []),
            "parent_ids": [*row["parent_ids"], row["id"]],
            "kind": "sample",
            "origin": {
                **row["origin"],
                "teacher": {"model": self.model, "terms": self.terms},
            },
            "triton": program,
            "turns": [*row["turns"], {"role": "assistant", "content": text}],
            "sample": cast(Asked, {**row["sample"], "finish": answer.finish, **tokens}),
            "compile": None,
            "verdict": None,
        }
        return Keep((made,))


def check_address(value: str) -> str:
    """Return an endpoint's address without a slash at its end.

    Raises:
        ValueError: it is none, or holds a secret: addresses are kept, keys are not.
    """
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"'{value}' is no http address")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError(
            "an endpoint's address holds neither user nor query; a key belongs in OPENAI_API_KEY"
        )
    return value.rstrip("/")
