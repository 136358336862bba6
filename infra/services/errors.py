"""What can go wrong with a service. Every message is one line that says what to change."""

from configs.errors import UserError


class ServiceError(UserError):
    """A service cannot be started, found or asked."""


class PortTakenError(ServiceError):
    """The port of a service is in use by a program that is not this project's."""
