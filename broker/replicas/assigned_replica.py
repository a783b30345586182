"""A replica that the metadata assigns to this broker, and the test whether a log found at a start belongs to it."""

from __future__ import annotations

from typing import NamedTuple


class AssignedReplica(NamedTuple):
    """A partition that the metadata log assigns to this broker."""

    topic_id: bytes
    directory_id: bytes
    """The log directory of the replica, as the metadata has it (KIP-858)."""

    def has(self, topic_id: bytes | None, end_offset: int) -> bool:
        """Whether a log that was found belongs to this replica, and not to a former topic of the same name.

        A loss of power may take the topic id of a log that was never flushed, so that records without one may be those
        of a former topic.
        """
        return topic_id == self.topic_id or (topic_id is None and not end_offset)
