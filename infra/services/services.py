"""Prefect server, MLflow UI and Prefect worker of a state folder: started once, found by every command."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from infra.detached import spawn_detached
from infra.home import Home
from infra.process import LOOPBACK, log_tail, port_is_free, stop_tree, wait_until
from infra.services import crashes, programs
from infra.services.environment import client_environment, connect
from infra.services.errors import PortTakenError, ServiceError
from infra.services.prefect_api import PrefectApi, answers
from infra.services.state import ServiceName, ServiceRecord, ServiceState

_START_TIMEOUT_S = 240
_PORT_RELEASE_S = 3
"""How long the port of a server that was just killed may stay taken."""


@dataclass(frozen=True)
class ServiceStatus:
    """How a service is now."""

    name: ServiceName
    url: str | None
    """Where it is reached; for the worker, the Prefect server that it works for."""
    pid: int | None
    state: Literal["up", "starting", "dead", "absent"]
    """dead: it was started and its process is gone. absent: it was never started, or was stopped."""


class Services:
    """The servers of one state folder. They run on loopback and outlive the command that starts them."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._state = ServiceState(home.root)

    def check_ports(self) -> None:
        """PortTakenError when a server that is yet to be started could not have its port."""
        if self._running("prefect") is None:
            _port(None, "PREFECT", 4200)
        if self._running("mlflow") is None:
            _port(None, "MLFLOW", 5000)

    def ensure_prefect(self, port: int | None = None) -> str:
        """URL of the Prefect server, which is up when this returns, dead flow runs marked as such.

        One that already runs is taken whatever its port; else it is started on `port`,
        $OVERNIGHT_PREFECT_PORT or 4200. PortTakenError, or ServiceError when it does not come up.
        """
        with self._state.locked():
            record = self._running("prefect") or self._start_prefect(_port(port, "PREFECT", 4200))
        self._wait_until_up("prefect", record)
        api = PrefectApi(record.url)
        crashes.forget_heartbeat_automations(api)
        crashes.mark_crashed(api)
        return record.url

    def ensure_mlflow(self, port: int | None = None, wait: bool = False) -> str:
        """URL of the MLflow UI; without `wait` it may still be starting.

        Ports and errors as for `ensure_prefect`, with $OVERNIGHT_MLFLOW_PORT and 5000.
        """
        with self._state.locked():
            record = self._running("mlflow") or self._start_mlflow(_port(port, "MLFLOW", 5000))
        if wait:
            self._wait_until_up("mlflow", record)
        return record.url

    def ensure_worker(self) -> None:
        """Start the worker of the work pool unless it runs; it is ready some seconds after this returns."""
        prefect_url = self.ensure_prefect()
        with self._state.locked():
            record = self._running("worker")
            if record and record.url != prefect_url:
                stop_tree(record.process.pid)
                record = None
            if record is None:
                environment = programs.worker_environment(self._home, prefect_url)
                self._start("worker", programs.worker_command(), environment, prefect_url)

    def status(self) -> list[ServiceStatus]:
        """How each service is; answers within some seconds also when a server hangs."""
        records = self._state.read()
        return [self._status(name, records.get(name)) for name in ("prefect", "mlflow", "worker")]

    def stop_all(self) -> None:
        """Stop every service, the flows that the worker started included; fine when none runs."""
        with self._state.locked():
            records = self._state.read()
            for name in ("worker", "mlflow", "prefect"):
                record = records.get(name)
                if record is not None:
                    if record.process.alive:
                        stop_tree(record.process.pid)
                    self._state.drop(name)

    def client_environment(self, url: str) -> dict[str, str]:
        """Variables that a process needs to run flows against the Prefect server at `url`."""
        return client_environment(self._home, url)

    def connect(self, url: str) -> None:
        """Make this process use the Prefect server at `url`; see `infra.services.environment.connect`."""
        connect(self._home, url)

    def mark_crashed(self, *tags: str) -> list[str]:
        """End the unfinished flow runs that carry all the tags as Crashed where their process is gone.

        Returns their names. A run is judged by its process tag (`process_tag()`), so a live one is never
        touched. ServiceError when the Prefect server does not run.
        """
        record = self._running("prefect")
        if record is None:
            raise ServiceError("the Prefect server does not run: start it with `overnight up`")
        return crashes.mark_crashed(PrefectApi(record.url), tags)

    def _running(self, name: ServiceName) -> ServiceRecord | None:
        record = self._state.read().get(name)
        return record if record and record.process.alive else None

    def _start_prefect(self, port: int) -> ServiceRecord:
        environment = programs.prefect_environment(self._home)
        return self._start("prefect", programs.prefect_command(port), environment, _local(port))

    def _start_mlflow(self, port: int) -> ServiceRecord:
        self._home.mlflow.mkdir(parents=True, exist_ok=True)
        environment = programs.mlflow_environment()
        return self._start("mlflow", programs.mlflow_command(self._home, port), environment, _local(port))

    def _start(
        self, name: ServiceName, command: list[str], environment: dict[str, str], url: str
    ) -> ServiceRecord:
        try:
            process = spawn_detached(command, environment, self._log(name))
        except psutil.NoSuchProcess:
            raise ServiceError(f"{name} ended at once; its log: {log_tail(self._log(name))}") from None
        record = ServiceRecord(process=process, url=url)
        self._state.put(name, record)
        return record

    def _wait_until_up(self, name: ServiceName, record: ServiceRecord) -> None:
        def up() -> bool:
            if not record.process.alive:
                raise ServiceError(f"{name} ended while starting; its log: {log_tail(self._log(name))}")
            return _answers(name, record)

        try:
            wait_until(up, _START_TIMEOUT_S, name)
        except TimeoutError:
            raise ServiceError(
                f"{name} at {record.url} does not answer after {_START_TIMEOUT_S} s: run `overnight down` "
                f"and try again; its log: {log_tail(self._log(name))}"
            ) from None

    def _status(self, name: ServiceName, record: ServiceRecord | None) -> ServiceStatus:
        if record is None:
            return ServiceStatus(name, None, None, "absent")
        if not record.process.alive:
            return ServiceStatus(name, record.url, None, "dead")
        state: Literal["up", "starting"] = "up" if _answers(name, record) else "starting"
        return ServiceStatus(name, record.url, record.process.pid, state)

    def _log(self, name: ServiceName) -> Path:
        return self._home.logs / f"{name}.log"


def _answers(name: ServiceName, record: ServiceRecord) -> bool:
    match name:
        case "prefect":
            return answers(f"{record.url}/api/health")
        case "mlflow":
            return answers(f"{record.url}/health")
        case "worker":
            return _worker_has_reported(record)


def _worker_has_reported(record: ServiceRecord) -> bool:
    try:
        workers = PrefectApi(record.url, timeout_s=5).workers(programs.WORK_POOL)
    except ServiceError:
        return False
    return any(worker.last_heartbeat_time.timestamp() >= record.process.created for worker in workers)


def _local(port: int) -> str:
    return f"http://{LOOPBACK}:{port}"


def _port(explicit: int | None, service: Literal["PREFECT", "MLFLOW"], default: int) -> int:
    """The port to start a service on: the explicit one, the environment's or the default, if it is free."""
    variable = f"OVERNIGHT_{service}_PORT"
    text = str(explicit or os.environ.get(variable) or default)
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise ServiceError(f"{variable} is {text!r}: set it to a port number, 1 to 65535")
    try:
        wait_until(lambda: port_is_free(int(text)), _PORT_RELEASE_S, "the port")
    except TimeoutError:
        option = f"--{service.lower()}-port"
        raise PortTakenError(
            f"port {text} is taken by another program: set {variable} (or {option}) to a free one"
        ) from None
    return int(text)
