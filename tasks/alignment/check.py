"""The alignment check of a run's trainer and engines, whenever it is asked for."""

from dataclasses import replace

from tasks.alignment.layers import compare_layers
from tasks.fleet.engines import Fleet
from tasks.probe.probe import Probe
from tasks.probe.records import save_alignment
from tasks.probe.report import AlignmentReport
from tasks.publishing.publish import publish, score_all
from tasks.publishing.transports.disk import Loading
from tasks.publishing.transports.staged import read_staged
from tasks.record.run import Run
from tasks.training.recovery import ready_trainer


def check_alignment(run: Run, version: int, layers: bool = False) -> AlignmentReport:
    """Bring the trainer's version to every engine and compare them token by token; stored, aligned or not.

    With `layers` both are also compared with the exported folder, the trainer module by module. Raises
    PublishRefused when an engine does not hold the version's tensors. Engines that are not aligned serve it
    nevertheless: for a run that draws no samples.
    """
    staged, trainer = read_staged(run, version), ready_trainer(run)
    sequences = staged.probe.sequences
    staged = replace(staged, probe=Probe(sequences=sequences, logprobs=trainer.score(sequences)))
    engines = Fleet(run).start(run.weights_key(version))
    found: list[AlignmentReport] = []
    publish(engines, staged, Loading(Fleet(run)), run.config.publish, judge=found.append)
    report = found[0]
    if layers:
        scored = score_all(engines, sequences)
        compared = compare_layers(staged, trainer.hidden_states, scored, run.config.trainer.dtype)
        report = report.model_copy(update={"layers": compared})
    return save_alignment(run, report)
