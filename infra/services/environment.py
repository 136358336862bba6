"""How processes are told which Prefect server to use."""

import os
import sys
from collections.abc import Mapping

from infra.home import Home

_COMMON = {
    "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false",
    # The console belongs to the progress display; Prefect's UI keeps every line.
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "WARNING",
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    "DO_NOT_TRACK": "1",
}


def own_environment(home: Home, url: str) -> dict[str, str]:
    """Variables that a process needs to run flows against our own Prefect server at `url`."""
    return {
        **_COMMON,
        "OVERNIGHT_HOME": str(home.root),
        "PREFECT_HOME": str(home.prefect),
        "PREFECT_PROFILE": "ephemeral",  # the one that is there in every home; what is above goes before it
        "PREFECT_API_URL": f"{url}/api",
    }


def foreign_environment(home: Home, settings: Mapping[str, str]) -> dict[str, str]:
    """Variables that a process needs to run flows against the server of the user's Prefect settings."""
    return {**settings, **_COMMON, "OVERNIGHT_HOME": str(home.root)}


def connect(environment: Mapping[str, str]) -> None:
    """Make this process use a Prefect server, given as variables. This is the one way to do it.

    Best called before Prefect is imported; where it already is, its settings are read again.
    """
    os.environ.update(environment)
    if "prefect" in sys.modules:
        from prefect.context import refresh_global_settings_context

        refresh_global_settings_context()
