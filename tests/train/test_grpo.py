"""Training by reward: the whole way with TRL's trainer and the real judge, on the CPU.

A small random model never writes a program, so the model of these tests has a vocabulary of whole
answers: right ones, wrong ones and cheats. It says one token, at random, until it has learned.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from curate.files import InputError
from curate.generate.models import ModelError
from curate.problem.problem import EXAMPLE
from curate.teacher.program import program_of
from curate.teacher.template import fence
from curate.train.__main__ import main
from curate.train.grpo import GrpoOptions, audit, train_grpo
from curate.train.options import TrainOptions
from curate.verify import read_jsonl, read_verdicts

REFERENCE, RIGHT = EXAMPLE
ADDS_TWO = REFERENCE.replace("x + 1", "x + 2")
ANSWERS = [
    fence(RIGHT),
    fence(RIGHT.replace("64", "32")),
    fence(RIGHT.replace("x + 1, mask", "x + 2, mask")),
    fence(RIGHT.replace("x + 1, mask", "x + 3, mask")),
    fence(RIGHT + "return ("),
    fence(RIGHT.replace("return out", "return x + 1")),
    "I would use tl.load.",
]
CHAT = "{% for turn in messages %}<turn> {{ turn.content }} {% endfor %}<turn>"
SPECIAL = {"pad_token": "<pad>", "eos_token": "<end>", "unk_token": "<unk>"}
CONTEXT = 512


def write_model(folder: Path, chat: str | None = CHAT) -> str:
    words = [*SPECIAL.values(), "<turn>", *ANSWERS]
    level = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, "<unk>"))
    level.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=level, chat_template=chat, model_max_length=CONTEXT, **SPECIAL
    )
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture
def model(tmp_path: Path) -> str:
    return write_model(tmp_path / "model")


@pytest.fixture
def problems(tmp_path: Path) -> str:
    rows = [
        {"id": "one", "reference": REFERENCE, "triton": RIGHT},
        {"id": "two", "reference": ADDS_TWO, "triton": RIGHT.replace("x + 1", "x + 2")},
    ]
    file = tmp_path / "problems.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def options(tmp_path: Path, problems: str, model: str, **changed: Any) -> TrainOptions:
    values: dict[str, Any] = {
        "method": "grpo",
        "max_steps": 2,
        "batch_size": 32,
        "accumulation": 1,
        "evaluations": 2,
        "learning_rate": 1e-2,
        "checkpointing": False,
        "seed": 1,
    }
    return TrainOptions(problems, model, tmp_path / "tuned", **values | changed)


def weights(folder: str | Path) -> torch.Tensor:
    loaded = LlamaForCausalLM.from_pretrained(folder)
    return torch.cat([p.detach().flatten() for p in loaded.parameters()])


JUDGED = GrpoOptions("verified,format", 16, answer_length=1, backend="cpu", judge_workers=1)


@pytest.mark.slow
@pytest.mark.weekly
def test_two_updates_by_verified_reward_of_which_one_is_done_again(
    tmp_path: Path, model: str, problems: str
) -> None:
    def interrupt(line: str) -> None:
        if line.startswith("update 2"):
            raise KeyboardInterrupt

    given = options(tmp_path, problems, model)
    with pytest.raises(KeyboardInterrupt):
        train_grpo(given, JUDGED, interrupt)
    trained = train_grpo(given, JUDGED)

    record, folder = trained.record, trained.folder
    assert [entry["step"] for entry in record["history"]] == [1, 2]
    for entry in record["history"]:
        assert entry["reward_std"] > 0 and entry["zero_std"] < 1
    assert any(0 < entry["correct"] < 1 for entry in record["history"])
    assert (weights(model) != weights(folder)).float().mean() > 0.5
    assert "<svg" in (folder / "reward.svg").read_text()
    assert not (folder / "checkpoints").exists()

    assert sum(record["statuses"].values()) == 2 * 32  # the update that was done again counts once
    assert {"correct", "incorrect", "cheat", "no_program"} <= set(record["statuses"])
    assert [line["reward"] for line in record["top"][:1]] == [1.0]
    assert all(line["rules"] == [] for line in record["top"] if line["status"] == "correct")
    log = folder / "rewards" / "0"
    lines = [json.loads(line) for line in (log / "rewards.jsonl").read_text().splitlines()]
    assert [line["run"] for line in lines] == [0] * 64 + [1] * 32
    assert {line["step"] for line in lines if line["run"] == 1} == {1}
    programs = {c.id: c for c in read_jsonl(log / "programs.jsonl")}
    verdicts = read_verdicts(log / "verdicts.jsonl")
    assert programs.keys() == verdicts.keys() == {line["id"] for line in lines} - {None}
    assert {c.candidate for c in programs.values()} <= {program_of(text) for text in ANSWERS}

    correct = read_jsonl(folder / "rewards" / "correct.jsonl")
    right = [name for name, entry in verdicts.items() if entry.verdict.status == "correct"]
    assert sorted(candidate.id for candidate in correct) == sorted(right)
    assert {c.candidate for c in correct} <= {program_of(text) for text in ANSWERS[:3]}

    said: list[str] = []
    assert train_grpo(given, JUDGED, said.append).record == record
    assert not any(line.startswith("update") for line in said)


def test_adapters_by_form_and_similarity(tmp_path: Path, model: str, problems: str) -> None:
    grpo = GrpoOptions("similarity,format", 16, answer_length=1, adapters=True)
    trained = train_grpo(options(tmp_path, problems, model, max_steps=1), grpo)
    (update,) = trained.record["history"]
    assert 0 < update["reward"] < 2 and update["reward_std"] > 0
    assert update["correct"] is None and trained.record["statuses"] == {}
    assert (trained.folder / "adapter_config.json").exists()
    assert not (trained.folder / "rewards").exists()


def test_what_does_not_fit_together_is_said(tmp_path: Path, model: str, problems: str) -> None:
    with pytest.raises(InputError, match="multiple of --generations 16"):
        train_grpo(options(tmp_path, problems, model, batch_size=12), JUDGED)
    with pytest.raises(InputError, match="asks 3 problems, and there are 2"):
        train_grpo(options(tmp_path, problems, model, batch_size=48), JUDGED)
    long = GrpoOptions(answer_length=CONTEXT)
    with pytest.raises(InputError, match="no question leaves room"):
        train_grpo(options(tmp_path, problems, model), long)
    bare = write_model(tmp_path / "bare", chat=None)
    with pytest.raises(ModelError, match="no chat template"):
        train_grpo(options(tmp_path, problems, bare), JUDGED)
    unanswered = tmp_path / "unanswered.jsonl"
    unanswered.write_text(json.dumps({"id": "one", "reference": REFERENCE}))
    with pytest.raises(InputError, match="column triton"):
        train_grpo(options(tmp_path, str(unanswered), model), GrpoOptions("similarity"))
    assert not (tmp_path / "tuned").exists()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rewards": "verified,nice"}, "'nice': allowed are verified, format, similarity"),
        ({"generations": 1}, "a group has two answers or more"),
        ({"answer_length": 0}, "greater than 0"),
        ({"backend": "cpu", "timing": True}, "timing needs a device"),
        ({"judge_workers": 0}, "workers 0"),
    ],
)
def test_options_say_what_is_allowed(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GrpoOptions(**wrong)


def test_the_command_says_what_is_for_grpo_only(tmp_path: Path, model: str, problems: str) -> None:
    words = ["train", problems, "--model", model, "--output", str(tmp_path / "tuned")]
    run = CliRunner().invoke(main, [*words, "--answer-length", "9", "--method", "lora"])
    assert run.exit_code == 2 and "--answer-length: for --method grpo only" in run.output
    run = CliRunner().invoke(main, [*words, "--rewards", "nice", "--method", "grpo"])
    assert run.exit_code == 2 and "allowed are verified, format, similarity" in run.output
    run = CliRunner().invoke(main, [*words, "--generations", "3", "--method", "grpo"])
    assert run.exit_code == 2 and "an update has 16 answers" in run.output


def test_the_audit_counts_updates_once(tmp_path: Path) -> None:
    def line(run: int, step: int, reward: float) -> str:
        shown = {"id": f"p{reward}", "status": "correct", "rules": [], "kind": None}
        return json.dumps({"run": run, "step": step, "reward": reward, "speedup": None} | shown)

    # The process ended in update 2 and again in 1, having begun with 1; then it went on.
    runs = [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 1), (2, 2), (2, 3)]
    (tmp_path / "0").mkdir()
    text = "".join(line(run, step, 1 + run / 10) + "\n" for run, step in runs)
    (tmp_path / "0" / "rewards.jsonl").write_text(text)
    found = audit(tmp_path)
    assert found["statuses"] == {"correct": 4}
    assert [(top["reward"], top["n"]) for top in found["top"]] == [(1.2, 3), (1.0, 1)]
