"""Two engines, two trainer ranks, weights broadcast through a process group, generation one step ahead."""

import pytest
from mlflow import MlflowClient

from infra.home import Home
from tests.support.command import Overnight

pytestmark = [pytest.mark.slow, pytest.mark.services, pytest.mark.timeout(600)]
STEPS = 3


def test_ahead_with_two_engines_two_ranks_and_a_process_group(overnight: Overnight) -> None:
    overnight.run_config(
        "tiny-cpu.yaml",
        "double",
        f"loop={{mode: ahead, steps: {STEPS}}}",
        "deterministic=false",
        "engine.count=2",
        "trainer.tensor_parallel=2",
        "publish.transport=process_group",
        "publish.bucket_mb=0.5",
        "evaluation={problems: 20, samples: 1, at_start: false}",
    )
    ledger = overnight.json("ledger", "double")
    assert [record["version"] for record in ledger] == list(range(STEPS + 1))
    for record in ledger:
        assert (record["format"], record["transport"]) == ("float32", "process_group")
        assert record["engines"] == {"engine-0": record["hash"], "engine-1": record["hash"]}
        assert record["probe_abs_diff_max"] <= 1e-4
    assert [record["reward"] is None for record in ledger] == [False, False, True, True]
    client = MlflowClient(Home(overnight.home).mlflow_uri)
    experiment = client.get_experiment_by_name("tiny-cpu")
    (run,) = client.search_runs([experiment.experiment_id], "attributes.run_name = 'double'")
    lags = {
        metric.step: metric.value for metric in client.get_metric_history(run.info.run_id, "rollout/lag_max")
    }
    assert lags == {1: 0.0, 2: 1.0, 3: 1.0}
