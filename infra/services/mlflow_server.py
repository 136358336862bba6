"""MLflow's UI in one process: `python -m infra.services.mlflow_server --port N`.

It is told its database by variables, since a command line is no place for a password.

`mlflow server` does the same in two or three processes (a launcher, a job runner, a worker): 740 MB and
6 s where this takes 260 MB and 3 s.
"""

import argparse
import os

import uvicorn
from mlflow.server.constants import (
    ARTIFACT_ROOT_ENV_VAR,
    ARTIFACTS_DESTINATION_ENV_VAR,
    BACKEND_STORE_URI_ENV_VAR,
    REGISTRY_STORE_URI_ENV_VAR,
    SERVE_ARTIFACTS_ENV_VAR,
)

from infra.process import LOOPBACK
from infra.tracking.database import ensure_database

STORE = "OVERNIGHT_MLFLOW_STORE"
"""Variable with the URI of the database."""
ARTIFACTS = "OVERNIGHT_MLFLOW_ARTIFACTS"
"""Variable with the root URI of artifacts."""


def main() -> None:
    """Serve until terminated."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    arguments = parser.parse_args()
    store, artifacts = os.environ[STORE], os.environ[ARTIFACTS]
    os.environ |= {
        BACKEND_STORE_URI_ENV_VAR: store,
        REGISTRY_STORE_URI_ENV_VAR: store,
        ARTIFACT_ROOT_ENV_VAR: artifacts,
        ARTIFACTS_DESTINATION_ENV_VAR: artifacts,
        SERVE_ARTIFACTS_ENV_VAR: "true",
    }
    ensure_database(store, artifacts)
    uvicorn.run("mlflow.server.fastapi_app:app", host=LOOPBACK, port=arguments.port, log_level="warning")


if __name__ == "__main__":
    main()
