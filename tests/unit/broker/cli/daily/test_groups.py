"""Groups of each kind by the daily command: the story that the conformance asks Apache Kafka too, with its facts."""

from __future__ import annotations

from pathlib import Path

import pytest

from moldau.testing.cluster import Cluster
from moldau.testing.namespace import Namespace
from tests.support.daily_command import DailyCommand
from tests.support.daily_stories import groups, send, two_hours_ago, until

pytestmark = pytest.mark.processes
KINDS = ("classic", "consumer", "share", "streams")


def test_groups_of_each_kind_and_each_mistake(kafka: Namespace, tmp_path: Path) -> None:
    bootstrap = kafka.bootstrap_servers
    facts = groups(DailyCommand(bootstrap), bootstrap, "kinds", str(tmp_path))
    assert facts["listed"] == [[kind, "Empty"] for kind in KINDS]
    assert facts["shares alone"] == ["kinds-share"]
    assert facts["meant"] == "there is no group kinds-clasic; did you mean kinds-classic?"
    assert facts["classic with a member"]["offsets"] == [[0, 10, 0], [1, None, None]]
    for kind in KINDS:
        assert facts[f"{kind} with a member"]["kind"] == kind
        assert facts[f"{kind} with a member"]["has a history"]
        assert [row["new_offset"] for row in facts[f"{kind} shown"]] == [4, 0], "the end of the empty partition"
        assert facts[f"{kind} lag"] == [[4, 6, False]]
        assert facts[f"{kind} is hours behind"]
        assert facts[f"{kind} goes"] == f"group kinds-{kind} is deleted\n"
        reached = {
            step: facts[f"{kind} to {step}"]
            for step in ("offset", "by", "time", "ago", "earliest", "latest", "back", "file", "current")
        }
        assert reached == {
            "offset": [[0, 4]],
            "by": [[0, 1]],
            "time": [[0, 7]],
            "ago": [[0, 10]],
            "earliest": [[0, 0]],
            "latest": [[0, 10]],
            "back": [[0, 2]],
            "file": [[0, 10]],
            "current": [[0, 10]],
        }
    assert facts["classic is not reset"].endswith("only a group without members is reset; stop them first")
    assert facts["classic is not deleted"].endswith("stop them first (NON_EMPTY_GROUP)")
    assert [facts[f"{kind} is not reset"] for kind in KINDS[1:]] == [1, 1, 1]
    assert facts["unknown group to reset"][0] == facts["unknown topic"][0] == facts["unknown partition"][0] == 3
    assert facts["bad time"][0] == facts["no file"][0] == 2
    assert facts["no file"][1] == "moldau: DIR/none.csv cannot be read: No such file or directory"


def test_the_text_of_a_group_that_lags(kafka: Namespace) -> None:
    run = DailyCommand(kafka.bootstrap_servers)
    topic, group = kafka.topic("lag", partitions=1), kafka.group()
    send(kafka.bootstrap_servers, topic, {0: [("v", two_hours_ago())] * 2000})
    run.done("group", "reset", group, "--topic", topic, "--to", "earliest", "--execute")
    lines = run.done("group", "describe", group).splitlines()
    assert lines[:3] == [group, "type:         classic", "state:        Empty, 0 members"]
    assert lines[4].startswith("lag:          2,000 records, ") and lines[4].endswith(" behind")
    assert lines[6].split() == ["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "BEHIND", "CLIENT", "HOST"]
    assert lines[7].split()[:5] == [topic, "0", "0", "2000", "2,000"]


@pytest.mark.moldau(settings={"broker.session.timeout.ms": 2000, "broker.heartbeat.interval.ms": 500})
def test_a_partition_without_a_leader_is_shown_without_its_end(kafka_cluster: Cluster) -> None:
    run = DailyCommand(kafka_cluster.bootstrap_servers)
    run.done("topic", "create", "orders", "--replica-assignment", "1,3")
    send(kafka_cluster.bootstrap_servers, "orders", {0: [("v", two_hours_ago())], 1: [("v", two_hours_ago())]})
    run.done("group", "reset", "kitchen", "--topic", "orders", "--to", "earliest", "--execute")
    kafka_cluster.node(3).kill()
    assert until(lambda: run.rows("topic", "list", "orders")[0]["offline"], 1) == 1
    (described,) = run.rows("group", "describe", "kitchen")
    assert [(row["committed"], row["end"], row["lag"]) for row in described["offsets"]] == [(0, 1, 1), (0, None, None)]
    assert described["lag"] == 1
    told = {row["symptom"]: row["text"] for row in run.rows("group", "explain", "kitchen")}
    assert told["offline"] == "orders-1: no leader tells its offsets, so the lag is not known"


def test_an_offset_outside_of_the_partition_becomes_its_end(kafka: Namespace) -> None:
    run = DailyCommand(kafka.bootstrap_servers)
    topic, group = kafka.topic("short", partitions=1), kafka.group()
    send(kafka.bootstrap_servers, topic, {0: [("v", two_hours_ago())] * 3})
    said = run("group", "reset", group, "--topic", topic, "--to", "99", "--json", "--execute")
    assert said.rows[0]["new_offset"] == 3
    assert f"{topic}-0: offset 99 is outside of 0 to 3" in said.err


def test_nothing_is_committed_if_the_file_of_offsets_cannot_be_written(kafka: Namespace, tmp_path: Path) -> None:
    run = DailyCommand(kafka.bootstrap_servers)
    topic, group = kafka.topic("kept", partitions=1), kafka.group()
    send(kafka.bootstrap_servers, topic, {0: [("v", two_hours_ago())] * 3})
    words = ("group", "reset", group, "--topic", topic, "--execute")
    run.done(*words, "--to", "latest")
    for place in (tmp_path, tmp_path / "none" / "offsets.csv"):
        assert run(*words, "--to", "earliest", "--to-file", str(place)).status == 2
    assert run.rows(*words, "--to", "current")[0]["offset"] == 3


def test_the_age_of_a_record_behind_a_compacted_or_large_batch_is_found(kafka: Namespace) -> None:
    run = DailyCommand(kafka.bootstrap_servers)
    topic, group = kafka.topic("large", partitions=24), kafka.group()
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 0})
    begin = two_hours_ago()
    for partition in range(24):
        producer.produce(topic, bytes(900_000), partition=partition, timestamp=begin + partition)
        producer.flush()
    run.done("group", "reset", group, "--topic", topic, "--to", "earliest", "--execute")
    (described,) = run.rows("group", "describe", group)
    ages = [row["behind_ms"] for row in described["offsets"]]
    assert [ages[0] - age for age in ages] == list(range(24))
