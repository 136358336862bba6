"""A run without any service, and commits to put into it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from configs.evaluation import EvaluationConfig
from configs.loading import parse_config
from configs.run import RunConfig
from infra.home import Home
from tasks.record.commits import PublishReport, StepCommit
from tasks.record.evaluation_report import EvaluationReport, ProblemResult
from tasks.record.interval import Interval
from tasks.record.run import Run
from tasks.record.samples import BatchRef
from tasks.record.weight_version import WeightVersion
from tasks.training.group import TrainerGroup
from tests.support.engines import TINY_MODEL
from tests.support.fakes import FakeTrainers
from tests.support.versions import credit_of


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run of three steps whose store and MLflow live in a folder of the test's own."""
    config = parse_config(
        {
            "name": "unit",
            "model": {"kind": "folder", "path": "model"},
            "problems": {"kind": "arithmetic"},
            "loop": {"steps": 3},
        },
        folder=tmp_path,
    )
    return Run(id="unit-1", config=config, home=Home(tmp_path / "home"))


@pytest.fixture
def modelled_run(run: Run, tmp_path: Path) -> Run:
    """The same run with the tiny model in its place."""
    (tmp_path / "model").symlink_to(TINY_MODEL)
    return run


@pytest.fixture
def revised() -> Callable[..., Run]:
    """Builds a run with fields of its config's sections replaced: `revised(run, publish={...})`."""

    def revise(run: Run, **sections: dict[str, Any]) -> Run:
        document = run.config.model_dump(mode="json")
        for section, fields in sections.items():
            document[section].update(fields)
        return Run(id=run.id, config=RunConfig.model_validate(document), home=run.home)

    return revise


@pytest.fixture
def trainers(monkeypatch: pytest.MonkeyPatch) -> FakeTrainers:
    """Trainers of one number, in place of the Ray actors."""
    fakes = FakeTrainers()
    monkeypatch.setattr(TrainerGroup, "start", fakes.start)
    monkeypatch.setattr(TrainerGroup, "connect", fakes.connect)
    return fakes


@pytest.fixture
def make_commit() -> Callable[..., StepCommit]:
    """Builds the commit of a step whose version is its number; keyword arguments replace fields.

    Those of its weights go by `version`, `parent`, `hash` and `format`. The version before it generated its
    batch of 64 samples, with reward 0.40 and a hundredth for each step.
    """

    def make(step: int, **changes: Any) -> StepCommit:
        weights = WeightVersion(
            number=changes.pop("version", step),
            parent=changes.pop("parent", step - 1 if step else None),
            step=step,
            hash=changes.pop("hash", f"{step:064x}"),
            bytes=1_500_000,
            format=changes.pop("format", "float32"),
        )
        end = 1_800_000_000.0 + 4.5 * step
        initial = {"publish/probe_abs_diff_max": 1e-6}
        trained = {
            **initial,
            "reward/mean": (40 + step) / 100,
            "divergence/logprob_abs_diff_mean": 1e-6 * step,
            "divergence/logprob_abs_diff_max": 1e-5 * step,
            "time/generate": 1.0,
            "time/train": 0.5,
        }
        commit = StepCommit(
            weights=weights,
            batch=BatchRef(step, f"unit-1/steps/{step:06d}/rollouts.parquet", "0" * 64) if step else None,
            cursor=32 * step,
            seed=0,
            checkpoint=f"unit-1/checkpoints/{step:06d}",
            publish=PublishReport(
                transport="disk",
                transfer_seconds=0.5,
                interval=Interval(end - 0.75, end - 0.125),
                sent_bytes=1_500_000,
                gb_per_second=0.003,
                engine_hashes={"engine-0": weights.hash},
                probe_abs_diff_max=1e-6,
            ),
            credits=(credit_of(weights.parent, step),) if weights.parent is not None else (),
            stages={"publish": Interval(end - 0.75, end - 0.125)},
            metrics=trained if step else initial,
            created_at=end,
        )
        return commit.model_copy(update=changes)

    return make


@pytest.fixture
def make_report() -> Callable[..., EvaluationReport]:
    """Builds an evaluation report of two problems; keyword arguments replace fields."""

    def make(version: int, dataset: str, **changes: object) -> EvaluationReport:
        problem = ProblemResult(
            id="p0",
            answer="4",
            greedy_answer="4",
            greedy_correct=True,
            sampled_answers=("4", None),
            correct=1,
        )
        report = EvaluationReport(
            dataset=dataset,
            version=version,
            n=2,
            k=2,
            greedy=0.5,
            greedy_by_family={},
            avg_at_k=0.5,
            ci_low=0.25,
            ci_high=0.75,
            pass_at_k=1.0,
            maj_at_k=0.5,
            truncated_fraction=0.0,
            settings=EvaluationConfig(),
            too_long=0,
            ungraded=0,
            problems=(problem, problem.model_copy(update={"id": "p1"})),
        )
        return report.model_copy(update=changes)

    return make
