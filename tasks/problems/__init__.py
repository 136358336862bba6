"""Sources of problems. `build_source` builds the one a configuration names."""

from configs.problems import AdditionProblems, ArithmeticProblems, JsonlProblems
from configs.run import RunConfig
from tasks.problems.addition import addition_source
from tasks.problems.arithmetic import arithmetic_source
from tasks.problems.base import ProblemSource
from tasks.problems.jsonl import JsonlSource


def build_source(config: RunConfig) -> ProblemSource:
    """The source of a run's problems.

    DataError when its file is missing or has a broken line or an answer that the run's reward cannot take.
    """
    match config.problems:
        case ArithmeticProblems(families=families):
            return arithmetic_source(families)
        case AdditionProblems():
            return addition_source()
        case JsonlProblems():
            return JsonlSource(config.problems, config.reward.build())
