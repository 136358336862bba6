"""A server whose log is bounded: `python -m infra.services.served LOG MODULE ARGUMENTS...`."""

import runpy
import sys
from pathlib import Path

from infra.logs import bound_output


def main() -> None:
    """Run the module as `python -m MODULE ARGUMENTS...` would, its output in LOG."""
    log, module, *arguments = sys.argv[1:]
    bound_output(Path(log))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
