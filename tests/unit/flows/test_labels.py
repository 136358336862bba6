"""Names of flow runs: Prefect's own give way, a person's stay."""

from datetime import datetime
from pathlib import Path
from uuid import uuid4

import pytest
from prefect.client.schemas.objects import FlowRun
from prefect.utilities.names import generate_slug

from configs.loading import load_config
from flows.labels import is_typed, run_id_of, title
from infra.home import Home
from tasks.record.run import Run

TINY = Path(__file__).parents[3] / "configs" / "tiny-cpu.yaml"


def flow_run(name: str, auto_scheduled: bool = False) -> FlowRun:
    return FlowRun(name=name, flow_id=uuid4(), auto_scheduled=auto_scheduled, tags=["run:one", "other"])


def test_names_that_prefect_made_up_are_not_taken_for_typed_ones() -> None:
    assert not any(is_typed(flow_run(generate_slug(2))) for _ in range(200))
    assert not is_typed(flow_run("anything at all", auto_scheduled=True))


@pytest.mark.parametrize("name", ["first-try", "before the release", "lr 3e-4"])
def test_a_name_that_a_person_typed_is_known_as_one(name: str) -> None:
    assert is_typed(flow_run(name))


def test_a_title_has_configuration_date_and_run_id_and_each_once(tmp_path: Path) -> None:
    config, night = load_config(TINY), datetime(2026, 12, 2, 1)
    made = Run(id="tiny-cpu-20261201-010007", config=config, home=Home(tmp_path))
    assert title(made, night) == "2026-12-02 tiny-cpu-20261201-010007"
    assert title(made.model_copy(update={"id": "mine"}), night) == "2026-12-02 tiny-cpu mine"


def test_a_flow_run_says_which_run_it_works_on() -> None:
    assert run_id_of(flow_run("one")) == "one"
    assert run_id_of(FlowRun(flow_id=uuid4())) is None
