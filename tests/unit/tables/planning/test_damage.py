"""Random damage of files and objects: never other rows in silence, and the audit finds it.

`python -m tests.spark.under_damage --count 500` is the long form.
"""

from __future__ import annotations

import pytest

from tests.support.damaged_places import DAMAGES, PLACES, REFUSED, RIGHT, run_damages

pytestmark = pytest.mark.slow


def test_no_damage_changes_rows_in_silence_and_the_audit_finds_each() -> None:
    outcomes = run_damages(range(2 * len(PLACES) * len(DAMAGES)), seed=26)
    results = {outcome.rpartition(": ")[2] for outcome in outcomes}
    assert {REFUSED, RIGHT} <= results, outcomes


def test_a_manifest_without_its_last_byte_is_found() -> None:
    """The cut left whole JSON."""
    run_damages(range(382, 383), seed=26)
