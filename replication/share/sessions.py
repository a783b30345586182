"""The share sessions of one broker: which partitions each member of a share group fetches from it (KIP-932).

    epoch    ShareFetch                                       ShareAcknowledge
    0        a new session in place of the member's former    INVALID_SHARE_SESSION_EPOCH
    n        the next request of the session                  the next request of the session
    -1       ends the session; acknowledges, fetches nothing  ends the session

An epoch out of sequence is refused with INVALID_SHARE_SESSION_EPOCH, a request without a session with
SHARE_SESSION_NOT_FOUND.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from moldau.protocol.errors import ErrorCode
from moldau.protocol.late_tuple import NamedTuple

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
SESSION_EPOCH_MAX: Final = 0x7FFFFFFF
SESSION_PARTITIONS_MAX: Final = 2_000
"""The most partitions of a session. DIVERGES: a request that would add more is refused with INVALID_REQUEST; Apache
Kafka has no such limit.
"""


class SessionPartition(NamedTuple):
    """A partition of a share session."""

    topic_id: bytes
    partition: int


class SessionKey(NamedTuple):
    """The key of a share session: its group and member."""

    group_id: str
    member_id: str


class ShareSession:
    """The share session of a member: the epoch of its next request, and the partitions that it fetches."""

    __slots__ = ("connection", "epoch", "partitions")

    def __init__(self, partitions: Iterable[SessionPartition], connection: object) -> None:
        self.epoch = INITIAL_EPOCH + 1
        """The epoch that the next request must have."""
        self.connection = connection
        """The connection of the last fetch. The session ends with it.

        DIVERGES: in Apache Kafka it ends with the connection of its first fetch, even if its member has another one.
        """
        self.partitions: dict[SessionPartition, bool] = dict.fromkeys(partitions, False)
        """The partitions that the member fetches, in serving order. The value says whether the next response must
        include the partition.
        """

    def advance_epoch(self) -> None:
        self.epoch = 1 if self.epoch == SESSION_EPOCH_MAX else self.epoch + 1

    def includes_in_response(self, partition: SessionPartition, *, has_records: bool, has_error: bool) -> bool:
        """Whether the response includes a partition: it has records or an error, is new in the session, or had an error
        in the last response.
        """
        is_due = self.partitions.get(partition, False)
        if partition in self.partitions:
            self.partitions[partition] = has_error
            if has_records:  # Others come first in the next response.
                self.partitions[partition] = self.partitions.pop(partition)
        return has_records or has_error or is_due


class ShareSessionParameters(NamedTuple):
    """The session-related parameters of a ShareFetch."""

    key: SessionKey
    epoch: int
    partitions: tuple[SessionPartition, ...]
    forgotten: tuple[SessionPartition, ...]
    has_acknowledgements: bool
    connection: object = None
    """The connection through which the request came."""


class ShareFetchContext(NamedTuple):
    """The session and partitions of one ShareFetch, or the error that refuses it."""

    error: ErrorCode
    partitions: tuple[SessionPartition, ...] = ()
    """The partitions to fetch, in serving order."""
    session: ShareSession | None = None
    """The session, whose responses contain only changed partitions; None if the response must have all."""


class ShareSessions:
    """The share sessions of the members of share groups on this broker."""

    def __init__(self, sessions_max: int) -> None:
        """`sessions_max` is group.share.max.share.sessions."""
        self._sessions_max = sessions_max
        self._sessions: dict[SessionKey, ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions_count(self) -> int:
        return sum(len(session.partitions) for session in self._sessions.values())

    def find(self, key: SessionKey) -> ShareSession | None:
        return self._sessions.get(key)

    def open(self, wish: ShareSessionParameters) -> ShareFetchContext:
        """Open or continue the session of a ShareFetch. Returns its partitions, or the error."""
        session = self._sessions.get(wish.key)
        if wish.epoch == FINAL_EPOCH:
            return ShareFetchContext(ErrorCode.NONE if session is not None else ErrorCode.SHARE_SESSION_NOT_FOUND)
        if wish.epoch == INITIAL_EPOCH:
            if wish.has_acknowledgements:
                return ShareFetchContext(ErrorCode.INVALID_REQUEST)
            self.remove(wish.key)
            if len(self._sessions) >= self._sessions_max:
                return ShareFetchContext(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
            self._sessions[wish.key] = ShareSession(wish.partitions, wish.connection)
            return ShareFetchContext(ErrorCode.NONE, tuple(dict.fromkeys(wish.partitions)))
        if session is None:
            return ShareFetchContext(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if session.epoch != wish.epoch:
            return ShareFetchContext(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        added = {each for each in wish.partitions if each not in session.partitions}
        if len(session.partitions) + len(added) > SESSION_PARTITIONS_MAX:
            return ShareFetchContext(ErrorCode.INVALID_REQUEST)
        for partition in wish.partitions:
            session.partitions.setdefault(partition, True)
        for partition in wish.forgotten:
            session.partitions.pop(partition, None)
        session.advance_epoch()
        session.connection = wish.connection
        return ShareFetchContext(ErrorCode.NONE, rotated_partitions(tuple(session.partitions), wish.epoch), session)

    def acknowledge(self, key: SessionKey, epoch: int) -> ErrorCode:
        """Continue the session of a ShareAcknowledge. Returns the error if the session does not exist or the epoch is
        wrong.
        """
        if epoch == INITIAL_EPOCH:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        session = self._sessions.get(key)
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if epoch != FINAL_EPOCH:
            if session.epoch != epoch:
                return ErrorCode.INVALID_SHARE_SESSION_EPOCH
            session.advance_epoch()
        return ErrorCode.NONE

    def remove(self, key: SessionKey) -> tuple[SessionPartition, ...]:
        """End a session. Returns its partitions, in which the caller releases the member's records; empty if there was
        no session.
        """
        session = self._sessions.pop(key, None)
        if session is None:
            return ()
        return tuple(session.partitions)

    def keys_of(self, connection: object) -> list[SessionKey]:
        """The keys of the sessions whose last fetch came through a connection."""
        return [key for key, session in self._sessions.items() if session.connection is connection]

    def has_group(self, group_id: str) -> bool:
        """Whether a member of the group has a session."""
        return any(key.group_id == group_id for key in self._sessions)


def rotated_partitions(partitions: tuple[SessionPartition, ...], epoch: int) -> tuple[SessionPartition, ...]:
    """Rotate the partitions by the epoch, so that each comes first in turn."""
    if len(partitions) < 2 or epoch < 1:
        return partitions
    place = epoch % len(partitions)
    return partitions[place:] + partitions[:place]
