"""The trainer, and the bounds that its steps must keep."""

from typing import Literal, Self

from pydantic import Field, model_validator

from configs.base import Section


class GateConfig(Section):
    """Bounds outside which a step stops before its optimizer step."""

    max_logprob_diff: float | None = Field(default=None, gt=0)
    """Largest |trainer - rollout| log-probability of any on-version token, nats; None does not stop."""
    max_grad_norm: float | None = Field(default=None, gt=0)
    """Largest gradient norm before clipping; None does not stop. Non-finite values always stop."""


class ParallelLayout(Section):
    """How a model and its batches are split over the trainer's ranks."""

    tensor_parallel: int = Field(default=1, ge=1)
    """Ranks that share each layer's matrices."""
    data_parallel: int = Field(default=1, ge=1)
    """Replicas that share a batch."""
    expert_parallel: int = Field(default=1, ge=1)
    """Ranks, of all the trainer's, that share each layer's experts; an expert itself is never split."""

    @property
    def world_size(self) -> int:
        """Number of trainer ranks."""
        return self.tensor_parallel * self.data_parallel

    @model_validator(mode="after")
    def _experts_on_all_ranks(self) -> Self:
        if self.world_size % self.expert_parallel:
            raise ValueError(
                f"expert_parallel {self.expert_parallel} does not divide tensor_parallel * data_parallel = "
                f"{self.world_size}: set it to a divisor"
            )
        return self


class StateLayout(ParallelLayout):
    """What a trainer's state is made for: a checkpoint of one layout is of no use to another."""

    dtype: Literal["float32", "bfloat16"] = "float32"
    """Number format of the model parameters; logits and loss are always fp32."""

    def differing(self, other: "StateLayout") -> str | None:
        """The first field in which the two differ; None when the state of one fits the other."""
        fields = StateLayout.model_fields
        return next((name for name in fields if getattr(self, name) != getattr(other, name)), None)


class TrainerConfig(StateLayout):
    """The Megatron-core trainer: parallel layout, optimizer and microbatches."""

    threads: int = Field(default=1, ge=1)
    """CPU threads of each rank."""
    backend: Literal["gloo", "nccl"] = "gloo"
    """Collectives library of torch.distributed."""
    learning_rate: float = Field(default=3e-4, gt=0)
    """Peak learning rate of Adam."""
    warmup_steps: int = Field(default=5, ge=0)
    """Steps over which the learning rate rises linearly from learning_rate / warmup_steps."""
    adam_betas: tuple[float, float] = (0.9, 0.98)
    """Decay rates of Adam's moments."""
    adam_eps: float = Field(default=1e-8, gt=0)
    """Adam's epsilon."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Decoupled weight decay."""
    grad_clip: float = Field(default=1.0, gt=0)
    """Gradient norm is clipped to this."""
    microbatch_tokens: int = Field(default=16384, ge=64)
    """Most tokens (padding included) in one forward and backward."""
    start_timeout_s: float = Field(default=300, gt=0)
    """Deadline for all ranks to be up with the model loaded, seconds."""
    step_timeout_s: float = Field(default=900, gt=0)
    """Deadline of one training step, scoring pass or export, seconds."""
    checkpoint_every: int = Field(default=1, ge=1)
    """Steps between trainer checkpoints; a resume replays the committed batches since the last one."""
    keep_checkpoints: int = Field(default=2, ge=1)
    """Newest trainer checkpoints to keep."""

    @model_validator(mode="after")
    def _betas_in_range(self) -> "TrainerConfig":
        if not all(0 <= beta < 1 for beta in self.adam_betas):
            raise ValueError("adam_betas must both lie in [0, 1)")
        return self
