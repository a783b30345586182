"""A follower's end of an incremental fetch session: what must be said in the next request, and what need not (KIP-227).

The leader remembers the partitions of a session and what was asked of each; a request names those whose wish has
changed, and those that are given up. Any error of the session begins a new one with everything in it.
"""

from __future__ import annotations

from typing import Final

from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

Key = tuple[bytes, int]
"""Topic id and partition index."""
NO_SESSION: Final = 0
FIRST_EPOCH: Final = 0
EPOCH_MAX: Final = 0x7FFFFFFF


class ReplicaSession:
    """`fill`, then `accepted` or `reset`, for one request at a time."""

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = FIRST_EPOCH
        self._known: dict[Key, FetchPartition] = {}
        """What the leader remembers."""
        self._asked: dict[Key, FetchPartition] = {}
        """What it will remember once it has answered."""

    def fill(self, request: FetchRequest, wanted: dict[Key, FetchPartition]) -> None:
        """Put session, partitions and those given up into a request for `wanted`."""
        self._asked = wanted
        request.session_id = self._id
        request.session_epoch = self._epoch
        topics: dict[bytes, FetchTopic] = {}
        for (topic_id, index), wish in wanted.items():
            if self._known.get((topic_id, index)) != wish:
                topics.setdefault(topic_id, FetchTopic(topic_id=topic_id)).partitions.append(wish)
        forgotten: dict[bytes, ForgottenTopic] = {}
        for topic_id, index in self._known:
            if (topic_id, index) not in wanted:
                forgotten.setdefault(topic_id, ForgottenTopic(topic_id=topic_id)).partitions.append(index)
        request.topics = list(topics.values())
        request.forgotten_topics_data = list(forgotten.values())

    def accepted(self, session_id: int) -> None:
        """The leader has answered without a complaint; it may have declined to keep a session."""
        if session_id == NO_SESSION:
            self.reset()
            return
        self._epoch = 1 if session_id != self._id or self._epoch == EPOCH_MAX else self._epoch + 1
        self._id = session_id
        self._known = self._asked

    def reset(self) -> None:
        """Begin anew: the connection broke, or the leader knows the session no more."""
        self._id = NO_SESSION
        self._epoch = FIRST_EPOCH
        self._known = {}
