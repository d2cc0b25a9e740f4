"""Load a language model and its tokenizer from whatever a user has: folder, Hub, GGUF, adapter."""

from __future__ import annotations

import json
import os
import struct
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.wording import how_to_install

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

ADAPTER = "adapter_config.json"
"""The file that makes a folder an adapter of another model, as peft writes it."""


class ModelError(Exception):
    """A model cannot be had as it was asked for; the message says what the user can do."""


def need(*packages: str) -> None:
    """Check that packages of the extra ``train`` are installed.

    Raises:
        ModelError: one is not.
    """
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise ModelError(
            f"this needs {', '.join(missing)}, not installed here; {how_to_install('train')}"
        )


def load_tokenizer(path: str) -> PreTrainedTokenizerBase:
    """Return the tokenizer of a model; it has a token to pad with.

    Args:
        path: as for `load_model`.

    Raises:
        ModelError: there is none.
    """
    need("transformers")
    from transformers import AutoTokenizer

    base = adapter_base(path)
    if base and not (Path(path) / "tokenizer_config.json").exists():
        path = base
    tokenizer: PreTrainedTokenizerBase = _pretrained(AutoTokenizer, path)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_model(
    path: str, *, dtype: str | None = None, device: str | None = None, four_bit: bool = False
) -> PreTrainedModel:
    """Return a causal language model, in evaluation mode; every form can be trained and saved.

    Args:
        path: a folder with a model as `transformers` saves it; a folder with an adapter of peft's,
            which is merged into its base; a GGUF file, which is dequantised; or a name on the Hub.
        dtype: of the weights, such as ``float32``; by default bfloat16 on a GPU that has it, and
            float32 elsewhere.
        device: such as ``cuda:0``; by default the GPU if there is one, and otherwise the CPU.
        four_bit: hold the weights in four bits (NF4), which bitsandbytes does on a GPU.

    Raises:
        ModelError: there is no such model, or it cannot be had in four bits.
    """
    need("transformers")
    from transformers import AutoModelForCausalLM

    device = device or default_device()
    form: dict[str, Any] = {"dtype": dtype or default_dtype(device), "device_map": {"": device}}
    if four_bit:
        form["quantization_config"] = _four_bits(path)
    base = adapter_base(path)
    if base is None:
        model: PreTrainedModel = _pretrained(AutoModelForCausalLM, path, **form)
        return model.eval()
    if four_bit:
        raise ModelError(f"{path}: an adapter cannot be merged in four bits; merge it first")

    from peft import PeftModel

    try:
        adapted = PeftModel.from_pretrained(load_model(base, dtype=dtype, device=device), path)
    except (ValueError, RuntimeError) as error:
        raise ModelError(f"{path}: does not fit its base {base}: {error}") from error
    merged: PreTrainedModel = adapted.merge_and_unload()
    return merged.eval()


def load_config(path: str) -> Any:
    """Return the configuration of a model, without its weights.

    Raises:
        ModelError: there is none.
    """
    from transformers import AutoConfig

    return _pretrained(AutoConfig, adapter_base(path) or path)


def default_device() -> str:
    """Return the name of the device that models are put on: this process's GPU, or the CPU."""
    import torch

    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu"


def default_dtype(device: str) -> str:
    """Return the name of the type that weights have on a device unless something else is asked."""
    import torch

    has_it = device.startswith("cuda") and torch.cuda.is_bf16_supported(including_emulation=False)
    return "bfloat16" if has_it else "float32"


def adapter_base(path: str) -> str | None:
    """Return the model that the adapter in a folder belongs to; None if there is no adapter."""
    file = Path(path) / ADAPTER
    if not file.is_file():
        return None
    base = json.loads(file.read_text(encoding="utf-8")).get("base_model_name_or_path")
    if not base:
        raise ModelError(f"{file}: does not name its base model (base_model_name_or_path)")
    return str(base)


def _pretrained(kind: Any, path: str, **form: Any) -> Any:
    """Return what ``kind.from_pretrained`` makes of a path or a name."""
    local = Path(path)
    if path.endswith(".gguf"):
        _check_gguf(local)
        form["gguf_file"] = local.name
        if "dtype" in form:
            from transformers import GgufConfig

            form["quantization_config"] = GgufConfig(dequantize=True)
    elif not local.exists() and (path.startswith((".", "/", "~")) or path.count("/") > 1):
        raise ModelError(f"{path}: there is no such folder, and it is not a name on the Hub")
    try:
        made = kind.from_pretrained(str(local.parent) if "gguf_file" in form else path, **form)
    except (OSError, ValueError, KeyError, struct.error) as error:
        raise ModelError(f"{path}: no model can be loaded: {_first_line(error)}") from error
    if local.exists() and hasattr(made, "config"):
        # An adapter names its base; it is read from other folders too, and a GGUF has no folder.
        made.name_or_path = made.config.name_or_path = str(local.resolve())
    return made


def _check_gguf(path: Path) -> None:
    if not path.is_file():
        raise ModelError(f"{path}: there is no such file")
    need("gguf")


def check_four_bits(path: str) -> None:
    """Check that a model can be held in four bits.

    Raises:
        ModelError: it cannot; the message says why.
    """
    if find_spec("bitsandbytes") is None:
        raise ModelError("four bits need bitsandbytes, which is not installed; try --method lora")
    if path.endswith(".gguf"):
        raise ModelError(f"{path}: is quantised already; four bits want the model as safetensors")


def _four_bits(path: str) -> Any:
    check_four_bits(path)
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype="bfloat16",
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
