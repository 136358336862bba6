"""The CPU plugin's hash for sampling seeds, against MurmurHash3 written out byte by byte."""

import importlib.util
import struct
from pathlib import Path

import torch

import infra.engines

SOURCE = Path(infra.engines.__file__).parent / "sglang_cpu/overnight_sglang_cpu/murmur.py"


def murmur3(data: bytes) -> int:
    """MurmurHash3_x86_32 with seed 0 of whole 4-byte blocks."""
    mask, value = 0xFFFFFFFF, 0
    for (block,) in struct.iter_unpack("<I", data):
        block = block * 0xCC9E2D51 & mask
        block = (block << 15 | block >> 17) & mask
        value ^= block * 0x1B873593 & mask
        value = (value << 13 | value >> 19) & mask
        value = (value * 5 + 0xE6546B64) & mask
    value ^= len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        value = (value ^ value >> shift) * factor & mask
    return value ^ value >> 16


def test_the_reference_gives_a_published_value() -> None:
    assert murmur3(b"test") == 0xBA6BD213


def test_rows_and_columns_hash_as_their_bytes_do() -> None:
    spec = importlib.util.spec_from_file_location("murmur", SOURCE)
    assert spec is not None and spec.loader is not None
    murmur = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(murmur)
    seeds, positions, columns = [0, 7, 2**31 - 1, 2**62 + 5], [0, 3, 191, 2**20], [0, 1, 319, 49151]
    hashed = murmur.murmur_hash32(torch.tensor(seeds), torch.tensor(positions), torch.tensor(columns))
    assert hashed.tolist() == [
        [murmur3(struct.pack("<QII", seed, position, column)) for column in columns]
        for seed, position in zip(seeds, positions, strict=True)
    ]
