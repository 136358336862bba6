"""Which services this state folder has started: services.json and its lock."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter

from infra.identity import ProcessRef
from infra.locks import locked
from infra.services.errors import ServiceError

ServiceName = Literal["prefect", "mlflow", "worker"]

_LOCK_TIMEOUT_S = 60


class ServiceRecord(BaseModel):
    """A service that was started, whether or not it still runs."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    process: ProcessRef
    url: str
    """Where it is reached; for the worker, the Prefect server that it works for."""
    mlflow: str = ""
    """Where MLflow's records go, without a password: what the UI shows, and the worker's nights write to."""
    stopped: bool = False
    """It was stopped on purpose. Its record stays, so that it comes back on its port."""

    @property
    def runs(self) -> bool:
        """Whether its process lives."""
        return not self.stopped and self.process.alive


_RECORDS: TypeAdapter[dict[ServiceName, ServiceRecord]] = TypeAdapter(dict[ServiceName, ServiceRecord])


class ServiceState:
    """The records of all services, shared by every command that uses the state folder."""

    def __init__(self, root: Path) -> None:
        self._path = root / "services.json"
        self._lock = root / "services.lock"

    def read(self) -> dict[ServiceName, ServiceRecord]:
        """Records by service; ServiceError when the file is damaged."""
        try:
            return _RECORDS.validate_json(self._path.read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except ValueError:
            raise ServiceError(
                f"{self._path} is damaged: stop the Prefect and MLflow servers by hand and remove the file"
            ) from None

    def put(self, name: ServiceName, record: ServiceRecord) -> None:
        """Remember a service. Hold the lock."""
        self._write({**self.read(), name: record})

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other commands from starting or stopping services; ServiceError after a minute of waiting."""
        try:
            self._lock.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ServiceError(
                f"{self._lock.parent} cannot be made ({error.strerror}): set OVERNIGHT_HOME elsewhere"
            ) from None
        with locked(self._lock, _LOCK_TIMEOUT_S, self._taken):
            yield

    def _taken(self, holder: str) -> ServiceError:
        return ServiceError(f"{self._lock} is held by process {holder}: wait for it to end, or end it")

    def _write(self, records: dict[ServiceName, ServiceRecord]) -> None:
        text = json.dumps(_RECORDS.dump_python(records, mode="json"), indent=1)
        new = self._path.with_suffix(".json.new")
        with new.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)
