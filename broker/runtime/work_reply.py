"""The messages between a broker and a worker process. Each frame is a length in 4 bytes, big-endian, and a pickled
value. The process answers with a `WorkerReply`.

The worker process imports this module but not asyncio, whose import would take as long as all other imports for
cleaning a log.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

FRAME_LENGTH: Final = Struct(">I")


class WorkerLimits(NamedTuple):
    """The limits on the resources of a worker process."""

    memory_bytes: int
    """The maximum size of the address space, which includes about 130 MB of code and libraries."""
    step_cpu_s: int
    """The maximum processor time (seconds) from one event of the work to the next."""


class WorkerReply(NamedTuple):
    """The result of one step of the work: an event that it yielded, an error that it raised, or its end."""

    event: object = None
    error: Exception | None = None
    is_end: bool = False
