"""A server and a worker as `overnight up` leaves them, shared by all nights."""

import os
from collections.abc import Iterator

import pytest

from infra.home import Home
from infra.services import Services
from tests.support.command import Overnight, overnight_in
from tests.support.nights import Nights


@pytest.fixture(scope="session")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nights]:
    """The flow runs of a state folder whose server and worker run; this process uses that server, too."""
    before = dict(os.environ)
    with overnight_in(tmp_path_factory.mktemp("nights")) as overnight:
        overnight("up")
        url = address(overnight)
        Services(Home(overnight.home)).connect(url)
        yield Nights(overnight, url)
    os.environ.clear()
    os.environ.update(before)


def address(overnight: Overnight) -> str:
    """URL of the Prefect server."""
    return next(row["url"] for row in overnight.json("status")["services"] if row["name"] == "prefect")
