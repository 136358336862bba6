"""The model that a run begins with, put into its store."""

from infra.store.base import KeyMissingError
from tasks.model.stored import model_key, store_model, take_folder
from tasks.publishing.export import export_version
from tasks.record.night import Origin
from tasks.record.run import Run
from tasks.record.runs import load_run

_EXACT = "float32"
"""Format in which the weights that quantised ones stand for are read without loss."""


def beginning_model(run: Run) -> str:
    """Key of the run's model: the version that its night goes on from, else this machine's `config.model`.

    A version is read from its run's store, each tensor checked against its manifest. One in a quantised
    format gives the weights that its engines computed with. ExportError when it cannot be had so, RunError
    when its run is gone.
    """
    try:
        return model_key(run)
    except KeyMissingError:
        return _inherit(run, run.origin) if run.origin else store_model(run)


def _inherit(run: Run, origin: Origin) -> str:
    folder = run.store.scratch()
    format_name = _EXACT if origin.is_quantised else None
    export_version(load_run(origin.run_id, run.home), origin.version, folder, format_name)
    return take_folder(run, folder)
