"""Creating runs, finding them again, and keeping two processes off the same one."""

import contextlib
import logging
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from configs.errors import UserError
from configs.loading import override
from configs.run import RunConfig
from configs.store import StoreConfig
from configs.training import TrainerConfig
from infra.home import Home
from infra.locks import locked
from infra.store import open_store
from infra.store.base import KeyExistsError, KeyMissingError, Store
from infra.store.local import LocalStore
from tasks.record.keys import run_key
from tasks.record.night import Night
from tasks.record.run import MODELS, Run
from tasks.record.stored import Document, Record, create_record, read_record, replace_record

log = logging.getLogger(__name__)

_STORE: TypeAdapter[StoreConfig] = TypeAdapter(StoreConfig)
_REVISABLE = {"engine", "evaluation", "gates", "loop", "night", "publish", "trainer"}
"""Sections that do not say what is trained on what."""
_PROBE_S = 1
"""Longer than anybody who asks for a run's state is in the way of its lock."""


_held: set[Path] = set()
"""Locks of runs that this process has."""


class RunError(UserError):
    """The run asked for cannot be used; the message is one line."""


class RunBusy(RunError):
    """Another process works on the run."""


class RunDocument(Record):
    """What `<run>/run.json` holds."""

    schema_number = 2
    config: RunConfig
    night: Night | None = None
    """The run's place in a lineage; None for a run that was started by hand, or by a release without them."""

    @classmethod
    def upgraded(cls, document: Document) -> Document:
        """Schema 1 is the configuration alone, without the kinds that had no alternative."""
        return {"config": document}


def create_run(config: RunConfig, home: Home, run_id: str | None = None, night: Night | None = None) -> Run:
    """A new run, or the one of that id when its configuration is the same; RunError when it is another."""
    run = Run(id=run_id or _fresh_id(config.name, home), config=config, home=home, night=night)
    if not run.id.replace("-", "").replace("_", "").replace(".", "").isalnum() or run.id[0] in ".-":
        raise RunError(f"run id {run.id!r}: use letters, digits, dashes, dots and underscores")
    if run.id == MODELS:
        raise RunError(f"run id {run.id}: the store keeps models under that name: choose another --run-id")
    if run.id in _ids(home) and _store_of(run.id, home) != config.store:
        raise RunError(f"run {run.id} is kept in another store: choose another --run-id")
    stored = RunDocument(config=config, night=night)
    try:
        create_record(run.store, run.record_key("run.json"), stored)
    except KeyExistsError:
        stored = _stored(run.store, run.id)
    with contextlib.suppress(KeyExistsError):  # a run that is known here already
        LocalStore(home.registry).create(f"{run.id}.json", config.store.model_dump_json().encode())
    if stored.config != config:
        raise RunError(
            f"run {run.id} exists with another configuration: choose another --run-id, "
            f"or continue it with `overnight resume {run.id}`"
        )
    found = run.model_copy(update={"night": stored.night})
    require_not_abandoned(found)
    return found


def require_not_abandoned(run: Run) -> None:
    """RunError for a run that was given up."""
    if run.is_abandoned:
        raise RunError(f"run {run.id} was abandoned: start a new run")


@contextmanager
def passing_run(config: RunConfig, home: Home) -> Iterator[Run]:
    """A run that no list shows and no schedule continues; of what it stores only its records stay."""
    run = Run(id=_fresh_id(f"{config.name}-check", home), config=config, home=home)
    try:
        yield run
    finally:
        run.store.remove(run.record_key("weights"))


def load_run(run_id: str, home: Home) -> Run:
    """A run that was created before; RunError when there is none of that id, or it cannot be read."""
    if run_id not in _ids(home):
        known = ", ".join(_ids(home)) or "none"
        raise RunError(f"no run {run_id} under {home.root}: known runs are {known}")
    stored = _stored(open_store(_store_of(run_id, home), home), run_id)
    return Run(id=run_id, config=stored.config, home=home, night=stored.night)


def newest_version(run: Run) -> int:
    """The newest committed weight version; RunError when there is none yet."""
    newest = run.commits.newest()
    if newest is None:
        raise RunError(f"run {run.id} has no weight version yet: `overnight resume {run.id}` makes them")
    return newest.version


def revise_run(run: Run, overrides: list[str]) -> Run:
    """The run with `a.b=c` overrides for the steps to come, also in its store.

    RunError for what says which run it is, such as model or problems, and for what its checkpoints are made
    for; also for another trainer when steps after the last checkpoint would be replayed with it.
    """
    revised = run.model_copy(update={"config": override(run.config, overrides)})
    for section in RunConfig.model_fields:
        if section not in _REVISABLE and getattr(revised.config, section) != getattr(run.config, section):
            raise RunError(
                f"--set {section}: a run keeps its {section}; it can change {', '.join(sorted(_REVISABLE))}, "
                "or start a new run"
            )
    if revised.config.number_format != run.config.number_format:
        raise RunError(
            f"--set: a run keeps the number format of its weights, {run.config.number_format}: leave "
            "publish.format and engine.dtype as they are"
        )
    if revised.config.trainer != run.config.trainer:
        _check_trainer(run, revised.config.trainer)
    document = RunDocument(config=revised.config, night=run.night)
    replace_record(run.store, run.record_key("run.json"), document)
    return revised


def _check_trainer(run: Run, trainer: TrainerConfig) -> None:
    if changed := trainer.differing(run.config.trainer):
        raise RunError(f"--set trainer.{changed}: the run's checkpoints are made for the one it has")
    newest = run.commits.newest()
    if newest is not None and newest.step > 0 and newest.checkpoint is None:
        raise RunError(
            f"--set trainer: step {newest.step} has no checkpoint and would be replayed with the new ones: "
            f"go on to a multiple of trainer.checkpoint_every {run.config.trainer.checkpoint_every} first"
        )


def all_runs(home: Home) -> list[Run]:
    """Every run of the state folder that can be read, oldest first."""
    runs = []
    for run_id in _ids(home):
        try:
            runs.append(load_run(run_id, home))
        except UserError as error:
            log.warning("%s", error)
    return runs


def _store_of(run_id: str, home: Home) -> StoreConfig:
    """Where a run is kept, as the registry has it."""
    try:
        return _STORE.validate_json((home.registry / f"{run_id}.json").read_bytes())
    except (OSError, ValidationError):
        raise RunError(f"run {run_id}: registry/{run_id}.json is broken: remove it") from None


def exclusive(run: Run) -> AbstractContextManager[None]:
    """Hold the run for this process; RunBusy when another has it. Its death lets go of it.

    Fine where this process has it already, as a sitting has for its flow.
    """
    if run.lock in _held:
        return nullcontext()
    return _hold(run)


@contextmanager
def _hold(run: Run) -> Iterator[None]:
    with locked(
        run.lock,
        _PROBE_S,
        taken=lambda holder: RunBusy(f"run {run.id} is being worked on by process {holder}: wait for it"),
    ):
        _held.add(run.lock)
        try:
            yield
        finally:
            _held.discard(run.lock)


def _stored(store: Store, run_id: str) -> RunDocument:
    try:
        return read_record(store, run_key(run_id, "run.json"), RunDocument)
    except KeyMissingError:
        raise RunError(
            f"run {run_id} is gone from its store: remove registry/{run_id}.json to forget it"
        ) from None
    except OSError as error:
        raise RunError(
            f"run {run_id}: run.json cannot be read ({error.strerror}): give this user access to it"
        ) from None


def _ids(home: Home) -> list[str]:
    files: list[Path] = sorted(home.registry.glob("*.json"), key=lambda path: path.stat().st_mtime)
    return [path.stem for path in files]


def _fresh_id(name: str, home: Home) -> str:
    base = f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    taken = set(_ids(home))
    return next(
        candidate
        for candidate in (base, *(f"{base}-{number}" for number in range(2, 1000)))
        if candidate not in taken
    )
