"""Supervised fine-tuning with TRL's `SFTTrainer`.

What the trainer leaves to its user is done around it: rows are measured before the model is loaded,
none is cut silently, what does not fit into memory is refused with what to change, and what was
trained on what is written down.
"""

from __future__ import annotations

import resource
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.generate.models import ADAPTER, load_model
from curate.train.data import Fitted
from curate.train.memory import DoesNotFit, advice, gb
from curate.train.options import TrainOptions
from curate.train.prepare import RECORD, Prepared, claim, identity, prepare, write_record
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
    update_of,
)

if TYPE_CHECKING:
    from trl import SFTConfig, SFTTrainer

CURVE = "loss.svg"


def train_sft(options: TrainOptions, say: Say = print) -> Trained:
    """Train a model and save it; go on where an earlier call with these options stopped.

    A training that is finished is not repeated.

    Args:
        options: what to train, on what, and how.
        say: is given lines that tell what happens.

    Returns:
        The folder, with the weights of the checkpoint whose validation loss is lowest; of the last
        one where the data set has no validation rows.

    Raises:
        ModelError: the model cannot be had, or its training does not fit into memory.
        InputError: the data set is missing or has nothing to train on, or the folder is taken.
    """
    if not is_first():
        say = say_nothing
    prepared = prepare(options)
    for line in prepared.lines():
        say(line)
    record = claim(options.output, identity(prepared))
    if record is None:
        trainer = make_trainer(prepared, say)
        record = run(trainer, prepared)
        save(trainer, prepared, record)
    for line in summary(options.output, record):
        say(line)
    return Trained(options.output, record)


# --- the trainer ------------------------------------------------------------------------------


def make_config(prepared: Prepared) -> SFTConfig:
    """Return the options as TRL has them."""
    from trl import SFTConfig

    options = prepared.options
    told = trainer_arguments(options, prepared.device)
    times = "steps" if "validation" in prepared.rows else "no"
    return SFTConfig(
        **told,
        per_device_eval_batch_size=options.batch_size,
        max_length=prepared.max_length if options.packing else None,  # rows are fitted already
        packing=options.packing,
        eval_strategy=times,
        eval_steps=told["save_steps"],
        load_best_model_at_end=times == "steps",
        metric_for_best_model="eval_loss",
        logging_steps=0.01,
    )


def make_trainer(prepared: Prepared, say: Say) -> SFTTrainer:
    """Return a trainer with the model in it.

    Raises:
        ModelError: the model cannot be loaded.
    """
    from transformers import PrinterCallback
    from trl import SFTTrainer

    from curate.train.progress import ShowProgress

    options, rows = prepared.options, prepared.rows
    full = options.method == "full"
    model = load_model(
        options.model,
        dtype="float32" if full else None,
        device=prepared.device,
        four_bit=options.method == "qlora",
    )
    shown = {s: fitted.rows.select_columns(["input_ids", "labels"]) for s, fitted in rows.items()}
    trainer = SFTTrainer(
        model=model,
        args=make_config(prepared),
        train_dataset=shown["train"],
        eval_dataset=shown.get("validation"),
        processing_class=prepared.tokenizer,
        peft_config=None if full else adapter(options),
        callbacks=[ShowProgress(say)],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


# --- the run ----------------------------------------------------------------------------------


def run(trainer: SFTTrainer, prepared: Prepared) -> dict[str, Any]:
    """Train, from the last checkpoint if there is one, and return the training's record.

    Raises:
        DoesNotFit: memory ran out in spite of the estimate.
    """
    import torch

    last = last_checkpoint(prepared.options.output / CHECKPOINTS)
    on_gpu = prepared.device != "cpu"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(prepared.device)
    try:
        result = trainer.train(resume_from_checkpoint=last and str(last))
    except torch.OutOfMemoryError as error:
        raise DoesNotFit(_ran_out(prepared)) from error
    state = trainer.state
    start = update_of(last) if last else 0
    since = [entry for entry in state.log_history if entry["step"] > start]
    seconds = result.metrics["train_runtime"]
    learning = seconds - sum(entry.get("eval_runtime", 0) for entry in since)
    tokens = max((entry.get("num_tokens", 0) for entry in since), default=0)
    validation = _losses(state.log_history, "eval_loss")
    peak = torch.cuda.max_memory_allocated(prepared.device) if on_gpu else _resident_bytes()
    return {
        **identity(prepared),
        **environment(prepared.device),
        "max_length": prepared.max_length,
        "rows": {split: _rows_record(fitted) for split, fitted in prepared.rows.items()},
        "updates": state.global_step,
        "loss": _losses(state.log_history, "loss"),
        "validation_loss": validation,
        "chosen": state.best_global_step if validation else state.global_step,
        "started_at": start,  # what follows is of the time since then
        "seconds": round(seconds, 1),
        "tokens": int(tokens),
        "tokens_per_s": round(tokens / learning, 1),
        "peak_bytes": peak,
        "estimated_bytes": round(prepared.estimate.total),
    }


def _ran_out(prepared: Prepared) -> str:
    """Return what to do where memory ran out: what would take half of what was estimated."""
    expected = prepared.estimate.total
    return f"memory ran out on {prepared.device}; {gb(expected)} were expected to do. " + advice(
        prepared.facts, prepared.options, prepared.longest, prepared.device, expected / 2
    )


def _rows_record(fitted: Fitted) -> dict[str, Any]:
    return {
        "used": len(fitted.rows),
        "tokens": fitted.tokens,
        "learned_tokens": fitted.learned,
        "longest": fitted.longest,
        "dropped": fitted.dropped,
        "cut": fitted.cut,
    }


def _losses(history: list[dict[str, Any]], name: str) -> list[list[float]]:
    """Return update and loss of every time that one was logged."""
    return [[entry["step"], round(entry[name], 6)] for entry in history if name in entry]


def _resident_bytes() -> int:
    """Return the most memory that this process has had, which is more than training took."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def save(trainer: SFTTrainer, prepared: Prepared, record: dict[str, Any]) -> None:
    """Write the trained model, its tokenizer and its record, and remove the checkpoints."""
    folder = prepared.options.output
    save_model(trainer, folder)
    if is_first():
        if find_spec("matplotlib"):
            draw_losses(record, folder / CURVE)
        write_record(folder, record)
        shutil.rmtree(folder / CHECKPOINTS)


def draw_losses(record: dict[str, Any], file: Path) -> None:
    """Draw the training's and the validation's loss over the updates."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.add_subplot(xlabel="update", ylabel="loss (nats a token)")
    for name, label in (("loss", "training"), ("validation_loss", "validation")):
        if record[name]:
            axes.plot(*zip(*record[name], strict=True), label=label, marker=".")
    if record["validation_loss"]:
        axes.axvline(record["chosen"], color="0.6", linestyle=":", label="chosen")
    axes.legend(frameon=False)
    with rc_context({"svg.hashsalt": "curate"}):
        figure.savefig(file, metadata={"Date": None})


def summary(folder: Path, record: dict[str, Any]) -> list[str]:
    """Return what came of a training, where it is, and what to do next, in lines."""
    chosen = f"update {record['chosen']} of {record['updates']}"
    if record["validation_loss"]:
        lowest = dict(record["validation_loss"])[record["chosen"]]
        chosen += f", validation loss {lowest:.3f}"
    what = "adapter" if (folder / ADAPTER).exists() else "model"
    peak = "peak of the whole process" if record["device"] == "cpu" else "peak memory"
    return [
        f"took {record['seconds']:,.0f} s, {record['tokens_per_s']:,.0f} tokens/s; {peak} "
        f"{gb(record['peak_bytes'])}, estimated {gb(record['estimated_bytes'])}",
        f"{folder}: {what} of {chosen}; how it came about is in {folder / RECORD}",
        f"next: curate eval --model {folder} --bench DIR",
    ]
