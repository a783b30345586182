"""A read while the cleaner, retention and appends change the log: the right rows or `DataLost`, never fewer rows.

`python -m tests.spark.under_change --rounds 200` is the long form.
"""

from __future__ import annotations

import pytest

from tests.support.changing_log import LOST, RIGHT, run_rounds


@pytest.mark.slow
def test_rounds_end_with_the_right_rows_or_the_named_error() -> None:
    outcomes = run_rounds(30, seed=7)
    assert outcomes[RIGHT] > 3 and outcomes[LOST] > 3, outcomes
