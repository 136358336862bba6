"""Whoever runs a flow imports this package: the command, and the process that a worker starts."""

from flows.own_packages import require_own_packages

require_own_packages()

from flows import log_filter  # noqa: E402  (it imports one of them)

log_filter.install()
