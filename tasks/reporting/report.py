"""What a run achieved, read from its commits and evaluations."""

from statistics import fmean

from pydantic import BaseModel, ConfigDict

from tasks.record.best import best_version
from tasks.record.commits import StepCommit
from tasks.record.evaluations import HELD_OUT, metrics_by_version
from tasks.record.run import Run
from tasks.reporting.ledger import VersionRecord, read_ledger
from tasks.reporting.markdown import plain, table
from tasks.reporting.rows import figure

RECENT_STEPS = 5
"""The last steps, whose mean reward is told: one step's is noisy."""


class RunReport(BaseModel):
    """A run in figures. Rewards are means over a step's samples; accuracies are on held-out problems."""

    model_config = ConfigDict(frozen=True)
    run_id: str
    description: str
    steps: int
    """Steps that are committed."""
    steps_wanted: int
    version: int | None
    """Newest committed weight version."""
    hash: str | None
    """Its content hash."""
    best: VersionRecord | None
    """The ledger's line of the best version."""
    reward_first: float | None
    """Reward of step 1."""
    reward_last: float | None
    """Mean reward of the last five steps."""
    logprob_abs_diff_max: float | None
    """Largest |trainer - rollout| log-probability of any token of any step, nats."""
    step_seconds: float | None
    """Mean seconds a step."""
    overhead_seconds: float | None
    """Mean seconds a step in which no stage was at work."""
    evaluations: dict[int, dict[str, float]]
    """Weight version to its evaluation metrics, for the versions that were evaluated."""

    def markdown(self) -> str:
        """The report as a page for Prefect's UI."""
        return f"# {plain(self.run_id)}\n\n{plain(self.description)}\n\n{table(self.figures())}\n"

    def figures(self) -> list[tuple[str, str]]:
        """Label and formatted value of everything worth reading."""
        figures = [
            ("steps", f"{self.steps} of {self.steps_wanted}"),
            ("newest weight version", f"{self.version} ({(self.hash or '-')[:16]})"),
            ("best weight version", self._best()),
            ("reward, step 1 -> last five", f"{figure(self.reward_first)} -> {figure(self.reward_last)}"),
            ("max |trainer - rollout| logprob", figure(self.logprob_abs_diff_max, ".2g")),
            ("seconds a step (overhead)", f"{figure(self.step_seconds)} ({figure(self.overhead_seconds)})"),
        ]
        for name in sorted({name for metrics in self.evaluations.values() for name in metrics}):
            by_version = [
                (v, metrics[name]) for v, metrics in sorted(self.evaluations.items()) if name in metrics
            ]
            figures.append((name, " -> ".join(f"{value:.3f} (v{v})" for v, value in by_version)))
        return figures

    def _best(self) -> str:
        if self.best is None:
            return "-"
        accuracy = (self.best.evaluation or {}).get(f"eval/{HELD_OUT}/avg_at_k")
        return f"{self.best.version} ({_evaluated(accuracy)})"


def _evaluated(accuracy: float | None) -> str:
    return "not evaluated" if accuracy is None else f"avg@k {accuracy:.3f}"


def report_of(run: Run) -> RunReport:
    """The report of a run as it stands; every figure is None while nothing is committed."""
    commits = run.commits.all()
    steps = [commit for commit in commits if commit.step > 0]
    newest, best = commits[-1] if commits else None, best_version(run)
    return RunReport(
        run_id=run.id,
        description=run.config.description,
        steps=len(steps),
        steps_wanted=run.config.loop.steps,
        version=newest.version if newest else None,
        hash=newest.weights.hash if newest else None,
        best=next((record for record in read_ledger(run) if record.version == best), None),
        reward_first=_mean(steps[:1], "reward/mean"),
        reward_last=_mean(steps[-RECENT_STEPS:], "reward/mean"),
        logprob_abs_diff_max=max(_values(steps, "divergence/logprob_abs_diff_max"), default=None),
        step_seconds=_mean(steps, "time/step"),
        overhead_seconds=_mean(steps, "time/overhead"),
        evaluations=metrics_by_version(run),
    )


def _mean(commits: list[StepCommit], metric: str) -> float | None:
    values = _values(commits, metric)
    return fmean(values) if values else None


def _values(commits: list[StepCommit], metric: str) -> list[float]:
    """The metric of the steps that have it: a step without a graded sample has no reward."""
    return [commit.metrics[metric] for commit in commits if metric in commit.metrics]
