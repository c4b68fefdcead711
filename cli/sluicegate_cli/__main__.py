"""`python -m sluicegate_cli` is the same as `sluicegate`."""

from sluicegate_cli.main import run

if __name__ == "__main__":
    run()
