"""Reinforcement learning by the judge's reward: GRPO with TRL's `GRPOTrainer`.

GRPO (Shao et al. 2024, https://arxiv.org/abs/2402.03300, section 4.1) asks for several answers to
each problem and moves the model towards those that earn more than their group's mean. A group in
which all earn the same teaches nothing, so the record says how many of them there are.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.files import InputError, write_atomically
from curate.flags import option
from curate.generate.models import ModelError, default_device, load_model
from curate.train import data
from curate.train.options import TrainOptions
from curate.train.prepare import claim, write_record
from curate.train.training import (
    CHECKPOINTS,
    Say,
    Trained,
    adapter,
    environment,
    is_first,
    last_checkpoint,
    save_model,
    say_nothing,
    trainer_arguments,
)
from curate.verify import BACKENDS, SANDBOXES, Options

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase
    from trl import GRPOConfig, GRPOTrainer

    from curate.evaluate.problems import Problem
    from curate.train.rewards import VerifiedReward

REWARDS = ("verified", "format", "similarity")
"""The reward functions of `curate.train.rewards`, in the order in which they are called."""

CURVE = "reward.svg"
LOGS = "rewards"
"""The folder in the output that holds a `RewardLog` for each process, and `CORRECT`."""

CORRECT = "correct.jsonl"
"""The programs that were called correct, each once, as candidates."""

TOP = 20
"""Programs that the record names as those with the highest rewards."""


@dataclass(frozen=True)
class GrpoOptions:
    """What only ``--method grpo`` asks for; the rest is in `TrainOptions`.

    Raises:
        ValueError: a value is not allowed; the message says which are.
    """

    rewards: str = option(
        "verified",
        f"For grpo: rewards to add up: {', '.join(REWARDS)}. Only verified runs programs.",
        metavar="NAME,NAME",
    )
    generations: int = option(8, "For grpo: answers per problem, which form a group.", metavar="N")
    answer_length: int = option(1024, "For grpo: most tokens per answer.", metavar="N")
    adapters: bool = option(False, "For grpo: train adapters instead of all weights.")
    backend: str = option("auto", "For grpo: where the judge runs programs.", choices=BACKENDS[:-1])
    timing: bool = option(
        False, "For grpo: also reward speed. Timing takes about ten seconds per correct program."
    )
    judge_timeout: float = option(
        60.0, "For grpo: time limit for judging one program, in seconds.", metavar="S"
    )
    judge_workers: int | None = option(
        None,
        "For grpo: programs to judge at the same time.",
        type=int,
        shown="one per processor core",
        metavar="N",
    )
    sandbox: str = option(
        "bubblewrap",
        "For grpo: sandbox for programs; none runs them with all of your own rights.",
        choices=tuple(SANDBOXES),
    )

    def __post_init__(self) -> None:
        unknown = set(self.rewards.split(",")) - set(REWARDS)
        if unknown:
            raise ValueError(
                f"rewards {', '.join(sorted(unknown))!r}: allowed are {', '.join(REWARDS)}"
            )
        if self.generations < 2:
            raise ValueError(f"generations {self.generations}: a group has two answers or more")
        if self.answer_length < 1:
            raise ValueError(f"answer_length {self.answer_length}: must be greater than 0")
        self.judge()

    def judge(self) -> Options:
        """Return how answers are judged."""
        cores = len(os.sched_getaffinity(0)) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        return Options(
            backend=self.backend,
            timing=self.timing,
            timeout_s=self.judge_timeout,
            workers=max(1, cores) if self.judge_workers is None else self.judge_workers,
            sandbox=SANDBOXES[self.sandbox],
        )


def train_grpo(options: TrainOptions, grpo: GrpoOptions | None = None, say: Say = print) -> Trained:
    """Train a model by reward and save it; go on where a call with these options stopped.

    Problems are the training rows of the data set's ``pairs``, or of a file of rows with
    ``reference``; they are asked as rows of the format ``messages`` are. `TrainOptions.batch_size`
    counts answers. Alongside the model the output has ``training.json``, with the reward of every
    update; ``reward.svg``; and ``rewards``, with what every answer got and why.

    Args:
        options: what to train, on what, and how.
        grpo: what this method asks for besides.
        say: is given lines that tell what happens.

    Raises:
        ModelError: the model cannot be had, has no chat template, or memory ran out.
        InputError: the data set is missing or has no problems, or the folder is taken.
        CannotJudge: the judge cannot start here, or cannot go on.
    """
    grpo = grpo or GrpoOptions()
    if not is_first():
        say = say_nothing
    asked = prepare(options, grpo)
    for line in asked.lines():
        say(line)
    record = claim(options.output, asked.identity)
    if record is None:
        with ExitStack() as stack:
            trainer = make_trainer(asked, stack, say)
            record = run(trainer, asked)
        save(trainer, asked, record)
    for line in summary(options.output, record):
        say(line)
    return Trained(options.output, record)


# --- what is asked ----------------------------------------------------------------------------


@dataclass(frozen=True)
class GrpoTask:
    """What a training by reward starts from.

    Attributes:
        options: as they were given.
        grpo: as they were given.
        tokenizer: of the model.
        problems: the problems that are asked.
        left_out: tokens of the others' questions, by id: with an answer they are too long.
        identity: what makes this training no other, as JSON values.
    """

    options: TrainOptions
    grpo: GrpoOptions
    tokenizer: PreTrainedTokenizerBase
    problems: list[Problem]
    left_out: dict[str, int]
    identity: dict[str, Any]

    def lines(self) -> Iterator[str]:
        """Yield what is going to be asked, in words."""
        yield (
            f"train: {len(self.problems):,} problems, {self.grpo.generations} answers of up to "
            f"{self.grpo.answer_length:,} tokens to each; reward: {self.grpo.rewards}"
        )
        if self.left_out:
            yield f"  left out, too long with an answer: {len(self.left_out):,} problems"

    def rows(self) -> list[dict[str, Any]]:
        """Return the problems with the columns that TRL and the reward functions ask for."""
        from curate.formats.prompts.question import conversation

        with_answers = "similarity" in self.grpo.rewards
        return [
            {"id": p.id, "prompt": conversation(p.reference), "reference": p.reference}
            | ({"triton": p.answer} if with_answers else {})
            for p in self.problems
        ]


def prepare(options: TrainOptions, grpo: GrpoOptions) -> GrpoTask:
    """Read what a training by reward needs.

    Raises:
        ModelError: there is no such model, or it has no chat template.
        InputError: there are no problems, or the numbers do not fit together.
    """
    from curate.evaluate.problems import PAIRS, read_problems
    from curate.formats.prompts.question import conversation
    from curate.generate.models import load_tokenizer
    from curate.train.memory import model_facts

    together = options.batch_size * options.accumulation * int(os.environ.get("WORLD_SIZE", "1"))
    if together % grpo.generations:
        raise InputError(
            f"an update has {together} answers (batch size times accumulation); that must be a "
            f"multiple of --generations {grpo.generations}"
        )
    context = model_facts(options.model).context
    most = min(options.max_length or context, context) - grpo.answer_length
    tokenizer = load_tokenizer(options.model)
    if tokenizer.chat_template is None:
        raise ModelError(f"{options.model}: has no chat template; grpo needs an instruct model")
    source = data.find_dataset(options.dataset, options.data)
    problems = read_problems(Path(source), split="train")
    if "similarity" in grpo.rewards and not all(problem.answer for problem in problems):
        raise InputError(f"{source}: similarity needs the column triton in every row")

    def tokens(problem: Problem) -> int:
        question: list[dict[str, Any]] = [*conversation(problem.reference)]
        asked = tokenizer.apply_chat_template(question, add_generation_prompt=True)
        return len(asked["input_ids"])

    left_out = {p.id: n for p in problems if (n := tokens(p)) > most}
    kept = [problem for problem in problems if problem.id not in left_out]
    if not kept:
        raise InputError(
            f"{source}: no question leaves room for an answer of {grpo.answer_length:,} tokens; "
            f"the model reads {context:,}"
        )
    if len(kept) < together // grpo.generations:  # TRL drops a batch that is not full
        raise InputError(
            f"{source}: an update asks {together // grpo.generations} problems, and there are "
            f"{len(kept)}; lower --batch-size or --accumulation"
        )
    told = options.to_json() | dataclasses.asdict(grpo)
    del told["output"], told["judge_workers"]  # these make no other training
    files = data.read_sha256(source, PAIRS)
    return GrpoTask(options, grpo, tokenizer, kept, left_out, {"options": told, "files": files})


# --- the trainer ------------------------------------------------------------------------------


def make_config(asked: GrpoTask) -> GRPOConfig:
    """Return the options as TRL has them."""
    from trl import GRPOConfig

    return GRPOConfig(
        **trainer_arguments(asked.options, default_device()),
        num_generations=asked.grpo.generations,
        max_completion_length=asked.grpo.answer_length,
        # Divided by its group's deviation, 0.2 for a program that runs would count among failures
        # as much as 1 for a right one does.
        scale_rewards="none",
        logging_steps=1,
    )


def make_trainer(asked: GrpoTask, stack: ExitStack, say: Say) -> GRPOTrainer:
    """Return a trainer with the model and the reward functions in it.

    Args:
        asked: what is trained.
        stack: ends the judge's processes when it is closed.
        say: is given one line per update.

    Raises:
        ModelError: the model cannot be loaded.
        CannotJudge: the judge cannot start here.
    """
    from datasets import Dataset
    from transformers import PrinterCallback
    from trl import GRPOTrainer

    from curate.generate.sampling import Sampling
    from curate.train.progress import ShowProgress
    from curate.train.rollouts import Rollouts, is_sharded

    options, adapters = asked.options, asked.grpo.adapters
    functions = reward_functions(asked, stack)  # before the model: this fails in seconds
    rollouts = None
    if not (adapters or is_sharded()):  # whose weights are not those of a plain model
        os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # rollout_func is an experiment
        sampling = Sampling(n=1, top_p=1.0, max_tokens=asked.grpo.answer_length)
        rollouts = Rollouts(load_model(options.model), asked.tokenizer, sampling)
    trainer = GRPOTrainer(
        model=load_model(options.model, dtype=None if adapters else "float32"),
        reward_funcs=functions,
        args=make_config(asked),
        train_dataset=Dataset.from_list(asked.rows()),
        processing_class=asked.tokenizer,
        peft_config=adapter(options) if adapters else None,
        rollout_func=rollouts,
        callbacks=[ShowProgress(say)],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def reward_functions(asked: GrpoTask, stack: ExitStack) -> list[Callable[..., Any]]:
    """Return the reward functions that the options name."""
    from curate.train.rewards import (
        VerifiedReward,
        format_reward,
        similarity_reward,
        where_judged,
    )

    cheap = {"format": format_reward, "similarity": similarity_reward}
    names = asked.grpo.rewards.split(",")
    chosen: list[Callable[..., Any]] = [cheap[name] for name in cheap if name in names]
    if "verified" not in names:
        return chosen
    log = asked.options.output / LOGS / os.environ.get("RANK", "0")
    verified: VerifiedReward = stack.enter_context(VerifiedReward(asked.grpo.judge(), log))
    return [verified, *(where_judged(function, verified) for function in chosen)]


# --- the run ----------------------------------------------------------------------------------


def run(trainer: GRPOTrainer, asked: GrpoTask) -> dict[str, Any]:
    """Train, from the last checkpoint if there is one, and return the training's record.

    Raises:
        ModelError: memory ran out.
    """
    import torch

    last = last_checkpoint(asked.options.output / CHECKPOINTS)
    try:
        result = trainer.train(resume_from_checkpoint=last and str(last))
    except torch.OutOfMemoryError as error:
        raise ModelError(
            "memory ran out: lower --batch-size (and raise --accumulation), or --answer-length"
        ) from error
    history = [entry for entry in trainer.state.log_history if "reward" in entry]
    return {
        **asked.identity,
        **environment(default_device()),
        "problems": {"used": len(asked.problems), "left_out": asked.left_out},
        "updates": trainer.state.global_step,
        "history": [_entry(entry) for entry in history],
        **audit(asked.options.output / LOGS),
        "seconds": round(result.metrics["train_runtime"], 1),
    }


def _entry(logs: dict[str, Any]) -> dict[str, Any]:
    """Return what the record holds of an update, of what the trainer logged.

    ``reward_std`` is over all answers; ``zero_std`` is the share of answers in groups that all
    earned the same; ``clipped`` is the share of answers that did not end in time.
    """
    names = {
        "reward": "reward",
        "reward_std": "reward_std",
        "zero_std": "frac_reward_zero_std",
        "tokens": "completions/mean_length",
        "clipped": "completions/clipped_ratio",
        "entropy": "entropy",
        "correct": "judge/correct",
        "cheat": "judge/cheat",
        "unjudged": "judge/unjudged",
        "judge_s": "judge/seconds",
        "step_s": "step_time",
    }
    return {"step": logs["step"]} | {name: _number(logs.get(key)) for name, key in names.items()}


def _number(value: Any) -> float | None:
    return None if value is None or not math.isfinite(value) else round(float(value), 6)


def audit(logs: Path) -> dict[str, Any]:
    """Return what the logs of all processes say of the answers, as JSON values.

    ``statuses`` counts answers by status. ``top`` names the programs that earned most, with how
    often each was written and what the static screen and the judge saw in it: a reward that was
    got by a trick is to be looked for there.
    """
    kept = _read_rewards(logs)
    written = Counter(line["id"] for line in kept)
    by_id = {line["id"]: line for line in kept if line["reward"]}
    top = sorted(by_id.values(), key=lambda line: (-line["reward"], line["id"]))[:TOP]
    shown = ("id", "reward", "status", "rules", "kind", "speedup")
    return {
        "statuses": dict(Counter(line["status"] for line in kept).most_common()),
        "top": [{name: line[name] for name in shown} | {"n": written[line["id"]]} for line in top],
    }


def _read_rewards(logs: Path) -> list[dict[str, Any]]:
    """Return what every answer got; an update that a resumed training did again counts once."""
    kept = []
    for file in sorted(logs.glob("*/rewards.jsonl")):
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        begins = {line["run"]: line["step"] for line in reversed(lines)}
        kept += [
            line
            for line in lines
            if all(line["step"] < step for run, step in begins.items() if run > line["run"])
        ]
    return kept


def write_correct(logs: Path) -> None:
    """Write the programs that were called correct, as candidates, to be judged once more."""
    right = {line["id"] for line in _read_rewards(logs) if line["status"] == "correct"}
    programs: dict[str, str] = {}
    for file in sorted(logs.glob("*/programs.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines(keepends=True):
            programs[json.loads(line)["id"]] = line
    text = "".join(line for name, line in programs.items() if name in right)
    write_atomically(logs / CORRECT, text.encode())


def save(trainer: GRPOTrainer, asked: GrpoTask, record: dict[str, Any]) -> None:
    """Write the trained model, its tokenizer and its record, and remove the checkpoints."""
    folder = asked.options.output
    save_model(trainer, folder)
    if is_first():
        if find_spec("matplotlib"):
            draw_rewards(record["history"], folder / CURVE)
        if "verified" in asked.grpo.rewards:
            write_correct(folder / LOGS)
        write_record(folder, record)
        shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)


def draw_rewards(history: list[dict[str, Any]], file: Path) -> None:
    """Draw the mean reward of every update, its spread, and the share of correct answers."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    shown = [entry for entry in history if entry["reward"] is not None]
    steps = [entry["step"] for entry in shown]
    mean = [entry["reward"] for entry in shown]
    spread = [entry["reward_std"] or 0.0 for entry in shown]
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.add_subplot(xlabel="update", ylabel="reward")
    low, high = ([m + sign * s for m, s in zip(mean, spread, strict=True)] for sign in (-1, 1))
    axes.fill_between(steps, low, high, alpha=0.2, label="standard deviation")
    axes.plot(steps, mean, label="mean reward")
    if all(entry["correct"] is not None for entry in shown):
        axes.plot(steps, [entry["correct"] for entry in shown], label="share correct")
    axes.legend(frameon=False)
    with rc_context({"svg.hashsalt": "curate"}):
        figure.savefig(file, metadata={"Date": None})


def summary(folder: Path, record: dict[str, Any]) -> list[str]:
    """Return what came of a training, and where it is, in lines."""
    first, last = record["history"][0], record["history"][-1]
    statuses = ", ".join(f"{status} {n:,}" for status, n in record["statuses"].items())
    return [
        f"took {record['seconds']:,.0f} s for {record['updates']:,} updates; "
        f"mean reward {first['reward']} in the first, {last['reward']} in the last",
        f"answers: {statuses or 'not judged'}",
        f"{folder}: the model; how it came about is in training.json, what each answer got and "
        f"why in {LOGS}",
    ]
