"""Rollout batches: what may be one, and that storing one loses nothing."""

import io
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.record.samples import Group, Problem, RolloutBatch, Sample, VersionSpan, batch_hash


def _random_sample(rng: random.Random) -> Sample:
    length = rng.randrange(6)
    cut = rng.randint(0, length)
    return Sample(
        prompt_tokens=tuple(rng.randrange(2**31) for _ in range(rng.randint(1, 5))),
        response_tokens=tuple(rng.randrange(2**31) for _ in range(length)),
        rollout_logprobs=tuple(float(np.float32(-rng.expovariate(1))) for _ in range(length)),
        spans=(VersionSpan(3, 0, cut), VersionSpan(4, cut, length))
        if 0 < cut < length
        else (VersionSpan(3, 0, length),),
        finish_reason=rng.choice(["stop", "length", "abort"]),
        reward=rng.choice([None, 0.0, 1.0]),
        ungraded_because=rng.choice([None, "it broke"]),
    )


def _random_batch(seed: int) -> RolloutBatch:
    rng = random.Random(seed)
    return RolloutBatch(
        step=rng.randrange(1000),
        groups=tuple(
            Group(
                Problem(
                    f"p{number}",
                    "2 + 2 = é\n",
                    rng.choice(["-7", "\\frac{1}{2}", "é"]),
                    rng.choice(["", "\\boxed{"]),
                    "sum",
                ),
                tuple(_random_sample(rng) for _ in range(rng.randint(1, 4))),
            )
            for number in range(rng.randrange(5))
        ),
        cursor=rng.randrange(1000),
    )


@pytest.mark.parametrize("seed", range(20))
def test_a_stored_batch_is_the_same_batch(seed: int) -> None:
    batch = _random_batch(seed)
    data = batch.to_parquet()
    assert RolloutBatch.from_parquet(data) == batch
    assert RolloutBatch.from_parquet(data).to_parquet() == data


def test_equal_batches_have_equal_bytes_and_others_have_not() -> None:
    data = _random_batch(5).to_parquet()
    assert batch_hash(_random_batch(5).to_parquet()) == batch_hash(data)
    assert batch_hash(_random_batch(6).to_parquet()) != batch_hash(data)


def test_a_table_of_something_else_is_refused() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"reward": [1.0]}), sink)
    with pytest.raises(ValueError, match="not a rollout batch"):
        RolloutBatch.from_parquet(sink.getvalue())


def test_a_sample_needs_a_log_probability_for_each_token() -> None:
    with pytest.raises(ValueError, match="2 response tokens but 1 log-probabilities"):
        Sample((1,), (2, 3), (-0.1,), (VersionSpan(0, 0, 2),), "stop")


def test_a_sample_needs_a_version_for_each_token() -> None:
    with pytest.raises(ValueError, match="cover 1 of 2"):
        Sample((1,), (2, 3), (-0.1, -0.2), (VersionSpan(0, 0, 1),), "stop")


def test_grading_changes_the_reward_only() -> None:
    sample = Sample((1,), (2,), (-0.1,), (VersionSpan(0, 0, 1),), "stop")
    assert sample.reward is None
    assert sample.graded(1.0).reward == 1.0
    assert sample.graded(1.0).graded(None) == sample
    assert sample.graded(None, "it broke").ungraded_because == "it broke"
    assert sample.graded(None, "it broke").graded(1.0) == sample.graded(1.0)
