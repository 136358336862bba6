"""The hidden states of a sequence after every layer, for comparison with another implementation."""

from collections.abc import Sequence

import torch
from megatron.core.models.gpt import GPTModel
from megatron.core.tensor_parallel import gather_from_sequence_parallel_region
from torch import Tensor
from torch.nn.functional import pad

from tasks.model.tap import tapped


@torch.no_grad()
def hidden_states(model: GPTModel, tokens: Sequence[int], device: torch.device) -> dict[str, Tensor]:
    """Outputs [T, H] of embedding, decoder layers and last norm, in order, fp32 on the CPU.

    Their names are those of the modules in Hugging Face's layout. A collective of all ranks, each of
    which computes the whole sequence and gets all of it.
    """
    modules = {
        "model.embed_tokens": model.embedding,
        **{f"model.layers.{number}": layer for number, layer in enumerate(model.decoder.layers)},
        "model.norm": model.decoder.final_layernorm,
    }
    ranks = model.config.tensor_model_parallel_size
    even_BT = pad(torch.tensor([list(tokens)], device=device), (0, -len(tokens) % ranks))
    with tapped(modules) as outputs:
        model(even_BT, None, None)
    if model.config.sequence_parallel:
        outputs = {name: gather_from_sequence_parallel_region(each) for name, each in outputs.items()}
    return {name: outputs[name][: len(tokens), 0].float().cpu() for name in modules}
