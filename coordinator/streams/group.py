"""A streams group: its epochs, members, topology and target, changed only by the records of the log.

| state | the group |
|---|---|
| Empty | has no members |
| NotReady | has a topology for which topics are missing, or have the wrong sizes |
| Assigning | has no target for its epoch yet |
| Reconciling | has members that have not reached their target |
| Stable | has all members at their target |

DIVERGES: in Apache Kafka a filter of ListGroups does not find groups in the state NotReady; here it does.

Some attributes of a group are in no record, and are lost with the leadership: the configured topology, the member that
asked for a shutdown, and the epoch of the endpoints.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moldau.coordinator.group.group import TimerKey
from moldau.coordinator.group.image import CoordinatorImage
from moldau.coordinator.group.membership import FIRST_EPOCH
from moldau.coordinator.group.records import Change
from moldau.coordinator.streams.configured_topology import ConfiguredTopology
from moldau.coordinator.streams.events import StreamsTimer
from moldau.coordinator.streams.member import Member, TaskOwners
from moldau.coordinator.streams.records import NO_DESCRIPTIONS, group_tombstones
from moldau.coordinator.streams.tasks import NO_TASKS, Tasks
from moldau.coordinator.streams.topology import Topology
from moldau.protocol.errors import ErrorCode

STREAMS_PROTOCOL_TYPE: Final = "streams"
EMPTY: Final = "Empty"
NOT_READY: Final = "NotReady"
ASSIGNING: Final = "Assigning"
RECONCILING: Final = "Reconciling"
STABLE: Final = "Stable"


class StreamsGroup:
    """A group of the streams protocol; it implements `moldau.coordinator.group.group.Group`."""

    type_name = "streams"
    protocol_type = STREAMS_PROTOCOL_TYPE
    is_simple = False

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.visible_from: int | None = None
        """The end offset of the group's first record; None before that record is appended. Readers see the group once
        the record is committed."""
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.validated_topology_epoch = 0
        """The epoch of the topology for which all topics were found; -1 if topics are missing or have the wrong
        sizes."""
        self.assignment_configs: Mapping[str, str] = {}
        """The assignor's settings with which the last target was computed, by name."""
        self.description_epochs = NO_DESCRIPTIONS
        """Two topology epochs, written by a plugin of Apache Kafka 4.4: that of the description which it stored, and
        that of the description which it rejected."""
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_ms = 0
        """The wall-clock time (ms) at which the last target was computed; 0 if there is no target or the time is not
        known."""
        self.topology: Topology | None = None
        self.targets: dict[str, Tasks] = {}
        self.members: dict[str, Member] = {}
        self.owners = TaskOwners()
        self.configured: ConfiguredTopology | None = None
        self.seen_image: int | None = None
        """The version of the metadata for which the topology was last configured or checked."""
        self.shutdown_member_id: str | None = None
        """The first member that asked all members of the application to shut down; None if no member has."""
        self.endpoint_epoch = 0
        self._state: str | None = None

    # Members of the `Group` protocol

    @property
    def state_name(self) -> str:
        if self._state is None:
            self._state = self._compute_state()
        return self._state

    def _compute_state(self) -> str:
        if not self.members:
            return EMPTY
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return NOT_READY
        if self.epoch > self.assignment_epoch:
            return ASSIGNING
        epoch = self.assignment_epoch
        return STABLE if all(member.is_reconciled_to(epoch) for member in self.members.values()) else RECONCILING

    @property
    def members_count(self) -> int:
        return len(self.members)

    @property
    def timers(self) -> list[TimerKey]:
        kinds = (StreamsTimer.SESSION, StreamsTimer.REBALANCE)
        keys = [TimerKey(kind, self.group_id, member_id) for member_id in self.members for kind in kinds]
        own = [TimerKey(kind, self.group_id) for kind in (StreamsTimer.INITIAL_REBALANCE, StreamsTimer.TARGET)]
        return [*own, *keys]

    @property
    def is_empty(self) -> bool:
        return not self.members

    def deletion_error(self) -> ErrorCode:
        return ErrorCode.NONE if self.is_empty else ErrorCode.NON_EMPTY_GROUP

    def offset_deletion_error(self) -> ErrorCode:
        return ErrorCode.NONE

    def is_subscribed_to(self, topic: str) -> bool:
        return not self.is_empty and self.topology is not None and topic in self.topology.subtopology_of_input

    def retention_begins_ms(self, commit_ms: int) -> int | None:
        return commit_ms

    def tombstones(self) -> list[Change]:
        return list(group_tombstones(self.group_id, list(self.members)))

    # What the records say

    def target_of(self, member_id: str) -> Tasks:
        return self.targets.get(member_id, NO_TASKS)

    def set_epoch(
        self, epoch: int, metadata_hash: int, validated_topology_epoch: int, configs: Mapping[str, str]
    ) -> None:
        self.epoch = epoch
        self.metadata_hash = metadata_hash
        self.validated_topology_epoch = validated_topology_epoch
        self.assignment_configs = configs
        self._state = None

    def set_assignment_epoch(self, epoch: int, assignment_ms: int) -> None:
        self.assignment_epoch = epoch
        self.assignment_ms = assignment_ms
        self._state = None

    def set_topology(self, topology: Topology | None) -> None:
        self.topology = topology
        self._state = None

    def put_member(self, member: Member) -> None:
        former = self.members.get(member.member_id)
        if former is not None:
            self.owners.remove(former)
        self.owners.add(member)
        self.members[member.member_id] = member
        self._state = None

    def remove_member(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self.owners.remove(member)
        if not self.members:
            self.shutdown_member_id = None
        self._state = None

    def find_owners(self) -> None:
        """Compute from the members which processes have each task, once the log is loaded. If the log was compacted
        meanwhile, it may lack the record by which a member gave up a task before another member of its process got
        it."""
        self.owners = TaskOwners()
        for member in self.members.values():
            self.owners.add(member)

    # What is in no record

    def note_configured(self, configured: ConfiguredTopology, image: CoordinatorImage) -> None:
        self.configured = configured
        self.seen_image = image.version

    def note_shutdown(self, member_id: str) -> None:
        """Note that a member asks for a shutdown of the application. Only the first such member is kept and named to
        the other members."""
        if self.shutdown_member_id is None:
            self.shutdown_member_id = member_id

    def note_endpoint_change(self) -> None:
        self.endpoint_epoch += 1
