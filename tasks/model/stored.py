"""The model that a run starts from, in the run's store: trainer and engines take it from there."""

import hashlib
import shutil
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from infra import folders
from infra.store.base import KeyExistsError, KeyMissingError
from tasks.model.files import model_files
from tasks.model.source import prepare_model
from tasks.record.run import MODELS, Run
from tasks.record.stored import read_record


class StoredModel(BaseModel):
    """What `<run>/model.json` holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    key: str
    """Of a folder that is named by its content, so that a run keeps its model whatever becomes of the
    driver's."""


def store_model(run: Run) -> str:
    """Put this machine's model into the run's store, unless the run has one there already; its key.

    Raises ModelError when it cannot be had.
    """
    try:
        return model_key(run)
    except KeyMissingError:
        return store_folder(run, prepare_model(run.config.model, run.home))


def store_folder(run: Run, source: Path) -> str:
    """Make a folder of this machine the model of a run that has none yet; its key.

    The folder is read to its end for the name, and copied unless the store has the same one from another run.
    """
    key = f"{MODELS}/{_digest(source)}"
    if key not in run.store.list_folders(MODELS):
        scratch = run.store.scratch()
        for path in model_files(source):
            shutil.copyfile(path, scratch / path.name)
        run.store.upload(key, scratch)
    return _kept(run, key)


def take_folder(run: Run, folder: Path) -> str:
    """The same with a scratch folder of the run's store, which is gone then."""
    key = f"{MODELS}/{_digest(folder)}"
    if key not in run.store.list_folders(MODELS):
        run.store.upload(key, folder)
    folders.delete(folder)
    return _kept(run, key)


def model_key(run: Run) -> str:
    """Key of the run's model; KeyMissingError before `store_model`."""
    return read_record(run.store, _record_key(run), StoredModel).key


def stored_model(run: Run) -> Path:
    """Folder of the run's model on this machine, fetched where it is not here."""
    return run.store.local(model_key(run))


def _kept(run: Run, key: str) -> str:
    try:
        run.store.create(_record_key(run), StoredModel(key=key).model_dump_json().encode())
    except KeyExistsError:
        return model_key(run)
    return key


def _digest(folder: Path) -> str:
    """SHA-256 over the names and contents of a model's files."""
    digest = hashlib.sha256()
    for path in model_files(folder):
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        digest.update(f"{path.name}\0{content}\n".encode())
    return digest.hexdigest()[:32]


def _record_key(run: Run) -> str:
    return run.record_key("model.json")
