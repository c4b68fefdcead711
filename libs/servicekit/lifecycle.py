"""The life of a process: everything that a composition root and a ``__main__`` need, in one import."""

from servicekit.entry import main
from servicekit.loop import Loop
from servicekit.process import App, Component, StartFailed, run, serve

__all__ = ["App", "Component", "Loop", "StartFailed", "main", "run", "serve"]
