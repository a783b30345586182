"""Scenarios of configurations: what is described, and what changes it."""

from __future__ import annotations

from tests.conformance.record import Json
from tests.conformance.scenario import Scenario
from tests.conformance.session import Session, expect

Entries = dict[str, dict[str, Json]]

# Names whose values tell where and for whom this one broker runs.
OF_THIS_PROCESS = ("listeners", "advertised.listeners", "log.dirs", "log.dir", "controller.quorum", "metadata.log.dir")


def modified(entries: Entries) -> dict[str, Json]:
    """Values of the topic's own. A cluster with eligible leader replicas has a dynamic default of one more name."""
    return {
        name: entry["value"]
        for name, entry in sorted(entries.items())
        if entry["source"] == "DYNAMIC_TOPIC_CONFIG" and entry["value"] is not None
    }


def told(entry: dict[str, Json]) -> str:
    """One entry as a line: its value, then where it is from and what else is said of it."""
    marks = [str(entry["source"]), *[name for name in ("read only", "sensitive") if entry[name]]]
    return f"{entry['value']} ({', '.join([*marks, str(entry.get('type', ''))]).removesuffix(', ')})"


def describe_topic(session: Session) -> None:
    topic = session.topic(retention_ms="3600000", cleanup_policy="compact,delete")
    found = session.client.describe_configs("topic", topic)
    session.observe("topic", {name: told(entry) for name, entry in sorted(found.items())})


def describe_broker(session: Session) -> None:
    found = session.client.describe_configs("broker", "1")
    session.observe(
        "broker",
        {
            name: told(entry)
            for name, entry in sorted(found.items())
            if not name.startswith(OF_THIS_PROCESS) and not name.startswith("confluent")
        },
    )


def incremental(session: Session) -> None:
    client = session.client
    topic = session.topic(retention_ms="1000000")

    def is_now(**wanted: str) -> None:
        expected = {name.replace("_", "."): value for name, value in wanted.items()}
        session.until(
            f"the topic has {expected}",
            lambda: modified(client.describe_configs("topic", topic)) == expected,
        )

    client.incremental_alter("topic", topic, ("set", "segment.bytes", "2000000"))
    is_now(retention_ms="1000000", segment_bytes="2000000")
    client.incremental_alter("topic", topic, ("append", "cleanup.policy", "compact"))
    is_now(retention_ms="1000000", segment_bytes="2000000", cleanup_policy="delete,compact")
    client.incremental_alter("topic", topic, ("subtract", "cleanup.policy", "delete"), ("delete", "retention.ms", ""))
    is_now(segment_bytes="2000000", cleanup_policy="compact")


def incremental_errors(session: Session) -> None:
    client = session.client
    topic = session.topic()
    for what, change in {
        "unknown name": ("set", "no.such.config", "1"),
        "value of a wrong type": ("set", "retention.ms", "soon"),
        "value below the minimum": ("set", "segment.bytes", "1"),
        "append to what is no list": ("append", "retention.ms", "1"),
    }.items():
        session.refusal(what, lambda change=change: client.incremental_alter("topic", topic, change))  # type: ignore[misc]
    session.refusal(
        "an unknown topic",
        lambda: client.incremental_alter("topic", session.name("unknown"), ("set", "retention.ms", "1")),
    )
    session.refusal(
        "a read-only name of a broker", lambda: client.incremental_alter("broker", "1", ("set", "node.id", "2"))
    )


def replace(session: Session) -> None:
    client = session.client
    topic = session.topic(retention_ms="1000000")
    client.alter_configs("topic", topic, {"segment.bytes": "2000000"})
    session.until(
        "the given names are the only ones set",
        lambda: modified(client.describe_configs("topic", topic)) == {"segment.bytes": "2000000"},
    )
    session.refusal("an unknown name", lambda: client.alter_configs("topic", topic, {"no.such.config": "1"}))


def broker_dynamic(session: Session) -> None:
    client = session.client

    def now() -> Json:
        return client.describe_configs("broker", "1")["log.retention.ms"]["value"]

    client.incremental_alter("broker", "1", ("set", "log.retention.ms", "7200000"))
    session.until("the broker has the new value", lambda: now() == "7200000")
    entry = client.describe_configs("broker", "1")["log.retention.ms"]
    session.observe("source", entry["source"])
    client.incremental_alter("broker", "1", ("delete", "log.retention.ms", ""))
    session.until("the value is gone again", lambda: now() != "7200000")


def resources(session: Session) -> None:
    topic = session.topic(retention_ms="1000000")
    found = session.client.call("list_config_resources")
    assert isinstance(found, list)
    expect(["TOPIC", topic] in found, "the topic is not among the resources")
    session.observe("kinds", sorted({str(row[0]) for row in found if isinstance(row, list)}))


def unknown(session: Session) -> None:
    session.refusal("topic", lambda: session.client.describe_configs("topic", session.name("unknown")))


SCENARIOS = (
    Scenario("configs-describe-topic", "every name, value and source of a topic", describe_topic),
    Scenario("configs-describe-broker", "every name, value and source of a broker", describe_broker),
    Scenario("configs-incremental", "set, append, subtract, delete", incremental),
    Scenario("configs-replace", "the old AlterConfigs replaces all that was set", replace),
    Scenario("configs-broker", "a broker's configuration changes while it runs", broker_dynamic),
    Scenario("configs-resources", "resources that have a configuration", resources),
    Scenario("error-configs", "every refused change has Kafka's error", incremental_errors),
    Scenario("error-configs-unknown", "the configuration of an unknown topic", unknown),
)
