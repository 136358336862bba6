"""YAML file plus `--set a.b=c` to a validated RunConfig, with one-line errors."""

from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from configs.errors import UserError
from configs.mistakes import dotted, explain
from configs.presets import find_config, preset_names
from configs.run import RunConfig


class ConfigError(UserError):
    """The configuration is wrong; the message is one line that names the field to change."""


def load_config(path: Path, overrides: list[str] | None = None) -> RunConfig:
    """Read a YAML file, or a preset by its name, and apply `a.b=c` overrides (values are YAML).

    Raises ConfigError, one line, for an unreadable file, an unknown key or a value out of range.
    """
    file = find_config(path)
    if file is None:
        raise ConfigError(f"no preset {path}: give {', '.join(preset_names())}, or the path of a YAML file")
    try:
        document = yaml.safe_load(file.read_text())
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read ({error.strerror}): give the path of a YAML config"
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not YAML: {_one_line(error)}") from None
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: must be a mapping of sections, such as configs/tiny-cpu.yaml")
    for text in overrides or []:
        _apply(document, text)
    return parse_config(document, folder=file.resolve().parent, where=str(path))


def parse_config(document: dict[str, Any], folder: Path, where: str = "config") -> RunConfig:
    """Validate a mapping; relative paths in it are taken from `folder`."""
    try:
        return RunConfig.model_validate(document, context={"folder": folder})
    except ValidationError as error:
        raise ConfigError(f"{where}: {describe(error)}") from None


def override(config: RunConfig, overrides: list[str]) -> RunConfig:
    """A validated configuration with `a.b=c` overrides; ConfigError as for a file."""
    document = config.model_dump(mode="json")
    for text in overrides:
        _apply(document, text)
    return parse_config(document, folder=Path.cwd(), where="--set")


def describe(error: ValidationError) -> str:
    """All problems of a validation error in one line: `field: what is wrong`."""
    problems: dict[str, str] = {}
    for item in error.errors(include_url=False):
        if item["type"] == "default_factory_not_called":
            continue  # a default that follows from a field which is told already
        field, problem = dotted(RunConfig, item["loc"]), explain(RunConfig, item)
        problems.setdefault(field or problem, f"{field}: {problem}" if field else problem)
    return "; ".join(problems.values())


def _apply(document: dict[str, Any], override: str) -> None:
    dotted, separator, text = override.partition("=")
    if not separator or not dotted:
        raise ConfigError(f'--set "{override}": write it as section.field=value')
    *parents, leaf = dotted.split(".")
    section: Any = document
    for parent in parents:
        section = section.setdefault(parent, {})
        if not isinstance(section, dict):
            raise ConfigError(f'--set "{override}": {parent} is a value, not a section')
    try:
        section[leaf] = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f'--set "{override}": not a YAML value: {_one_line(error)}') from None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
