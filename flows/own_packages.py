"""Overnight's packages have common names: who has others first on the path is told so."""

import sys
from importlib.util import find_spec
from pathlib import Path

_OTHERS = ("configs", "infra", "tasks")
"""What comes with `flows`."""


def require_own_packages() -> None:
    """End the process, with one line and exit code 2, where a package of the same name would be imported."""
    for name in _OTHERS:
        ours = Path(__file__).parents[1] / name
        spec = find_spec(name)
        folders = list(spec.submodule_search_locations or ()) if spec else []
        if folders and not ours.samefile(folders[0]):
            foreign = Path(folders[0]).absolute()
            print(
                f"error: {foreign} hides Overnight's own package {name}: take {foreign.parent} out of "
                "PYTHONPATH, or start `overnight` rather than `python -m` from there",
                file=sys.stderr,
            )
            raise SystemExit(2)
