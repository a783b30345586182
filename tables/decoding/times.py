"""Converts Kafka's times, milliseconds in 64 bits, into microseconds in 64 bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TIME_MS_MAX: Final = ((1 << 63) - 1) // 1000
"""The last time (ms) that a column of microseconds can hold, in the year 294247. Kafka stores any number of 64 bits as
a time. A later time is shown as the nearest one that the column can hold. A producer that writes nanoseconds instead of
milliseconds makes such times."""


def microseconds_of(milliseconds: NDArray[np.int64]) -> NDArray[np.int64]:
    """Convert times from milliseconds into microseconds; times past `TIME_MS_MAX` are limited to it."""
    import numpy as np

    return np.clip(milliseconds, -TIME_MS_MAX, TIME_MS_MAX) * 1000
