"""Where the time of a step went."""

from collections.abc import Mapping

from tasks.record.interval import Interval, covered

STAGES = ("generate", "grade", "train", "stage", "publish")


def step_times(stages: Mapping[str, Interval], beside: Interval | None, window: Interval) -> dict[str, float]:
    """time/* of a step, seconds; a stage that did not work is 0.

    `window` is the step from its beginning to its commit, and overhead what of it neither its stages cover
    nor what was done `beside` it for the next step.
    """
    at_work = [*stages.values(), *([beside] if beside else [])]
    return {
        "time/step": window.seconds,
        **{f"time/{name}": stages[name].seconds if name in stages else 0.0 for name in STAGES},
        "time/overhead": window.seconds - covered(at_work, window),
    }
