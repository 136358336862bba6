"""A rollout batch is a function of configuration, step and weights, whichever engines make it."""

import socket
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from configs.loading import parse_config
from infra.engines.client import EngineClient, EngineUnreachable
from infra.process import free_port
from tasks.problems import build_source
from tasks.rollout.generate import PromptLengthError, generate_batch
from tests.support.engines import TINY_MODEL, tiny_engine

VERSION = 7


def config_with(**engine):
    return parse_config(
        {
            "name": "unit",
            "model": {"kind": "folder", "path": str(TINY_MODEL)},
            "problems": {"kind": "arithmetic"},
            "rollout": {"prompts_per_step": 6, "samples_per_prompt": 4, "max_new_tokens": 24},
            "engine": engine,
        },
        folder=Path("/"),
    )


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(TINY_MODEL)


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    with tiny_engine(tmp_path_factory.mktemp("engine"), VERSION) as client:
        yield client


@pytest.fixture
def dead():
    return EngineClient(f"http://127.0.0.1:{free_port()}", timeout_s=5)


@pytest.fixture
def hanging():
    """Takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield EngineClient(f"http://127.0.0.1:{server.getsockname()[1]}", timeout_s=0.5)


@pytest.fixture(scope="module")
def problems():
    return build_source(config_with()).training(seed=0, start=0, count=6)


@pytest.mark.slow
def test_groups_carry_prompt_tokens_logprobs_and_version(engine, problems, tokenizer):
    batch = generate_batch([engine], problems, tokenizer, config_with(), step=3, start=12)
    assert (batch.step, batch.cursor) == (3, 12 + 6)
    assert [group.problem for group in batch.groups] == problems
    for group in batch.groups:
        assert len(group.samples) == 4
        assert len({sample.response_tokens for sample in group.samples}) > 1, (
            "samples of a group are all alike"
        )
        for sample in group.samples:
            assert tokenizer.decode(sample.prompt_tokens) == tokenizer.bos_token + group.problem.prompt
            assert {span.version for span in sample.spans} == {VERSION}
            assert all(logprob <= 0 for logprob in sample.rollout_logprobs)
            assert sample.reward is None
            ended = sample.response_tokens[-1] == tokenizer.eos_token_id
            assert sample.finish_reason == ("stop" if ended else "length")
            assert len(sample.response_tokens) <= 24


@pytest.mark.slow
def test_a_batch_repeats_to_the_bit_and_other_steps_and_seeds_differ(engine, problems, tokenizer):
    config = config_with()
    batch = generate_batch([engine], problems, tokenizer, config, step=1, start=0)
    assert (
        generate_batch([engine], problems, tokenizer, config, step=1, start=0).to_parquet()
        == batch.to_parquet()
    )
    assert generate_batch([engine], problems, tokenizer, config, step=2, start=0).groups != batch.groups
    other = config.model_copy(update={"seed": 1})
    assert generate_batch([engine], problems, tokenizer, other, step=1, start=0).groups != batch.groups


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["dead", "hanging"])
def test_a_batch_is_the_same_when_an_engine_fails(engine, problems, tokenizer, fault, request, caplog):
    config = config_with(count=2)
    healthy = generate_batch([engine, engine], problems, tokenizer, config, step=1, start=0)
    assert "redone" not in caplog.text
    survived = generate_batch(
        [request.getfixturevalue(fault), engine], problems, tokenizer, config, step=1, start=0
    )
    assert "redone" in caplog.text, "the fault did not strike"
    assert survived.to_parquet() == healthy.to_parquet()


def test_an_error_that_can_heal_is_raised_when_no_engine_answers(dead, problems, tokenizer):
    with pytest.raises(EngineUnreachable) as error:
        generate_batch([dead], problems, tokenizer, config_with(), step=1, start=0)
    assert error.value.heals


def test_a_prompt_without_room_for_its_response_names_the_field_to_change(dead, problems, tokenizer):
    with pytest.raises(PromptLengthError, match=r"raise engine\.context_length to at least \d+"):
        generate_batch([dead], problems, tokenizer, config_with(context_length=30), step=1, start=0)
