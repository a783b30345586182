"""What the daily commands do and say, as stories that run against any cluster. A story returns its facts, which are the
same for Moldau and for Apache Kafka: the unit tests ask the one, the conformance asks both.
"""

from __future__ import annotations

from typing import Any

from tests.support.daily_command import DailyCommand

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
