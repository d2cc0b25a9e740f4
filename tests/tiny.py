"""A language model of 130,000 parameters for tests, made in a second and without a download."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

REPOSITORY = Path(__file__).parents[1]
CONTEXT = 2048

CHATML = """\
{% for message in messages %}<|im_start|>{{ message.role }}
{% if message.role == 'assistant' %}\
{% generation %}{{ message.content }}<|im_end|>{% endgeneration %}\
{% else %}{{ message.content }}<|im_end|>{% endif %}{{ '\\n' }}{% endfor %}\
{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def make_tiny_model(folder: Path) -> Path:
    """Write a random Llama and its tokenizer into a folder and return the folder.

    The tokenizer is a byte-level BPE of 512 pieces, learned from Triton programs of this
    repository; its chat template is ChatML, with the mark of what the assistant says.
    """
    tokenizer = make_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer with the special tokens of SmolLM2."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=512,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = (p.read_text() for p in sorted(REPOSITORY.glob("benchmarks/programs/*.py")))
    bpe.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=CHATML,
        model_max_length=CONTEXT,
    )
