"""Samples as people read them: text, and a word on how each was judged."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, computed_field

Verdict = Literal["right", "partial", "wrong", "ungraded"]


class ShownSample(BaseModel):
    """A response, whole or cut in the middle (`cut_short`)."""

    model_config = ConfigDict(frozen=True, extra="ignore")  # the verdict is told, and worked out anew
    step: int | None
    """Step whose batch it is of; None for one of an evaluation."""
    dataset: str | None
    """Data set of the evaluation that it is of; None for one of a step."""
    versions: tuple[int, ...]
    """Weight versions that generated it, in order."""
    problem: str
    """Id of the problem."""
    prompt: str
    answer: str
    """The right answer."""
    greedy: bool
    """Generated at temperature 0, else sampled."""
    response: str
    tokens: int
    """Length of the response."""
    truncated: bool
    """Whether it was cut at the longest length."""
    reward: float | None
    """None is ungraded."""
    ungraded_because: str | None = None

    @computed_field  # type: ignore[prop-decorator]  # mypy knows none on properties
    @property
    def verdict(self) -> Verdict:
        """right: the full reward of 1. partial: some of it. wrong: none, or less."""
        if self.reward is None:
            return "ungraded"
        return "right" if self.reward >= 1 else "partial" if self.reward > 0 else "wrong"

    @property
    def by(self) -> str:
        """Who wrote it, and how: `v3`, `v3,4`, `v3 greedy`."""
        return f"v{','.join(map(str, self.versions))}{' greedy' if self.greedy else ''}"

    def cut_short(self, characters: int) -> "ShownSample":
        """The same with prompt and response of about so many characters each, beginning and end kept."""
        return self.model_copy(
            update={"prompt": _cut(self.prompt, characters), "response": _cut(self.response, characters)}
        )


def _cut(text: str, characters: int) -> str:
    if len(text) <= characters:
        return text
    half = characters // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters ...]\n{text[-half:]}"
