"""The follower's side of an incremental fetch session (KIP-227): it chooses the partitions that the next request names.

The leader remembers the partitions of a session, and the fetch parameters of each. A request names the partitions whose
parameters have changed, and those that the follower removes. After any error of the session a new session begins with
all partitions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from moldau.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

Key = tuple[bytes, int]
"""Topic id and partition index."""
NO_SESSION: Final = 0
FIRST_EPOCH: Final = 0
EPOCH_MAX: Final = 0x7FFFFFFF


class FetchSessionHandler:
    """The session with one leader.

    Calls come in the order `fill`, then `accepted` or `reset`, for one request at a time.
    """

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = FIRST_EPOCH
        self.known: dict[Key, FetchPartition] = {}
        """The partitions of the session with their fetch offsets, as the leader has them after the current request."""

    def fill(self, request: FetchRequest, wishes: dict[Key, FetchPartition], forgotten: Iterable[Key]) -> None:
        """Put into a request what it must name: the session, the changed partitions, and the removed ones."""
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
        """Note that the leader responded without an error of the session. False where it keeps no session: then the
        next request has to name every partition.
        """
        if session_id == NO_SESSION:
            self._id, self._epoch = NO_SESSION, FIRST_EPOCH
            return False
        self._epoch = 1 if session_id != self._id or self._epoch == EPOCH_MAX else self._epoch + 1
        self._id = session_id
        return True

    def reset(self) -> None:
        """Begin a new session, because the connection was lost or the leader does not have the session any more."""
        self._id = NO_SESSION
        self._epoch = FIRST_EPOCH
        self.known = {}
