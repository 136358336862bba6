"""How answers are generated."""

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
