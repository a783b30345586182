"""Kafka's times, milliseconds in 64 bits, as microseconds in 64 bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TIME_MS_MAX: Final = ((1 << 63) - 1) // 1000
"""The last time (ms) that a column of microseconds holds, in the year 294247. Kafka stores any number of 64 bits. A
later time, such as the nanoseconds of a producer that should have written milliseconds, is shown as the nearest time
that the column holds.
"""


def microseconds_of(milliseconds: NDArray[np.int64]) -> NDArray[np.int64]:
    """Times in microseconds; see `TIME_MS_MAX`."""
    import numpy as np

    return np.clip(milliseconds, -TIME_MS_MAX, TIME_MS_MAX) * 1000
