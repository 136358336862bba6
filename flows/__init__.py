"""Whoever runs a flow imports this package: the command, and the process that a worker starts."""

from flows import log_filter

log_filter.install()
