"""The user's own Prefect and MLflow: used where their settings name them, never started or stopped by us."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

from infra.home import Home
from infra.process import port_is_free
from infra.services.errors import ServiceError
from infra.services.state import ServiceState

_DATABASES = ("postgresql", "mysql", "mssql", "sqlite")


@dataclass(frozen=True)
class ForeignPrefect:
    """A Prefect server, or workspace of Prefect Cloud, that the user's own Prefect settings name."""

    url: str
    """What people open."""
    api_url: str
    settings: Mapping[str, str]
    """The user's Prefect settings as environment variables, wherever they stand; credentials included."""


@dataclass(frozen=True)
class MlflowPlace:
    """Where MLflow's records go."""

    uri: str
    """Tracking URI; may hold a password."""
    artifacts: str | None
    """Root URI of the artifacts of a new experiment; None where a server decides."""
    is_server: bool
    """A server of the user; else a database, which our own UI shows."""

    @property
    def shown(self) -> str:
        """The URI without its password."""
        return without_password(self.uri)


def foreign_prefect(home: Home) -> ForeignPrefect | None:
    """The server of PREFECT_API_URL, the active Prefect profile or a prefect.toml, unless it is our own."""
    from prefect.settings import Settings  # imports much of Prefect, which takes a second

    settings = Settings()
    if settings.api.url is None or _is_own(settings.api.url, "prefect", home):
        return None
    variables = settings.to_environment_variables(exclude_unset=True)
    return ForeignPrefect(
        url=(settings.ui_url or settings.api.url).rstrip("/"),
        api_url=settings.api.url.rstrip("/"),
        settings={name: text for name, text in variables.items() if not name.startswith("PREFECT_SERVER_")},
    )


def mlflow_place(home: Home) -> MlflowPlace:
    """The place that MLFLOW_TRACKING_URI names, else the state folder's own database.

    Both may keep artifacts elsewhere: MLflow's own MLFLOW_DEFAULT_ARTIFACT_ROOT. ServiceError when it names
    neither a server nor a database.
    """
    artifacts = os.environ.get("MLFLOW_DEFAULT_ARTIFACT_ROOT") or (home.mlflow / "artifacts").as_uri()
    uri = os.environ.get("MLFLOW_TRACKING_URI", "").strip()
    if not uri or _is_own(uri, "mlflow", home):
        return MlflowPlace(home.mlflow_uri, artifacts, is_server=False)
    scheme = urlsplit(uri).scheme.partition("+")[0]
    if scheme in _DATABASES:
        return MlflowPlace(_absolute(uri), artifacts, is_server=False)
    if scheme in ("http", "https"):
        return MlflowPlace(uri.rstrip("/"), None, is_server=True)
    raise ServiceError(
        f"MLFLOW_TRACKING_URI is {without_password(uri)!r}: set it to an http(s) server or the URL of a "
        "database (postgresql, mysql, mssql, sqlite), or unset it"
    )


def without_password(uri: str) -> str:
    """A URI as it may be printed and stored."""
    parts = urlsplit(uri)
    if parts.password is None:
        return uri
    user, _, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}:***@{host}"))


def _is_own(url: str, name: Literal["prefect", "mlflow"], home: Home) -> bool:
    """Whether it is the server of this state folder: the one that runs, or ran there while nobody else does.

    Processes of ours are told of our servers by the same variables, and so is who follows `overnight status`.
    """
    record = ServiceState(home.root).read().get(name)
    if record is None or _place(url) != _place(record.url):
        return False
    return record.runs or port_is_free(int(record.url.rpartition(":")[2]))


def _place(url: str) -> str:
    return urlsplit(url.replace("//localhost:", "//127.0.0.1:")).netloc


def _absolute(uri: str) -> str:
    """A sqlite URI by its absolute path: servers and nights work in other folders than the command."""
    scheme, separator, path = uri.partition(":///")
    return f"{scheme}{separator}{Path(path).resolve()}" if scheme.startswith("sqlite") else uri
