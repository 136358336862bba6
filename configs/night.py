"""What a night does about the nights before it, and whom it tells when it goes wrong."""

from typing import Literal

from pydantic import Field

from configs.base import Section


class NightConfig(Section):
    """A night is one scheduled flow run; nights of the same `name` are a lineage."""

    begins_from: Literal["best", "newest", "anew"] = "best"
    """Weights of a new night. best: those of the lineage's best version so far, by avg@k on the held-out
    problems, so that a worse night is not gone on from. newest: of the last finished night's newest version.
    anew: `model` again, as in a lineage's first night and in the first one of another `model`. Each night has
    `seed` plus its number for a seed. A night that was interrupted, but not abandoned, is continued first in
    any case."""
    overlap: Literal["skip", "queue", "cancel"] = "skip"
    """When the night before is still going: skip this one, wait for it (one at most waits), or cancel it."""
    alert_block: str | None = Field(default=None, pattern=r"^[a-z0-9-]+/[A-Za-z0-9._ -]+$")
    """Prefect notification block to tell of a failed night or a gate that stopped it, such as
    `slack-webhook/ops`; nobody is told when absent."""
