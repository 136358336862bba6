"""Versions as model folders of their own: what transformers reads, verified, in any number format."""

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from infra.quantisation.formats import FORMATS
from infra.quantisation.recipe import QuantisationRecipe
from tasks.model.stored import store_folder
from tasks.publishing.export import ExportError, convert, export_version, staged_recipe
from tasks.publishing.transports.staged import StagedVersion, read_staged
from tasks.record.manifest import Manifest
from tasks.record.run import Run
from tasks.training.staging import stage
from tests.support.engines import TINY_MODEL, reference_logprobs
from tests.support.training import LooseRank, single_trainer

TOKENS = [1, 40, 41, 42, 43, 44, 45]
QUANTISED = ["fp8_block", "fp8_channel", "int8_channel", "mxfp8", "mxfp4"]


@pytest.fixture(scope="module")
def trainer() -> Iterator[LooseRank]:
    """A trainer that holds the tiny model."""
    with single_trainer(TINY_MODEL) as trainer:
        yield trainer


@pytest.fixture
def of_the_run(trainer: LooseRank, modelled_run: Run, monkeypatch: pytest.MonkeyPatch) -> LooseRank:
    """The trainer, writing to the run's store."""
    store_folder(modelled_run, TINY_MODEL)
    monkeypatch.setattr(trainer, "_run", modelled_run)
    return trainer


@pytest.fixture
def staged(modelled_run: Run, of_the_run: LooseRank) -> StagedVersion:
    """Version 0 of the run, as the trainer exported it."""
    stage(modelled_run, of_the_run, 0, None, [TOKENS])
    return read_staged(modelled_run, 0)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def test_an_export_is_the_staged_folder_with_tokenizer_and_all(
    modelled_run: Run, staged: StagedVersion, tmp_path: Path
) -> None:
    target = tmp_path / "new" / "folder"
    assert export_version(modelled_run, 0, target) == staged.manifest
    names = {path.name for path in target.iterdir()}
    assert names == {path.name for path in staged.folder.iterdir()}
    assert Manifest.of(weights(target)) == staged.manifest
    assert Manifest.model_validate_json((target / "manifest.json").read_text()) == staged.manifest
    assert torch.equal(reference_logprobs(target, TOKENS), reference_logprobs(staged.folder, TOKENS))
    assert reference_logprobs(target, TOKENS).tolist() == pytest.approx(staged.probe.logprobs[0], abs=1e-5)
    text = AutoTokenizer.from_pretrained(TINY_MODEL).decode(TOKENS)
    assert AutoTokenizer.from_pretrained(target).decode(TOKENS) == text


@pytest.mark.parametrize("form", QUANTISED)
def test_quantised_weights_are_within_the_formats_bound(
    staged: StagedVersion, tmp_path: Path, form: str
) -> None:
    (tmp_path / form).mkdir()
    written = convert(staged.folder, staged.manifest, tmp_path / form, form)
    tensors = weights(tmp_path / form)
    assert Manifest.of(tensors) == written
    config = json.loads((tmp_path / form / "config.json").read_text())
    restored = dict(QuantisationRecipe.of(config, None, torch.bfloat16).restore(tensors.items()))
    masters = weights(staged.folder)
    assert restored.keys() == masters.keys()
    quantised = [name for name in masters if "_proj." in name]
    assert len(quantised) == 14
    for name, master in masters.items():
        bound = FORMATS[form if name in quantised else "bfloat16"].relative_error * master.abs().max()
        assert 0 < (restored[name] - master).abs().max() <= bound, name


def test_a_bfloat16_export_is_the_rounded_weights(
    modelled_run: Run, staged: StagedVersion, tmp_path: Path
) -> None:
    export_version(modelled_run, 0, tmp_path / "bfloat16", "bfloat16")
    rounded = {name: tensor.bfloat16() for name, tensor in weights(staged.folder).items()}
    assert Manifest.of(weights(tmp_path / "bfloat16")) == Manifest.of(rounded)
    assert json.loads((tmp_path / "bfloat16" / "config.json").read_text())["dtype"] == "bfloat16"


def test_a_version_that_was_staged_quantised_is_exported_as_it_is_or_restored(
    staged: StagedVersion, tmp_path: Path
) -> None:
    quantised, again, plain = (tmp_path / name for name in ("quantised", "again", "plain"))
    for folder in (quantised, again, plain):
        folder.mkdir()
    manifest = convert(staged.folder, staged.manifest, quantised, "fp8_channel")
    assert convert(quantised, manifest, again, None) == manifest
    convert(quantised, manifest, plain, "float32")
    recipe = staged_recipe(quantised, manifest)
    assert recipe.format.name == "fp8_channel"
    restored = dict(recipe.restore(weights(quantised).items()))
    assert Manifest.of(weights(plain)) == Manifest.of(restored)
    assert "quantization_config" not in json.loads((plain / "config.json").read_text())


def test_files_follow_the_umask(modelled_run: Run, of_the_run: LooseRank, tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        stage(modelled_run, of_the_run, 0, None, [TOKENS])
        export_version(modelled_run, 0, tmp_path / "out", "bfloat16")
    finally:
        os.umask(before)
    staged = modelled_run.store.local(modelled_run.weights_key(0))
    files = [*(tmp_path / "out").iterdir(), *staged.iterdir()]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o640}


@pytest.mark.parametrize(("name", "value"), [("file", "a file"), ("folder/file", "in a folder")])
def test_nothing_is_written_over(modelled_run: Run, staged, tmp_path: Path, name: str, value: str) -> None:
    taken = tmp_path / name
    taken.parent.mkdir(exist_ok=True)
    taken.write_text(value)
    with pytest.raises(ExportError, match="is there already and not an empty folder"):
        export_version(modelled_run, 0, tmp_path / name.split("/")[0])
    assert taken.read_text() == value


def test_an_empty_folder_is_filled(modelled_run: Run, staged: StagedVersion, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    export_version(modelled_run, 0, tmp_path / "empty")
    assert weights(tmp_path / "empty")


def test_unknown_and_pruned_versions_are_told_apart(
    modelled_run: Run, of_the_run: LooseRank, tmp_path: Path
) -> None:
    with pytest.raises(ExportError, match="run unit-1 has no version 0: it has none yet"):
        export_version(modelled_run, 0, tmp_path / "none")
    for step in (0, 1):
        stage(modelled_run, of_the_run, step, None, [TOKENS])
    modelled_run.store.remove(modelled_run.weights_key(0))
    with pytest.raises(
        ExportError, match=r"version 0 of unit-1 were removed, as publish\.keep_versions says"
    ):
        export_version(modelled_run, 0, tmp_path / "none")
    with pytest.raises(ExportError, match="run unit-1 has no version 7: it has those of 1"):
        export_version(modelled_run, 7, tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_weights_that_were_changed_since_they_were_staged_are_not_exported(
    modelled_run: Run, staged: StagedVersion, tmp_path: Path
) -> None:
    tensors = weights(staged.folder)
    changed = {**tensors, "model.norm.weight": tensors["model.norm.weight"] + 1}
    lacking = {name: tensor for name, tensor in tensors.items() if "layers.1.mlp.up" not in name}
    for wrong, name in ((changed, "model.norm.weight was changed"), (lacking, "layers.1.mlp.up_proj.weight")):
        save_file(wrong, staged.folder / "model.safetensors", metadata={"format": "pt"})
        with pytest.raises(ExportError, match=rf"is not what was staged: .*{name}"):
            export_version(modelled_run, 0, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir() if "out" in path.name] == []


def test_a_format_that_is_none_is_one_line(modelled_run: Run, staged: StagedVersion, tmp_path: Path) -> None:
    with pytest.raises(
        ExportError, match='--format fp7: "fp7" is no number format: use one of bfloat16, float32'
    ):
        export_version(modelled_run, 0, tmp_path / "out", "fp7")
    assert not (tmp_path / "out").exists()


def test_a_big_model_that_is_cut_into_files_is_exported(
    modelled_run: Run, staged: StagedVersion, tmp_path: Path
) -> None:
    cut_into_two(staged.folder)
    assert export_version(modelled_run, 0, tmp_path / "out") == staged.manifest
    assert read_staged(modelled_run, 0).manifest == Manifest.of(weights(tmp_path / "out"))


def cut_into_two(folder: Path) -> None:
    """Spread a folder's tensors over two files and an index."""
    tensors = weights(folder)
    names = sorted(tensors)
    parts = {"model-00001-of-00002.safetensors": names[:7], "model-00002-of-00002.safetensors": names[7:]}
    for file, held in parts.items():
        save_file({name: tensors[name] for name in held}, folder / file, metadata={"format": "pt"})
    file_of = {name: file for file, held in parts.items() for name in held}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": file_of}))
    (folder / "model.safetensors").unlink()


def test_a_format_that_transformers_does_not_load_is_refused_before_anything_is_written(
    modelled_run: Run, staged: StagedVersion, tmp_path: Path
) -> None:
    target = tmp_path / "new" / "out"
    for form in ("fp8_block", "mxfp4"):
        with pytest.raises(ExportError, match=f"^--format {form}: .*transformers.*: use") as error:
            export_version(modelled_run, 0, target, form)
        assert "\n" not in str(error.value)
    assert not target.parent.exists()
