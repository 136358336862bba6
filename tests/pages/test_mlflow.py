"""What people see in MLflow of a run."""

import pytest

from tests.support.command import Overnight

pytestmark = [pytest.mark.slow, pytest.mark.services]


def test_mlflow_lists_the_experiment(finished: Overnight, page) -> None:
    page.goto(f"http://127.0.0.1:{finished.environment['OVERNIGHT_MLFLOW_PORT']}/#/experiments")
    page.get_by_text("tiny-cpu").first.wait_for()
