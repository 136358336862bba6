"""Content hashes of tensors, as SGLang 0.5.23's weights_checker makes them on a CPU."""

import hashlib
from collections.abc import Mapping

import torch


def tensor_hash(tensor: torch.Tensor) -> str:
    """First 16 hex digits of the SHA-256 of the tensor's bytes in row-major order."""
    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return hashlib.sha256(flat.numpy().data).hexdigest()[:16]


def overall_hash(hashes: Mapping[str, str]) -> str:
    """SHA-256 over sorted names and hashes, as SGLang's per_gpu_checksum is made."""
    digest = hashlib.sha256()
    for name in sorted(hashes):
        digest.update(name.encode())
        digest.update(hashes[name].encode())
    return digest.hexdigest()
