"""What a weight version is made of: a hash for every tensor, and one for the whole."""

import torch
from pydantic import BaseModel, ConfigDict

from infra.engines.checksum import overall_hash, tensor_hash

__all__ = ["Manifest", "TensorEntry", "overall_hash", "tensor_hash"]


class TensorEntry(BaseModel):
    """One tensor of a weights folder."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    dtype: str
    shape: tuple[int, ...]
    hash: str

    @classmethod
    def of(cls, tensor: torch.Tensor) -> "TensorEntry":
        """The entry of a tensor held in memory."""
        return cls(
            dtype=str(tensor.dtype).removeprefix("torch."),
            shape=tuple(tensor.shape),
            hash=tensor_hash(tensor),
        )


class Manifest(BaseModel):
    """Tensor names (Hugging Face's) to entries. The hashes are those that SGLang's weights_checker gives."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    tensors: dict[str, TensorEntry]

    @classmethod
    def of(cls, tensors: dict[str, torch.Tensor]) -> "Manifest":
        """The manifest of tensors held in memory."""
        return cls(tensors={name: TensorEntry.of(tensor) for name, tensor in sorted(tensors.items())})

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
