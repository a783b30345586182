"""The controller takes and refuses changed settings as Apache Kafka 4.3.1 does."""

from __future__ import annotations

import time
from typing import SupportsIndex, cast

import pytest

from moldau.broker.apis.cluster import telemetry
from moldau.broker.config.altering import effective_config
from moldau.broker.config.catalogue import client_metrics_catalogue, group_catalogue
from moldau.broker.config.catalogue_rules import CatalogueRules, client_metrics_refusal
from moldau.broker.config.describing import ConfigEntry, describe_resource, topic_entries
from moldau.broker.config.layers import BrokerLayers, ConfigSource, Synonym
from moldau.broker.config.loading import checked_config
from moldau.broker.config.setting import ValueType
from moldau.broker.config.sources import single_node_defaults
from moldau.broker.config.values import InvalidValue, linear_matcher, parse_type
from moldau.kraft.controller.config_control import AlterConfigOperation, edited_list
from moldau.kraft.controller.decision import ApiError
from moldau.kraft.image.configs import ConfigResource, ResourceType
from moldau.protocol.errors import ErrorCode


class InForce:
    """The settings of a node without a file, and what was changed for all brokers."""

    def __init__(self, dynamic_default: dict[str, str] | None = None) -> None:
        started_with = checked_config(single_node_defaults("./data"))
        self.layers = BrokerLayers.from_config(started_with, dynamic_default)
        self.config = effective_config(self.layers)

    @property
    def topic_entries(self) -> tuple[ConfigEntry, ...]:
        return topic_entries(self.config, self.layers)


RULES = CatalogueRules(InForce())
TOPIC = ConfigResource(ResourceType.TOPIC, "t")
BROKER = ConfigResource(ResourceType.BROKER, "1")
EVERY_BROKER = ConfigResource(ResourceType.BROKER, "")
GROUP = ConfigResource(ResourceType.GROUP, "g")
SUBSCRIPTION = ConfigResource(ResourceType.CLIENT_METRICS, "m")


@pytest.mark.parametrize(
    ("resource", "name", "text", "error", "message"),
    [
        (TOPIC, "segment.bytes", "4000000", None, ""),
        (TOPIC, "foo", "1", ErrorCode.INVALID_CONFIG, "Unknown topic config name: foo"),
        (BROKER, "log.segment.bytes", "2000000", None, ""),
        (BROKER, "unknown.thing", "5", None, ""),
        (BROKER, "node.id", "5", ErrorCode.INVALID_REQUEST, "Cannot update these configs dynamically: [node.id]"),
        (
            EVERY_BROKER,
            "sasl.jaas.config",
            "x",
            ErrorCode.INVALID_REQUEST,
            "Cannot update these configs at default cluster level, broker id must be specified: [sasl.jaas.config]",
        ),
        (GROUP, "consumer.session.timeout.ms", "50000", None, ""),
        (GROUP, "foo", "1", ErrorCode.INVALID_CONFIG, "Unknown group config name: foo"),
        (
            GROUP,
            "consumer.session.timeout.ms",
            "44000",
            ErrorCode.INVALID_CONFIG,
            "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            GROUP,
            "streams.num.standby.replicas",
            "3",
            ErrorCode.INVALID_CONFIG,
            "streams.num.standby.replicas must be less than or equal to group.streams.max.standby.replicas",
        ),
        (
            GROUP,
            "errors.deadletterqueue.topic.name",
            "__q",
            ErrorCode.INVALID_CONFIG,
            "errors.deadletterqueue.topic.name: DLQ topic name must not start with '__'",
        ),
        (GROUP, "errors.deadletterqueue.topic.name", "q", None, ""),
        (
            GROUP,
            "streams.assignor.name",
            "foo",
            ErrorCode.INVALID_CONFIG,
            "streams.assignor.name 'foo' is not a registered task assignor. Registered assignors are: [sticky].",
        ),
        (GROUP, "streams.assignor.name", "sticky", None, ""),
        (
            GROUP,
            "streams.num.warmup.replicas",
            "21",
            ErrorCode.INVALID_CONFIG,
            "streams.num.warmup.replicas must be less than or equal to group.streams.max.warmup.replicas",
        ),
        (
            GROUP,
            "streams.rack.aware.assignment.tags",
            "zone",
            ErrorCode.INVALID_CONFIG,
            "streams.rack.aware.assignment.tags=zone is refused: Standby tasks are not spread by tags of clients in"
            " this version.",
        ),
        (
            GROUP,
            "share.auto.offset.reset",
            "x",
            ErrorCode.INVALID_CONFIG,
            "Invalid value x for configuration share.auto.offset.reset: Invalid value `x` for configuration "
            "share.auto.offset.reset. The value must be either 'earliest', 'latest' or of the format "
            "'by_duration:<PnDTnHnMn.nS>'.",
        ),
        (SUBSCRIPTION, "interval.ms", "100", None, ""),
        (SUBSCRIPTION, "match", "client_software_name=x,client_id=a.*", None, ""),
        (SUBSCRIPTION, "foo", "1", ErrorCode.INVALID_REQUEST, "Unknown client metrics configuration: foo"),
        (
            SUBSCRIPTION,
            "interval.ms",
            "9999999",
            ErrorCode.INVALID_REQUEST,
            "Invalid value 9999999 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
        ),
        (SUBSCRIPTION, "match", "client_id=", ErrorCode.INVALID_CONFIG, "Illegal client matching pattern: client_id="),
        (SUBSCRIPTION, "match", "foo=bar", ErrorCode.INVALID_CONFIG, "Illegal client matching pattern: foo=bar"),
        (
            SUBSCRIPTION,
            "match",
            "client_id=[",
            ErrorCode.INVALID_CONFIG,
            "Illegal client matching pattern: client_id=[",
        ),
        (SUBSCRIPTION, "match", "client_id=a,foo", ErrorCode.INVALID_CONFIG, "Illegal client matching pattern: foo"),
    ],
)
def test_a_change_is_taken_or_refused(
    resource: ConfigResource, name: str, text: str, error: ErrorCode | None, message: str
) -> None:
    assert RULES.refusal(resource, {name: text}, {}) == (None if error is None else ApiError(error, message))


def test_the_session_of_a_group_must_outlast_its_heartbeats() -> None:
    in_force = InForce()
    in_force.config = checked_config({**single_node_defaults("./data"), "group.share.min.session.timeout.ms": "9000"})
    settings = {"share.session.timeout.ms": "9000", "share.heartbeat.interval.ms": "9000"}
    assert CatalogueRules(in_force).refusal(GROUP, settings, {}) == ApiError(
        ErrorCode.INVALID_CONFIG, "share.session.timeout.ms must be greater than share.heartbeat.interval.ms"
    )
    assert CatalogueRules(in_force).refusal(GROUP, settings | {"share.heartbeat.interval.ms": "8999"}, {}) is None


def test_what_was_there_before_does_not_stand_in_the_way_of_a_change() -> None:
    existing = {"node.id": "7", "log.retention.ms": "0"}
    assert RULES.refusal(BROKER, {**existing, "log.segment.bytes": "2000000"}, existing) is None


def test_only_a_list_can_be_appended_to_and_it_begins_with_apache_kafkas_default() -> None:
    rules = CatalogueRules(InForce({"log.cleanup.policy": "compact"}))
    assert rules.is_list(ResourceType.TOPIC, "cleanup.policy")
    assert not rules.is_list(ResourceType.TOPIC, "segment.bytes")
    assert not rules.is_list(ResourceType.TOPIC, "unknown")
    assert not rules.is_list(ResourceType.CLIENT_METRICS, "metrics")
    assert rules.default_of(TOPIC, "cleanup.policy") == "delete"
    assert rules.default_of(TOPIC, "unknown") == ""


def test_a_new_topics_settings_name_their_source() -> None:
    rules = CatalogueRules(InForce({"log.retention.ms": "7"}))
    entries = {each.name: each for each in rules.describe_topic({"segment.bytes": "4000000"})}
    assert (entries["segment.bytes"].value, entries["segment.bytes"].config_source) == ("4000000", 1)
    assert (entries["retention.ms"].value, entries["retention.ms"].config_source) == ("7", 3)
    assert (entries["max.message.bytes"].value, entries["max.message.bytes"].config_source) == ("1048588", 5)


def test_a_group_is_described_with_what_the_broker_gives_it() -> None:
    layers = BrokerLayers({"group.consumer.session.timeout.ms": "50000"})
    overrides = {"consumer.heartbeat.interval.ms": "6000"}
    described = describe_resource(group_catalogue(), overrides, ConfigSource.GROUP, layers)
    entries = {each.name: each for each in described}
    assert entries["consumer.session.timeout.ms"].value == "50000"
    assert entries["consumer.heartbeat.interval.ms"].synonyms == (
        Synonym("consumer.heartbeat.interval.ms", "6000", ConfigSource.GROUP),
        Synonym("group.consumer.heartbeat.interval.ms", "5000", ConfigSource.DEFAULT),
    )
    assert entries["share.isolation.level"].synonyms == (
        Synonym("share.isolation.level", "read_uncommitted", ConfigSource.DEFAULT),
    )


def test_a_subscription_shows_no_synonym_of_a_default() -> None:
    entries = describe_resource(client_metrics_catalogue(), {"metrics": "a,b"}, ConfigSource.CLIENT_METRICS)
    assert [(each.name, each.value, len(each.synonyms)) for each in entries] == [
        ("interval.ms", "300000", 0),
        ("match", "", 0),
        ("metrics", "a,b", 1),
    ]


class Compared(str):
    """A text that counts how often it was compared."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Compared.compared += 1
        return str.__eq__(self, cast("str", other))

    __hash__ = str.__hash__


class Splitting(str):
    """A text whose members count how often they are compared."""

    __slots__ = ()

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        return [Compared(each) for each in str.split(self, sep, maxsplit)]


@pytest.mark.parametrize("operation", [AlterConfigOperation.APPEND, AlterConfigOperation.SUBTRACT])
def test_members_of_long_lists_are_not_compared_with_each_other(operation: AlterConfigOperation) -> None:
    Compared.compared = 0
    before, named = (Splitting(",".join(f"{prefix}{n}" for n in range(500))) for prefix in "ab")
    edited_list(before, named, operation)
    assert Compared.compared < 2_000


@pytest.mark.parametrize("text", ["1" * 30_000 + "x", "." + "1" * 30_000 + "x", "1e" + "1" * 30_000 + "x"])
def test_a_long_text_that_is_no_number_is_refused_at_once(text: str) -> None:
    began = time.process_time()  # Tried with each division of the digits, it takes tens of seconds.
    with pytest.raises(InvalidValue):
        parse_type("quota", ValueType.DOUBLE, text)
    assert time.process_time() - began < 0.5


def test_a_pattern_of_a_client_metrics_subscription_takes_linear_time() -> None:
    """In Python's engine this pattern doubles its time with each letter."""
    match = linear_matcher("(a|aa)+b?")
    assert match is not None and match("a" * 5_000) and not match("a" * 5_000 + "c")
    refusal = client_metrics_refusal({"match": r"client_id=(a)\1"})
    assert refusal is not None and refusal.error is ErrorCode.INVALID_CONFIG


def test_a_subscription_matches_by_the_same_engine() -> None:
    assert telemetry._matches("client_id=a+,client_source_port=[0-9]+", {"client_id": "aa", "client_source_port": "9"})
    assert not telemetry._matches("client_id=(a|aa)+", {"client_id": "a" * 5_000 + "c"})
