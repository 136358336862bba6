"""Tables of steps and evaluations for people: a row each, with headings and rounded figures."""

from collections.abc import Iterable

from tasks.record.commits import StepCommit
from tasks.record.evaluation_report import EvaluationReport

Row = dict[str, str | int]


def step_rows(commits: Iterable[StepCommit]) -> list[Row]:
    """A row for each committed step."""
    return [
        {
            "step": commit.step,
            "version": commit.version,
            "hash": commit.weights.hash[:16],
            "reward": figure(commit.metrics.get("reward/mean")),
            "max divergence, nats": figure(commit.metrics.get("divergence/logprob_abs_diff_max"), ".2g"),
            "seconds": figure(commit.metrics.get("time/step"), ".2f"),
            "overhead, s": figure(commit.metrics.get("time/overhead"), ".2f"),
        }
        for commit in commits
    ]


def evaluation_rows(reports: Iterable[EvaluationReport]) -> list[Row]:
    """A row for each evaluation of a version on a data set."""
    return [
        {
            "version": report.version,
            "data set": report.dataset,
            "problems": report.n,
            f"avg@{report.k}": figure(report.avg_at_k),
            "95 % interval": f"{figure(report.ci_low)} to {figure(report.ci_high)}",
            "greedy": figure(report.greedy),
            f"pass@{report.k}": figure(report.pass_at_k),
            f"maj@{report.k}": figure(report.maj_at_k),
        }
        for report in reports
    ]


def figure(value: float | None, spec: str = ".3f") -> str:
    """A figure as text; Markdown would take a dash for a list."""
    return "n/a" if value is None else format(value, spec)
