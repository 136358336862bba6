"""An engine's process on one machine; callers make it a Ray actor with `ray.remote(EngineActor)`."""

import subprocess
import time
from pathlib import Path

import psutil

from configs.engine import EngineConfig
from infra.engines.client import EngineClient, EngineError
from infra.engines.launch import HOST, Member, launch
from infra.engines.memory import await_release, used_bytes
from infra.process import free_port, log_tail, port_is_free, spawn, stop_tree

_POLL_S = 0.1


class EngineStartError(EngineError):
    """An engine did not come up; the message ends with the last lines of its log."""


class EngineActor:
    """Starts, watches and stops an engine server. All methods may be called again.

    An engine that spans several machines has an actor on each, told apart by `rank`; the first one's server
    answers requests, the others' only /health.
    The server dies with the thread that calls `start`: in a Ray actor that is the worker's main thread, so it
    lives as long as the actor, and goes with it when the actor or its node is killed.
    """

    def __init__(self, config: EngineConfig, index: int, model_path: Path, log: Path, rank: int = 0) -> None:
        """`index` counts the run's engines from 0; `model_path` is what to serve at first."""
        self._config = config
        self._index = index
        self._model_path = model_path
        self._log = log
        self._rank = rank
        self._process: subprocess.Popen[bytes] | None = None
        self._client: EngineClient | None = None
        self._memory_before: dict[str, int] = {}

    def start(self, probe: bool = False, meeting: str = "") -> str:
        """Start the server unless it is alive, and return its URL once it is healthy; EngineStartError.

        `probe` also starts one anew whose model makes no step, though its port still answers. `meeting` is
        where the servers of an engine on several machines find each other, host:port.
        """
        if self.alive(probe):
            return self.url()
        self.stop()
        deadline = time.monotonic() + self._config.start_timeout_s
        while not self._launch(self._port(), meeting, deadline):
            self.stop()  # somebody took the free port in between: try another
        return self.url()

    def meeting(self) -> str:
        """A free port of this machine where the servers of one engine can meet, host:port."""
        return f"{HOST}:{free_port()}"

    def url(self) -> str:
        """Where the started engine listens, such as `http://127.0.0.1:30000`; empty before `start`."""
        return self._client.url if self._client else ""

    def alive(self, probe: bool = False) -> bool:
        """Whether the process runs and its /health answers; with `probe`, also whether the model steps."""
        if self._process is None or self._client is None or self._process.poll() is not None:
            return False
        if not self._client.healthy():
            return False
        return not probe or self._rank > 0 or _generates(self._client)

    def stop(self) -> None:
        """Stop the server and everything below it; fine when there is none.

        EngineStartError when its memory is not free again: nothing may be started on top of it.
        """
        if self._process is not None:
            try:
                stop_tree(self._process.pid)
                await_release(self._memory_before)
            except TimeoutError as error:
                raise EngineStartError(f"engine {self._index} cannot be stopped: {error}") from None
            self._process.wait()
            self._process = None
        if self._client is not None:
            self._client.close()
            self._client = None

    def _port(self) -> int:
        if self._config.port is None:
            return free_port()
        port = self._config.port + self._index
        if not port_is_free(port):
            raise EngineStartError(
                f"engine {self._index}: port {port} is taken: free it or change engine.port"
            )
        return port

    def _launch(self, port: int, meeting: str, deadline: float) -> bool:
        """Start the server on a port and wait until it is healthy; False when the port was just taken."""
        server = launch(self._config, self._model_path, port, Member(self._rank, meeting))
        self._memory_before = used_bytes()
        self._process = process = spawn(server.command, self._log, server.env)
        self._client = client = EngineClient(f"http://{HOST}:{port}")
        while not (_listens(process.pid, port) and client.healthy()):
            code = process.poll()
            if code is not None and self._config.port is None and not port_is_free(port):
                return False
            if code is not None:
                raise EngineStartError(f"engine {self._index} ended with code {code}: {log_tail(self._log)}")
            if time.monotonic() > deadline:
                self.stop()
                raise EngineStartError(
                    f"engine {self._index} was not healthy within engine.start_timeout_s "
                    f"{self._config.start_timeout_s:g} s: {log_tail(self._log)}"
                )
            time.sleep(_POLL_S)
        return True


def _generates(client: EngineClient) -> bool:
    try:
        client.probe()
    except EngineError:
        return False
    return True


def _listens(pid: int, port: int) -> bool:
    """Whether it is this very process that listens on the port."""
    try:
        connections = psutil.Process(pid).net_connections(kind="tcp")
    except psutil.NoSuchProcess:
        return False
    return any(c.status == psutil.CONN_LISTEN and c.laddr.port == port for c in connections)
