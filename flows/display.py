"""What a person sees while a run goes on: one line a step, and a live status on a terminal."""

import threading
import time
from collections import deque
from math import nan
from statistics import fmean
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.table import Table

from tasks.record.commits import StepCommit
from tasks.record.run import Run
from tasks.reporting.report import RunReport

_RECENT = 10
"""Steps that tell the pace."""


class RunDisplay:
    """Follows a run's commits from a thread of its own, so that the flow knows nothing of it."""

    def __init__(self, run: Run, console: Console) -> None:
        self._run = run
        self._console = console
        steps = run.commits.steps()
        self._shown = max(steps, default=-1)
        self._recent = deque(map(run.commits.read, steps[-_RECENT:]), maxlen=_RECENT)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> "RunDisplay":
        self._thread.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Show what is left to show, and take the live status off the terminal."""
        self._stop.set()
        self._thread.join(timeout=10)

    def _follow(self) -> None:
        if not self._console.is_terminal:
            while not self._stop.wait(0.5):
                self._print_new_steps()
            self._print_new_steps()
            return
        with Live(console=self._console, refresh_per_second=4, transient=True) as live:
            while not self._stop.wait(0.5):
                self._print_new_steps()
                live.update(self._status())
            self._print_new_steps()

    def _print_new_steps(self) -> None:
        for step in self._run.commits.steps():
            if step > self._shown:
                commit = self._run.commits.read(step)
                width = self._console.width if self._console.is_terminal else None
                self._console.print(step_line(commit, self._run.config.loop.steps, width))
                self._recent.append(commit)
                self._shown = step

    def _status(self) -> Table:
        commits = [commit for commit in self._recent if commit.step > 0]
        table = Table.grid(padding=(0, 2))
        if not commits:
            table.add_row("starting: engines, trainer and version 0")
            return table
        left = self._run.config.loop.steps - commits[-1].step
        pace = fmean(commit.metrics["time/step"] for commit in commits)
        idle = time.time() - commits[-1].created_at
        table.add_row(f"{left} steps left", f"ETA {left * pace:.0f} s", f"last step {idle:.0f} s ago")
        return table


def step_line(commit: StepCommit, steps: int, width: int | None = None) -> str:
    """A committed step in one line; where `width` columns have no room for all of it, of its main parts."""
    metric = commit.metrics.get
    if commit.step == 0:
        probe = commit.publish.probe_abs_diff_max
        return f"step 0/{steps}  version {commit.version} published, probe diff {probe:.1g}"
    line = f"step {commit.step}/{steps}  version {commit.version}"
    parts = (
        f"  reward {metric('reward/mean', nan):.3f}",
        f"  divergence max {metric('divergence/logprob_abs_diff_max', nan):.1g}",
        f"  generate {metric('time/generate', 0):.2f} train {metric('time/train', 0):.2f}"
        f" publish {metric('time/publish', 0):.2f} overhead {metric('time/overhead', 0):.2f} s",
    )
    times = f"  {metric('time/step', nan):.2f} s"
    full = line + "".join(parts)
    if width is None or len(full) <= width:
        return full
    for part in (*parts[:-1], times):
        if len(line + part) <= width:
            line += part
    return line


def print_report(report: RunReport, console: Console) -> None:
    """The report as a table, with the run's own remark below it."""
    table = Table(show_header=False, title=report.run_id)
    for label, value in report.figures():
        table.add_row(label, value)
    console.print(table)
    if report.description:
        console.print(report.description)
