"""Nights of one name, real ones: each goes on from the best before it, whatever became of the last."""

import json
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from mlflow import MlflowClient

from infra.home import Home
from infra.process import wait_until
from tasks.record.run import Run
from tasks.record.runs import all_runs, load_run
from tests.support.command import CONFIGS, Overnight, overnight_in, run_arguments, running

pytestmark = [pytest.mark.slow, pytest.mark.services, pytest.mark.timeout(900)]

SMALL = ("loop.steps=2", "evaluation.problems=16")
RUINOUS = "trainer.learning_rate=0.1"


class Lineage:
    """The nights of tiny-cpu in a state folder."""

    def __init__(self, overnight: Overnight) -> None:
        self.overnight = overnight
        self.home = Home(overnight.home)
        self._command = replace(overnight, command=running("tests.support.night"))

    def start(self, *overrides: str) -> "subprocess.Popen[str]":
        return self._command.start(str(CONFIGS / "tiny-cpu.yaml"), *SMALL, *overrides)

    def night(self, *overrides: str) -> Run:
        """A night from its beginning to its end; its run."""
        printed = self._command(str(CONFIGS / "tiny-cpu.yaml"), *SMALL, *overrides).stdout
        report = json.loads(printed.splitlines()[-1])
        run = load_run(report["run_id"], self.home)
        assert run.state == "finished"
        return run

    def killed_night(self) -> Run:
        """A night that dies after its first step; its run."""
        before = {run.id for run in all_runs(self.home)}
        process = self.start()
        try:
            wait_until(lambda: bool(self._begun(before)), timeout_s=240, what="the night's first step")
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate()
        (run,) = self._begun(before)
        assert run.state == "unfinished"
        return run

    def _begun(self, before: set[str]) -> list[Run]:
        """Runs besides those of before that have a step."""
        return [run for run in all_runs(self.home) if run.id not in before and run.commits.steps()[1:]]

    def ledger(self, run: Run) -> list[dict[str, Any]]:
        return self.overnight.json("ledger", run.id)

    def aliases(self) -> dict[str, str]:
        """Run and version of each alias of the registered model."""
        client = MlflowClient(self.home.mlflow_uri)
        told = {}
        for alias in ("best", "newest"):
            run_id, _, version = client.get_model_version_by_alias("tiny-cpu", alias).source.split("/")[-3:]
            told[alias] = f"{run_id}@{int(version)}"
        return told


@pytest.fixture(scope="module")
def lineage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lineage]:
    with overnight_in(tmp_path_factory.mktemp("home")) as overnight:
        yield Lineage(overnight)


@pytest.fixture(scope="module")
def first(lineage: Lineage) -> Run:
    """Night 0, after which `best` is one of its versions."""
    run = lineage.night()
    assert lineage.aliases()["newest"] == f"{run.id}@2"
    return run


@pytest.fixture(scope="module")
def best(lineage: Lineage, first: Run) -> str:
    return lineage.aliases()["best"]


@pytest.fixture(scope="module")
def worse(lineage: Lineage, first: Run, best: str) -> Run:
    """Night 1, which spoils what it went on from."""
    return lineage.night(RUINOUS)


def origin_hash(lineage: Lineage, run: Run, best: str) -> str:
    """Hash of the parent by the ledger of the parent's run, checked against that of version 0."""
    initial = lineage.ledger(run)[0]
    assert f"{initial['origin']['run_id']}@{initial['origin']['version']}" == best
    assert initial["origin"]["hash"] == initial["hash"]
    parent_id, _, version = best.partition("@")
    parents = {record["version"]: record["hash"] for record in lineage.overnight.json("ledger", parent_id)}
    assert parents[int(version)] == initial["hash"]
    return initial["hash"]


def test_the_second_night_begins_with_the_best_of_the_first(
    lineage: Lineage, first: Run, worse: Run, best: str
) -> None:
    parent = origin_hash(lineage, worse, best)
    assert (first.config.seed, worse.config.seed) == (0, 1)
    hashes = [{record["hash"] for record in lineage.ledger(run)[1:]} for run in (first, worse)]
    assert not hashes[0] & hashes[1]
    printed = lineage.overnight("ledger", worse.id).stdout
    assert printed.endswith(f"version 0 is {best}, hash {parent}\n")


def test_a_worse_night_does_not_move_best(lineage: Lineage, worse: Run, best: str) -> None:
    assert lineage.aliases() == {"best": best, "newest": f"{worse.id}@2"}
    scores = [lineage.ledger(worse)[version]["evaluation"]["eval/held-out/avg_at_k"] for version in (0, 2)]
    assert scores[1] < scores[0]


@pytest.fixture(scope="module")
def interrupted(lineage: Lineage, worse: Run) -> Run:
    """Night 2, killed after its first step."""
    return lineage.killed_night()


def test_an_interrupted_night_is_continued_beside_a_run_of_the_same_configuration(
    lineage: Lineage, interrupted: Run, best: str
) -> None:
    committed = lineage.ledger(interrupted)[:2]
    origin_hash(lineage, interrupted, best)
    settings = run_arguments("tiny-cpu.yaml", "by-hand", *SMALL)
    by_hand = lineage.overnight.start("run", *settings)
    try:
        wait_until(lambda: "by-hand" in {run.id for run in all_runs(lineage.home)}, 60, what="the run")
        assert lineage.night() == interrupted
        assert by_hand.wait(300) == 0
    finally:
        by_hand.kill()
        by_hand.communicate()
    assert [record["hash"] for record in lineage.ledger(interrupted)[:2]] == [r["hash"] for r in committed]
    assert interrupted.config.seed == 2
    manual = lineage.ledger(load_run("by-hand", lineage.home))
    assert manual[0]["origin"] is None


def test_an_abandoned_night_is_not_continued(lineage: Lineage, interrupted: Run) -> None:
    given_up = lineage.killed_night()
    assert given_up.id != interrupted.id
    lineage.overnight("abandon", given_up.id)
    assert load_run(given_up.id, lineage.home).state == "abandoned"
    refused = lineage.overnight("resume", given_up.id, exit_code=2).stderr
    assert refused == f"error: run {given_up.id} was abandoned: start a new run\n"
    client = MlflowClient(lineage.home.mlflow_uri)
    (told,) = client.search_runs(["1"], f"tags.`overnight.run_id` = '{given_up.id}'")
    assert told.info.status == "KILLED"
    after = lineage.night()
    assert (after.id != given_up.id, after.config.seed) == (True, 4)
