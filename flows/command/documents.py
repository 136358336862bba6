"""What each subcommand prints with --json: one set of keys, which docs/json-schema.json describes."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter

from flows.deployments import Deployed
from infra.services.services import ServiceStatus
from tasks.probe.report import AlignmentReport
from tasks.record.evaluation_report import EvaluationReport
from tasks.record.shown import ShownSample
from tasks.reporting.ledger import VersionRecord
from tasks.reporting.report import RunReport
from tasks.reporting.summary import RunSummary


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Preset(_Document):
    """A configuration that comes with the package."""

    name: str
    description: str


class Evaluated(EvaluationReport):
    """An evaluation, and whose."""

    run_id: str


class Aligned(AlignmentReport):
    """An alignment check, and whose."""

    run_id: str


class Exported(_Document):
    """A weight version that was written as a model folder."""

    run_id: str
    version: int
    folder: str
    tensors: int
    """How many."""
    bytes: int
    """Their size."""
    hash: str
    """Content hash of what was written; the version's own where it is in the format of the version."""


class Servers(_Document):
    """The servers, and what `prefect` and `mlflow` commands need in their environment to reach them."""

    services: list[ServiceStatus]
    environment: dict[str, str]


class Scheduled(_Document):
    """A deployment that was made."""

    name: str
    cron: str
    timezone: str
    paused: bool


class Paused(_Document):
    """A deployment whose schedule was switched on or off."""

    name: str
    paused: bool


class Undeployed(_Document):
    """A deployment that was removed."""

    name: str
    deployed: bool


class Triggered(_Document):
    """A flow run that is due now."""

    name: str
    flow_run: str
    flow_run_id: str


DOCUMENTS: Mapping[str, Any] = {
    "abandon": RunSummary,
    "align": Aligned,
    "deploy": Scheduled,
    "deployments": list[Deployed],
    "down": Servers,
    "eval": Evaluated,
    "export": Exported,
    "ledger": list[VersionRecord],
    "pause": Paused,
    "presets": list[Preset],
    "resume": RunReport,
    "run": RunReport,
    "runs": list[RunSummary],
    "samples": list[ShownSample],
    "show": RunReport,
    "status": Servers,
    "sync-mlflow": RunSummary,
    "trigger": Triggered,
    "undeploy": Undeployed,
    "unpause": Paused,
    "up": Servers,
}
"""By subcommand."""
_PRINTED: Literal["serialization"] = "serialization"


def dump(subcommand: str, document: Any) -> str:
    """The document of a subcommand as JSON; ValueError for one that is not of the subcommand's type."""
    adapter = TypeAdapter(DOCUMENTS[subcommand])
    return adapter.dump_json(adapter.validate_python(document), indent=1, warnings="error").decode()


def schema() -> dict[str, Any]:
    """JSON schema of all documents, by subcommand under `properties`."""
    adapters = [(name, _PRINTED, TypeAdapter(of)) for name, of in DOCUMENTS.items()]
    by_name, shared = TypeAdapter.json_schemas(adapters)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What `overnight SUBCOMMAND --json` prints, by subcommand",
        "type": "object",
        "properties": {name: by_name[name, _PRINTED] for name in DOCUMENTS},
        **shared,
    }
