"""What the flow run of a sitting shows of its run in Prefect: a line a step, links, progress and tables."""

import json
from collections import deque
from uuid import UUID

import httpx
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactCreate, ArtifactUpdate
from prefect.client.schemas.objects import FlowRun
from prefect.context import FlowRunContext
from prefect.exceptions import PrefectException
from prefect.logging.loggers import flow_run_logger
from prefect.settings import PREFECT_UI_URL

from tasks.record.commits import StepCommit
from tasks.record.evaluation_report import EvaluationReport
from tasks.record.evaluations import read_reports
from tasks.record.run import Run
from tasks.reporting.rows import evaluation_rows, figure, step_rows
from tasks.reporting.tracking import run_url

_ROWS = 100
"""Newest steps and evaluations that a table shows."""


class Board:
    """Belongs to the outermost flow run, whichever of its flow runs a step is made in.

    Artifacts are made once a sitting and then changed, a call of some 20 ms each. A board that cannot be
    written is no reason to stop: it says so in the log.
    """

    def __init__(self, run: Run, flow_run: FlowRun) -> None:
        self._run = run
        self._flow_run = flow_run
        self._log = flow_run_logger(flow_run)
        self._client = get_client(sync_client=True)
        self._artifacts: dict[str, UUID] = {}
        newest = run.commits.steps()[-_ROWS:]
        self._commits = deque(map(run.commits.read, newest), maxlen=_ROWS)
        self._mlflow = run_url(run)
        self._log.info("run %s in MLflow: %s", run.id, self._mlflow or "not shown")
        self._show_steps()
        self._log.info("steps of run %s: %s", run.id, self._page_of("steps") or "not shown")

    def add_step(self, commit: StepCommit) -> None:
        """A line in the log, progress and the table of steps."""
        metrics = commit.metrics.get
        self._log.info(
            "step %d of %d: version %d, reward %s, divergence %s, %s s",
            commit.step,
            self._run.config.loop.steps,
            commit.version,
            figure(metrics("reward/mean")),
            figure(metrics("divergence/logprob_abs_diff_max"), ".2g"),
            figure(metrics("time/step"), ".2f"),
        )
        self._commits.append(commit)
        self._show_steps()

    def add_evaluation(self, report: EvaluationReport) -> None:
        """A line in the log, and the table of evaluations."""
        self._log.info(
            "version %d on %s: avg@%d %.3f, greedy %.3f",
            report.version,
            report.dataset,
            report.k,
            report.avg_at_k,
            report.greedy,
        )
        rows = evaluation_rows(read_reports(self._run)[-_ROWS:])
        self._put("evaluations", "table", json.dumps(rows))

    def _show_steps(self) -> None:
        done = self._commits[-1].step if self._commits else 0
        self._put("progress", "progress", 100 * done / self._run.config.loop.steps)
        self._put("steps", "table", json.dumps(step_rows(self._commits)))

    def _put(self, name: str, kind: str, data: str | float) -> None:
        try:
            if name in self._artifacts:
                self._client.update_artifact(self._artifacts[name], ArtifactUpdate(data=data))
            else:
                self._artifacts[name] = self._client.create_artifact(self._artifact(name, kind, data)).id
        except (httpx.HTTPError, PrefectException) as error:
            self._log.warning("%s of run %s not shown: %s", name, self._run.id, error)

    def _artifact(self, name: str, kind: str, data: str | float) -> ArtifactCreate:
        return ArtifactCreate(
            key=f"{self._run.config.name}-{name}",
            type=kind,
            data=data,
            description=f"Run {self._run.id}" + (f", [in MLflow]({self._mlflow})" if self._mlflow else ""),
            flow_run_id=self._flow_run.id,
        )

    def _page_of(self, name: str) -> str | None:
        shown = PREFECT_UI_URL.value() and name in self._artifacts
        return f"{PREFECT_UI_URL.value()}/artifacts/artifact/{self._artifacts[name]}" if shown else None


_boards: dict[str, Board] = {}
"""By run id; those of this process."""


def put_up(run: Run) -> None:
    """Give the flow run that this is called in a board of the run."""
    context = FlowRunContext.get()
    if context is not None and context.flow_run is not None:
        _boards[run.id] = Board(run, context.flow_run)


def board_of(run: Run) -> Board | None:
    """The board that was put up for a run; None where nothing was, as in an evaluation by itself."""
    return _boards.get(run.id)
