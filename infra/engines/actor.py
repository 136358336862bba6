"""An engine's process on one machine; callers make it a Ray actor with `ray.remote(EngineActor)`."""

from pathlib import Path

from configs.engine import EngineConfig
from infra.cluster.base import Cluster
from infra.engines.client import EngineClient, EngineError
from infra.engines.launch import Member, launch
from infra.engines.memory import await_release, used_bytes
from infra.engines.server import EngineStartError, ServerProcess
from infra.process import port_is_free
from infra.store import StoredFolder


class EngineActor:
    """Starts, watches and stops an engine server. All methods may be called again.

    An engine that spans several machines has an actor on each, told apart by `rank`; the first one's server
    answers requests, the others' only /health.
    """

    def __init__(self, config: EngineConfig, index: int, log: Path, cluster: Cluster, rank: int = 0) -> None:
        """`index` counts the fleet's engines from 0; `cluster` tells the address of the machine that this is
        made on."""
        self._config = config
        self._index = index
        self._rank = rank
        self._address = cluster.address()
        self._server = ServerProcess(f"engine {index}", log, config.start_timeout_s, self._address)
        self._memory_before: dict[str, int] = {}

    def start(self, weights: StoredFolder, restart_hung: bool = False, meeting: str = "") -> str:
        """Start the server unless it is alive, and return its URL once it is healthy; EngineStartError.

        `weights` is what it serves at first, fetched to this machine where it is not here (KeyMissingError,
        StoreError). `restart_hung` also starts one anew whose model makes no step, though its port still
        answers. `meeting` is where the servers of an engine on several machines find each other, host:port.
        """
        if self.alive(generates=restart_hung):
            return self.url()
        self.stop()
        model_path = weights.local()
        while not self._launch(model_path, self._port(), meeting):
            self.stop()
        return self.url()

    def meeting(self) -> str:
        """A free port of this machine where the servers of one engine can meet, host:port."""
        return f"{self._address.advertised}:{self._address.free_port()}"

    def url(self) -> str:
        """Where the started engine listens, such as `http://10.0.0.5:30000`; empty before `start`."""
        return self._server.url

    def alive(self, generates: bool = False) -> bool:
        """Whether the process runs and its /health answers; with `generates`, that the model steps."""
        return self._server.alive() and (not generates or self._rank > 0 or _generates(self.url()))

    def stop(self) -> None:
        """Stop the server and everything below it; fine when there is none.

        EngineStartError when its memory is not free again: nothing may be started on top of it.
        """
        self._server.stop()
        try:
            await_release(self._memory_before)
        except TimeoutError as error:
            raise EngineStartError(f"engine {self._index} cannot be stopped: {error}") from None
        self._memory_before = {}

    def _port(self) -> int:
        if self._config.port is None:
            return self._address.free_port()
        port = self._config.port + self._index
        if not port_is_free(port, self._address.bind):
            raise EngineStartError(
                f"engine {self._index}: port {port} is taken: free it or change engine.port"
            )
        return port

    def _launch(self, model_path: Path, port: int, meeting: str) -> bool:
        self._memory_before = used_bytes() if self._config.devices else {}
        member = Member(self._rank, meeting)
        server = launch(self._config, model_path, self._address.bind, port, member)
        return self._server.launch(server, port)


def _generates(url: str) -> bool:
    client = EngineClient(url)
    try:
        client.check_generates()
    except EngineError:
        return False
    finally:
        client.close()
    return True
