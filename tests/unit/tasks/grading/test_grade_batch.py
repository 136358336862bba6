"""Grading a rollout batch, and its metrics."""

from pathlib import Path

import pytest
from transformers import AutoTokenizer

import configs
from configs.reward import BoxedIntegerReward
from tasks.grading.grade import grade_batch
from tasks.grading.metrics import reward_metrics
from tasks.record.samples import Group, Problem, RolloutBatch, Sample, VersionSpan
from tasks.reward.base import Grade, Reward
from tasks.rollout.metrics import rollout_metrics

REWARD = BoxedIntegerReward().build()
MODEL = Path(configs.__file__).parent / "models" / "tiny-arithmetic"


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(MODEL)


@pytest.fixture(scope="module")
def sample(tokenizer):
    def make(text, finish_reason="stop"):
        tokens = tuple(tokenizer(text, add_special_tokens=False).input_ids)
        if finish_reason == "stop":
            tokens += (tokenizer.eos_token_id,)
        spans = (VersionSpan(3, 0, len(tokens)),)
        return Sample((1, 2), tokens, (-0.5,) * len(tokens), spans, finish_reason)

    return make


@pytest.fixture(scope="module")
def graded(tokenizer, sample):
    addition = Problem("b", "12 + 5 = \\boxed{", "17", response_prefix="\\boxed{")
    batch = RolloutBatch(
        step=4,
        groups=(
            Group(
                Problem("a", "?", "13"),
                (
                    sample(r" 6+7=13. \boxed{13}"),
                    sample(r" \boxed{12}"),
                    sample(r" \boxed{13} 13 13", "length"),
                ),
            ),
            Group(addition, (sample("17}"), sample("017}"), sample("1", "abort"))),
            Group(Problem("c", "?", "5"), (sample("5"), sample(r"\boxed{6}"), sample(r"\boxed{5", "length"))),
        ),
    )
    return grade_batch(batch, REWARD, tokenizer)


def test_rewards(graded):
    rewards = [[sample.reward for sample in group.samples] for group in graded.groups]
    assert rewards == [[1.0, 0.0, 1.0], [1.0, 1.0, None], [0.0, 0.0, 0.0]]
    reasons = {sample.ungraded_because for sample in graded.samples() if sample.finish_reason != "abort"}
    assert reasons == {None}
    assert graded.groups[1].samples[2].ungraded_because == "the response was aborted"


def test_grading_changes_nothing_but_rewards(graded, tokenizer):
    assert graded.step == 4
    assert grade_batch(graded, REWARD, tokenizer) == graded
    assert RolloutBatch.from_parquet(graded.to_parquet()) == graded


def test_metrics(graded):
    metrics = reward_metrics(graded) | rollout_metrics(graded)
    lengths = [len(sample.response_tokens) for sample in graded.samples()]
    assert metrics == {
        "reward/mean": pytest.approx(4 / 8),
        "reward/std": pytest.approx(0.5),
        "reward/pass_rate": pytest.approx(4 / 8),
        "reward/zero_std_groups": 2.0,
        "reward/ungraded": 1.0,
        "rollout/tokens": float(sum(lengths)),
        "rollout/response_length_mean": pytest.approx(sum(lengths) / 9),
        "rollout/truncated_fraction": pytest.approx(2 / 9),
    }


def test_a_batch_without_any_graded_sample_claims_no_reward(tokenizer, sample):
    batch = RolloutBatch(1, (Group(Problem("a", "?", "1"), (sample("1", "abort"),)),))
    metrics = reward_metrics(grade_batch(batch, REWARD, tokenizer))
    assert metrics["reward/ungraded"] == 1.0
    assert "reward/mean" not in metrics


class PickyReward(Reward):
    """Refuses to read some responses, and gives no number for others."""

    def grade(self, problem, response):
        if "!" in response:
            raise ZeroDivisionError("no share of\nnothing")
        return Grade(reward=float(response))

    def check_gold(self, answer):
        return answer


def test_what_a_reward_fails_on_is_ungraded_with_the_reason_and_no_zero(tokenizer, sample, caplog):
    group = Group(Problem("a", "?", "1"), tuple(map(sample, ["1", "!", "0", "nan"])))
    graded = grade_batch(RolloutBatch(3, (group,)), PickyReward(), tokenizer)
    assert [each.reward for each in graded.samples()] == [1.0, None, 0.0, None]
    assert [each.ungraded_because for each in graded.samples()] == [
        None,
        "ZeroDivisionError: no share of nothing",
        None,
        "ValueError: a reward must be finite, not nan",
    ]
    assert RolloutBatch.from_parquet(graded.to_parquet()) == graded
    metrics = reward_metrics(graded)
    assert (metrics["reward/ungraded"], metrics["reward/mean"]) == (2.0, 0.5)
    assert "step 3: 2 samples are ungraded, the first: ZeroDivisionError" in caplog.text
