"""What a weight version is made of: a hash for every tensor, and one for the whole."""

import hashlib

import torch
from pydantic import BaseModel, ConfigDict


class TensorEntry(BaseModel):
    """One tensor of a checkpoint."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    dtype: str
    shape: tuple[int, ...]
    hash: str


class Manifest(BaseModel):
    """Tensor names (Hugging Face's) to entries. The hashes are those that SGLang's weights_checker gives."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    tensors: dict[str, TensorEntry]

    @classmethod
    def of(cls, tensors: dict[str, torch.Tensor]) -> "Manifest":
        """The manifest of tensors held in memory."""
        return cls(
            tensors={
                name: TensorEntry(
                    dtype=str(tensor.dtype).removeprefix("torch."),
                    shape=tuple(tensor.shape),
                    hash=tensor_hash(tensor),
                )
                for name, tensor in sorted(tensors.items())
            }
        )

    @property
    def hash(self) -> str:
        """Content hash of the version: SHA-256 over the sorted names and tensor hashes."""
        return overall_hash({name: entry.hash for name, entry in self.tensors.items()})

    @property
    def bytes(self) -> int:
        """Size of all tensors, bytes."""
        return sum(
            torch.Size(entry.shape).numel() * getattr(torch, entry.dtype).itemsize
            for entry in self.tensors.values()
        )


def tensor_hash(tensor: torch.Tensor) -> str:
    """First 16 hex digits of the SHA-256 of the tensor's bytes (SGLang 0.5.23, weight_checker on a CPU)."""
    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return hashlib.sha256(memoryview(flat.numpy())).hexdigest()[:16]


def overall_hash(hashes: dict[str, str]) -> str:
    """SHA-256 over sorted names and hashes, as SGLang's per_gpu_checksum is made."""
    digest = hashlib.sha256()
    for name in sorted(hashes):
        digest.update(name.encode())
        digest.update(hashes[name].encode())
    return digest.hexdigest()
