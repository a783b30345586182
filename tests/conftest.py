"""How the tests are spread over processes: `make test` runs two.

A file stays in one process, because its tests share what its fixtures build. All tests with Spark stay in one: they
share a JVM, which takes longer to start than most of them to run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

SPARK: Final = Path(__file__).parent / "spark"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        group = SPARK if item.path.is_relative_to(SPARK) else item.path
        item.add_marker(pytest.mark.xdist_group(str(group)))
