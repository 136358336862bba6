"""MLflow, spoken in batches: our own database without a server between, or the user's server."""

import os

from configs.errors import RunFailure

# Read by MLflow when it is first imported: no usage reports to the internet, no chatter about migrations.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
# A server that is down is given up within a minute; MLflow's own patience is that of minutes.
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "3")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")


class TrackingError(RunFailure):
    """MLflow cannot be reached or written. Work may go on; the same call may succeed later."""
