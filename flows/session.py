"""One sitting at the command line: servers up, a flow run in this process, links at the end."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from configs.errors import UserError
from configs.loading import override
from flows.interruption import Interruption
from infra.services import Services
from tasks.probe.report import AlignmentReport
from tasks.problems.jsonl import prompt_template, read_problems
from tasks.record.evaluation_report import EvaluationReport
from tasks.record.run import Run
from tasks.record.runs import exclusive, newest_version
from tasks.record.versions import exported_versions
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
    version = newest_version(run) if version is None else version
    if version not in exported_versions(run):
        kept = ", ".join(map(str, exported_versions(run)))
        raise UserError(f"run {run.id} has no weights of version {version}: it has those of {kept}")
    if dataset is not None:
        read_problems(dataset, prompt_template(run.config.problems), run.config.reward.build())
    evaluated = run.model_copy(update={"config": override(run.config, overrides)})
    with _session(run, console) as session:
        from flows.evaluation import evaluate_offline

        return session.work(lambda: evaluate_offline(evaluated, version, dataset and dataset.resolve()))


def align(run: Run, layers: bool, console: Console) -> AlignmentReport:
    """Compare a run's trainer and engines token by token, and by `layers` trainer and exported folder."""
    with _session(run, console) as session:
        from flows.alignment import check_alignment

        return session.work(lambda: check_alignment(run, layers))


@contextmanager
def _session(run: Run, console: Console, when_interrupted: str = "interrupted") -> Iterator[Interruption]:
    """The run for this process alone, and servers for it."""
    services = Services(run.home)
    with exclusive(run), Interruption(run, console, when_interrupted) as interruption:
        services.check()
        prefect_url = services.ensure_prefect()
        mlflow_url = services.ensure_mlflow()
        services.connect(prefect_url)
        console.print(
            f"run {run.id}\nPrefect UI {prefect_url}\nMLflow UI  {mlflow_url}\nstop both: overnight down"
        )
        from flows import log_filter

        log_filter.leave_ends_to_the_command()
        yield interruption
