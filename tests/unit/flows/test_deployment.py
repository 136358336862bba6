from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from configs.errors import UserError
from configs.loading import load_config
from configs.night import NightConfig
from configs.run import RunConfig
from flows.deployment import NewDeployment, deploy
from flows.deployments import deployments, set_paused, undeploy
from infra.home import Home
from infra.process import free_port, wait_until
from infra.services import WORK_POOL, Services

TINY = Path(__file__).parents[3] / "configs" / "tiny-cpu.yaml"


@pytest.fixture
def config() -> RunConfig:
    return load_config(TINY, ["loop.steps=3"])


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    for variable in Services(Home(tmp_path)).client_environment("http://127.0.0.1:1"):
        monkeypatch.setenv(variable, "of a test")  # removed after the test, which sets them
        monkeypatch.delenv(variable)
    yield Home(tmp_path)
    Services(Home(tmp_path)).stop_all()


def deployed(url: str, name: str) -> dict[str, Any]:
    return httpx.get(f"{url}/api/deployments/name/{name}", timeout=30).raise_for_status().json()


@pytest.mark.slow
@pytest.mark.services
def test_a_deployment_is_a_typed_form_on_a_schedule_and_its_worker_comes_up(
    home: Home, config: RunConfig
) -> None:
    services = Services(home)
    url = services.ensure_prefect(free_port())
    assert deploy(config, "0 1 * * *", "UTC", home) == NewDeployment("nightly-rl/tiny-cpu", paused=False)
    set_paused("tiny-cpu", True, home)
    assert deploy(config, "30 2 * * *", "Europe/Berlin", home) == NewDeployment(
        "nightly-rl/tiny-cpu", paused=True
    )
    assert [each.paused for each in deployments(home)] == [True]
    set_paused("tiny-cpu", False, home)
    assert [(each.name, each.cron, each.paused) for each in deployments(home)] == [
        ("tiny-cpu", "30 2 * * *", False)
    ]

    found = deployed(url, "nightly-rl/tiny-cpu")
    assert [each["schedule"]["cron"] for each in found["schedules"]] == ["30 2 * * *"]
    assert found["schedules"][0]["schedule"]["timezone"] == "Europe/Berlin"
    assert found["entrypoint"] == "flows.nightly.nightly_rl"
    assert found["work_pool_name"] == WORK_POOL
    assert found["global_concurrency_limit"] is None
    assert found["job_variables"]["env"]["OVERNIGHT_HOME"] == str(home.root)
    assert RunConfig.model_validate(found["parameters"]["config"]) == config

    form = found["parameter_openapi_schema"]["definitions"]
    steps = form["LoopConfig"]["properties"]["steps"]
    assert (steps["type"], steps["minimum"], steps["description"]) == ("integer", 1, "Steps of the run.")
    assert form["LoopConfig"]["properties"]["mode"]["enum"] == ["sync", "ahead"]
    assert "FolderModel" in form

    unknown = config.model_copy(update={"night": NightConfig(alert_block="slack-webhook/none")})
    with pytest.raises(
        UserError, match=r"night\.alert_block slack-webhook/none is not on the Prefect server"
    ):
        deploy(unknown, "0 1 * * *", "UTC", home)

    wait_until(
        lambda: {each.name: each.state for each in services.status()}["worker"] == "up", 60, "the worker"
    )
    undeploy("tiny-cpu", home)
    assert deployments(home) == []
    with pytest.raises(UserError, match="tiny-cpu is not deployed"):
        undeploy("tiny-cpu", home)


@pytest.mark.parametrize(
    ("cron", "timezone", "says"),
    [("61 * * * *", "UTC", "Invalid cron string"), ("0 1 * * *", "Moon/Base", "Invalid timezone")],
)
def test_a_schedule_that_is_none_is_named_before_anything_starts(
    cron: str, timezone: str, says: str, home: Home, config: RunConfig
) -> None:
    with pytest.raises(UserError, match=says):
        deploy(config, cron, timezone, home)
    assert {each.state for each in Services(home).status()} == {"absent"}
