"""One MLflow run that any process can find again, and write to twice without doubling anything."""

import contextlib
import csv
import io
import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

from matplotlib.figure import Figure
from mlflow import MlflowClient
from mlflow.entities import (
    Dataset,
    DatasetInput,
    Experiment,
    InputTag,
    LoggedModelOutput,
    Metric,
    Param,
    RunTag,
)
from mlflow.entities import Run as MlflowRun
from mlflow.exceptions import MlflowException
from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT, MLFLOW_MODEL_IS_EXTERNAL
from mlflow.utils.uri import is_local_uri
from mlflow.utils.validation import MAX_PARAM_VAL_LENGTH, MAX_TAG_VAL_LENGTH
from sqlalchemy.exc import SQLAlchemyError

from infra.tracking import TrackingError
from infra.tracking.database import ensure_database

RunStatus = Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]

_KIND = "mlflow.experimentKind"
"""Tag by which MLflow's UI shows an experiment in the mode for training models, not in that for prompts."""
_TRAINING = "custom_model_development"
_MODEL_ID = "model_id"
"""Tag of a registered version: a search does not give its LoggedModel otherwise."""


@dataclass(frozen=True)
class ExternalModel:
    """A LoggedModel whose files stay where they are. No two of a run have the same step or name."""

    step: int
    name: str
    params: Mapping[str, str]
    tags: Mapping[str, str]


@dataclass(frozen=True)
class DataSet:
    """Problems that a run saw, of which MLflow keeps no more than this."""

    name: str
    digest: str
    """At most 36 characters; other problems have another."""
    source: str
    """What people find them by: a path, or how they are made."""
    context: Literal["training", "evaluation"]


@dataclass(frozen=True)
class RegisteredVersion:
    """A LoggedModel as a version of a registered model."""

    model_id: str
    source: str
    """URI of its files, which are not copied."""
    description: str
    tags: Mapping[str, str]


@dataclass(frozen=True)
class Measurements:
    """Metric values of one moment; with `model_id` they also show on the page of that LoggedModel."""

    values: Mapping[str, float]
    step: int
    time_s: float
    """Unix time, seconds."""
    model_id: str | None = None
    data: DataSet | None = None
    """What was measured on, where that is told."""


@contextlib.contextmanager
def _typed_errors() -> Iterator[None]:
    try:
        yield
    except (MlflowException, SQLAlchemyError, OSError) as error:
        reason = str(error).partition("\n")[0]  # the lines below it are SQL
        raise TrackingError(f"MLflow cannot be reached or written: {reason}") from error


class TrackedRun:
    """An MLflow run found by one of its tags, as it was when it was opened.

    Every method raises TrackingError when MLflow is down, and may be called again after that.
    """

    def __init__(self, client: MlflowClient, run: MlflowRun) -> None:
        self._client = client
        self._run = run
        outputs = run.outputs.model_outputs if run.outputs else []
        self._model_ids = {output.step: output.model_id for output in outputs}

    @classmethod
    @_typed_errors()
    def open(
        cls, uri: str, artifacts: str | None, experiment: str, identity: tuple[str, str], start_s: float
    ) -> "TrackedRun":
        """The run of an experiment that carries the tag `identity` (key, value); created when there is none.

        `artifacts` is the root URI of a new experiment's artifacts, None where `uri` is a server that knows
        its own; `start_s` is the Unix time at which a new run began. Two processes must not do this at once.
        """
        if artifacts is not None:
            ensure_database(uri, artifacts)
        client = MlflowClient(tracking_uri=uri, registry_uri=uri)
        known = client.get_experiment_by_name(experiment)
        if known is None:
            experiment_id = client.create_experiment(
                experiment, artifacts and f"{artifacts}/{quote(experiment)}"
            )
        else:
            experiment_id = known.experiment_id
        _show_as_training(client, experiment_id, known)
        key, value = identity
        found = client.search_runs([experiment_id], f"tags.`{key}` = '{value}'", max_results=1)
        if found:
            return cls(client, found[0])
        created = client.create_run(
            experiment_id, start_time=milliseconds(start_s), tags={key: value}, run_name=value
        )
        return cls(client, created)

    @property
    def id(self) -> str:
        """MLflow's id of the run."""
        return self._run.info.run_id

    @property
    def page(self) -> str:
        """Where MLflow's UI shows the run, below the server's own URL, in its mode for training models."""
        info = self._run.info
        return f"/#/experiments/{info.experiment_id}/runs/{info.run_id}?workflowType=machine_learning"

    @property
    def tags(self) -> Mapping[str, str]:
        """Tags of the run, as they were when it was opened."""
        return self._run.data.tags

    @property
    def status(self) -> str:
        """MLflow's word for how the run stood when it was opened."""
        return self._run.info.status

    @_typed_errors()
    def describe(
        self, params: Mapping[str, str], tags: Mapping[str, str], files: Mapping[str, str], data: DataSet
    ) -> None:
        """Give the run its parameters (cut to MLflow's length), tags, text artifacts and the data that it
        trains on, unless it has them."""
        if self._run.data.params:
            return
        for path, text in files.items():
            self.write_text(path, text)
        self.saw(data)
        cut = [Param(key, value[:MAX_PARAM_VAL_LENGTH]) for key, value in params.items()]
        run_tags = [RunTag(key, value[:MAX_TAG_VAL_LENGTH]) for key, value in tags.items()]
        self._client.log_batch(self.id, params=cut, tags=run_tags, synchronous=True)

    @_typed_errors()
    def saw(self, data: DataSet) -> None:
        """Say that the run trained or was evaluated on a data set, once however often it is said."""
        entity = Dataset(data.name, data.digest, "overnight", json.dumps({"from": data.source}))
        tags = [InputTag(MLFLOW_DATASET_CONTEXT, data.context)]
        self._client.log_inputs(self.id, [DatasetInput(entity, tags)])

    @_typed_errors()
    def models(self, models: Sequence[ExternalModel] = ()) -> Mapping[int, str]:
        """Model id by step of all LoggedModels of the run, once those of `models` it lacks are made."""
        missing = [model for model in models if model.step not in self._model_ids]
        unlinked = self._unlinked(missing)
        created = {model.step: unlinked.get(model.name) or self._create_model(model) for model in missing}
        for model_id in created.values():
            self._client.finalize_logged_model(model_id, "READY")
        if created:
            links = [LoggedModelOutput(model_id, step) for step, model_id in created.items()]
            self._client.log_outputs(self.id, links)
            self._model_ids |= created
        return self._model_ids

    @_typed_errors()
    def log(self, measurements: Iterable[Measurements]) -> None:
        """Write metrics in batches; those that are there already stay as they are."""
        metrics = [
            Metric(
                name,
                value,
                milliseconds(moment.time_s),
                moment.step,
                # MLflow would show 0 for a nan on a model's page
                model_id=moment.model_id if math.isfinite(value) else None,
                dataset_name=moment.data.name if moment.data else None,
                dataset_digest=moment.data.digest if moment.data else None,
            )
            for moment in measurements
            for name, value in moment.values.items()
        ]
        self._client.log_batch(self.id, metrics=metrics, synchronous=True)

    @_typed_errors()
    def moments(self, metric: str) -> Set[tuple[int, int]]:
        """Step and time (Unix, milliseconds) of each value that the run has of a metric."""
        history = self._client.get_metric_history(self.id, metric)
        return {(point.step, point.timestamp) for point in history}

    @_typed_errors()
    def tag(self, tags: Mapping[str, str]) -> None:
        """Set tags of the run."""
        run_tags = [RunTag(key, value) for key, value in tags.items()]
        self._client.log_batch(self.id, tags=run_tags, synchronous=True)

    @_typed_errors()
    def write_table(self, path: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write (or replace) a CSV artifact, of at least one row, which MLflow shows as a table.

        A table of MLflow's own kind has to be listed in a tag of the run, which has room for 150.
        """
        text = io.StringIO()
        writer = csv.DictWriter(text, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
        self.write_text(path, text.getvalue())

    @_typed_errors()
    def write_text(self, path: str, text: str) -> None:
        """Write (or replace) a text artifact; MLflow shows HTML as a page."""
        self._client.log_text(self.id, text, path)

    @_typed_errors()
    def write_figure(self, path: str, figure: Figure) -> None:
        """Write (or replace) an image artifact."""
        self._client.log_figure(self.id, figure, path)

    @_typed_errors()
    def set_status(self, status: RunStatus, end_s: float | None = None) -> None:
        """Say how the run stands; `end_s` is the Unix time at which it ended."""
        if status == "RUNNING":
            if self.status != status:
                self._client.update_run(self.id, status=status)
        else:
            end = milliseconds(time.time() if end_s is None else end_s)
            self._client.set_terminated(self.id, status=status, end_time=end)

    @_typed_errors()
    def register(self, registry: str, version: RegisteredVersion, alias: str | None = None) -> None:
        """Make a LoggedModel a version of a registered model, unless it is one; say what is known of it now,
        and point an alias at it. MLflow keeps the alias `latest` for itself.
        """
        if not self._client.search_registered_models(f"name = '{registry}'"):
            self._client.create_registered_model(registry)
        known = self._client.search_model_versions(f"name = '{registry}' AND run_id = '{self.id}'")
        number = next((item.version for item in known if item.tags.get(_MODEL_ID) == version.model_id), None)
        if number is None:
            number = self._client.create_model_version(
                registry,
                self._source(version.source, version.model_id),
                run_id=self.id,
                model_id=version.model_id,
                tags={_MODEL_ID: version.model_id},
            ).version
        self._client.update_model_version(registry, number, version.description)
        for key, value in version.tags.items():
            self._client.set_model_version_tag(registry, number, key, value)
        if alias is not None:
            self._client.set_registered_model_alias(registry, alias, number)

    @_typed_errors()
    def aliased(self, registry: str, alias: str) -> Mapping[str, str] | None:
        """Tags of the LoggedModel that an alias of a registered model points at; None while it points at
        nothing, empty where that is no LoggedModel any more."""
        found = self._client.search_registered_models(f"name = '{registry}'")
        number = found[0].aliases.get(alias) if found else None
        if number is None:
            return None
        model_id = self._client.get_model_version(registry, number).tags.get(_MODEL_ID)
        try:
            return self._client.get_logged_model(model_id).tags if model_id else {}
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return {}

    def _source(self, source: str, model_id: str) -> str:
        """A server takes no path, which may be another machine's: it is sent to the LoggedModel."""
        on_server = self._client.tracking_uri.startswith("http")
        return f"models:/{model_id}" if on_server and is_local_uri(source) else source

    def _unlinked(self, models: Sequence[ExternalModel]) -> dict[str, str]:
        """Model id by name of models that a killed process created without linking them to the run."""
        if not models:
            return {}
        names = ", ".join(f"'{model.name}'" for model in models)
        found = self._client.search_logged_models(
            [self._run.info.experiment_id],
            filter_string=f"source_run_id = '{self.id}' AND name IN ({names})",
            max_results=len(models),
        )
        return {model.name: model.model_id for model in found}

    def _create_model(self, model: ExternalModel) -> str:
        return self._client.create_logged_model(
            self._run.info.experiment_id,
            name=model.name,
            source_run_id=self.id,
            tags={**model.tags, MLFLOW_MODEL_IS_EXTERNAL: "true"},
            params=dict(model.params),
        ).model_id


def _show_as_training(client: MlflowClient, experiment_id: str, known: Experiment | None) -> None:
    """Unless people have chosen how the experiment is shown."""
    if known is None or _KIND not in known.tags:
        client.set_experiment_tag(experiment_id, _KIND, _TRAINING)


def milliseconds(time_s: float) -> int:
    """A Unix time as MLflow keeps it."""
    return round(time_s * 1000)
