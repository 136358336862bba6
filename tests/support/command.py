"""Driving the `overnight` command as a user does: as a process, in a state folder of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from infra.process import free_port

REFERENCE_STEPS = 9
"""Steps of the undisturbed run that tests share."""
ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "configs"


def running(module: str) -> tuple[str, ...]:
    """Command line of a module of this environment."""
    return (sys.executable, "-m", module)


@dataclass(frozen=True)
class Overnight:
    """The command, bound to a state folder and to free ports for its servers."""

    home: Path
    environment: dict[str, str]
    command: tuple[str, ...] = running("flows.cli")
    folder: Path | None = None
    """Working directory; that of the tests when None."""

    def connected(self, environment: dict[str, str]) -> "Overnight":
        """The command with its actors on a node of tests/support/elsewhere.py."""
        there = {**self.environment, **environment}
        return replace(self, environment=there, command=running("tests.support.elsewhere"))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start the command and return at once."""
        return subprocess.Popen(
            [*self.command, *arguments],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(
        self, *arguments: str, exit_code: int = 0, timeout_s: float = 400
    ) -> subprocess.CompletedProcess[str]:
        """Run the command to its end and check its exit code."""
        process = self.start(*arguments)
        try:
            out, err = process.communicate(timeout=timeout_s)
        finally:
            process.kill()
        assert process.returncode == exit_code, f"exit {process.returncode}\n{out}\n{err}"
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def json(self, *arguments: str) -> Any:
        """What the command prints with --json."""
        return json.loads(self(*arguments, "--json").stdout)

    def run_config(self, preset: str, run_id: str, *overrides: str) -> Any:
        """`overnight run` on a preset; the report."""
        return self.json("run", *run_arguments(preset, run_id, *overrides))


def run_arguments(preset: str, run_id: str, *overrides: str) -> list[str]:
    """Arguments of `overnight run` for a preset with overrides."""
    sets = [argument for override in overrides for argument in ("--set", override)]
    return [str(CONFIGS / preset), "--run-id", run_id, *sets]


def forget_users_servers(environment: MutableMapping[str, str]) -> None:
    """Take out what names Prefect and MLflow servers of whoever runs the tests, or of an earlier test."""
    for name in [name for name in environment if name.startswith(("PREFECT_", "MLFLOW_TRACKING_"))]:
        del environment[name]
    environment["PREFECT_PROFILE"] = "ephemeral"  # the one that names no server


@contextmanager
def overnight_in(home: Path, **variables: str) -> Iterator[Overnight]:
    """The command in a state folder, with further variables; its servers are stopped at the end."""
    inherited = dict(os.environ)
    forget_users_servers(inherited)
    environment = {
        **inherited,
        "OVERNIGHT_HOME": str(home),
        "OVERNIGHT_PREFECT_PORT": str(free_port()),
        "OVERNIGHT_MLFLOW_PORT": str(free_port()),
        "OMP_NUM_THREADS": "1",
        **variables,
    }
    overnight = Overnight(home, environment)
    try:
        yield overnight
    finally:
        overnight("down", "--force")
