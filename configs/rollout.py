"""How answers are generated, and by which engines."""

from typing import Literal

from pydantic import Field

from configs.base import Section


class RolloutConfig(Section):
    """One step's rollout batch: prompts_per_step groups of samples_per_prompt samples."""

    prompts_per_step: int = Field(default=32, ge=1)
    """Prompts (groups) in a step."""
    samples_per_prompt: int = Field(default=8, ge=2)
    """Samples of each prompt; the group is the baseline of its own advantages, so at least 2."""
    max_new_tokens: int = Field(default=48, ge=1)
    """Longest response, tokens; a longer one is truncated and counted."""
    temperature: float = Field(default=1.0, gt=0)
    """Sampling temperature; log-probabilities are of logits / temperature on both sides."""
    stop: tuple[str, ...] = ()
    """Strings that end a response, besides the end-of-sequence token."""
    timeout_s: float = Field(default=600, gt=0)
    """Deadline of one generate request, seconds."""


class EmbeddedEngine(Section):
    """The project's own engine: PyTorch with transformers model classes, SGLang's HTTP protocol."""

    kind: Literal["embedded"] = "embedded"
    count: int = Field(default=1, ge=1)
    """Engines to run; prompts are spread over them in a fixed order."""
    threads: int = Field(default=1, ge=1)
    """CPU threads of each engine."""
    device: str = "cpu"
    """Torch device to serve on."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Number format of the served weights."""
    context_length: int = Field(default=192, ge=8)
    """Longest prompt plus response, tokens."""
    batch_size: int = Field(default=128, ge=1)
    """Most samples decoded together; part of what makes a run reproducible to the bit."""
    port: int | None = Field(default=None, ge=1, le=65535)
    """Port of the first engine (the others count up from it); free ports when absent."""
    start_timeout_s: float = Field(default=180, gt=0)
    """Deadline from launch to the first healthy answer, seconds."""
