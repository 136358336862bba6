"""The parts in which supported models differ: their attention, and experts in place of an MLP."""

from typing import Literal

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    """A part of an architecture."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class GroupedAttention(Part):
    """Grouped-query attention: several query heads share a key-value head."""

    kind: Literal["grouped"] = "grouped"
    kv_heads: int
    head_dim: int
    qkv_bias: bool
    output_bias: bool
    """Whether the output projection has a bias."""
    qk_norm: bool
    """Queries and keys are normalised head by head, before the rotation."""
    rope_llama3_factor: float | None
    """Context extension factor of Llama 3.1's frequency scaling; None without scaling."""


class Yarn(Part):
    """Context extension by YaRN (Peng et al., arXiv:2309.00071), with DeepSeek's attention scale."""

    factor: float
    original_max_positions: int
    beta_fast: float
    beta_slow: float
    mscale: float
    mscale_all_dim: float


class LatentAttention(Part):
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): keys and values from one small latent."""

    kind: Literal["latent"] = "latent"
    query_rank: int | None
    """Size of the queries' latent; None projects them directly."""
    kv_rank: int
    head_dim: int
    """Size of a head's part without rotation."""
    rope_dim: int
    """Size of a head's rotated part, in keys one for all heads."""
    value_dim: int
    yarn: Yarn | None


class ExpertGroups(Part):
    """A token's experts come from the groups of consecutive experts that score best."""

    count: int
    per_token: int
    """Groups that a token chooses from."""
    scored: int
    """A group's score is the sum of this many best scores in it."""


class Experts(Part):
    """A mixture of experts (Shazeer et al., arXiv:1701.06538) in place of some layers' MLP."""

    layers: tuple[int, ...]
    """Layers that have experts, counted from 0; the others have an MLP."""
    count: int
    per_token: int
    ffn_size: int
    shared_ffn_size: int | None = None
    """Size of the MLP that every token takes as well; None without."""
    score: Literal["softmax", "sigmoid"] = "softmax"
    """What makes a token's weights of experts of the router's logits."""
    renormalised: bool = True
    """Whether the weights of a token's experts are divided by their sum."""
    scaling: float = 1.0
    """Factor of the weights."""
    score_bias: bool = False
    """A bias for each expert is added to the scores, for the choice alone (arXiv:2408.15664)."""
    groups: ExpertGroups | None = None
