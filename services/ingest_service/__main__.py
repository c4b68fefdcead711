"""Run ingest_service: ``python -m ingest_service``."""

from ingest_service.app import build
from ingest_service.settings import Settings
from servicekit.lifecycle import main

if __name__ == "__main__":
    main(Settings, build)
