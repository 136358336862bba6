"""The presets load, every field explains itself, and configs need no torch."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, get_args, get_origin

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

import configs
from configs.loading import ConfigError, load_config
from configs.presets import preset_names
from configs.run import RunConfig

FOLDER = Path(configs.__file__).parent
PRESETS = sorted(FOLDER.glob("*.yaml"))


def test_there_are_presets():
    assert {preset.stem for preset in PRESETS} >= {"tiny-cpu", "smollm2-cpu"}


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.stem)
def test_preset_loads_and_survives_json(preset):
    config = load_config(preset)
    assert config.name == preset.stem
    assert config.description
    assert RunConfig.model_validate_json(config.model_dump_json()) == config


def test_the_tiny_preset_finds_its_model_from_any_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert (load_config(FOLDER / "tiny-cpu.yaml").model.path / "model.safetensors").is_file()


def test_a_preset_goes_by_its_name_from_any_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny-cpu").mkdir()  # what lies about does not matter
    assert load_config(Path("tiny-cpu")) == load_config(FOLDER / "tiny-cpu.yaml")
    assert preset_names() == [preset.stem for preset in PRESETS]
    with pytest.raises(ConfigError, match=r"no preset tiny: give smollm2-cpu, tiny-cpu, .*, or the path of"):
        load_config(Path("tiny"))


def test_configs_import_without_torch_or_any_service():
    code = (
        "import sys, configs.loading; "
        "print(sorted({'torch', 'ray', 'prefect', 'mlflow', 'transformers', 'megatron'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert run.stdout.strip() == "[]"


def kinds(field: FieldInfo) -> list[type[BaseModel]]:
    """The sections that a field may hold."""
    members = [field.annotation, *get_args(field.annotation)]
    bare = [get_args(member)[0] if get_origin(member) is Annotated else member for member in members]
    return [kind for kind in bare if isinstance(kind, type) and issubclass(kind, BaseModel)]


def sections(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """The model and every section below it, those in unions included."""
    yield model
    for field in model.model_fields.values():
        for kind in kinds(field):
            yield from sections(kind)


@pytest.mark.parametrize("section", list(sections(RunConfig)), ids=lambda section: section.__name__)
def test_every_setting_explains_itself(section):
    assert section.__doc__
    for name, field in section.model_fields.items():
        assert kinds(field) or name == "kind" or field.description, f"{section.__name__}.{name}"
