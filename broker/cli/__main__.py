"""Entry point of `python -m broker.cli`, which runs the command `moldau`."""

from __future__ import annotations

import sys

from broker.cli.command import main

sys.exit(main())
