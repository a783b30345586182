"""Faults, leaders and the clock of a cluster through the kit."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from moldau.testing import Cluster, FaultRefused

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def kafka() -> Iterator[Cluster]:
    with Cluster(control=True) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def trio() -> Iterator[Cluster]:
    with Cluster(3, control=True) as cluster:
        cluster.create_topic("t", 1)
        yield cluster


def produced(cluster: Cluster, topic: str, **settings: object) -> str:
    """The name of the error of a record; empty for none."""
    told: list[str] = []
    given = {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0, "message.timeout.ms": 20_000}
    producer = Producer(given | settings)
    producer.produce(topic, b"x", on_delivery=lambda error, _: told.append(error.name() if error else ""))
    producer.flush(30)
    return told[0]


def test_a_fault_ends_with_its_block(kafka: Cluster) -> None:
    with kafka.faults.error("TOPIC_AUTHORIZATION_FAILED", api="Produce", topic="one") as fault:
        assert produced(kafka, "one") == "TOPIC_AUTHORIZATION_FAILED"
        assert produced(kafka, "two") == ""
        assert (fault.met, fault.calls, fault.is_in_force) == (1, 1, True)
    assert not fault.is_in_force and fault.met == 0
    assert produced(kafka, "one") == ""
    told = [event.text for event in kafka.faults.timeline() if event.what == "fault meets"]
    assert any("Produce of client 'rdkafka', one" in text for text in told)


def test_a_fault_of_the_process_before_is_not_one_of_the_next() -> None:
    """Each process of a node counts its faults from 1."""
    with Cluster(control=True) as cluster:
        with cluster.faults.delay(0.01, api="Produce") as first:
            cluster.node(1).restart()
            second = cluster.faults.error("TOPIC_AUTHORIZATION_FAILED", api="Produce")
            assert not first.is_in_force
        assert second.is_in_force


def test_each_kind_of_fault_is_put_in_force(kafka: Cluster) -> None:
    faults = kafka.faults
    assert faults.delay(0.01, api="Produce", once=True).is_in_force
    assert produced(kafka, "t") == ""
    for fault in (
        faults.lose_answer(api="Produce", once=True),
        faults.cut_answer(api="Produce", once=True),
        faults.reset(api="Produce", once=True),
        faults.throttle(0.1, api="Produce", once=True),
        faults.answer("Produce", {"responses": []}, on_call=70),
        faults.hold(api="Produce", until={"api": "Metadata"}, on_call=70),
        faults.slow_disk(0.1, path="none-0", times=2),
        faults.full_disk(path="none-0"),
        faults.failing_disk(path="none-0"),
        faults.rebalance("g"),
        faults.cut_clients(),
    ):
        assert fault.is_in_force
    faults.end_all()
    assert not fault.is_in_force
    assert produced(kafka, "t") == ""


def test_a_script_is_loaded_from_a_file(kafka: Cluster, tmp_path: Path) -> None:
    script = {"faults": [{"scope": {"api": "Produce"}, "do": {"error": "MESSAGE_TOO_LARGE"}}]}
    (tmp_path / "faults.json").write_text(json.dumps(script))
    (tmp_path / "faults.yaml").write_text("faults:\n- scope: {api: Produce}\n  do: {error: MESSAGE_TOO_LARGE}\n")
    for name in ("faults.json", "faults.yaml"):
        (fault,) = kafka.faults.load(tmp_path / name)
        assert produced(kafka, "t") == "MSG_SIZE_TOO_LARGE"
        fault.end()
        fault.end()
    assert produced(kafka, "t") == ""


def test_what_is_refused_says_why(kafka: Cluster) -> None:
    with pytest.raises(FaultRefused, match="name of an error"):
        kafka.faults.error("NO_SUCH")
    with pytest.raises(FaultRefused, match="there is no partition none-0"):
        kafka.move_leader("none", to=1)
    with pytest.raises(FaultRefused, match="must be a number from 1"):
        kafka.clock.advance()
    with pytest.raises(ValueError, match="no node 4"):
        kafka.faults.reset(node=4)
    with Cluster() as plain, pytest.raises(FaultRefused, match="control=True"):
        plain.faults.reset()


def test_retention_follows_the_clock(kafka: Cluster) -> None:
    kafka.create_topic("kept", settings={"retention.ms": 3_600_000})
    kafka.produce("kept", "x")
    kafka.clock.advance(minutes=30)
    assert len(kafka.records("kept")) == 1
    kafka.clock.advance(hours=3)
    assert kafka.records("kept") == []
    kafka.produce("kept", "y")


def test_a_transaction_times_out_by_the_clock(kafka: Cluster) -> None:
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "x", "transaction.timeout.ms": 60_000}
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce("t", b"x")
    producer.flush()
    kafka.clock.advance(minutes=2)
    time.sleep(2)
    with pytest.raises(KafkaException):
        producer.commit_transaction(20)


def test_a_member_is_removed_by_the_clock(kafka: Cluster) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "idle",
            "session.timeout.ms": 45_000,
            "heartbeat.interval.ms": 30_000,
        }
    )
    rejoined: list[int] = []
    consumer.subscribe(["t"], on_assign=lambda _, partitions: rejoined.append(len(partitions)))
    deadline = time.monotonic() + 20
    while not rejoined and time.monotonic() < deadline:
        consumer.poll(0.1)
    kafka.clock.advance(minutes=1)
    deadline = time.monotonic() + 20
    while "idle" not in kafka.node(1).log and time.monotonic() < deadline:
        time.sleep(0.1)
    assert "idle" in kafka.node(1).log, "the member's session has timed out"
    consumer.close()


def test_a_leader_and_a_coordinator_are_moved(trio: Cluster) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": trio.bootstrap_servers})

    def leader(topic: str) -> int:
        number: int = admin.list_topics(topic, timeout=20).topics[topic].partitions[0].leader
        return number

    for node in (2, 3, 1):
        trio.move_leader("t", to=node)
        deadline = time.monotonic() + 10
        while leader("t") != node and time.monotonic() < deadline:
            time.sleep(0.05)
        assert leader("t") == node
        assert produced(trio, "t") == ""
    consumer = Consumer({"bootstrap.servers": trio.bootstrap_servers, "group.id": "g"})
    consumer.subscribe(["t"])
    consumer.poll(2)
    for node in (1, 2):
        trio.move_coordinator(group="g", to=node)
    consumer.close()
    assert any(event.what == "leader" for event in trio.faults.timeline())


def test_a_node_that_is_cut_off_leaves_the_in_sync_replicas_and_comes_back(trio: Cluster) -> None:
    trio.move_leader("t", to=1)
    faults = [trio.faults.cut(3, 1), trio.faults.cut(3, 2)]
    assert produced(trio, "t", acks="1") == ""
    for fault in faults:
        fault.end()
    assert produced(trio, "t", acks="all") == ""


def test_a_node_that_has_ended_takes_no_part_in_faults(trio: Cluster) -> None:
    held = trio.faults.reset(api="DescribeAcls")
    trio.node(1).kill()
    try:
        fault = trio.faults.reset(api="DescribeAcls")
        assert fault.is_in_force and held.is_in_force and fault.met == 0
        trio.clock.advance(seconds=1)
        with pytest.raises(FaultRefused, match="there is no partition none-0"):
            trio.move_leader("none", to=2)
        with pytest.raises(FaultRefused, match="node 1 does not answer"):
            trio.faults.reset(api="DescribeAcls", node=1)
        trio.faults.end_all()
        assert not fault.is_in_force
    finally:
        trio.node(1).restart()
    assert produced(trio, "t", acks="all") == ""


def test_without_a_node_that_runs_nothing_can_be_asked() -> None:
    with Cluster(control=True) as ended:
        ended.node(1).kill()
        for ask in (ended.faults.reset, lambda: ended.clock.advance(hours=1), lambda: ended.move_leader("t", to=1)):
            with pytest.raises(FaultRefused, match="no node of the cluster runs"):
                ask()
