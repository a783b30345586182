"""What is known about a group at one moment, and the form in which its coordinator tells its history."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from moldau.coordinator.group.history import Cause, GroupEvent

HISTORY_SETTING: Final = "moldau.history"
"""The name under which DescribeConfigs of a group gives its history, if the request names it."""


AVAILABLE: Final = 0
ARCHIVED: Final = 4
"""States of records in a share partition (KIP-932): an available record is delivered next, an archived one
never again.
"""
DEAD: Final = "Dead"
"""The state of a group that no longer exists."""
HELD_MS: Final = 10_000
"""The time (ms) after which an open transaction is reported. Every open transaction holds back readers of committed
records for a while.
"""


class MemberFacts(NamedTuple):
    """A member, as its coordinator describes it."""

    member_id: str
    client_id: str
    host: str
    instance_id: str | None = None

    @property
    def name(self) -> str:
        """The name by which a user knows the member: its instance id, or the id that its client was given."""
        return self.instance_id or self.client_id or self.member_id


class Redelivered(NamedTuple):
    """Records of a share partition that were delivered more than once, as its share coordinator keeps them."""

    first_offset: int
    last_offset: int
    times: int
    is_given_up: bool
    """Whether no member gets them again: they were rejected, or delivered as often as a record may be."""

    @property
    def offsets(self) -> str:
        if self.first_offset == self.last_offset:
            return f"the record at offset {self.first_offset}"
        return f"the records from offset {self.first_offset} to {self.last_offset}"


class PartitionFacts(NamedTuple):
    """A partition that the group reads or has an offset for. A field is None if its value is not known, or if there is
    none.
    """

    topic: str
    partition: int
    committed: int | None = None
    start: int | None = None
    """The log start offset."""
    end: int | None = None
    """The high watermark."""
    stable_end: int | None = None
    """The last stable offset: that of the first open transaction, or the high watermark."""
    behind_ms: int | None = None
    """The age (ms) of the first record that the group has not committed."""
    commit_ms: int | None = None
    """The time (ms, wall clock of the coordinator) of the last commit."""
    member_id: str | None = None
    redelivered: Sequence[Redelivered] = ()
    """Records that were delivered more than once, by offset; only for share groups."""
    unfinished: int | None = None
    """The number of records that a share group has not acknowledged; None for other kinds of groups."""

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def is_held(self) -> bool:
        """Whether the group has read all that readers with isolation.level=read_committed get, and an open transaction
        has kept the rest from them for `HELD_MS`.
        """
        if self.committed is None or self.stable_end is None or self.end is None:
            return False
        return self.committed >= self.stable_end < self.end and (self.behind_ms or 0) >= HELD_MS

    @property
    def has_records(self) -> bool:
        return self.end is not None and self.end > (self.start or 0)

    @property
    def lag(self) -> int:
        """The number of offsets from the committed offset to the high watermark, or of records that a share group has
        not acknowledged; 0 if it is not known.
        """
        if self.unfinished is not None:
            return self.unfinished
        if self.committed is None or self.end is None:
            return 0
        return max(0, self.end - max(self.committed, self.start or 0))


class SharedBatch(Protocol):
    """Records of one state in a share partition, as the share coordinator keeps them and tells them on the wire."""

    @property
    def first_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def delivery_state(self) -> int: ...
    @property
    def delivery_count(self) -> int: ...


def redelivered(batches: Iterable[SharedBatch]) -> list[Redelivered]:
    """The records that were delivered more than once, without those that were acknowledged."""
    return [
        Redelivered(each.first_offset, each.last_offset, each.delivery_count, each.delivery_state == ARCHIVED)
        for each in batches
        if each.delivery_count > 1 and each.delivery_state in (AVAILABLE, ARCHIVED)
    ]


@dataclass(frozen=True, slots=True)
class History:
    """What the coordinator of a group remembers about it."""

    now_ms: int
    """The wall clock of the coordinator."""
    since_ms: int
    """When the coordinator began to remember: its start, or later."""
    events: Sequence[GroupEvent] = ()
    heard_ms: Mapping[str, int] | None = None
    """When each member was last heard of, by member id."""
    commits_ms: Mapping[tuple[str, int], int] | None = None
    """When the offset of each partition was last committed."""

    def to_json(self) -> str:
        """The history as the value of `HISTORY_SETTING`; an event is a list of the fields of `GroupEvent`."""
        commits: dict[str, dict[str, int]] = {}
        for (topic, partition), commit_ms in (self.commits_ms or {}).items():
            commits.setdefault(topic, {})[str(partition)] = commit_ms
        content = {
            "now_ms": self.now_ms,
            "since_ms": self.since_ms,
            "events": [(each.cause.value, *each[1:]) for each in self.events],
            "heard_ms": dict(self.heard_ms or {}),
            "commits_ms": commits,
        }
        return json.dumps(content, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> History:
        """Read what `to_json` wrote; an event of a cause that this version does not know is left out. Raises
        `ValueError`.
        """
        try:
            content = json.loads(text)
            return History(
                content["now_ms"],
                content["since_ms"],
                tuple(GroupEvent(_CAUSES[cause], *rest) for cause, *rest in content["events"] if cause in _CAUSES),
                content["heard_ms"],
                {
                    (topic, int(partition)): commit_ms
                    for topic, partitions in content["commits_ms"].items()
                    for partition, commit_ms in partitions.items()
                },
            )
        except (KeyError, TypeError, AttributeError, ValueError) as problem:
            raise ValueError(f"the history of the group cannot be read: {problem!r}") from problem


_CAUSES: Final = {each.value: each for each in Cause}


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """What is known about a group, from which its sentences follow."""

    name: str
    kind: str
    """One of `classic`, `consumer`, `share` and `streams`; empty if the group is gone."""
    state: str
    members: Sequence[MemberFacts]
    partitions: Sequence[PartitionFacts]
    history: History | None = None
    """None if the coordinator keeps no history, like those of Apache Kafka."""
    dead_letters: str = ""
    """The topic that gets the records that a share group gives up; empty if there is none, or if it is not known."""
