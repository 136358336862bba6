"""Weight versions made of given tensors, staged in a run as a trainer's are, and names of made-up ones."""

import json
from collections.abc import Callable, Mapping

import torch
from safetensors.torch import save_file

from tasks.record.commits import StepCommit
from tasks.record.credit import VersionCredit
from tasks.record.manifest import Manifest
from tasks.record.run import Run
from tasks.record.versions import stage_version
from tasks.record.weight_version import WeightVersion


def version_named(number: int, manifest: Manifest | None = None) -> WeightVersion:
    """Version `number` of a run without failed tries, with the weights of a manifest or with none."""
    weights = Manifest(tensors={}) if manifest is None else manifest
    parent = number - 1 if number else None
    return WeightVersion(
        number=number,
        parent=parent,
        step=number,
        hash=weights.hash,
        bytes=weights.bytes,
        format="float32",
    )


def credit_of(version: int, step: int) -> VersionCredit:
    """What a version is credited with by the batch of a step."""
    return VersionCredit(
        version=version,
        tokens=640,
        samples=64.0,
        graded=64.0,
        reward=(40 + step) / 100,
        length=10.0 + step,
        divergence=1e-6 * step,
        entropy=step / 10,
    )


def stage_tensors(
    run: Run, tensors: Mapping[str, torch.Tensor], step: int, parent: int | None = None
) -> WeightVersion:
    """A version; its parent is by default the version of the step's number less 1."""
    manifest = Manifest.of(dict(tensors))
    if parent is None and step > 0:
        parent = step - 1
    version = stage_version(run, manifest, parent, step)
    folder = run.store.scratch()
    save_file(dict(tensors), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    (folder / "manifest.json").write_text(manifest.model_dump_json())
    run.store.upload(run.weights_key(version.number), folder)
    return version


def commit_steps(run: Run, make_commit: Callable[..., StepCommit], count: int) -> None:
    """Commit steps 0 to `count` - 1, the weights of each in the store."""
    for step in range(count):
        weights = stage_tensors(run, {"norm.weight": torch.full((4,), float(step))}, step)
        run.commits.append(make_commit(step, weights=weights))
