"""What a supported model is made of, read from its Hugging Face config."""

from tasks.model.architecture.model import Architecture
from tasks.model.architecture.parts import ExpertGroups, Experts, GroupedAttention, LatentAttention, Yarn

__all__ = ["Architecture", "ExpertGroups", "Experts", "GroupedAttention", "LatentAttention", "Yarn"]
