"""A follower's end of an incremental fetch session: what must be said in the next request, and what need not (KIP-227).

The leader remembers the partitions of a session and what was asked of each; a request names those whose wish has
changed, and those that are given up. Any error of the session begins a new one with everything in it.
"""

from __future__ import annotations

from collections.abc import Iterable
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
        self.known: dict[Key, FetchPartition] = {}
        """What the leader remembers, the request under way included."""

    def fill(self, request: FetchRequest, wishes: dict[Key, FetchPartition], forgotten: Iterable[Key]) -> None:
        """Put into a request what it must name: the session, new wishes, and what is given up."""
        request.session_id = self._id
        request.session_epoch = self._epoch
        topics: dict[bytes, FetchTopic] = {}
        for (topic_id, index), wish in wishes.items():
            if self.known.get((topic_id, index)) != wish:
                topics.setdefault(topic_id, FetchTopic(topic_id=topic_id)).partitions.append(wish)
        given_up: dict[bytes, ForgottenTopic] = {}
        for topic_id, index in forgotten:
            if self.known.pop((topic_id, index), None) is not None:
                given_up.setdefault(topic_id, ForgottenTopic(topic_id=topic_id)).partitions.append(index)
        self.known.update(wishes)
        request.topics = list(topics.values())
        request.forgotten_topics_data = list(given_up.values())

    def accepted(self, session_id: int) -> bool:
        """The leader has answered without a complaint; False where it declined to keep a session, so that the next
        request has to name everything."""
        if session_id == NO_SESSION:
            self._id, self._epoch = NO_SESSION, FIRST_EPOCH
            return False
        self._epoch = 1 if session_id != self._id or self._epoch == EPOCH_MAX else self._epoch + 1
        self._id = session_id
        return True

    def reset(self) -> None:
        """Begin anew: the connection broke, or the leader knows the session no more."""
        self._id = NO_SESSION
        self._epoch = FIRST_EPOCH
        self.known = {}
