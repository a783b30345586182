"""`python -m tests.simulation.cluster`: see `campaign`."""

from __future__ import annotations

import sys

from tests.simulation.cluster.campaign import main

if __name__ == "__main__":
    sys.exit(main())
