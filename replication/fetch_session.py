"""Incremental fetch sessions (KIP-227): the broker stores the partitions that a client fetches, so that requests and
responses contain only changes.

    request (id, epoch)      meaning                             answer
    (any, -1)                last fetch of the session, or none  everything asked for; the session ends
    (any, 0)                 open a session                      everything asked for; a session id if there is room
    (id, n >= 1)             next fetch of the session           only the partitions that have changed
    unknown id                                                   FETCH_SESSION_ID_NOT_FOUND: the client starts over
    epoch other than next                                        INVALID_FETCH_SESSION_EPOCH: the client starts over
    names after ids, or the reverse                              FETCH_SESSION_TOPIC_ID_ERROR: the client starts over
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from moldau.replication.fetch_plan import PlannedRead
from moldau.replication.follower_fetch import PartitionKey, TopicKey, UpdatedPartitions

FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0
SESSION_EPOCH_MAX: Final = 0x7FFFFFFF
NO_SESSION: Final = 0
SESSION_PARTITIONS_MAX: Final = 1_000
"""The maximum number of partitions in a consumer's session, because every fetch examines all of them. DIVERGES: Apache
Kafka has no such limit.
"""
TOPIC_ID_VERSION: Final = 13
"""The first version of Fetch in which requests name topics by id."""


class CachedPartition:
    """A partition of a fetch session: its fetch parameters, and the offsets that the last response reported."""

    __slots__ = ("had_error", "high_watermark", "log_start_offset", "wish")

    def __init__(self, wish: FetchPartition) -> None:
        self.wish = wish
        self.high_watermark = -1
        self.log_start_offset = -1
        self.had_error = False

    def has_changed_answer(self, data: PartitionData) -> bool:
        """Whether an incremental response must have the answer `data`: it has records, an error or new offsets.
        Remembers the offsets of `data` as those reported last.
        """
        must = (
            bool(data.records)
            or data.error_code != ErrorCode.NONE
            or self.had_error
            or data.high_watermark != self.high_watermark
            or data.log_start_offset != self.log_start_offset
            or data.diverging_epoch is not None
            or data.preferred_read_replica != -1
        )
        # A follower whose log diverges ignores the rest of the answer: the high watermark is sent again after it has
        # truncated its log.
        self.high_watermark = data.high_watermark if data.diverging_epoch is None else -1
        self.log_start_offset = data.log_start_offset
        self.had_error = data.error_code != ErrorCode.NONE
        return must


class FetchSession:
    """The fetch session of one client: its partitions in the order in which they are served."""

    __slots__ = ("epoch", "id", "partitions", "updates", "used_ms", "uses_topic_ids")

    def __init__(self, session_id: int, uses_topic_ids: bool, now_ms: int, updates: UpdatedPartitions | None) -> None:
        """`updates`: the partitions that may have changed since the last response. None for a consumer, whose
        partitions are all examined at each fetch.
        """
        self.updates = updates
        self.id = session_id
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.used_ms = now_ms
        self.partitions: dict[PartitionKey, CachedPartition] = {}

    def update(self, request: FetchRequest, *, is_full: bool = False) -> None:
        """Apply the partitions that a request adds, changes and removes. With `is_full` the request opens the session,
        and its list of removed partitions is ignored.
        """
        for key, wish in requested_partitions(request, self.uses_topic_ids).items():
            cached = self.partitions.get(key)
            if cached is None:
                self.partitions[key] = CachedPartition(wish)
            else:
                if wish.current_leader_epoch != cached.wish.current_leader_epoch:
                    cached.high_watermark = -1  # A follower drops the response to a request of an earlier leader epoch.
                cached.wish = wish
            if self.updates is not None:
                self.updates.note_change(key)
        for topic in () if is_full else request.forgotten_topics_data:
            for index in topic.partitions:
                gone: PartitionKey = (topic.topic_id if self.uses_topic_ids else topic.topic, index)
                self.partitions.pop(gone, None)
                if self.updates is not None:
                    self.updates.stop_listening_to(gone)

    def wanted_partitions(self) -> list[tuple[PartitionKey, FetchPartition]]:
        """Return the partitions to examine for the next response, in serving order."""
        partitions = self.partitions
        if self.updates is None:
            return [(key, cached.wish) for key, cached in partitions.items()]
        return [(key, partitions[key].wish) for key in self.updates.keys]

    def _last_reported(self, key: PartitionKey) -> tuple[int, int]:
        cached = self.partitions[key]
        return cached.high_watermark, cached.log_start_offset

    def note_request(self, now_ms: int) -> None:
        """Record the time (ms) of a request, and look for changes that come without a notification."""
        self.used_ms = now_ms
        if self.updates is not None:
            self.updates.note_request(now_ms)
            self.updates.find_unnotified_changes(self._last_reported, now_ms)

    def close(self) -> None:
        """End the session, and stop listening to its partitions."""
        if self.updates is not None:
            self.updates.close()

    def includes_in_response(self, read: PlannedRead, is_incremental: bool) -> bool:
        """Whether the response includes this read; it includes every read if `is_incremental` is False. Remembers the
        offsets of the read's answer as those reported last.
        """
        key, data = read.key, read.data
        cached = self.partitions.get(key)
        must_respond = cached is None or cached.has_changed_answer(data)
        if self.updates is not None and cached is not None and _has_everything(read, cached.wish):
            self.updates.keys.pop(key, None)
        if is_incremental and not must_respond:
            return False
        if data.records and cached is not None:
            self.move_to_end(key)
        return True

    def move_to_end(self, key: PartitionKey) -> None:
        """Move a partition whose records were sent to the end of the serving order, so that full responses do not
        starve the others.
        """
        if self.updates is not None:
            self.updates.keys.pop(key, None)
            self.updates.note_change(key)
        else:
            self.partitions[key] = self.partitions.pop(key)


def _has_everything(read: PlannedRead, wish: FetchPartition) -> bool:
    """Whether a follower already has everything of a partition that its leader can report now."""
    partition = read.partition
    return (
        partition is not None
        and not read.is_urgent
        and not read.data.records
        and read.data.high_watermark == partition.high_watermark
        and wish.fetch_offset >= partition.log.end_offset
    )


class FetchContext:
    """The partitions that one fetch examines, and its session if it has one."""

    __slots__ = ("error", "is_incremental", "session", "wanted")

    def __init__(
        self,
        wanted: list[tuple[PartitionKey, FetchPartition]],
        session: FetchSession | None = None,
        error: ErrorCode = ErrorCode.NONE,
        *,
        is_incremental: bool = False,
    ) -> None:
        self.wanted = wanted
        self.session = session
        self.error = error
        """The error of the session. After any error except NONE the client opens a new session."""
        self.is_incremental = is_incremental
        """Whether the response contains only changed partitions."""

    @property
    def updates(self) -> UpdatedPartitions | None:
        """The updated partitions of a follower's session; None for a consumer or without a session."""
        return self.session.updates if self.session is not None else None

    def refresh_wanted(self) -> None:
        """List the wanted partitions of a follower again, because one has changed since the last listing."""
        session = self.session
        if session is not None and session.updates is not None:
            self.wanted = session.wanted_partitions()

    def has_further_updates(self) -> bool:
        """Whether more partitions of a follower's session have changed since the wanted partitions were listed. The
        fetch itself may be the cause: it may commit a record, after which a coordinator appends to another partition.
        """
        session = self.session
        updates = session.updates if session is not None else None
        return updates is not None and len(updates.keys) > len(self.wanted)

    def awaits_updates(self) -> bool:
        """Whether this fetch can wait for updates: it is of a follower's session with partitions."""
        session = self.session
        return session is not None and session.updates is not None and bool(session.partitions)

    def reports_deletion(self, reads: Iterable[PlannedRead]) -> bool:
        """Whether the response tells the follower of a new, later log start offset. Such a response is not delayed,
        because a client's DeleteRecords waits until the followers have deleted the records, too.
        """
        session = self.session
        if session is None or session.updates is None:
            return False
        partitions = session.partitions
        return any(
            (cached := partitions.get(read.key)) is not None
            and -1 < cached.log_start_offset < read.data.log_start_offset
            for read in reads
        )

    def respond(self, reads: Iterable[PlannedRead]) -> FetchResponse:
        """Build the response from the reads, and store in the session what it reports."""
        session = self.session
        topics: dict[TopicKey, FetchableTopicResponse] = {}
        for read in reads:
            data = read.data
            if read.partition is not None and data.records:
                read.partition.bytes_out += len(data.records)
            if session is not None and not session.includes_in_response(read, self.is_incremental):
                continue
            topic, _ = read.key
            response = topics.get(topic)
            if response is None:
                response = topics[topic] = (
                    FetchableTopicResponse(topic=topic)
                    if isinstance(topic, str)
                    else FetchableTopicResponse(topic_id=topic)
                )
            response.partitions.append(data)
        return FetchResponse(session_id=session.id if session is not None else 0, responses=list(topics.values()))


class FetchSessions:
    """The fetch sessions of one broker, at most `sessions_max`.

    A session that was unused for `eviction_ms` may be replaced by a new one. If there is no room, clients are served
    without a session.
    """

    def __init__(self, sessions_max: int, eviction_ms: int, random_id: Callable[[], int]) -> None:
        self._sessions: dict[int, FetchSession] = {}
        """The sessions by id, the least recently used first."""
        self._sessions_max = sessions_max
        self._eviction_ms = eviction_ms
        self._random_id = random_id

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self, request: FetchRequest, version: int, now_ms: int, *, is_follower: bool | None = None
    ) -> FetchContext:
        """Open, continue or end the session of a request, as in the table of this module's docstring. `is_follower`:
        whether the client is a follower; by default taken from the request.
        """
        if is_follower is None:
            is_follower = is_of_follower(request)
        uses_topic_ids = version >= TOPIC_ID_VERSION
        if request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            ended = self._sessions.pop(request.session_id, None)
            if ended is not None:
                ended.close()
            session = None
            if request.session_epoch == INITIAL_EPOCH:
                session = self._create(request, uses_topic_ids, now_ms, is_follower=is_follower)
            return FetchContext(list(requested_partitions(request, uses_topic_ids).items()), session)
        session = self._sessions.get(request.session_id)
        if session is None:
            return FetchContext([], error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if request.session_epoch != session.epoch:
            return FetchContext([], error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if uses_topic_ids != session.uses_topic_ids:
            return FetchContext([], error=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.update(request)
        if session.updates is None and len(session.partitions) > SESSION_PARTITIONS_MAX:
            del self._sessions[session.id]
            return FetchContext([], error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.epoch = 1 if session.epoch == SESSION_EPOCH_MAX else session.epoch + 1
        session.note_request(now_ms)
        self._sessions[session.id] = self._sessions.pop(session.id)
        return FetchContext(session.wanted_partitions(), session, is_incremental=True)

    def throttled_response(self, fetch: FetchContext, throttle_ms: int) -> FetchResponse:
        """Return the empty response for a throttled client (KIP-219). A session that this fetch opened is removed; the
        client will open it again.
        """
        session = fetch.session
        if session is None or fetch.is_incremental:
            return FetchResponse(throttle_time_ms=throttle_ms, session_id=session.id if session is not None else 0)
        if self._sessions.get(session.id) is session:
            del self._sessions[session.id]
            session.close()
        return FetchResponse(throttle_time_ms=throttle_ms)

    def _create(
        self, request: FetchRequest, uses_topic_ids: bool, now_ms: int, *, is_follower: bool
    ) -> FetchSession | None:
        if not is_follower and sum(len(topic.partitions) for topic in request.topics) > SESSION_PARTITIONS_MAX:
            return None
        if len(self._sessions) >= self._sessions_max:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.used_ms < self._eviction_ms:
                return None
            self._sessions.pop(oldest.id).close()
        session_id = self._random_id()
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._random_id()
        updates = UpdatedPartitions() if is_follower else None
        session = self._sessions[session_id] = FetchSession(session_id, uses_topic_ids, now_ms, updates)
        session.update(request, is_full=True)
        session.note_request(now_ms)
        return session


def is_of_follower(request: FetchRequest) -> bool:
    replica = request.replica_state
    return (replica.replica_id if replica is not None else request.replica_id) >= 0


def requested_partitions(request: FetchRequest, uses_topic_ids: bool) -> dict[PartitionKey, FetchPartition]:
    """Return the partitions of a request, by topic name or id and index. The last entry counts if a partition is named
    twice.
    """
    wanted: dict[PartitionKey, FetchPartition] = {}
    for topic in request.topics:
        key: TopicKey = topic.topic_id if uses_topic_ids else topic.topic
        for partition in topic.partitions:
            wanted[key, partition.partition] = partition
    return wanted
