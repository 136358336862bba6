"""What a run that a schedule began knows of the nights before it."""

from pydantic import BaseModel, ConfigDict

from configs.run import RunConfig
from configs.weights import TOLERANCES


class Origin(BaseModel):
    """The weight version of an earlier run that a run began from."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    run_id: str
    """Of that run."""
    version: int
    hash: str
    """Content hash of the version."""
    format: str
    """Number format of the version."""

    @property
    def is_quantised(self) -> bool:
        """Whether its format holds less than the weights that an engine computes with."""
        return self.format in TOLERANCES

    def __str__(self) -> str:
        return f"{self.run_id}@{self.version}"


class Night(BaseModel):
    """A run's place among the nights of its configuration's name, which are its lineage."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    number: int
    """From 0 in the order in which the lineage's runs began."""
    asked: RunConfig
    """What the schedule asked for; the run's own configuration has another seed, and what was revised."""
    origin: Origin | None
    """What the run began from; None for `asked.model`."""

    @property
    def lineage(self) -> str:
        """Name of the lineage."""
        return self.asked.name
