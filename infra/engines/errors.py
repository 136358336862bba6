"""How a call to an engine can fail, and which failures may heal by themselves."""

from configs.errors import RunFailure


class EngineError(RunFailure):
    """A call to an engine did not do what was asked."""


class EngineUnreachable(EngineError):
    """Nothing answers at the address, the connection broke, or the engine is not ready yet."""

    heals = True


class EngineTimeout(EngineError):
    """No answer within the deadline."""

    heals = True


class EngineRefused(EngineError):
    """The engine said no (4xx, or success false), or the client did not even ask; the message says why."""


class EngineFailed(EngineError):
    """The engine broke while it served the call (5xx), or gave an answer that is not the protocol's."""
