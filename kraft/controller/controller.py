"""The active controller: one request in, one decision out; what it decided is replayed before the next request.

    step, tick    decide by the image and the sessions, and change neither but for who was heard from
    replay        makes a decision's records part of the image, which runs ahead of what is committed

A new leader of the quorum builds a new controller from the end of its log; one that lost its leadership drops it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kraft.controller.broker_lifecycle import BrokerSessions, fence, heartbeat
from kraft.controller.broker_registration import register_broker
from kraft.controller.decision import Decision
from kraft.controller.leadership import changes_of_leaderless
from kraft.controller.partition_index import PartitionIndex
from kraft.controller.settings import ControllerSettings
from kraft.controller.silence import Silences
from kraft.controller.view import View
from kraft.features import ELIGIBLE_LEADER_REPLICAS
from kraft.image.metadata_image import MetadataDelta, MetadataImage, Provenance
from kraft.image.replay import Replay
from protocol.records.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
)

if TYPE_CHECKING:
    from protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
    from protocol.messages.alter_configs import AlterConfigsRequest
    from protocol.messages.alter_partition import AlterPartitionRequest
    from protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
    from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
    from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
    from protocol.messages.broker_registration import BrokerRegistrationRequest
    from protocol.messages.controller_registration import ControllerRegistrationRequest
    from protocol.messages.create_partitions import CreatePartitionsRequest
    from protocol.messages.create_topics import CreateTopicsRequest
    from protocol.messages.delete_topics import DeleteTopicsRequest
    from protocol.messages.elect_leaders import ElectLeadersRequest
    from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
    from protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
    from protocol.messages.unregister_broker import UnregisterBrokerRequest
    from protocol.messages.update_features import UpdateFeaturesRequest

BOOTSTRAP = "Bootstrap records"
AT_ONCE_MAX: Final = 1_000
"""Leaders that are moved back at one time."""


class Controller:
    """Owns the image at the end of the log and the brokers' sessions."""

    def __init__(
        self, replay: Replay, settings: ControllerSettings, now_ms: int, index: PartitionIndex | None = None
    ) -> None:
        """`index`: of the topics in `replay`, where it was made beforehand."""
        self._replay = replay
        self._settings = settings
        self._index = PartitionIndex(replay.image.topics) if index is None else index
        self._sessions = BrokerSessions(replay.image, settings.broker_session_timeout_ms, now_ms)
        self._silences = Silences(settings.broker_silence_fence_ms)
        self._last_append_ms = now_ms
        self._rebalance_ms = now_ms + settings.leader_imbalance_check_interval_seconds * 1000
        """When leadership is looked at next, to give it back to preferred replicas."""
        self._unclean_ms = now_ms + settings.unclean_leader_election_interval_ms
        """When partitions without a leader are looked at next."""
        self._steps = self._table()

    @property
    def state(self) -> Replay:
        """What the log says up to its end, with the metadata transaction that is open in it, if one is."""
        return self._replay

    @property
    def image(self) -> MetadataImage:
        """Everything decided so far, committed or not: for decisions, not for readers."""
        return self._replay.image

    @property
    def view(self) -> View:
        return View(self.image, self._index, self._settings)

    def activate(self, bootstrap: Sequence[object], registration: RegisterControllerRecord) -> list[Decision]:
        """What a new leader writes first: the end of a transaction that its predecessor left open, the bootstrap
        records where there is no metadata yet, its own registration, elections that its predecessor did not come to."""
        decisions = []
        if self._replay.in_transaction:
            decisions.append(Decision([AbortTransactionRecord(reason="failover")]))
        if not self.image.features.levels:
            records = [*bootstrap, *self._bootstrap_settings(bootstrap)]
            decisions.append(Decision([BeginTransactionRecord(name=BOOTSTRAP), *records, EndTransactionRecord()]))
        decisions.append(Decision([registration]))
        decisions.append(Decision([*changes_of_leaderless(self.view)], is_atomic=False))
        return decisions

    def _bootstrap_settings(self, bootstrap: Sequence[object]) -> Iterator[object]:
        """Eligible leader replicas rest on a min.insync.replicas of the whole cluster."""
        levels = {each.name: each.feature_level for each in bootstrap if isinstance(each, FeatureLevelRecord)}
        if levels.get(ELIGIBLE_LEADER_REPLICAS, 0) > 0:
            from kraft.controller.feature_control import records_of_eligible_replicas

            yield from records_of_eligible_replicas(self.view)

    def step(self, request: object, now_ms: int) -> Decision:
        """Decide on a request (a message of the protocol); `AssertionError` where the controller has no such API."""
        decide = self._steps.get(type(request).__name__)
        assert decide is not None, f"{type(request).__name__} is not for the controller"
        return decide(request, now_ms)

    def tick(self, now_ms: int) -> Iterable[Decision]:
        """What time brings: brokers that were not heard from are fenced, and a silent log gets a NoOpRecord."""
        for broker_id in sorted({*self._sessions.expired(now_ms), *self._silences.expired(now_ms)}):
            broker = self.image.cluster.brokers.get(broker_id)
            if broker is None or broker.fenced:
                self._forget(broker_id)
            else:
                yield Decision(fence(self.view, broker), is_atomic=False)  # its replay ends the session
        yield from self._elections(now_ms)
        idle_ms = self._settings.metadata_max_idle_interval_ms
        if idle_ms and now_ms >= self._last_append_ms + idle_ms:
            yield Decision([NoOpRecord()])

    def _elections(self, now_ms: int) -> Iterator[Decision]:
        """Where there are many, the rest is done at the next tick."""
        if now_ms >= self._rebalance_ms:
            records = self._balancing()
            if len(records) < AT_ONCE_MAX:
                self._rebalance_ms = now_ms + self._settings.leader_imbalance_check_interval_seconds * 1000
            if records:
                yield Decision(records, is_atomic=False)
        if now_ms >= self._unclean_ms:
            self._unclean_ms = now_ms + self._settings.unclean_leader_election_interval_ms
            if self._index.leaderless:
                yield Decision([*changes_of_leaderless(self.view)], is_atomic=False)

    def _balancing(self) -> Sequence[object]:
        if not self._settings.auto_leader_rebalance_enable or not self._index.imbalanced:
            return ()
        from kraft.controller.elections import balancing

        return balancing(self.view, AT_ONCE_MAX)

    def disconnected(self, broker_id: int, now_ms: int) -> None:
        """The broker may be gone: it is fenced unless it is heard from soon."""
        self._silences.lost(broker_id, now_ms)

    def silent_since(self, broker_id: int, heard_ms: int) -> None:
        """The broker led the quorum until it fell silent: it is fenced unless it is heard from in time."""
        self._silences.silent_since(broker_id, heard_ms)

    def _forget(self, broker_id: int) -> None:
        self._sessions.forget(broker_id)
        self._silences.forget(broker_id)

    def next_deadline_ms(self) -> int:
        idle_ms = self._settings.metadata_max_idle_interval_ms
        deadlines = [self._sessions.next_deadline_ms(), self._silences.next_deadline_ms()]
        deadlines += [self._last_append_ms + idle_ms if idle_ms else None]
        periodic_ms = min(self._rebalance_ms, self._unclean_ms)
        return min((deadline for deadline in deadlines if deadline is not None), default=periodic_ms)

    def replay(self, records: Sequence[object], provenance: Provenance, now_ms: int) -> MetadataDelta:
        """Take what was appended into the image."""
        self._last_append_ms = now_ms
        delta = self._replay.replay(records, provenance)
        self._index.update(delta.topics)
        for record in records:
            self._replay_session(record, now_ms)
        return delta

    def _replay_session(self, record: object, now_ms: int) -> None:
        match record:
            case RegisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch):
                self._forget(broker_id)
                self._sessions.touch(broker_id, epoch, now_ms)
            case (
                UnregisterBrokerRecord(broker_id=broker_id)
                | BrokerRegistrationChangeRecord(broker_id=broker_id, fenced=1)
            ):
                self._forget(broker_id)

    # One method an API; what a start does not need is imported when it is first asked for.

    def _table(self) -> dict[str, Callable[..., Decision]]:
        return {
            "BrokerRegistrationRequest": self._register_broker,
            "BrokerHeartbeatRequest": self._heartbeat,
            "AllocateProducerIdsRequest": self._allocate_producer_ids,
            "AssignReplicasToDirsRequest": self._assign_replicas,
            "AlterPartitionRequest": self._alter_partition,
            "AlterPartitionReassignmentsRequest": self._alter_reassignments,
            "ListPartitionReassignmentsRequest": self._list_reassignments,
            "ElectLeadersRequest": self._elect_leaders,
            "UnregisterBrokerRequest": self._unregister_broker,
            "UpdateFeaturesRequest": self._update_features,
            "ControllerRegistrationRequest": self._register_controller,
            "CreateTopicsRequest": self._create_topics,
            "DeleteTopicsRequest": self._delete_topics,
            "CreatePartitionsRequest": self._create_partitions,
            "AlterConfigsRequest": self._alter_configs,
            "IncrementalAlterConfigsRequest": self._incremental_alter_configs,
        }

    def _register_broker(self, request: BrokerRegistrationRequest, now_ms: int) -> Decision:
        is_alive = self._sessions.is_alive(self.image.cluster.brokers.get(request.broker_id), now_ms)
        return register_broker(self.view, request, is_alive=is_alive, next_offset=self.image.provenance.end_offset)

    def _heartbeat(self, request: BrokerHeartbeatRequest, now_ms: int) -> Decision:
        broker = self.image.cluster.brokers.get(request.broker_id)
        if broker is not None and broker.epoch == request.broker_epoch:
            self._sessions.touch(broker.id, broker.epoch, now_ms, request.current_metadata_offset)
            self._silences.heard(broker.id, now_ms)
        return heartbeat(self.view, self._sessions, request)

    def _allocate_producer_ids(self, request: AllocateProducerIdsRequest, now_ms: int) -> Decision:
        from kraft.controller.producer_id_control import allocate_producer_ids

        return allocate_producer_ids(self.image, request)

    def _assign_replicas(self, request: AssignReplicasToDirsRequest, now_ms: int) -> Decision:
        from kraft.controller.directory_assignment import assign_replicas

        return assign_replicas(self.view, request)

    def _alter_partition(self, request: AlterPartitionRequest, now_ms: int) -> Decision:
        from kraft.controller.in_sync_control import alter_partition

        return alter_partition(self.view, request)

    def _alter_reassignments(self, request: AlterPartitionReassignmentsRequest, now_ms: int) -> Decision:
        from kraft.controller.reassignment import alter_reassignments

        return alter_reassignments(self.view, request)

    def _list_reassignments(self, request: ListPartitionReassignmentsRequest, now_ms: int) -> Decision:
        from kraft.controller.reassignment import list_reassignments

        return list_reassignments(self.view, request)

    def _elect_leaders(self, request: ElectLeadersRequest, now_ms: int) -> Decision:
        from kraft.controller.elections import elect_leaders

        return elect_leaders(self.view, request)

    def _unregister_broker(self, request: UnregisterBrokerRequest, now_ms: int) -> Decision:
        from kraft.controller.unregistration import unregister_broker

        return unregister_broker(self.view, request)

    def _update_features(self, request: UpdateFeaturesRequest, now_ms: int) -> Decision:
        from kraft.controller.feature_control import update_features

        return update_features(self.view, request)

    def _register_controller(self, request: ControllerRegistrationRequest, now_ms: int) -> Decision:
        from kraft.controller.controller_registration import register_controller

        return register_controller(request)

    def _create_topics(self, request: CreateTopicsRequest, now_ms: int) -> Decision:
        from kraft.controller.topic_creation import create_topics

        return create_topics(self.view, request)

    def _delete_topics(self, request: DeleteTopicsRequest, now_ms: int) -> Decision:
        from kraft.controller.topic_deletion import delete_topics

        return delete_topics(self.image, request, self._settings)

    def _create_partitions(self, request: CreatePartitionsRequest, now_ms: int) -> Decision:
        from kraft.controller.partition_creation import create_partitions

        return create_partitions(self.view, request)

    def _alter_configs(self, request: AlterConfigsRequest, now_ms: int) -> Decision:
        from kraft.controller.config_control import alter_configs

        return alter_configs(self.view, request)

    def _incremental_alter_configs(self, request: IncrementalAlterConfigsRequest, now_ms: int) -> Decision:
        from kraft.controller.config_control import incremental_alter_configs

        return incremental_alter_configs(self.view, request)
