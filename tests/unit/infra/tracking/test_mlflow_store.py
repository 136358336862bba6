"""Writing to a real MLflow (sqlite), twice, and finding it unusable."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from mlflow import MlflowClient

from infra.tracking import TrackingError
from infra.tracking.mlflow_store import DataSet, ExternalModel, Measurements, RegisteredVersion, TrackedRun

IDENTITY = ("test.id", "one")
MODEL = ExternalModel(3, "third", {"hash": "abc"}, {"kind": "test"})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One database for the module (making one takes a second); tests use experiments of their own."""
    return tmp_path_factory.mktemp("mlflow")


@pytest.fixture
def open_run(folder: Path, request: pytest.FixtureRequest) -> Callable[[], TrackedRun]:
    """Opens the test's MLflow run; a new view of it on every call."""
    uri, experiment = f"sqlite:///{folder / 'mlflow.db'}", request.node.name
    return lambda: TrackedRun.open(uri, (folder / "artifacts").as_uri(), experiment, IDENTITY, start_s=100.0)


@pytest.fixture
def client(folder: Path) -> MlflowClient:
    return MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")


def test_a_run_is_found_again_by_its_tag(open_run: Callable[[], TrackedRun], client: MlflowClient) -> None:
    first = open_run()
    assert open_run().id == first.id
    assert client.get_run(first.id).info.start_time == 100_000
    assert open_run().tags["test.id"] == "one"


def test_a_description_is_written_once_and_cut_to_length(
    open_run: Callable[[], TrackedRun], client: MlflowClient
) -> None:
    data = DataSet("sums", "abc", "generated", "training")
    params, files = {"long": "x" * 10_000, "a.b": "1"}, {"config.yaml": "a: {b: 1}\n"}
    open_run().describe(params, {"of": "all"}, files, data)
    open_run().describe({"long": "another"}, {"of": "another"}, {}, data)
    open_run().saw(data)
    found = client.get_run(open_run().id)
    assert found.data.params == {"long": "x" * 6000, "a.b": "1"}
    assert found.data.tags["of"] == "all"
    (seen,) = found.inputs.dataset_inputs
    assert (seen.dataset.name, seen.dataset.digest) == ("sums", "abc")
    assert [(tag.key, tag.value) for tag in seen.tags] == [("mlflow.data.context", "training")]
    assert [item.path for item in client.list_artifacts(open_run().id)] == ["config.yaml"]


def test_an_experiment_is_shown_as_training_unless_people_say_otherwise(
    open_run: Callable[[], TrackedRun], client: MlflowClient
) -> None:
    experiment = client.get_run(open_run().id).info.experiment_id
    assert client.get_experiment(experiment).tags["mlflow.experimentKind"] == "custom_model_development"
    client.set_experiment_tag(experiment, "mlflow.experimentKind", "regression")
    assert (
        open_run().page == f"/#/experiments/{experiment}/runs/{open_run().id}?workflowType=machine_learning"
    )
    assert client.get_experiment(experiment).tags["mlflow.experimentKind"] == "regression"


def test_metrics_written_twice_are_there_once(
    open_run: Callable[[], TrackedRun], client: MlflowClient
) -> None:
    tracked = open_run()
    moments = [
        Measurements({f"m/{name}": name + step for name in range(30)}, step, 50.0 + step)
        for step in range(50)
    ]
    tracked.log(moments[:20])
    tracked.log(moments)
    history = client.get_metric_history(tracked.id, "m/7")
    assert [(point.step, point.value, point.timestamp) for point in history] == [
        (step, 7 + step, 50_000 + 1000 * step) for step in range(50)
    ]


def test_a_model_carries_params_tags_and_its_metrics(
    open_run: Callable[[], TrackedRun], client: MlflowClient
) -> None:
    tracked = open_run()
    model_id = tracked.models([MODEL])[3]
    for _ in range(2):
        tracked.log([Measurements({"reward": 0.5, "broken": math.nan}, 3, 53.0, model_id)])
    model = client.get_logged_model(model_id)
    assert (model.name, model.params, model.source_run_id) == ("third", {"hash": "abc"}, tracked.id)
    assert model.tags["kind"] == "test"
    assert model.status == "READY"
    assert [(metric.key, metric.value, metric.step) for metric in model.metrics or []] == [("reward", 0.5, 3)]
    assert math.isnan(client.get_run(tracked.id).data.metrics["broken"])


def test_models_are_created_once_also_when_a_process_died_before_linking_them(
    open_run: Callable[[], TrackedRun], client: MlflowClient
) -> None:
    tracked = open_run()
    experiment = client.get_run(tracked.id).info.experiment_id
    orphan = client.create_logged_model(experiment, name="third", source_run_id=tracked.id)
    ids = open_run().models([MODEL])
    assert ids == {3: orphan.model_id}
    assert open_run().models([MODEL]) == ids
    assert open_run().models([]) == ids
    assert client.get_logged_model(orphan.model_id).status == "READY"
    assert len(client.search_logged_models([experiment])) == 1


def test_tables_and_figures_are_replaced_not_appended(
    open_run: Callable[[], TrackedRun], client: MlflowClient
) -> None:
    tracked = open_run()
    for answer in (1, 2):
        tracked.write_table(
            "evaluations/x.csv", [{"id": "a", "answer": answer}, {"id": "b, c", "answer": None}]
        )
        tracked.write_figure("plots/empty.png", Figure())
    table = Path(client.download_artifacts(tracked.id, "evaluations/x.csv")).read_text()
    assert table.splitlines() == ["id,answer", "a,2", '"b, c",']
    assert [item.path for item in client.list_artifacts(tracked.id, "plots")] == ["plots/empty.png"]


def test_a_run_ends_and_begins_again(open_run: Callable[[], TrackedRun], client: MlflowClient) -> None:
    open_run().set_status("FAILED", end_s=200.0)
    info = client.get_run(open_run().id).info
    assert (info.status, info.end_time) == ("FAILED", 200_000)
    open_run().set_status("RUNNING")
    assert client.get_run(open_run().id).info.status == "RUNNING"


def test_registered_models_have_aliases_and_none_is_registered_twice(
    open_run: Callable[[], TrackedRun], client: MlflowClient
) -> None:
    tracked = open_run()
    ids = tracked.models([MODEL, ExternalModel(4, "fourth", {}, {})])
    for _ in range(2):
        for step, alias in ((3, "best"), (4, "newest")):
            row = RegisteredVersion(ids[step], f"file:///weights/{step}", f"of step {step}", {"run": "one"})
            tracked.register("policy", row, alias)
    assert client.get_model_version_by_alias("policy", "best").source == "file:///weights/3"
    newest = client.get_model_version_by_alias("policy", "newest")
    assert (newest.source, newest.run_id, newest.version) == ("file:///weights/4", tracked.id, 2)
    assert (newest.description, newest.tags["run"]) == ("of step 4", "one")


def test_a_database_that_is_none_is_a_tracking_error(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_bytes(b"not a database" * 100)
    with pytest.raises(
        TrackingError, match=r"MLflow cannot be reached or written: .*not a database"
    ) as caught:
        TrackedRun.open(
            f"sqlite:///{tmp_path / 'mlflow.db'}", (tmp_path / "artifacts").as_uri(), "x", IDENTITY, 0.0
        )
    assert "\n" not in str(caught.value)


def test_a_folder_that_cannot_be_made_is_a_tracking_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TrackingError, match=r"cannot be reached or written: .*file"):
        TrackedRun.open(
            f"sqlite:///{tmp_path}/file/x.db", (tmp_path / "file" / "artifacts").as_uri(), "x", IDENTITY, 0.0
        )
