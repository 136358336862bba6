"""The few calls that services make to Prefect's REST API, each with a deadline, by Prefect's own client."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import httpx
from pydantic import BaseModel

from infra.services.errors import ServiceError
from infra.services.foreign import ForeignPrefect

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

_PAGE = 200
EndState = Literal["CRASHED", "CANCELLED"]
_GOING = ["PENDING", "RUNNING", "CANCELLING"]


class State(BaseModel):
    """What is read of a state."""

    type: str
    timestamp: datetime
    """When the flow run entered it."""


class FlowRun(BaseModel):
    """What is read of a flow run."""

    id: str
    name: str
    tags: list[str]
    state: State
    work_pool_name: str | None = None
    labels: dict[str, Any] = {}


class TaskRun(BaseModel):
    """What is read of a task run."""

    id: str


class Worker(BaseModel):
    """What is read of a work pool's worker."""

    last_heartbeat_time: datetime


class Automation(BaseModel):
    """What is read of an automation."""

    id: str
    name: str


class PrefectApi:
    """A client of our own server at `url` (without `/api`), or of the `user`'s, with the user's credentials.

    Calls raise ServiceError when they fail.
    """

    def __init__(self, url: str, timeout_s: float = 30, user: ForeignPrefect | None = None) -> None:
        if user is None:
            self._client = _own_client(url, timeout_s)
            self._way_out = "start it with `overnight up`"
        else:
            self._client = _client_of(user, timeout_s)
            self._way_out = "start it, or unset PREFECT_API_URL (or the profile's) to use Overnight's own"

    def check(self) -> None:
        """ServiceError unless the server answers and takes the credentials."""
        self._post("/work_pools/filter", {"limit": 1})

    def unfinished_flow_runs(
        self,
        tags: Sequence[str] = (),
        ids: Sequence[str] | None = None,
        parent_ids: Sequence[str] | None = None,
    ) -> list[FlowRun]:
        """Flow runs that are going: handed to a worker or begun, and not ended. They carry all of the tags,
        are of the `ids` when given, and subflows of the `parent_ids` when given."""
        wanted: dict[str, Any] = {"state": {"type": {"any_": _GOING}}, "tags": {"all_": list(tags)}}
        if ids is not None:
            wanted["id"] = {"any_": list(ids)}
        if parent_ids is not None:
            wanted["parent_flow_run_id"] = {"any_": list(parent_ids)}
        return [FlowRun.model_validate(row) for row in self._filter("/flow_runs", {"flow_runs": wanted})]

    def unfinished_task_runs(self, flow_run_ids: Sequence[str]) -> list[TaskRun]:
        """Task runs of the flow runs that have not ended."""
        state = {"type": {"any_": [*_GOING, "SCHEDULED"]}}
        wanted = {"task_runs": {"state": state, "flow_run_id": {"any_": list(flow_run_ids)}}}
        return [TaskRun.model_validate(row) for row in self._filter("/task_runs", wanted)]

    def end_flow_run(self, run_id: str, state: EndState, message: str) -> None:
        """Set a flow run that is going to an end state."""
        self._post(f"/flow_runs/{run_id}/set_state", _ended(state, message))

    def end_task_run(self, run_id: str, state: EndState, message: str) -> None:
        """Set a task run that has not ended to an end state."""
        self._post(f"/task_runs/{run_id}/set_state", _ended(state, message))

    def automations(self) -> list[Automation]:
        """The registered automations."""
        return [Automation.model_validate(row) for row in self._filter("/automations", {})]

    def delete_automation(self, automation_id: str) -> None:
        """Remove an automation."""
        self._call("DELETE", f"/automations/{automation_id}")

    def workers(self, pool: str) -> list[Worker]:
        """Workers that a work pool has seen; none when there is no such pool."""
        if not self._filter("/work_pools", {"work_pools": {"name": {"any_": [pool]}}}):
            return []
        return [Worker.model_validate(row) for row in self._filter(f"/work_pools/{pool}/workers", {})]

    def _filter(self, path: str, wanted: dict[str, Any]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        while True:
            page = self._post(f"{path}/filter", {**wanted, "limit": _PAGE, "offset": len(rows)})
            rows += page
            if len(page) < _PAGE:
                return rows

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        return self._call("POST", path, body).json()

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> httpx.Response:
        from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

        try:
            with temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}):
                response = self._client.request(method, path, json=body)  # type: ignore[arg-type]  # routes
            return response
        except httpx.HTTPStatusError as error:
            raise ServiceError(self._refusal(path, error.response)) from None
        except (httpx.HTTPError, ValueError) as error:  # ValueError: what answers speaks no JSON
            raise ServiceError(
                f"the Prefect server at {self._client.api_url} does not answer ({type(error).__name__}): "
                f"{self._way_out}"
            ) from None

    def _refusal(self, path: str, response: httpx.Response) -> str:
        if response.status_code in (401, 403):
            return (
                f"the Prefect server at {self._client.api_url} refuses the credentials: "
                "set PREFECT_API_KEY or PREFECT_API_AUTH_STRING"
            )
        text = " ".join(response.text.split())[:300]
        return f"Prefect refused {path}: {response.status_code} {text}"


def _own_client(url: str, timeout_s: float) -> "SyncPrefectClient":
    from prefect.client.orchestration import SyncPrefectClient

    direct = {"timeout": timeout_s, "trust_env": False}  # no proxy on the way to this machine
    return SyncPrefectClient(f"{url}/api", httpx_settings=direct)


def _client_of(user: ForeignPrefect, timeout_s: float) -> "SyncPrefectClient":
    from prefect.client.orchestration import SyncPrefectClient

    return SyncPrefectClient(
        user.api_url,
        api_key=user.settings.get("PREFECT_API_KEY"),
        auth_string=user.settings.get("PREFECT_API_AUTH_STRING"),
        httpx_settings={"timeout": timeout_s},
    )


def answers(url: str, timeout_s: float = 5) -> bool:
    """Whether a GET of the URL succeeds within the deadline."""
    try:
        return httpx.get(url, timeout=timeout_s, trust_env=False).is_success
    except httpx.HTTPError:
        return False


def _ended(state: EndState, message: str) -> dict[str, Any]:
    return {"state": {"type": state, "name": state.title(), "message": message}}
