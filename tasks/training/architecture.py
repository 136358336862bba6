"""The shape of a supported model, read from its Hugging Face config."""

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from tasks.training.errors import ModelUnsupported

SUPPORTED = ("llama", "qwen2", "qwen3")
_MEGATRON_LLAMA3_ROPE = {
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


class Architecture(BaseModel):
    """A dense decoder of the Llama family: RMSNorm, rotary positions, grouped attention, gated SiLU MLP."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    model_type: str
    layers: int
    hidden_size: int
    ffn_size: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab_size: int
    max_positions: int
    norm_eps: float
    rope_theta: float
    rope_llama3_factor: float | None
    """Context extension factor of Llama 3.1's frequency scaling; None without scaling."""
    tied: bool
    """Input and output embeddings are one matrix."""
    qkv_bias: bool
    output_bias: bool
    """Whether the attention's output projection has a bias."""
    qk_norm: bool

    @classmethod
    def read(cls, model_path: Path) -> "Architecture":
        """Read `config.json` of a checkpoint folder.

        Raises ModelUnsupported for a model type or a feature that the trainer has no layout for.
        """
        from transformers import AutoConfig  # takes a second to import, and only a fresh run needs it

        try:
            config = AutoConfig.from_pretrained(model_path, local_files_only=True)
        except (OSError, ValueError) as error:
            raise ModelUnsupported(f"{model_path}: no readable config.json: {error}") from None
        return cls.of(config)

    @classmethod
    def of(cls, config: Any) -> "Architecture":
        """The architecture of a transformers config; raises ModelUnsupported."""
        if config.model_type not in SUPPORTED:
            raise ModelUnsupported(
                f'the trainer has no layout for model type "{config.model_type}": '
                f"use one of {', '.join(SUPPORTED)}"
            )
        _check_features(config)
        biased = bool(getattr(config, "attention_bias", False))
        return cls(
            model_type=config.model_type,
            layers=config.num_hidden_layers,
            hidden_size=config.hidden_size,
            ffn_size=config.intermediate_size,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            head_dim=getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
            vocab_size=config.vocab_size,
            max_positions=config.max_position_embeddings,
            norm_eps=config.rms_norm_eps,
            rope_theta=config.rope_parameters["rope_theta"],
            rope_llama3_factor=_llama3_factor(config.rope_parameters),
            tied=bool(config.tie_word_embeddings),
            qkv_bias=config.model_type == "qwen2" or biased,
            output_bias=biased,
            qk_norm=config.model_type == "qwen3",
        )

    def padded_vocab_size(self, tensor_parallel: int) -> int:
        """Rows of the embedding in Megatron: the vocabulary rounded up to a multiple of the ranks."""
        return -(-self.vocab_size // tensor_parallel) * tensor_parallel

    def check_tensor_parallel(self, ranks: int) -> None:
        """Raise ModelUnsupported when heads or MLP cannot be split over `ranks`."""
        for name in ("heads", "kv_heads", "ffn_size"):
            if getattr(self, name) % ranks:
                raise ModelUnsupported(
                    f"trainer.tensor_parallel {ranks} does not divide the model's {name} "
                    f"{getattr(self, name)}: set trainer.tensor_parallel to a divisor"
                )


def _check_features(config: Any) -> None:
    sliding = [kind for kind in getattr(config, "layer_types", None) or [] if kind != "full_attention"]
    for unsupported, feature in (
        (config.hidden_act != "silu", f'hidden_act "{config.hidden_act}"'),
        (getattr(config, "mlp_bias", False), "mlp_bias"),
        (getattr(config, "use_sliding_window", False) or sliding, "sliding-window attention"),
    ):
        if unsupported:
            raise ModelUnsupported(f"the trainer's {config.model_type} has no {feature}: use another model")


def _llama3_factor(rope: dict[str, Any]) -> float | None:
    kind = rope.get("rope_type", "default")
    if kind == "default":
        return None
    if kind == "llama3" and all(rope[name] == value for name, value in _MEGATRON_LLAMA3_ROPE.items()):
        return float(rope["factor"])
    raise ModelUnsupported(
        f'rope_scaling "{kind}" with {rope} is not supported: the trainer has "default", and "llama3" with '
        f"{_MEGATRON_LLAMA3_ROPE}"
    )
