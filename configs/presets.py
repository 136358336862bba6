"""The configurations that come with the package, by name."""

from pathlib import Path

_FOLDER = Path(__file__).parent


def preset_names() -> list[str]:
    """What `find_config` knows, such as `tiny-cpu`; ascending."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def find_config(named: Path) -> Path | None:
    """The YAML file that a path or the name of a preset stands for; None for a name that no preset has."""
    if named.suffix or len(named.parts) > 1:
        return named
    return _FOLDER / f"{named}.yaml" if str(named) in preset_names() else None
