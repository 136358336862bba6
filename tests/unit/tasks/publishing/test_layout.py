"""Hashes of an engine that stacks, cuts and pads what it serves, against references written out here."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from infra.engines.checksum import overall_hash, tensor_hash
from infra.engines.protocol import ParallelismInfo, RankChecksums
from tasks.publishing.layout import differences
from tasks.record.manifest import Manifest

ATTENTION, MLP = "model.layers.0.self_attn.", "model.layers.0.mlp."
SHAPES = {
    "model.embed_tokens.weight": (100, 8),
    f"{ATTENTION}q_proj.weight": (16, 8),
    f"{ATTENTION}k_proj.weight": (8, 8),
    f"{ATTENTION}v_proj.weight": (8, 8),
    f"{ATTENTION}q_proj.bias": (16,),
    f"{ATTENTION}k_proj.bias": (8,),
    f"{ATTENTION}v_proj.bias": (8,),
    f"{ATTENTION}o_proj.weight": (8, 16),
    f"{ATTENTION}o_proj.bias": (8,),
    f"{MLP}gate_proj.weight": (12, 8),
    f"{MLP}up_proj.weight": (12, 8),
    f"{MLP}down_proj.weight": (8, 12),
    "model.norm.weight": (8,),
}
Tensors = dict[str, torch.Tensor]


@pytest.fixture
def tensors() -> Tensors:
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}


@pytest.fixture
def folder(tensors: Tensors, tmp_path: Path) -> Path:
    """The checkpoint, of a model with two key-value heads."""
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"num_key_value_heads": 2}))
    return tmp_path


def checksums(held: Tensors, rank: int = 0, ranks: int = 1) -> RankChecksums:
    hashes = {name: tensor_hash(tensor) for name, tensor in held.items()}
    place = ParallelismInfo(tp_rank=rank, tp_size=ranks)
    return RankChecksums(checksums=hashes, per_gpu_checksum=overall_hash(hashes), parallelism_info=(place,))


def sglang(tensors: Tensors, rank: int, ranks: int, kv_rank: int, kv_ranks: int) -> Tensors:
    """What SGLang holds on a rank, written out tensor by tensor."""

    def rows(name: str, rank: int = rank, ranks: int = ranks) -> torch.Tensor:
        return tensors[name].chunk(ranks)[rank]

    def qkv(kind: str) -> torch.Tensor:
        keys = (rows(f"{ATTENTION}{name}_proj.{kind}", kv_rank, kv_ranks) for name in "kv")
        return torch.cat([rows(f"{ATTENTION}q_proj.{kind}"), *keys])

    padded = torch.cat([tensors["model.embed_tokens.weight"], torch.zeros(28, 8)])
    return {
        "model.embed_tokens.weight": padded.chunk(ranks)[rank],
        f"{ATTENTION}qkv_proj.weight": qkv("weight"),
        f"{ATTENTION}qkv_proj.bias": qkv("bias"),
        f"{ATTENTION}o_proj.weight": tensors[f"{ATTENTION}o_proj.weight"].chunk(ranks, dim=1)[rank],
        f"{ATTENTION}o_proj.bias": tensors[f"{ATTENTION}o_proj.bias"],
        f"{MLP}gate_up_proj.weight": torch.cat(
            [rows(f"{MLP}gate_proj.weight"), rows(f"{MLP}up_proj.weight")]
        ),
        f"{MLP}down_proj.weight": tensors[f"{MLP}down_proj.weight"].chunk(ranks, dim=1)[rank],
        "model.norm.weight": tensors["model.norm.weight"],
    }


def test_an_engine_that_keeps_the_checkpoints_tensors_holds_them(folder: Path, tensors: Tensors) -> None:
    assert differences(lambda: folder, Manifest.of(tensors), checksums(tensors)) == []


@pytest.mark.parametrize(
    ("rank", "ranks", "kv_rank", "kv_ranks"),
    [(0, 1, 0, 1), (0, 2, 0, 2), (1, 2, 1, 2), (1, 4, 0, 2), (2, 4, 1, 2)],
)
def test_every_rank_of_sglang_holds_its_parts(
    folder: Path, tensors: Tensors, rank: int, ranks: int, kv_rank: int, kv_ranks: int
) -> None:
    manifest = Manifest.of(tensors)
    held = sglang(tensors, rank, ranks, kv_rank, kv_ranks)
    assert differences(lambda: folder, manifest, checksums(held, rank, ranks)) == []
    for name in held:
        wrong = held | {name: held[name] + 1e-3}
        assert differences(lambda: folder, manifest, checksums(wrong, rank, ranks)) == [name]


def test_what_an_engine_lacks_or_has_beyond_the_checkpoint_is_named(folder: Path, tensors: Tensors) -> None:
    held = sglang(tensors, 0, 1, 0, 1)
    beyond = held | {"model.extra.weight": torch.ones(2)}
    assert differences(lambda: folder, Manifest.of(tensors), checksums(beyond)) == ["model.extra.weight"]
    del held[f"{MLP}gate_up_proj.weight"]
    lacking = [f"{MLP}gate_proj.weight", f"{MLP}up_proj.weight"]
    assert differences(lambda: folder, Manifest.of(tensors), checksums(held)) == lacking


def test_a_folder_that_is_not_what_the_manifest_says_vouches_for_nothing(
    folder: Path, tensors: Tensors
) -> None:
    manifest = Manifest.of(tensors)
    rotten = tensors | {f"{ATTENTION}k_proj.weight": tensors[f"{ATTENTION}k_proj.weight"] * 2}
    save_file(rotten, folder / "model.safetensors")
    held = sglang(rotten, 0, 1, 0, 1)
    assert differences(lambda: folder, manifest, checksums(held)) == [f"{ATTENTION}qkv_proj.weight"]


@pytest.mark.parametrize("names", [("gate_proj", "up_proj", "down_proj"), ("w1", "w3", "w2")])
@pytest.mark.parametrize("groups", [1, 2])
def test_experts_are_stacked_and_cut_inside_or_between(
    tmp_path: Path, names: tuple[str, str, str], groups: int
) -> None:
    generator = torch.Generator().manual_seed(0)
    gate, up, down = names
    shapes = {gate: (12, 8), up: (12, 8), down: (8, 12)}
    tensors = {
        f"{MLP}experts.{expert}.{name}.weight": torch.randn(shape, generator=generator)
        for expert in range(12)
        for name, shape in shapes.items()
    }
    save_file(tensors, tmp_path / "model.safetensors")

    def part(expert: int, name: str, dim: int) -> torch.Tensor:
        whole = tensors[f"{MLP}experts.{expert}.{name}.weight"]
        return whole if groups == 2 else whole.chunk(2, dim)[1]

    mine = range(12) if groups == 1 else range(6, 12)
    held = {
        f"{MLP}experts.w13_weight": torch.stack(
            [torch.cat([part(expert, gate, 0), part(expert, up, 0)]) for expert in mine]
        ),
        f"{MLP}experts.w2_weight": torch.stack([part(expert, down, 1) for expert in mine]),
    }
    assert differences(lambda: tmp_path, Manifest.of(tensors), checksums(held, rank=1, ranks=2)) == []
    swapped = held | {f"{MLP}experts.w2_weight": held[f"{MLP}experts.w2_weight"].flip(0)}
    wrong = differences(lambda: tmp_path, Manifest.of(tensors), checksums(swapped, rank=1, ranks=2))
    assert wrong == [f"{MLP}experts.w2_weight"]


def test_an_engine_that_keeps_the_tensors_as_they_are_needs_no_checkpoint_here(tensors: Tensors) -> None:
    def find() -> Path:
        raise AssertionError("the checkpoint was fetched")

    assert differences(find, Manifest.of(tensors), checksums(tensors)) == []
    with pytest.raises(AssertionError, match="was fetched"):
        differences(find, Manifest.of(tensors), checksums(tensors | {"model.norm.weight": torch.ones(8)}))
