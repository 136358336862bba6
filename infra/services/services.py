"""Prefect server, MLflow UI and Prefect worker of a state folder: started once, found by every command."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

import psutil

from infra.detached import spawn_detached
from infra.home import Home
from infra.interrupts import uncut
from infra.logs import begin_anew
from infra.process import LOOPBACK, log_tail, stop_tree, wait_until
from infra.services import crashes, ports, programs
from infra.services.environment import connect, foreign_environment, own_environment
from infra.services.errors import ServiceError
from infra.services.foreign import MlflowPlace, foreign_prefect, mlflow_place
from infra.services.prefect_api import PrefectApi, answers
from infra.services.state import ServiceName, ServiceRecord, ServiceState

_START_TIMEOUT_S = 240
_STATUS_TIMEOUT_S = 5


@dataclass(frozen=True)
class ServiceStatus:
    """How a service is now."""

    name: ServiceName
    url: str | None
    """Where it is reached; for the worker, the Prefect server that it works for."""
    pid: int | None
    state: Literal["up", "starting", "dead", "absent", "foreign", "unreachable"]
    """dead: it was started and its process is gone. absent: it was never started, or was stopped.
    foreign: the user's own server, which answers; unreachable: one that does not."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """What plain `prefect` and `mlflow` commands need to reach it; no passwords."""


class Services:
    """The servers of one state folder. They run on loopback and outlive the command that starts them.

    Where the user's settings name a Prefect or MLflow server of their own, it is used instead (`foreign.py`).
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self._state = ServiceState(home.root)

    def check(self, prefect_port: int | None = None, mlflow_port: int | None = None) -> None:
        """ServiceError, before anything starts, when a server of the user cannot be reached or one of ours
        could not have the port that is named for it."""
        if (prefect := foreign_prefect(self._home)) is None:
            self._check_port("prefect", prefect_port)
        else:
            _refuse_port("prefect", prefect_port, prefect.url)
            PrefectApi(prefect.url, user=prefect).check()
        place = mlflow_place(self._home)
        if place.is_server:
            _refuse_port("mlflow", mlflow_port, place.shown)
        else:
            self._check_port("mlflow", mlflow_port)
        _check_mlflow(place)

    def ensure_prefect(self, port: int | None = None) -> str:
        """URL of the Prefect server, which is up when this returns, dead flow runs marked as such.

        A foreign one is taken as it is, and one of ours that runs, too. Else it is started on `port`,
        $OVERNIGHT_PREFECT_PORT, or one that is free, 4200 if it is. PortTakenError; ServiceError when it does
        not come up or answer, or runs on another port than the one named.
        """
        if foreign := foreign_prefect(self._home):
            _refuse_port("prefect", port, foreign.url)
            url, api = foreign.url, PrefectApi(foreign.url, user=foreign)
            api.check()
        else:
            with self._state.locked():
                record = self._running("prefect", port) or self._start_prefect(port)
            self._wait_until_up("prefect", record)
            url, api = record.url, PrefectApi(record.url)
            crashes.forget_heartbeat_automations(api)
        crashes.mark_crashed(api, nights=False)
        return url

    def ensure_mlflow(self, port: int | None = None, wait: bool = False) -> str:
        """URL of the MLflow UI; without `wait` it may still be starting.

        Ports and errors as for `ensure_prefect`, with $OVERNIGHT_MLFLOW_PORT and 5000.
        """
        place = mlflow_place(self._home)
        if place.is_server:
            _refuse_port("mlflow", port, place.shown)
            _check_mlflow(place)
            return place.shown
        with self._state.locked():
            record = self._running("mlflow", port)
            if record and record.mlflow != place.shown:  # it shows another database
                stop_tree(record.process.pid)
                record = None
            record = record or self._start_mlflow(place, port)
        if wait:
            self._wait_until_up("mlflow", record)
        return record.url

    def ensure_worker(self) -> None:
        """Start the worker of the work pool unless it runs; it is ready some seconds after this returns.

        ServiceError when the one that runs has its nights write to another MLflow.
        """
        prefect_url, place = self.ensure_prefect(), mlflow_place(self._home)
        with self._state.locked():
            record = self._running("worker")
            if record and record.url != prefect_url:
                stop_tree(record.process.pid)
                record = None
            if record is None:
                environment = programs.worker_environment(self.client_environment(prefect_url), place)
                self._start("worker", programs.worker_command, environment, prefect_url, place.shown)
            elif record.mlflow != place.shown:
                raise ServiceError(
                    f"the worker that runs has its nights write to {record.mlflow}, not to {place.shown}: "
                    "run `overnight down`, then this again"
                )

    def status(self) -> list[ServiceStatus]:
        """How each service is; answers within some seconds also when a server hangs."""
        return [self._prefect_status(), self._mlflow_status(), self._own_status("worker")]

    def own(self) -> list[str]:
        """The servers that are ours: those of `prefect` and `mlflow` that are not the user's."""
        prefect = [] if foreign_prefect(self._home) else ["prefect"]
        return prefect if mlflow_place(self._home).is_server else [*prefect, "mlflow"]

    def stop_all(self) -> None:
        """Stop every service that we started, the flows of the worker included; fine when none runs."""
        with self._state.locked():
            records = self._state.read()
            for name in ("worker", "mlflow", "prefect"):
                record = records.get(name)
                if record is not None and not record.stopped:
                    if record.process.alive:
                        stop_tree(record.process.pid)
                    self._state.put(name, record.model_copy(update={"stopped": True}))

    def client_environment(self, url: str) -> dict[str, str]:
        """Variables that a process needs to run flows against the Prefect server at `url`."""
        if (foreign := foreign_prefect(self._home)) and foreign.url == url:
            return foreign_environment(self._home, foreign.settings)
        return own_environment(self._home, url)

    def connect(self, url: str) -> None:
        """Make this process use the Prefect server at `url`; see `infra.services.environment.connect`."""
        connect(self.client_environment(url))

    def crash_own(self, message: str) -> None:
        """End the flow runs that this process works on as Crashed, because it is about to end.

        ServiceError when the Prefect server does not run, or does not answer within some seconds.
        """
        crashes.crash_own(self._api(_STATUS_TIMEOUT_S), message)

    def tend_nights(self) -> list[str]:
        """What the worker does all the time: end processes of cancelled flow runs, and nights whose process
        is gone, whose ids are returned. ServiceError when the Prefect server does not run."""
        api = self._api()
        crashes.end_cancelled(api)
        return crashes.mark_crashed(api, nights=True)

    def _api(self, timeout_s: float = 30) -> PrefectApi:
        if foreign := foreign_prefect(self._home):
            return PrefectApi(foreign.url, timeout_s, foreign)
        record = self._running("prefect")
        if record is None:
            raise ServiceError("the Prefect server does not run: start it with `overnight up`")
        return PrefectApi(record.url, timeout_s)

    def _running(self, name: ServiceName, port: int | None = None) -> ServiceRecord | None:
        record = self._state.read().get(name)
        if record is None or not record.runs:
            return None
        if name != "worker":
            ports.check_runs_there(name, port, record.url)
        return record

    def _check_port(self, name: ports.Server, option: int | None) -> None:
        if self._running(name, option) is None:
            ports.free_port(name, option, self._last_url(name))

    def _last_url(self, name: ServiceName) -> str | None:
        record = self._state.read().get(name)
        return record.url if record else None

    def _start_prefect(self, port: int | None) -> ServiceRecord:
        number = ports.free_port("prefect", port, self._last_url("prefect"))
        environment = programs.prefect_environment(self._home, _local(number))
        return self._start("prefect", partial(programs.prefect_command, number), environment, _local(number))

    def _start_mlflow(self, place: MlflowPlace, port: int | None) -> ServiceRecord:
        self._home.mlflow.mkdir(parents=True, exist_ok=True)
        number = ports.free_port("mlflow", port, self._last_url("mlflow"))
        command, environment = partial(programs.mlflow_command, number), programs.mlflow_environment(place)
        return self._start("mlflow", command, environment, _local(number), place.shown)

    def _start(
        self,
        name: ServiceName,
        command: Callable[[Path], list[str]],
        environment: dict[str, str],
        url: str,
        mlflow: str = "",
    ) -> ServiceRecord:
        log = self._log(name)
        begin_anew(log)
        with uncut():  # a server without a record could not be stopped
            try:
                process = spawn_detached(command(log), environment, log)
            except psutil.NoSuchProcess:
                raise ServiceError(f"{name} ended at once; its log: {log_tail(log)}") from None
            record = ServiceRecord(process=process, url=url, mlflow=mlflow)
            self._state.put(name, record)
        return record

    def _wait_until_up(self, name: ServiceName, record: ServiceRecord) -> None:
        def up() -> bool:
            if not record.process.alive:
                raise ServiceError(f"{name} ended while starting; its log: {log_tail(self._log(name))}")
            return self._answers(name, record)

        try:
            wait_until(up, _START_TIMEOUT_S, name)
        except TimeoutError:
            raise ServiceError(
                f"{name} at {record.url} does not answer after {_START_TIMEOUT_S} s: run `overnight down` "
                f"and try again; its log: {log_tail(self._log(name))}"
            ) from None

    def _prefect_status(self) -> ServiceStatus:
        foreign = foreign_prefect(self._home)
        if foreign is None:
            return self._own_status("prefect")
        api = PrefectApi(foreign.url, _STATUS_TIMEOUT_S, foreign)
        return _foreign_status("prefect", foreign.url, api.check, foreign.api_url)

    def _mlflow_status(self) -> ServiceStatus:
        place = mlflow_place(self._home)
        if not place.is_server:
            return self._own_status("mlflow")
        return _foreign_status("mlflow", place.shown, lambda: _check_mlflow(place), place.shown)

    def _own_status(self, name: ServiceName) -> ServiceStatus:
        record = self._state.read().get(name)
        if record is None or record.stopped:
            return ServiceStatus(name, None, None, "absent")
        if not record.process.alive:
            return ServiceStatus(name, record.url, None, "dead")
        state: Literal["up", "starting"] = "up" if self._answers(name, record) else "starting"
        address = f"{record.url}/api" if name == "prefect" else record.url
        return ServiceStatus(name, record.url, record.process.pid, state, _environment(name, address))

    def _answers(self, name: ServiceName, record: ServiceRecord) -> bool:
        match name:
            case "prefect":
                return answers(f"{record.url}/api/health")
            case "mlflow":
                return answers(f"{record.url}/health")
            case "worker":
                return self._worker_has_reported(record)

    def _worker_has_reported(self, record: ServiceRecord) -> bool:
        foreign = foreign_prefect(self._home)
        user = foreign if foreign and foreign.url == record.url else None
        try:
            workers = PrefectApi(record.url, _STATUS_TIMEOUT_S, user).workers(programs.WORK_POOL)
        except ServiceError:
            return False
        return any(worker.last_heartbeat_time.timestamp() >= record.process.created for worker in workers)

    def _log(self, name: ServiceName) -> Path:
        return self._home.logs / f"{name}.log"


def _foreign_status(name: ServiceName, url: str, check: Callable[[], None], address: str) -> ServiceStatus:
    try:
        check()
    except ServiceError:
        return ServiceStatus(name, url, None, "unreachable", _environment(name, address))
    return ServiceStatus(name, url, None, "foreign", _environment(name, address))


def _environment(name: ServiceName, address: str) -> dict[str, str]:
    variable = {"prefect": "PREFECT_API_URL", "mlflow": "MLFLOW_TRACKING_URI"}.get(name)
    return {variable: address} if variable else {}


def _check_mlflow(place: MlflowPlace) -> None:
    """ServiceError when the server or database that MLFLOW_TRACKING_URI names cannot be reached."""
    if place.uri.startswith("sqlite"):
        return
    from infra.tracking import TrackingError, reach  # imports MLflow, which takes a second

    try:
        (reach.check_server if place.is_server else reach.check_database)(place.uri)
    except TrackingError as error:
        raise ServiceError(
            f"MLflow at {place.shown} cannot be reached: start it, or set MLFLOW_TRACKING_URI anew; {error}"
        ) from None


def _refuse_port(server: ports.Server, option: int | None, url: str) -> None:
    if option is not None:
        raise ServiceError(
            f"your own server at {url} is used: leave out --{server}-port, which is for Overnight's, or "
            "unset what names yours (`overnight up -h` says what does)"
        )


def _local(port: int) -> str:
    return f"http://{LOOPBACK}:{port}"
