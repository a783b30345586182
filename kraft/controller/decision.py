"""The result of a decision of the controller: records to append, and the reply to send once they are committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from protocol.errors import ErrorCode


class Decision(NamedTuple):
    """Records and a reply.

    The records are one atomic batch, which may be empty. Where `is_atomic` is False, any prefix of the records is
    consistent too. The reply waits until these records and those of all earlier decisions are committed, because it may
    report either.
    """

    records: Sequence[object]
    reply: object | None = None
    is_atomic: bool = True
    kraft_version: int | None = None
    """The kraft.version to which the quorum is raised in its own records, before these; None: unchanged."""


class ApiError(NamedTuple):
    """The error code and message of a refused change, as the reply reports them."""

    error: ErrorCode
    message: str | None
