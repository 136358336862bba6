"""MurmurHash3 (x86, 32 bit) on PyTorch's integers: the hash that SGLang's seeded sampling draws from.

Source: Austin Appleby's MurmurHash3, public domain.
"""

import torch
from torch import Tensor

_MASK = 0xFFFFFFFF


def murmur_hash32(seed_N: Tensor, positions_N: Tensor, columns_M: Tensor) -> Tensor:
    """uint32 [N, M]: the hash of (64-bit seed of the row, position of the row, column), 16 bytes, seed 0."""
    seed_N1 = seed_N.to(torch.int64)[:, None]
    hash_NM = torch.zeros((len(seed_N), len(columns_M)), dtype=torch.int64, device=seed_N.device)
    for block in (seed_N1, seed_N1 >> 32, positions_N.to(torch.int64)[:, None], columns_M.to(torch.int64)):
        hash_NM = _mix(hash_NM, block & _MASK)
    return _finish(hash_NM ^ 16).to(torch.uint32)


def _mix(hash_NM: Tensor, block: Tensor) -> Tensor:
    block = _rotate(block * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    return _rotate(hash_NM ^ block, 13) * 5 + 0xE6546B64 & _MASK


def _finish(hash_NM: Tensor) -> Tensor:
    hash_NM = (hash_NM ^ hash_NM >> 16) * 0x85EBCA6B & _MASK
    hash_NM = (hash_NM ^ hash_NM >> 13) * 0xC2B2AE35 & _MASK
    return hash_NM ^ hash_NM >> 16


def _rotate(value: Tensor, bits: int) -> Tensor:
    return (value << bits | value >> 32 - bits) & _MASK
