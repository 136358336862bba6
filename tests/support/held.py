"""Which hashes an engine must report when it holds a checkpoint."""

from collections.abc import Collection, Mapping

import torch

from infra.engines.checksum import tensor_hash

PARTS = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
"""What SGLang holds as one tensor, rows after rows."""
PADDED = ("embed_tokens.weight", "lm_head.weight")
"""What SGLang fills up with rows of zeros, to a multiple of so many."""
PADDED_ROWS = 64
EXPERT_PARTS = {"w13_weight": ("gate_proj", "up_proj"), "w2_weight": ("down_proj",)}
"""What SGLang holds of all experts of a layer as one tensor, expert after expert."""


def held_hashes(tensors: Mapping[str, torch.Tensor], names: Collection[str]) -> dict[str, str]:
    """Hashes of a checkpoint's tensors under an engine's names; the checkpoint must have no other tensor."""
    held, used = {}, set()
    padded = any(fused in name for name in names for fused in PARTS)  # SGLang's names
    for name in names:
        parts = _parts(name, tensors)
        used.update(part for row in parts for part in row)
        rows = [torch.cat([tensors[part] for part in row]) for row in parts]
        tensor = torch.stack(rows) if name.endswith(tuple(EXPERT_PARTS)) else rows[0]
        if padded and name.endswith(PADDED):
            tensor = torch.nn.functional.pad(tensor, (0, 0, 0, -len(tensor) % PADDED_ROWS))
        held[name] = tensor_hash(tensor)
    assert used == tensors.keys()
    return held


def _parts(name: str, tensors: Mapping[str, torch.Tensor]) -> list[list[str]]:
    """Names in the checkpoint of what is concatenated, for each expert where there are some."""
    module, _, last = name.rpartition(".")
    if last in EXPERT_PARTS:
        experts = sum(
            other.startswith(f"{module}.") and other.endswith(".up_proj.weight") for other in tensors
        )
        return [
            [f"{module}.{expert}.{part}.weight" for part in EXPERT_PARTS[last]] for expert in range(experts)
        ]
    fused = module.rpartition(".")[2]
    return [[name.replace(fused, part) for part in PARTS.get(fused, (fused,))]]
