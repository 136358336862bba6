"""Bases of the errors that people read: one line, without a traceback."""


class UserError(ValueError):
    """Whoever typed the command can mend it: the line says what to change; exit code 2."""


class RunFailure(RuntimeError):
    """The run could not go on; the line says what happened and what to do. Exit code 1."""
