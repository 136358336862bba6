"""What people see in MLflow of a finished run, from the link that the command prints."""

import re
from html import unescape
from typing import Any

import pytest

from infra.home import Home
from tasks.record.runs import load_run
from tasks.reporting.tracking import run_url
from tests.support.command import REFERENCE_STEPS, Overnight

pytestmark = [pytest.mark.slow, pytest.mark.services]


@pytest.fixture(scope="module")
def link(finished: Overnight) -> str:
    """The page of the run, as `overnight run` prints it (tests/e2e looks at what it prints)."""
    url = run_url(load_run("reference", Home(finished.home)))
    assert url is not None
    return url


def test_the_link_opens_the_run_in_the_mode_for_training(link: str, page, screenshot) -> None:
    page.goto(link)
    page.get_by_role("heading", name="reference").wait_for()
    for shown in (
        "RL makes the model work its answers out",  # the description
        re.compile(r"^overnight \d"),  # the source
        re.compile(r"^arithmetic"),  # the data set
        "overnight.configuration",
    ):
        page.get_by_text(shown).first.wait_for()
    screenshot("run")
    page.get_by_role("link", name="Runs").first.wait_for()  # the mode for prompts has no such list
    page.get_by_role("link", name="Model registry").wait_for()


def test_every_versions_row_shows_reward_accuracy_hash_and_parent(
    finished: Overnight, link: str, page, screenshot
) -> None:
    page.set_viewport_size({"width": 8000, "height": 1000})  # the table draws the columns that are in sight
    experiment = re.search(r"/experiments/\d+", link)
    assert experiment is not None
    page.goto(f"{link[: experiment.end()]}/models?workflowType=machine_learning")
    rows = _versions_of("reference", page)
    screenshot("versions")
    ledger = finished.json("ledger", "reference")
    assert len(rows) == len(ledger) == REFERENCE_STEPS + 1
    for record in ledger:
        row = rows[f"v{record['version']:06d}"]
        assert row["hash"] == record["hash"]
        assert row["parent"] == ("" if record["parent"] is None else f"v{record['parent']:06d}")
        assert _number(row["version/reward"]) == pytest.approx(record["reward"])
        accuracy = (record["evaluation"] or {}).get("eval/held-out/avg_at_k")
        assert _number(row["eval/held-out/avg_at_k"]) == pytest.approx(accuracy)


def test_charts_of_divergence_have_figures_on_their_axes(link: str, page) -> None:
    page.goto(link.replace("?", "/model-metrics?"))
    page.get_by_text("logprob_abs_diff_max_micronats", exact=True).wait_for()
    page.locator(".ytick").first.wait_for()
    for title in ("logprob_abs_diff_max_micronats", "logprob_abs_diff_mean_micronats"):
        chart = page.locator('[data-testid="experiment-view-compare-runs-card"]').filter(has_text=title)
        chart.locator(".ytick").first.wait_for()
        ticks = chart.locator(".ytick").all_text_contents()
        assert len(set(ticks)) == len(ticks) > 1, ticks


@pytest.mark.parametrize(
    ("name", "written"),
    [("step_000001", "step 1"), ("evaluation_000000-held-out", "v000000 on held-out")],
)
def test_samples_are_read_in_the_run(finished: Overnight, link: str, page, name: str, written: str) -> None:
    page.goto(link.replace("?", f"/artifacts/samples/{name}.html?"))
    sheet = page.frame_locator("iframe#html")
    sheet.get_by_role("heading", name=written).wait_for()
    shown = finished.json("samples", "reference@0")
    first = next(each for each in shown if (each["step"] is None) == name.startswith("evaluation"))
    assert first["prompt"] in sheet.locator("body").inner_text()
    row = sheet.locator("table").first.locator("tr").nth(1).locator("td").all_inner_texts()
    reward = f"{first['reward']:g}"
    assert [text.strip() for text in row[:3]] == [first["response"].strip(), reward, first["verdict"]]


def test_registry_rows_name_run_and_version(finished: Overnight, link: str, page) -> None:
    page.goto(f"{link.partition('#')[0]}#/models/tiny-cpu?workflowType=machine_learning")
    page.get_by_text("newest").first.wait_for()
    row = page.get_by_role("row").filter(has_text="newest").inner_text()
    assert "reference" in row and f"v{REFERENCE_STEPS:06d}" in row


def _versions_of(run_id: str, page) -> dict[str, dict[str, str]]:
    """Name of each version of a run to its row, by the names of the columns."""
    page.locator(".ag-row").first.wait_for()
    for column in ("parent", "eval/held-out/avg_at_k"):
        page.locator(".ag-header-cell").filter(has_text=re.compile(rf"^\s*{column}\s*$")).wait_for()
    cells = [
        (cell.locator("xpath=..").get_attribute("row-id"), _column(cell), cell.inner_text())
        for cell in page.locator(".ag-cell").all()
    ]
    heads = {_column(head): head.inner_text().strip() for head in page.locator(".ag-header-cell").all()}
    rows: dict[str, dict[str, str]] = {}
    for row, column, text in cells:
        rows.setdefault(row, {})[heads[column]] = text.strip()
    return {row["Model name"].split()[-1]: row for row in rows.values() if row["Source run"] == run_id}


def _column(cell) -> str:
    return unescape(cell.get_attribute("col-id"))  # quotes in it are escaped once too often in some


def _number(text: str) -> Any:
    return None if text in ("", "-") else float(text)
