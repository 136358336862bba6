"""What flow runs are called and tagged with, so that people find them again."""

from datetime import datetime
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from coolname.loader import load_config
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.context import FlowRunContext

from configs.model import FolderModel, HubModel, ModelConfig, PackagedGgufModel
from tasks.record.run import Run

_RUN = "run:"


def label(run: Run) -> None:
    """Name the flow run that this is called in and tag it with its run, configuration, lineage and model.

    A name that a person gave it stays. As for the process tag, the tags are set on the flow run alone.
    """
    context = FlowRunContext.get()
    if context is None or context.flow_run is None:
        return
    config = run.config
    tags = {
        _RUN + run.id,
        f"configuration:{config.name}",
        f"model:{_model_name(config.model)}",
    }
    if run.night:
        tags.add(f"lineage:{run.night.lineage}")
    with get_client(sync_client=True) as client:
        known = client.read_flow_run(context.flow_run.id)
        name = known.name if is_typed(known) else title(run, datetime.now())
        client.update_flow_run(known.id, name=name, tags=sorted({*known.tags, *tags}))


def title(run: Run, when: datetime) -> str:
    """Configuration, date and run id; a run id that was made of the configuration's name says it already."""
    named = "" if run.id.startswith(run.config.name) else f"{run.config.name} "
    return f"{when:%Y-%m-%d} {named}{run.id}"


def run_id_of(flow_run: FlowRun) -> str | None:
    """The run that a flow run works on; None before it has one."""
    return next((tag.removeprefix(_RUN) for tag in flow_run.tags if tag.startswith(_RUN)), None)


def is_typed(flow_run: FlowRun) -> bool:
    """Whether a person gave the flow run its name; Prefect's own are of the kind of `lilac-parrot`."""
    return not flow_run.auto_scheduled and not set(flow_run.name.split("-")) <= _made_up_words()


@cache
def _made_up_words() -> frozenset[str]:
    """The words that Prefect makes names of."""
    lists: Any = load_config(Path(str(files("coolname"))) / "data")
    return frozenset(word for each in lists.values() for word in each.get("words", ()))


def _model_name(model: ModelConfig) -> str:
    match model:
        case FolderModel():
            return model.path.name
        case HubModel():
            return model.repo
        case PackagedGgufModel():
            return model.package
