"""Topics by the daily command: the story that the conformance asks Apache Kafka too, with its facts."""

from __future__ import annotations

import pytest

from moldau.testing.cluster import Cluster
from moldau.testing.namespace import Namespace
from tests.support.daily_command import DailyCommand
from tests.support.daily_stories import send, topics, two_hours_ago

pytestmark = pytest.mark.processes


def test_the_life_of_a_topic_and_each_mistake(kafka: Namespace) -> None:
    facts = topics(DailyCommand(kafka.bootstrap_servers), "life")
    assert facts["made"] == [{"topic": "life", "created": True, "partitions": 3, "replicas": 1}]
    assert facts["again"] == "topic life: it is there already (TOPIC_ALREADY_EXISTS)"
    assert facts["checked"] == "topic life-2 can be made: 2 partitions, 1 replica each\n"
    assert facts["unknown setting"] == [
        3,
        "topic life-2: there is no setting retenton.ms; did you mean retention.ms? (INVALID_CONFIG)",
    ]
    assert facts["bad value"][1].endswith("Not a number of type LONG (INVALID_CONFIG)")
    assert facts["fewer partitions"][1].endswith("2 would not be an increase (INVALID_PARTITIONS)")
    assert facts["unknown topic"] == [3, "there is no topic lifex; did you mean life?"]
    assert facts["too many partitions"][0] == 1 and facts["no partition"][0] == 1
    assert facts["past the end"] == [1, "life-0: offset 5 is past the end, which is 0"]
    assert (
        facts["bad time"][0] == 2
        and "--before yesterday is not an offset, latest or a time: 2026-" in facts["bad time"][1]
    )
    assert "it is not the name of a topic, which has letters, digits, '.', '_' and '-'" in facts["bad name"][1]
    assert facts["no pair"] == [2, "--config retention.ms is not NAME=VALUE"]
    assert facts["unknown partition"][0] == 3
    assert facts["described"]["settings"] == {"cleanup.policy": "compact,delete"}
    assert [each["partition"] for each in facts["described"]["partition_list"]] == [0, 1, 2, 3, 4]
    assert facts["shown"] == [
        "TOPIC  PARTITIONS  REPLICAS  UNDER REPLICATED  OFFLINE",
        "life            5         1                 0        0",
    ]
    assert facts["internal hidden"] == []
    assert facts["would be deleted"] == [{"topic": "life", "deleted": False, "partitions": 5, "records": 0}]
    assert facts["deleted"] == [{"topic": "life", "deleted": True}]
    assert facts["gone"] == 3 and facts["left out"] == ""


def test_records_are_deleted_by_offset_time_and_file(kafka: Namespace, tmp_path: object) -> None:
    run = DailyCommand(kafka.bootstrap_servers)
    topic = kafka.topic("old", partitions=2)
    begin = two_hours_ago()
    send(kafka.bootstrap_servers, topic, {0: [(str(number), begin + number) for number in range(10)]})
    command = ("topic", "delete-records", topic)
    (only,) = run.rows(*command, "--before", "4", "--partition", "0")
    assert only == {"topic": topic, "partition": 0, "start": 0, "new_start": 4, "deleted": 4}
    assert run.rows("topic", "describe", topic)[0]["partition_list"][0]["start"] == 0
    moved = run.rows(*command, "--before", str(begin + 6), "--execute")
    assert [row["new_start"] for row in moved] == [6, 0]
    file = f"{tmp_path}/offsets.json"
    with open(file, "w") as text:
        text.write(f'{{"partitions": [{{"topic": "{topic}", "partition": 0, "offset": 8}}], "version": 1}}')
    assert run.rows(command[0], command[1], "--offset-json-file", file, "--execute")[0]["new_start"] == 8
    assert run.rows(*command, "--before", "latest", "--execute")[0]["new_start"] == 10


@pytest.mark.moldau(nodes=1, settings={"advertised.listeners": "PLAINTEXT://127.0.0.1:1"})
def test_an_address_that_the_broker_names_and_that_cannot_be_reached_is_told(kafka_cluster: Cluster) -> None:
    run = DailyCommand(kafka_cluster.bootstrap_servers)
    run.done("topic", "create", "orders")
    said = run("consume", "orders", "-e")
    whose = "it is advertised.listeners of a broker: does that run, and does this machine reach it?"
    assert (said.status, said.failure) == (5, f"no broker answers at 127.0.0.1:1 (Connection refused): {whose}")
    said = run("produce", "orders", "--timeout", "1", given="one")
    assert said.status == 5
    assert said.failure.endswith("127.0.0.1:1: Connection refused, which is advertised.listeners of a broker")


def test_a_cluster_that_is_not_there_or_speaks_tls_is_told_at_once(kafka: Namespace) -> None:
    host, _, _ = kafka.bootstrap_servers.partition(":")
    gone = DailyCommand(f"{host}:1")("topic", "list")
    assert gone.status == 5 and "is a node running there, and is --bootstrap-server right?" in gone.failure
    run = DailyCommand(kafka.bootstrap_servers)
    encrypted = run("topic", "list", "-X", "security.protocol=SSL")
    assert encrypted.status == 5 and "does security.protocol=SSL fit this listener?" in encrypted.failure
    assert run("topic", "list", "-X", "security.protocol=TLS").status == 2
    login = run("topic", "list", "-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=GSSAPI")
    assert login.status == 2 and "this command logs in by PLAIN, SCRAM-SHA-256, SCRAM-SHA-512" in login.failure
