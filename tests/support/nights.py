"""Watching what a schedule starts, through Prefect's API as a person does through its pages."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
import psutil

from infra.process import wait_until
from tests.support.command import Overnight


@dataclass(frozen=True)
class Nights:
    """The flow runs of the server of a state folder."""

    overnight: Overnight
    url: str

    def of(self, deployment: str, *types: str) -> list[dict[str, Any]]:
        """Flow runs of a deployment that are in a state of one of the types, by the time they were due."""
        wanted = {
            "flow_runs": {"state": {"type": {"any_": list(types)}}},
            "deployments": {"name": {"any_": [deployment]}},
            "sort": "EXPECTED_START_TIME_ASC",
        }
        return self._post("/flow_runs/filter", wanted)

    def read(self, run_id: str) -> dict[str, Any]:
        """A flow run as it is now."""
        return httpx.get(f"{self.url}/api/flow_runs/{run_id}", timeout=30).raise_for_status().json()

    def state(self, run_id: str) -> str:
        """Name of its state."""
        return self.read(run_id)["state"]["name"]

    def running(self, deployment: str, timeout_s: float = 240) -> dict[str, Any]:
        """The flow run of a deployment that is running, once there is one that a process has claimed."""
        found: list[dict[str, Any]] = []

        def claimed() -> bool:
            found[:] = [run for run in self.of(deployment, "RUNNING") if owner(run)]
            return bool(found)

        wait_until(claimed, timeout_s, f"a night of {deployment}")
        return found[0]

    def cancel(self, run_id: str) -> None:
        """What the button on its page does."""
        self._post(f"/flow_runs/{run_id}/set_state", {"state": {"type": "CANCELLING", "name": "Cancelling"}})

    def wait_for(self, run_id: str, *names: str, timeout_s: float) -> float:
        """Seconds until the flow run is in a state of one of the names."""
        began = time.monotonic()
        reached: Callable[[], bool] = lambda: self.state(run_id) in names  # noqa: E731
        wait_until(reached, timeout_s, f"{names} of {run_id}", every_s=0.5)
        return time.monotonic() - began

    def service(self, name: str) -> psutil.Process:
        """The process of a service."""
        rows = self.overnight.json("status")["services"]
        return psutil.Process(next(row["pid"] for row in rows if row["name"] == name))

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        return httpx.post(f"{self.url}/api{path}", json=body, timeout=30).raise_for_status().json()


def owner(run: dict[str, Any]) -> int:
    """Id of the process that works on a flow run; 0 when none has said so."""
    return next((int(tag.split("/")[1]) for tag in run["tags"] if tag.startswith("process:")), 0)


def run_of(run: dict[str, Any]) -> str:
    """The training run that a flow run works on; empty before it has one."""
    return next((tag.removeprefix("run:") for tag in run["tags"] if tag.startswith("run:")), "")


def kill_tree(process: psutil.Process) -> None:
    """SIGKILL a process and everything below it, and wait until they are gone."""
    family = [process, *process.children(recursive=True)]
    for member in family:
        member.kill()
    psutil.wait_procs(family, timeout=20)
