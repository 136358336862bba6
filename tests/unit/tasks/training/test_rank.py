"""One trainer rank on its own: steps, gates, checkpoints and exports."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from tasks.model.errors import TrainerError
from tasks.record.samples import RolloutBatch, VersionSpan
from tasks.training.errors import CheckpointUnusable, StepOutOfOrder, StepRefused
from tests.support.training import graded_batch, lonely_batch


def weights(trainer, model, folder):
    trainer.export_to(folder)
    return load_file(folder / "model.safetensors")


def largest_difference(one, other):
    assert one.keys() == other.keys()
    return max((one[name] - other[name]).abs().max().item() for name in one)


def with_rewards(batch, reward):
    groups = [
        replace(group, samples=tuple(sample.graded(reward) for sample in group.samples))
        for group in batch.groups
    ]
    return RolloutBatch(batch.step, tuple(groups))


def test_scores_are_those_of_transformers(start_trainer, model):
    sequences = [[3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1], [8, 2, 8, 1, 8]]
    reference = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    for tokens, scored in zip(sequences, start_trainer().score(sequences), strict=True):
        ids = torch.tensor([tokens])
        logprobs = reference(ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
        assert scored == pytest.approx(logprobs.tolist(), abs=1e-5)


def test_a_step_reports_what_transformers_gives_at_the_rollout_temperature(start_trainer, model):
    batch = graded_batch(1)
    reference = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    differences, entropies = [], []
    for sample in batch.samples():
        ids = torch.tensor([sample.prompt_tokens + sample.response_tokens])
        start = len(sample.prompt_tokens)
        logprobs = (reference(ids).logits[0, start - 1 : -1].double() / 0.8).log_softmax(-1)
        chosen = logprobs.gather(1, ids[0, start:, None])[:, 0]
        differences += (chosen - torch.tensor(sample.rollout_logprobs, dtype=torch.float64)).abs().tolist()
        entropies += (-(logprobs.exp() * logprobs).sum(-1)).tolist()
    report = start_trainer().apply(1, batch)
    assert report.metrics["divergence/logprob_abs_diff_max"] == pytest.approx(max(differences), abs=1e-5)
    assert report.metrics["divergence/logprob_abs_diff_mean"] == pytest.approx(
        sum(differences) / len(differences), abs=1e-5
    )
    assert report.metrics["policy/entropy"] == pytest.approx(sum(entropies) / len(entropies), abs=1e-5)
    assert {"rollout/lag_mean", "rollout/lag_max"} <= report.metrics.keys()
    assert report.metrics["policy/lr"] == pytest.approx(5e-4)


def test_a_step_credits_the_versions_that_generated_its_batch(start_trainer):
    def halved(sample):
        count = len(sample.response_tokens)
        return replace(sample, spans=(VersionSpan(3, 0, count // 2), VersionSpan(4, count // 2, count)))

    groups = [replace(group, samples=tuple(map(halved, group.samples))) for group in graded_batch(1).groups]
    report = start_trainer(algorithm={"minibatches": 2}).apply(1, RolloutBatch(1, tuple(groups)), version=4)
    three, four = report.credits
    assert (three.version, four.version) == (3, 4)
    tokens = sum(len(sample.response_tokens) for group in groups for sample in group.samples)
    assert 0 < three.tokens < four.tokens == tokens - three.tokens
    assert three.tokens == report.metrics["divergence/mismatched_version_tokens"]
    assert three.divergence != four.divergence and three.entropy != four.entropy
    both = three.model_copy(update={"version": 4}) + four
    assert both.divergence == pytest.approx(report.metrics["divergence/logprob_abs_diff_mean"], rel=1e-6)
    assert both.entropy == pytest.approx(report.metrics["policy/entropy"], rel=1e-5)


def test_training_raises_the_probability_of_what_was_rewarded(start_trainer):
    trainer = start_trainer(algorithm={"tis_cap": None})
    batch = graded_batch(1)

    def preference():
        rewarded = [sample for group in batch.groups for sample in group.samples if sample.response_tokens]
        scored = trainer.score([[*sample.prompt_tokens, *sample.response_tokens] for sample in rewarded])
        totals = [sum(s[len(x.prompt_tokens) - 1 :]) for s, x in zip(scored, rewarded, strict=True)]
        return sum(total * (1 if x.reward else -1) for total, x in zip(totals, rewarded, strict=True))

    before = preference()
    for step in (1, 2, 3):
        trainer.apply(step, RolloutBatch(step, batch.groups))
    assert preference() > before + 1


def test_the_update_is_adams_on_the_clipped_gradient_at_the_warmed_up_rate(start_trainer, model, tmp_path):
    def change(name, **trainer):
        started = start_trainer(trainer={"adam_eps": 1.0, "learning_rate": 0.5, **trainer})
        norm = started.apply(1, graded_batch(1)).metrics["policy/grad_norm"]
        source, updated = load_file(model / "model.safetensors"), weights(started, model, tmp_path / name)
        return norm, torch.cat([(updated[key] - source[key]).double().flatten() for key in sorted(source)])

    norm, unclipped = change("unclipped", grad_clip=1e9, warmup_steps=0)
    gradient = -unclipped / (0.5 - unclipped.abs())  # Adam's first step is -lr g / (|g| + eps)
    assert gradient.norm().item() == pytest.approx(norm, rel=1e-4)
    _, clipped = change("clipped", grad_clip=norm / 10, warmup_steps=4)
    expected = -0.5 / 4 * (gradient / 10) / (gradient.abs() / 10 + 1)
    assert (clipped - expected).abs().max() <= 1e-6


def test_a_step_is_never_applied_twice_and_steps_follow_each_other(start_trainer):
    trainer = start_trainer()
    first = trainer.apply(1, graded_batch(1))
    applied = trainer.content_hash()
    assert trainer.apply(1, graded_batch(1)) == first
    assert trainer.content_hash() == applied
    with pytest.raises(StepOutOfOrder, match=r"step 3 .* has applied step 1: give it step 2"):
        trainer.apply(3, graded_batch(3))
    with pytest.raises(StepOutOfOrder, match="step 2 with the batch of step 7"):
        trainer.apply(2, graded_batch(7))
    assert trainer.applied_step() == 1


def test_the_same_batch_and_state_give_the_same_bits(start_trainer):
    hashes = set()
    for _ in range(2):
        trainer = start_trainer()
        hashes.add((trainer.apply(1, graded_batch(1)).metrics["policy/loss"], trainer.content_hash()))
    assert len(hashes) == 1


def test_microbatches_do_not_change_the_update(start_trainer, model, tmp_path):
    updated = {}
    for tokens in (64, 16384):
        trainer = start_trainer(trainer={"microbatch_tokens": tokens})
        for step in (1, 2):
            trainer.apply(step, graded_batch(step))
        updated[tokens] = weights(trainer, model, tmp_path / str(tokens))
    assert largest_difference(updated[64], updated[16384]) <= 1e-6
    assert largest_difference(updated[64], load_file(model / "model.safetensors")) > 1e-4


def test_minibatches_take_one_optimizer_step_each_off_the_first_weights(start_trainer):
    report = start_trainer(algorithm={"minibatches": 3}, trainer={"learning_rate": 1e-2}).apply(
        1, graded_batch(1)
    )
    assert report.optimizer_steps == 3
    assert abs(report.metrics["policy/ppo_kl"]) > 1e-4
    on_policy = start_trainer().apply(1, graded_batch(1))
    assert on_policy.optimizer_steps == 1
    assert on_policy.metrics["policy/ppo_kl"] == 0
    assert on_policy.metrics["policy/clip_fraction"] == 0


def test_a_batch_without_a_usable_group_counts_but_changes_nothing(start_trainer):
    trainer = start_trainer()
    before = trainer.content_hash()
    report = trainer.apply(1, with_rewards(graded_batch(1), 1.0))
    assert (report.optimizer_steps, trainer.applied_step()) == (0, 1)
    assert trainer.content_hash() == before
    assert "policy/loss" not in report.metrics
    assert trainer.apply(2, RolloutBatch(2, ())).optimizer_steps == 0


@pytest.mark.parametrize("minibatches", [1, 3])
def test_a_refused_step_leaves_weights_and_optimizer_unchanged(start_trainer, minibatches):
    algorithm = {"minibatches": minibatches, "tis_cap": 1e38}
    undisturbed = start_trainer(algorithm=algorithm)
    for step in (1, 2):
        undisturbed.apply(step, graded_batch(step))
    wanted = undisturbed.content_hash()

    trainer = start_trainer(algorithm=algorithm, gates={"max_logprob_diff": 100.0})
    trainer.apply(1, graded_batch(1))
    before = trainer.content_hash()
    with pytest.raises(StepRefused, match="max_logprob_diff"):
        trainer.apply(2, shifted(graded_batch(2), 200.0, first=0))
    with pytest.raises(StepRefused, match="not finite"):
        # weights overflow in the last group alone, after the other minibatches' optimizer steps
        trainer.apply(2, shifted(graded_batch(2), -95.0, first=5))
    assert (trainer.content_hash(), trainer.applied_step()) == (before, 1)
    trainer.apply(2, graded_batch(2))
    assert trainer.content_hash() == wanted


def shifted(batch, nats, first):
    """The batch with the rollout log-probabilities of its groups from `first` on moved."""
    groups = [
        replace(
            group,
            samples=tuple(
                replace(sample, rollout_logprobs=tuple(value + nats for value in sample.rollout_logprobs))
                for sample in group.samples
            ),
        )
        for group in batch.groups[first:]
    ]
    return RolloutBatch(batch.step, (*batch.groups[:first], *groups))


def test_tokens_of_another_version_are_counted_but_not_gated(start_trainer):
    trainer = start_trainer(gates={"max_logprob_diff": 1e-9})
    batch = graded_batch(1)
    with pytest.raises(StepRefused):
        trainer.apply(1, batch)
    report = trainer.apply(1, batch, version=7)
    tokens = sum(len(sample.response_tokens) for sample in batch.samples())
    assert report.metrics["divergence/mismatched_version_tokens"] == tokens


def test_non_finite_rollout_log_probabilities_stop_the_step(start_trainer):
    trainer = start_trainer()
    with pytest.raises(StepRefused, match="not finite"):
        trainer.apply(1, shifted(graded_batch(1), math.nan, first=0))
    assert trainer.applied_step() == 0


def test_a_checkpoint_goes_on_to_the_same_bits(start_trainer, tmp_path):
    trainer = start_trainer(trainer={"weight_decay": 0.1})
    for step in (1, 2):
        report = trainer.apply(step, graded_batch(step))
    generator = torch.get_rng_state()
    trainer.save("unit/saved")
    trainer.apply(3, lonely_batch(3))
    wanted = trainer.content_hash()
    torch.manual_seed(123)

    restored = start_trainer(trainer={"weight_decay": 0.1})
    restored.restore("unit/saved")
    assert restored.applied_step() == 2
    assert torch.equal(torch.get_rng_state(), generator)
    assert restored.apply(2, graded_batch(2)) == report
    restored.apply(3, lonely_batch(3))
    assert restored.content_hash() == wanted
    restored.save("unit/saved")
    saved = tmp_path / "home" / "runs" / "unit" / "saved"
    assert {path.name for path in saved.iterdir()} == {"index.json", "rank-000.pt"}
    assert json.loads((saved / "index.json").read_text())["step"] == 3


def test_an_incomplete_or_foreign_checkpoint_is_refused(start_trainer, tmp_path):
    trainer = start_trainer()
    with pytest.raises(CheckpointUnusable, match="unit/saved: no such folder"):
        trainer.restore("unit/saved")
    (tmp_path / "home" / "runs" / "unit" / "empty").mkdir(parents=True)
    with pytest.raises(CheckpointUnusable, match="is not a trainer checkpoint"):
        trainer.restore("unit/empty")
    trainer.save("unit/saved")
    index = tmp_path / "home" / "runs" / "unit" / "saved" / "index.json"
    index.write_text(index.read_text().replace('"tensor_parallel": 1', '"tensor_parallel": 4'))
    with pytest.raises(CheckpointUnusable, match=r"trainer\.tensor_parallel 4, and the config has 1"):
        trainer.restore("unit/saved")


def test_an_export_is_a_folder_that_transformers_loads(start_trainer, model, tmp_path: Path):
    (model / "tokenizer.json").write_text("{}")
    trainer = start_trainer()
    trainer.apply(1, graded_batch(1))
    manifest = trainer.export_to(tmp_path / "v1")
    assert manifest is not None
    assert manifest.hash == trainer.content_hash()
    assert json.loads((tmp_path / "v1" / "manifest.json").read_text()) == manifest.model_dump(mode="json")
    assert (tmp_path / "v1" / "tokenizer.json").read_text() == "{}"
    assert list((tmp_path / "home" / "runs" / ".unfinished").iterdir()) == []

    reloaded = AutoModelForCausalLM.from_pretrained(tmp_path / "v1", dtype=torch.float32)
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    expected = reloaded(ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
    assert trainer.score(ids.tolist())[0] == pytest.approx(expected.tolist(), abs=1e-5)


def test_buckets_hold_every_tensor_within_their_size(start_trainer, model):
    trainer = start_trainer(publish={"bucket_mb": 0.02})
    buckets = trainer.buckets()
    whole = load_file(model / "model.safetensors")
    assert {spec.name: spec.shape for bucket in buckets for spec in bucket} == {
        name: tuple(tensor.shape) for name, tensor in whole.items()
    }
    sizes = [sum(4 * math.prod(spec.shape) for spec in bucket) for bucket in buckets]
    assert len(sizes) > 2
    assert max(sizes) <= 0.02 * 2**20


@pytest.mark.parametrize(("field", "value"), [("dtype", "bfloat16"), ("backend", "nccl")])
@pytest.mark.skipif(torch.cuda.is_available(), reason="asks for what only a GPU has")
def test_what_needs_a_gpu_says_so(start_trainer, field, value):
    with pytest.raises(TrainerError, match=rf'trainer\.{field} "{value}" needs a GPU'):
        start_trainer(trainer={field: value})
