"""The table of a broker's life, pair by pair."""

from __future__ import annotations

from itertools import product

import pytest

from moldau.kraft.controller.broker_sessions import BrokerSessions
from moldau.kraft.controller.context import DecisionContext
from moldau.kraft.controller.failure_detector import FailureDetector
from moldau.kraft.controller.nodes.broker_lifecycle import (
    HANDED_OVER_PARTITIONS_MIN,
    NEXT_STATE,
    BrokerState,
    RequestedState,
    heartbeat,
    next_state,
    state_of,
)
from moldau.kraft.controller.partition_index import PartitionIndex
from moldau.kraft.controller.view import ControllerView
from moldau.kraft.image.cluster import Broker
from moldau.kraft.image.metadata_image import MetadataImage, Provenance
from moldau.kraft.image.topics import NO_LEADER
from moldau.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from moldau.protocol.records.metadata import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
)
from tests.support.controller_scribe import SETTINGS
from tests.unit.kraft.image.images import broker, image_of, topic, uuid

LIVING = [state for state in BrokerState if state is not BrokerState.SHUTDOWN_NOW]


def broker_in(image: MetadataImage, state: BrokerState) -> Broker:
    return image.cluster.brokers[1]._replace(
        fenced=state is BrokerState.FENCED, in_controlled_shutdown=state is BrokerState.CONTROLLED_SHUTDOWN
    )


def context_of(view: ControllerView, sessions: BrokerSessions) -> DecisionContext:
    return DecisionContext(view, sessions, FailureDetector(0), now_ms=0, end_offset=lambda: 0)


def test_every_wish_has_an_answer_in_every_state() -> None:
    assert set(NEXT_STATE) == set(product(LIVING, RequestedState))


@pytest.mark.parametrize("leads", [False, True])
@pytest.mark.parametrize("may_go", [False, True])
@pytest.mark.parametrize("is_caught_up", [False, True])
@pytest.mark.parametrize(("state", "wish"), list(NEXT_STATE))
def test_every_pair(state: BrokerState, wish: RequestedState, is_caught_up: bool, may_go: bool, leads: bool) -> None:
    """The table, but for what holds a step back: not having caught up, still leading, others who do not know yet."""
    image = image_of([broker(1), *(topic("t", 7) if leads else [])])
    expected = NEXT_STATE[state, wish]
    if (state, wish) == (BrokerState.FENCED, RequestedState.SERVE) and not is_caught_up:
        expected = BrokerState.FENCED
    if (state, wish) == (BrokerState.UNFENCED, RequestedState.SHUT_DOWN) and not leads:
        expected = BrokerState.SHUTDOWN_NOW
    if (state, wish) == (BrokerState.CONTROLLED_SHUTDOWN, RequestedState.SHUT_DOWN) and (leads or not may_go):
        expected = BrokerState.CONTROLLED_SHUTDOWN
    standing = broker_in(image, state)
    assert state_of(standing) is state
    view = ControllerView(image, PartitionIndex(image.topics), SETTINGS)
    assert next_state(view, standing, state, wish, is_caught_up=is_caught_up, may_go=may_go) is expected


@pytest.mark.parametrize(("behind", "is_caught_up"), [(2, False), (1, False), (0, True), (-1, True)])
def test_a_broker_has_caught_up_once_it_read_its_own_registration(behind: int, is_caught_up: bool) -> None:
    """The epoch of a broker is the offset of its registration; with the record before it knows of no registration."""
    image = image_of([broker(1, epoch=5)])
    request = BrokerHeartbeatRequest(
        broker_id=1, broker_epoch=5, current_metadata_offset=5 - behind, want_fence=False, want_shut_down=False
    )
    view = ControllerView(image, PartitionIndex(image.topics), SETTINGS)
    decision = heartbeat(context_of(view, BrokerSessions(image, 9000, now_ms=0)), request)
    reply = decision.reply
    assert isinstance(reply, BrokerHeartbeatResponse)
    assert (reply.is_caught_up, reply.is_fenced) == (is_caught_up, not is_caught_up)
    assert image_of(decision.records, image).cluster.brokers[1].fenced is not is_caught_up


@pytest.mark.parametrize("isr", [[1], [1, 2]])
def test_a_failed_directory_takes_its_replicas_and_leaves_the_last_in_sync(isr: list[int]) -> None:
    """The last member of an in-sync set stays in it without a leader: no other replica has its records."""
    image = image_of(
        [
            broker(1),
            broker(2),
            *topic("t", 7),
            PartitionChangeRecord(partition_id=0, topic_id=uuid(7), isr=isr),
            BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=-1, log_dirs=[uuid(1001), uuid(1101)]),
            BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=5, fenced=-1),
        ]
    )
    request = BrokerHeartbeatRequest(
        broker_id=1,
        broker_epoch=5,
        current_metadata_offset=5,
        want_fence=False,
        want_shut_down=False,
        offline_log_dirs=[uuid(1001)],
    )
    view = ControllerView(image, PartitionIndex(image.topics), SETTINGS)
    after = image_of(heartbeat(context_of(view, BrokerSessions(image, 9000, now_ms=0)), request).records, image)
    assert after.cluster.brokers[1].directories == (uuid(1101),)
    ((_, _, partition),) = after.topics.partitions()
    others = tuple(each for each in isr if each != 1)
    assert (partition.isr, partition.leader) == ((others, 2) if others else ((1,), NO_LEADER))


def test_a_broker_with_a_newly_failed_directory_stays_fenced_until_its_next_heartbeat() -> None:
    """The partition in the failed directory would get the broker as its leader, and lose it from its in-sync set."""
    image = image_of(
        [
            FeatureLevelRecord(name="metadata.version", feature_level=30),
            broker(1),
            broker(2),
            *topic("t", 7, partitions=2),
            *(PartitionChangeRecord(partition_id=index, topic_id=uuid(7), leader=NO_LEADER) for index in range(2)),
            PartitionChangeRecord(partition_id=1, topic_id=uuid(7), directories=[uuid(1101), uuid(1002)]),
            BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, log_dirs=[uuid(1001), uuid(1101)]),
        ]
    )
    request = BrokerHeartbeatRequest(
        broker_id=1,
        broker_epoch=5,
        current_metadata_offset=5,
        want_fence=False,
        want_shut_down=False,
        offline_log_dirs=[uuid(1001)],
    )
    for is_fenced in (True, False):
        view = ControllerView(image, PartitionIndex(image.topics), SETTINGS)
        decision = heartbeat(context_of(view, BrokerSessions(image, 9000, now_ms=0)), request)
        assert isinstance(decision.reply, BrokerHeartbeatResponse) and decision.reply.is_fenced is is_fenced
        image = image_of([record for each in decision.batches() for record in each], image)
        lost, sound = (each for _, _, each in image.topics.partitions())
        assert (lost.isr, lost.leader) == ((2,), NO_LEADER)
        assert (sound.isr, sound.leader) == ((1, 2), NO_LEADER if is_fenced else 1)
    assert image.cluster.brokers[1].directories == (uuid(1101),)


@pytest.mark.parametrize("metadata_version", [29, 30])
def test_cordoned_directories_are_written_only_if_all_nodes_can_read_them(metadata_version: int) -> None:
    image = image_of([FeatureLevelRecord(name="metadata.version", feature_level=metadata_version), broker(1)])
    request = BrokerHeartbeatRequest(
        broker_id=1,
        broker_epoch=5,
        current_metadata_offset=5,
        want_fence=True,
        want_shut_down=False,
        cordoned_log_dirs=[uuid(1001)],
    )
    view = ControllerView(image, PartitionIndex(image.topics), SETTINGS)
    decision = heartbeat(context_of(view, BrokerSessions(image, 9000, now_ms=0)), request)
    assert bool(decision.records) is (metadata_version == 30)


def test_a_broker_goes_when_all_others_know() -> None:
    image = image_of([broker(1), broker(2), broker(3)])
    serving = {node_id: each._replace(fenced=False) for node_id, each in image.cluster.brokers.items()}
    cluster = image.cluster._replace(brokers=serving)
    sessions = BrokerSessions(image, 9000, now_ms=0)
    for node_id, each in serving.items():
        sessions.note_heartbeat(node_id, each.epoch, 0, metadata_offset=50)
    sessions.note_shutdown(1, 61)
    sessions.note_shutdown(1, 99)
    assert not sessions.is_shutdown_known(1, cluster)
    sessions.note_heartbeat(2, serving[2].epoch, 1, metadata_offset=60)
    assert not sessions.is_shutdown_known(1, cluster), "broker 3 may still ask for what broker 1 led"
    fenced = cluster._replace(brokers={**serving, 3: serving[3]._replace(fenced=True)})
    assert sessions.is_shutdown_known(1, fenced), "one that is fenced need not know"
    sessions.note_heartbeat(3, serving[3].epoch, 1, metadata_offset=60)
    sessions.note_heartbeat(1, serving[1].epoch, 2, metadata_offset=60)
    assert sessions.is_shutdown_known(1, cluster), "its own heartbeats change nothing of it"


def test_a_broker_that_shuts_down_leaves_some_partitions_at_a_time() -> None:
    """Until others lead them all, and it is in sync with none; it goes once the others have read that."""
    image = image_of([broker(1), broker(2), *topic("t", 7, partitions=100)])
    serving = {node_id: each._replace(fenced=False) for node_id, each in image.cluster.brokers.items()}
    image = image._replace(
        cluster=image.cluster._replace(brokers=serving), provenance=Provenance(end_offset=200, epoch=1)
    )
    sessions = BrokerSessions(image, 9000, now_ms=0)
    asks = BrokerHeartbeatRequest(
        broker_id=1, broker_epoch=5, current_metadata_offset=199, want_fence=False, want_shut_down=True
    )
    led = []
    for _ in range(3):
        view = ControllerView(image, PartitionIndex(image.topics), SETTINGS)
        led.append(len(view.by_broker.partitions_led(1)))
        sessions.note_heartbeat(2, 5, 0, metadata_offset=199)
        decision = heartbeat(context_of(view, sessions), asks)
        assert isinstance(decision.reply, BrokerHeartbeatResponse) and not decision.reply.should_shut_down
        for records in decision.batches():
            image = image_of(records, image)
        image = image._replace(provenance=Provenance(end_offset=300, epoch=1))
    assert (
        led == [100, 100 - HANDED_OVER_PARTITIONS_MIN, 0]
        and state_of(image.cluster.brokers[1]) is BrokerState.CONTROLLED_SHUTDOWN
    )
    assert all(each.isr == (2,) for _, _, each in image.topics.partitions())
    sessions.note_heartbeat(2, 5, 0, metadata_offset=299)
    decision = heartbeat(context_of(ControllerView(image, PartitionIndex(image.topics), SETTINGS), sessions), asks)
    assert isinstance(decision.reply, BrokerHeartbeatResponse) and decision.reply.should_shut_down
    assert image_of(decision.records, image).cluster.brokers[1].fenced


@pytest.mark.parametrize("wish", [RequestedState.SERVE, RequestedState.FENCE])
def test_a_heartbeat_that_comes_late_brings_no_broker_back_that_has_shut_down(wish: RequestedState) -> None:
    """It was sent before the broker began to leave, and was asked again of a later controller."""
    image = image_of([broker(1), *topic("t", 7)])
    gone = image.cluster.brokers[1]._replace(fenced=True, in_controlled_shutdown=True)
    image = image._replace(cluster=image.cluster._replace(brokers={1: gone}))
    view = ControllerView(image, PartitionIndex(image.topics), SETTINGS)
    late = BrokerHeartbeatRequest(
        broker_id=1,
        broker_epoch=gone.epoch,
        current_metadata_offset=199,
        want_fence=wish is RequestedState.FENCE,
        want_shut_down=False,
    )
    decision = heartbeat(context_of(view, BrokerSessions(image, 9000, now_ms=0)), late)
    assert not decision.records
    assert isinstance(decision.reply, BrokerHeartbeatResponse) and decision.reply.is_fenced


def test_sessions() -> None:
    image = image_of([broker(1)])
    unfenced = image._replace(cluster=image.cluster._replace(brokers={1: broker_in(image, BrokerState.UNFENCED)}))
    registered = unfenced.cluster.brokers[1]
    sessions = BrokerSessions(unfenced, 9000, now_ms=100)
    assert sessions.next_deadline_ms() == 9100
    assert not sessions.is_alive(registered, 100), "read of, never heard from"
    sessions.note_heartbeat(1, registered.epoch, 200)
    assert sessions.is_alive(registered, 9199) and not sessions.is_alive(registered, 9200)
    assert sessions.expired_brokers(9199) == [] and sessions.expired_brokers(9200) == [1]
    assert not sessions.is_alive(registered._replace(epoch=6), 200), "another incarnation"
    assert not sessions.is_alive(None, 200)
    sessions.forget(1)
    assert sessions.next_deadline_ms() is None
    assert BrokerSessions(image, 9000, now_ms=0).next_deadline_ms() is None, "a fenced broker has no session"
