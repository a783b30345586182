"""What a broker and a worker process exchange: frames of a length in 4 bytes, big-endian, and a pickled value; the
process answers with a `Reply`.

The process imports this without asyncio, which takes as long to import as everything else that cleaning a log needs.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

FRAME_LENGTH: Final = Struct(">I")


class Limits(NamedTuple):
    """What a worker process may take."""

    memory_bytes: int
    """Its address space: code and libraries, about 130 MB, are in it."""
    step_cpu_s: int
    """The processor time from one event to the next."""


class Reply(NamedTuple):
    """The result of one step of the work: an event, the error that the work raised, or its end."""

    event: object = None
    error: Exception | None = None
    is_end: bool = False
