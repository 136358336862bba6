"""Which side is off, and in which module first: trainer and engines against the exported folder.

The folder's model is computed by transformers in fp32 in this process. SGLang's protocol tells nothing of an
engine's layers, so the trainer is compared module by module, and the engines by log-probabilities.
"""

import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging

from infra.quantisation.formats import BF16, FP32
from tasks.model.tap import tapped
from tasks.probe.compare import Logprobs, differences
from tasks.probe.report import LayerAlignment, ModuleDifference
from tasks.publishing.export import convert, staged_recipe
from tasks.publishing.transports.staged import StagedVersion

HiddenStates = Mapping[str, Tensor]
"""Outputs [T, H] of modules in the order of the computation, by their names in the folder."""
_ROUNDING = 1e-4
"""Relative difference of a hidden state that fp32 arithmetic in another order makes, with room."""
_FORMAT_FACTOR = 8
"""Largest errors of a number format that a hidden state may be off by: coarse formats hide small faults here,
which the bare figures of the report may still tell."""


class Computed(NamedTuple):
    """A sequence as a model computes it."""

    hidden: dict[str, Tensor]
    logprobs: list[float]
    """Of tokens[1:] at temperature 1, nats."""


class Reference:
    """An exported version as transformers computes it, in fp32 on this machine's CPU."""

    def __init__(self, staged: StagedVersion) -> None:
        logging.disable_progress_bar()
        source = staged.local()
        if staged_recipe(source, staged.manifest).declaration is None:
            self._model = _load(source)
            return
        with tempfile.TemporaryDirectory() as folder:  # transformers reads but some of the formats
            convert(source, staged.manifest, Path(folder), FP32.name)
            self._model = _load(Path(folder))

    @torch.no_grad()
    def compute(self, tokens: list[int], modules: list[str]) -> Computed:
        """A sequence's log-probabilities, and what the named modules put out."""
        with tapped({name: self._model.get_submodule(name) for name in modules}) as outputs:
            logprobs_TV = self._model(torch.tensor([tokens])).logits[0, :-1].log_softmax(-1)
        hidden = {name: outputs[name][0] for name in modules}
        return Computed(hidden, logprobs_TV.gather(-1, torch.tensor(tokens[1:])[:, None])[:, 0].tolist())


def compare_layers(
    staged: StagedVersion,
    trained: Callable[[list[int]], HiddenStates],
    engines: Mapping[str, Logprobs],
    trainer_dtype: str,
) -> LayerAlignment:
    """Both sides against the staged folder.

    `trained` gives the trainer's hidden states of a sequence; `staged.probe` holds the trainer's
    log-probabilities and `engines` those of each engine for the same sequences.
    """
    reference = Reference(staged)
    extremes: dict[str, list[tuple[float, float]]] = defaultdict(list)
    logprobs = []
    for tokens in staged.probe.sequences:
        states = trained(tokens)
        computed = reference.compute(tokens, list(states))
        logprobs.append(computed.logprobs)
        for name, state_TH in states.items():
            expected_TH = computed.hidden[name]
            extremes[name].append((_largest(state_TH - expected_TH), _largest(expected_TH)))
    return LayerAlignment(
        tolerance=_tolerance(staged, trainer_dtype),
        modules=tuple(_difference(name, *np.max(pairs, axis=0)) for name, pairs in extremes.items()),
        trainer=float(differences(staged.probe.logprobs, logprobs).max()),
        engines={name: float(differences(scored, logprobs).max()) for name, scored in engines.items()},
    )


def _load(folder: Path) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True).eval()


def _largest(tensor: Tensor) -> float:
    return tensor.abs().max().item()


def _difference(module: str, max_abs: float, largest: float) -> ModuleDifference:
    return ModuleDifference(module=module, max_abs=max_abs, relative=max_abs / largest)


def _tolerance(staged: StagedVersion, trainer_dtype: str) -> float:
    """What the coarser of the two number formats explains, relative to a module's largest value."""
    trainer = BF16 if trainer_dtype == "bfloat16" else FP32
    served = staged_recipe(staged.local(), staged.manifest).format
    return _ROUNDING + _FORMAT_FACTOR * max(trainer.relative_error, served.relative_error)
