"""What an engine's own tensors are made of: SGLang stacks projections and cuts them over its ranks.

The names that an engine reports tell how it keeps the weights, so the same check serves an engine that keeps
Hugging Face's tensors as they are.
"""

import json
from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from infra.engines.checksum import tensor_hash
from infra.engines.protocol import ParallelismInfo, RankChecksums
from tasks.model.bridge.checkpoint import HfCheckpoint
from tasks.record.manifest import Manifest

_STACKED = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
    "fused_qkv_a_proj_with_mqa": ("q_a_proj", "kv_a_proj_with_mqa"),
}
"""SGLang's stacked layers, and what is stacked in them by rows."""
_EXPERTS = {"w13_weight": (("gate_proj", "up_proj"), ("w1", "w3")), "w2_weight": (("down_proj",), ("w2",))}
"""What SGLang keeps of all experts of a layer, and what is stacked in it expert after expert; Mixtral's names
come second."""
_BY_ROWS = {"embed_tokens", "lm_head", "q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "w1", "w3"}
_BY_COLUMNS = {"o_proj", "down_proj", "w2"}
_KEY_VALUE = {"k_proj", "v_proj"}
_BY_TOKEN = {"embed_tokens", "lm_head"}
_TOKEN_MULTIPLE = 64
"""SGLang pads a vocabulary to a multiple of this."""


def differences(find: Callable[[], Path], manifest: Manifest, held: RankChecksums) -> list[str]:
    """Names of what a rank of an engine holds otherwise than the manifest says, lacks, or has beyond it.

    `find` gives the checkpoint that the manifest was made of. A tensor that the engine keeps as it is
    compares by its hash, and `find` is not asked; those that it stacks, cuts or pads are read, and must be
    what the manifest says.
    """
    sources = {name: _sources(name, manifest) for name in held.checksums}
    lacking = manifest.tensors.keys() - {part for parts in sources.values() for part in parts}
    with ExitStack() as opened:
        shards = _Shards(find, opened, manifest, held.place)
        wrong = {name for name, parts in sources.items() if not shards.match(parts, held.checksums[name])}
    return sorted(lacking | wrong)


def _sources(name: str, manifest: Manifest) -> tuple[str, ...]:
    """The checkpoint's tensors that an engine's tensor is made of; none when it is of another model."""
    if name in manifest.tensors:
        return (name,)
    for stacked, parts in _STACKED.items():
        if f".{stacked}." in name:
            return tuple(name.replace(stacked, part) for part in parts)
    module, _, last = name.rpartition(".")
    for parts in _EXPERTS.get(last, ()):
        if f"{module}.0.{parts[0]}.weight" in manifest.tensors:
            experts = sum(
                name.startswith(f"{module}.") and name.endswith(f".{parts[0]}.weight")
                for name in manifest.tensors
            )
            return tuple(f"{module}.{expert}.{part}.weight" for expert in range(experts) for part in parts)
    return ()


class _Shards:
    """A rank's parts of the tensors of a checkpoint."""

    def __init__(
        self, find: Callable[[], Path], opened: ExitStack, manifest: Manifest, place: ParallelismInfo
    ) -> None:
        self._find, self._opened = find, opened
        self._hashes = {name: entry.hash for name, entry in manifest.tensors.items()}
        self._rank, self._ranks = place.tp_rank, place.tp_size

    @cached_property
    def _folder(self) -> Path:
        return self._find()

    @cached_property
    def _checkpoint(self) -> HfCheckpoint:
        return self._opened.enter_context(HfCheckpoint(self._folder))

    @cached_property
    def _key_value_heads(self) -> int:
        config = json.loads((self._folder / "config.json").read_text())
        return config.get("num_key_value_heads", self._ranks)

    def match(self, names: tuple[str, ...], held: str) -> bool:
        """Whether `held` is the hash of this rank's parts of the named tensors, stacked by rows."""
        if not names or not self._hashes.keys() >= set(names):
            return False
        if len(names) == self._ranks == 1 and held == self._hashes[names[0]]:
            return True  # kept as it is
        whole = {name: self._checkpoint.whole(name) for name in names}
        if any(tensor_hash(tensor) != self._hashes[name] for name, tensor in whole.items()):
            return False  # the folder itself is not what the manifest says
        divisions = range(1, self._ranks + 1) if ".experts." in names[0] else (1,)
        return any(
            held == tensor_hash(torch.cat(self._parts(whole, groups)))
            for groups in divisions
            if self._ranks % groups == len(names) % groups == 0
        )

    def _parts(self, whole: dict[str, Tensor], groups: int) -> list[Tensor]:
        """What this rank keeps of the tensors, when so many groups of ranks have experts of their own."""
        size, share = self._ranks // groups, len(whole) // groups
        first = self._rank // size * share
        mine = list(whole.items())[first : first + share]
        return [self._part(name, tensor, self._rank % size, size) for name, tensor in mine]

    def _part(self, name: str, tensor: Tensor, rank: int, ranks: int) -> Tensor:
        module = name.split(".")[-2]
        if module in _BY_TOKEN:
            tensor = torch.cat([tensor, tensor.new_zeros(self._padding(len(tensor)), *tensor.shape[1:])])
        if module in _KEY_VALUE and ranks > self._key_value_heads:  # some ranks share a head
            rank, ranks = rank * self._key_value_heads // ranks, self._key_value_heads
        if module in _BY_ROWS:
            return tensor.chunk(ranks)[rank]
        by_columns = module in _BY_COLUMNS and tensor.ndim > 1
        return tensor.chunk(ranks, dim=1)[rank] if by_columns else tensor

    def _padding(self, rows: int) -> int:
        """Rows of zeros that SGLang adds to a tensor whose rows are tokens."""
        padding = -rows % _TOKEN_MULTIPLE
        return padding if (rows + padding) % self._ranks == 0 else -rows % (_TOKEN_MULTIPLE * self._ranks)
