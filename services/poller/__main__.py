"""Run poller."""

from poller.app import build
from poller.settings import Settings
from servicekit.lifecycle import main

if __name__ == "__main__":
    main(Settings, build)
