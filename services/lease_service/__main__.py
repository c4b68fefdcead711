"""Run the lease service: ``python -m lease_service``."""

from lease_service.app import build
from lease_service.settings import Settings
from servicekit.lifecycle import main

if __name__ == "__main__":
    main(Settings, build)
