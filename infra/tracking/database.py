"""MLflow's database: made once, and there whole or not at all.

MLflow makes its tables in place, and cannot mend those of a process that was killed on the way.
"""

from pathlib import Path

from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

from infra.locks import locked
from infra.tracking import TrackingError
from infra.tracking.reach import check_database

_SCHEME = "sqlite:///"
_TIMEOUT_S = 120


def ensure_database(uri: str, artifacts: str) -> None:
    """Make the database of a sqlite URI unless it is there; `artifacts` is where its default experiment
    keeps files. Others MLflow makes itself, in transactions; they only have to be reached.

    TrackingError when one cannot be, or another process is at it for too long.
    """
    if not uri.startswith(_SCHEME):
        check_database(uri)
        return
    file = Path(uri.removeprefix(_SCHEME))
    if file.exists():
        return
    with locked(file.with_suffix(".lock"), _TIMEOUT_S, _taken):
        if file.exists():
            return
        partial = file.with_suffix(".partial")
        partial.unlink(missing_ok=True)  # of a process that was killed
        SqlAlchemyStore(f"{_SCHEME}{partial}", artifacts).engine.dispose()
        partial.rename(file)


def _taken(holder: str) -> TrackingError:
    return TrackingError(f"process {holder} has been making MLflow's database for over {_TIMEOUT_S} s")
