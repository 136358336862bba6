"""The wheel, installed as users do and not editable, in a folder with packages of the same names."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from infra.process import wait_until
from tests.support.command import ROOT, Overnight, overnight_in

pytestmark = [pytest.mark.slow, pytest.mark.services, pytest.mark.timeout(1800)]

PYTHONS = os.environ.get("OVERNIGHT_PYTHONS", sys.executable).split()
"""Interpreters to install it for; `make test-wheel` takes those of PYTHONS."""
FEW = ("--set", "loop.steps=3", "--set", "evaluation.problems=8")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, since a build leaves files in its folder."""
    source = tmp_path_factory.mktemp("source") / "overnight"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".*", "build", "*.egg-info", "__pycache__"))
    _run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", source / "dist", source)
    (built,) = (source / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module", params=PYTHONS, ids=lambda python: Path(python).name)
def installed(
    request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Overnight]:
    """The command of an environment that has the wheel, in a folder with packages that must not be read."""
    root = tmp_path_factory.mktemp("wheel")
    _run(request.param, "-m", "venv", root / "venv")
    constraints = ROOT / "constraints.txt"
    _run(root / "venv/bin/pip", "install", "--quiet", "--constraint", constraints, wheel)
    folder = root / "project"
    for name in ("tasks", "flows", "infra", "configs"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(f"raise ImportError('{name} of the working directory')")
    variables = {name: "" for name in ("PYTHONPATH", "VIRTUAL_ENV") if name in os.environ}
    with overnight_in(root / "home", **variables) as overnight:
        yield replace(overnight, command=(str(root / "venv/bin/overnight"),), folder=folder)


def test_a_preset_is_trained_by_name(installed: Overnight) -> None:
    report = installed.json("run", "tiny-cpu", "--run-id", "from-wheel", *FEW)
    assert (report["steps"], report["version"]) == (3, 3)
    assert [record["version"] for record in installed.json("ledger", "from-wheel")] == [0, 1, 2, 3]


def test_a_night_takes_place(installed: Overnight) -> None:
    installed("deploy", "tiny-cpu", "--cron", "0 0 1 1 *", *FEW)
    installed("trigger", "tiny-cpu")
    wait_until(
        lambda: _last_night(installed) in ("Completed", "Failed", "Crashed"), 240, "the night", every_s=3
    )
    assert _last_night(installed) == "Completed"


def _last_night(installed: Overnight) -> str | None:
    (deployed,) = installed.json("deployments")
    return deployed["last_state"]


def _run(*command: str | Path) -> None:
    subprocess.run(list(map(str, command)), check=True, timeout=1200)
