"""Which weights a run keeps."""

from tasks.record.best import aliases_of, best_version, inherited_versions
from tasks.record.run import Run


def prune_weights(run: Run, current: int) -> None:
    """Remove exported folders beyond publish.keep_versions.

    Version 0, the current one, the best one, those that an alias of MLflow's registry names and those that
    a later night began from stay.
    """
    keep = run.config.publish.keep_versions
    if keep is None:
        return
    kept = {0, current, best_version(run), *aliases_of(run).values(), *inherited_versions(run)}
    for number in run.numbers("weights")[:-keep]:
        if number not in kept:
            run.store.remove(run.weights_key(number))
