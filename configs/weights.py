"""How weight versions reach the engines."""

from typing import Literal

from pydantic import Field

from configs.base import Section


class PublishConfig(Section):
    """Two-phase publish: transfer and hash on every engine, then probe, then stamp."""

    transport: Literal["disk", "process_group"] = "disk"
    """disk: engines load the exported folder. process_group: the trainer broadcasts the tensors."""
    bucket_mb: float = Field(default=256, gt=0)
    """Most data in one broadcast bucket, MiB (process_group)."""
    probe_sequences: int = Field(default=4, ge=1)
    """Fixed token sequences scored on every engine and on the trainer after each transfer."""
    probe_tolerance: float = Field(default=1e-4, gt=0)
    """Largest |trainer - engine| log-probability of a probe token, nats; more refuses the publish."""
    timeout_s: float = Field(default=300, gt=0)
    """Deadline of each publish call, seconds."""
    keep_versions: int | None = Field(default=None, ge=2)
    """Newest exported weight folders to keep (version 0 and the best evaluated one stay); None keeps all."""
