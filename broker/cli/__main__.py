"""Entry point of `python -m moldau.broker.cli`, which runs the command `moldau`."""

from __future__ import annotations

import sys

from moldau.broker.cli.command import main

sys.exit(main())
