"""Nights of one name: which run a schedule works on, and what a new one begins from."""

import contextlib
from contextlib import AbstractContextManager

from configs.errors import UserError
from configs.night import NightConfig
from configs.run import RunConfig
from infra.home import Home
from infra.locks import locked
from infra.store.base import KeyExistsError
from tasks.record.best import best_version, is_better
from tasks.record.evaluations import is_complete
from tasks.record.keys import numbered_key
from tasks.record.night import Night, Origin
from tasks.record.run import Run
from tasks.record.runs import RunError, all_runs, create_run, load_run, newest_version
from tasks.record.stored import Record, create_record
from tasks.record.versions import exported_versions, read_version

_LOCK_TIMEOUT_S = 60


class Heir(Record):
    """What `<run>/heirs/<version>.json` holds: the first night that began from the version."""

    lineage: str
    night: int


def open_run(config: RunConfig, home: Home, run_id: str | None) -> Run:
    """What a schedule works on: the run of that id; without one the newest unfinished night of the same
    configuration, if only to evaluate what it ended with, else the lineage's next night.

    Runs that were started by hand, and abandoned ones, are none of its nights to go on with. RunError when
    the version to begin from has no weights.
    """
    if run_id is not None:
        return create_run(config, home, run_id)
    with _alone(config.name, home):
        nights = nights_of(config.name, home)
        for night in reversed(nights):
            if _is_asked_for(night, config) and not is_complete(night) and not night.is_abandoned:
                return night
        return _next_night(config, home, nights)


def nights_of(name: str, home: Home) -> list[Run]:
    """The runs of a lineage, in the order in which they began."""
    nights = [run for run in all_runs(home) if run.night and run.night.lineage == name]
    return sorted(nights, key=lambda run: _night(run).number)


def best_of(nights: list[Run]) -> tuple[Run, int] | None:
    """The best version of finished nights: that of the last one, unless what it began from is no worse.

    None without nights, and where all that could be it is gone.
    """
    if not nights:
        return None
    *before, last = nights
    champion = _champion_before(last, before)
    version = best_version(last)
    if version not in exported_versions(last) or (champion and not is_better(last, *champion)):
        return champion
    return last, version


def _champion_before(night: Run, before: list[Run]) -> tuple[Run, int] | None:
    """What was the lineage's best when the night began. One that began from it says so itself."""
    origin = night.origin
    if origin is None or _night(night).asked.night.begins_from != "best":
        return best_of(before)
    try:
        run = load_run(origin.run_id, night.home)
    except UserError:
        return best_of(before)
    is_there = origin.version in exported_versions(run) and not run.is_abandoned
    return (run, origin.version) if is_there else best_of(before)


def _next_night(config: RunConfig, home: Home, nights: list[Run]) -> Run:
    number = _night(nights[-1]).number + 1 if nights else 0
    origin = None
    if parent := _parent(config, nights):
        origin = _origin(*parent)
        with contextlib.suppress(KeyExistsError):  # an earlier night began from it, too
            key = numbered_key(origin.run_id, "heirs", origin.version) + ".json"
            create_record(parent[0].store, key, Heir(lineage=config.name, night=number))
    night = Night(number=number, asked=config, origin=origin)
    begun = config.model_copy(update={"seed": config.seed + number})
    return create_run(begun, home, night=night)


def _parent(config: RunConfig, nights: list[Run]) -> tuple[Run, int] | None:
    """The version to begin from; None for the configuration's model.

    Only finished nights that were not abandoned count, and only those of the same model: one who schedules
    another model wants that.
    """
    finished = [night for night in nights if night.is_finished and not night.is_abandoned]
    same = [night for night in finished if _night(night).asked.model == config.model]
    if not same or config.night.begins_from == "anew":
        return None
    if config.night.begins_from == "best":
        return best_of(same)
    return same[-1], newest_version(same[-1])


def _origin(run: Run, version: int) -> Origin:
    if version not in exported_versions(run):
        raise RunError(
            f"night.begins_from: the weights of {run.id}@{version} are gone from its store: set it to anew"
        )
    weights = read_version(run, version)
    return Origin(run_id=run.id, version=version, hash=weights.hash, format=weights.format)


def _is_asked_for(night: Run, config: RunConfig) -> bool:
    """Whether a night trains what is asked for; what nights do about each other may have changed since."""
    usual = {"night": NightConfig()}
    return _night(night).asked.model_copy(update=usual) == config.model_copy(update=usual)


def _night(run: Run) -> Night:
    assert run.night is not None
    return run.night


def _alone(name: str, home: Home) -> AbstractContextManager[None]:
    """Two nights that begin at once must not both become the next one."""
    return locked(
        home.locks / f"{name}.lineage",
        _LOCK_TIMEOUT_S,
        taken=lambda holder: RunError(
            f"process {holder} has been looking for the next night of {name} for {_LOCK_TIMEOUT_S} s: "
            "end it or wait for it"
        ),
    )
