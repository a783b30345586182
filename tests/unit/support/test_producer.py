"""What the simulated producer does if a leader refuses a sequence again and again."""

from __future__ import annotations

from random import Random
from unittest.mock import Mock

import pytest

from moldau.protocol.errors import ErrorCode
from tests.support.cluster_clients import REFUSED_MAX, Batch, Bootstrap, Producer
from tests.support.history import History
from tests.support.node import Closed


@pytest.mark.parametrize("is_in_doubt", [True, False])
def test_a_batch_in_doubt_that_is_always_out_of_order_is_given_up(is_in_doubt: bool) -> None:
    """A leader that was started again knows the last batch of a producer alone. One that was never taken, and follows
    on what was acknowledged, is not given up: there the leader has lost something."""
    client = Mock()
    producer = Producer("p", ("t", 0), Bootstrap(Mock(), Random(1)), History(), [], gives_up=0)
    producer._id = (7, 0)
    first, second = Batch(3, b"", []), Batch(4, b"", [])
    producer._unacknowledged.extend((first, second))
    for batch in (first, second):
        batch.sent_count += is_in_doubt
    for _ in range(REFUSED_MAX):
        assert producer._id == (7, 0)
        for batch in (second, first):
            batch.sent_count += 1
            with pytest.raises(Closed):
                producer._take(batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1, client)
    assert (producer._id is None) == is_in_doubt
    assert len(producer._unacknowledged) == (0 if is_in_doubt else 2)
