"""A supported model as a whole."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from configs.training import ParallelLayout
from tasks.model.architecture.families import FAMILIES, check_features
from tasks.model.architecture.parts import Experts, GroupedAttention, LatentAttention, Part
from tasks.model.errors import ModelUnsupported


class Architecture(Part):
    """A decoder with RMSNorm before each part, rotary positions, and gated SiLU MLPs or experts."""

    model_type: str
    layers: int
    hidden_size: int
    ffn_size: int
    """Size of the MLP of layers without experts."""
    heads: int
    vocab_size: int
    max_positions: int
    norm_eps: float
    rope_theta: float
    tied: bool
    """Input and output embeddings are one matrix."""
    attention: Annotated[GroupedAttention | LatentAttention, Field(discriminator="kind")]
    experts: Experts | None
    prediction_layers: int
    """Layers behind the last that predict further tokens; they are neither trained nor exported."""

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
        family = FAMILIES.get(config.model_type)
        if family is None:
            raise ModelUnsupported(
                f'the trainer has no layout for model type "{config.model_type}": '
                f"use one of {', '.join(FAMILIES)}"
            )
        check_features(config)
        return cls(
            model_type=config.model_type,
            layers=config.num_hidden_layers,
            hidden_size=config.hidden_size,
            ffn_size=config.intermediate_size,
            heads=config.num_attention_heads,
            vocab_size=config.vocab_size,
            max_positions=config.max_position_embeddings,
            norm_eps=config.rms_norm_eps,
            rope_theta=config.rope_parameters["rope_theta"],
            tied=bool(config.tie_word_embeddings),
            attention=family.attention(config),
            experts=family.experts(config),
            prediction_layers=getattr(config, "num_mtp_layers", 0),
        )

    def has_experts(self, layer: int) -> bool:
        """Whether a layer, counted from 0, has experts in place of an MLP."""
        return self.experts is not None and layer in self.experts.layers

    def padded_vocab_size(self, tensor_parallel: int) -> int:
        """Rows of the embedding in Megatron: the vocabulary rounded up to a multiple of the ranks."""
        return -(-self.vocab_size // tensor_parallel) * tensor_parallel

    def check_layout(self, layout: ParallelLayout) -> None:
        """Raise ModelUnsupported when the model cannot be split over the trainer's ranks."""
        for name, size in self._split_by_tensor_parallel().items():
            _check_divides("tensor_parallel", layout.tensor_parallel, name, size)
        if layout.expert_parallel > 1 and self.experts is None:
            raise ModelUnsupported(
                f"trainer.expert_parallel {layout.expert_parallel}: the model has no experts: set it to 1"
            )
        if self.experts is not None:
            _check_divides("expert_parallel", layout.expert_parallel, "experts", self.experts.count)

    def _split_by_tensor_parallel(self) -> dict[str, int]:
        sizes = {"heads": self.heads, "ffn_size": self.ffn_size}
        if isinstance(self.attention, GroupedAttention):
            sizes["kv_heads"] = self.attention.kv_heads
        if self.experts is not None and self.experts.shared_ffn_size is not None:
            sizes["shared_ffn_size"] = self.experts.shared_ffn_size
        return sizes


def _check_divides(setting: str, ranks: int, name: str, size: int) -> None:
    if size % ranks:
        raise ModelUnsupported(
            f"trainer.{setting} {ranks} does not divide the model's {name} {size}: "
            f"set trainer.{setting} to a divisor"
        )
