"""How processes are told which Prefect server to use. `infra` itself speaks HTTP and imports no Prefect."""

import os
import sys

from infra.home import Home


def client_environment(home: Home, url: str) -> dict[str, str]:
    """Variables that a process needs to run flows against the Prefect server at `url`."""
    return {
        "OVERNIGHT_HOME": str(home.root),
        "PREFECT_HOME": str(home.prefect),
        "PREFECT_API_URL": f"{url}/api",
        "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false",
        # The console belongs to the progress display; Prefect's UI keeps every line.
        "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "WARNING",
        "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
        "DO_NOT_TRACK": "1",
    }


def connect(home: Home, url: str) -> None:
    """Make this process use the Prefect server at `url`. This is the one way to do it.

    Best called before Prefect is imported; where it already is, its settings are read again.
    """
    os.environ.update(client_environment(home, url))
    if "prefect" in sys.modules:
        from prefect.context import refresh_global_settings_context

        refresh_global_settings_context()
