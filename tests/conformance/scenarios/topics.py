"""Scenarios of topics as an administrator sees them."""

from __future__ import annotations

from typing import cast

from tests.conformance.record import Json, Record
from tests.conformance.scenario import Scenario
from tests.conformance.session import Session, expect, same_records


def placed(description: Json, node_count: int) -> Json:
    """With several nodes: where replicas go is chance, that the first of them leads and all are in sync is not."""
    if node_count == 1:
        return description
    assert isinstance(description, dict) and isinstance(description["partitions"], list)
    return {**description, "partitions": [_placed(each) for each in description["partitions"]]}


def _placed(partition: Json) -> Json:
    assert isinstance(partition, dict)
    replicas, in_sync = nodes_of(partition["replicas"]), nodes_of(partition["isr"])
    first = partition["leader"] == replicas[0]
    return {
        **partition,
        "leader": "the first replica" if first else partition["leader"],
        "replicas": cast("Json", sorted(replicas)),
        "isr": cast("Json", sorted(in_sync)),
    }


def nodes_of(told: Json) -> list[int]:
    """A list of ids, of nodes that have an id, or a text with commas."""
    if isinstance(told, str):
        return [int(each) for each in told.split(",")]
    assert isinstance(told, list)
    return [int(str(each["id"] if isinstance(each, dict) else each)) for each in told]


def create_and_delete(session: Session) -> None:
    client = session.client
    topic = session.topic(3, retention_ms="3600000")
    session.until("the topic is listed", lambda: topic in client.list_topics())
    client.delete_topic(topic)
    session.until("the topic is gone", lambda: topic not in client.list_topics())
    session.settled(topic, 0)
    client.create_topic(topic, 1)
    session.until("a new topic of the same name is listed", lambda: topic in client.list_topics())
    session.settled(topic, 1)
    client.produce(topic, [Record(b"anew")])
    same_records(client.consume(topic, count=1), [Record(b"anew")], timed=False)


def default_counts(session: Session) -> None:
    topic = session.name()
    session.client.create_topic(topic, -1, replicas=-1)
    session.described(topic)
    session.settled(topic, 1)
    session.observe("topic", placed(session.described(topic), session.node_count))


def describe(session: Session) -> None:
    topic = session.topic(3)
    session.observe("topic", placed(session.client.describe_topic(topic), session.node_count))
    session.refusal("an unknown topic", lambda: session.client.describe_topic(session.name("unknown")))


def more_partitions(session: Session) -> None:
    client = session.client
    topic = session.topic(1)
    client.create_partitions(topic, 3)
    session.settled(topic, 3)
    client.produce(topic, [Record(b"%d" % index, partition=index) for index in range(3)])
    same_records(client.consume(topic, partition=2, count=1), [Record(b"2", partition=2)], timed=False)
    session.refusal("as many as there are", lambda: client.create_partitions(topic, 3))
    session.refusal("fewer", lambda: client.create_partitions(topic, 2))
    session.refusal("of an unknown topic", lambda: client.create_partitions(session.name("unknown"), 2))


def delete_records(session: Session) -> None:
    client = session.client
    topic = session.topic()
    sent = [Record(b"%d" % index) for index in range(20)]
    client.produce(topic, sent)
    session.observe("low watermark", client.delete_records(topic, 0, 5))
    same_records(client.consume(topic, offset=5, count=15), sent[5:], timed=False)
    session.observe("up to the end", client.delete_records(topic, 0, -1))
    session.refusal("beyond the end", lambda: client.delete_records(topic, 0, 21))
    session.refusal("of an unknown topic", lambda: client.delete_records(session.name("unknown"), 0, 1))


def create_errors(session: Session) -> None:
    client = session.client
    topic = session.topic()
    attempts: dict[str, tuple[str, int, int, dict[str, str]]] = {
        "topic exists": (topic, 1, 1, {}),
        "name with a space": (session.name("a b"), 1, 1, {}),
        "name too long": ("x" * 250, 1, 1, {}),
        "name of one dot": (".", 1, 1, {}),
        "no partitions": (session.name("zero"), 0, 1, {}),
        "more replicas than brokers": (session.name("replicas"), 1, session.node_count + 2, {}),
        "no replicas": (session.name("none"), 1, 0, {}),
        "unknown config": (session.name("unknown"), 1, 1, {"no.such.config": "1"}),
        "invalid config value": (session.name("invalid"), 1, 1, {"retention.ms": "soon"}),
        "config below its minimum": (session.name("minimum"), 1, 1, {"segment.bytes": "1"}),
        "unknown cleanup policy": (session.name("policy"), 1, 1, {"cleanup.policy": "shred"}),
    }
    for what, (name, partitions, replicas, configs) in attempts.items():
        session.refusal(
            what,
            lambda name=name, partitions=partitions, replicas=replicas, configs=configs: client.create_topic(  # type: ignore[misc]
                name, partitions, replicas=replicas, configs=configs
            ),
        )


def delete_unknown(session: Session) -> None:
    session.refusal("delete", lambda: session.client.delete_topic(session.name("unknown")))


def cluster(session: Session) -> None:
    found = session.client.call("describe_cluster")
    assert isinstance(found, dict)
    if session.node_count > 1:  # a client is told of any broker
        told = found["controller"]
        found["controller"] = (told[0] if isinstance(told, list) else told) in range(1, session.node_count + 1)
    session.observe("cluster", found)


def log_dirs(session: Session) -> None:
    topic = session.topic(2)
    session.client.produce(topic, [Record(b"x" * 100)])
    session.observe("replicas", session.client.call("describe_log_dirs", topic=topic))


def producers(session: Session) -> None:
    session.needs("idempotence")
    topic = session.topic()
    session.client.produce(topic, [Record(b"%d" % index) for index in range(10)], idempotent=True)
    session.observe("producers", session.client.call("describe_producers", topic=topic, partition=0))


def quorum(session: Session) -> None:
    found = session.client.call("describe_quorum")
    assert isinstance(found, dict)
    if session.node_count > 1:
        found["leader"] = found["leader"] in range(1, session.node_count + 1)
    session.observe("quorum", found)


def features(session: Session) -> None:
    session.observe("features", session.client.call("describe_features"))


def listed(session: Session) -> None:
    client = session.client
    topic = session.topic()
    names = client.list_topics()
    expect(topic in names, "a topic just made is not listed")
    expect(not [name for name in names if name.startswith("__cluster")], "the metadata log is listed as a topic")


SCENARIOS = (
    Scenario("admin-topics", "create, list, delete and create again", create_and_delete),
    Scenario("admin-list-topics", "a new topic is listed, the metadata log is not", listed),
    Scenario("admin-default-counts", "-1 partitions and -1 replicas mean the broker's defaults", default_counts),
    Scenario("admin-describe-topic", "leader, replicas, in-sync replicas, topic id", describe),
    Scenario("admin-partitions", "a topic gets more partitions", more_partitions),
    Scenario("admin-delete-records", "records before an offset go", delete_records),
    Scenario("admin-cluster", "nodes, controller, cluster id", cluster),
    Scenario("admin-log-dirs", "sizes and lags of the replicas on disk", log_dirs),
    Scenario("admin-producers", "an idempotent producer's state", producers),
    Scenario("admin-quorum", "leader and voters of the metadata quorum", quorum),
    Scenario("admin-features", "finalized features", features),
    Scenario("error-create-topic", "every refusal of a new topic has Kafka's error", create_errors),
    Scenario("error-delete-topic", "deleting what is not there", delete_unknown),
)
