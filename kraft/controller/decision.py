"""What the controller decides on a request: records to append, and the reply once they are committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from protocol.errors import ErrorCode


class Decision(NamedTuple):
    """The records are one atomic batch, maybe an empty one; where they are not, any beginning of them makes sense.

    The reply waits until they, and all that was decided before them, are committed: it may speak of either.
    """

    records: Sequence[object]
    reply: object | None = None
    is_atomic: bool = True
    kraft_version: int | None = None
    """The kraft.version to which the quorum is raised in its own records, before these; None: unchanged."""


class ApiError(NamedTuple):
    """Why something was not done, as the reply says it."""

    error: ErrorCode
    message: str | None
