"""A run in one line: how far it is, and how good."""

from statistics import fmean

from pydantic import BaseModel, ConfigDict

from tasks.record.best import best_version
from tasks.record.evaluations import HELD_OUT, find_report
from tasks.record.run import Run, State
from tasks.reporting.report import RECENT_STEPS


class RunSummary(BaseModel):
    """What a list of runs says of each; figures are None until something has them."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    run_id: str
    name: str
    """Name of its configuration."""
    state: State
    updated_at: float
    """Unix time of the newest commit, seconds; of the run's creation while there is none."""
    steps: int
    """Steps that are committed."""
    steps_wanted: int
    version: int | None
    """Newest committed weight version."""
    reward_last: float | None
    """Mean reward of the last five steps."""
    best_version: int | None
    """The version with the best avg@k on held-out problems."""
    avg_at_k: float | None
    """Of that version; None when it was not evaluated."""


def summary_of(run: Run) -> RunSummary:
    """A run's line. Reads its newest commits and its evaluations, however many steps it has."""
    steps = run.commits.steps()
    recent = [run.commits.read(step) for step in steps[-RECENT_STEPS:]]
    rewards = [commit.metrics["reward/mean"] for commit in recent if "reward/mean" in commit.metrics]
    best = best_version(run)
    evaluated = None if best is None else find_report(run, best, HELD_OUT)
    return RunSummary(
        run_id=run.id,
        name=run.config.name,
        state=run.state,
        updated_at=recent[-1].created_at if recent else run.created_at,
        steps=sum(step > 0 for step in steps),
        steps_wanted=run.config.loop.steps,
        version=recent[-1].version if recent else None,
        reward_last=fmean(rewards) if rewards else None,
        best_version=best,
        avg_at_k=evaluated.avg_at_k if evaluated else None,
    )
