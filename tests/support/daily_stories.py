"""What the daily commands do and say, as stories that run against any cluster. A story returns its facts, which are the
same for Moldau and for Apache Kafka: the unit tests ask the one, the conformance asks both.
"""

from __future__ import annotations

import time
from typing import Any

from tests.support.daily_command import DailyCommand
from tests.support.daily_members import classic_member, member

Facts = dict[str, Any]


def topics(run: DailyCommand, name: str) -> Facts:
    """Topics made, shown, altered, emptied and deleted, and each mistake."""
    facts: Facts = {}
    facts["made"] = run.rows("topic", "create", name, "-p", "3", "--config", "retention.ms=86400000")
    facts["again"] = run("topic", "create", name).failure
    facts["left alone"] = run.done("topic", "create", name, "--if-not-exists")
    facts["checked"] = run.done("topic", "create", f"{name}-2", "-p", "2", "-r", "1", "--dry-run")
    mistakes = {
        "unknown setting": ("create", f"{name}-2", "--config", "retenton.ms=1"),
        "bad value": ("create", f"{name}-2", "--config", "retention.ms=soon"),
        "no partition": ("create", f"{name}-2", "-p", "0"),
        "too many partitions": ("create", f"{name}-2", "-p", "2000000"),
        "bad name": ("create", "a b"),
        "fewer partitions": ("alter", name, "-p", "2"),
        "setting of no topic": ("alter", name, "--set", "xyz=1"),
        "unknown topic": ("describe", f"{name}x"),
        "past the end": ("delete-records", name, "--before", "5"),
        "bad time": ("delete-records", name, "--before", "yesterday"),
        "no pair": ("create", f"{name}-2", "--config", "retention.ms"),
        "unknown partition": ("delete-records", name, "--before", "0", "--partition", "9"),
    }
    for mistake, words in mistakes.items():
        said = run("topic", *words)
        facts[mistake] = [said.status, said.failure]
    run.done("topic", "alter", name, "-p", "5", "--set", "cleanup.policy=compact,delete", "--unset", "retention.ms")
    (described,) = run.rows("topic", "describe", name)
    described.pop("topic_id")
    for each in described["partition_list"]:
        for field in ("leader", "replicas", "in_sync"):
            each[field] = each[field] is not None
    facts["described"] = described
    (listed,) = run.rows("topic", "list", name)
    listed.pop("topic_id")
    facts["listed"] = listed
    facts["shown"] = run.done("topic", "list", name).splitlines()
    facts["internal hidden"] = [row["topic"] for row in run.rows("topic", "list") if row["is_internal"]]
    facts["would be deleted"] = run.rows("topic", "delete", name)
    facts["deleted"] = run.rows("topic", "delete", name, "--execute")
    facts["gone"] = run("topic", "delete", name, "--execute").status
    facts["left out"] = run.done("topic", "delete", name, "--if-exists", "--execute")
    return facts


def groups(run: DailyCommand, bootstrap: str, name: str, directory: str) -> Facts:
    """A group of each kind: listed, described with and without members, reset in every way, deleted."""
    facts: Facts = {}
    topic = f"{name}-read"
    run.done("topic", "create", topic, "-p", "2")
    begin = two_hours_ago()
    send(bootstrap, topic, {0: [(f"a{number}", begin + number) for number in range(10)], 1: []})
    names = {kind: f"{name}-{kind}" for kind in ("classic", "consumer", "share", "streams")}
    with classic_member(bootstrap, names["classic"], topic, 10):
        facts["meant"] = run("group", "describe", f"{name}-clasic").failure
        facts["classic with a member"] = told_of(run, names["classic"])
        facts["classic is not reset"] = run("group", "reset", names["classic"], "--to", "earliest").failure
        facts["classic is not deleted"] = run("group", "delete", names["classic"], "--execute").failure
    for kind in ("consumer", "share", "streams"):
        with member(bootstrap, kind, names[kind], topic):
            facts[f"{kind} with a member"] = told_of(run, names[kind])
            facts[f"{kind} is not reset"] = run("group", "reset", names[kind], "--to", "earliest").status
    listed = {row["group"]: [row["type"], row["state"]] for row in run.rows("group", "list", f"{name}-*")}
    facts["listed"] = [listed[each] for each in names.values()]
    facts["shares alone"] = [row["group"] for row in run.rows("group", "list", f"{name}-*", "--type", "share")]
    for kind, group in names.items():
        facts[f"{kind} shown"] = run.rows("group", "reset", group, "--topic", topic, "--to", "4")
        steps = {
            "offset": ("--topic", f"{topic}:0", "--to", "4"),
            "by": ("--by", "-3"),
            "time": ("--to", str(begin + 7)),
            "ago": ("--to", "1h"),
            "earliest": ("--to", "earliest"),
            "latest": ("--to", "latest", "--to-file", f"{directory}/{kind}.csv"),
            "back": ("--topic", f"{topic}:0", "--to", "2"),
            "file": ("--from-file", f"{directory}/{kind}.csv"),
            "current": ("--to", "current"),
        }
        for step, words in steps.items():
            rows = run.rows("group", "reset", group, *words, "--execute")
            facts[f"{kind} to {step}"] = [[row["partition"], row["new_offset"]] for row in rows]
        run.done("group", "reset", group, "--topic", f"{topic}:0", "--to", "4", "--execute")
        (described,) = run.rows("group", "describe", group)
        facts[f"{kind} lag"] = [
            [row["committed"], row["lag"], row["behind_ms"] is None] for row in described["offsets"]
        ]
        facts[f"{kind} is hours behind"] = described["behind_ms"] >= 7_200_000 - 4
        facts[f"{kind} loses offsets"] = run.rows("group", "delete-offsets", group, "--topic", topic, "--execute")
        facts[f"{kind} would go"] = run.done("group", "delete", group)
        facts[f"{kind} goes"] = run.done("group", "delete", group, "--execute")
    mistakes = {
        "unknown group to reset": ("reset", f"{name}-gone", "--to", "latest"),
        "unknown topic": ("reset", f"{name}-new", "--topic", "nosuch", "--to", "latest"),
        "unknown partition": ("reset", f"{name}-new", "--topic", f"{topic}:7", "--to", "latest"),
        "bad time": ("reset", f"{name}-new", "--topic", topic, "--to", "noon"),
        "no file": ("reset", f"{name}-new", "--from-file", f"{directory}/none.csv"),
    }
    for mistake, words in mistakes.items():
        said = run("group", *words)
        facts[mistake] = [said.status, said.err.splitlines()[-1].replace(directory, "DIR")]
    return facts


def two_hours_ago() -> int:
    """A timestamp (ms) that retention keeps."""
    return time.time_ns() // 1_000_000 - 7_200_000


def told_of(run: DailyCommand, group: str) -> Facts:
    """What is told of a group with one member, without what changes from run to run."""
    (described,) = run.rows("group", "describe", group)
    (one,) = described["members"]
    return {
        "kind": described["type"],
        "client": one["client"],
        "host": one["host"],
        "offsets": [[row["partition"], row["committed"], row["lag"]] for row in described["offsets"]],
    }


def send(bootstrap: str, topic: str, records: dict[int, list[tuple[str, int]]]) -> None:
    """Produce values with timestamps to partitions."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap})
    for partition, values in records.items():
        for value, timestamp in values:
            producer.produce(topic, value, partition=partition, timestamp=timestamp)
    producer.flush()
