"""Weight versions made of given tensors, staged in a run as a trainer's are."""

import json
from collections.abc import Mapping

import torch
from safetensors.torch import save_file

from tasks.record.manifest import Manifest
from tasks.record.run import Run
from tasks.record.versions import stage_version


def stage_tensors(run: Run, tensors: Mapping[str, torch.Tensor], step: int, parent: int | None = None) -> int:
    """The number of a version; its parent is by default the version of the step's number less 1."""
    manifest = Manifest.of(dict(tensors))
    if parent is None and step > 0:
        parent = step - 1
    version = stage_version(run, manifest, parent, step)
    folder = run.store.scratch()
    save_file(dict(tensors), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    (folder / "manifest.json").write_text(manifest.model_dump_json())
    run.store.upload(run.weights_key(version), folder)
    return version
