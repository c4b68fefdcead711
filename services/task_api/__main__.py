"""Run task_api."""

from servicekit.lifecycle import main
from task_api.app import build
from task_api.settings import Settings

if __name__ == "__main__":
    main(Settings, build)
