"""The turns of the active controller: a decision about many partitions in slices, and what waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from moldau.broker.metadata.active_controller import ActiveController
from moldau.broker.metadata.metadata_log import DiskFull
from moldau.broker.metadata.publisher import MetadataPublisher
from moldau.kraft.controller.controller import Controller
from moldau.kraft.controller.decision import PARTITIONS_PER_SLICE
from moldau.kraft.image.metadata_image import Provenance
from moldau.kraft.image.replay import Replay
from moldau.kraft.image.topics import NO_LEADER
from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from moldau.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from moldau.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from moldau.protocol.records.metadata import (
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from tests.support.controller_scribe import SETTINGS

TOPIC = (9).to_bytes(16, "big")
PARTITIONS = 10 * PARTITIONS_PER_SLICE
BATCHES_MIN = 8


class Stage:
    """A controller whose batches are committed at once, or when the test says so."""

    def __init__(self, *, commits: bool = True) -> None:
        first = [
            FeatureLevelRecord(name="metadata.version", feature_level=30),
            RegisterBrokerRecord(broker_id=1, incarnation_id=bytes(16), broker_epoch=5, fenced=False),
            TopicRecord(name="t", topic_id=TOPIC),
            *(
                PartitionRecord(
                    partition_id=index,
                    leader_epoch=0,
                    partition_epoch=0,
                    topic_id=TOPIC,
                    replicas=[1],
                    isr=[1],
                    leader=1,
                    directories=[(1001).to_bytes(16, "big")],
                )
                for index in range(PARTITIONS)
            ),
        ]
        replay = Replay()
        replay.replay(first, Provenance(len(first), 1, 0))
        self.end_offset = len(first)
        self.commits = commits
        self.room = 10_000
        """Of so many batches."""
        self.faulty_batch: int | None = None
        """Its append raises what a bug raises."""
        self.batches: list[tuple[int, Sequence[object]]] = []
        """Each with the offset of its first record."""
        self.told: list[str] = []
        self.responses: dict[str, Any] = {}
        self.publisher = MetadataPublisher()
        self.publisher.replay = replay.fork()
        environment = SimpleNamespace(monotonic_ms=lambda: 0)
        self.controller = Controller(replay, SETTINGS, 0)
        self.active = ActiveController(
            self.controller, cast("Any", environment), self.publisher, self._append, lambda version: None
        )

    def _append(self, records: Sequence[object], version: int) -> Provenance:
        if len(self.batches) == self.faulty_batch:
            self.faulty_batch = None
            raise AssertionError("a bug")
        if not self.room:
            raise DiskFull("full")
        self.room -= 1
        self.batches.append((self.end_offset, records))
        self.end_offset += len(records)
        return Provenance(self.end_offset, 1, 0)

    def submit(self, name: str, request: object) -> None:
        def reply(response: object) -> None:
            self.told.append(name)
            self.responses[name] = response

        self.active.submit(request, reply, lambda: self.told.append(f"{name} is given up"))

    async def turns(self, count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)
            if self.commits:
                self.publisher.commit(self.end_offset)


def registration() -> BrokerRegistrationRequest:
    """Of the same broker after it was killed: all its partitions lose their leader first."""
    return BrokerRegistrationRequest(
        broker_id=1,
        cluster_id="cluster",
        incarnation_id=(1).to_bytes(16, "big"),
        listeners=[Listener(name="PLAINTEXT", host="h", port=9092, security_protocol=0)],
        features=[Feature(name="metadata.version", min_supported_version=1, max_supported_version=30)],
        log_dirs=[(1001).to_bytes(16, "big")],
        previous_broker_epoch=-1,
    )


def heartbeat(epoch: int, offset: int) -> BrokerHeartbeatRequest:
    return BrokerHeartbeatRequest(
        broker_id=1, broker_epoch=epoch, current_metadata_offset=offset, want_fence=False, want_shut_down=False
    )


def test_a_decision_about_many_partitions_takes_many_turns_and_later_requests_wait_for_it() -> None:
    async def story() -> None:
        stage = Stage()
        stage.submit("registration", registration())
        stage.submit("stale", heartbeat(5, 0))
        assert len(stage.batches) <= 2 and not stage.told, "one turn does not decide on all partitions"
        await stage.turns(PARTITIONS)
        assert stage.told == ["registration", "stale"]
        assert len(stage.batches) >= BATCHES_MIN
        assert max(len(records) for _, records in stage.batches) <= PARTITIONS_PER_SLICE + 1
        assert stage.responses["stale"].error_code == ErrorCode.STALE_BROKER_EPOCH, "decided on the new incarnation"
        offset, last = stage.batches[-1]
        assert isinstance(last[-1], RegisterBrokerRecord)
        epoch = stage.responses["registration"].broker_epoch
        assert epoch == last[-1].broker_epoch == offset + len(last) - 1, "the epoch is the offset of the record"
        stage.submit("unfenced", heartbeat(epoch, stage.end_offset))
        await stage.turns(PARTITIONS)
        assert not stage.responses["unfenced"].is_fenced
        image = stage.publisher.image
        assert all(
            each.leader == 1 and each.leader_epoch == 2 for each in image.topics.by_id[TOPIC].partitions.values()
        )

    asyncio.run(story())


def test_a_deadline_before_that_of_the_timer_sets_the_timer_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first heartbeat has the deadline of the session, the second one the much earlier one of a silent broker."""

    async def story() -> None:
        stage = Stage()
        ticks: list[int] = []

        def tick(now_ms: int) -> tuple[()]:
            ticks.append(now_ms)
            return ()

        monkeypatch.setattr(stage.controller, "tick", tick)
        for deadline_ms in (9_000, 0):
            monkeypatch.setattr(stage.controller, "next_deadline_ms", lambda due_ms=deadline_ms: due_ms)
            stage.submit("heartbeat", heartbeat(5, 0))
            monkeypatch.setattr(stage.controller, "next_deadline_ms", lambda: 9_000)
        await stage.turns(5)
        assert ticks == [0]
        stage.active.resign()

    asyncio.run(story())


def test_an_election_of_all_partitions_takes_many_turns_also_if_none_needs_it() -> None:
    async def story() -> None:
        stage = Stage()
        stage.publisher.commit(stage.end_offset)
        stage.submit("all", ElectLeadersRequest(election_type=0, topic_partitions=None))
        stage.submit("named", ElectLeadersRequest(election_type=0, topic_partitions=[TopicPartitions(topic="t")]))
        assert not stage.told
        await stage.turns(BATCHES_MIN)
        assert not stage.told
        await stage.turns(BATCHES_MIN)
        assert stage.told == ["all", "named"]
        (result,) = stage.responses["all"].replica_election_results
        assert (result.topic, result.partition_result, stage.batches) == ("t", [], [])

    asyncio.run(story())


def test_the_end_of_a_term_gives_up_what_is_under_way_and_what_waits() -> None:
    async def story() -> None:
        stage = Stage(commits=False)
        stage.submit("registration", registration())
        stage.submit("heartbeat", heartbeat(5, 0))
        await stage.turns(3)
        written = len(stage.batches)
        stage.active.resign()
        await stage.turns(PARTITIONS)
        assert sorted(stage.told) == ["heartbeat is given up", "registration is given up"]
        assert len(stage.batches) == written, "nothing is written after the term"

    asyncio.run(story())


def test_a_disk_that_fills_up_between_two_slices_refuses_the_request_and_not_the_next_one() -> None:
    async def story() -> None:
        stage = Stage()
        stage.room = 3
        stage.submit("registration", registration())
        stage.submit("heartbeat", heartbeat(5, 0))
        await stage.turns(PARTITIONS)
        assert stage.responses["registration"].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert stage.told == ["registration", "heartbeat"]
        leaders = [each.leader for each in stage.publisher.image.topics.by_id[TOPIC].partitions.values()]
        assert 0 < leaders.count(NO_LEADER) < PARTITIONS, "the first batches stand"

    asyncio.run(story())


def test_a_bug_in_one_decision_holds_up_no_other_and_its_requester_is_told() -> None:
    async def story() -> None:
        stage = Stage()
        step = stage.controller.step
        stage.controller.step = lambda request, *args: step(request if request != heartbeat(6, 0) else object(), *args)  # type: ignore[method-assign]
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: stage.told.append("a bug"))
        with pytest.raises(AssertionError, match="no API"):
            stage.submit("raised to the caller", heartbeat(6, 0))
        stage.submit("registration", registration())
        stage.submit("waiting", heartbeat(6, 0))
        stage.submit("heartbeat", heartbeat(5, 0))
        await stage.turns(PARTITIONS)
        assert sorted(stage.told) == ["a bug", "heartbeat", "registration", "waiting"]
        assert stage.responses["waiting"].error_code == ErrorCode.UNKNOWN_SERVER_ERROR

    asyncio.run(story())


def test_a_bug_in_a_later_slice_is_told_to_the_requester() -> None:
    async def story() -> None:
        stage = Stage()
        stage.faulty_batch = 3
        stage.submit("registration", registration())
        stage.submit("heartbeat", heartbeat(5, 0))
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: stage.told.append("a bug"))
        await stage.turns(PARTITIONS)
        assert sorted(stage.told) == ["a bug", "heartbeat", "registration"]
        assert stage.responses["registration"].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert len(stage.batches) == 3, "the first batches stand"

    asyncio.run(story())
