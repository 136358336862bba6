"""The served model: a transformers causal language model with what serving needs to know of it."""

import json
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig
from transformers.cache_utils import Cache
from transformers.initialization import no_init_weights
from transformers.utils import logging

from infra.engines.embedded.routing import RouterTap
from infra.engines.embedded.text import TextCodec
from infra.engines.embedded.weights import LiveWeights
from infra.engines.fit import require_architecture
from infra.engines.protocol import UNSTAMPED
from infra.quantisation.recipe import QuantisationRecipe
from infra.weights_folder import WeightsFolder, WeightsMismatch


class ServedModel:
    """Weights, their version, tokenizer and limits; used by one thread."""

    def __init__(self, folder: Path, dtype: torch.dtype, device: torch.device, context_length: int) -> None:
        """Load a weights folder; WeightsMismatch or ValueError says what does not fit."""
        logging.disable_progress_bar()
        self.config = _read_config(folder)
        _require_full_attention(self.config, context_length)
        self.folder = folder
        self.version = UNSTAMPED
        self.context_length = context_length
        self.vocab_size: int = self.config.vocab_size
        self.end_tokens = _end_tokens(folder, self.config)
        self.text = TextCodec.load(folder)
        self.device = device
        self.dtype = dtype
        with no_init_weights():  # all of them are about to be loaded
            self._module = AutoModelForCausalLM.from_config(
                self.config, dtype=dtype, attn_implementation="sdpa"
            )
        self._module.tie_weights()
        self._module.to(device).eval().requires_grad_(False)
        self.weights = LiveWeights(self._module, _recipe(self.config, dtype))
        self.weights.load_folder(WeightsFolder(folder), convert=True)
        self.routing = RouterTap.on(self._module)
        """None for a model without experts."""

    def load_folder(self, folder: Path) -> None:
        """Replace the weights by those of a folder of the same architecture, or raise WeightsMismatch."""
        offered = WeightsFolder(folder)
        require_architecture(offered, self.config.architectures or ())
        self.weights.load_folder(offered)
        self.folder = folder

    def logits(
        self,
        tokens_BT: torch.Tensor,
        positions_BT: torch.Tensor,
        mask_B1TK: torch.Tensor | None,
        cache: Cache | None,
        last: int,
    ) -> torch.Tensor:
        """fp32 logits [B, last, V] of the last positions (all of them for 0); mask is added to the scores."""
        output = self._module(
            input_ids=tokens_BT,
            position_ids=positions_BT,
            attention_mask=mask_B1TK,
            cache=cache,
            use_cache=cache is not None,
            logits_to_keep=last,
        )
        return output.logits.float()


def _read_config(folder: Path) -> PreTrainedConfig:
    if not (folder / "config.json").is_file():
        raise WeightsMismatch(f"{folder / 'config.json'} is missing: give the folder of a model")
    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError) as error:
        raise WeightsMismatch(f"{folder / 'config.json'} cannot be read: {error}") from error


def _recipe(config: PreTrainedConfig, dtype: torch.dtype) -> QuantisationRecipe:
    """What the configuration declares of the weights' format; undeclared ones are held in `dtype`."""
    declared = getattr(config, "quantization_config", None)
    if declared is None:
        return QuantisationRecipe.of({}, None, dtype)
    kept = config.dtype if isinstance(config.dtype, torch.dtype) else dtype
    return QuantisationRecipe.of({"quantization_config": declared}, None, kept)


def _require_full_attention(config: PreTrainedConfig, context_length: int) -> None:
    window = getattr(config, "sliding_window", None)
    default = "full_attention" if window is None else "sliding_attention"
    others = set(getattr(config, "layer_types", None) or [default]) - {"full_attention"}
    if window is not None and context_length <= window:
        others.discard("sliding_attention")  # a window as long as the context hides nothing
    if "sliding_attention" in others:
        raise ValueError(f"context_length {context_length} is over the model's attention window {window}")
    if others:
        raise ValueError(f"the model has {', '.join(sorted(others))} layers: only full attention is served")


def _end_tokens(folder: Path, config: PreTrainedConfig) -> tuple[int, ...]:
    file = folder / "generation_config.json"
    generation: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    end = generation.get("eos_token_id", config.eos_token_id)
    if end is None:
        return ()
    return tuple(end) if isinstance(end, list) else (end,)
