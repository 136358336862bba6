"""What a training step reports."""

from pydantic import BaseModel, ConfigDict

from tasks.record.credit import VersionCredit


class TrainReport(BaseModel):
    """An applied step. Metrics carry the names that MLflow receives; what was not measured is absent."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")
    step: int
    optimizer_steps: int
    """Zero when no group of the batch had a spread of rewards."""
    metrics: dict[str, float]
    credits: tuple[VersionCredit, ...]
    """What the batch says of the versions that generated it, before the step."""
