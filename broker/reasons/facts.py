"""The facts about a group at one moment, and the JSON in which its coordinator reports its history."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from moldau.coordinator.group.history import Cause, GroupEvent

GROUP_HISTORY_SETTING: Final = "moldau.history"
"""The name of the setting of a group whose value is the group's history. DescribeConfigs has it only if the request
names it.
"""


AVAILABLE: Final = 0
ARCHIVED: Final = 4
"""Delivery states of records in a share partition (KIP-932). An available record will be delivered. An archived one
will never be delivered again.
"""
DEAD_GROUP_STATE: Final = "Dead"
"""The state of a group that no longer exists."""
OPEN_TRANSACTION_MS_MIN: Final = 10_000
"""The time (ms) after which an open transaction is reported as a problem, because every open transaction delays
read_committed consumers for some time.
"""


class MemberFacts(NamedTuple):
    """A member of a group, as its coordinator describes it."""

    member_id: str
    client_id: str
    host: str
    instance_id: str | None = None

    @property
    def name(self) -> str:
        """The name under which a user knows the member: its instance id, or else the client id, or else the member
        id.
        """
        return self.instance_id or self.client_id or self.member_id


class RedeliveredRecords(NamedTuple):
    """Records of a share partition that were delivered more than once, as its share coordinator keeps them."""

    first_offset: int
    last_offset: int
    delivery_count: int
    is_given_up: bool
    """Whether the records are never delivered again, because they were rejected or reached the delivery limit."""

    @property
    def offsets(self) -> str:
        if self.first_offset == self.last_offset:
            return f"the record at offset {self.first_offset}"
        return f"the records from offset {self.first_offset} to {self.last_offset}"


class PartitionFacts(NamedTuple):
    """A partition that is assigned to a member of the group or has a committed offset. A field is None if its value is
    not known or does not exist.
    """

    topic: str
    partition: int
    committed_offset: int | None = None
    log_start_offset: int | None = None
    """The log start offset."""
    high_watermark: int | None = None
    """The high watermark."""
    last_stable_offset: int | None = None
    """The last stable offset: the first offset of the oldest open transaction, or the high watermark."""
    lag_ms: int | None = None
    """The age (ms) of the first record that the group has not committed."""
    committed_at_ms: int | None = None
    """The time of the last commit (ms, by the coordinator's wall clock)."""
    member_id: str | None = None
    redelivered: Sequence[RedeliveredRecords] = ()
    """Records that were delivered more than once, sorted by offset; only for share groups."""
    unacknowledged_count: int | None = None
    """The number of records that a share group has not acknowledged; None for other groups."""
    is_offline: bool = False
    """Whether the partition's offsets are not known, because no leader has answered."""

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def is_held_by_transaction(self) -> bool:
        """Whether an open transaction has withheld records from the group for at least `OPEN_TRANSACTION_MS_MIN`. The
        group must have read up to the last stable offset. A share group has done so if it has no more unacknowledged
        records than there are after that offset; its start offset may be earlier.
        """
        if self.last_stable_offset is None or self.high_watermark is None:
            return False
        if self.unacknowledged_count is not None:
            is_behind = 0 < self.unacknowledged_count <= self.high_watermark - self.last_stable_offset
            return is_behind and (self.lag_ms or 0) >= OPEN_TRANSACTION_MS_MIN
        if self.committed_offset is None:
            return False
        return (
            self.committed_offset >= self.last_stable_offset < self.high_watermark
            and (self.lag_ms or 0) >= OPEN_TRANSACTION_MS_MIN
        )

    @property
    def has_records(self) -> bool:
        return self.high_watermark is not None and self.high_watermark > (self.log_start_offset or 0)

    @property
    def lag(self) -> int:
        """The lag: the number of offsets from the committed offset to the high watermark. For a share group it is the
        number of records that are not acknowledged. 0 if it is not known.
        """
        if self.unacknowledged_count is not None:
            return self.unacknowledged_count
        if self.committed_offset is None or self.high_watermark is None:
            return 0
        return max(0, self.high_watermark - max(self.committed_offset, self.log_start_offset or 0))


class DeliveryStateBatch(Protocol):
    """Consecutive records of a share partition in the same delivery state: the fields of the share coordinator's state
    batches that are read here.
    """

    @property
    def first_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def delivery_state(self) -> int: ...
    @property
    def delivery_count(self) -> int: ...


def redelivered_records(batches: Iterable[DeliveryStateBatch]) -> list[RedeliveredRecords]:
    """Select the records in state batches that were delivered more than once and are not acknowledged."""
    return [
        RedeliveredRecords(each.first_offset, each.last_offset, each.delivery_count, each.delivery_state == ARCHIVED)
        for each in batches
        if each.delivery_count > 1 and each.delivery_state in (AVAILABLE, ARCHIVED)
    ]


@dataclass(frozen=True, slots=True)
class History:
    """The history of a group, which its coordinator keeps in memory."""

    now_ms: int
    """The time at which the history was read, by the coordinator's wall clock (ms)."""
    since_ms: int
    """The time at which the history begins: the start of the coordinator, or later."""
    events: Sequence[GroupEvent] = ()
    last_request_ms: Mapping[str, int] | None = None
    """The time of the last request of each member, by member id."""
    commits_ms: Mapping[tuple[str, int], int] | None = None
    """The time of the last commit for each partition."""

    def to_json(self) -> str:
        """The history as JSON, which is the value of `GROUP_HISTORY_SETTING`. An event is a list of the fields of
        `GroupEvent`.
        """
        commits: dict[str, dict[str, int]] = {}
        for (topic, partition), commit_ms in (self.commits_ms or {}).items():
            commits.setdefault(topic, {})[str(partition)] = commit_ms
        content = {
            "now_ms": self.now_ms,
            "since_ms": self.since_ms,
            "events": [(each.cause.value, *each[1:]) for each in self.events],
            "heard_ms": dict(self.last_request_ms or {}),
            "commits_ms": commits,
        }
        return json.dumps(content, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> History:
        """Read a history from the JSON of `to_json`. An event whose cause this version does not know is left out.
        Raises `ValueError`.
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
    """The facts about a group, from which the findings are derived."""

    name: str
    kind: str
    """The type of the group: `classic`, `consumer`, `share` or `streams`; empty if the group no longer exists."""
    state: str
    members: Sequence[MemberFacts]
    partitions: Sequence[PartitionFacts]
    history: History | None = None
    """The history; None if the coordinator keeps none, such as one of Apache Kafka."""
    dead_letters: str = ""
    """The dead letter topic of a share group; empty if it has none, or if it is not known."""
