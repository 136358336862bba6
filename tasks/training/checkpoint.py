"""Trainer checkpoints: one file a rank, and an index that makes them one."""

import pickle
from pathlib import Path
from typing import Any

import torch
from pydantic import ConfigDict, ValidationError

from configs.loading import describe
from configs.training import StateLayout
from tasks.model.architecture import Architecture
from tasks.training.errors import CheckpointUnusable
from tasks.training.report import TrainReport

_INDEX = "index.json"


class CheckpointIndex(StateLayout):
    """What a checkpoint holds, and which ranks can read it."""

    model_config = ConfigDict(allow_inf_nan=True, ser_json_inf_nan="strings")
    step: int
    """The last applied step."""
    report: TrainReport | None
    """That step's report; None before the first step."""
    architecture: Architecture


def write_index(folder: Path, index: CheckpointIndex) -> None:
    """Write the index of a checkpoint folder."""
    (folder / _INDEX).write_text(index.model_dump_json(indent=1))


def read_index(folder: Path) -> CheckpointIndex:
    """The index of a checkpoint folder; CheckpointUnusable when it has none that can be read."""
    try:
        return CheckpointIndex.model_validate_json((folder / _INDEX).read_bytes())
    except OSError as error:
        raise CheckpointUnusable(f"{folder} is not a trainer checkpoint ({error})") from None
    except ValidationError as error:
        raise CheckpointUnusable(f"{folder} is a checkpoint of another release: {describe(error)}") from None


def write_rank(folder: Path, rank: int, state: dict[str, Any]) -> None:
    """Write a rank's state: its parts of weights and optimizer, and its random generators."""
    generators = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        generators["cuda"] = torch.cuda.get_rng_state()
    torch.save({"state": state, "generators": generators}, folder / _rank_file(rank))


def read_rank(folder: Path, rank: int) -> dict[str, Any]:
    """A rank's state; sets the process's random generators to what they were. Raises CheckpointUnusable."""
    try:
        saved = torch.load(folder / _rank_file(rank), map_location="cpu", weights_only=True)
    except (OSError, EOFError, RuntimeError, pickle.UnpicklingError) as error:
        raise CheckpointUnusable(f"{folder / _rank_file(rank)} cannot be read ({error})") from None
    torch.set_rng_state(saved["generators"]["cpu"])
    if "cuda" in saved["generators"]:
        torch.cuda.set_rng_state(saved["generators"]["cuda"])
    return saved["state"]


def files(layout: StateLayout) -> list[str]:
    """Names of all files of a checkpoint of a layout."""
    return [_INDEX, *map(_rank_file, range(layout.world_size))]


def _rank_file(rank: int) -> str:
    return f"rank-{rank:03d}.pt"
