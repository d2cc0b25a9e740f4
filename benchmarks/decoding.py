"""Tokens per second of batched answers: ours, and transformers' `generate`, on the same prompts.

    python benchmarks/decoding.py MODEL OUT.json [--answers 256] [--tokens 512]

Prompts have 120, 200, 300 and 800 tokens, and each is answered eight times, at temperature 1 with
all of the vocabulary to draw from. No answer may end before its last token, so that all have the
same length. ``recorded`` is `curate.generate.decode` as it is on a GPU, with a token's kernels in a
CUDA graph; ``launched`` is the same without the graph. Each runs twice, and the second time counts.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import transformers
from transformers import GenerationConfig

from curate.generate.decode import Decoder, Request
from curate.generate.models import load_model, load_tokenizer
from curate.generate.sampling import Sampling

LENGTHS = (120, 200, 300, 800)
EACH = 8
"""Answers to a prompt, as many as GRPO asks for."""


def main() -> None:
    """Measure all ways, print and write them."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("out", type=Path, metavar="OUT.json")
    parser.add_argument("--answers", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=512)
    given = parser.parse_args()
    tokenizer, model = load_tokenizer(given.model), load_model(given.model)
    prompts = make_prompts(given.answers, model.config.vocab_size)
    ways = {
        "recorded": lambda: ours(model, tokenizer, prompts, given.tokens, records=True),
        "launched": lambda: ours(model, tokenizer, prompts, given.tokens, records=False),
        "generate": lambda: generate(model, prompts, given.tokens),
    }
    found: dict[str, Any] = {
        "answers": given.answers,
        "tokens_each": given.tokens,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
        "python": platform.python_version(),
    }
    for name, way in ways.items():
        found[name] = measure(way)
        print(f"{name}: {found[name]}", flush=True)
    own = found["recorded"]["tokens_per_s"]
    found["times_as_fast_as"] = {name: round(own / found[name]["tokens_per_s"], 2) for name in ways}
    given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(found["times_as_fast_as"])


def make_prompts(answers: int, vocabulary: int) -> list[list[int]]:
    """Return prompts of random tokens, every one as often as it is answered."""
    generator = torch.Generator().manual_seed(0)
    distinct = [
        torch.randint(vocabulary, (LENGTHS[i % len(LENGTHS)],), generator=generator).tolist()
        for i in range(answers // EACH)
    ]
    return [prompt for prompt in distinct for _ in range(EACH)]


def measure(way: Callable[[], int]) -> dict[str, float]:
    """Return seconds and tokens per second of the second run, and the memory of both."""
    way()
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    tokens = way()
    seconds = time.perf_counter() - began
    peak = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
    return {
        "seconds": round(seconds, 3),
        "tokens": tokens,
        "tokens_per_s": round(tokens / seconds, 1),
        "peak_gb": round(peak / 1e9, 2),
    }


def ours(model: Any, tokenizer: Any, prompts: list[list[int]], most: int, records: bool) -> int:
    decoder = Decoder(model, tokenizer)
    decoder.ends = set()
    decoder.records = records and decoder.records
    requests = {i: Request(prompt, seed=i) for i, prompt in enumerate(prompts)}
    answers = dict(decoder.run(requests, Sampling(n=1, top_p=1.0, max_tokens=most)))
    return sum(len(tokens or ()) for tokens in answers.values())


def generate(model: Any, prompts: list[list[int]], most: int) -> int:
    widest = max(map(len, prompts))
    ids, mask = (torch.zeros(len(prompts), widest, dtype=torch.long) for _ in range(2))
    for row, prompt in enumerate(prompts):
        ids[row, widest - len(prompt) :] = torch.tensor(prompt)
        mask[row, widest - len(prompt) :] = 1
    written = model.generate(
        input_ids=ids.to(model.device),
        attention_mask=mask.to(model.device),
        generation_config=GenerationConfig(
            do_sample=True, top_k=0, max_new_tokens=most, pad_token_id=0, eos_token_id=-1
        ),
    )
    return int((written.shape[1] - widest) * len(prompts))


if __name__ == "__main__":
    main()
