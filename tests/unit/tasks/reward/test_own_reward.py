"""A reward in a file of its own grades a stored batch, and the trainer takes a step on what it gave."""

import pytest

from configs.loading import override
from configs.reward import RewardSection
from tasks.grading.graded import graded_of
from tasks.model.source import prepared_tokenizer
from tasks.record.batches import read_batch, store_batch
from tasks.record.run import Run
from tasks.record.runs import create_run, load_run
from tasks.record.samples import Group, Problem, RolloutBatch, Sample, VersionSpan
from tasks.reward.base import Grade
from tasks.rollout.rollouts import Rollouts
from tests.support.engines import TINY_MODEL
from tests.support.training import single_trainer

OWN = "{kind: 'tests.support.own_reward:DigitShare', longest: 20}"


@pytest.fixture
def own_run(modelled_run: Run) -> Run:
    config = override(modelled_run.config, [f"reward={OWN}"])
    create_run(config, modelled_run.home, "own")
    return load_run("own", modelled_run.home)


def rollouts(run: Run, *responses: str) -> Rollouts:
    """A stored batch of step 1: one group with these responses to a problem whose answer is 417."""
    tokenizer = prepared_tokenizer(run.config.model, run.home)
    prompt = tuple(tokenizer("Problem: 400 + 17\nSolution:").input_ids)

    def sample(text: str) -> Sample:
        tokens = tuple(tokenizer(text, add_special_tokens=False).input_ids)
        return Sample(prompt, tokens, (-1.0,) * len(tokens), (VersionSpan(0, 0, len(tokens)),), "stop")

    batch = RolloutBatch(1, (Group(Problem("p", "?", "417"), tuple(map(sample, responses))),), cursor=1)
    ref = store_batch(run.store, run.step_key(1, "rollouts.parquet"), batch)
    return Rollouts(ref, 0, batch.cursor, interval=None)


def test_the_run_keeps_its_own_reward(own_run: Run) -> None:
    reward = own_run.config.reward
    assert isinstance(reward, RewardSection) and type(reward).__name__ == "DigitShare"
    assert reward.build().grade(Problem("p", "?", "417"), "so 427") == Grade(2 / 3, "427")


@pytest.mark.slow
def test_a_step_on_what_it_rewards(own_run: Run) -> None:
    graded = graded_of(own_run, rollouts(own_run, " 417", " 427", " 800", " 417" * 6))
    batch = read_batch(own_run.store, graded.ref)
    assert [sample.reward for sample in batch.samples()] == pytest.approx([1, 2 / 3, 0, None])
    assert [sample.ungraded_because for sample in batch.samples()] == [
        *(None, None, None),
        "ValueError: a response of 24 characters is too long",
    ]
    assert graded.metrics["reward/mean"] == pytest.approx(5 / 9)
    assert graded.metrics["reward/ungraded"] == 1

    with single_trainer(TINY_MODEL) as trainer:
        before = trainer.content_hash()
        assert trainer.apply(1, batch).optimizer_steps == 1
        assert trainer.content_hash() != before
