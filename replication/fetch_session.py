"""Incremental fetch sessions (KIP-227): the server remembers what a client reads, so that neither side repeats it.

request (id, epoch)      meaning                             answer
(any, -1)                last fetch of the session, or none  everything asked for; the session ends
(any, 0)                 open a session                      everything asked for; a session id where there is room
(id, n >= 1)             next fetch of the session           only the partitions with news
unknown id                                                   FETCH_SESSION_ID_NOT_FOUND: the client starts over
epoch other than next                                        INVALID_FETCH_SESSION_EPOCH: the client starts over
names where ids were used, or the reverse                    FETCH_SESSION_TOPIC_ID_ERROR: the client starts over
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchPartition, FetchRequest, PartitionData
from replication.replica_news import ReplicaNews

FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0
EPOCH_MAX: Final = 0x7FFFFFFF
NO_SESSION: Final = 0
TOPIC_ID_VERSION: Final = 13
"""From this version of Fetch on topics travel by id."""

TopicKey = str | bytes
"""How the client names a topic: by name up to Fetch 12, by id from 13."""
PartitionKey = tuple[TopicKey, int]


class CachedPartition:
    """What a session remembers of one partition: the wish, and what was last told."""

    __slots__ = ("had_error", "high_watermark", "log_start_offset", "wish")

    def __init__(self, wish: FetchPartition) -> None:
        self.wish = wish
        self.high_watermark = -1
        self.log_start_offset = -1
        self.had_error = False

    def has_news(self, data: PartitionData) -> bool:
        """Whether the client must hear of this; remembers it as told."""
        news = (
            bool(data.records)
            or data.error_code != ErrorCode.NONE
            or self.had_error
            or data.high_watermark != self.high_watermark
            or data.log_start_offset != self.log_start_offset
            or data.diverging_epoch is not None
            or data.preferred_read_replica != -1
        )
        # With a diverging log the rest of the answer is not taken: it is told again when the log was cut.
        self.high_watermark = data.high_watermark if data.diverging_epoch is None else -1
        self.log_start_offset = data.log_start_offset
        self.had_error = data.error_code != ErrorCode.NONE
        return news


class FetchSession:
    """One client's session: its partitions in the order in which they are served."""

    __slots__ = ("epoch", "id", "news", "partitions", "used_ms", "uses_topic_ids")

    def __init__(self, session_id: int, uses_topic_ids: bool, now_ms: int, news: ReplicaNews | None) -> None:
        """With `news` where a follower fetches: it is told of what is in there alone."""
        self.news = news
        self.id = session_id
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.used_ms = now_ms
        self.partitions: dict[PartitionKey, CachedPartition] = {}

    def update(self, request: FetchRequest) -> None:
        """Take the request's changes into the session."""
        for key, wish in wishes(request, self.uses_topic_ids).items():
            cached = self.partitions.get(key)
            if cached is None:
                self.partitions[key] = CachedPartition(wish)
            else:
                if wish.current_leader_epoch != cached.wish.current_leader_epoch:
                    cached.high_watermark = -1  # what came to a follower after its epoch was over, it did not take
                cached.wish = wish
            if self.news is not None:
                self.news.note(key)
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                gone: PartitionKey = (topic.topic_id if self.uses_topic_ids else topic.topic, index)
                self.partitions.pop(gone, None)
                if self.news is not None:
                    self.news.forget(gone)

    def wanted(self) -> list[tuple[PartitionKey, FetchPartition]]:
        """What is to be looked at, in the order in which it is served: of a follower what has news, else everything."""
        partitions = self.partitions
        if self.news is None:
            return [(key, cached.wish) for key, cached in partitions.items()]
        return [(key, partitions[key].wish) for key in self.news.keys]

    def _told(self, key: PartitionKey) -> tuple[int, int]:
        cached = self.partitions[key]
        return cached.high_watermark, cached.log_start_offset

    def requested(self, now_ms: int) -> None:
        self.used_ms = now_ms
        if self.news is not None:
            self.news.requested(now_ms)
            self.news.sweep(self._told, now_ms)

    def close(self) -> None:
        if self.news is not None:
            self.news.close()

    def served(self, key: PartitionKey) -> None:
        """A partition that gave data goes to the end of the line, so that a full reply starves none."""
        if self.news is not None:
            self.news.keys.pop(key, None)
            self.news.note(key)
        else:
            self.partitions[key] = self.partitions.pop(key)


class FetchContext:
    """How one fetch is to be answered: what to read, and under which session."""

    __slots__ = ("error", "session", "wanted")

    def __init__(
        self,
        wanted: list[tuple[PartitionKey, FetchPartition]],
        session: FetchSession | None = None,
        error: ErrorCode = ErrorCode.NONE,
    ) -> None:
        self.wanted = wanted
        self.session = session
        self.error = error


class FetchSessions:
    """The sessions of one broker, at most `sessions_max`; without room a client is served without a session."""

    def __init__(self, sessions_max: int, eviction_ms: int, random_id: Callable[[], int]) -> None:
        self._sessions: dict[int, FetchSession] = {}
        """By id, the least recently used first."""
        self._sessions_max = sessions_max
        self._eviction_ms = eviction_ms
        self._random_id = random_id

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, request: FetchRequest, version: int, now_ms: int) -> tuple[FetchContext, bool]:
        """(what to read, whether it is an incremental fetch of a known session)."""
        uses_topic_ids = version >= TOPIC_ID_VERSION
        if request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            ended = self._sessions.pop(request.session_id, None)
            if ended is not None:
                ended.close()
            session = None
            if request.session_epoch == INITIAL_EPOCH:
                session = self._create(request, uses_topic_ids, now_ms)
            return FetchContext(list(wishes(request, uses_topic_ids).items()), session), False
        session = self._sessions.get(request.session_id)
        if session is None:
            return FetchContext([], error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND), False
        if request.session_epoch != session.epoch:
            return FetchContext([], error=ErrorCode.INVALID_FETCH_SESSION_EPOCH), False
        if uses_topic_ids != session.uses_topic_ids:
            return FetchContext([], error=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR), False
        session.update(request)
        session.epoch = 1 if session.epoch == EPOCH_MAX else session.epoch + 1
        session.requested(now_ms)
        self._sessions[session.id] = self._sessions.pop(session.id)
        return FetchContext(session.wanted(), session), True

    def _create(self, request: FetchRequest, uses_topic_ids: bool, now_ms: int) -> FetchSession | None:
        if len(self._sessions) >= self._sessions_max:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.used_ms < self._eviction_ms:
                return None
            self._sessions.pop(oldest.id).close()
        session_id = self._random_id()
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._random_id()
        news = ReplicaNews() if is_of_follower(request) else None
        session = self._sessions[session_id] = FetchSession(session_id, uses_topic_ids, now_ms, news)
        session.update(request)
        session.requested(now_ms)
        return session


def is_of_follower(request: FetchRequest) -> bool:
    replica = request.replica_state
    return (replica.replica_id if replica is not None else request.replica_id) >= 0


def wishes(request: FetchRequest, uses_topic_ids: bool) -> dict[PartitionKey, FetchPartition]:
    """The partitions that a request names, each under the key of its topic; of one named twice the last wish."""
    wanted: dict[PartitionKey, FetchPartition] = {}
    for topic in request.topics:
        key: TopicKey = topic.topic_id if uses_topic_ids else topic.topic
        for partition in topic.partitions:
            wanted[key, partition.partition] = partition
    return wanted
