"""Run collection_writer."""

from collection_writer.app import build
from collection_writer.settings import Settings
from servicekit.lifecycle import main

if __name__ == "__main__":
    main(Settings, build)
