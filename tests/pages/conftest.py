"""A real browser, for tests of what people see. They are skipped where playwright or chromium is missing."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SCREENSHOTS = Path(__file__).parents[2] / ".screenshots"
_TIMEOUT_MS = 30_000
"""For anything that a test waits for on a page: servers may be busy with a run."""

Screenshot = Callable[[str], None]


@pytest.fixture(scope="session")
def browser() -> Iterator["Browser"]:
    """Chromium, as the machine has it."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("there is no chromium on the PATH")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: "Browser", request: pytest.FixtureRequest) -> Iterator["Page"]:
    """An empty page of a browser without history; how it looked last is kept as a screenshot."""
    context = browser.new_context(viewport={"width": 1600, "height": 1000}, locale="en-GB")
    context.set_default_timeout(_TIMEOUT_MS)
    page = context.new_page()
    yield page
    page.screenshot(path=SCREENSHOTS / f"{request.node.name}.png")
    context.close()


@pytest.fixture
def screenshot(page: "Page", request: pytest.FixtureRequest) -> Screenshot:
    """Keep how the page looks now, under the test's name and one of the moment."""

    def take(moment: str) -> None:
        page.screenshot(path=SCREENSHOTS / f"{request.node.name}-{moment}.png")

    return take
