"""Weight versions as model folders of their own, in the format they were staged in or another."""

import json
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from configs.errors import UserError
from infra import folders
from infra.quantisation.errors import QuantisationError
from infra.quantisation.recipe import QuantisationRecipe
from infra.store.base import KeyMissingError
from infra.weights_folder import WeightsFolder
from tasks.model.bridge.writer import copy_companions, write_weights
from tasks.publishing.readable import check_readable
from tasks.record.manifest import Manifest, TensorEntry
from tasks.record.run import Run
from tasks.record.versions import exported_versions, read_manifest, read_version

_KEPT_DTYPE = torch.bfloat16
"""Of what a quantised model keeps in high precision, as published ones have it."""
_NORM = "model.norm.weight"
"""A tensor that every family has, and that no format quantises."""


class ExportError(UserError):
    """The folder asked for cannot be written; the message is one line that says what to change."""


def export_version(run: Run, version: int, target: Path, format_name: str | None = None) -> Manifest:
    """Write a version as a model folder, which appears whole or not at all; what is in it.

    `format_name` is one of quantisation's FORMATS, or None for the format that the version was staged in.
    Raises ExportError for a version that is unknown or was pruned, a target that has something in it, weights
    that are not those of the manifest, and a format that does not fit the model or that transformers would
    not load, which is told before anything is written.
    """
    _check_version(run, version)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ExportError(f"{target} is there already and not an empty folder: give another")
    source = run.store.local(run.weights_key(version))
    manifest = read_manifest(run, read_version(run, version))
    _check_format(source, manifest, format_name)
    try:
        with folders.atomic(target.absolute()) as partial:
            return convert(source, manifest, partial, format_name)
    except QuantisationError as error:
        raise ExportError(f"--format {format_name}: {error}") from None
    except OSError as error:
        raise ExportError(f"{target} cannot be written ({error.strerror}): give another folder") from None


def convert(source: Path, manifest: Manifest, target: Path, format_name: str | None) -> Manifest:
    """Fill a folder with a staged version's files, its tensors verified and put into a format one by one.

    Returns the new manifest, which is also written. Raises ExportError for tensors that are not those of the
    manifest, and QuantisationError for a format that does not fit.
    """
    config = json.loads((source / "config.json").read_text())
    copy_companions(source, target)
    with WeightsFolder(source) as weights:
        tensors = _verified(weights, manifest, source)
        if format_name is not None:
            recipe = QuantisationRecipe.of(config, format_name, _KEPT_DTYPE)
            tensors = recipe.apply(staged_recipe(source, manifest).restore(tensors))
            (target / "config.json").write_text(json.dumps(recipe.config(config), indent=2))
        return write_weights(target, tensors)


def staged_recipe(folder: Path, manifest: Manifest) -> QuantisationRecipe:
    """The format that an exported folder is in."""
    config = json.loads((folder / "config.json").read_text())
    return QuantisationRecipe.of(config, None, getattr(torch, manifest.tensors[_NORM].dtype))


def _check_format(source: Path, manifest: Manifest, format_name: str | None) -> None:
    """The format asked for, or else that of the version, is one that the folder would be loaded in."""
    config = json.loads((source / "config.json").read_text())
    try:
        recipe = (
            staged_recipe(source, manifest)
            if format_name is None
            else QuantisationRecipe.of(config, format_name, _KEPT_DTYPE)
        )
        check_readable(recipe, WeightsFolder(source).shapes)
    except QuantisationError as error:
        asked = f"--format {format_name}" if format_name else "without --format, in the version's own"
        raise ExportError(f"{asked}: {error}") from None


def _check_version(run: Run, version: int) -> None:
    kept = exported_versions(run)
    if version in kept:
        return
    has = f"it has those of {', '.join(map(str, kept))}" if kept else "it has none yet"
    try:
        read_version(run, version)
    except KeyMissingError:
        raise ExportError(f"run {run.id} has no version {version}: {has}") from None
    raise ExportError(
        f"the weights of version {version} of {run.id} were removed, as publish.keep_versions says: {has}"
    )


def _verified(weights: WeightsFolder, manifest: Manifest, folder: Path) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a folder in the order of their names, each what the manifest says."""
    if wrong := sorted(weights.names ^ manifest.tensors.keys()):
        raise ExportError(f"{folder} is not what was staged: {wrong[0]} is not in it, or beyond the manifest")
    for name, entry in manifest.tensors.items():
        tensor = weights.whole(name)
        if TensorEntry.of(tensor) != entry:
            raise ExportError(f"{folder} is not what was staged: {name} was changed since")
        yield name, tensor
