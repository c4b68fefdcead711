"""Run export_worker."""

from export_worker.app import build
from export_worker.settings import Settings
from servicekit.lifecycle import main

if __name__ == "__main__":
    main(Settings, build)
