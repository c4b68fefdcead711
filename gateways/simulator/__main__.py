"""`python -m gateways.simulator`."""

import sys

from gateways.simulator.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
