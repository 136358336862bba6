"""MLflow, spoken in batches and without a server between."""

import os

from configs.errors import RunFailure

# Read by MLflow when it is first imported: no usage reports to the internet, no chatter about migrations.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")


class TrackingError(RunFailure):
    """MLflow cannot be reached or written. Work may go on; the same call may succeed later."""
