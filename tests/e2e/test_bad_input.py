"""Bad input: one clear line, the right exit code, nothing left running."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from configs.loading import load_config
from infra.home import Home
from tasks.record.runs import create_run, exclusive
from tests.support.command import CONFIGS, Overnight, overnight_in, run_arguments

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


def told(overnight: Overnight, *arguments: str, exit_code: int) -> str:
    """The one line for a person that the command prints when it fails, perhaps after Prefect's own lines."""
    result = overnight(*arguments, exit_code=exit_code)
    assert "Traceback" not in result.stdout + result.stderr
    (line,) = [line for line in result.stderr.splitlines() if line.startswith(("error: ", "failed: "))]
    assert line.startswith("error: " if exit_code == 2 else "failed: ")
    return line


@pytest.mark.slow
@pytest.mark.services
def test_a_run_that_another_process_works_on(overnight: Overnight) -> None:
    run = create_run(load_config(CONFIGS / "tiny-cpu.yaml"), Home(overnight.home), "taken")
    with exclusive(run):
        line = told(overnight, "resume", "taken", exit_code=2)
    assert "run taken is being worked on by process" in line


@pytest.mark.slow
@pytest.mark.services
def test_a_prompt_that_is_too_long_and_a_store_that_was_changed(overnight: Overnight, tmp_path: Path) -> None:
    problems = tmp_path / "problems.jsonl"
    texts = (f"{number}" + "+1" * 72 for number in range(40))
    problems.write_text("".join(json.dumps({"problem": text, "answer": 1}) + "\n" for text in texts))
    settings = f"problems={{kind: jsonl, path: {problems}}}", "evaluation.at_start=false"
    line = told(overnight, "run", *run_arguments("tiny-cpu.yaml", "long", *settings), exit_code=2)
    assert "its prompt of" in line and "raise engine.context_length" in line

    (record,) = (overnight.home / "runs" / "long" / "versions").glob("*/version.json")
    record.write_text(json.dumps({**json.loads(record.read_text()), "hash": "0" * 64}))
    line = told(overnight, "ledger", "long", exit_code=2)
    assert "version 0 was staged with hash 0000" in line and "the run store was changed by hand" in line
