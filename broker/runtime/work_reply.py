"""The frames in which a worker process answers: length in 4 bytes, big-endian, and a pickled `Reply`.

The process imports this without asyncio, which takes as long to import as everything else that cleaning a log needs.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

FRAME_LENGTH: Final = Struct(">I")


class Reply(NamedTuple):
    """The result of one step of the work: an event, the error that the work raised, or its end."""

    event: object = None
    error: Exception | None = None
    is_end: bool = False
