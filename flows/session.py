"""One sitting at the command line: servers up, a flow run in this process, links at the end."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from configs.loading import override
from flows.interruption import Interruption
from infra.services import Services
from tasks.evaluation.request import check_request
from tasks.probe.report import AlignmentReport
from tasks.record.evaluation_report import EvaluationReport
from tasks.record.run import Run
from tasks.record.runs import exclusive
from tasks.reporting.report import RunReport


def train(run: Run, console: Console) -> RunReport:
    """Work on a run until it has its steps, showing its progress; its report.

    Leaves the Prefect and MLflow servers up.
    """
    with _session(run, console, f"interrupted: continue with `overnight resume {run.id}`") as session:
        from flows.display import RunDisplay
        from flows.nightly import nightly_rl
        from flows.outage import outlast

        with RunDisplay(run, console) as display:
            session.clear_terminal = display.close
            return outlast(run, console, lambda: session.work(lambda: nightly_rl(run.config, run.id)))


def evaluate(
    run: Run, version: int | None, dataset: Path | None, overrides: list[str], console: Console
) -> EvaluationReport:
    """Evaluate a version of a run, its newest when None, on its held-out problems or a JSONL file."""
    version = check_request(run, version, dataset)
    evaluated = run.model_copy(update={"config": override(run.config, overrides)})
    with _session(run, console) as session:
        from flows.evaluation import evaluate_offline

        return session.work(lambda: evaluate_offline(evaluated, version, dataset and dataset.resolve()))


def align(run: Run, layers: bool, console: Console) -> AlignmentReport:
    """Compare a run's trainer and engines token by token, and by `layers` trainer and exported folder."""
    with _session(run, console, shown_in_mlflow=False) as session:
        from flows.alignment import check_alignment

        return session.work(lambda: check_alignment(run, layers))


@contextmanager
def _session(
    run: Run, console: Console, when_interrupted: str = "interrupted", shown_in_mlflow: bool = True
) -> Iterator[Interruption]:
    """The run for this process alone, and servers for it."""
    services = Services(run.home)
    with exclusive(run), Interruption(run, console, when_interrupted) as interruption:
        services.check()
        prefect_url = services.ensure_prefect()
        mlflow_url = services.ensure_mlflow()
        services.connect(prefect_url)
        if shown_in_mlflow:
            from tasks.reporting.tracking import run_url

            interruption.is_recorded = True
            mlflow_url = interruption.work(lambda: run_url(run)) or mlflow_url
        console.print(f"run {run.id}\nPrefect UI {prefect_url}\nMLflow UI  {mlflow_url}")
        if own := services.own():
            console.print(f"stop {' and '.join(own)}: overnight down")
        from flows import log_filter

        log_filter.leave_ends_to_the_command()
        yield interruption
