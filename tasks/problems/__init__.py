"""Sources of problems. `build_source` builds the one a config names."""

from configs.problems import AdditionProblems, ArithmeticProblems, JsonlProblems, ProblemsConfig
from tasks.problems.addition import addition_source
from tasks.problems.arithmetic import arithmetic_source
from tasks.problems.base import ProblemSource
from tasks.problems.jsonl import JsonlSource


def build_source(config: ProblemsConfig) -> ProblemSource:
    """The source of a configuration; DataError when its file is missing or has a broken line."""
    match config:
        case ArithmeticProblems():
            return arithmetic_source(config.families)
        case AdditionProblems():
            return addition_source()
        case JsonlProblems():
            return JsonlSource(config)
