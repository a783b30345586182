"""The result of a decision of the controller: records to append, and the reply to send once they are committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from moldau.protocol.errors import ErrorCode


class Decision(NamedTuple):
    """Records and a reply.

    The records may be empty. They are appended as one batch, which is atomic. If `is_atomic` is False they may be
    split into several batches, because every prefix of them leaves consistent metadata.

    The reply is sent once these records and those of all earlier decisions are committed: it may report what earlier
    decisions changed.
    """

    records: Sequence[object]
    reply: object | None = None
    is_atomic: bool = True
    kraft_version: int | None = None
    """The kraft.version to which the Raft machine raises the quorum before these records are appended; None leaves it
    unchanged.
    """


class ApiError(NamedTuple):
    """The error code and message of a refused change, as the reply reports them."""

    error: ErrorCode
    message: str | None
