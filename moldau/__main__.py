"""`python -m moldau` is the command `moldau`, which `main` runs."""

from __future__ import annotations

import sys

from moldau.broker.cli.command import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
