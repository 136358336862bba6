"""A run that is configured, started and followed in Prefect's pages alone."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page

from tests.pages.conftest import Screenshot
from tests.support.command import Overnight, overnight_in

pytestmark = [pytest.mark.slow, pytest.mark.services]

STEPS = 3
NAME = "typed-by-hand"
_AROUND = "xpath=ancestor::*[contains(concat(' ', @class, ' '), ' schema-form-property ')][1]"
RUN_S = 240
"""How long the worker and a run of so few steps may take."""


@pytest.fixture(scope="module")
def overnight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Overnight]:
    """A state folder with a deployment whose schedule is far off."""
    with overnight_in(tmp_path_factory.mktemp("form")) as overnight:
        few = ("loop.steps=12", "evaluation.problems=8", "evaluation.samples=2")
        settings = [argument for text in few for argument in ("--set", text)]
        overnight("deploy", "tiny-cpu", "--cron", "0 1 1 1 *", *settings, timeout_s=120)
        yield overnight


@pytest.fixture(scope="module")
def prefect(overnight: Overnight) -> str:
    return overnight.json("status")["services"][0]["url"]


def test_a_run_is_started_from_the_form_and_followed_to_its_end(
    overnight: Overnight, prefect: str, page: Page, screenshot: Screenshot
) -> None:
    _open_form(page, prefect)
    screenshot("form")
    for section in ("Model", "Problems", "Reward", "Engine", "Algorithm", "Store", "Cluster"):
        assert _property(page, section).locator("button, select, input").count() > 1, section
    assert page.locator(".p-code-input").count() == 0, "a field of JSON"
    page.locator(".p-label", has_text="Run Name").locator("input").first.fill(NAME)
    _field(page, "Steps").fill(str(STEPS))
    _property(page, "Transport").get_by_role("button", name="delta", exact=True).click()
    _property(page, "Transport").scroll_into_view_if_needed()
    screenshot("changed")
    page.get_by_role("button", name="Submit", exact=True).click()

    page.get_by_role("link", name=NAME, exact=True).click()
    page.get_by_text("Completed", exact=True).first.wait_for(timeout=RUN_S * 1000)
    assert page.get_by_text(NAME, exact=True).count(), "a name that was typed is gone"
    screenshot("graph")
    _read_logs(page, screenshot)
    _read_artifacts(page)
    screenshot("artifacts")
    (run,) = overnight.json("runs")
    assert (run["steps"], run["state"]) == (STEPS, "finished")
    assert {each["transport"] for each in overnight.json("ledger", run["run_id"])} == {"delta"}


def _open_form(page: Page, prefect: str) -> None:
    page.goto(f"{prefect}/deployments")
    page.get_by_role("link", name="tiny-cpu", exact=True).click()
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_text("Custom run").click()
    page.get_by_text("Prompts Per Step (Optional)").wait_for()


def _property(page: Page, title: str) -> Locator:
    """The innermost property of the form that has the title."""
    label = re.compile(rf"^{title}( \(Optional\))?$")
    return page.locator(".schema-form-property__label").filter(has_text=label).first.locator(_AROUND)


def _field(page: Page, title: str) -> Locator:
    return _property(page, title).locator("input, textarea").first


def _read_logs(page: Page, screenshot: Screenshot) -> None:
    """A line a step, and links to MLflow and to the run's table."""
    for step in range(1, STEPS + 1):
        page.get_by_text(f"step {step} of {STEPS}: version {step}").scroll_into_view_if_needed()
    screenshot("log")
    page.get_by_text("in MLflow: http").wait_for()
    link = page.get_by_text("/artifacts/artifact/").inner_text().split()[-1]
    run = page.url
    page.goto(link)
    page.get_by_role("columnheader", name="max divergence, nats").wait_for()
    screenshot("steps")
    page.goto(run)


def _read_artifacts(page: Page) -> None:
    page.get_by_text("Artifacts", exact=True).click()
    for key in ("tiny-cpu-progress", "tiny-cpu-steps", "tiny-cpu-evaluations", "tiny-cpu-report"):
        page.get_by_text(key, exact=True).first.wait_for()
