"""`moldau group explain`: real clients provoke a cause, and the sentence names it and no other."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, Consumer, Producer, ShareConsumer, TopicPartition

from moldau.protocol.errors import ErrorCode
from moldau.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from moldau.testing.namespace import Namespace
from tests.support.daily_command import DailyCommand
from tests.support.daily_members import client_of, member

pytestmark = pytest.mark.processes


def filled(kafka: Namespace, name: str, records: int = 10) -> str:
    topic = kafka.topic(name, partitions=1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(records):
        producer.produce(topic, str(number), partition=0)
    assert producer.flush(30) == 0
    return topic


@contextmanager
def consumer(kafka: Namespace, group: str, topic: str, **settings: Any) -> Iterator[Consumer]:
    """A member that has read a record, or waits for one if there is none."""
    common = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"}
    opened = Consumer({**common, "enable.auto.commit": False, "client.id": "billing", **settings})
    opened.subscribe([topic])
    try:
        for _ in range(100):
            if opened.poll(0.3) is not None:
                break
        yield opened
    finally:
        opened.close()


def commit(opened: Consumer, topic: str, offset: int) -> None:
    opened.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)


def symptoms(kafka: Namespace, group: str) -> dict[str, str]:
    """The sentences about a group by their symptoms; no symptom is said twice here."""
    rows = DailyCommand(kafka.bootstrap_servers).rows("group", "explain", group)
    assert len({row["symptom"] for row in rows}) == len(rows)
    return {row["symptom"]: row["text"] for row in rows}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_that_reads_lags_and_leaves(kafka: Namespace, protocol: str) -> None:
    topic, group = filled(kafka, "read"), kafka.group()
    with consumer(kafka, group, topic, **{"group.protocol": protocol}) as opened:
        assert "has committed no offset" in symptoms(kafka, group)["not-committed"]
        commit(opened, topic, 10)
        assert symptoms(kafka, group) == {"well": "the group is Stable with 1 member and 1 partition, and has no lag"}
        commit(opened, topic, 4)
        found = symptoms(kafka, group)
        assert found.keys() == {"slow", "commit-went-back"}
        assert found["slow"].startswith(f"{topic}-0 lags by 6 records, ")
        assert "member billing at 127.0.0.1 committed" in found["slow"]
        assert f"set {topic}-0 back by 6 offsets" in found["commit-went-back"]
    gone = symptoms(kafka, group)["no-members"]
    assert "member billing at 127.0.0.1 was the last one" in gone
    assert "left: it was closed, or did not poll within max.poll.interval.ms" in gone


def test_a_static_member_that_is_not_heard_of(kafka: Namespace) -> None:
    topic, group = filled(kafka, "silent"), kafka.group()
    settings = {"group.instance.id": "till-1", "session.timeout.ms": 6_000, "heartbeat.interval.ms": 500}
    with consumer(kafka, group, topic, **settings) as opened:
        commit(opened, topic, 1)
    run = DailyCommand(kafka.bootstrap_servers)
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        (listed,) = [row for row in run.rows("group", "list") if row["group"] == group]
        if listed["state"] == "Empty":
            break
    text = symptoms(kafka, group)["no-members"]
    assert "was not heard of for its session of 6 s: its process ended, stood still, or could not reach" in text


def test_records_that_were_deleted_before_the_group_read_them(kafka: Namespace) -> None:
    topic, group = filled(kafka, "deleted"), kafka.group()
    with consumer(kafka, group, topic) as opened:
        commit(opened, topic, 2)
        DailyCommand(kafka.bootstrap_servers).done("topic", "delete-records", topic, "--before", "7", "--execute")
        found = symptoms(kafka, group)
    assert f"{topic}-0: up to 5 records from offset 2 to 6 are gone" in found["records-lost"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_skip_of_auto_offset_reset_is_remembered(kafka: Namespace, protocol: str) -> None:
    topic, group = filled(kafka, f"skipped-{protocol}"), kafka.group()
    with consumer(kafka, group, topic, **{"group.protocol": protocol}) as opened:
        commit(opened, topic, 2)
    DailyCommand(kafka.bootstrap_servers).done("topic", "delete-records", topic, "--before", "7", "--execute")
    settings = {"group.protocol": protocol, "auto.commit.interval.ms": 100, "enable.auto.commit": True}
    with consumer(kafka, group, topic, **settings) as opened:
        ends = time.monotonic() + 30
        while "records-lost" not in (found := symptoms(kafka, group)) or "went past" not in found["records-lost"]:
            opened.poll(0.3)
            assert time.monotonic() < ends, found
    assert f"{topic}-0: up to 5 records were gone before the commit of" in found["records-lost"]


def test_an_offset_beyond_the_end(kafka: Namespace) -> None:
    topic, group = filled(kafka, "again"), kafka.group()
    with consumer(kafka, group, topic) as opened:
        commit(opened, topic, 500)
        assert (
            f"{topic}-0: the committed offset 500 is beyond the end 10" in symptoms(kafka, group)["offset-beyond-end"]
        )


def test_two_applications_with_one_group_id(kafka: Namespace) -> None:
    topic, group = filled(kafka, "shared"), kafka.group()
    with consumer(kafka, group, topic, **{"partition.assignment.strategy": "range"}) as opened:
        commit(opened, topic, 10)
        other = {"partition.assignment.strategy": "roundrobin", "client.id": "reports"}
        intruder = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group, **other})
        intruder.subscribe([topic])
        for _ in range(10):
            intruder.poll(0.2)
        found = symptoms(kafka, group)
        intruder.close()
    assert found.keys() == {"refused"}
    assert found["refused"].startswith("member reports at 127.0.0.1 may not join, ")
    assert "with INCONSISTENT_GROUP_PROTOCOL: " in found["refused"]
    assert "two applications use one group id" in found["refused"]


@pytest.mark.parametrize("kind", ["classic", "consumer", "streams"])
def test_a_commit_after_the_partition_was_lost(kafka: Namespace, kind: str) -> None:
    topic, group = filled(kafka, f"late-{kind}"), kafka.group()
    with ExitStack() as stack:
        if kind == "streams":
            stack.enter_context(member(kafka.bootstrap_servers, kind, group, topic))
        else:
            commit(stack.enter_context(consumer(kafka, group, topic, **{"group.protocol": kind})), topic, 10)
        client = stack.enter_context(client_of(kafka.bootstrap_servers))
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=3)
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=7,
            member_id="ghost",
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
        )
        for _ in range(3):
            reply = client.ask_coordinator(group, request, OffsetCommitResponse, version=9)
            assert reply.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
        found = symptoms(kafka, group)
    assert found.keys() - {"not-committed", "rebalancing"} == {"commits-refused"}
    assert found["commits-refused"].startswith("member ghost had its commit refused 3 times, last ")
    assert "with UNKNOWN_MEMBER_ID: the group had removed the member" in found["commits-refused"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_transaction_that_sets_an_offset_back(kafka: Namespace, protocol: str) -> None:
    topic, group = filled(kafka, f"back-{protocol}"), kafka.group()
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"{group}-t"})
    producer.init_transactions(30)
    with consumer(kafka, group, topic, **{"group.protocol": protocol}) as opened:
        for offset in (10, 4):
            producer.begin_transaction()
            member = opened.consumer_group_metadata()
            producer.send_offsets_to_transaction([TopicPartition(topic, 0, offset)], member, 30)
            producer.commit_transaction(30)
        found = symptoms(kafka, group)
    assert found.keys() == {"commit-went-back", "slow"}
    assert f"set {topic}-0 back by 6 offsets" in found["commit-went-back"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_offsets_that_an_administrator_sets_ahead(kafka: Namespace, protocol: str) -> None:
    topic, group = filled(kafka, f"ahead-{protocol}"), kafka.group()
    with consumer(kafka, group, topic, **{"group.protocol": protocol}) as opened:
        commit(opened, topic, 3)
    DailyCommand(kafka.bootstrap_servers).done("group", "reset", group, "--to", "latest", "--execute")
    found = symptoms(kafka, group)
    assert found.keys() == {"offsets-set"}
    assert f"while the group had no members, set {topic}-0 ahead by 7 offsets" in found["offsets-set"]


def test_a_consumer_that_never_joins_sets_no_offsets_ahead(kafka: Namespace) -> None:
    topic, group = filled(kafka, "alone"), kafka.group()
    run = DailyCommand(kafka.bootstrap_servers)
    for count in ("3", "2"):
        run.done("consume", topic, "--group", group, "-n", count)
    assert symptoms(kafka, group).keys() == {"no-members"}


def test_topics_that_grow_rebalance_a_group(kafka: Namespace) -> None:
    topic, group = filled(kafka, "grows"), kafka.group()
    run = DailyCommand(kafka.bootstrap_servers)
    with consumer(kafka, group, topic, **{"group.protocol": "consumer"}) as opened:
        commit(opened, topic, 10)
        for count in (2, 3, 4):
            run.done("topic", "alter", topic, "--partitions", str(count))
            for _ in range(60):
                opened.poll(0.2)
                if len(opened.assignment()) == count:
                    break
        text = symptoms(kafka, group)["rebalances"]
    assert "3 times because topics that the group reads were created, deleted or got partitions" in text
    assert "once because member billing at 127.0.0.1 joined" in text


@pytest.mark.parametrize("kind", ["share", "streams"])
def test_groups_of_the_other_kinds_have_a_history(kafka: Namespace, kind: str) -> None:
    topic, group = filled(kafka, kind), kafka.group()
    run = DailyCommand(kafka.bootstrap_servers)
    if kind == "share":
        run.done("config", "set", "group", group, "share.auto.offset.reset=earliest")
    for _ in range(3):
        with member(kafka.bootstrap_servers, kind, group, topic):
            pass
    found = symptoms(kafka, group)
    assert "3 times because member" in found["rebalances"] and "joined" in found["rebalances"]
    assert "left: it was closed" in found["rebalances"]


def test_records_of_a_share_group_that_come_back_and_are_given_up(kafka: Namespace) -> None:
    topic, group = filled(kafka, "again"), kafka.group()
    run = DailyCommand(kafka.bootstrap_servers)
    run.done("config", "set", "group", group, "share.auto.offset.reset=earliest")
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": group}
    times: Counter[int] = Counter()
    with ShareConsumer({**settings, "share.acknowledgement.mode": "explicit"}) as opened:
        opened.subscribe([topic])
        ends = time.monotonic() + 60
        while times[3] < 4 or times[5] < 2:
            assert time.monotonic() < ends, times
            for record in opened.poll(0.5):
                offset = record.offset()
                assert offset is not None
                times[offset] += 1
                verdict = AcknowledgeType.RELEASE if offset in (3, 5) else AcknowledgeType.ACCEPT
                if offset == 5 and times[5] == 2:
                    verdict = AcknowledgeType.REJECT
                opened.acknowledge(record, verdict)
            opened.commit_sync()
        found = symptoms(kafka, group)
    assert found.keys() == {"redelivered", "given-up", "lags"}
    assert (
        found["lags"].startswith(f"{topic}-0 lags by 1 record, ") and "1 member of the group reads it" in found["lags"]
    )
    assert found["redelivered"].startswith(f"{topic}-0: 1 record was delivered more than once and came back: ")
    assert found["redelivered"].endswith(f"most often the record at offset 3 {times[3]} times")
    assert found["given-up"].endswith("most often the record at offset 5 twice")


def test_offsets_that_a_request_deleted(kafka: Namespace) -> None:
    topic, group = filled(kafka, "deleted"), kafka.group()
    with consumer(kafka, group, topic) as opened:
        commit(opened, topic, 10)
    DailyCommand(kafka.bootstrap_servers).done("group", "delete-offsets", group, "--topic", topic, "--execute")
    DailyCommand(kafka.bootstrap_servers).done("group", "reset", group, "--topic", topic, "--to", "latest", "--execute")
    found = symptoms(kafka, group)
    assert found.keys() == {"offsets-deleted"} and found["offsets-deleted"].startswith("1 offset of the group were")


def test_a_group_that_went_with_its_topic(kafka: Namespace) -> None:
    topic, group = filled(kafka, "brief"), kafka.group()
    with consumer(kafka, group, topic) as opened:
        commit(opened, topic, 10)
    run = DailyCommand(kafka.bootstrap_servers)
    run.done("topic", "delete", topic, "--execute")
    run.done("group", "delete", group, "--execute")
    found = symptoms(kafka, group)
    assert "without members and offsets there is none: a request deleted it " in found["gone"]
    assert found["topic-deleted"].startswith(f"the topic {topic} was deleted ")
    assert found["topic-deleted"].partition(" ago, and ")[2].startswith("1 offset of the group with it")
    assert run.done("group", "explain", group).splitlines()[0] == f"{group} (Dead)"


def test_an_open_transaction_holds_a_group(kafka: Namespace) -> None:
    topic, group = filled(kafka, "held"), kafka.group()
    minute_ago_ms = int(time.time() * 1000) - 60_000
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"{group}-t"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for _ in range(3):
        producer.produce(topic, "open", timestamp=minute_ago_ms)
    assert producer.flush(30) == 0
    with consumer(kafka, group, topic) as opened:
        commit(opened, topic, 10)
        found = symptoms(kafka, group)
        assert found.keys() == {"held-by-transaction"}
        assert (
            "holds readers with isolation.level=read_committed at offset 10, for 1 min" in found["held-by-transaction"]
        )
        producer.abort_transaction(30)


def test_an_open_transaction_holds_a_share_group_that_reads_committed(kafka: Namespace) -> None:
    topic, group = filled(kafka, "held-share", 3), kafka.group()
    run = DailyCommand(kafka.bootstrap_servers)
    for setting in ("share.auto.offset.reset=earliest", "share.isolation.level=read_committed"):
        run.done("config", "set", "group", group, setting)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"{group}-t"})
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": group}
    with ShareConsumer({**settings, "share.acknowledgement.mode": "explicit"}) as opened:
        opened.subscribe([topic])
        count = 0
        while count < 3:
            for message in opened.poll(1.0):
                opened.acknowledge(message)
                count += 1
        opened.commit_sync()
        producer.init_transactions(30)
        producer.begin_transaction()
        for _ in range(4):
            producer.produce(topic, "open", timestamp=int(time.time() * 1000) - 60_000)
        assert producer.flush(30) == 0
        found = symptoms(kafka, group)
        assert found.keys() == {"held-by-transaction"}
        assert "at offset 3, for 1 min" in found["held-by-transaction"]
        assert "the 4 offsets after it" in found["held-by-transaction"]
        producer.abort_transaction(30)


def test_two_processes_with_one_instance_id(kafka: Namespace) -> None:
    topic, group = filled(kafka, "twins"), kafka.group()
    static = {"group.instance.id": "till-1", "heartbeat.interval.ms": 500}
    with consumer(kafka, group, topic, **static) as first:
        for _ in range(3):
            with consumer(kafka, group, topic, **static):
                pass
        ends = time.monotonic() + 30
        while "fenced" not in (found := symptoms(kafka, group)):
            first.poll(0.2)
            assert time.monotonic() < ends, found
    assert "with FENCED_INSTANCE_ID: two processes use one group.instance.id" in found["fenced"]
    assert found["taken-over"].startswith("the static member till-1 was taken over 3 times")


def test_the_text_of_a_group(kafka: Namespace) -> None:
    topic, group = filled(kafka, "text"), kafka.group()
    run = DailyCommand(kafka.bootstrap_servers)
    with consumer(kafka, group, topic) as opened:
        commit(opened, topic, 4)
        lines = run.done("group", "explain", group).splitlines()
    assert lines[0] == f"{group} (classic, Stable)"
    assert lines[1].startswith(f"  {topic}-0 lags by 6 records, ") and lines[1].endswith(".")
    assert lines[2] == "      next: more partitions and members, or less work for each record"
    assert run("group", "explain", "no-such-group").failure.startswith("there is no group no-such-group")
