"""What a training step reports."""

from pydantic import BaseModel, ConfigDict


class TrainReport(BaseModel):
    """An applied step. Metrics carry the names that MLflow receives; what was not measured is absent."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")
    step: int
    optimizer_steps: int
    """Zero when no group of the batch had a spread of rewards."""
    metrics: dict[str, float]
    seconds: float
    """Wall time on rank 0 (each rank reports its own)."""
