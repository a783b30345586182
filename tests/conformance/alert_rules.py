"""`python -m tests.conformance.alert_rules`: Prometheus' own promtool takes the alert rules and the configuration that
docs/prometheus/ ships, and the rules say what they should of made-up series.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.conformance.toolchain import Missing, Toolchain

SHIPPED: Final = Path(__file__).parents[2] / "docs" / "prometheus"
STORIES: Final = Path(__file__).parent / "alert_rules.yml"
COMMANDS: Final = (
    ("check", "rules", SHIPPED / "alerts.yml"),
    ("check", "config", SHIPPED / "prometheus.yml"),
    ("test", "rules", STORIES),
)


def main() -> int:
    try:
        promtool = Toolchain(fetch=False).promtool()
    except Missing as missing:
        print(missing, file=sys.stderr)
        return 1
    return max(subprocess.run([promtool, *map(str, command)]).returncode for command in COMMANDS)


if __name__ == "__main__":
    sys.exit(main())
