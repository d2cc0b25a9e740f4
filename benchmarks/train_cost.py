"""What `curate train` costs: its memory estimate against the peak, its speed against plain TRL.

``python benchmarks/train_cost.py MODEL DATASET OUT.json [--steps N]``

DATASET is a folder that `curate run` wrote, with the config messages. Every measurement is a
process of its own, so that none inherits another's memory. On a GPU the peak is that of PyTorch's
allocator; on a CPU it is what the process gained in resident memory, freed or not, from the moment
before the model was loaded.

Plain TRL is `SFTTrainer` with the same options, given the rows as they are; it tokenises them
itself. Rows are put in one order and the seed is the same, so both see the same batches.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROUNDS = 3
SETTINGS: dict[str, dict[str, Any]] = {
    "full": {"method": "full"},
    "full, activations kept": {"method": "full", "checkpointing": False},
    "lora": {"method": "lora"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", help="folder or .gguf file")
    parser.add_argument("dataset", help="folder that `curate run` wrote")
    parser.add_argument("out", type=Path, metavar="OUT.json")
    parser.add_argument("--steps", type=int, default=10, help="updates of each measurement")
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--max-length", type=int, help="leave out longer rows")
    parser.add_argument("--one", nargs=2, metavar=("WHO", "SETTING"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given, *given.one)))
        return
    report: dict[str, Any] = {"memory": [], "rounds": []}
    for name in SETTINGS:
        found = {"setting": name, **spawn("ours", name)}
        found["estimate_to_peak"] = round(found["estimated_bytes"] / found["peak_bytes"], 3)
        report["memory"].append(found)
        write(report, given.out, found)
    for number in range(ROUNDS):
        pair = {}
        for who in ("ours", "trl") if number % 2 == 0 else ("trl", "ours"):
            pair[who] = spawn(who, "full, activations kept")
        report["rounds"].append(pair)
        report["ratio"] = ratios(report["rounds"])
        write(report, given.out, pair)


def write(report: dict[str, Any], out: Path, found: dict[str, Any]) -> None:
    """Print the figures and write all of them so far: an interruption loses only what follows."""
    print(json.dumps(found), flush=True)
    out.write_text(json.dumps(report, indent=2) + "\n")


def ratios(rounds: list[dict[str, Any]]) -> dict[str, float]:
    """Return ours to TRL's: the median over the rounds."""
    names = ("tokens_per_s", "peak_bytes", "loss")
    return {
        name: round(statistics.median(r["ours"][name] / r["trl"][name] for r in rounds), 3)
        for name in names
    }


def spawn(who: str, setting: str) -> dict[str, Any]:
    """Return what a process of its own measures."""
    command = [sys.executable, "-W", "ignore", __file__, *sys.argv[1:], "--one", who, setting]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(ran.stdout.splitlines()[-1])


def measure(given: argparse.Namespace, who: str, setting: str) -> dict[str, Any]:
    """Train once and return tokens per second, peak and, for ours, the estimate."""
    os.environ.setdefault("TQDM_DISABLE", "1")
    from trl import SFTTrainer

    from curate.train.options import TrainOptions

    assert SFTTrainer  # loaded here, or its modules would count as memory of the training
    with tempfile.TemporaryDirectory() as folder:
        options = TrainOptions(
            given.dataset,
            given.model,
            Path(folder) / "model",
            batch_size=given.batch_size,
            accumulation=1,
            max_length=given.max_length,
            max_steps=given.steps,
            evaluations=1,
            **SETTINGS[setting],
        )
        return (ours if who == "ours" else plain_trl)(options)


def ours(options: Any) -> dict[str, Any]:
    from curate.train.prepare import claim, identity, prepare
    from curate.train.sft import make_trainer, run

    prepared = prepare(options)
    prepared = dataclasses.replace(prepared, rows={"train": prepared.rows["train"]})
    claim(options.output, identity(prepared))
    before = resident()
    trainer = make_trainer(prepared, lambda line: None)
    found = run(trainer, prepared)
    return {
        "tokens_per_s": found["tokens_per_s"],
        "peak_bytes": found["peak_bytes"] - before * (prepared.device == "cpu"),
        "estimated_bytes": found["estimated_bytes"],
        "loss": found["loss"][-1][1],
    }


def plain_trl(options: Any) -> dict[str, Any]:
    """The same training as a user of TRL writes it, but for the rows that are left out."""
    import torch
    from trl import SFTConfig, SFTTrainer

    from curate.generate.models import load_model, load_tokenizer
    from curate.train.data import as_example, read_examples, tokenize

    tokenizer = load_tokenizer(options.model)
    rows = read_examples(options.dataset, "messages", "train")
    if options.max_length:
        lengths = tokenize(rows, tokenizer)["length"]
        rows = rows.select([i for i, n in enumerate(lengths) if n <= options.max_length])
    examples = rows.map(lambda row: as_example(row, tokenizer), remove_columns=rows.column_names)
    on_gpu = torch.cuda.is_available()
    before = resident()
    trainer = SFTTrainer(
        model=load_model(options.model, dtype="float32"),
        args=SFTConfig(
            output_dir=str(options.output),
            max_steps=options.max_steps,
            per_device_train_batch_size=options.batch_size,
            learning_rate=options.rate,
            lr_scheduler_type="cosine",
            warmup_steps=0.03,
            max_length=None,
            gradient_checkpointing=options.checkpointing,
            bf16=on_gpu,
            use_cpu=not on_gpu,
            logging_steps=0.01,
            save_strategy="steps",
            save_steps=options.max_steps,
            seed=options.seed,
            report_to="none",
            disable_tqdm=True,
        ),
        train_dataset=examples,
        processing_class=tokenizer,
    )
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    seconds = trainer.train().metrics["train_runtime"]
    history = trainer.state.log_history
    return {
        "tokens_per_s": max(entry.get("num_tokens", 0) for entry in history) / seconds,
        "peak_bytes": torch.cuda.max_memory_allocated() if on_gpu else resident() - before,
        "loss": [entry["loss"] for entry in history if "loss" in entry][-1],
    }


def resident() -> int:
    """Return the most resident memory that this process has had, in bytes."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    main()
