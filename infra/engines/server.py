"""A server process of the engine plane, on a port of this machine."""

import subprocess
import time
from pathlib import Path

import psutil

from infra.address import Address
from infra.engines.client import EngineClient, EngineError
from infra.engines.launch import Launch
from infra.process import log_tail, port_is_free, spawn, stop_tree

_POLL_S = 0.1


class EngineStartError(EngineError):
    """An engine or the router did not come up; the message ends with the last lines of its log."""

    heals = True


class ServerProcess:
    """Starts, watches and stops one server that answers /health. All methods may be called again.

    The server dies with the thread that calls `launch`: in a Ray actor that is the worker's main thread, so
    it lives as long as the actor, and goes with it when the actor or its node is killed.
    """

    def __init__(self, name: str, log: Path, timeout_s: float, address: Address) -> None:
        """`name` is for messages; `timeout_s` is engine.start_timeout_s, of every launch; `address` is this
        machine's."""
        self._name = name
        self._log = log
        self._timeout_s = timeout_s
        self._address = address
        self._process: subprocess.Popen[bytes] | None = None
        self._client: EngineClient | None = None

    @property
    def url(self) -> str:
        """Where the launched server listens, such as `http://10.0.0.5:30000`; empty before `launch`."""
        return self._client.url if self._client else ""

    def launch(self, server: Launch, port: int) -> bool:
        """Start it on a port and wait until it is healthy; False when somebody has just taken the port.

        EngineStartError when it ends, or is not healthy in time.
        """
        self._process = process = spawn(server.command, self._log, server.env)
        self._client = client = EngineClient(self._address.url(port))
        deadline = time.monotonic() + self._timeout_s
        while not (_listens(process.pid, port) and client.healthy()):
            code = process.poll()
            if code is not None and not port_is_free(port, self._address.bind):
                return False
            if code is not None:
                raise EngineStartError(f"{self._name} ended with code {code}: {log_tail(self._log)}")
            if time.monotonic() > deadline:
                self.stop()
                raise EngineStartError(
                    f"{self._name} was not healthy within engine.start_timeout_s "
                    f"{self._timeout_s:g} s: {log_tail(self._log)}"
                )
            time.sleep(_POLL_S)
        return True

    def alive(self) -> bool:
        """Whether the process runs and its /health answers."""
        if self._process is None or self._client is None or self._process.poll() is not None:
            return False
        return self._client.healthy()

    def stop(self) -> None:
        """Stop the server and everything below it; fine when there is none. EngineStartError if it stays."""
        if self._process is not None:
            try:
                stop_tree(self._process.pid)
            except TimeoutError as error:
                raise EngineStartError(f"{self._name} cannot be stopped: {error}") from None
            self._process.wait()
            self._process = None
        if self._client is not None:
            self._client.close()
            self._client = None


def _listens(pid: int, port: int) -> bool:
    """Whether it is this very process that listens on the port."""
    try:
        connections = psutil.Process(pid).net_connections(kind="tcp")
    except psutil.NoSuchProcess:
        return False
    return any(c.status == psutil.CONN_LISTEN and c.laddr.port == port for c in connections)
