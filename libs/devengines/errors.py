"""What went wrong with an engine."""


class EngineError(RuntimeError):
    """Say which engine could not be started, and why."""


class EngineMissingError(EngineError):
    """Say which engine is not installed, and how to get it."""
