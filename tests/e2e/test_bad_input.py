"""Bad input: one clear line, exit code 2, nothing left running."""

import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.command import CONFIGS, Overnight, overnight_in

TINY = str(CONFIGS / "tiny-cpu.yaml")


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Overnight]:
    """A state folder in which nothing was started."""
    with overnight_in(tmp_path_factory.mktemp("home")) as overnight:
        yield overnight


def refused(idle: Overnight, *arguments: str) -> str:
    """The one line that the command prints when it refuses its arguments."""
    result = idle(*arguments, exit_code=2, timeout_s=120)
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("error: ")
    assert not _left_running(idle)
    return line


def _left_running(idle: Overnight) -> list[psutil.Process]:
    mine = str(idle.home)
    return [
        process
        for process in psutil.process_iter(["cmdline", "environ"])
        if (process.info["environ"] or {}).get("OVERNIGHT_HOME") == mine
    ]


def test_unknown_key(idle: Overnight) -> None:
    line = refused(idle, "run", TINY, "--set", "rollout.promts_per_step=8")
    assert "rollout.promts_per_step" in line and "unknown key" in line


def test_missing_model_folder(idle: Overnight) -> None:
    assert "model.path" in refused(idle, "run", TINY, "--set", "model.path=/no/such/folder")


def test_answer_file_with_a_broken_line(idle: Overnight, tmp_path: Path) -> None:
    broken = tmp_path / "problems.jsonl"
    broken.write_text('{"problem": "1+1", "answer": "2"}\n{"problem": "2+2", "answer"\n')
    line = refused(idle, "run", TINY, "--set", f"problems={{kind: jsonl, path: {broken}}}")
    assert f"{broken}:2" in line


def test_taken_engine_port(idle: Overnight) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"engine.port {port}" in refused(idle, "run", TINY, "--set", f"engine.port={port}")


def test_taken_server_port(idle: Overnight) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", int(idle.environment["OVERNIGHT_PREFECT_PORT"])))
        taken.listen()
        assert "OVERNIGHT_PREFECT_PORT" in refused(idle, "run", TINY)


def test_unwritable_store(idle: Overnight, tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("not a folder")
    assert "store.path" in refused(idle, "run", TINY, "--set", f"store.path={blocker}/runs")


def test_unknown_run(idle: Overnight) -> None:
    assert "no run nowhere" in refused(idle, "resume", "nowhere")
