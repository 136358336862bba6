"""How weight versions reach the engines."""

from typing import Any, Literal

from pydantic import Field, model_validator

from configs.base import Section
from configs.transport import DiskTransport, Transport, whole_form

QuantisedFormat = Literal["fp8_block", "fp8_channel", "int8_channel", "mxfp8", "mxfp4"]
TOLERANCES: dict[str | None, float] = {
    None: 1e-4,
    "int8_channel": 1.0,
    "fp8_block": 3.0,
    "fp8_channel": 3.0,
    "mxfp8": 4.0,
    "mxfp4": 10.0,
}
"""How far the log-probability of a token may be from the trainer's by the number format alone, nats.

Without quantisation it is the order of fp32 sums (measured: 1e-6 to 1e-5). Quantised weights are another
policy: in fp8 the mean token of tiny-cpu differs by 0.002, the rarest one by a thousand times that. Each
bound is about twice the largest value seen (0.4, 1.4, 1.4, 1.3 and 5.3) in a run of tiny-fp8-cpu and on
7000 sampled tokens and 64 prompts of each of three versions of tiny-cpu. Gross errors exceed it; hashes tell
the fine ones.
"""

BFLOAT16_STEP = 2.0**-8
"""What bfloat16 rounds a log-probability of one nat by."""


class PublishConfig(Section):
    """Two-phase publish: transfer and hash on every engine, then probe, then stamp."""

    format: QuantisedFormat | None = None
    """Number format of the linear layers' weights, quantised anew for each version; all else, and everything
    when absent, is in engine.dtype."""
    transport: Transport = DiskTransport()
    """How tensors travel to the engines; the name of a kind stands for it with its defaults."""
    bucket_mb: float = Field(default=256, gt=0)
    """Most data in one bucket, MiB, where they travel in buckets; a larger tensor is one by itself."""
    probe_sequences: int = Field(default=4, ge=1)
    """Fixed token sequences scored on every engine and on the trainer after each transfer."""
    probe_tolerance: float = Field(default_factory=lambda fields: TOLERANCES[fields["format"]], gt=0)
    """Largest |trainer - engine| log-probability of a probe token, nats; more refuses the publish. By default
    what the format explains; engines that compute in bfloat16 need about 0.5."""
    prefix_tolerance: float = Field(default=1e-4, gt=0)
    """Largest difference between log-probabilities that an engine gives after a prefix that it may have
    cached and after the same one computed anew, nats; engines that compute in bfloat16 need about 0.5."""
    timeout_s: float = Field(default=300, gt=0)
    """Deadline of each publish call, seconds."""
    keep_versions: int | None = Field(default=None, ge=2)
    """Newest exported weight folders to keep (version 0 and the best evaluated one stay); None keeps all."""

    @model_validator(mode="before")
    @classmethod
    def _transport_by_name(cls, publish: Any) -> Any:
        return whole_form(publish) if isinstance(publish, dict) else publish

    @property
    def bucket_bytes(self) -> float:
        """bucket_mb in bytes."""
        return self.bucket_mb * 2**20
