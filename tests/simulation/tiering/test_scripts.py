"""What a storage does that is away, refuses, or is full, for ten minutes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.tiering import scripts


@pytest.mark.parametrize("script", scripts.LONG, ids=lambda script: str(script.__name__))
def test_script(script: Callable[[int], None]) -> None:
    script(0)
