"""The root of the project's own errors: each is one line for a person, without a traceback."""

from typing import ClassVar


class OvernightError(Exception):
    """What this project says of what it cannot do; every exception class of its own is below it."""

    heals: ClassVar[bool] = False
    """Whether the same call may succeed later, so that trying again is worth while."""
    exit_code: ClassVar[int] = 1
    """What the command exits with."""

    @property
    def line(self) -> str:
        """The message as one line, also where it quotes a program that says more than one."""
        return " ".join(str(self).split())


class UserError(OvernightError):
    """Whoever typed the command can mend it: the line says what to change."""

    exit_code = 2


class RunFailure(OvernightError):
    """The run could not go on; the line says what happened and what to do."""


def own_error(error: BaseException | None) -> OvernightError | None:
    """The project's error that this one is, or that another process raised and it wraps; None for others.

    What Ray raises for an error of an actor has that error as its `cause`, and may be of its class, too.
    """
    cause = getattr(error, "cause", None)
    for candidate in (cause, error):
        if isinstance(candidate, OvernightError):
            return candidate
    return None
