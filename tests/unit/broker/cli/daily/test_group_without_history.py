"""`moldau group explain` of groups without a problem, and for a user to whom the history of a group is not told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, Producer, ShareConsumer, TopicPartition

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from moldau.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatResponse, TaskIds
from moldau.testing.namespace import Namespace
from tests.support.daily_command import DailyCommand, properties_text
from tests.support.daily_members import MEMBER, STREAMS, client_of, member

pytestmark = [pytest.mark.processes, pytest.mark.moldau(secure=True, users=("alice",))]
RECORDS: Final = 10
LIBRARY: Final = "confluent-kafka"
ONLY_NOW: Final = "only what is seen now is told: the broker keeps no history of groups, or the user may not describe"


class Reading:
    """A topic with ten records, and a group of one kind that reads it. The user alice may describe both, and not the
    settings of the group.
    """

    def __init__(self, kafka: Namespace, kind: str, directory: Path) -> None:
        self._kafka = kafka
        self.kind = kind
        self.topic, self.group = kafka.topic(kind), kafka.group(kind)
        self.admin, self.alice = (self._command(user, directory) for user in ("admin", "alice"))
        producer = Producer(kafka.client_settings(LIBRARY, "admin"))
        for number in range(RECORDS):
            producer.produce(self.topic, str(number), partition=0)
        assert producer.flush(30) == 0
        kafka.allow("alice", "describe", topic=self.topic, group=self.group)

    def _command(self, user: str, directory: Path) -> DailyCommand:
        file = directory / f"{user}.properties"
        file.write_text(properties_text(self._kafka.client_settings("java", user)))
        return DailyCommand(self._kafka.bootstrap_servers, {"MOLDAU_COMMAND_CONFIG": str(file)})

    def told(self, run: DailyCommand) -> dict[str, str]:
        """The sentences about the group by their symptoms."""
        rows = run.rows("group", "explain", self.group)
        assert len({row["symptom"] for row in rows}) == len(rows)
        return {row["symptom"]: row["text"] for row in rows}

    @contextmanager
    def member(self, committed: int) -> Iterator[None]:
        """A member that has committed an offset; a share member acknowledges all records."""
        settings = {**self._kafka.client_settings(LIBRARY, "admin"), "group.id": self.group}
        if self.kind == "share":
            self.admin.done("config", "set", "group", self.group, "share.auto.offset.reset=earliest")
            with ShareConsumer({**settings, "share.acknowledgement.mode": "explicit"}) as opened:
                opened.subscribe([self.topic])
                count = 0
                while count < RECORDS:
                    for record in opened.poll(1.0):
                        opened.acknowledge(record)
                        count += 1
                opened.commit_sync()
                yield
        elif self.kind == "streams":
            security = self._kafka.client_settings("java", "admin")
            self.admin.done("config", "set", "group", self.group, "streams.initial.rebalance.delay.ms=0")
            with member(self._kafka.bootstrap_servers, self.kind, self.group, self.topic, security) as epoch:
                self._commit_of_application(epoch, committed, security)
                yield
        else:
            begins = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "group.protocol": self.kind}
            consumer = Consumer({**settings, **begins})
            consumer.subscribe([self.topic])
            try:
                while consumer.poll(0.3) is None:
                    pass
                consumer.commit(offsets=[TopicPartition(self.topic, 0, committed)], asynchronous=False)
                yield
            finally:
                consumer.close()

    def _commit_of_application(self, epoch: int, committed: int, security: dict[str, str]) -> None:
        """A Streams member says that it has its task, and commits."""
        has_task = STREAMS(
            group_id=self.group,
            member_id=MEMBER,
            member_epoch=epoch,
            endpoint_information_epoch=0,
            active_tasks=[TaskIds(subtopology_id="0", partitions=[0])],
            standby_tasks=[],
            warmup_tasks=[],
            shutdown_application=False,
        )
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=committed)
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=epoch,
            member_id=MEMBER,
            topics=[OffsetCommitRequestTopic(name=self.topic, partitions=[partition])],
        )
        with client_of(self._kafka.bootstrap_servers, security) as client:
            beat = client.ask_coordinator(self.group, has_task, StreamsGroupHeartbeatResponse)
            assert beat.error_code == ErrorCode.NONE, beat
            reply = client.ask_coordinator(self.group, request, OffsetCommitResponse, version=9)
        assert reply.topics[0].partitions[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize("kind", ["classic", "consumer", "share", "streams"])
def test_a_group_that_has_read_all_with_and_without_its_member(kafka: Namespace, kind: str, tmp_path: Path) -> None:
    reading = Reading(kafka, kind, tmp_path)
    with reading.member(RECORDS):
        well = {"well": "the group is Stable with 1 member and 1 partition, and has no lag"}
        assert reading.told(reading.admin) == well
        told = reading.told(reading.alice)
        assert told.pop("no-history").startswith(ONLY_NOW) and told == well
    idle = {"idle": "the group has no members and no lag"}
    assert reading.told(reading.admin) == idle
    told = reading.told(reading.alice)
    assert told.pop("no-history").startswith(ONLY_NOW) and told == idle


@pytest.mark.parametrize("kind", ["classic", "consumer", "streams"])
def test_lag_of_a_member_whose_last_commit_is_not_told(kafka: Namespace, kind: str, tmp_path: Path) -> None:
    reading = Reading(kafka, kind, tmp_path)
    with reading.member(4):
        assert reading.told(reading.admin).keys() == {"slow"}
        told = reading.told(reading.alice)
    assert told.keys() == {"lags", "no-history"}
    assert told["lags"].startswith(f"{reading.topic}-0 lags by 6 records: member ")
    assert told["lags"].endswith(" at 127.0.0.1 reads it")
