"""A night as a process: `python -m tests.support.night CONFIG [section.field=value ...]`."""

import sys
from pathlib import Path

from configs.loading import load_config
from infra.home import Home
from infra.services import Services


def main() -> None:
    """Run a night of a preset on the state folder's own servers, and print its report."""
    services = Services(Home.find())
    services.connect(services.ensure_prefect())
    from flows.nightly import nightly_rl  # after Prefect was told its server

    print(nightly_rl(load_config(Path(sys.argv[1]), sys.argv[2:])).model_dump_json())


if __name__ == "__main__":
    main()
