"""What Prefect logs of an error of the project's own: its line; other errors keep their traceback."""

import logging

from configs.errors import own_error

_LOGGERS = ("prefect.engine", "prefect.flow_runs", "prefect.task_runs")
"""Those by which Prefect tells how flow runs and task runs end, on the terminal and to its server."""


def one_line(record: logging.LogRecord) -> bool:
    """Filter of a logger: put the error's line in place of message and traceback; lets every record pass."""
    error = own_error(record.exc_info[1]) if record.exc_info else None
    if error is not None:
        record.msg, record.args = "%s: %s", (type(error).__name__, error.line)
        record.exc_info = record.exc_text = None
    return True


def leave_ends_to_the_command() -> None:
    """Keep off this terminal how flow runs and task runs failed: what failed for good the command says once,
    at its end, and the rest is healed. Prefect's UI has it all."""
    import prefect.main  # noqa: F401  # sets up the handlers

    for handler in logging.getLogger().handlers:
        handler.addFilter(lambda record: record.name not in _LOGGERS or record.levelno < logging.ERROR)


def install() -> None:
    """Have Prefect's loggers in this process tell known errors in one line; fine when they do."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(one_line)
