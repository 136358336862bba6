"""What must be true before anything starts; each problem is a line that names the field to change."""

import shutil
from importlib.util import find_spec
from pathlib import Path

from configs.cluster import LocalClusterConfig
from configs.engine import EngineConfig
from configs.errors import UserError
from configs.run import RunConfig
from configs.store import LocalStoreConfig
from infra.address import Address
from infra.home import Home
from infra.process import port_is_free
from infra.quantisation.errors import QuantisationError
from infra.store import open_store
from infra.weights_folder import WeightsFolder, WeightsMismatch
from tasks.cluster.devices import check_devices, check_python
from tasks.model.architecture import Architecture
from tasks.model.errors import TrainerError
from tasks.model.recipe import publish_recipe
from tasks.model.source import prepare_model, prepared_tokenizer
from tasks.problems import build_source

_SPARE_BYTES = 1 << 30
_MODEL = 1
"""Copies of the model that the runs of a store share."""
_CHECKPOINT_FACTOR = 3
"""Weights and Adam's two moments, relative to the weights."""


class PreflightError(UserError):
    """The run could not work as configured."""


def preflight(config: RunConfig, home: Home) -> None:
    """Check devices, model, problems, store, disk and ports before anything starts; raises the first problem.

    What it leaves behind is a model converted from a package, for all runs to come.
    """
    if isinstance(config.cluster, LocalClusterConfig):  # another provider's machines are not up yet
        check_python(config.engine)
        check_devices(config)
    model_path = prepare_model(config.model, home)
    _check_architecture(config, model_path)
    _check_format(config, model_path)
    _check_vocabulary(config, model_path, home)
    build_source(config)
    _check_store(config, home, model_path)
    config.publish.transport.build().check(home, _weights_bytes(model_path))
    _check_engine(config.engine, config.cluster.build(home).address())


def _check_engine(engine: EngineConfig, address: Address) -> None:
    if engine.router and find_spec("sglang_router") is None:
        raise PreflightError(
            "engine.router needs the package sglang-router: pip install 'overnight[router]', or leave it out"
        )
    if engine.port is None:
        return
    for port in range(engine.port, engine.port + engine.count):
        if not port_is_free(port, address.bind):
            raise PreflightError(f"engine.port {port} is taken: choose another, or leave it out")


def _check_architecture(config: RunConfig, model_path: Path) -> None:
    try:
        Architecture.read(model_path).check_layout(config.trainer)
    except TrainerError as error:
        raise PreflightError(str(error)) from None


def _check_format(config: RunConfig, model_path: Path) -> None:
    """Formats in blocks do not take matrices of every shape."""
    if config.publish.format is None:
        return
    recipe = publish_recipe(config)
    try:
        for name, shape in WeightsFolder(model_path).shapes.items():
            recipe.forms(name, recipe.dtype, shape)
    except QuantisationError as error:
        raise PreflightError(
            f'publish.format "{config.publish.format}" does not fit the model: {error}: choose another format'
        ) from None
    except WeightsMismatch as error:
        raise PreflightError(str(error)) from None


def _check_vocabulary(config: RunConfig, model_path: Path, home: Home) -> None:
    """A token without an embedding would end a SGLang server, not only its request."""
    largest = max(prepared_tokenizer(config.model, home).get_vocab().values())
    rows = Architecture.read(model_path).vocab_size
    if largest >= rows:
        raise PreflightError(
            f"the model's tokenizer has token {largest} and its config.json vocab_size {rows}: "
            "give model.path a tokenizer that belongs to the model"
        )


def _check_store(config: RunConfig, home: Home, model_path: Path) -> None:
    """The store can be written, and this machine has room for what it keeps of it."""
    store = open_store(config.store, home)
    store.check_writable()
    free = shutil.disk_usage(store.folder(".")).free
    weights = _weights_bytes(model_path)
    versions = config.publish.keep_versions or config.loop.steps + 1
    checkpoints = _CHECKPOINT_FACTOR * (config.trainer.keep_checkpoints + 1)
    needed = weights * (_MODEL + versions + checkpoints) + _SPARE_BYTES
    if free < needed:
        place = "store.path" if isinstance(config.store, LocalStoreConfig) else "OVERNIGHT_HOME"
        raise PreflightError(
            f"the run store needs {needed >> 20} MiB and has {free >> 20} MiB free: "
            f"lower publish.keep_versions, free some, or set {place} elsewhere"
        )


def _weights_bytes(model_path: Path) -> int:
    return sum(file.stat().st_size for file in model_path.glob("*.safetensors"))
