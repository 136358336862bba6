"""Make the warm start of the embedded task: a small Llama that can work arithmetic out but mostly guesses.

    python -m tasks.problems.warm_start --out DIR [--seed 0]

Supervised training from random weights: first on worked solutions only, then on a mixture in which most
solutions are careless guesses. What reinforcement learning then gains is mainly the change of strategy
back from guessing to working out. Takes a few minutes on one CPU core; the folder is under 2 MB.
"""

import argparse
import logging
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from configs.reward import BoxedIntegerReward
from infra.folders import apply_umask
from tasks.problems.arithmetic import FAMILIES, arithmetic_source, boxed, worked_solution
from tasks.record.samples import Problem
from tasks.reward.responses import decode_responses

log = logging.getLogger(__name__)

PAD, BOS, EOS = "<pad>", "<bos>", "<eos>"
_IGNORED = -100  # label of tokens that carry no loss, as in transformers


@dataclass(frozen=True)
class Recipe:
    """Sizes and schedule of the supervised training."""

    tokenizer_texts: int = 4000
    vocabulary: int = 384
    """Upper bound, tokens; the texts are so regular that the merges end earlier."""
    hidden: int = 128
    layers: int = 2
    heads: int = 4
    feed_forward: int = 352
    context: int = 192
    """Tokens."""
    steps: int = 700
    batch: int = 96
    """Solutions a step."""
    worked_only: float = 0.75
    """Share of the steps that see nothing but worked solutions."""
    guesses: float = 0.65
    """Share of guessed solutions in the remaining steps."""
    right_guesses: float = 0.15
    """Share of the guesses that happen to be right."""
    learning_rate: float = 2e-3
    warmup_steps: int = 20


def build_tokenizer(texts: Iterator[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE with every digit a token of its own; encoding puts <bos> in front."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(r"\d"), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[PAD, BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    bos = tokenizer.token_to_id(BOS)
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, bos)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        clean_up_tokenization_spaces=False,
    )


def build_model(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Random fp32 weights; the matrices that write to the residual stream start smaller, as in GPT-2."""
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=recipe.hidden,
            intermediate_size=recipe.feed_forward,
            num_hidden_layers=recipe.layers,
            num_attention_heads=recipe.heads,
            num_key_value_heads=recipe.heads,
            max_position_embeddings=recipe.context,
            rms_norm_eps=1e-6,
            tie_word_embeddings=True,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
    )
    for name, parameter in model.named_parameters():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * recipe.layers))
        elif "embed" in name:
            nn.init.normal_(parameter, std=0.04)
    return model


def guessed_solution(problem: Problem, right: float, rng: random.Random) -> str:
    """An answer without any work: right with the given probability, else near the answer."""
    answer = int(problem.answer)
    if rng.random() >= right:
        miss = rng.choice([-100, -20, -10, -9, -3, -2, -1, 1, 2, 3, 9, 10, 20, 100])
        answer = max(0, answer + miss) % 1000
    return f" {boxed(str(answer))}"


class SupervisedTraining:
    """Muon on the hidden matrices, AdamW on the rest: AdamW alone failed to learn the method."""

    def __init__(self, recipe: Recipe, seed: int) -> None:
        torch.manual_seed(seed)
        self._recipe = recipe
        self._rng = random.Random(f"warm-start/{seed}")
        self._seed = seed
        self._source = arithmetic_source(list(FAMILIES))
        problems = self._source.training(seed, 0, recipe.tokenizer_texts)
        texts = (problem.prompt + worked_solution(problem) for problem in problems)
        self.tokenizer = build_tokenizer(texts, recipe.vocabulary)
        self.model = build_model(recipe, self.tokenizer)
        hidden = [p for name, p in self.model.named_parameters() if p.dim() == 2 and "embed" not in name]
        rest = [p for name, p in self.model.named_parameters() if p.dim() != 2 or "embed" in name]
        self._optimizers = [
            torch.optim.Muon(hidden, momentum=0.95, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(rest, betas=(0.9, 0.98), weight_decay=0.0),
        ]

    def run(self) -> list[float]:
        """All steps of the recipe; the loss of each, nats a token."""
        losses = []
        for step in range(self._recipe.steps):
            losses.append(self._step(step))
            if (step + 1) % 50 == 0:
                log.info("step %d of %d: loss %.3f", step + 1, self._recipe.steps, losses[-1])
        return losses

    def save(self, folder: Path) -> None:
        """Write model and tokenizer as a folder in Hugging Face's layout."""
        self.model.save_pretrained(folder)
        apply_umask(folder / "model.safetensors")
        self.tokenizer.save_pretrained(folder)

    def _step(self, step: int) -> float:
        ids_BT, labels_BT = self._batch(step)
        loss = self.model(input_ids=ids_BT, labels=labels_BT).loss
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self._learning_rate(step)
            optimizer.step()
            optimizer.zero_grad()
        return float(loss.detach())

    def _learning_rate(self, step: int) -> float:
        """Linear warm-up, then a cosine from the peak to a tenth of it."""
        cosine = 0.5 * (1 + math.cos(math.pi * step / self._recipe.steps))
        warmup = min(1.0, (step + 1) / self._recipe.warmup_steps)
        return self._recipe.learning_rate * warmup * (0.1 + 0.9 * cosine)

    def _batch(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Token ids and labels, padded on the right; only the solution and <eos> carry loss."""
        recipe = self._recipe
        ids, labels = [], []
        for problem in self._source.training(self._seed, step * recipe.batch, recipe.batch):
            prompt = self.tokenizer.encode(problem.prompt)
            solution = self.tokenizer.encode(self._solution(problem, step) + EOS)[1:]
            ids.append(torch.tensor(prompt + solution))
            labels.append(torch.tensor([_IGNORED] * len(prompt) + solution))
        pad = self.tokenizer.pad_token_id
        return (
            nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=pad),
            nn.utils.rnn.pad_sequence(labels, batch_first=True, padding_value=_IGNORED),
        )

    def _solution(self, problem: Problem, step: int) -> str:
        recipe = self._recipe
        if step < recipe.worked_only * recipe.steps or self._rng.random() >= recipe.guesses:
            return worked_solution(problem)
        return guessed_solution(problem, recipe.right_guesses, self._rng)


@torch.no_grad()
def accuracy(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, problems: list[Problem], sampled: bool
) -> float:
    """Share of the problems answered rightly, greedily or sampled at temperature 1."""
    prompts = tokenizer(
        [problem.prompt for problem in problems], padding=True, padding_side="left", return_tensors="pt"
    )
    output_BT = model.generate(
        input_ids=prompts.input_ids,
        attention_mask=prompts.attention_mask,
        max_new_tokens=48,
        do_sample=sampled,
        top_k=0 if sampled else None,
        pad_token_id=tokenizer.pad_token_id,
    )
    responses = output_BT[:, prompts.input_ids.shape[1] :].tolist()
    reward = BoxedIntegerReward().build()
    texts = decode_responses(tokenizer, responses)
    graded = [reward.grade(problem, text) for problem, text in zip(problems, texts, strict=True)]
    return sum(grade.is_right for grade in graded) / len(problems)


def main() -> None:
    """Train, report held-out accuracy, save."""
    parser = argparse.ArgumentParser(description="Make the warm start of the embedded task.")
    parser.add_argument("--out", type=Path, required=True, help="folder to write the model to")
    parser.add_argument("--seed", type=int, default=0, help="seed of weights, problems and guesses")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    training = SupervisedTraining(Recipe(), options.seed)
    training.run()
    problems = arithmetic_source(list(FAMILIES)).held_out(None, 200)
    greedy = accuracy(training.model, training.tokenizer, problems, sampled=False)
    sampled = accuracy(training.model, training.tokenizer, problems, sampled=True)
    log.info("held-out accuracy: greedy %.3f, sampled %.3f", greedy, sampled)
    training.save(options.out)


if __name__ == "__main__":
    main()
