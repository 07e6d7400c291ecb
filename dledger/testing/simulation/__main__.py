"""Entry point of `python -m dledger.testing.simulation`."""

import sys

from dledger.testing.simulation.command import app

if __name__ == "__main__":
    sys.exit(app())
