"""What must hold of groups of the kinds that only have heartbeats, by the records in their log and by what members
were told.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from moldau.coordinator.group import events
from moldau.coordinator.group.records import RecordChange
from moldau.coordinator.runtime import machine
from moldau.coordinator.runtime.machine import Effects
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.offset_commit import OffsetCommitResponse
from tests.simulation.groups.stage import DrawnGroupStage
from tests.support.drawn_stage import Asked, Watcher
from tests.support.drawn_steps import Violation
from tests.support.machine_stage import Batch

SESSION_MS: Final = 45_000
"""group.consumer.session.timeout.ms and those of the other kinds"""
JOIN: Final = 0


class Place(Protocol):
    """What the log says that a member has."""

    @property
    def epoch(self) -> int: ...
    @property
    def previous_epoch(self) -> int: ...
    @property
    def assigned(self) -> Any: ...


PlaceT = TypeVar("PlaceT", bound=Place)


class KindOfRecords(NamedTuple):
    """The types of the keys of a kind's records."""

    heartbeat: type
    """The event of a heartbeat."""
    epoch: type
    target_epoch: type
    member: type
    place: type


class LoggedGroup(Generic[PlaceT]):
    """A group as its records describe it."""

    def __init__(self) -> None:
        self.epoch = 0
        self.target_epoch = 0
        self.members: dict[str, Any] = {}
        """The values of the records."""
        self.places: dict[str, PlaceT] = {}
        self.others: dict[str, Any] = {}
        """The values of the group's other records, by the name of the type of their key, and the member's id."""


class HeartbeatRules(Watcher, ABC, Generic[PlaceT]):
    """`latest` follows what is appended, and is built again when another coordinator takes over."""

    kind: KindOfRecords

    def __init__(self) -> None:
        self.stage: DrawnGroupStage = None  # type: ignore[assignment]
        self.latest: dict[str, LoggedGroup[PlaceT]] = {}
        self.committed_places: set[tuple[str, str, PlaceT]] = set()
        """Group, member and place of each place that was ever committed."""
        self._heard_ms: dict[tuple[str, str], int] = {}
        """When a member was heard of last."""
        self._served_ms: dict[tuple[str, str], int] = {}
        """When the last heartbeat came that was accepted; a write that the log refuses leaves the session as it was."""
        self._placed_ms: dict[tuple[str, str], int] = {}
        """When the last record of a member's place was written, or loaded."""
        self._before: dict[int, PlaceT | None] = {}
        """The member's place when its request came, by the identity of the request."""
        self._commit_faults: dict[int, str] = {}
        """Why a commit must not be accepted, by the identity of the request."""
        self._event: object = None
        """The one that is decided now."""
        self._refused_until_ms = 0
        """Until then a timer whose write the log refused may still be due."""

    def check_subscriptions(self, group_id: str, group: LoggedGroup[PlaceT]) -> None:
        """A member has nothing of a topic to which it does not subscribe by its name or by its regular expression, even
        if its target is older than its subscription. Raises `Violation`.
        """
        for member_id, place in group.places.items():
            value = group.members[member_id]
            for topic_id in {topic_id for topic_id, _ in place.assigned}:
                topic = self.stage.image.topic_of_id(topic_id)
                if topic is None or topic.name in value.subscribed_topic_names:
                    continue
                if not re.fullmatch(getattr(value, "subscribed_topic_regex", None) or "", topic.name):
                    raise Violation(f"{member_id} has partitions of {topic.name}, to which it is not subscribed")

    def group(self, group_id: str) -> LoggedGroup[PlaceT]:
        return self.latest.setdefault(group_id, LoggedGroup())

    # What a kind defines

    @abstractmethod
    def place_of(self, value: Any) -> PlaceT:
        """What the record of a member's place says."""

    @abstractmethod
    def check_group(self, group_id: str, group: LoggedGroup[PlaceT]) -> None:
        """After records were appended. Raises `Violation`."""

    @abstractmethod
    def check_answer(self, asked: Asked, response: Any, before: PlaceT | None) -> None:
        """Of a heartbeat that was accepted, of a member that joins or stays. Raises `Violation`."""

    def revocation_ms(self, group: LoggedGroup[PlaceT], member_id: str) -> int | None:
        """The time (ms) that a member has from its last record on to give back what it has to; None: it has nothing to
        give back.
        """
        return None

    def is_away(self, group: LoggedGroup[PlaceT], member_id: str) -> bool:
        """Whether a member need not be heard of."""
        return False

    # Steps

    def stepped(self, event: events.Event, effects: Effects) -> None:
        if isinstance(event, machine.AppendRefused):
            self._refused_until_ms = self.stage.now_ms + 1_000
        self._event = event
        if isinstance(event, self.kind.heartbeat):
            request: Any = event.request  # type: ignore[union-attr]
            self.note_before(event, request.member_id)
            self._heard_ms[request.group_id, request.member_id] = self.stage.now_ms
        elif isinstance(event, events.CommitOffsets):
            self._commit_faults[id(event.waiter.token)] = self._commit_fault(event)

    def note_before(self, event: Any, member_id: str) -> None:
        self._before[id(event.waiter.token)] = self.group(event.group_id).places.get(member_id)

    def _commit_fault(self, event: events.CommitOffsets) -> str:
        """Why a commit must not be accepted; nothing if it may."""
        member_id, epoch = event.request.member_id, event.request.generation_id_or_member_epoch
        place = self.group(event.group_id).places.get(member_id)
        if place is None:
            return f"{member_id} is no member, and its commit is taken"
        if epoch != place.epoch and not self.may_commit(place, epoch, event):
            return f"{member_id} is at epoch {place.epoch}, and commits with epoch {epoch}"
        return ""

    def appended(self, batch: Batch, cause: object) -> None:
        own = [change for change in batch.changes if isinstance(change, RecordChange)]
        for change in own:
            group, member_id = self.group(change.group_id), getattr(change.key, "member_id", "")
            if isinstance(change.key, self.kind.member) and change.value is None and member_id in group.members:
                self._check_removal(change.group_id, group, member_id)
        for change in own:
            self._check_epochs(change)
            self._apply(change)
        for group_id, group in {change.group_id: self.group(change.group_id) for change in own}.items():
            for member_id, place in group.places.items():
                if member_id not in group.members:
                    raise Violation(f"member {member_id} has a place in group {group_id}, and is no member")
                if place.epoch > group.epoch:
                    raise Violation(f"member {member_id} is at epoch {place.epoch}, group {group_id} at {group.epoch}")
            self.check_group(group_id, group)

    def _check_epochs(self, change: RecordChange) -> None:
        key, value, group = change.key, change.value, self.group(change.group_id)
        if isinstance(key, self.kind.epoch) and value is not None:
            epoch = value.epoch  # type: ignore[attr-defined]
            if epoch <= group.epoch:
                raise Violation(f"the epoch of group {change.group_id} goes from {group.epoch} to {epoch}")
        elif isinstance(key, self.kind.target_epoch) and value is not None:
            epoch = value.assignment_epoch  # type: ignore[attr-defined]
            if not group.target_epoch < epoch <= group.epoch:
                text = f"from {group.target_epoch} to {epoch}, the group is at {group.epoch}"
                raise Violation(f"the epoch of the target of {change.group_id} goes {text}")

    def _check_removal(self, group_id: str, group: LoggedGroup[PlaceT], member_id: str) -> None:
        """A member is removed that has left, or was not heard of."""
        event: Any = self._event
        if isinstance(event, self.kind.heartbeat):
            request: Any = event.request  # type: ignore[attr-defined]
            instance_id = getattr(group.members[member_id], "instance_id", None)
            if request.member_id == member_id and request.member_epoch < JOIN:
                return
            if instance_id is not None and instance_id == request.instance_id and request.member_epoch <= JOIN:
                return
        elif isinstance(event, machine.Tick):
            key = (group_id, member_id)
            is_silent = key not in self._served_ms or self._silent_ms(self._served_ms, key) >= SESSION_MS
            if is_silent or self._is_overdue(group, key):
                return
        raise Violation(f"{member_id} of group {group_id} is removed by {event}, and was heard of")

    def _silent_ms(self, times: dict[tuple[str, str], int], key: tuple[str, str]) -> int:
        return self.stage.now_ms - times.get(key, self.stage.now_ms)

    def _is_overdue(self, group: LoggedGroup[PlaceT], key: tuple[str, str], grace_ms: int = 0) -> bool:
        """Whether a member has kept for too long what it has to give back."""
        allowed_ms = self.revocation_ms(group, key[1])
        return allowed_ms is not None and self._silent_ms(self._placed_ms, key) >= allowed_ms + grace_ms

    def _apply(self, change: RecordChange) -> None:
        key, value, group = change.key, change.value, self.group(change.group_id)
        member_id: str = getattr(key, "member_id", "")
        if isinstance(key, self.kind.epoch):
            group.epoch = 0 if value is None else value.epoch  # type: ignore[attr-defined]
        elif isinstance(key, self.kind.target_epoch):
            group.target_epoch = 0 if value is None else value.assignment_epoch  # type: ignore[attr-defined]
        elif isinstance(key, self.kind.member):
            _put(group.members, member_id, value)
        elif isinstance(key, self.kind.place):
            _put(group.places, member_id, None if value is None else self.place_of(value))
            self._placed_ms[change.group_id, member_id] = self.stage.now_ms
        else:
            _put(group.others, f"{type(key).__name__} {member_id}".strip(), value)

    def committed(self, batch: Batch) -> None:
        for change in batch.changes:
            if isinstance(change, RecordChange) and isinstance(change.key, self.kind.place) and change.value:
                member_id: str = change.key.member_id  # type: ignore[attr-defined]
                self.committed_places.add((change.group_id, member_id, self.place_of(change.value)))

    def replied(self, asked: Asked, response: object) -> None:
        event: Any = asked.event
        if isinstance(event, events.CommitOffsets):
            assert isinstance(response, OffsetCommitResponse)
            fault = self._commit_faults.pop(id(event.waiter.token))
            if fault and response.topics[0].partitions[0].error_code == ErrorCode.NONE:
                raise Violation(fault)
        if not isinstance(event, self.kind.heartbeat):
            return
        request: Any = event.request  # type: ignore[attr-defined]
        before = self._before.pop(id(event.waiter.token), None)  # type: ignore[attr-defined]
        body: Any = getattr(response, "response", response)
        if body.error_code != ErrorCode.NONE or request.member_epoch < JOIN:
            return
        self._served_ms[request.group_id, request.member_id] = asked.came_ms
        if request.member_epoch > JOIN and before is None:
            raise Violation(f"{request.member_id} is no member, and its heartbeat is taken")
        committed = self.committed_of(request.group_id, request.member_id)
        if not any(place.epoch == body.member_epoch for place in committed):
            raise Violation(f"{request.member_id} was told epoch {body.member_epoch}, which is not committed")
        self.check_answer(asked, body, before)

    def committed_of(self, group_id: str, member_id: str) -> Iterable[PlaceT]:
        return (place for group, member, place in self.committed_places if (group, member) == (group_id, member_id))

    def may_commit(self, place: PlaceT, epoch: int, event: events.CommitOffsets) -> bool:
        """Whether a member may commit with an epoch that is not its own."""
        return False

    def loaded(self) -> None:
        """What was cut away never was. The sessions of all members begin again."""
        self.latest.clear()
        for batch in self.stage.log:
            for change in batch.changes:
                if isinstance(change, RecordChange):
                    self._apply(change)
        self._served_ms.clear()
        for group_id, group in self.latest.items():
            for member_id in group.members:
                self._heard_ms[group_id, member_id] = self._served_ms[group_id, member_id] = self.stage.now_ms

    def look(self) -> None:
        """After time has passed: a member that was not heard of is no member, nor one that keeps what it must give."""
        if self.stage.manners.refuses or self.stage.now_ms <= self._refused_until_ms:
            return
        for group_id, group in self.latest.items():
            for member_id in group.members:
                key = (group_id, member_id)
                silent_ms = self._silent_ms(self._heard_ms, key)
                if silent_ms > SESSION_MS and not self.is_away(group, member_id):
                    raise Violation(f"{member_id} of group {group_id} was not heard of for {silent_ms} ms")
                if self._is_overdue(group, key, grace_ms=1):
                    raise Violation(f"{member_id} of group {group_id} does not give back what it has to")


def _put(values: dict[str, Any], key: str, value: Any) -> None:
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value
