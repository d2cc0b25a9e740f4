"""Show how far a training is: a bar on a terminal, a line per evaluation elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from curate.terminal.safe_console import SafeConsole


class ShowProgress(TrainerCallback):
    """Shows updates, training loss, validation loss, and rewards.

    Args:
        say: prints a line; it is called after every evaluation, and after every update by reward.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        console = SafeConsole(stderr=True)
        self.bar = Progress(
            BarColumn(),
            TextColumn("{task.completed}/{task.total} updates{task.description}"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self.task = self.bar.add_task("")
        self.loss = ""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.bar.start()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.bar.update(
            self.task,
            total=state.max_steps,
            completed=state.global_step,
            description=self.loss and f", loss {self.loss}",
        )

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        latest = kwargs["logs"]
        if "loss" in latest:
            self.loss = f"{float(latest['loss']):.3f}"
        if "eval_loss" in latest:
            validation = float(latest["eval_loss"])
            self.say(
                f"update {state.global_step} of {state.max_steps}: loss {self.loss}, "
                f"validation {validation:.3f}"
            )

        if "reward" in latest:
            reward, spread = float(latest["reward"]), float(latest["reward_std"])
            self.say(
                f"update {state.global_step} of {state.max_steps}: "
                f"reward {reward:.3f}, standard deviation {spread:.3f}"
            )

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.bar.stop()
