"""SGLang's router (sglang-router 0.3) before the engines: its command line, its process, its client."""

import math
import sys
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from infra.cluster.base import Cluster
from infra.engines import protocol
from infra.engines.client import EngineClient
from infra.engines.connection import Connection, parse
from infra.engines.errors import EngineFailed, EngineTimeout, EngineUnreachable
from infra.engines.generation import Generation, read_generation
from infra.engines.launch import Launch
from infra.engines.protocol import Request, Response, SamplingParams
from infra.engines.server import ServerProcess
from infra.process import wait_until

_ADMIN_TIMEOUT_S = 30.0


def launch_router(host: str, port: int, metrics_port: int, timeout_s: float) -> Launch:
    """How to start a router without engines; it redoes on another what an engine did not answer in time.

    Round robin keeps the load even; the router's default would send all prompts with a common beginning to
    one engine. A dead engine is noticed by its first broken call, one that hangs by its model's probe.
    """
    return Launch(
        [
            sys.executable,
            "-P",  # not from the working directory, whose packages may have the names of ours
            "-m",
            "sglang_router",
            "launch",
            f"--host={host}",
            f"--port={port}",
            f"--prometheus-host={host}",
            f"--prometheus-port={metrics_port}",
            "--policy=round_robin",
            f"--request-timeout-secs={math.ceil(timeout_s)}",
            "--health-check-endpoint=/health_generate",
            "--health-check-interval-secs=5",
            "--health-check-timeout-secs=30",
            "--health-failure-threshold=1",
            "--health-success-threshold=1",
            "--worker-startup-check-interval=1",
            f"--worker-startup-timeout-secs={_ADMIN_TIMEOUT_S:.0f}",
            "--shutdown-grace-period-secs=1",
            "--log-level=warn",
        ],
        {"NO_PROXY": "*"},
    )


class RouterActor:
    """Starts, watches and stops a router, as EngineActor does an engine. All methods may be called again."""

    def __init__(self, start_timeout_s: float, request_timeout_s: float, log: Path, cluster: Cluster) -> None:
        """`request_timeout_s` is how long an engine has for one prompt; `cluster` tells the address of the
        machine that this is made on."""
        self._address = cluster.address()
        self._server = ServerProcess("the router", log, start_timeout_s, self._address)
        self._request_timeout_s = request_timeout_s

    def start(self) -> str:
        """Start the router, with no engine behind it, unless it is alive; its URL. EngineStartError."""
        while not self._server.alive():
            self._server.stop()
            port, metrics_port = self._address.free_port(), self._address.free_port()
            server = launch_router(self._address.bind, port, metrics_port, self._request_timeout_s)
            self._server.launch(server, port)
        return self.url()

    def url(self) -> str:
        """Where the started router listens; empty before `start`."""
        return self._server.url

    def stop(self) -> None:
        """Stop the router; fine when there is none."""
        self._server.stop()


class _Worker(Response):
    """An engine behind the router."""

    id: str
    url: str
    is_healthy: bool


class _Workers(Response):
    workers: tuple[_Worker, ...]


class _AddWorker(Request):
    url: str


class RouterClient:
    """Speaks to the router: prompts to be continued, and which engines are behind it.

    It passes on nothing but generate calls, and of those only what it knows: one set of sampling parameters a
    call, hence one prompt a call, and no routed experts. All else goes to the engines themselves.
    """

    def __init__(self, url: str, timeout_s: float, concurrency: int) -> None:
        """`timeout_s` is the deadline of a prompt, tries on further engines included; at most `concurrency`
        prompts are under way at once."""
        self.url = url.rstrip("/")
        self._concurrency = concurrency
        self._generation = Connection(url, timeout_s, concurrency)
        self._admin = Connection(url, _ADMIN_TIMEOUT_S, 1)

    def close(self) -> None:
        """Give the connections back."""
        self._generation.close()
        self._admin.close()

    def generate(
        self, prompts: Sequence[Sequence[int]], params: Sequence[SamplingParams]
    ) -> list[Generation]:
        """One output for each prompt, each a call of its own.

        Which calls share an engine's batch is left to chance. The embedded engine decodes them one by one and
        repeats itself to the bit; of SGLang that takes kernels that do not depend on the batch.

        EngineUnreachable and EngineTimeout when some prompt found no engine that answers.
        """
        with ThreadPoolExecutor(self._concurrency) as pool:
            return list(pool.map(self._continue, prompts, params))

    def serve(self, urls: Collection[str]) -> None:
        """Have exactly these engines behind the router; EngineTimeout when one of them is not taken."""
        for worker in self._workers():
            if worker.url not in urls:
                self._admin.delete(f"/workers/{worker.id}")
        for url in set(urls) - {worker.url for worker in self._workers()}:
            self._admin.post("/workers", _AddWorker(url=url))
        try:
            wait_until(
                lambda: {worker.url for worker in self._workers()} == set(urls),
                _ADMIN_TIMEOUT_S,
                f"{self.url}: a router for {len(urls)} engines",
                every_s=0.02,
            )
        except TimeoutError as error:
            raise EngineTimeout(str(error)) from None

    def hanging(self) -> set[str]:
        """URLs of the engines behind the router that fail its health probe: they get no prompts."""
        return {worker.url for worker in self._workers() if not worker.is_healthy}

    def _continue(self, prompt: Sequence[int], params: SamplingParams) -> Generation:
        request = protocol.GenerateRequest(
            input_ids=list(prompt), sampling_params=params, return_logprob=True
        )
        try:
            answer = self._generation.post("/generate", request)
        except EngineFailed as error:  # the router has tried several engines by now
            raise EngineUnreachable(str(error)) from error
        return read_generation(parse(protocol.GenerateResult, answer), layers=None)

    def _workers(self) -> tuple[_Worker, ...]:
        return parse(_Workers, self._admin.get("/workers")).workers


Servers = Sequence[EngineClient] | RouterClient
"""What takes prompts: engines, or the router before them."""
