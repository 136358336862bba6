"""The command by itself: its help, its version, its refusals."""

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli import app
from tests.unit.flows.command.test_documents import commands

ROOT = Path(__file__).parents[4]
RUNNER = CliRunner(env={"COLUMNS": "80", "TERM": "dumb"})


def test_version() -> None:
    assert RUNNER.invoke(app, ["--version"]).output == f"overnight {version('overnight')}\n"


@pytest.mark.parametrize("name", ["", *commands()])
def test_help_fits_80_columns(name: str) -> None:
    shown = RUNNER.invoke(app, [*([name] if name else []), "-h"])
    assert shown.exit_code == 0 and "--help" in shown.output
    assert max(map(len, shown.output.splitlines())) <= 80
    assert "…" not in shown.output


def test_the_exit_codes_of_the_help_are_those_of_the_page() -> None:
    told = re.findall(r"\b(\d+) ", RUNNER.invoke(app, ["-h"]).output.partition("Exit codes:")[2])
    table = re.findall(r"^\| (\d+) \|", (ROOT / "docs" / "command.md").read_text(), re.MULTILINE)
    assert told == table == ["0", "1", "2", "129", "130", "143"]


@pytest.mark.parametrize("name", ["tasks", "infra", "configs"])
def test_a_package_that_hides_ours_is_told_in_a_line(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").touch()
    ran = subprocess.run(
        [sys.executable, "-P", "-m", "flows.cli", "presets"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    (line,) = ran.stderr.splitlines()
    assert ran.returncode == 2
    assert line.startswith(f"error: {tmp_path / name} hides Overnight's own package {name}: take {tmp_path}")
