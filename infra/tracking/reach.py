"""Whether MLflow can be reached, asked in seconds: its own clients try for minutes."""

import contextlib
import os
from collections.abc import Iterator
from urllib.parse import urlsplit

import sqlalchemy
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from sqlalchemy.exc import SQLAlchemyError

from infra.tracking import TrackingError

_TIMEOUT_S = 10
_TIMEOUTS = {"postgresql": {"connect_timeout": _TIMEOUT_S}, "mysql": {"connect_timeout": _TIMEOUT_S}}
"""How drivers are told a deadline."""


def check_server(uri: str) -> None:
    """TrackingError unless the MLflow server answers and takes the credentials of the environment."""
    try:
        with _impatient():
            MlflowClient(tracking_uri=uri).search_experiments(max_results=1)
    except MlflowException as error:
        line = str(error).partition("\n")[0]
        raise TrackingError("it does not answer" if "Max retries exceeded" in line else line) from None


def check_database(uri: str) -> None:
    """TrackingError unless a connection to the database can be made."""
    kind = urlsplit(uri).scheme.partition("+")[0]
    try:
        engine = sqlalchemy.create_engine(uri, connect_args=_TIMEOUTS.get(kind, {}))
        try:
            engine.connect().close()
        finally:
            engine.dispose()
    except ModuleNotFoundError as error:
        raise TrackingError(
            f"{error.name} is not installed: pip install 'overnight[postgresql]', or your database's driver"
        ) from None
    except SQLAlchemyError as error:
        raise TrackingError(str(error).partition("\n")[0]) from None


@contextlib.contextmanager
def _impatient() -> Iterator[None]:
    wanted = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": str(_TIMEOUT_S)}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ |= wanted
    try:
        yield
    finally:
        for name, text in before.items():
            if text is None:
                del os.environ[name]
            else:
                os.environ[name] = text
