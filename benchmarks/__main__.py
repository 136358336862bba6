"""`make bench`: what a step and a publish cost on this machine. Compare ratios of one run, not runs."""

import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.delta import measure_delta
from benchmarks.publish import measure_publish
from benchmarks.step import measure_step
from configs.loading import load_config

PRESET = Path(__file__).parents[1] / "configs" / "tiny-cpu.yaml"


def main() -> None:
    """Measure the parts of a step of the tiny model and publishes of a larger one, and print tables."""
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        table = Table("part", "median s", "what")
        for figure in measure_step(load_config(PRESET), Path(folder)):
            table.add_row(figure.part, f"{figure.seconds:.3f}", figure.amount)
        console.print(table)
    for measure in (measure_publish, measure_delta):
        with tempfile.TemporaryDirectory() as folder:
            console.print(measure(Path(folder)))


if __name__ == "__main__":
    main()
