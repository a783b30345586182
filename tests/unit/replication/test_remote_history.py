"""The leader epoch of the offset before a leader's local log."""

from __future__ import annotations

import pytest

from moldau.replication.remote_history import epoch_before, epoch_to_ask_for
from moldau.storage.checkpoints.leader_epochs import UNDEFINED_END, EpochEnd, EpochStart


@pytest.mark.parametrize(
    ("epoch", "earlier", "expected"),
    [
        (0, None, 0),  # there is no epoch before 0
        (5, EpochEnd(4, 100), 4),  # the local log begins with epoch 5: the record before is of 4
        (5, EpochEnd(2, 100), 2),  # epochs without records are not known
        (5, EpochEnd(4, 99), 5),  # epoch 4 ended before: the record before is of 5 too
        (5, UNDEFINED_END, 5),
    ],
)
def test_the_epoch_before(epoch: int, earlier: EpochEnd | None, expected: int) -> None:
    assert epoch_before(EpochStart(epoch, 100), earlier) == expected


def test_epoch_0_has_none_before() -> None:
    assert (epoch_to_ask_for(EpochStart(0, 10)), epoch_to_ask_for(EpochStart(3, 10))) == (None, 2)
