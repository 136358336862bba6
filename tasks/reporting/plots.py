"""Figures of a run, drawn from its commits."""

from matplotlib.figure import Figure

from tasks.record.commits import StepCommit

_PHASES = ("time/generate", "time/grade", "time/train", "time/stage", "time/publish", "time/overhead")


def plots(commits: list[StepCommit]) -> dict[str, Figure]:
    """Name to figure: reward, divergence and phase times, each against the weight version."""
    return {
        "reward": _lines(commits, ("reward/mean", "reward/pass_rate"), "reward"),
        "divergence": _lines(
            commits,
            (
                "divergence/logprob_abs_diff_mean",
                "divergence/logprob_abs_diff_max",
                "publish/probe_abs_diff_max",
            ),
            "|trainer - rollout| log-probability (nats)",
            log=True,
        ),
        "phase-times": _lines(commits, _PHASES, "seconds a step"),
    }


def _lines(commits: list[StepCommit], metrics: tuple[str, ...], label: str, log: bool = False) -> Figure:
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot(xlabel="weight version", ylabel=label)
    if log:
        axes.set_yscale("log", nonpositive="mask")
    for name in metrics:
        points = [(commit.version, commit.metrics[name]) for commit in commits if name in commit.metrics]
        if points:
            axes.plot(*zip(*points, strict=True), marker=".", label=name)
    if axes.lines:
        axes.legend()
    axes.grid(alpha=0.3)
    return figure
