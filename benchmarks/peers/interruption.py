"""An interrupted benchmark leaves nothing behind."""

import signal


def end_cleanly() -> None:
    """Let SIGINT and SIGTERM end the main thread by KeyboardInterrupt, so that every `finally` and folder is seen to.

    A shell that starts a program in the background has it ignore SIGINT, and SIGTERM ends Python at once: both are set.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
