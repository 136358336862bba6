"""From a request to sequences."""

import pytest
import torch

from infra.engines.embedded.admission import admit
from infra.engines.embedded.model import ServedModel
from infra.engines.protocol import GenerateRequest, SamplingParams
from tests.support.engines import TINY_MODEL


@pytest.fixture(scope="module")
def model() -> ServedModel:
    return ServedModel(TINY_MODEL, torch.float32, torch.device("cpu"), context_length=64)


def test_a_seed_is_drawn_for_each_prompt_that_brings_none(model: ServedModel) -> None:
    params = [SamplingParams(max_new_tokens=4, sampling_seed=seed) for seed in (None, 5, None)]
    first, given, second = admit(GenerateRequest(input_ids=[[1]] * 3, sampling_params=params), model)
    assert given.seed == 5
    assert first.seed != second.seed


def test_ids_are_as_given_or_told_apart(model: ServedModel) -> None:
    def ids(rid: list[str] | str | None) -> list[str]:
        params = SamplingParams(max_new_tokens=4)
        request = GenerateRequest(input_ids=[[1], [2]], rid=rid, sampling_params=params)
        return [sequence.id for sequence in admit(request, model)]

    assert ids(["a", "b"]) == ["a", "b"]
    assert ids("a") == ["a_0", "a_1"]
    assert len(set(ids(None))) == 2
