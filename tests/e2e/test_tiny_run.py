"""What a run of the tiny model leaves behind: commits, ledger, MLflow, Prefect."""

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from mlflow import MlflowClient
from transformers import AutoModelForCausalLM

from infra.home import Home
from tests.support.command import CONFIGS, Overnight
from tests.support.command import REFERENCE_STEPS as STEPS

pytestmark = [pytest.mark.slow, pytest.mark.services, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def records(finished: Overnight) -> list[dict[str, Any]]:
    """The ledger, as the command prints it."""
    return finished.json("ledger", "reference")


@pytest.fixture(scope="module")
def report(finished: Overnight) -> dict[str, Any]:
    """The report, as the command prints it."""
    return finished.json("show", "reference")


def test_every_version_is_in_the_ledger_once_with_the_hashes_of_the_engines(
    records: list[dict[str, Any]],
) -> None:
    assert [record["version"] for record in records] == list(range(STEPS + 1))
    assert len({record["hash"] for record in records}) == STEPS + 1
    for record in records:
        assert set(record["engines"].values()) == {record["hash"]}
    assert [record["state"] for record in records] == ["retired"] * STEPS + ["published"]


def test_divergence_stays_below_1e_4_on_every_token(report: dict[str, Any]) -> None:
    assert 0 < report["logprob_abs_diff_max"] <= 1e-4


def test_reward_rises(report: dict[str, Any], records: list[dict[str, Any]]) -> None:
    assert report["reward_first"] < 0.45
    assert records[0]["reward"] == report["reward_first"]
    assert records[-2]["reward"] > records[0]["reward"] + 0.1
    assert records[-1]["reward"] is None and records[-1]["evaluation"]["eval/held-out/avg_at_k"] > 0


def test_mlflow_has_a_logged_model_a_version_with_reward_and_divergence(
    finished: Overnight, records: list[dict[str, Any]]
) -> None:
    client = MlflowClient(Home(finished.home).mlflow_uri)
    (experiment,) = [e for e in client.search_experiments() if e.name == "tiny-cpu"]
    (run,) = client.search_runs([experiment.experiment_id], "attributes.run_name = 'reference'")
    assert run.info.status == "FINISHED"
    models = client.search_logged_models([experiment.experiment_id], f"source_run_id = '{run.info.run_id}'")
    assert {model.params["hash"] for model in models} == {record["hash"] for record in records}
    told = {
        model.params["hash"]: {metric.key: metric.value for metric in model.metrics or []} for model in models
    }
    for record in records:
        metrics = told[record["hash"]]
        for name in ("reward", "divergence", "length", "entropy"):
            assert metrics.get(f"version/{name}") == record[name]
    steps = [metric.step for metric in client.get_metric_history(run.info.run_id, "time/overhead")]
    assert sorted(steps)[-STEPS:] == list(range(1, STEPS + 1))


def test_prefect_shows_every_stage_of_every_step(finished: Overnight) -> None:
    url = f"http://127.0.0.1:{finished.environment['OVERNIGHT_PREFECT_PORT']}/api"
    asked = {"limit": 200, "task_runs": {"name": {"like_": "reference step"}}}
    runs = httpx.post(f"{url}/task_runs/filter", json=asked, timeout=30).json()
    names = {run["name"] for run in runs if run["state_type"] == "COMPLETED"}
    for step in range(1, STEPS + 1):
        for stage in (
            f"generate with version {step - 1}",
            "grade",
            f"train from version {step - 1}",
            f"publish version {step}",
            f"commit version {step}",
        ):
            assert f"reference step {step}: {stage}" in names
    retries = {run["empirical_policy"]["retries"] for run in runs if "step 1:" in run["name"]}
    assert retries == {3}


def test_a_finished_run_resumes_to_the_same_report(finished: Overnight, report: dict[str, Any]) -> None:
    assert finished.json("resume", "reference") == report


def test_any_version_can_be_evaluated_on_a_file(finished: Overnight, tmp_path: Path) -> None:
    dataset = tmp_path / "sums.jsonl"
    dataset.write_text('{"problem": "Find the value of 12 \\\\cdot 4.", "answer": "48"}\n')
    report = finished.json("eval", "reference@1", "--dataset", str(dataset))
    assert report["version"] == 1 and report["n"] == 1 and report["dataset"] == "sums"


def test_any_version_can_be_exported(
    finished: Overnight, records: list[dict[str, Any]], tmp_path: Path
) -> None:
    told = finished("export", "reference@3", str(tmp_path / "out")).stdout
    assert f"hash {records[3]['hash']}" in told
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "out").config.model_type == "llama"
    again = finished("export", "reference@3", str(tmp_path / "out"), exit_code=2).stderr
    assert again == f"error: {tmp_path / 'out'} is there already and not an empty folder: give another\n"


def test_what_is_not_aligned_is_one_line_with_the_report_and_exit_code_1(finished: Overnight) -> None:
    tight = "publish.probe_tolerance=1e-9"
    tiny = str(CONFIGS / "tiny-cpu.yaml")
    result = finished("align", tiny, "--layers", "--json", "--set", tight, exit_code=1)
    told = r"^failed: log-probabilities of engine-0 differ .* worst at token .*: see (file:\S+)$"
    found = re.search(told, result.stderr, re.MULTILINE)
    assert found, result.stderr
    report = json.loads(result.stdout)
    assert report.pop("run_id").startswith("tiny-cpu-check-")
    assert json.loads(Path(urlsplit(found[1]).path).read_text()) == {"schema": 1, **report}
    assert 1e-9 == report["tolerance"] < report["engines"][0]["max"] <= 1e-4
    layers = report["layers"]
    assert len(layers["modules"]) == 4 and max(each["relative"] for each in layers["modules"]) <= 1e-5
    assert max(layers["trainer"], *layers["engines"].values()) <= 1e-4
    assert not any("-check-" in run["run_id"] for run in finished.json("runs"))
