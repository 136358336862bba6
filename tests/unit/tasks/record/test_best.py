"""Which version is the best is one rule, and pruning keeps it and whatever a name points at."""

from collections.abc import Callable

import pytest
import torch

from tasks.record.best import aliases_of, best_version, save_aliases
from tasks.record.commits import StepCommit
from tasks.record.evaluation_report import EvaluationReport
from tasks.record.evaluations import save_report
from tasks.record.pruning import prune_weights
from tasks.record.run import Run
from tasks.record.versions import exported_versions
from tests.support.versions import commit_steps, stage_tensors


@pytest.fixture
def six(run: Run, make_commit: Callable[..., StepCommit], revised: Callable[..., Run]) -> Run:
    """A run that keeps two versions, with versions 0 to 5 committed."""
    run = revised(run, publish={"keep_versions": 2})
    commit_steps(run, make_commit, 6)
    return run


@pytest.fixture
def score(make_report: Callable[..., EvaluationReport]) -> Callable[..., None]:
    """Has a version evaluated: `score(run, version, avg_at_k)`, by default on the held-out problems."""

    def score(run: Run, version: int, avg_at_k: float, dataset: str = "held-out") -> None:
        save_report(run, make_report(version, dataset, avg_at_k=avg_at_k))

    return score


def test_before_the_first_commit_there_is_none(run: Run) -> None:
    assert best_version(run) is None
    stage_tensors(run, {"norm.weight": torch.ones(4)}, 0)
    assert best_version(run) is None


def test_without_an_evaluation_it_is_the_newest_committed_one(six: Run) -> None:
    stage_tensors(six, {"norm.weight": torch.full((4,), 6.0)}, 6)
    assert best_version(six) == 5


def test_it_has_the_highest_score_and_is_the_newest_of_equals(six: Run, score: Callable[..., None]) -> None:
    for version, accuracy in ((0, 0.1), (1, 0.9), (3, 0.9), (4, 0.2)):
        score(six, version, accuracy)
    assert best_version(six) == 3
    score(six, 4, 0.90625)
    assert best_version(six) == 4


def test_a_hard_data_set_does_not_demote_it_nor_an_easy_one_promote_another(
    six: Run, score: Callable[..., None]
) -> None:
    for version, accuracy in ((1, 0.5), (2, 0.9), (3, 0.7)):
        score(six, version, accuracy)
    score(six, 2, 0.0, "aime")  # the mean of both would be 0.45
    score(six, 3, 1.0, "sums")
    score(six, 4, 1.0, "sums")
    assert best_version(six) == 2


def test_with_evaluations_on_other_data_sets_alone_it_is_the_newest(
    six: Run, score: Callable[..., None]
) -> None:
    score(six, 1, 1.0, "sums")
    assert best_version(six) == 5


def test_a_version_that_was_never_committed_is_not_the_best(
    six: Run, score: Callable[..., None], make_commit: Callable[..., StepCommit]
) -> None:
    """The first try of step 6 was staged and evaluated by hand; the second was committed."""
    stage_tensors(six, {"norm.weight": torch.full((4,), 6.0)}, 6)
    score(six, 6, 1.0)
    score(six, 2, 0.5)
    assert best_version(six) == 2
    second = stage_tensors(six, {"norm.weight": torch.full((4,), 7.0)}, 6)
    six.commits.append(make_commit(6, weights=second))
    assert best_version(six) == 2


def test_a_version_whose_weights_are_gone_is_not_the_best(six: Run, score: Callable[..., None]) -> None:
    score(six, 2, 0.9)
    score(six, 4, 0.5)
    six.store.remove(six.weights_key(2))
    assert best_version(six) == 4


def test_the_first_the_current_and_the_best_are_kept(six: Run, score: Callable[..., None]) -> None:
    score(six, 1, 0.9)
    score(six, 2, 0.5)
    score(six, 1, 0.0, "aime")
    score(six, 2, 1.0, "aime")
    prune_weights(six, 5)
    assert exported_versions(six) == [0, 1, 4, 5]


def test_what_a_name_points_at_is_kept_after_the_best_moved_on(six: Run, score: Callable[..., None]) -> None:
    save_aliases(six, {"best": 2, "newest": 3})
    score(six, 2, 0.5)
    score(six, 5, 0.9)
    for _ in range(2):
        prune_weights(six, 5)
        assert exported_versions(six) == [0, 2, 3, 4, 5]

    save_aliases(six, {"best": 5, "newest": 5})
    prune_weights(six, 5)
    assert exported_versions(six) == [0, 4, 5]


def test_names_are_kept_with_the_run(run: Run) -> None:
    assert aliases_of(run) == {}
    save_aliases(run, {"best": 2, "newest": 3})
    assert aliases_of(run) == {"best": 2, "newest": 3}
    save_aliases(run, {"newest": 4})
    assert aliases_of(run) == {"newest": 4}
