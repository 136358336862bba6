"""The script that makes the warm start, at a small fraction of its steps."""

import random

import pytest
from transformers import AutoModelForCausalLM

from configs.model import FolderModel
from configs.reward import BoxedIntegerReward
from infra.home import Home
from tasks.model.source import prepare_model, prepared_tokenizer
from tasks.problems.arithmetic import FAMILIES, arithmetic_source
from tasks.problems.warm_start import Recipe, SupervisedTraining, accuracy, guessed_solution

PROBLEMS = arithmetic_source(list(FAMILIES)).training(seed=0, start=0, count=400)


def test_guesses_are_boxed_answers_mostly_wrong():
    rng = random.Random(0)
    guesses = [(problem, guessed_solution(problem, 0.15, rng)) for problem in PROBLEMS]
    grades = [BoxedIntegerReward().build().grade(*each) for each in guesses]
    assert all(int(grade.answer) in range(1000) for grade in grades)
    assert 0.08 < sum(grade.is_right for grade in grades) / 400 < 0.25


@pytest.mark.slow
def test_training_learns_and_leaves_a_model_that_loads(tmp_path):
    recipe = Recipe(tokenizer_texts=300, steps=30, batch=32)
    training = SupervisedTraining(recipe, seed=1)
    losses = training.run()
    assert len(losses) == 30
    assert losses[-1] < 0.6 * losses[0]
    training.save(tmp_path / "model")

    config, home = FolderModel(path=tmp_path / "model"), Home(tmp_path)
    tokenizer = prepared_tokenizer(config, home)
    model = AutoModelForCausalLM.from_pretrained(prepare_model(config, home))
    assert (tmp_path / "model" / "model.safetensors").stat().st_size < 2_000_000
    ids = tokenizer(PROBLEMS[0].prompt).input_ids
    assert ids[0] == tokenizer.bos_token_id
    assert tokenizer.decode(ids, skip_special_tokens=True) == PROBLEMS[0].prompt
    assert tokenizer.tokenize("1234") == ["1", "2", "3", "4"]
    assert 0.0 <= accuracy(model, tokenizer, PROBLEMS[:4], sampled=True) <= 1.0  # type: ignore[arg-type]


def test_the_same_seed_makes_the_same_weights():
    recipe = Recipe(tokenizer_texts=50, steps=2, batch=4)
    first, second = SupervisedTraining(recipe, seed=0), SupervisedTraining(recipe, seed=0)
    assert first.run() == second.run()
    assert SupervisedTraining(recipe, seed=1).run() != first.run()
