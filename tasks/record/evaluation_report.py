"""What an evaluation found."""

import re

from pydantic import BaseModel, ConfigDict

from configs.evaluation import EvaluationConfig
from tasks.record.shown import ShownSample
from tasks.record.stored import Document, Record


class ProblemResult(BaseModel):
    """The answers to one problem, as the run's reward reads them; None is a response without one."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    id: str
    answer: str
    """The right answer."""
    greedy_answer: str | None
    greedy_correct: bool
    sampled_answers: tuple[str | None, ...]
    correct: int
    """How many of the sampled answers are right."""


class EvaluationReport(Record):
    """Accuracy of one weight version on one dataset; shares lie between 0 and 1."""

    schema_number = 2
    dataset: str
    version: int
    """Weight version that gave every answer."""
    n: int
    """Problems."""
    k: int
    """Sampled answers a problem."""
    greedy: float
    """Share of problems answered rightly at temperature 0."""
    greedy_by_family: dict[str, float]
    """The same for each family of problems; empty when the dataset has none."""
    avg_at_k: float
    """Mean share of right answers among the k samples."""
    ci_low: float
    """Lower end of the 95 % bootstrap interval of avg_at_k over problems."""
    ci_high: float
    """Upper end of it."""
    pass_at_k: float
    """Share of problems with a right answer among the k samples."""
    maj_at_k: float
    """Share of problems whose most frequent sampled answer is right."""
    truncated_fraction: float
    """Share of responses, greedy ones included, that were cut at the longest length."""
    too_long: int
    """Problems whose prompt does not fit in engine.context_length; they count as answered wrongly."""
    ungraded: int
    """Answers, greedy ones included, that the reward failed on; they count as wrong."""
    settings: EvaluationConfig
    """How it was evaluated."""
    problems: tuple[ProblemResult, ...]
    samples: tuple[ShownSample, ...] = ()
    """The responses to the first problems, long ones cut in the middle."""
    finished_at: float = 0.0
    """Unix time, seconds; 0 where it was not noted."""

    @classmethod
    def upgraded(cls, document: Document) -> Document:
        """Schema 1 has integers for answers, and no answer that went ungraded."""
        problems = [_with_answers_as_text(problem) for problem in document["problems"]]
        return {**document, "ungraded": 0, "problems": problems}

    @property
    def prefix(self) -> str:
        """What the names of its metrics begin with, `eval/<dataset>`."""
        return "eval/" + re.sub(r"[^A-Za-z0-9_.-]", "_", self.dataset)

    def metrics(self) -> dict[str, float]:
        """Values by MLflow name, `eval/<dataset>/...`."""
        names = (
            "greedy",
            "avg_at_k",
            "ci_low",
            "ci_high",
            "pass_at_k",
            "maj_at_k",
            "truncated_fraction",
            "too_long",
            "ungraded",
        )
        figures = {name: float(getattr(self, name)) for name in names}
        by_family = {f"greedy_{family}": value for family, value in self.greedy_by_family.items()}
        return {f"{self.prefix}/{name}": value for name, value in (figures | by_family).items()}


def _with_answers_as_text(problem: Document) -> Document:
    def text(answer: int | None) -> str | None:
        return None if answer is None else str(answer)

    return {
        **problem,
        "answer": text(problem["answer"]),
        "greedy_answer": text(problem["greedy_answer"]),
        "greedy_correct": problem["greedy_answer"] == problem["answer"],
        "sampled_answers": [text(answer) for answer in problem["sampled_answers"]],
    }
