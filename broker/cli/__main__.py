"""`python -m broker.cli` is `moldau`."""

from __future__ import annotations

import sys

from broker.cli.command import main

sys.exit(main())
